# SPDX-License-Identifier: Apache-2.0
"""Session of a rig, and the acts (``ACTS``) of a procedure. A session opens the port once.

Values are untared, in axis coordinates, in m and N.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial, wraps
from inspect import signature
from typing import TypeVar, cast

import numpy as np

from rths_nodes.core.errors import ConfigError, PortError, unknown
from rths_nodes.core.protocols import Port
from rths_nodes.core.samples import INTERLOCK_CLOSED, INTERLOCK_OPEN, MODE_DISPLACEMENT, MODE_FORCE, Measurement
from rths_nodes.laboratory.ports.simulator import PRESSURES
from rths_nodes.loop import procedure_record as records
from rths_nodes.loop.commissioning import Commissioning, barred
from rths_nodes.loop.pacing import SYSTEM_CLOCK, Clock
from rths_nodes.loop.provenance import Code
from rths_nodes.loop.scenario import judgement
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.handover import Tares
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure import rungs, small_move, unloading
from rths_nodes.procedure.clearance import Clearance, Offsets
from rths_nodes.procedure.drive import MotionWarning, RigDrive, warning_of
from rths_nodes.procedure.following import Following
from rths_nodes.procedure.machine import AT_REST, UNCONDITIONAL, ActRefused, Seen, situation, stopped_by_operator
from rths_nodes.procedure.motions import DriveOutcome, GuidedMotion, QuasiStatic, hold, positioning_velocities

SHORTEST_S, LONGEST_S = 0.02, 600.0
ARMED_FOR_S = 60.0
"""Time after which an armed rung is disarmed, because the operator may have left, s."""
CLEAR = "CLEAR"
"""Value of the argument ``clear``, which a person types after having read the description of the motion."""
NOT_TOLD = "not reported"
_PRESSURES = {code: pressure for pressure, code in PRESSURES.items()}
_MODES = {MODE_DISPLACEMENT: "displacement", MODE_FORCE: "force"}

F = TypeVar("F", bound=Callable[..., object])


class Test:
    """Test that a session belongs to. This default class has no ``acts`` of its own, and writes no record."""

    acts: Mapping[str, Callable[..., str]] = {}

    def barred(self, act: str) -> str:
        return f"{act} is possible only in a test" if act in ("rehearse", "checklist") else ""

    def cleared(self, act: str, way: str, arguments: dict[str, object]) -> str:
        """Remove ``clear`` from ``arguments``, and return a description of the motion of ``act``, if any.

        Raises ActRefused if no person has cleared the motion.
        """
        return ""

    def write(self, quietly: bool = False) -> None:
        """Write the record. If ``quietly`` is true, an error of writing is not raised."""


ACTS: dict[str, Act] = {}
"""Acts by name."""


@dataclass
class Act:
    """Act of a procedure: description ``words``, ``states`` in which the act is possible, and function ``do``.

    Each of the ``guards`` returns a reason to refuse the act, or an empty string. ``needed`` and ``optional`` are
    names of arguments. ``motion`` holds the states during and after a guided motion. The operator can intervene
    during a ``lasting`` act. An ``at_once`` act is also possible during another act and while a rung is held.
    Other nodes may request an ``anybody`` act. If an act ``commits``, one lock covers its guards and its effect.
    """

    states: tuple[State, ...]
    guards: tuple[Callable[[GuardedRig, str], str], ...] = ()
    needed: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    motion: tuple[State, ...] = ()
    lasting: bool = False
    at_once: bool = False
    anybody: bool = False
    commits: bool = False
    words: str = field(init=False)
    do: Callable[..., object] = field(init=False)

    def __call__(self, method: F) -> F:
        """Register ``method`` as the act of the same name. The first line of its docstring describes the act."""
        act = method.__name__
        title = (method.__doc__ or act).partition("\n")[0].rstrip(".")  # python -OO removes docstrings

        @wraps(method)
        def done(session: GuardedRig, /, *args: object, **arguments: object) -> object:
            outer = session.under_way
            with session.act():
                if outer is None:  # the guards of an outer act were already evaluated
                    session.begin(act, early=True)
                return method(session, *args, **arguments)

        ACTS[act], self.words = self, title[0].lower() + title[1:]
        self.do = method if act in UNCONDITIONAL else done
        return cast(F, self.do)

    @property
    def arguments(self) -> tuple[str, ...]:
        return self.needed + self.optional

    @property
    def moves(self) -> bool:
        return fit in self.guards


def barred_by_state(act: str, state: State) -> str:
    if state in ACTS[act].states:
        return ""
    needed = " or ".join(allowed.name.lower() for allowed in ACTS[act].states)
    return f"{situation(state)}; {act} is possible only in state {needed}"


def lost(drive: RigDrive) -> str:
    """Return the reason why the rig is lost, or an empty string.

    A rig that no longer follows its commands is lost only if its far end provides the ticks.
    """
    return drive.broken or (drive.port.interlock if drive.port.follows_rig else "")


def rung_held(rig: GuardedRig, act: str) -> str:
    return "" if rig.suspended else "no held rung can be resumed, because the rung has ended"


def rung_continues(rig: GuardedRig, act: str) -> str:
    stopped = rig.rung.requests.stop_reason if rig.rung is not None else ""
    return f"the rung is being stopped: {stopped}" if stopped else ""


def taken(rig: GuardedRig, act: str) -> str:
    return "there are no unconfirmed offsets" if rig.taken is None else ""


def unsigned(rig: GuardedRig, act: str) -> str:
    return "" if rig.clearance.wanting() else "there is nothing to sign for"


def fit(rig: GuardedRig, act: str) -> str:
    return rig.drive.unfit()


def checked(rig: GuardedRig, act: str) -> str:
    return rig.clearance.barred()


def allowed(rig: GuardedRig, act: str) -> str:
    return rig.test.barred(act)


_BEFORE = (State.CONNECTED, State.REFERENCED)
_AT_REST = (*_BEFORE, State.POSITIONED, State.HELD, State.TRIPPED)
_ALL = tuple(State)
_MOTION = (fit, checked, allowed)


class GuardedRig(rungs.RungRig):
    """Rig of ``scenario`` and the guards of its acts.

    ``code`` defaults to the current software. ``judged`` returns the cautions about a test on a real rig.
    ``changed`` is called with each new state and its reason, also from the thread that drives the rig. ``taken``
    holds offsets that are not yet confirmed. Raises ConfigError if ``scenario`` has no rig file.
    """

    def __init__(
        self,
        scenario: Scenario,
        record: records.ProcedureRecord,
        *,
        realtime: bool,
        clock: Clock = SYSTEM_CLOCK,
        changed: Callable[[State, str], None] | None = None,
        code: Code | None = None,
        judged: Callable[[Scenario, bool], list[judgement.Judgement]] = judgement.cautions,
    ) -> None:
        if scenario.rig_file is None:
            raise ConfigError(
                "rig: a procedure needs a rig file (--rig) with the port, the limits and the sensors"
            )
        super().__init__(changed)
        self.code = code or Code.of(scenario)
        record.code = dict(self.code.names)
        self.scenario, self.record, self._clock = scenario, record, clock
        port = Assembly(scenario).port
        self.drive = RigDrive(port, scenario, realtime, clock, self.brake, [self._measured])
        self.warning = MotionWarning(self.drive, scenario, clock)
        judgement.refuse(scenario, port.simulated)
        self._rig_axes = {name: axis.rig_axis for name, axis in scenario.axes.items() if axis.rig_axis}
        self.clearance = Clearance(record, self._rig_axes, [] if port.simulated else judged(scenario, False))
        self.commissioned: Commissioning | None = None
        """Commissioning, which must be valid to arm a rung that moves a real rig."""
        self.taken: Offsets | None = None
        self.test = Test()
        self.rehearsing = False  # a rung is running on the simulator
        self.armed_by = ("", "")
        """Operator who last armed a rung, and source (``way``) of that request."""
        self._losses = 0  # number of losses of the rig before it was positioned
        self._armed_until = 0  # monotonic time at which the rung is disarmed, ns
        self._one = threading.Lock()

    @property
    def suspended(self) -> bool:
        return self.rung is not None and self.rung.requests.held

    def possible(self) -> dict[str, str]:
        with self.lock:
            self._leave_start()
            return {act: self._reason(act) for act in ACTS}

    def why_not(self, act: str, early: bool = False) -> str:
        """Return the reason why ``act`` is not possible, or an empty string.

        If ``early`` is true and the act ``commits``, its guards are not checked.
        """
        with self.lock:
            self._leave_start()
            return self._reason(act, early)

    def _reason(self, act: str, early: bool = False) -> str:
        row = ACTS[act]
        if self.rehearsing and act not in ("stop", "note"):
            return "a rung is under way on the simulator"
        on_lost_rig = act in ("rehearse", "stop", "note", "finish")
        if self.state is State.TRIPPED and not on_lost_rig and (reason := lost(self.drive)):
            return f"{reason}. Nothing drives the rig any longer: finish the procedure"
        if reason := barred_by_state(act, self.state):
            return reason
        if self.suspended and not row.at_once:
            return "a rung is held: resume or stop it"
        guards = () if early and row.commits else row.guards
        return next((reason for guard in guards if (reason := guard(self, act))), "")

    def begin(self, act: str, early: bool = False) -> None:
        """Raise ActRefused if ``act`` is not possible or was stopped. :meth:`why_not` explains ``early``."""
        with self.lock:
            stopped = self.stopped if act not in UNCONDITIONAL else ""
            if reason := stopped_by_operator(stopped) if stopped else self.why_not(act, early):
                raise ActRefused(f"{act}: {reason}")

    def _leave_start(self) -> None:
        """Leave a state at rest after a loss of the rig or a timeout.

        If another thread holds the lock, wait for it only if the drive has failed; otherwise do nothing.
        """
        if self.state not in AT_REST or not self.lock.acquire(blocking=bool(self.drive.broken)):
            return
        try:
            if self.state in AT_REST and (then := self._displaced()) is not None:
                self.to(*then)
        finally:
            self.lock.release()

    def _displaced(self) -> tuple[State, str] | None:
        if self.state is State.HELD and self.rung is not None:
            return None  # the port of a held rung ends the rung itself
        drive, armed = self.drive, self.state is State.ARMED
        slipped = drive.loss.last if drive.loss.count > self._losses else ""
        if reason := lost(drive):
            text = f"the rig was lost in state {self.state.name}: {reason}"
            self.record.notes.append(records.Note(_now(self._clock), text, "rths"))
            then = State.TRIPPED, reason
        elif self.state is State.POSITIONED and slipped:
            then = State.HELD, f"{slipped}: position again"
        elif armed and (reason := drive.unfit() or slipped):
            then = State.TRIPPED, reason
        elif armed and self._clock.monotonic_ns() > self._armed_until:
            then = State.HELD, f"armed for {ARMED_FOR_S:g} s without a run: position and arm again"
        else:
            return None
        self.rung = None  # later stops must not act on the rung
        return then

    def _measured(self, measured: Measurement) -> None:
        self.warning.look()
        self._leave_start()

    def _warn(self, act: str, held: bool = True) -> None:
        if self.warning.section is None:
            return
        with self.lock:
            self.begin(act)
            if held:
                self.drive.ready()
        under_way = self.under_way  # read here, because another thread calls the lambda
        self.warning.begin(act, lambda: under_way.stopped if under_way is not None else "", held)

    @contextmanager
    def motion(self, act: str, begins: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Context manager of the motions of ``act``. ``ACTS[act].motion`` holds the states during and after them.

        After a stop or an error, the final state is HELD or TRIPPED instead. ``begins`` is called when the first
        motion begins. A refusal before the first motion changes nothing.
        """
        drive, (state, then), entered = self.drive, ACTS[act].motion, False

        def begin() -> None:
            nonlocal entered
            self._warn(act)
            with self.lock:
                self.begin(act)
                drive.ready()
                self._losses = drive.loss.count
                self.to(state)
                entered = True
                begins()

        drive.begins = begin
        try:
            yield
        except BaseException:
            drive.begins = lambda: None  # a refused act must not affect the next motion
            if entered:
                drive.stop("the act has failed")
                self.brake("the act has failed")
                self.to(State.TRIPPED, "the act has failed")
            raise
        finally:
            self.warning.off()
        with self.lock:
            mishap = drive.mishap or (DriveOutcome(self.stopped) if self.stopped else None)
            if mishap is None:
                self.to(then, f"after {act}" if then is State.HELD else "")
                return
            self.brake(mishap.reason)
            self.to(State.TRIPPED if mishap.tripped else State.HELD, mishap.reason)
        raise ActRefused(mishap.reason)


