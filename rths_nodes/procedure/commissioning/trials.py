# SPDX-License-Identifier: Apache-2.0
"""Trials of a commissioning: the functions that measure, and the table :data:`TRIALS` of all trials in order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np

from rths_nodes.core.errors import ConfigError, PortError, Problems
from rths_nodes.core.samples import HYDRAULICS_HIGH, HYDRAULICS_NOT_TOLD, HYDRAULICS_OFF, Array, Measurement
from rths_nodes.core.validation import from_data
from rths_nodes.loop import commissioning as sheet
from rths_nodes.loop.commissioning import CommissioningRow
from rths_nodes.loop.procedure_record import ProcedureRecord
from rths_nodes.loop.scenario import judgement
from rths_nodes.loop.scenario.rig_file import RigFile, on_rig
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.commissioning import stops
from rths_nodes.procedure.commissioning.rig import HIGHEST, REST_S, STEADY, Bench, Refused, Row
from rths_nodes.procedure.commissioning.stops import Rows, detected, judged, resolved, rest_samples, rest_words
from rths_nodes.procedure.motions import GuidedMotion, Steps
from rths_nodes.procedure.rungs import armed_hash
from rths_nodes.procedure.session import RigSession

BEYOND_VELOCITY = 1.05
"""Ratio of the velocity of a step to the velocity limit, which the step exceeds."""
STOP_SPARE = 2
"""Tolerance of the operator's stop, samples. The stop takes effect with the next command."""
WATCHED_S = 1.0
"""Observation time after the interlock has been closed or the pressure has returned, s."""
SIMULATED = {
    "actuator": {"type": "first_order", "alpha": 30.0},
    "specimen": {"type": "kelvin_voigt", "stiffness": 1.0, "damping": 0.0},
}
"""Models of each axis for a computed rung: a negligible specimen, and an actuator if the rig file has none."""
STOP = "the commissioning requested a stop"


def signs(bench: Bench) -> Rows:
    with bench.opened():
        bench.clear(f"one axis after the other moves out and back: {bench.ways(bench.way, bench.velocity)}")
        return [_moved(bench, index) for index in range(len(bench.names))]


def _moved(bench: Bench, index: int) -> CommissioningRow:
    before, name = _mean(bench.hold(REST_S)), bench.names[index]
    goal = bench.way * (np.arange(len(bench.names)) == index)
    rows = _excursion(bench, bench.command + goal, bench.velocity)
    change, bound = _mean(rows[-bench.samples(REST_S) :]) - before, 0.2 * bench.way
    steps = 1e3 * bench.finest
    ways = zip(bench.names, (1e3 * change).tolist(), steps.tolist(), strict=True)
    measured = ", ".join(f"{axis} {'+' * (mm >= step)}{resolved(mm, step, 'mm')}" for axis, mm, step in ways)
    way, error = 1e3 * bench.way[index], 1e3 * bound[index]
    stated = f"{name} moves by {way:+.3g} mm, with an error of at most {error:.3g} mm"
    stated += ", and no other axis moves" * (len(bench.names) > 1)
    good = bool((np.abs(change - goal) <= bound).all())
    speed = bench.speed(index, float(bench.velocity[index]))
    measured += _meaning(bench.names, index, change, bound)
    return judged(name, stated, measured, good, speed, f"{steps[index]:.3g} mm")


def _meaning(names: Sequence[str], index: int, change: Array, bound: Array) -> str:
    more = " and ".join(name for i, name in enumerate(names) if i != index and abs(change[i]) > bound[i])
    if abs(change[index]) <= bound[index]:
        return f": {more} moved instead" if more else ": the axis did not move, or its motion was not measured"
    if change[index] < 0.0:
        return ": the axis moved in the wrong direction"
    return f": {more} moved as well" if more else ""


def _mean(rows: Sequence[Row]) -> Array:
    return np.asarray(np.mean([row.measured.displacement for row in rows], axis=0))


