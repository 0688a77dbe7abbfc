# SPDX-License-Identifier: Apache-2.0
"""Trials of a commissioning: measuring functions, and the table :data:`TRIALS` of all trials in order."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from typing import NamedTuple

import numpy as np

from rths_nodes.core.errors import ConfigError, PortError, Problems
from rths_nodes.core.protocols import Port
from rths_nodes.core.samples import (
    HYDRAULICS_HIGH,
    HYDRAULICS_NOT_TOLD,
    HYDRAULICS_OFF,
    Array,
    Command,
    Measurement,
)
from rths_nodes.core.validation import from_data
from rths_nodes.laboratory.ports.wrappers import PortBefore
from rths_nodes.loop.commissioning import (
    CABLE,
    CALIBRATION,
    CLOSED,
    CONTROLLER,
    EMERGENCY,
    END_STOPS,
    FAILED,
    INTERLOCK,
    KILLED,
    NOT_TRIED,
    PRESSURE,
    SIGN,
    STOPPED,
    STROKE,
    UNTRIED,
    VELOCITY,
    WITNESSED,
    CommissioningRow,
)
from rths_nodes.loop.procedure_record import ProcedureRecord
from rths_nodes.loop.scenario import judgement
from rths_nodes.loop.scenario.rehearsal import hash_of
from rths_nodes.loop.scenario.rig_file import RigFile, on_rig
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.commissioning.rig import (
    REST_S,
    Bench,
    FreeRig,
    Refused,
    Row,
    TooEarly,
    to_and_fro,
)
from rths_nodes.procedure.commissioning.stops import (
    HIGHEST,
    STEADY,
    Rows,
    cable,
    closed,
    judged,
    killed,
    moves,
    resolution_of,
    resolved,
    rest_samples,
    rest_words,
    slowest,
    slowly,
    untried_fast,
)
from rths_nodes.procedure.motions import GuidedMotion, QuasiStatic, Steps, hold
from rths_nodes.procedure.rungs import armed_hash
from rths_nodes.procedure.session import RigSession

FOLLOWS = 0.2
"""Largest accepted error at rest, and largest accepted motion of another axis, as fractions of the small move."""
BEYOND_VELOCITY = 1.05
"""Velocity of a step that exceeds the velocity limit, relative to the limit."""
BEYOND_STROKE, MOST_BEYOND = 0.02, 1e-3
"""Distance by which a command exceeds the stroke: as a fraction of the stroke, and its largest value, m."""
ROUNDING = 1e-3
"""Relative tolerance of a limit, needed because the period is rounded."""
OFFSETS_S = 0.5
MOVED = 0.1
"""Fraction of the small move after which the operator's stop is issued."""
SETTLED_S = 0.2
STOP_SPARE = 2
"""Tolerance of the operator's stop, samples; the stop takes effect with the next command."""
WATCHED_S = 1.0
"""Observation time after the interlock is closed or the pressure has returned, s."""
STILL = 0.1
"""Largest motion that counts as no motion, as a fraction of the small move."""
OFF = 0.5
"""Smallest lag that shows an unreported loss of pressure, as a fraction of the small move."""
SIMULATED = {
    "actuator": {"type": "first_order", "alpha": 30.0},
    "specimen": {"type": "kelvin_voigt", "stiffness": 1.0, "damping": 0.0},
}
"""Models of each axis for the computed rung: a negligible specimen, and an actuator if the rig file has none."""
STOPPED_BY_OPERATOR = "then the operator's stop command ends the motion"
ATTEMPTS = 10
HERTZ = 0.1
"""Frequency of a motion that defines the start of the scenario and is never run, Hz."""


def signs(bench: Bench) -> Rows:
    with bench.opened() as rig:
        bench.clear(rig, f"one axis after the other moves out and back: {bench.ways(rig.way, rig.velocity)}")
        return [_moved(bench, rig, index) for index in range(len(bench.names))]


