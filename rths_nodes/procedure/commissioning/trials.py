# SPDX-License-Identifier: Apache-2.0
"""Trials of a commissioning: measuring functions, and the table :data:`TRIALS` of all trials in order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from functools import partial
from typing import NamedTuple

import numpy as np

from rths_nodes.core.errors import ConfigError, PortError, Problems
from rths_nodes.core.samples import (
    HYDRAULICS_HIGH,
    HYDRAULICS_NOT_TOLD,
    HYDRAULICS_OFF,
    Array,
    Measurement,
)
from rths_nodes.core.validation import from_data
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
from rths_nodes.procedure.commissioning.rig import HIGHEST, REST_S, Bench, Refused, Row, TooEarly
from rths_nodes.procedure.commissioning.stops import (
    STEADY,
    Rows,
    at_both_speeds,
    cable,
    closed,
    detected,
    judged,
    killed,
    longest_rest,
    resolution_of,
    resolved,
    rest_words,
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
STOP = "the commissioning requested a stop"
ATTEMPTS = 10
HERTZ = 0.1
"""Frequency of a motion that defines the start of the scenario and is never run, Hz."""


def signs(bench: Bench) -> Rows:
    with bench.opened():
        bench.clear(f"one axis after the other moves out and back: {bench.ways(bench.way, bench.velocity)}")
        return [_moved(bench, index) for index in range(len(bench.names))]


def _moved(bench: Bench, index: int) -> CommissioningRow:
    start, before, name = bench.command, _mean(bench.hold(REST_S)), bench.names[index]
    goal = start.copy()
    goal[index] += bench.way[index]
    bench.ramp(goal, bench.velocity)
    change = _mean(bench.hold(REST_S)) - before
    bench.ramp(start, bench.velocity)
    bound, steps = FOLLOWS * bench.way, 1e3 * bench.finest
    rows = zip(bench.names, (1e3 * change).tolist(), steps.tolist(), strict=True)
    measured = ", ".join(f"{axis} {'+' * (mm >= step)}{resolved(mm, step, 'mm')}" for axis, mm, step in rows)
    way, error = 1e3 * bench.way[index], 1e3 * bound[index]
    stated = f"{name} moves by {way:+.3g} mm, with an error of at most {error:.3g} mm"
    stated += ", and no other axis moves" * (len(bench.names) > 1)
    measured += _meaning(bench.names, index, change, bound)
    good = bool((np.abs(change - (goal - start)) <= bound).all())
    speed = bench.speed(index, float(bench.velocity[index]))
    return judged(SIGN, name, stated, measured, good, speed, f"{steps[index]:.3g} mm")


def _meaning(names: Sequence[str], index: int, change: Array, bound: Array) -> str:
    others = " and ".join(name for i, name in enumerate(names) if i != index and abs(change[i]) > bound[i])
    if abs(change[index]) <= bound[index]:
        return f": {others} moved instead" if others else ": the axis did not move, or its motion was not measured"
    if change[index] < 0.0:
        return ": the axis moved in the wrong direction"
    return f": {others} moved as well" if others else ""


def _mean(rows: Sequence[Row]) -> Array:
    return np.asarray(np.mean([row.displacement for row in rows], axis=0))


def limits(bench: Bench) -> Rows:
    rows = []
    with bench.opened():
        stated = bench.stated
        for index, name in enumerate(bench.names):
            velocity, stroke = float(stated.velocity[index]), float(stated.stroke[index])
            step, beyond = BEYOND_VELOCITY * velocity * bench.dt, min(BEYOND_STROKE * stroke, MOST_BEYOND)
            bench.clear(
                f"{name}: a step of {1e3 * step:.3g} mm, beyond its limit of velocity; then to both ends of its "
                f"stroke, and {1e3 * beyond:.3g} mm further: +- {1e3 * (stroke + beyond):.4g} mm at "
                f"{1e3 * bench.free_velocity[index]:.3g} mm/s"
            )
            rows.append(_velocity(bench, index, step, velocity))
            rows += [_stroke(bench, index, sign, stroke + beyond, stroke) for sign in (1.0, -1.0)]
    words = "the limit cannot be reached without a specimen"
    for name, force, error in zip(bench.names, stated.force, stated.error, strict=True):
        for cause, value, unit in zip(UNTRIED, (1e-3 * force, 1e3 * error), ("kN", "mm"), strict=True):
            limit = f"{value:.4g} {unit}" if np.isfinite(value) else "none stated"
            rows.append(CommissioningRow(cause, name, limit, words, NOT_TRIED))
    return rows


def _velocity(bench: Bench, index: int, step: float, limit: float) -> CommissioningRow:
    """Send one step that is so small that only a velocity limit can delay the axis."""
    start, since = bench.command, len(bench.rows) - 1
    goal = start.copy()
    goal[index] += step
    bench.tick(goal)
    bench.hold(REST_S)
    active = np.array([row.active[index] for row in bench.rows[since:]])
    bench.ramp(start, bench.velocity)
    reached = float(np.abs(np.diff(active)).max()) / bench.dt
    spare = ROUNDING * limit + float(bench.resolution[index]) / bench.dt
    return judged(
        VELOCITY,
        bench.names[index],
        f"at most {limit:.4g} m/s",
        f"the active command moves at up to {reached:.4g} m/s",
        reached <= limit + min(spare, 0.5 * (BEYOND_VELOCITY - 1.0) * limit),
        f"{BEYOND_VELOCITY * limit:.4g} m/s, for one sample",
        f"{spare:.2g} m/s",
    )


def _stroke(bench: Bench, index: int, sign: float, far: float, limit: float) -> CommissioningRow:
    start, velocity = bench.command, bench.free_velocity
    goal = start.copy()
    goal[index] = sign * far
    reached = max(sign * float(row.active[index]) for row in bench.ramp(goal, velocity))
    bench.ramp(start, velocity)
    spare = limit * 1e-6 + float(bench.resolution[index])
    return judged(
        STROKE,
        f"{bench.names[index]} {'extended' if sign > 0.0 else 'retracted'}",
        f"at most {1e3 * limit:.5g} mm",
        f"{1e3 * reached:.5g} mm",
        reached <= limit + min(spare, 0.5 * (far - limit)),
        bench.speed(index, float(velocity[index])),
        f"{1e3 * bench.finest[index]:.3g} mm",
    )


def stops(bench: Bench) -> Rows:
    ways = bench.ways(bench.way, bench.velocity)
    words = f"every axis moves out and back until the operator's stop command: {ways}"

    def beyond(way: Array) -> bool:
        return bool((np.abs(way) >= MOVED * bench.way).any())

    bench.operator.ask(words, moves=True)
    with _session(bench) as session:
        rows = [_stopped(bench, session, State.CHECKING, session.check, beyond)]
    bench.operator.ask(f"once more, and by up to half as far to the start of a test: {words}", moves=True)
    with _session(bench) as session:
        _clear_to_move(session)
        rows.append(_stopped(bench, session, State.POSITIONING, session.position, beyond))
        session.drive.await_rest()
        session.position()
        rows.append(_disarmed(bench, session))
    return rows


def fast_stop(bench: Bench) -> Rows:
    if (dash := bench.fast) is None:
        return [untried_fast(STOPPED)]
    with bench.opened():
        small = bench.ways(bench.way, bench.velocity)  # valid after the motion home
    words = dash.words(bench, "then the operator's stop command ends the motion")
    bench.operator.ask(f"every axis moves out and back: {small}; {words}", moves=True)
    steady: list[int] = []

    def motion(session: RigSession) -> Steps[None]:
        assert dash.start is not None
        walk = QuasiStatic(session.scenario, session.drive.command)
        yield from walk.ramp(dash.start, bench.free_velocity, lambda measured: "")
        yield from hold(dash.start, round(REST_S / bench.dt))
        for sample in range(1, dash.until + dash.rising + 1):
            if sample == dash.rising + STEADY:
                steady.append(sample)
            yield dash.start + dash.place(sample)

    def move() -> None:
        free = session.drive.measured.force

        def watch(sent: Array, measured: Measurement) -> str:
            return bench.obstacle(measured.force - free)

        with session.act(), session.motion("position"):
            session.drive.drive(GuidedMotion(motion(session), session.drive.command, watch))

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


@contextmanager
def _session(bench: Bench) -> Iterator[RigSession]:
    def connected() -> RigSession:
        record = ProcedureRecord("commissioning", bench.scenario.name, hash_of(bench.scenario))
        session = RigSession(bench.scenario, record, realtime=bench.realtime)
        session.connect()
        return session

    session = bench.opening(connected)
    try:
        session.confirm_offsets(session.take_offsets(OFFSETS_S).hash, unloaded=True)
        yield session
    finally:
        session.close()


def _stopped(
    bench: Bench,
    session: RigSession,
    state: State,
    act: Callable[[], object],
    due: Callable[[Array], bool],
    name: str = "",
) -> CommissioningRow:
    """Perform ``act``, and stop it in ``state`` once ``due(travel)`` is true; ``travel`` is ``(n_axes,)`` m."""
    drive, report, reason = session.drive, session.drive.on_measurement, ""
    sent, stops = list[Array](), list[int]()

    def watch(measured: Measurement) -> None:
        report(measured)
        if stops or session.state is state:
            sent.append(drive.command.copy())
            if not stops and len(sent) > 1 and due(sent[-1] - sent[0]):
                stops.append(len(sent) - 2)
                session.stop(STOP)

    drive.on_measurement = watch
    try:
        act()
    except ConfigError as error:
        reason = f": {error}"
    finally:
        drive.on_measurement = report
    commands = np.array(sent[stops[0] :] if stops else []).reshape(-1, len(bench.names))
    return operator_row(bench, name or state.name.lower(), session.state, commands, reason)


def operator_row(bench: Bench, name: str, then: State, commands: Array, reason: str = "") -> CommissioningRow:
    """Return the row for the operator's stop.

    ``commands`` ``(n, n_axes)`` m are the last two commands before the stop and all later commands. There are none
    if the rig was not stopped, for this ``reason``.
    """
    velocity = bench.most if len(commands) < 2 else np.abs(np.diff(commands, axis=0)).max(axis=0) / bench.dt
    n, fastest = STOP_SPARE + longest_rest(velocity, bench.deceleration, bench.dt), int(np.argmax(velocity))
    most = float(velocity.max()) * min(n, STOP_SPARE + 0.5 * (n + 1)) * bench.dt
    speed, ends = bench.speed(fastest, float(velocity[fastest])), f"; the rig is {then.name.lower()}"
    row = _rest_row(bench, STOPPED, name, commands[1:], (n, most, 1e-9), speed, ends, then is State.HELD)
    row.stated += "; the rig is held"
    return (
        row if len(commands) > 2 else replace(row, measured=f"was not stopped{reason}", verdict=FAILED, speed="")
    )


def _rest_row(
    bench: Bench,
    cause: str,
    subject: str,
    active: Array,
    bounds: tuple[int, float, float],
    speed: str,
    ending: str,
    good: bool = True,
) -> CommissioningRow:
    """Return the row of a stop of all axes with the commands ``active`` ``(n, n_axes)`` m.

    ``bounds`` are the largest number of samples to rest, and the longest way and its tolerance, m.
    """
    longest, most, spare = bounds
    rests = active[-1:]
    moving = np.flatnonzero((np.abs(active - rests) > 1e-9).any(axis=1))
    rest, way = int(moving.max(initial=-1)) + 1, float(np.abs(rests - active[:1]).max(initial=0.0))
    step = float(bench.finest.max())
    stated, measured = (rest_words(n, m, bench.dt, step) for n, m in ((longest, most), (rest, way)))
    good = good and rest <= longest and way <= most + spare
    return judged(cause, subject, stated, measured + ending, good, speed, resolution_of(bench.dt, step))


def _disarmed(bench: Bench, session: RigSession) -> CommissioningRow:
    assert session.offsets is not None  # ``_session`` confirms the offsets
    session.arm("c", bench.scenario, armed_hash(bench.scenario), session.offsets.hash)
    session.stop(STOP)
    runs = session.possible()["run"] == ""
    measured = "the rung can still be run" if runs else f"the rig is {session.state.name.lower()}"
    good = session.state is State.HELD and not runs
    return judged(STOPPED, "armed", "no rung can be run, and the rig is held", measured, good, "at rest")


def interlock(bench: Bench) -> Rows:
    with bench.opened():
        slow = bench.slow
        if not bench.acted("open the interlock while they move", lambda row: bool(row.stopped)):
            stated = "the rig reports that the interlock is open"
            return [detected(bench, INTERLOCK, "opened", stated, "", slow)]
        since, reason = len(bench.rows) - 1, bench.rows[-1].stopped
        bench.follow(REST_S)
        n = 1 + longest_rest(bench.velocity, bench.stated.deceleration, bench.dt)
        most, spare = float((bench.velocity * (n - 1) * bench.dt).max()), float(bench.resolution.max()) + 1e-9
        active = np.array([row.active for row in bench.rows[since:]])
        rows = [_rest_row(bench, INTERLOCK, "opened", active, (n, most, spare), slow, f": {reason}")]
        bench.operator.ask("close the interlock again", lambda: bench.tick(bench.rows[-1].active))
        since = len(bench.rows)
        bench.follow(WATCHED_S)
        # a displaced axis may return to its command
        return [
            *rows,
            _returned(bench, INTERLOCK, "closed", bench.rows[since - 1 :], bench.lag(bench.rows[since - 1])),
        ]


def pressure(bench: Bench) -> Rows:
    with bench.opened():
        slow = bench.slow
        if not bench.acted("take the pressure off while they move", partial(_without_pressure, bench)):
            stated = "the rig reports the loss of pressure, or does not follow its command"
            return [detected(bench, PRESSURE, "off", stated, "", slow)]
        reported = bench.rows[-1].hydraulics == HYDRAULICS_OFF
        measured = "reported" if reported else "not reported, but the axes do not follow their commands"
        rows = [detected(bench, PRESSURE, "off", "reported, or seen", measured, slow)]
        first, rest = bench.rows[0], bench.hold(REST_S)
        # command of the measured position: the first command plus the travel since then
        bench.ramp(first.active + _mean(rest) - first.displacement, bench.velocity)
        since = len(bench.rows)
        bench.hold(REST_S)
        bench.operator.ask("bring the pressure back", bench.tick)
        wanted = HYDRAULICS_HIGH, HYDRAULICS_NOT_TOLD
        if not any(bench.tick().hydraulics in wanted for _ in range(bench.samples(bench.patience))):
            stated = "the rig reports that the pressure is back"
            return [*rows, detected(bench, PRESSURE, "back", stated, "", "at rest")]
        bench.hold(WATCHED_S)
        return [*rows, _returned(bench, PRESSURE, "back", bench.rows[since:], 0.0)]


def _without_pressure(bench: Bench, row: Row) -> bool:
    if row.hydraulics != HYDRAULICS_NOT_TOLD:
        return row.hydraulics == HYDRAULICS_OFF
    return bool((bench.lag(row) > OFF * bench.way).any())


def _returned(bench: Bench, cause: str, what: str, rows: Sequence[Row], free: Array | float) -> CommissioningRow:
    """Return the row of axes that must rest in all ``rows``, or move by at most ``free`` ``(n_axes,)`` m."""
    moved = np.abs([row.displacement - rows[0].displacement for row in rows]).max(axis=0)
    bound = STILL * bench.way + free
    worst = int(np.argmax(moved - bound))
    stated, measured = (f"{bench.names[worst]} moves {1e3 * far[worst]:.3g} mm" for far in (bound, moved))
    return judged(cause, what, f"{stated} at most", measured, bool((moved <= bound).all()), "at rest")


def witnessed(bench: Bench) -> Rows:
    axes = bench.scenario.limits.items()
    ends = ", ".join(f"{name} +- {1e3 * limits.stroke:.4g} mm" for name, limits in axes)
    bounds = ", ".join(
        f"{name} {1e3 * limits.stroke:.4g} mm, {1e-3 * limits.force:.4g} kN" for name, limits in axes
    )
    statements = {
        EMERGENCY: "the pressure falls when the emergency stop is pressed, and nothing moves when the emergency "
        "stop is reset",
        END_STOPS: f"mechanical stops or cushions exist beyond the limit of stroke ({ends})",
        CONTROLLER: "limits set in the servo-controller, independent of these programs and not wider than "
        f"{bounds}",
    }
    rows = []
    for cause, stated in statements.items():
        seen = bench.operator.agrees(f"{cause}: {stated}. Have both of you seen this today?")
        measured, verdict = ("seen by both persons", WITNESSED) if seen else ("not witnessed", NOT_TRIED)
        rows.append(CommissioningRow(cause, "rig", stated, measured, verdict))
    return rows


def calibrations(bench: Bench) -> Rows:
    today, rows = date.today().isoformat(), []
    axes = [axis.rig_axis for axis in bench.scenario.axes.values() if axis.rig_axis is not None]
    for axis in axes:
        for noun, channel in (("displacement", axis.displacement), ("force", axis.force)):
            what, expired = f"{axis.name}: {noun}", bool(channel.expires) and today > channel.expires
            signed = expired and bench.operator.agrees(
                f"the calibration of {what} expired on {channel.expires}. Do both of you sign for this "
                "calibration?"
            )
            facts = {"certificate": channel.certificate, "class": channel.accuracy, "valid until": channel.expires}
            missing = ", ".join(fact for fact, value in facts.items() if not value)
            words = [", ".join(f"{fact} {value}" for fact, value in facts.items() if value)]
            if expired:
                words.append("expired, but signed for by both persons" if signed else "expired")
            elif missing:
                words.append(f"not stated: {missing}")
            verdict = (WITNESSED if signed else FAILED) if expired else NOT_TRIED if missing else WITNESSED
            measured = "; ".join(filter(None, words))
            rows.append(CommissioningRow(CALIBRATION, what, f"valid on {today}", measured, verdict))
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
        lambda bench: at_both_speeds(bench, CLOSED, closed),
        (CLOSED,),
        "the session is closed while all axes move, at a speed that resolves the deceleration, then at the "
        "highest speed that the free stroke and the limits allow",
        "each axis begins to brake within the transport delay, with exactly the stated deceleration",
        "the receiver brakes at once on request, from the stated speed",
    ),
    "killed": Trial(
        lambda bench: at_both_speeds(bench, KILLED, killed),
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
            bench.operator.ask("you acted before the axes moved: bring it back, and do it again while they move")
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