def _excursion(bench: Bench, goal: Array, velocity: Array | None = None) -> list[Row]:
    """Move to ``goal`` ``(n_axes,)`` m and back. Return the rows up to the end of the rest at ``goal``.

    ``velocity`` ``(n_axes,)`` m/s bounds the motion. If it is None, ``goal`` is commanded in one step.
    """
    start, since = bench.command, len(bench.rows) - 1
    if velocity is None:
        bench.tick(goal)
    else:
        bench.ramp(goal, velocity)
    bench.hold(REST_S)
    rows = bench.rows[since:]
    bench.ramp(start, bench.velocity if velocity is None else velocity)
    return rows


def limits(bench: Bench) -> Rows:
    with bench.opened():
        rows = [row for index in range(len(bench.names)) for row in _limits_of_axis(bench, index)]
    reason = "the limit cannot be reached without a specimen"
    for name, force, error in zip(bench.names, bench.stated.force, bench.stated.error, strict=True):
        for cause, value, unit in zip(sheet.UNTRIED, (1e-3 * force, 1e3 * error), ("kN", "mm"), strict=True):
            limit = f"{value:.4g} {unit}" if np.isfinite(value) else "none stated"
            rows.append(CommissioningRow(cause, name, limit, reason, sheet.NOT_TRIED))
    return rows


def _limits_of_axis(bench: Bench, index: int) -> Iterator[CommissioningRow]:
    name, free, only = bench.names[index], bench.free_velocity, np.arange(len(bench.names)) == index
    velocity, stroke = float(bench.stated.velocity[index]), float(bench.stated.stroke[index])
    step, beyond = BEYOND_VELOCITY * velocity * bench.dt, min(0.02 * stroke, 1e-3)
    bench.clear(
        f"{name}: a step of {1e3 * step:.3g} mm, beyond its limit of velocity; then to both ends of its stroke, "
        f"and {1e3 * beyond:.3g} mm further: +- {1e3 * (stroke + beyond):.4g} mm at {1e3 * free[index]:.3g} mm/s"
    )
    # a step this small can be delayed only by a velocity limit
    active = [row.active[index] for row in _excursion(bench, bench.command + step * only)]
    reached, finest = float(np.abs(np.diff(active)).max()) / bench.dt, float(bench.resolution[index])
    spare = 1e-3 * velocity + finest / bench.dt  # tolerance for the rounded period
    good = reached <= velocity + min(spare, 0.5 * (BEYOND_VELOCITY - 1.0) * velocity)
    measured = f"its fastest change was {reached:.4g} m/s"
    texts = f"{BEYOND_VELOCITY * velocity:.4g} m/s, for one sample", f"{spare:.2g} m/s", sheet.VELOCITY
    yield judged(name, f"the active command changes by at most {velocity:.4g} m/s", measured, good, *texts)
    texts = bench.speed(index, float(free[index])), f"{1e3 * bench.finest[index]:.3g} mm", sheet.STROKE
    for sign, side in ((1.0, "extended"), (-1.0, "retracted")):
        rows = _excursion(bench, np.where(only, sign * (stroke + beyond), bench.command), free)
        reached = float(np.max([sign * row.active[index] for row in rows]))
        good = reached <= stroke + min(stroke * 1e-6 + finest, 0.5 * beyond)
        stated, measured = f"at most {1e3 * stroke:.5g} mm", f"{1e3 * reached:.5g} mm"
        yield judged(f"{name} {side}", stated, measured, good, *texts)


def slow_stops(bench: Bench) -> Rows:
    ways = bench.ways(bench.way, bench.velocity)
    motion = f"every axis moves out and back until the operator's stop command: {ways}"

    def due(sent: list[Array]) -> bool:
        return bool((np.abs(sent[-1] - sent[0]) >= 0.1 * bench.way).any())

    bench.operator.ask(motion, moves=True)
    with _session(bench) as session:
        rows = [_stopped(bench, session, "checking", session.check, due)]
    bench.operator.ask(f"once more: {motion}; then up to half as far, to the start of a test", moves=True)
    with _session(bench) as session:
        _clear_to_move(session)
        rows.append(_stopped(bench, session, "positioning", session.position, due))
        session.drive.await_rest()
        session.position()
        rows.append(_disarmed(bench, session))
    return rows


