"""The session of a rig: one port, opened once, and the acts that lead from a cold rig over its rungs to the end.

Each act is asked for by an operator, and leads along the arrows of ``machine.py``. Who asks does not matter: a
terminal, a file of answers, a service. Numbers are untared, in coordinates of the axes, m and N.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime

import numpy as np

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.protocols import Port
from rths_nodes.core.samples import Measurement
from rths_nodes.loop.pacing import SYSTEM_CLOCK, Clock
from rths_nodes.loop.procedure import acts, small_move, unloading
from rths_nodes.loop.procedure.acts import ActRefused
from rths_nodes.loop.procedure.arming import arm, start_of
from rths_nodes.loop.procedure.clearance import Clearance
from rths_nodes.loop.procedure.drive import RigDrive
from rths_nodes.loop.procedure.machine import SessionMachine
from rths_nodes.loop.procedure.motions import positioning_velocities
from rths_nodes.loop.procedure.offsets import Offsets, Watching
from rths_nodes.loop.procedure.quasi_static import QuasiStatic, Script
from rths_nodes.loop.procedure.readback import told_of
from rths_nodes.loop.procedure.records import (
    AxisChecks,
    Note,
    ProcedureRecord,
    RungRecord,
    UnloadingRecord,
)
from rths_nodes.loop.procedure.rungs import RungUnderWay, RunOutcome
from rths_nodes.loop.provenance import Code
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.states import State

__all__ = ["ActRefused", "RigSession", "RunOutcome"]

SHORTEST_S, LONGEST_S = 0.02, 600.0
"""How long offsets may be taken."""


class RigSession:
    """One procedure on the rig of ``scenario``, written down in ``record``; by the clock, or in lockstep.

    ``code`` is what computes it, taken when the scenario was read; left out: as it is now.
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
        code: Code | None = None,
    ) -> None:
        if scenario.rig_file is None:
            raise ConfigError("rig: a procedure needs a rig file (--rig): ranges of sensors, limits, the port")
        self.scenario, self.record, self.realtime = scenario, record, realtime
        self.code = code or Code.of(scenario)
        self.record.code = dict(self.code.names)
        self.offsets: Offsets | None = None
        """The confirmed ones."""
        self._machine = SessionMachine(changed)
        self.drive: RigDrive = RigDrive(
            Assembly(scenario).port,
            scenario,
            realtime,
            clock,
            self._machine.brake,
            lambda measured: self._machine.disarm(self.drive.unfit),
        )
        self._clock = clock
        self._rig_axes = {name: axis.rig_axis for name, axis in scenario.axes.items() if axis.rig_axis}
        self.clearance = Clearance(record, self._rig_axes)
        self._taken: Offsets | None = None
        self._rung: RungUnderWay | None = None

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

    def possible(self) -> dict[str, str]:
        """Every act: empty where it is possible now, else why it is not."""
        with self._machine.lock:
            return {act: self._why_not(act) for act in acts.STATES}

    def _why_not(self, act: str) -> str:
        if reason := acts.why_not(act, self.state):
            return reason
        suspended = self._rung is not None and self._rung.suspended
        if act == "resume" and not suspended:
            return "nothing is held that could go on: the rung is over"
        if suspended and act not in ("resume", "stop", "note"):
            return "a rung is held: resume or stop it"
        if act == "confirm_offsets" and self._taken is None:
            return "no offsets were taken"
        if act == "sign_for" and not self.clearance.unsigned():
            return "nothing is to be signed for"
        if act in acts.MOVING and (reason := self.drive.unfit()):
            return reason
        return self.clearance.barred() if act in ("position", "arm", "run") else ""

    # -- from cold to checked -----------------------------------------------------------------------------

    def connect(self) -> None:
        """Open the port; the first command is the active one of the controller. Raises ConfigError."""
        self._begin("connect")
        self.drive.connect()
        self.record.port = type(self.scenario.port).type_name
        self.record.controller = told_of(self.drive)
        self.code = self.code.behind(self.drive.port.build)
        self.record.code = dict(self.code.names)
        for words in self.drive.remarks:
            self.note(words)
        self._machine.to(State.CONNECTED)

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
        return Offsets.of(
            tuple(self.scenario.axes), watching.seen, active, drive.command, _now(self._clock), seconds
        )

    def confirm_offsets(self, hash: str, unloaded: bool) -> None:
        """The test counts from the offsets of that ``hash``; the force only where the specimen is ``unloaded``."""
        self._begin("confirm_offsets")
        taken = self._taken
        assert taken is not None
        if hash != taken.hash:
            raise ActRefused(f"the offsets have changed: {hash or 'empty'} is not the hash {taken.hash}")
        self.offsets = taken.confirm(unloaded, self._rig_axes)
        self._taken = None
        self.drive.refer(self.offsets.displacement)
        self.record.offsets_before = self.offsets.record()
        self.clearance.begin(self.offsets)
        if self.state is State.CONNECTED:
            self._machine.to(State.REFERENCED)

    def check(self) -> dict[str, AxisChecks]:
        """A small guarded move of every axis; what it finds may bar the way to the start."""
        self._begin("check")
        assert self.offsets is not None  # the state says so
        self.clearance.begin(self.offsets)
        with self._moving(State.CHECKING, State.REFERENCED):
            found: dict[str, AxisChecks] = small_move.check_axes(self.drive, self.scenario, self.offsets)
            self.record.checks = found
        return self.record.checks

    def sign_for(self, what: str, by: str = "") -> None:
        """The operator answers for what is not verified, named by its words or its axis."""
        self._begin("sign_for")
        self.clearance.sign(what, by or self.record.operator)

    # -- the rungs ----------------------------------------------------------------------------------------

    def position(self) -> None:
        """To the start of the test, by a bounded ramp, until the rig rests there."""
        self._begin("position")
        assert self.offsets is not None
        drive, scenario = self.drive, self.scenario
        goal = self.offsets.held + start_of(scenario, drive.port)
        walk = QuasiStatic.of(scenario, drive.command)
        motion = Script(walk.go(goal, positioning_velocities(scenario)))
        with self._moving(State.POSITIONING, State.POSITIONED):
            drive.drive(motion)
        if not motion.result.resting:
            self.note("the rig does not rest at the start: a sensor drifts, or the specimen relaxes")

    def arm(self, rung: str, scenario: Scenario, scenario_hash: str, offsets_hash: str) -> None:
        """Arm a rung of ``scenario``, as it runs there. Raises ConfigError where something differs from a hash."""
        self._begin("arm")
        assert self.offsets is not None
        build = self.drive.port.build
        armed = arm(self.scenario, self.offsets, rung, scenario, scenario_hash, offsets_hash, self.code, build)
        away = np.abs(self.offsets.held + start_of(scenario, self.drive.port) - self.drive.command)
        for (name, axis), far in zip(self.scenario.axes.items(), away.tolist(), strict=True):
            if not far <= axis.limits.velocity * self.scenario.dt:
                raise ActRefused(f"axes.{name}: stands {far:.6g} m away from where rung {rung} starts")
        self._rung = RungUnderWay(armed, self.drive, self.offsets, self._machine)
        self._machine.to(State.ARMED, f"rung {rung}")

    def run(self, runner: Callable[[Scenario, Port], RunOutcome]) -> RungRecord:
        """The rung that is armed: ``runner`` runs its scenario on the handed port. Nothing stays armed.

        Raises ActRefused, and it stays armed, where a file of it or the code has changed.
        """
        drive, offsets = self.drive, self.offsets
        self._begin("run")
        if self._rung is not None and (changed := self._rung.armed.changed(drive.port.build)):
            raise ActRefused(*(f"run: {words}" for words in changed))
        with self._machine.lock:
            self._begin("run")
            rung = self._rung
            assert rung is not None
            assert offsets is not None
            drive.ready()
            self._machine.to(State.RUNNING, f"rung {rung.armed.rung}")
        armed = rung.armed
        written = RungRecord(armed.rung, _now(self._clock), time_ratio=armed.scenario.time_ratio)
        written.scenario_hash, written.offsets_hash = armed.scenario_hash, offsets.hash
        written.inputs, written.code = armed.inputs, armed.code.hash
        outcome = RunOutcome("failed", "the host has given no result")
        try:
            outcome = runner(armed.scenario, rung.port)
        except ConfigError as error:
            outcome = RunOutcome("refused", str(error))
            raise
        except BaseException as error:
            outcome = RunOutcome("failed", f"{type(error).__name__}: {error}")
            raise
        finally:
            rung.port.release()
            drive.await_rest()
            written.outcome, written.reason, written.samples = outcome.outcome, outcome.reason, outcome.samples
            written.remarks += rung.relaxed(tuple(self.scenario.axes), self.scenario.dt)
            self.record.rungs.append(written)
            self._rung = None
            rung.over(outcome, drive.broken)
        return written

    # -- hold, resume, stop -------------------------------------------------------------------------------

    def hold(self, reason: str = "") -> None:
        """In slow time the rung stands still until :meth:`resume`; in real time it ends here, held."""
        with self._machine.lock:
            self._begin("hold")
            assert self._rung is not None
            self._rung.hold(reason or "the operator holds the test")

    def resume(self) -> None:
        """The rung that is held goes on."""
        with self._machine.lock:
            self._begin("resume")
            assert self._rung is not None
            self._rung.resume()

    def stop(self, reason: str = "") -> None:
        """Whatever moves comes to rest and is held; what is armed is so no more. From any thread."""
        reason = reason or "the operator stops the rig"
        with self._machine.lock:
            if self.state is State.ARMED:
                self._rung = None
                self._machine.to(State.HELD, reason)
            elif self._rung is not None and (self._machine.moving or self._rung.suspended):
                self._rung.stop(reason)
            elif self._machine.moving:
                self.drive.stop(reason)

    def acknowledge(self) -> None:
        """The operator has understood what has tripped the rig: it counts as held."""
        self._begin("acknowledge")
        if self.drive.broken:
            raise ActRefused(f"{self.drive.broken}: nothing drives this rig any more: finish")
        self._machine.to(State.HELD, f"acknowledged: {self.reason}")

    # -- the end ------------------------------------------------------------------------------------------

    def unload(self) -> UnloadingRecord:
        """The specimen to zero force, by a motion that is bounded in travel and rate."""
        self._begin("unload")
        assert self.offsets is not None  # the state says so
        with self._moving(State.UNLOADING, State.HELD):
            done: UnloadingRecord = unloading.unload(self.drive, self.scenario, self.offsets)
            self.record.unloading.append(done)
        return done

    def note(self, text: str, by: str = "") -> None:
        """Words for the report."""
        self.record.notes.append(Note(_now(self._clock), text, by or self.record.operator))

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
        self._machine.to(State.FINISHED)
        self.close()

    def close(self) -> None:
        """Give the port back, whatever has happened; the rig is left to its own safe state."""
        self.stop("the session is closed")
        with suppress(ConfigError):
            self.drive.close()
        if not self.record.ended and self.state is not State.IDLE:
            self.record.ended = _now(self._clock)
            self.record.outcome = self.record.outcome or "interrupted"

    # -- how acts go --------------------------------------------------------------------------------------

    def _begin(self, act: str) -> None:
        """Raises ActRefused where ``act`` is not possible now."""
        with self._machine.lock:
            if reason := self._why_not(act):
                raise ActRefused(f"{act}: {reason}")

    @contextmanager
    def _moving(self, state: State, then: State) -> Iterator[None]:
        """In the motion state ``state``, which ends in ``then``, or after a stop in held or tripped."""
        drive = self.drive
        drive.ready()
        self._machine.to(state)
        try:
            yield
        except BaseException:
            drive.stop("the act has failed")
            self._machine.brake("the act has failed")
            self._machine.to(State.TRIPPED, "the act has failed")
            raise
        mishap = drive.mishap
        if mishap is None:
            self._machine.to(then)
            return
        self._machine.brake(mishap.reason)
        self._machine.to(State.TRIPPED if mishap.tripped else State.HELD, mishap.reason)
        raise ActRefused(mishap.reason)


def _now(clock: Clock) -> str:
    return datetime.fromtimestamp(clock.time_ns() * 1e-9).astimezone().isoformat(timespec="milliseconds")
