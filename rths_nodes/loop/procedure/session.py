"""The session of a rig: one port, opened once, and the acts that lead from a cold rig over its rungs to the end.

Each act is asked for by an operator, and leads along the arrows of ``machine.py``. Who asks does not matter: a
terminal, a file of answers, a service. Numbers are untared, in coordinates of the axes, m and N.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.protocols import Port
from rths_nodes.core.samples import Array, Measurement
from rths_nodes.laboratory.calibration import RigAxis
from rths_nodes.loop.pacing import SYSTEM_CLOCK, Clock
from rths_nodes.loop.procedure import acts
from rths_nodes.loop.procedure.acts import ActRefused
from rths_nodes.loop.procedure.arming import Armed, arm, start_of
from rths_nodes.loop.procedure.drive import RigDrive
from rths_nodes.loop.procedure.machine import SessionMachine
from rths_nodes.loop.procedure.motions import BoundedRamp, accelerations, positioning_velocities
from rths_nodes.loop.procedure.offsets import Offsets, Watching
from rths_nodes.loop.procedure.readback import told_of
from rths_nodes.loop.procedure.records import (
    NOT_VERIFIED,
    SIGNED,
    AxisChecks,
    Note,
    ProcedureRecord,
    RungRecord,
    UnloadingRecord,
)
from rths_nodes.loop.procedure.rung_port import ComputedForcePort, RungPort, UnsentPort
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.rehearsal import simulated
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.states import State

__all__ = ["ActRefused", "RigSession", "RunOutcome"]

SHORTEST_S, LONGEST_S = 0.02, 600.0
"""How long offsets may be taken."""


@dataclass(frozen=True)
class RunOutcome:
    """How a run on the handed port went: finished, held, tripped, failed, refused or interrupted, and why."""

    outcome: str
    reason: str = ""
    samples: int = 0


class RigSession:
    """One procedure on the rig of ``scenario``, written down in ``record``; by the clock, or in lockstep.

    ``changed`` is told of each state with its reason, also from the thread that drives the rig. :meth:`hold`,
    :meth:`resume`, :meth:`stop` and :meth:`note` may be called from any thread while another act is under way.
    Raises ConfigError for a scenario without a rig file, and for a port that cannot be built.
    """

    def __init__(
        self,
        scenario: Scenario,
        record: ProcedureRecord,
        *,
        realtime: bool,
        clock: Clock = SYSTEM_CLOCK,
        changed: Callable[[State, str], None] | None = None,
    ) -> None:
        if scenario.rig_file is None:
            raise ConfigError("rig: a procedure needs a rig file (--rig): ranges of sensors, limits, the port")
        self.scenario, self.record, self.realtime = scenario, record, realtime
        self.offsets: Offsets | None = None
        """The confirmed ones."""
        self.drive = RigDrive(Assembly(scenario).port, scenario, realtime, clock, self._braking)
        self._clock = clock
        self._machine = SessionMachine(changed)
        self._lock = threading.RLock()
        self._taken: Offsets | None = None
        self._signed: set[str] = set()
        self._armed: Armed | None = None
        self._rung: RungPort | None = None
        self._suspended = self._slow = False

    # -- what it shows ------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        return self._machine.state

    @property
    def reason(self) -> str:
        """Why the state was entered; empty where it goes without saying."""
        return self._machine.reason

    @property
    def measured(self) -> Measurement:
        """The last Measurement, untared, with a counter of its own."""
        return self.drive.measured

    @property
    def rig_axes(self) -> dict[str, RigAxis]:
        """Of each axis of the test, the rig's."""
        return {name: axis.rig_axis for name, axis in self.scenario.axes.items() if axis.rig_axis is not None}

    def possible(self) -> dict[str, str]:
        """Every act: empty where it is possible now, else why it is not."""
        with self._lock:
            return {act: self._why_not(act) for act in acts.STATES}

    def _why_not(self, act: str) -> str:
        if reason := acts.why_not(act, self.state):
            return reason
        if act == "resume" and not self._suspended:
            return "nothing is held that could go on: the rung is over"
        if self._suspended and act not in ("resume", "stop", "note"):
            return "a rung is held: resume or stop it"
        if act == "confirm_offsets" and self._taken is None:
            return "no offsets were taken"
        if act == "sign_for" and not self._unsigned():
            return "nothing is to be signed for"
        if act in acts.MOVING and (reason := self.drive.unfit()):
            return reason
        return self._barred() if act in ("position", "arm", "run") else ""

    def _barred(self) -> str:
        """Why a rig that could move must not leave its place: what the checks have found."""
        if not self.record.checks:
            return "the axes were not checked"
        found = [words for checks in self.record.checks.values() for words in checks.findings]
        return "\n".join(found + [f"{what}: sign for it, or verify it" for what in self._unsigned()])

    def _unsigned(self) -> list[str]:
        """What is neither verified nor signed for."""
        wanting = [
            f"scale of {channel} of {name} not verified"
            for name, checks in self.record.checks.items()
            for channel in ("displacement", "force")
            if getattr(checks, f"{channel}_scale") == NOT_VERIFIED
        ]
        if self.offsets is not None:
            wanting += self.offsets.forces_at_rest(self.rig_axes).values()
        return [what for what in wanting if what not in self._signed]

    # -- from cold to checked -----------------------------------------------------------------------------

    def connect(self) -> None:
        """Open the port; the first command is the active one of the controller. Raises ConfigError."""
        self._begin("connect")
        self.drive.connect()
        self.record.port = type(self.scenario.port).type_name
        self.record.controller = told_of(self.drive)
        for words in self.drive.remarks:
            self.note(words)
        self._to(State.CONNECTED)

    def take_offsets(self, seconds: float) -> Offsets:
        """What the sensors show in ``seconds`` of rest, with its scatter; not confirmed yet."""
        self._begin("take_offsets")
        self._taken = self._watched(seconds)
        return self._taken

    def _watched(self, seconds: float) -> Offsets:
        if not SHORTEST_S <= seconds <= LONGEST_S:
            raise ActRefused(f"seconds = {seconds:g} s: must be within {SHORTEST_S:g} and {LONGEST_S:g} s")
        drive = self.drive
        watching = Watching(drive.command, max(2, round(seconds / self.scenario.dt)))
        drive.ready()
        outcome = drive.drive(watching)
        if outcome.reason:
            raise ActRefused(f"offsets: {outcome.reason}")
        active = drive.port.active_command
        return Offsets.of(tuple(self.scenario.axes), watching.seen, active, drive.command, self._now(), seconds)

    def confirm_offsets(self, hash: str, unloaded: bool) -> None:
        """The test counts from the offsets of that ``hash``; the force only where the specimen is ``unloaded``."""
        self._begin("confirm_offsets")
        taken = self._taken
        assert taken is not None
        if hash != taken.hash:
            raise ActRefused(f"the offsets have changed: {hash or 'empty'} is not the hash {taken.hash}")
        self.offsets = taken.confirm(unloaded, self.rig_axes)
        self._taken = None
        self.drive.refer(self.offsets.displacement)
        self.record.offsets_before = self.offsets.record()
        self.record.checks = {}
        self._signed.clear()
        if self.state is State.CONNECTED:
            self._to(State.REFERENCED)

    def check(self) -> dict[str, AxisChecks]:
        """A small guarded move of every axis; what it finds may bar the way to the start."""
        from rths_nodes.loop.procedure import small_move

        self._begin("check")
        with self._moving(State.CHECKING, State.REFERENCED):
            found: dict[str, AxisChecks] = small_move.check_axes(self.drive, self.scenario, self.offsets)
            self.record.checks = found
        return self.record.checks

    def sign_for(self, what: str, by: str = "") -> None:
        """The operator answers for what is not verified, by its words or the name of its axis."""
        self._begin("sign_for")
        meant = [each for each in self._unsigned() if what == each or f" of {what} " in f" {each} "]
        meant = meant or [each for each in self._unsigned() if what and each.startswith(f"axes.{what}:")]
        if not meant:
            raise ActRefused(f"{what or 'empty'}: is not to be signed for; it is: {'; '.join(self._unsigned())}")
        who = by or self.record.operator
        for words in meant:
            self._signed.add(words)
            self.record.deviations.append(f"{words}: signed for by {who or 'the operator'}")
            for name, checks in self.record.checks.items():
                for channel in ("displacement", "force"):
                    if words == f"scale of {channel} of {name} not verified":
                        setattr(checks, f"{channel}_scale", SIGNED)

    # -- the rungs ----------------------------------------------------------------------------------------

    def position(self) -> None:
        """To the start of the test, by a bounded ramp."""
        self._begin("position")
        drive, scenario = self.drive, self.scenario
        goal = self._place_of(scenario)
        velocity = positioning_velocities(scenario)
        ramp = BoundedRamp(drive.command, goal, velocity, accelerations(scenario.limits), scenario.dt)
        with self._moving(State.POSITIONING, State.POSITIONED):
            drive.drive(ramp)

    def _place_of(self, scenario: Scenario) -> Array:
        """The command at the start of ``scenario``."""
        assert self.offsets is not None
        return self.offsets.held + start_of(scenario, self.drive.port)

    def arm(self, rung: str, scenario: Scenario, scenario_hash: str, offsets_hash: str) -> None:
        """Arm a rung of ``scenario``, as it runs there. Raises ConfigError where something differs from the hashes."""
        self._begin("arm")
        assert self.offsets is not None
        armed = arm(self.scenario, self.offsets, rung, scenario, scenario_hash, offsets_hash)
        away = np.abs(self._place_of(scenario) - self.drive.command)
        for (name, axis), far in zip(self.scenario.axes.items(), away.tolist(), strict=True):
            if not far <= axis.limits.velocity * self.scenario.dt:
                raise ActRefused(f"axes.{name}: stands {far:.6g} m away from where rung {rung} starts")
        self._rung = self._port_of(armed)
        self._armed = armed
        self._to(State.ARMED, f"rung {rung}")

    def run(self, runner: Callable[[Scenario, Port], RunOutcome]) -> RungRecord:
        """The rung that is armed: ``runner`` runs its scenario on the handed port. Nothing is armed afterwards."""
        self._begin("run")
        armed, port = self._armed, self._rung
        assert armed is not None
        assert port is not None
        assert self.offsets is not None
        self._armed, self._slow = None, armed.scenario.time_ratio > 1
        written = RungRecord(armed.rung, self._now(), time_ratio=armed.scenario.time_ratio)
        written.scenario_hash, written.offsets_hash = armed.scenario_hash, self.offsets.hash
        outcome = RunOutcome("failed", "the host has given no result")
        self.drive.ready()
        self._to(State.RUNNING, f"rung {armed.rung}")
        try:
            outcome = runner(armed.scenario, port)
        except ConfigError as error:
            outcome = RunOutcome("refused", str(error))
            raise
        except BaseException as error:
            outcome = RunOutcome("failed", f"{type(error).__name__}: {error}")
            raise
        finally:
            port.release()
            self.drive.await_rest()
            written.outcome, written.reason, written.samples = outcome.outcome, outcome.reason, outcome.samples
            written.remarks += self._relaxed(port)
            self.record.rungs.append(written)
            self._rung_over(outcome)
        return written

    def _rung_over(self, outcome: RunOutcome) -> None:
        with self._lock:
            self._suspended, self._rung = False, None
            reason = outcome.reason or self.drive.broken
            if outcome.outcome in ("tripped", "failed") or self.drive.broken:
                if self.state in (State.RUNNING, State.RESUMING):
                    self._to(State.STOPPING, reason)
                self._to(State.TRIPPED, reason)
            elif self.state is not State.HELD:
                if self.state is State.RESUMING:
                    self._to(State.STOPPING, reason)
                self._to(State.HELD, reason or "the rung is over")

    def _port_of(self, armed: Armed) -> RungPort:
        """The port as the armed rung sees it. Raises ConfigError where the scenario lacks a model that it needs."""
        assert self.offsets is not None
        tares, scenario = self.offsets.tares(armed.reach), armed.scenario
        if armed.rung == "c":
            port: RungPort = UnsentPort(self.drive, tares, Assembly(simulated(scenario)).port)
        elif armed.rung == "d":
            if scenario.rig is not None:
                raise ConfigError(
                    "rung d: the specimen of a coupled rig has no model that follows what is measured"
                )
            models = [registry.build("specimen", scenario.model_of(name, "specimen")) for name in scenario.axes]
            port = ComputedForcePort(self.drive, tares, models, scenario.dt)
        else:
            port = RungPort(self.drive, tares)
        handover = port.handover
        handover.stopping, handover.at_rest = self._braking, self._at_rest
        handover.under_way = self._under_way
        return port

    def _relaxed(self, port: RungPort) -> Iterator[str]:
        for hold in port.handover.holds:
            told = ", ".join(
                f"{name} from {before:.6g} N to {after:.6g} N"
                for name, before, after in zip(self.scenario.axes, hold.before, hold.after, strict=True)
            )
            yield f"held behind sample {hold.sample} for {hold.ticks * self.scenario.dt:.3g} s: {told}"

    # -- hold, resume, stop -------------------------------------------------------------------------------

    def hold(self, reason: str = "") -> None:
        """In slow time the rung stands still until :meth:`resume`; in real time it ends here, held."""
        with self._lock:
            self._begin("hold")
            assert self._rung is not None
            reason = reason or "the operator holds the test"
            requests = self._rung.handover.requests
            if not self._slow:
                requests.stop(reason)
                return
            self._suspended = True
            requests.hold()
            self._to(State.STOPPING, reason)

    def resume(self) -> None:
        """The rung that is held goes on."""
        with self._lock:
            self._begin("resume")
            assert self._rung is not None
            self._suspended = False
            self._to(State.RESUMING)
            self._rung.handover.requests.resume()

    def _at_rest(self) -> None:
        with self._lock:
            if self._suspended and self.state is State.STOPPING:
                self._to(State.HELD, self.reason)

    def _under_way(self) -> None:
        with self._lock:
            if self.state is State.RESUMING:
                self._to(State.RUNNING)

    def stop(self, reason: str = "") -> None:
        """Whatever moves comes to rest and is held; what is armed is so no more. At any time, from any thread."""
        reason = reason or "the operator stops the rig"
        with self._lock:
            if self.state is State.ARMED:
                self._armed = self._rung = None
                self._to(State.HELD, reason)
            elif self._rung is not None:
                self._rung.handover.requests.stop(reason)
            elif self._machine.moving:
                self.drive.stop(reason)

    def acknowledge(self) -> None:
        """The operator has understood what has tripped the rig: it counts as held."""
        self._begin("acknowledge")
        if self.drive.broken:
            raise ActRefused(f"{self.drive.broken}: nothing drives this rig any more: finish")
        self._to(State.HELD, f"acknowledged: {self.reason}")

    # -- the end ------------------------------------------------------------------------------------------

    def unload(self) -> UnloadingRecord:
        """The specimen to zero force, by a motion that is bounded in travel and rate."""
        from rths_nodes.loop.procedure import unloading

        self._begin("unload")
        with self._moving(State.UNLOADING, State.HELD):
            done: UnloadingRecord = unloading.unload(self.drive, self.scenario, self.offsets)
            self.record.unloading.append(done)
        return done

    def note(self, text: str, by: str = "") -> None:
        """Words for the report."""
        self.record.notes.append(Note(self._now(), text, by or self.record.operator))

    def finish(self) -> None:
        """Take the offsets again where that is possible, and give the port back."""
        self._begin("finish")
        if self.offsets is not None:
            try:
                again = self._watched(self.offsets.seconds)
                self.record.offsets_after = again.record()
            except ActRefused as refused:
                self.note(f"no offsets after the test: {refused}")
        last = self.record.rungs[-1].outcome if self.record.rungs else ""
        outcome = "tripped" if self.state is State.TRIPPED else last or "no rung was climbed"
        self.record.outcome = self.record.outcome or outcome
        self._to(State.FINISHED)
        self.close()

    def close(self) -> None:
        """Give the port back, whatever has happened; the rig is left to its own safe state."""
        self.stop("the session is closed")
        with suppress(ConfigError):
            self.drive.close()
        if not self.record.ended and self.state is not State.IDLE:
            self.record.ended = self._now()
            self.record.outcome = self.record.outcome or "interrupted"

    # -- how acts go --------------------------------------------------------------------------------------

    def _begin(self, act: str) -> None:
        """Raises ActRefused where ``act`` is not possible now."""
        with self._lock:
            if reason := self._why_not(act):
                raise ActRefused(f"{act}: {reason}")

    @contextmanager
    def _moving(self, state: State, then: State) -> Iterator[None]:
        """In the motion state ``state``, which ends in ``then``, or after a stop in held or tripped."""
        drive = self.drive
        drive.ready()
        self._to(state)
        try:
            yield
        except BaseException:
            drive.stop("the act has failed")
            self._braking("the act has failed")
            self._to(State.TRIPPED, "the act has failed")
            raise
        mishap = drive.mishap
        if mishap is None:
            self._to(then)
            return
        self._braking(mishap.reason)
        self._to(State.TRIPPED if mishap.tripped else State.HELD, mishap.reason)
        raise ActRefused(mishap.reason)

    def _braking(self, reason: str) -> None:
        """A motion is stopped."""
        with self._lock:
            if self._machine.moving and self.state is not State.STOPPING:
                self._to(State.STOPPING, reason)

    def _to(self, state: State, reason: str = "") -> None:
        with self._lock:
            self._machine.to(state, reason)

    def _now(self) -> str:
        seconds = self._clock.time_ns() * 1e-9
        return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="milliseconds")

    def __enter__(self) -> RigSession:
        return self

    def __exit__(self, *told: Any) -> None:
        self.close()