def fast_stop(bench: Bench) -> Rows:
    if (dash := bench.fast) is None:
        return [stops.untried_fast()]
    with bench.opened():
        small = bench.ways(bench.way, bench.velocity)  # the text assumes that the rig is at home
    fast = dash.words(bench, "then the operator's stop command ends the motion")
    bench.operator.ask(f"every axis moves out and back: {small}; {fast}", moves=True)

    def due(sent: list[Array]) -> bool:
        steady = 0.999 * STEADY * dash.velocity * bench.dt
        return len(sent) > STEADY and bool((sent[-1] - sent[-1 - STEADY] >= steady).all())

    def motion(start: Array) -> Steps[None]:
        for _, command in dash.commands(bench, start):
            yield command

    def move() -> None:
        drive, free = session.drive, session.drive.measured.force
        guided = GuidedMotion(motion, lambda _, measured: bench.obstacle(measured.force - free))
        with session.act(), session.motion("position"):
            drive.drive(guided)

    with _session(bench) as session:
        _clear_to_move(session)
        return [_stopped(bench, session, HIGHEST, move, due)]


def _clear_to_move(session: RigSession) -> None:
    """Check the axes and sign for all items. Discard the findings, because without load a load cell seems dead."""
    for axis in session.check().values():
        axis.findings.clear()
    for item in session.clearance.unsigned():
        session.sign_for(item)


@contextmanager
def _session(bench: Bench) -> Iterator[RigSession]:
    def connected() -> RigSession:
        record = ProcedureRecord("commissioning", bench.scenario.name, bench.scenario.whole_hash())
        session = RigSession(bench.scenario, record, realtime=bench.realtime)
        session.connect()
        return session

    session = bench.opening(connected)
    try:
        session.confirm_offsets(session.take_offsets(0.5).hash, unloaded=True)
        yield session
    finally:
        session.close()


def _stopped(
    bench: Bench, session: RigSession, name: str, act: Callable[[], object], due: Callable[[list[Array]], bool]
) -> CommissioningRow:
    """Perform ``act``, stop it once ``due(commands)`` is true, and return a row. Commands are ``(n_axes,)`` m."""
    drive, reason = session.drive, ""
    sent, ends = list[Array](), list[int]()

    def watch(measured: Measurement) -> None:
        if ends or session.state in (State.CHECKING, State.POSITIONING):
            sent.append(drive.command.copy())
            if not ends and len(sent) > 1 and due(sent):
                ends.append(len(sent) - 2)
                session.stop(STOP)

    drive.receivers.append(watch)
    try:
        act()
    except ConfigError as error:
        reason = f": {error}"
    finally:
        drive.receivers.remove(watch)
    commands = np.array(sent[ends[0] :] if ends else []).reshape(-1, len(bench.names))
    return operator_row(bench, name, session.state, commands, reason)


def operator_row(bench: Bench, name: str, then: State, commands: Array, reason: str = "") -> CommissioningRow:
    """Return the report row on the operator's stop.

    ``commands`` ``(n, n_axes)`` m are the last two commands before the stop and all later commands. If the rig was
    not stopped, ``commands`` is empty, and ``reason`` states why.
    """
    stopped = len(commands) > 2
    velocity = np.abs(np.diff(commands, axis=0)).max(axis=0) / bench.dt if stopped else bench.most
    n, fastest = STOP_SPARE + rest_samples(velocity, bench.deceleration, bench.dt), int(np.argmax(velocity))
    most = float(velocity.max()) * min(n, STOP_SPARE + 0.5 * (n + 1)) * bench.dt
    stated, measured, good, finest = _rest(bench, commands[1:] if stopped else np.zeros((1, 1)), n, most, 1e-9)
    stated += "; the rig is held"
    if not stopped:
        return judged(name, stated, f"no stop was measured{reason}", False, resolution=finest)
    measured, speed = f"{measured}; the rig is {then.name.lower()}", bench.speed(fastest, float(velocity[fastest]))
    return judged(name, stated, measured, good and then is State.HELD, speed, finest)