class RigSession(GuardedRig):
    """One procedure on a rig, recorded in ``record``. The methods are its acts, in order."""

    def do(self, act: str, by: str = "", way: str = "", seen: Seen | None = None, **arguments: object) -> str:
        """Perform ``act`` for operator ``by``, requested from source ``way``. Return the result as text.

        Only acts in MEANWHILE can run during another act. Thread-safe. Raises ActRefused (a ConfigError) if the
        act is not possible or was stopped, or if the situation differs from ``seen``. If the record cannot be
        written, acts that move the rig do not begin, but acts in HEARD are performed.
        """
        if act not in ACTS:
            raise unknown("act", "act", act, ACTS)
        row = ACTS[act]
        if unfit := sorted(arguments.keys() - set(row.arguments)):
            raise ActRefused(f"{act}: unknown argument {', '.join(unfit)}; known: {', '.join(row.arguments)}")
        with ExitStack() as context:
            if not row.at_once:
                if not self._one.acquire(blocking=False):
                    raise ActRefused(
                        f"{act}: another act is under way. Until it ends, only these acts are possible: "
                        f"{', '.join(MEANWHILE)}"
                    )
                context.callback(self._one.release)
            by, test = by or self.record.operator, self.test
            written = records.Act(_now(self._clock, "seconds"), act, dict(arguments), by=by, way=way)
            try:
                if act not in UNCONDITIONAL:
                    context.enter_context(self.act(act, seen))
                self.begin(act, early=True)
                written.motion = test.cleared(act, way, arguments)
                if row.moves and row.lasting:  # record the act before its motion
                    written.under_way = True
                    self.record.acts.append(written)
                    test.write()
                if act == "arm":
                    self.armed_by = by, way
                do = test.acts.get(act, partial(row.do, self))
                named = {"by": by} if "by" in signature(row.do).parameters else {}
                result = do(**arguments, **named)
                if isinstance(result, Offsets):
                    result = f"offsets {result.hash}"
                written.result = result if isinstance(result, str) else ""
                return written.result
            except ConfigError as error:
                written.refused = str(error)
                if (why := self.stopped) and why not in written.refused and not row.at_once:
                    written.refused = f"{act}: {stopped_by_operator(why)}"
                    raise ActRefused(written.refused) from error
                raise
            finally:
                if not written.under_way:
                    self.record.acts.append(written)
                written.under_way = False
                test.write(act in HEARD)

    @Act(_ALL, (allowed,), optional=("rung",), lasting=True)
    def rehearse(self) -> None:
        """Run a rung on the simulator."""  # implemented in ``Test.acts``

    @Act((State.IDLE,), lasting=True)
    def connect(self) -> str:
        """Open the port, with the controller's active command as the first command.

        Return position, force, hydraulics and interlock as text. Raises ConfigError if opening fails.
        """
        self.drive.connect()
        try:
            warning_of(self.scenario, self.drive.port)  # the far end may have no warning output
            self.begin("connect")
            self.record.controller = told_of(self.drive)
        except (ConfigError, PortError):
            self.drive.close()
            raise
        self.record.port = type(self.scenario.port).type_name
        self.code = self.code.behind(self.drive.port.build)
        self.record.code = dict(self.code.names)
        for remark in self.drive.remarks:
            self.note(remark)
        self.to(State.CONNECTED)
        self._leave_start()
        at, controller = self.rest_of(State.CONNECTED, ""), self.record.controller
        return (
            f"{self.record.shown(at.displacement, at.force)}; hydraulics {controller['hydraulics']}, "
            f"interlock {controller['interlock']}"
        )

    @Act(_BEFORE, (), ("seconds",), lasting=True)
    def take_offsets(self, seconds: float) -> Offsets:
        """Measure the offsets and the scatter of the sensors at rest."""
        if not SHORTEST_S <= seconds <= LONGEST_S:
            raise ActRefused(f"seconds = {seconds:g} s: must be between {SHORTEST_S:g} s and {LONGEST_S:g} s")
        drive = self.drive
        motion = GuidedMotion(lambda command: hold(command, max(2, round(seconds / self.scenario.dt))))
        with self.lock:
            self.go_on()
            drive.ready()
        outcome = drive.drive(motion)
        if outcome.reason:
            raise ActRefused(f"offsets: {outcome.reason}")
        active, now = drive.port.active_command, _now(self._clock)
        self.taken = Offsets.of(tuple(self.scenario.axes), motion.result, active, drive.command, now, seconds)
        return self.taken

    def _record_controller(self) -> None:
        with suppress(PortError):  # the rig may be unreachable
            self.record.controller = told_of(self.drive)

    def rest_of(self, state: State, reason: str) -> records.HeldRecord:
        """Record the state of the controller, and return the last measured position and force of each axis."""
        self._record_controller()
        measured, names = self.drive.measured, tuple(self.scenario.axes)
        zero = Tares.none(len(names)) if self.offsets is None else self.offsets.tares()
        values = (measured.displacement - zero.displacement, measured.force - zero.force)
        rows = (dict(zip(names, row.tolist(), strict=True)) for row in values)
        return records.HeldRecord(_now(self._clock), state.name.lower(), reason, *rows)

    @Act(_BEFORE, (taken,), ("hash", "unloaded"))
    def confirm_offsets(self, hash: str, unloaded: bool) -> str:
        """Use the measured offsets as the zero of the test.

        ``hash`` must be the hash of these offsets. Forces are tared only if ``unloaded`` is true.
        """
        taken = self.taken
        assert taken is not None
        if changed := rungs.changed_hash("offsets have", "confirmed", hash, taken.hash):
            raise ActRefused(*changed)
        self.offsets = taken.confirm(unloaded, self._rig_axes, self.drive.port.simulated)
        self.taken = None
        self.drive.refer(self.offsets.displacement, self.offsets.held)
        self.record.offsets_before = self.offsets.record()
        self.clearance.begin(self.offsets)
        if self.state is State.CONNECTED:
            self.to(State.REFERENCED)
        return "forces are tared" if unloaded else "forces are used without a tare"

    @Act((State.IDLE, *_AT_REST), (allowed,), ("item", "answer"))
    def checklist(self, by: str = "") -> None:
        """Answer one item of the rig file's checklist with y or n; all answers must be y before a motion."""

    @Act((State.REFERENCED,), (fit, allowed), (), ("clear",), (State.CHECKING, State.REFERENCED), lasting=True)
    def check(self) -> dict[str, records.AxisChecks]:
        """A small guarded move of every axis: signs, scales, stiffness."""
        assert self.offsets is not None  # the state implies confirmed offsets
        offsets = self.offsets
        with self.motion("check", lambda: self.clearance.begin(offsets)):
            self.record.checks = small_move.check_axes(self.drive, self.scenario, offsets)
        return self.record.checks

    @Act((State.REFERENCED,), (unsigned,), ("what",))
    def sign_for(self, what: str, by: str = "") -> None:
        """Sign for one unverified item, given by its full name."""
        with self.lock:
            self.clearance.sign(what, by or self.record.operator)

    @Act(
        (State.REFERENCED, State.HELD),
        _MOTION,
        (),
        ("clear",),
        (State.POSITIONING, State.POSITIONED),
        lasting=True,
    )
    def position(self) -> None:
        """To the start of the test, by a bounded ramp."""
        assert self.offsets is not None
        drive, scenario = self.drive, self.scenario
        goal = self.offsets.held + rungs.start_of(scenario, drive.port)
        for name, target in zip(scenario.axes, goal.tolist(), strict=True):
            stroke = scenario.axes[name].limits.stroke
            if not abs(target) <= stroke:
                raise ActRefused(
                    f"position: axes.{name}: the start is at {target:.6g} m, but must be within +- {stroke:g} m"
                )
        velocity = positioning_velocities(scenario)
        watch = Following(scenario, self.offsets, self.record.checks).slow
        motion = GuidedMotion(lambda command: QuasiStatic(scenario, command).go(goal, velocity), watch)
        with self.motion("position"):
            drive.drive(motion)
        if not motion.result.resting:
            self.note("the rig has not come to rest at the start, because a sensor drifts or the specimen relaxes")

    @Act((State.POSITIONED,), (fit, checked), ("rung", "scenario_hash", "offsets_hash"), ("second",), commits=True)
    def arm(
        self, rung: str, scenario: Scenario, scenario_hash: str, offsets_hash: str, by: str = "", second: str = ""
    ) -> tuple[str, ...]:
        """Arm a rung: its scenario and the offsets, by their hashes."""
        assert self.offsets is not None
        operator, port = by or self.record.operator, self.drive.port
        persons: tuple[str, ...] = (operator,)
        if rungs.two_persons(rung, self.scenario):
            rungs.check_second(operator, second)
            persons = operator, second.strip()
        armed = rungs.ArmedRung(self, rung, scenario, (scenario_hash, offsets_hash), persons)
        real = records.RUNGS[rung].moves and not port.simulated
        if real and (reason := barred(self.commissioned, self.scenario, port.build, _time(self._clock))):
            raise ActRefused(f"arm: {reason}")
        away = np.abs(self.offsets.held + rungs.start_of(scenario, port) - self.drive.command)
        for (name, axis), far in zip(self.scenario.axes.items(), away.tolist(), strict=True):
            if not far <= axis.limits.velocity * self.scenario.dt:
                raise ActRefused(f"axes.{name}: the axis is {far:.6g} m from the start of rung {rung}")
        with self.lock:
            self.begin("arm")
            self._armed_until = self._clock.monotonic_ns() + round(1e9 * ARMED_FOR_S)
            self.rung = armed
            self.to(State.ARMED, f"rung {rung}")
        return persons

    @Act((State.ARMED,), _MOTION, optional=("clear",), lasting=True)
    def run(self, runner: Callable[[Scenario, Port], rungs.RunOutcome]) -> records.RungRecord:
        """Run the armed rung.

        The rung is recorded first. ``runner`` then runs its scenario on the session's port, and the rung is
        disarmed. Raises ActRefused, and leaves the rung armed, if a file or the code has changed since arming.
        """
        armed = self.rung  # a stop in another thread may disarm the rung
        if armed is not None and records.RUNGS[armed.name].moves:
            self._warn("run")
        try:
            if armed is not None and (changed := armed.changed()):
                raise ActRefused(*(f"run: {change}" for change in changed))
            with self.lock:
                self.begin("run")
                rung = self.rung
                assert rung is not None
                self.drive.ready()
                rung.port.begins = self.warning.off
                self.to(State.RUNNING, f"rung {rung.name}")
            outcome = rungs.RunOutcome("failed", "the run returned no result")
            try:
                rung.written.started = _now(self._clock)
                self.record.rungs.append(rung.written)
                outcome = runner(rung.scenario, rung.port)
            except BaseException as error:
                outcome = rungs.RunOutcome("failed", f"{type(error).__name__}: {error}")
                if isinstance(error, ConfigError):
                    outcome = rungs.RunOutcome("refused", str(error))
                raise
            finally:
                try:
                    rung.port.release()
                    self.drive.await_rest()
                finally:
                    rung.over(outcome)
            return rung.written
        finally:
            self.warning.off()

    @Act((State.RUNNING,), (rung_continues,), optional=("reason",), at_once=True, anybody=True)
    def hold(self, reason: str = "") -> None:
        """Bring the rig to rest; a test in slow time can then be resumed."""
        with self.lock:
            self.begin("hold")
            assert self.rung is not None
            self.rung.hold(reason or "the operator holds the test")

    @Act((State.HELD,), (rung_held, rung_continues, allowed), optional=("clear",), at_once=True)
    def resume(self) -> None:
        """Continue the held rung."""
        self._warn("resume", held=False)
        try:
            with self.lock:
                self.begin("resume")
                assert self.rung is not None
                self.rung.resume()
        finally:
            self.warning.off()

    @Act(_ALL, optional=("reason",), at_once=True, anybody=True)
    def stop(self, reason: str = "") -> None:
        """Stop all motion.

        Acts that are under way can no longer move or arm the rig. Thread-safe.
        """
        reason = reason or "the operator has requested a stop"
        with self.lock:
            self.count_stop(reason)
            if self.state is State.ARMED:
                self.rung = None
                self.to(State.HELD, reason)
            elif self.rung is not None and (self.moving or self.suspended):
                self.rung.requests.stop(reason)
            else:
                self.drive.stop(reason)

    @Act((State.TRIPPED,))
    def acknowledge(self) -> None:
        """State that the cause of the trip is understood."""
        self.to(State.HELD, f"acknowledged: {self.reason}")

    @Act((State.HELD,), (fit, allowed), (), ("to", "signed", "clear"), (State.UNLOADING, State.HELD), lasting=True)
    def unload(self, to: Mapping[str, float] | None = None, signed: str = "") -> records.UnloadingRecord:
        """Unload the specimen to zero force; to a place (m from the zero of the test), signed: by displacement.

        ``to`` holds the positions by axis, m. ``signed`` is the person who has signed for them.
        """
        assert self.offsets is not None  # the state implies confirmed offsets
        inputs = self.scenario, self.offsets, self.record.checks

        def begins() -> None:
            targets = ", ".join(f"axes.{name} to {1e3 * target:.4g} mm" for name, target in (to or {}).items())
            if targets:
                self.record.deviations.append(f"unloaded by displacement, {targets}: signed for by {signed}")

        with self.motion("unload", begins):
            done = unloading.unload(self.drive, *inputs, to, signed)
            done.to, done.signed = dict(to or {}), signed
            self.record.unloading.append(done)
        return done

    @Act(_ALL, (), ("text",), at_once=True)
    def note(self, text: str, by: str = "") -> None:
        """Add a note to the report."""
        self.record.notes.append(records.Note(_now(self._clock), text, by or self.record.operator))

    @Act(_AT_REST, lasting=True)
    def finish(self) -> None:
        """Take the offsets again, close the port, and end the test."""
        if self.offsets is not None:
            try:
                self.record.offsets_after = self.take_offsets(self.offsets.seconds).record()
                self.taken = None
            except ActRefused as refused:
                self.note(f"no offsets were taken after the test: {refused}")
        last = self.record.rungs[-1].outcome if self.record.rungs else ""
        outcome = "tripped" if self.state is State.TRIPPED else last or "no rung was run"
        self.record.outcome = self.record.outcome or outcome
        self._record_controller()
        self.to(State.FINISHED)
        self.close()

    def close(self) -> None:
        """Close the port, even if the rig is unreachable. The rig then enters its own safe state."""
        self.stop("the session is closed")
        with suppress(ConfigError, PortError):  # the rig may be unreachable
            self.drive.close()
        if not self.record.ended and self.state is not State.IDLE:
            self.record.ended = _now(self._clock)
            self.record.outcome = self.record.outcome or "interrupted"