def _moved(bench: Bench, rig: FreeRig, index: int) -> CommissioningRow:
    start, before = rig.command, _mean(rig.hold(REST_S))
    goal = start.copy()
    goal[index] += rig.way[index]
    rig.ramp(goal, rig.velocity)
    rig.hold(REST_S)
    change = _mean(rig.hold(REST_S)) - before
    rig.ramp(start, rig.velocity)
    rig.hold(REST_S)
    bound = FOLLOWS * rig.way
    close = np.abs(change - (goal - start)) <= bound
    steps = [1e3 * bench.finest(i) for i in range(len(bench.names))]
    rows = zip(rig.names, (1e3 * change).tolist(), steps, strict=True)
    measured = ", ".join(f"{name} {'+' * (mm >= step)}{resolved(mm, step, 'mm')}" for name, mm, step in rows)
    stated = (
        f"{rig.names[index]} moves by {1e3 * rig.way[index]:+.3g} mm, with an error of at most "
        f"{1e3 * bound[index]:.3g} mm"
    )
    stated += ", and no other axis moves" * (len(rig.names) > 1)
    return judged(
        SIGN,
        rig.names[index],
        stated,
        measured + _meaning(rig.names, index, change, bound),
        bool(close.all()),
        bench.speed(index, float(rig.velocity[index])),
        f"{steps[index]:.3g} mm",
    )


def _meaning(names: Sequence[str], index: int, change: Array, bound: Array) -> str:
    moving = [name for i, name in enumerate(names) if i != index and abs(change[i]) > bound[i]]
    if abs(change[index]) <= bound[index]:
        return (
            f": {' and '.join(moving)} moved instead"
            if moving
            else ": the axis did not move, or its motion was not measured"
        )
    if change[index] < 0.0:
        return ": the axis moved in the wrong direction"
    return f": {' and '.join(moving)} moved as well" if moving else ""


def _mean(rows: Sequence[Row]) -> Array:
    return np.asarray(np.mean([row.displacement for row in rows], axis=0))


def limits(bench: Bench) -> Rows:
    with bench.opened() as rig:
        stated = rig.stated()
        rows = []
        for index, name in enumerate(bench.names):
            step = BEYOND_VELOCITY * float(stated.velocity[index]) * bench.dt
            beyond = min(BEYOND_STROKE * float(stated.stroke[index]), MOST_BEYOND)
            far = float(stated.stroke[index]) + beyond
            bench.clear(
                rig,
                f"{name}: a step of {1e3 * step:.3g} mm, beyond its limit of velocity; then to both ends of its "
                f"stroke, and {1e3 * beyond:.3g} mm further: +- {1e3 * far:.4g} mm at "
                f"{1e3 * float(rig.free_velocity[index]):.3g} mm/s",
            )
            rows += [
                _velocity(bench, rig, index, step, float(stated.velocity[index])),
                *(_stroke(bench, rig, index, sign * far, float(stated.stroke[index])) for sign in (1.0, -1.0)),
            ]
    for i, name in enumerate(bench.names):
        for cause, value, unit in (
            (UNTRIED[0], 1e-3 * stated.force[i], "kN"),
            (UNTRIED[1], 1e3 * stated.error[i], "mm"),
        ):
            limit = f"{value:.4g} {unit}" if np.isfinite(value) else "none stated"
            words = "the limit cannot be reached without a specimen"
            rows.append(CommissioningRow(cause, name, limit, words, NOT_TRIED))
    return rows


def _velocity(bench: Bench, rig: FreeRig, index: int, step: float, limit: float) -> CommissioningRow:
    """Send one step that is so small that only a velocity limit can delay the axis."""
    start, since = rig.command, len(rig.rows) - 1
    goal = start.copy()
    goal[index] += step
    for _ in range(rig.samples(REST_S)):
        rig.tick(goal)
    active = np.array([row.active[index] for row in rig.rows[since:]])
    rig.ramp(start, rig.velocity)
    rig.hold(REST_S)
    reached = float(np.abs(np.diff(active)).max()) / bench.dt
    spare = ROUNDING * limit + float(bench.resolution[index]) / bench.dt
    good = reached <= limit + min(spare, 0.5 * (BEYOND_VELOCITY - 1.0) * limit)
    asked = f"{BEYOND_VELOCITY * limit:.4g} m/s, for one sample"
    return judged(
        VELOCITY,
        bench.names[index],
        f"at most {limit:.4g} m/s",
        f"the active command moves at up to {reached:.4g} m/s",
        good,
        asked,
        f"{spare:.2g} m/s",
    )