def _rest(bench: Bench, active: Array, samples: int, most: float, spare: float) -> tuple[str, str, bool, str]:
    """Return the stated and the measured stop of all axes, whether the two agree, and the resolution.

    Commands ``active`` ``(n, n_axes)`` m must come to rest within ``samples`` samples and ``most`` + ``spare`` m.
    """
    moving = np.flatnonzero((np.abs(active - active[-1]) > 1e-9).any(axis=1))
    rest, way = int(moving.max(initial=-1)) + 1, float(np.abs(active[-1] - active[0]).max())
    step = float(bench.finest.max())
    stated, measured = (rest_words(n, m, bench.dt, step) for n, m in ((samples, most), (rest, way)))
    finest = f"{1e3 * bench.dt:.3g} ms, {1e3 * step:.3g} mm"
    return stated, measured, rest <= samples and way <= most + spare, finest


def _disarmed(bench: Bench, session: RigSession) -> CommissioningRow:
    assert session.offsets is not None  # ``_session`` confirms the offsets
    session.arm("c", bench.scenario, armed_hash(bench.scenario), session.offsets.hash)
    session.stop(STOP)
    runs = session.possible()["run"] == ""
    measured = "the rung can still be run" if runs else f"the rig is {session.state.name.lower()}"
    good = session.state is State.HELD and not runs
    return judged("armed", "no rung can be run, and the rig is held", measured, good, "at rest")


def interlock(bench: Bench) -> Rows:
    with bench.acted("open the interlock while they move", lambda row: row.stopped) as reason:
        if not reason:
            return [detected(bench, "opened", "the rig reports that the interlock is open")]
        since = len(bench.rows) - 1
        bench.follow(REST_S)
        n = rest_samples(bench.velocity, bench.stated.deceleration, bench.dt)
        most, spare = float((bench.velocity * n * bench.dt).max()), float(bench.resolution.max()) + 1e-9
        active = np.array([row.active for row in bench.rows[since:]])
        stated, measured, good, finest = _rest(bench, active, n + 1, most, spare)
        row = judged("opened", stated, f"{measured}: {reason}", good, bench.slow, finest)
        bench.operator.ask("close the interlock again", lambda: bench.tick(bench.rows[-1].active))
        states = [row.measured.interlock for row in bench.rows]
        since = max((k for k, state in enumerate(states) if state != states[0]), default=len(states) - 1)
        bench.follow(WATCHED_S)
        # an axis that is away from its command may return to it
        return [row, _returned(bench, "closed", since, bench.lag(bench.rows[since]))]


def pressure(bench: Bench) -> Rows:
    def loss(row: Row) -> str:
        if row.hydraulics != HYDRAULICS_NOT_TOLD:
            return "reported" * (row.hydraulics == HYDRAULICS_OFF)
        lost = (bench.lag(row) > 0.5 * bench.way).any()
        return "not reported, but the axes do not follow their commands" if lost else ""

    with bench.acted("take the pressure off while they move", loss) as measured:
        if not measured:
            return [detected(bench, "off", "the rig reports the loss of pressure, or does not follow its command")]
        rows = [detected(bench, "off", "reported, or seen", measured)]
        first, rest = bench.rows[0], bench.hold(REST_S)
        # command the measured position, i.e. the first command plus the travel since then
        bench.ramp(first.active + _mean(rest) - first.measured.displacement, bench.velocity)
        since = len(bench.rows)
        bench.hold(REST_S)
        bench.operator.ask("bring the pressure back", bench.tick)
        wanted = HYDRAULICS_HIGH, HYDRAULICS_NOT_TOLD
        if not any(bench.tick().hydraulics in wanted for _ in range(bench.samples(bench.patience))):
            return [*rows, detected(bench, "back", "the rig reports that the pressure is back", speed="at rest")]
        bench.hold(WATCHED_S)
        return [*rows, _returned(bench, "back", since, 0.0)]