def _now(clock: Clock, timespec: str = "milliseconds") -> str:
    return _time(clock).isoformat(timespec=timespec)


def _time(clock: Clock) -> datetime:
    return datetime.fromtimestamp(clock.time_ns() * 1e-9).astimezone()


def told_of(drive: RigDrive) -> dict[str, str]:
    measured, active = drive.measured, drive.port.active_command
    modes = ", ".join(_MODES.get(mode, NOT_TOLD) for mode in measured.control_mode)
    commands = [] if active is None else [f"{1e3 * value:z.3f} mm" for value in active.tolist()]
    return {
        "hydraulics": _PRESSURES.get(measured.hydraulics, NOT_TOLD),
        "interlock": {INTERLOCK_CLOSED: "closed", INTERLOCK_OPEN: "open"}.get(measured.interlock, NOT_TOLD),
        "control mode": modes or NOT_TOLD,
        "active command": ", ".join(commands) or "cannot be read",
    }


MOTIONS = tuple(name for name, act in ACTS.items() if "clear" in act.arguments)
"""Acts that begin a motion and require the word CLEAR."""
MEANWHILE = tuple(name for name, act in ACTS.items() if act.at_once)
HEARD = tuple(name for name in MEANWHILE if name != "note")
"""Acts that are performed even if they cannot be recorded."""