def _stroke(bench: Bench, rig: FreeRig, index: int, far: float, limit: float) -> CommissioningRow:
    start, since = rig.command, len(rig.rows)
    goal, velocity = start.copy(), rig.free_velocity
    goal[index] = far
    rig.ramp(goal, velocity)
    rig.hold(REST_S)
    active = np.array([row.active[index] for row in rig.rows[since:]])
    rig.ramp(start, velocity)
    rig.hold(REST_S)
    reached = float(active.max() if far > 0.0 else -active.min())
    spare = limit * 1e-6 + float(bench.resolution[index])
    return judged(
        STROKE,
        f"{bench.names[index]} {'extended' if far > 0.0 else 'retracted'}",
        f"at most {1e3 * limit:.5g} mm",
        f"{1e3 * reached:.5g} mm",
        reached <= limit + min(spare, 0.5 * (abs(far) - limit)),
        bench.speed(index, float(velocity[index])),
        f"{1e3 * bench.finest(index):.3g} mm",
    )


def stops(bench: Bench) -> Rows:
    rig = bench.rig()
    words = f"every axis moves out and back until the operator's stop command: {bench.ways(rig.way, rig.velocity)}"
    bench.operator.ready(words, moves=True)
    rows = []

    def beyond(way: Array) -> bool:
        return bool((np.abs(way) >= MOVED * rig.way).any())

    with _session(bench) as session:
        rows.append(_stopped(bench, session, State.CHECKING, session.check, beyond))
    bench.operator.ready(f"once more, and by up to half as far to the start of a test: {words}", moves=True)
    with _session(bench) as session:
        _clear_to_move(session)
        rows.append(_stopped(bench, session, State.POSITIONING, session.position, beyond))
        _settle(bench, session)
        session.position()
        rows.append(_disarmed(bench, session))
    return rows


def fast_stop(bench: Bench) -> Rows:
    if (dash := bench.fast) is None:
        return [untried_fast(STOPPED)]
    with bench.opened() as rig:
        small, velocity = bench.ways(rig.way, rig.velocity), rig.free_velocity  # valid after the motion home
    statement = f"every axis moves out and back: {small}; {moves(bench, dash, STOPPED_BY_OPERATOR)}"
    bench.operator.ready(statement, moves=True)
    steady: list[int] = []

    def motion(session: RigSession) -> Steps[None]:
        assert dash.start is not None
        walk = QuasiStatic(session.scenario, session.drive.command)
        yield from walk.ramp(dash.start, velocity)
        yield from hold(dash.start, round(REST_S / bench.dt))
        for sample in range(1, dash.until + dash.rising + 1):
            if sample == dash.rising + STEADY:
                steady.append(sample)
            yield dash.start + dash.place(sample)

    def move() -> None:
        free = session.drive.measured.force

        def watch(sent: Array, measured: Measurement) -> str:
            return rig.obstacle(measured.force - free)

        with session.act(), session.motion("position"):
            session.drive.drive(GuidedMotion(motion(session), watch))

    with _session(bench) as session:
        _clear_to_move(session)
        return [_stopped(bench, session, State.POSITIONING, move, lambda way: bool(steady), HIGHEST)]


def _clear_to_move(session: RigSession) -> None:
    """Check the axes, discard the findings, and sign for all items.

    The findings are invalid, because a load cell without a specimen seems dead.
    """
    for axis in session.check().values():
        axis.findings.clear()
    for item in session.clearance.unsigned():
        session.sign_for(item)


class Watched(PortBefore):
    """Wrapper of ``port`` that stops the session in ``state`` once ``due(travel)`` is true.

    ``travel`` is ``(n_axes,)`` m.
    """

    def __init__(self, port: Port, session: RigSession, due: Callable[[Array], bool], state: State) -> None:
        super().__init__(port)
        self._session, self._due, self._state = session, due, state
        self._start: Array | None = None
        self._last: Array | None = None
        self.commands: list[Array] = []
        """The last two commands before the stop, and all commands after it."""

    def write(self, command: Command) -> None:
        self._port.write(command)
        if self.commands:
            self.commands.append(command.command.copy())
        elif self._session.state is self._state:
            now = command.command.copy()
            start = self._start = now if self._start is None else self._start
            if self._last is not None and self._due(now - start):
                self.commands = [self._last, now]
                self._session.stop("the commissioning requested a stop")
            self._last = now