def _returned(bench: Bench, event: str, since: int, free: Array | float) -> CommissioningRow:
    """Check that, from row ``since`` on, each axis moves by at most a tenth of its small move plus ``free`` m."""
    displacement = np.array([row.measured.displacement for row in bench.rows[since:]])
    moved, bound = np.abs(displacement - displacement[0]).max(axis=0), 0.1 * bench.way + free
    worst = int(np.argmax(moved - bound))
    stated, measured = (f"{bench.names[worst]} moves {1e3 * far[worst]:.3g} mm" for far in (bound, moved))
    return judged(event, f"{stated} at most", measured, bool((moved <= bound).all()), "at rest")


def witnessed(bench: Bench) -> Rows:
    axes, rows = bench.scenario.limits.items(), []
    ends = ", ".join(f"{name} +- {1e3 * limits.stroke:.4g} mm" for name, limits in axes)
    bounds = [f"{name} {1e3 * limits.stroke:.4g} mm, {1e-3 * limits.force:.4g} kN" for name, limits in axes]
    statements = {
        sheet.EMERGENCY: "the pressure falls when the emergency stop is pressed, and nothing moves when the "
        "emergency stop is reset",
        sheet.END_STOPS: f"mechanical stops or cushions exist beyond the limit of stroke ({ends})",
        sheet.CONTROLLER: "limits are set in the servo-controller, independent of these programs, not wider than "
        + ", ".join(bounds),
    }
    for cause, stated in statements.items():
        seen = bench.operator.agrees(f"{cause}: {stated}. Have both of you seen this today?")
        measured = "seen by both persons" if seen else "not witnessed"
        verdict = sheet.WITNESSED if seen else sheet.NOT_TRIED
        rows.append(CommissioningRow(cause, "rig", stated, measured, verdict))
    return rows


def calibrations(bench: Bench) -> Rows:
    today, rows = date.today().isoformat(), []
    for axis, noun in product(bench.axes, ("displacement", "force")):
        subject, channel = f"{axis.name}: {noun}", axis.force if noun == "force" else axis.displacement
        facts = {"certificate": channel.certificate, "class": channel.accuracy, "valid until": channel.expires}
        entries = [", ".join(f"{fact} {value}" for fact, value in facts.items() if value)]
        missing = ", ".join(fact for fact, value in facts.items() if not value)
        verdict = sheet.NOT_TRIED if missing else sheet.WITNESSED
        if channel.expires and today > channel.expires:
            question = f"the calibration of {subject} expired on {channel.expires}"
            signed = bench.operator.agrees(f"{question}. Do both of you sign for this calibration?")
            verdict = sheet.WITNESSED if signed else sheet.FAILED
            entries.append("expired" + ", but signed for by both persons" * signed)
        elif missing:
            entries.append(f"not stated: {missing}")
        rows.append(CommissioningRow("", subject, f"valid on {today}", "; ".join(filter(None, entries)), verdict))
    return rows


class Trial(NamedTuple):
    """Function of a trial, causes of its report rows, its action and requirement, and the statement it proves."""

    run: Callable[[Bench], Rows]
    causes: tuple[str, ...]
    done: str
    bound: str
    proves: str


