# SPDX-License-Identifier: Apache-2.0
"""Session of a rig: one port, opened once, and the acts from a cold rig over its rungs to the end.

Acts of an operator, from any source, lead along the transitions of ``machine.py``. Numbers are untared, in
coordinates of the axes, m and N.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import datetime

import numpy as np

from rths_nodes.core.errors import ConfigError, PortError
from rths_nodes.core.protocols import Port
from rths_nodes.core.samples import (
    HYDRAULICS_HIGH,
    HYDRAULICS_LOW,
    HYDRAULICS_OFF,
    INTERLOCK_CLOSED,
    INTERLOCK_OPEN,
    MODE_DISPLACEMENT,
    MODE_FORCE,
    Measurement,
)
from rths_nodes.loop.commissioning import Commissioning, not_commissioned
from rths_nodes.loop.pacing import SYSTEM_CLOCK, Clock
from rths_nodes.loop.procedure_record import (
    RUNGS,
    AxisChecks,
    HeldRecord,
    Note,
    ProcedureRecord,
    RungRecord,
    UnloadingRecord,
)
from rths_nodes.loop.provenance import Code
from rths_nodes.loop.scenario import judgement
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure import placing, small_move, unloading
from rths_nodes.procedure.acting import ARMED_FOR_S, Acting, Clearance, as_act
from rths_nodes.procedure.acts import ActRefused
from rths_nodes.procedure.arming import arm, never_in_shadow, persons_arming, start_of
from rths_nodes.procedure.drive import RigDrive
from rths_nodes.procedure.following import Following
from rths_nodes.procedure.machine import SessionMachine, stopped_by_operator
from rths_nodes.procedure.motions import positioning_velocities
from rths_nodes.procedure.offsets import Offsets, Watching
from rths_nodes.procedure.quasi_static import QuasiStatic, Script
from rths_nodes.procedure.rungs import RungUnderWay, RunOutcome
from rths_nodes.procedure.warning import MotionWarning

__all__ = ["ActRefused", "RigSession", "RunOutcome"]

SHORTEST_S, LONGEST_S = 0.02, 600.0
"""Bounds of the duration of offsets, s."""
NOT_TOLD = "not reported"
_PRESSURES = {HYDRAULICS_OFF: "off", HYDRAULICS_LOW: "low", HYDRAULICS_HIGH: "high"}
_INTERLOCKS = {INTERLOCK_CLOSED: "closed", INTERLOCK_OPEN: "open"}
_MODES = {MODE_DISPLACEMENT: "displacement", MODE_FORCE: "force"}


class RigSession(Acting):
    """One procedure on the rig of ``scenario``, written to ``record``; in real time, or in lockstep.

    ``code`` is the computing code when the scenario was read, by default now. ``judged`` returns the cautions
    about a test on a real rig, by default the rules' cautions, without stability. ``changed`` gets each state with
    its reason, also from the thread that drives the rig. :meth:`hold`, :meth:`resume`, :meth:`stop` and
    :meth:`note` are thread-safe and possible during another act. Raises ConfigError for a scenario without a rig
    file, and for an invalid port.
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
        judged: Callable[[Scenario, bool], list[judgement.Judgement]] = judgement.cautions,
    ) -> None:
        if scenario.rig_file is None:
            raise ConfigError("rig: a procedure needs a rig file (--rig): ranges of sensors, limits, the port")
        self.scenario, self.record, self.realtime = scenario, record, realtime
        self.code = code or Code.of(scenario)
        self.record.code = dict(self.code.names)
        self.commissioned: Commissioning | None = None
        """Required, and valid, to arm a rung that moves behind the port of a real rig."""
        self.offsets: Offsets | None = None
        super().__init__(SessionMachine(changed), clock)
        self.drive: RigDrive = RigDrive(
            Assembly(scenario).port,
            scenario,
            realtime,
            clock,
            self._machine.brake,
            self._measured,
        )
        self.warning = MotionWarning(self.drive, scenario, clock)
        judgement.refuse(scenario, self.drive.port.simulated)
        self._rig_axes = {name: axis.rig_axis for name, axis in scenario.axes.items() if axis.rig_axis}
        cautions = [] if self.drive.port.simulated else judged(scenario, False)
        self.clearance = Clearance(record, self._rig_axes, cautions)
        self._taken: Offsets | None = None

    @property
    def measured(self) -> Measurement:
        """Last Measurement, untared, with a counter of its own."""
        return self.drive.measured

    @as_act
    def connect(self) -> str:
        """Open the port; the first command is the controller's active one. Raises ConfigError.

        Return position, force, hydraulics and interlock, as text.
        """
        self.drive.connect()
        try:
            self.warning.check()
            if self.stopped:
                raise ActRefused(f"connect: {stopped_by_operator(self.stopped)}")
        except ConfigError:
            self.drive.close()
            raise
        self.record.port = type(self.scenario.port).type_name
        self.record.controller = told_of(self.drive)
        self.code = self.code.behind(self.drive.port.build)
        self.record.code = dict(self.code.names)
        for words in self.drive.remarks:
            self.note(words)
        self._machine.to(State.CONNECTED)
        self._leave_start()
        measured, controller = self.measured, self.record.controller
        rows = zip(self.scenario.axes, measured.displacement.tolist(), measured.force.tolist(), strict=True)
        axes = "; ".join(
            f"{self.record.called(name)} at {x * 1e3:.4g} mm, {f * 1e-3:.4g} kN" for name, x, f in rows
        )
        return f"{axes}; hydraulics {controller['hydraulics']}, interlock {controller['interlock']}"

    @as_act
    def take_offsets(self, seconds: float) -> Offsets:
        """Measure for ``seconds`` at rest and return mean and scatter as offsets, not confirmed yet."""
        self._taken = self._watched(seconds)
        return self._taken

    def rest_of(self, state: State, reason: str) -> HeldRecord:
        """Return place and force of every axis as last measured, and read the controller into the record."""
        with suppress(PortError):
            self.record.controller = told_of(self.drive)
        measured, offsets, names = self.measured, self.offsets, tuple(self.scenario.axes)
        displacement, force = measured.displacement, measured.force
        if offsets is not None:
            zero = offsets.tares()
            displacement, force = displacement - zero.displacement, force - zero.force
        rows = (dict(zip(names, values.tolist(), strict=True)) for values in (displacement, force))
        return HeldRecord(_now(self._clock), state.name.lower(), reason, *rows)

    def _watched(self, seconds: float) -> Offsets:
        if not SHORTEST_S <= seconds <= LONGEST_S:
            raise ActRefused(f"seconds = {seconds:g} s: must be within {SHORTEST_S:g} and {LONGEST_S:g} s")
        drive = self.drive
        watching = Watching(drive.command, max(2, round(seconds / self.scenario.dt)))
        self._ready()
        outcome = drive.drive(watching)
        if outcome.reason:
            raise ActRefused(f"offsets: {outcome.reason}")
        active = drive.port.active_command
        return Offsets.of(
            tuple(self.scenario.axes), watching.seen, active, drive.command, _now(self._clock), seconds
        )

    @as_act
    def confirm_offsets(self, hash: str, unloaded: bool) -> None:
        """Count the test from the offsets of that ``hash``; the force only if the specimen is ``unloaded``."""
        taken = self._taken
        assert taken is not None
        if hash != taken.hash:
            raise ActRefused(f"the offsets have changed: {hash or 'empty'} is not the hash {taken.hash}")
        self.offsets = taken.confirm(unloaded, self._rig_axes, self.drive.port.simulated)
        self._taken = None
        self.drive.refer(self.offsets.displacement, self.offsets.held)
        self.record.offsets_before = self.offsets.record()
        self.clearance.begin(self.offsets)
        if self.state is State.CONNECTED:
            self._machine.to(State.REFERENCED)

    @as_act
    def check(self) -> dict[str, AxisChecks]:
        """Move every axis a little, guarded; findings may prevent the start."""
        assert self.offsets is not None  # implied by the state
        offsets = self.offsets
        with self._moving("check", State.CHECKING, State.REFERENCED, lambda: self.clearance.begin(offsets)):
            found: dict[str, AxisChecks] = small_move.check_axes(self.drive, self.scenario, offsets)
            self.record.checks = found
        return self.record.checks

    @as_act
    def sign_for(self, what: str, by: str = "") -> None:
        """Sign for one unverified item, by its full name or text."""
        with self._machine.lock:
            self.clearance.sign(what, by or self.record.operator)

    @as_act
    def position(self) -> None:
        """Move to the start of the test by a bounded ramp, and rest there."""
        assert self.offsets is not None
        drive, scenario = self.drive, self.scenario
        goal = self.offsets.held + start_of(scenario, drive.port)
        for name, place in zip(scenario.axes, goal.tolist(), strict=True):
            stroke = scenario.axes[name].limits.stroke
            if not abs(place) <= stroke:
                raise ActRefused(f"position: axes.{name}: starts at {place:.6g} m: must be within +- {stroke:g} m")
        walk = QuasiStatic.of(scenario, drive.command)
        watch = Following(scenario, self.offsets, self.record.checks).slow
        motion = Script(walk.go(goal, positioning_velocities(scenario)), drive.command, watch)
        with self._moving("position", State.POSITIONING, State.POSITIONED):
            drive.drive(motion)
        if not motion.result.resting:
            self.note("the rig does not rest at the start: a sensor drifts, or the specimen relaxes")

    @as_act
    def arm(
        self, rung: str, scenario: Scenario, scenario_hash: str, offsets_hash: str, by: str = "", second: str = ""
    ) -> tuple[str, ...]:
        """Arm a rung of ``scenario``, as it runs there; return the names of the persons who arm it.

        Raises ConfigError if something differs from a hash, or if the rung needs a ``second`` person.
        """
        assert self.offsets is not None
        build = self.drive.port.build
        persons = persons_arming(rung, self.scenario, by or self.record.operator, second)
        armed = arm(self.scenario, self.offsets, rung, scenario, scenario_hash, offsets_hash, self.code, build)
        now, port = _time(self._clock), self.drive.port
        if reason := not_commissioned(self.commissioned, self.scenario, rung, port, True, now):
            raise ActRefused(f"arm: {reason}")
        if reason := never_in_shadow(rung, scenario, self.record.rungs):
            raise ActRefused(f"arm: {reason}")
        away = np.abs(self.offsets.held + start_of(scenario, self.drive.port) - self.drive.command)
        for (name, axis), far in zip(self.scenario.axes.items(), away.tolist(), strict=True):
            if not far <= axis.limits.velocity * self.scenario.dt:
                raise ActRefused(f"axes.{name}: stands {far:.6g} m away from where rung {rung} starts")
        following = Following(scenario, self.offsets, self.record.checks)
        armed = replace(armed, persons=persons)
        under_way = RungUnderWay(armed, self.drive, self.offsets, self._machine, following)
        with self._machine.lock:
            self._begin("arm")
            self._armed_until = self._clock.monotonic_ns() + round(1e9 * ARMED_FOR_S)
            self._rung = under_way
            self._machine.to(State.ARMED, f"rung {rung}")
        return persons

    @as_act
    def run(self, runner: Callable[[Scenario, Port], RunOutcome]) -> RungRecord:
        """Run the armed rung: ``runner`` runs its scenario on the lent port. Nothing stays armed.

        The rung is in the record before the runner begins, without an outcome. Raises ActRefused, and the rung
        stays armed, if one of its files or the code has changed.
        """
        self._begin("run")
        moves = self._rung is not None and RUNGS[self._rung.armed.rung].moves
        with self._warned("run") if moves else nullcontext():
            return self._run(runner)

    def _run(self, runner: Callable[[Scenario, Port], RunOutcome]) -> RungRecord:
        drive, offsets = self.drive, self.offsets
        if self._rung is not None and (changed := self._rung.armed.changed(drive.port.build)):
            raise ActRefused(*(f"run: {words}" for words in changed))
        with self._machine.lock:
            self._begin("run")
            rung = self._rung
            assert rung is not None
            assert offsets is not None
            self._ready()
            armed, rung.port.begins = rung.armed, self.warning.off
            written = RungRecord(armed.rung, _now(self._clock), time_ratio=armed.scenario.time_ratio)
            self._machine.to(State.RUNNING, f"rung {armed.rung}")
        written.scenario_hash, written.offsets_hash = armed.scenario_hash, offsets.hash
        written.inputs, written.code = armed.inputs, armed.code.hash
        written.armed_by = list(armed.persons)
        self.record.rungs.append(written)
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
            try:
                rung.port.release()
                drive.await_rest()
            finally:
                written.outcome, written.reason = outcome.outcome, outcome.reason
                written.samples = outcome.samples or written.samples  # a runner that raised may have set them
                written.remarks += rung.remarks(tuple(self.scenario.axes), self.scenario.dt)
                self._rung = None
                rung.over(outcome, drive.broken)
        return written

    @as_act
    def acknowledge(self) -> None:
        self._machine.to(State.HELD, f"acknowledged: {self.reason}")

    @as_act
    def unload(self, to: Mapping[str, float] | None = None, signed: str = "") -> UnloadingRecord:
        """Lead the specimen to zero force, bounded in travel and rate.

        With ``to``, positions by axis in m from the zero of the test, by displacement, ``signed`` for by a person.
        """
        assert self.offsets is not None  # implied by the state
        given = self.scenario, self.offsets, self.record.checks
        goal = None if to is None else placing.goal_of(*given, self.drive.command, to, signed)
        if to is not None:
            words = ", ".join(f"axes.{name} to {1e3 * place:.4g} mm" for name, place in to.items())
            self.record.deviations.append(f"unloaded by displacement, {words}: signed for by {signed}")
        with self._moving("unload", State.UNLOADING, State.HELD):
            done: UnloadingRecord = (
                unloading.unload(self.drive, *given) if goal is None else placing.lead(self.drive, *given, goal)
            )
            done.to, done.signed = dict(to or {}), signed
            self.record.unloading.append(done)
        return done

    def note(self, text: str, by: str = "") -> None:
        self.record.notes.append(Note(_now(self._clock), text, by or self.record.operator))

    @as_act
    def finish(self) -> None:
        """Repeat the offsets if possible, and give the port back."""
        if self.offsets is not None:
            try:
                again = self._watched(self.offsets.seconds)
                self.record.offsets_after = again.record()
            except ActRefused as refused:
                self.note(f"no offsets after the test: {refused}")
        last = self.record.rungs[-1].outcome if self.record.rungs else ""
        outcome = "tripped" if self.state is State.TRIPPED else last or "no rung was climbed"
        self.record.outcome = self.record.outcome or outcome
        self.record.controller = told_of(self.drive)
        self._machine.to(State.FINISHED)
        self.close()

    def close(self) -> None:
        """Give the port back in any case; the rig is left to its own safe state."""
        self.stop("the session is closed")
        with suppress(ConfigError, PortError):  # the rig may be out of reach
            self.drive.close()
        if not self.record.ended and self.state is not State.IDLE:
            self.record.ended = _now(self._clock)
            self.record.outcome = self.record.outcome or "interrupted"


def _time(clock: Clock) -> datetime:
    return datetime.fromtimestamp(clock.time_ns() * 1e-9).astimezone()


def _now(clock: Clock) -> str:
    return _time(clock).isoformat(timespec="milliseconds")


def told_of(drive: RigDrive) -> dict[str, str]:
    """Return hydraulics, interlock, control mode and active command, as last read by the port."""
    measured, active = drive.measured, drive.port.active_command
    modes = [_MODES.get(mode, NOT_TOLD) for mode in measured.control_mode]
    commands = "cannot be read" if active is None else ", ".join(f"{value:.6g} m" for value in active.tolist())
    return {
        "hydraulics": _PRESSURES.get(measured.hydraulics, NOT_TOLD),
        "interlock": _INTERLOCKS.get(measured.interlock, NOT_TOLD),
        "control mode": ", ".join(modes) or NOT_TOLD,
        "active command": commands,
    }