@contextmanager
def _session(bench: Bench) -> Iterator[RigSession]:
    record = ProcedureRecord("commissioning", bench.scenario.name, hash_of(bench.scenario))
    session = bench.opening(bench.rig().port.simulated, lambda: _connected(bench, record))
    try:
        offsets = session.take_offsets(OFFSETS_S)
        session.confirm_offsets(offsets.hash, unloaded=True)
        yield session
    finally:
        session.close()


def _connected(bench: Bench, record: ProcedureRecord) -> RigSession:
    session = RigSession(bench.scenario, record, realtime=bench.realtime)
    session.connect()
    return session


def _stopped(
    bench: Bench,
    session: RigSession,
    state: State,
    act: Callable[[], object],
    due: Callable[[Array], bool],
    name: str = "",
) -> CommissioningRow:
    drive, port = session.drive, session.drive.port
    watched = Watched(port, session, due, state)
    drive.port = watched
    reason = ""
    try:
        act()
    except ConfigError as error:
        reason = f": {error}"
    finally:
        drive.port = port
    row = operator_row(bench, name or state.name.lower(), session.state, np.array(watched.commands))
    return row if watched.commands else replace(row, measured=f"was not stopped{reason}")


def _settle(bench: Bench, session: RigSession) -> None:
    drive = session.drive
    if bench.realtime:
        time.sleep(SETTLED_S)
        return
    with drive.hold_loop.borrowed():
        for _ in range(bench.transport + 1):
            drive.tick()


def operator_row(bench: Bench, name: str, then: State, commands: Array) -> CommissioningRow:
    """Return the row for the operator's stop.

    ``commands`` ``(n, n_axes)`` m are the last two commands before the stop and all later commands.
    """
    dt, limits = bench.dt, list(bench.scenario.limits.values())
    velocity = [axis.velocity for axis in limits]
    if len(commands) >= 2:
        velocity = (np.abs(np.diff(commands, axis=0)).max(axis=0) / dt).tolist()
    n = STOP_SPARE + max(rest_samples(v, axis.deceleration, dt) for v, axis in zip(velocity, limits, strict=True))
    most = max(velocity) * min(n, STOP_SPARE + 0.5 * (n + 1)) * dt
    fastest = int(np.argmax(velocity))
    step = bench.finest(fastest)
    stated = f"{rest_words(n, most, dt, step)}; the rig is held"
    speed, finest = bench.speed(fastest, velocity[fastest]), resolution_of(dt, step)
    if len(commands) < 3:
        return judged(STOPPED, name, stated, "was not stopped", False, resolution=finest)
    after = commands[1:]
    moving = np.flatnonzero((after != after[-1]).any(axis=1))
    rest, way = (int(moving[-1]) + 1 if len(moving) else 0), float(np.abs(after[-1] - after[0]).max())
    good = rest <= n and way <= most + 1e-9 and then is State.HELD
    measured = f"{rest_words(rest, way, dt, step)}; the rig is {then.name.lower()}"
    return judged(STOPPED, name, stated, measured, good, speed, finest)


def _disarmed(bench: Bench, session: RigSession) -> CommissioningRow:
    assert session.offsets is not None  # ``_session`` confirms the offsets
    session.arm("c", bench.scenario, armed_hash(bench.scenario), session.offsets.hash)
    session.stop("the commissioning requested a stop")
    runs = session.possible()["run"] == ""
    measured = "the rung can still be run" if runs else f"the rig is {session.state.name.lower()}"
    good = session.state is State.HELD and not runs
    return judged(STOPPED, "armed", "no rung can be run, and the rig is held", measured, good, "at rest")


def interlock(bench: Bench) -> Rows:
    with bench.opened() as rig:
        slow = slowest(bench, rig)
        bench.moving_soon(rig, slowly(bench, rig, "open the interlock while they move"))
        if not any(row.stopped for row in to_and_fro(rig, bench.patience)):
            return [_unseen(bench, INTERLOCK, "opened", "the rig reports that the interlock is open", slow)]
        since, reason = len(rig.rows) - 1, rig.rows[-1].stopped
        for _ in range(rig.samples(REST_S)):
            rig.tick(rig.rows[-1].active)
        rows = [_held(bench, rig, since, reason, slow)]
        bench.operator.meanwhile("close the interlock again", lambda: rig.tick(rig.rows[-1].active))
        # a displaced axis may return to its command
        return [*rows, _returned(bench, rig, INTERLOCK, "closed", len(rig.rows), led=True)]