TRIALS: dict[str, Trial] = {
    "signs": Trial(
        signs,
        (sheet.SIGN,),
        "each axis moves by its `small_move` and back",
        "each axis moves in the right direction, with an error of at most a fifth of `small_move`; no "
        "other axis moves",
        "commands and displacements belong to the same axis, with the same sign and unit",
    ),
    "limits": Trial(
        limits,
        (sheet.VELOCITY, sheet.STROKE),
        "the command exceeds the limit of velocity by 5 % in one step, then slowly exceeds the limit of stroke "
        "by 2 % (at most 1 mm) on both sides",
        "the active command never exceeds the limit",
        "the receiver follows no command that exceeds its limits of velocity and stroke",
    ),
    "stops": Trial(
        slow_stops,
        (sheet.STOPPED,),
        "the operator stops `check`, `position` and an armed rung",
        "the rig is held within its own braking distance",
        "the operator's stop holds the rig in slow motions, and disarms an armed rung",
    ),
    "closed": Trial(
        partial(stops.at_both_speeds, stops.closed),
        (sheet.CLOSED,),
        "the session is closed while all axes move, at a speed that resolves the deceleration, then at the "
        "highest speed that the free stroke and the limits allow",
        "each axis begins to brake within the transport delay, with exactly the stated deceleration",
        "the receiver brakes at once on request, from the stated speed",
    ),
    "killed": Trial(
        partial(stops.at_both_speeds, stops.killed),
        (sheet.KILLED,),
        "the driving process is killed by SIGKILL, at the same two speeds",
        "the first braking sample, the time to rest and the distance agree with the stated bridge and "
        "deceleration; the session ends after the stated watchdog time",
        "the receiver stops the rig without this computer, from the stated speed, and follows no further command",
    ),
    "fast stop": Trial(
        fast_stop,
        (sheet.STOPPED,),
        "the operator stops the rig at the highest speed of the trials above",
        "the rig is held within its own braking distance",
        "the operator's stop also holds the rig at the stated speed",
    ),
    "cable": Trial(
        stops.cable,
        (sheet.CABLE,),
        "the operator pulls the network cable in slow motion",
        "the test computer reports the failure; each axis rests within its stopping distance",
        "both ends stop when the network fails",
    ),
    "interlock": Trial(
        interlock,
        (sheet.INTERLOCK,),
        "the operator opens the interlock in slow motion, then closes it",
        "the rig brakes with the next sample; once the interlock is closed, each axis moves at most "
        "by its distance from its command",
        "the interlock reaches the receiver; closing the interlock moves nothing",
    ),
    "pressure": Trial(
        pressure,
        (sheet.PRESSURE,),
        "the operator switches the pressure off in slow motion, then on",
        "the command is set to the measured position; when the pressure returns, no axis moves by more than a "
        "tenth of its small move",
        "returning pressure moves nothing",
    ),
    "witnessed": Trial(
        witnessed,
        (sheet.EMERGENCY, sheet.END_STOPS, sheet.CONTROLLER),
        "both persons state their observation",
        "both persons have seen the function; motion is barred while the emergency stop is not witnessed",
        "the statement of two persons; nothing is measured",
    ),
    "calibrations": Trial(
        calibrations,
        (sheet.CALIBRATION,),
        "the rig file states certificate, class (ISO 376, ISO 7500-1, ISO 9513) and expiry date",
        "the calibration has not expired, or both persons have signed for it",
        "the statement of the rig file; nothing is measured",
    ),
}
"""Trials by name, in order. All later trials depend on the first trial, which verifies the signs."""


def proofs() -> dict[str, str]:
    causes = dict.fromkeys(cause for trial in TRIALS.values() for cause in trial.causes)
    return {cause: "; ".join(t.proves for t in TRIALS.values() if cause in t.causes) for cause in causes}


def scenario_of(rig: RigFile) -> Scenario:
    """Return a scenario for a commissioning. The axes start at half the travel of the smallest small move.

    Raises ConfigError if the rig file is unsuitable for a commissioning.
    """
    problems = Problems()
    if rig.servo_rate is None:
        problems.append("servo_rate: missing; required, because a commissioning counts samples")
    moves = {name: axis.small_move for name, axis in rig.axes.items()}
    for name in [name for name, move in moves.items() if move is None]:
        problems.append(f"axes.{name}.small_move: missing; required, because it bounds the motion of a free axis")
    problems.refuse()
    start = min(0.5 * move.displacement for move in moves.values() if move is not None)
    motion = {"type": "sine", "amplitude": start, "frequency": 0.1, "phase": 0.5 * math.pi}  # never run
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


def commission(
    bench: Bench, trials: dict[str, Trial] = TRIALS, report: Callable[[CommissioningRow], None] = lambda row: None
) -> Rows:
    """Run all ``trials``, report each row, and return all rows. Abort after an error or a wrong sign."""
    rows: Rows = []
    for name, trial in trials.items():
        try:
            results, ended = trial.run(bench), False
        except (Refused, ConfigError, PortError) as error:
            results, ended = [judged("all axes", "no error", str(error), False, cause=name)], True
        for row in results:
            row.cause = row.cause or trial.causes[0]
            report(row)
        rows += results
        if ended or any(row.cause == sheet.SIGN and row.verdict == sheet.FAILED for row in results):
            break
    return rows