def pressure(bench: Bench) -> Rows:
    with bench.opened() as rig:
        slow = slowest(bench, rig)
        bench.moving_soon(rig, slowly(bench, rig, "take the pressure off while they move"))
        if not any(_without_pressure(rig, row) for row in to_and_fro(rig, bench.patience)):
            return [
                _unseen(
                    bench,
                    PRESSURE,
                    "off",
                    "the rig reports the loss of pressure, or does not follow its command",
                    slow,
                )
            ]
        reported = rig.rows[-1].hydraulics == HYDRAULICS_OFF
        measured = "reported" if reported else "not reported, but the axes do not follow their commands"
        rig.hold(REST_S)
        first = rig.rows[0]
        # command of the measured position: the first command plus the travel since then
        rig.ramp(first.active + _mean(rig.rows[-rig.samples(REST_S) :]) - first.displacement, rig.velocity)
        rows = [judged(PRESSURE, "off", "reported, or seen", measured, True, slow)]
        since = len(rig.rows) + rig.samples(REST_S)
        rig.hold(2.0 * REST_S)
        bench.operator.meanwhile("bring the pressure back", rig.tick)
        wanted = HYDRAULICS_HIGH, HYDRAULICS_NOT_TOLD
        if not any(rig.tick().hydraulics in wanted for _ in range(rig.samples(bench.patience))):
            return [
                *rows,
                _unseen(bench, PRESSURE, "back", "the rig reports that the pressure is back", "at rest"),
            ]
        return [*rows, _returned(bench, rig, PRESSURE, "back", since, led=False)]


def _without_pressure(rig: FreeRig, row: Row) -> bool:
    if row.hydraulics != HYDRAULICS_NOT_TOLD:
        return row.hydraulics == HYDRAULICS_OFF
    first = rig.rows[0]
    off = (row.active - first.active) - (row.displacement - first.displacement)
    return bool((np.abs(off) > OFF * rig.way).any())


def _held(bench: Bench, rig: FreeRig, since: int, reason: str, slow: str) -> CommissioningRow:
    active = np.array([row.active for row in rig.rows[since:]])
    decelerations = rig.stated().deceleration
    n = max(rest_samples(v, a, bench.dt) for v, a in zip(rig.velocity, decelerations, strict=True))
    moving = np.flatnonzero((np.abs(active - active[-1]) > 1e-9).any(axis=1))
    rest = int(moving[-1]) + 1 if len(moving) else 0
    way = float(np.abs(active[-1] - active[0]).max())
    most = float((rig.velocity * n * bench.dt).max())
    good = rest <= n + 1 and way <= most * (1.0 + 1e-6) + float(bench.resolution.max())
    step = max(bench.finest(i) for i in range(len(bench.names)))
    stated, measured = (rest_words(k, mm, bench.dt, step) for k, mm in ((n + 1, most), (rest, way)))
    return judged(INTERLOCK, "opened", stated, f"{measured}: {reason}", good, slow, resolution_of(bench.dt, step))


def _returned(bench: Bench, rig: FreeRig, cause: str, what: str, since: int, led: bool) -> CommissioningRow:
    before = rig.rows[min(since, len(rig.rows) - 1)]
    for _ in range(rig.samples(WATCHED_S)):
        rig.tick(rig.rows[-1].active if led else None)
    shown = np.array([row.displacement for row in rig.rows[since:]])
    moved = np.abs(shown - before.displacement).max(axis=0)
    first = rig.rows[0]
    off = np.abs((before.active - first.active) - (before.displacement - first.displacement)) if led else 0.0
    bound = STILL * rig.way + off
    worst = int(np.argmax(moved - bound))
    stated, measured = (f"{bench.names[worst]} moves {1e3 * far[worst]:.3g} mm" for far in (bound, moved))
    return judged(cause, what, f"{stated} at most", measured, bool((moved <= bound).all()), "at rest")


def _unseen(bench: Bench, cause: str, what: str, stated: str, speed: str) -> CommissioningRow:
    return judged(cause, what, stated, f"nothing was detected within {bench.patience:g} s", False, speed)


def witnessed(bench: Bench) -> Rows:
    ends = ", ".join(f"{name} +- {1e3 * limits.stroke:.4g} mm" for name, limits in bench.scenario.limits.items())
    bounds = ", ".join(
        f"{name} {1e3 * limits.stroke:.4g} mm, {1e-3 * limits.force:.4g} kN"
        for name, limits in bench.scenario.limits.items()
    )
    rows = []
    for cause, stated in (
        (
            EMERGENCY,
            "the pressure falls when the emergency stop is pressed, and nothing moves when the emergency "
            "stop is reset",
        ),
        (END_STOPS, f"mechanical stops or cushions exist beyond the limit of stroke ({ends})"),
        (
            CONTROLLER,
            f"limits set in the servo-controller, independent of these programs and not wider than {bounds}",
        ),
    ):
        seen = bench.operator.witness(f"{cause}: {stated}. Have both of you seen this today?")
        measured = "seen by both persons" if seen else "not witnessed"
        rows.append(CommissioningRow(cause, "rig", stated, measured, WITNESSED if seen else NOT_TRIED))
    return rows


def calibrations(bench: Bench) -> Rows:
    today = date.today()
    rows = []
    for name, axis in bench.scenario.axes.items():
        for noun in ("displacement", "force"):
            channel = getattr(axis.rig_axis, noun)
            what = f"{axis.rig_axis.name if axis.rig_axis else name}: {noun}"
            expired = bool(channel.expires) and today.isoformat() > channel.expires
            signed = expired and bench.operator.witness(
                f"the calibration of {what} expired on {channel.expires}. Do both of you sign for this "
                "calibration?"
            )
            facts = {"certificate": channel.certificate, "class": channel.accuracy, "valid until": channel.expires}
            missing = [fact for fact, value in facts.items() if not value]
            words = ", ".join(f"{fact} {value}" for fact, value in facts.items() if value)
            if expired:
                verdict = WITNESSED if signed else FAILED
                words += "; expired, but signed for by both persons" if signed else "; expired"
            else:
                verdict = NOT_TRIED if missing else WITNESSED
                words += ("; " if words else "") + f"not stated: {', '.join(missing)}" if missing else ""
            stated = f"valid on {today.isoformat()}"
            rows.append(CommissioningRow(CALIBRATION, what, stated, words, verdict))
    return rows


class Trial(NamedTuple):
    """Trial: its function, the causes of its rows, its action, its requirement, and the statement it proves."""

    run: Callable[[Bench], Rows]
    causes: tuple[str, ...]
    done: str
    bound: str
    proves: str


TRIALS: dict[str, Trial] = {
    "signs": Trial(
        signs,
        (SIGN,),
        "each axis moves by its `small_move` and back",
        "each axis moves in the right direction, with an error of at most a fifth of `small_move`; no "
        "other axis moves",
        "commands and displacements belong to the same axis, with the same sign and unit",
    ),
    "limits": Trial(
        limits,
        (VELOCITY, STROKE),
        "the command exceeds the limit of velocity by 5 % in one step, then slowly exceeds the limit of stroke "
        "by 2 % (at most 1 mm) on both sides",
        "the active command never exceeds the limit",
        "the receiver follows no command that exceeds its limits of velocity and stroke",
    ),
    "stops": Trial(
        stops,
        (STOPPED,),
        "the operator stops `check`, `position` and an armed rung",
        "the rig is held within its own braking distance",
        "the operator's stop holds the rig in slow motions, and disarms an armed rung",
    ),
    "closed": Trial(
        closed,
        (CLOSED,),
        "the session is closed while all axes move, at a speed that resolves the deceleration, then at the "
        "highest speed that the free stroke and the limits allow",
        "each axis begins to brake within the transport delay, with exactly the stated deceleration",
        "the receiver brakes at once on request, from the stated speed",
    ),
    "killed": Trial(
        killed,
        (KILLED,),
        "the driving process is killed by SIGKILL, at the same two speeds",
        "the first braking sample, the time to rest and the distance agree with the stated bridge and "
        "deceleration; the session ends after the stated watchdog time",
        "the receiver stops the rig without this computer, from the stated speed, and follows no further command",
    ),
    "fast stop": Trial(
        fast_stop,
        (STOPPED,),
        "the operator stops the rig at the highest speed of the trials above",
        "the rig is held within its own braking distance",
        "the operator's stop also holds the rig at the stated speed",
    ),
    "cable": Trial(
        cable,
        (CABLE,),
        "the operator pulls the network cable in slow motion",
        "the test computer reports the failure; each axis rests within its stopping distance",
        "both ends stop when the network fails",
    ),
    "interlock": Trial(
        interlock,
        (INTERLOCK,),
        "the operator opens the interlock in slow motion, then closes it",
        "the rig brakes with the next sample; once the interlock is closed, each axis moves at most "
        "by its distance from its command",
        "the interlock reaches the receiver; closing the interlock moves nothing",
    ),
    "pressure": Trial(
        pressure,
        (PRESSURE,),
        "the operator switches the pressure off in slow motion, then on",
        "the command is set to the measured position; when the pressure returns, no axis moves by more than a "
        "tenth of its small move",
        "returning pressure moves nothing",
    ),
    "witnessed": Trial(
        witnessed,
        (EMERGENCY, END_STOPS, CONTROLLER),
        "both persons state their observation",
        "both persons have seen the function; motion is barred while the emergency stop is not witnessed",
        "the statement of two persons; nothing is measured",
    ),
    "calibrations": Trial(
        calibrations,
        (CALIBRATION,),
        "the rig file states certificate, class (ISO 376, ISO 7500-1, ISO 9513) and expiry date",
        "the calibration has not expired, or both persons have signed for it",
        "the statement of the rig file; nothing is measured",
    ),
}
"""Trials by name, in order. All other trials depend on the trial of the signs."""


def proofs() -> dict[str, str]:
    texts: dict[str, list[str]] = {}
    for trial in TRIALS.values():
        for cause in trial.causes:
            texts.setdefault(cause, []).append(trial.proves)
    return {cause: "; ".join(proved) for cause, proved in texts.items()}


def scenario_of(rig: RigFile) -> Scenario:
    """Return a scenario for the rig. The axes start at half of the smallest travel of a small move.

    Raises ConfigError if the rig file is unsuitable.
    """
    problems = Problems()
    if rig.servo_rate is None:
        problems.append("servo_rate: missing, but a commissioning counts samples of the controller")
    for name, axis in rig.axes.items():
        if axis.small_move is None:
            problems.append(
                f"axes.{name}.small_move: missing, but this section bounds the travel and the velocity "
                "of a free axis"
            )
    problems.refuse()
    start = min(0.5 * axis.small_move.displacement for axis in rig.axes.values() if axis.small_move is not None)
    motion = {"type": "sine", "amplitude": start, "frequency": HERTZ, "phase": 0.5 * math.pi}
    data: Mapping[str, object] = {
        "version": 1,
        "name": "commissioning",
        "servo_rate": rig.servo_rate,
        "substeps": 1,
        "duration": 1.0,
        "integrator": {"type": "prescribed", "displacement": motion},
        "compensator": {"type": "none"},
        "axes": {name: dict(SIMULATED) for name in rig.axes},
    }
    scenario = from_data(Scenario, on_rig(data, rig))
    judgement.refuse(scenario)
    return scenario


def _tried(bench: Bench, run: Callable[[Bench], Rows]) -> Rows:
    for _ in range(ATTEMPTS):
        try:
            return run(bench)
        except TooEarly:
            bench.operator.ready("you acted before the axes moved: bring it back, and do it again while they move")
    raise Refused(f"the operator has acted {ATTEMPTS} times before the axes moved")


def commission(
    bench: Bench,
    trials: Mapping[str, Trial] = TRIALS,
    report: Callable[[CommissioningRow], None] = lambda row: None,
) -> Rows:
    """Run all ``trials`` and report each row. Abort if a sign is wrong or an axis is not free."""
    rows: Rows = []
    for name, trial in trials.items():
        try:
            results, ended = _tried(bench, trial.run), False
        except (Refused, ConfigError, PortError) as error:
            results, ended = [judged(name, "all axes", "can be tried", str(error), False)], True
        for row in results:
            report(row)
        rows += results
        if ended or any(row.cause == SIGN and row.verdict == FAILED for row in results):
            break
    return rows
