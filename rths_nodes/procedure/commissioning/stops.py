# SPDX-License-Identifier: Apache-2.0
"""Trials of the stops of the far end: closed session, killed test computer, pulled cable.

The commissioning process shares the socket of the process that it kills, and receives the states while the far end
brakes. For a port without a listener, a new session measures where the rig rests.

An axis moves with constant velocity v when its commands end. After ``since``, the last sample that the far end
received, it may continue at v, and then brakes with the deceleration a. It comes to rest after ceil(v / (a dt))
further samples. All counts are samples of the rig's own counter.
"""

from __future__ import annotations

import math
import multiprocessing
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rths_nodes.core.errors import ConfigError, PortError
from rths_nodes.core.port_readings import FarEnd, Listener, ReportedState
from rths_nodes.core.samples import Array
from rths_nodes.core.validation import from_data
from rths_nodes.loop.commissioning import (
    CABLE,
    CLOSED,
    FAILED,
    KILLED,
    NOT_TRIED,
    PASSED,
    CommissioningRow,
)
from rths_nodes.loop.realtime import real_time
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.procedure.commissioning.rig import (
    REST_S,
    Bench,
    Dash,
    FreeRig,
    Refused,
    to_and_fro,
)

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

STEADY = 16
"""Number of samples of constant velocity before a motion is aborted."""
KILLS = 3
TOLD = 2
"""Largest accepted delay, samples, from the watchdog to a state that reports the end of the session."""
LISTENED_S = 1.0
"""Time without a state after which no further state is expected, s."""
STANDS = 12
"""Number of consecutive samples at one position that count as rest."""
OPENED_S = 120.0
"""Timeout for a process to start, open its session and reach its velocity, s."""

SPARE = 1
"""Tolerance of a stop, samples; a stop begins and ends between two samples."""
ROUNDED = 0.25
"""Largest undetected deviation from constant velocity, as a fraction of the first change that braking causes."""

HIGHEST = "from the highest speed"

Rows = list[CommissioningRow]


def judged(
    cause: str, subject: str, stated: str, measured: str, good: bool, speed: str = "", resolution: str = ""
) -> CommissioningRow:
    return CommissioningRow(cause, subject, stated, measured, PASSED if good else FAILED, speed, resolution)


def resolved(value: float, step: float, unit: str) -> str:
    """Return ``value`` as text, or "less than" the resolution ``step``; both are in ``unit``."""
    return f"less than {step:.3g} {unit}" if abs(value) < step else f"{value:.3g} {unit}"


def rest_words(samples: int, way: float, dt: float, step: float) -> str:
    return (
        f"the axis rests after {resolved(1e3 * samples * dt, 1e3 * dt, 'ms')} and "
        f"{resolved(1e3 * way, 1e3 * step, 'mm')}"
    )


def resolution_of(dt: float, step: float) -> str:
    return f"{1e3 * dt:.3g} ms, {1e3 * step:.3g} mm"


def rest_samples(velocity: float, deceleration: float, dt: float) -> int:
    return max(1, math.ceil(abs(velocity) / (deceleration * dt) - 1e-6))


def way_of(velocity: float, bridged: int, deceleration: float, dt: float) -> float:
    """Return the stopping distance (m) from ``velocity`` (m/s): ``bridged`` samples unchanged, then braking."""
    n = rest_samples(velocity, deceleration, dt)
    return velocity * (bridged + n) * dt - 0.5 * n * (n + 1) * min(deceleration * dt, velocity / n) * dt


def judge_stop(
    since: int,
    position: float,
    velocity: float,
    samples: Sequence[int],
    active: Array,
    bridged: int,
    deceleration: float,
    dt: float,
    step: float,
) -> tuple[str, str, bool]:
    """Return the stated and the measured stop as text, and whether they agree.

    The axis is at ``position`` (m) in sample ``since``, with ``velocity`` (m/s). The far end states that it brakes
    after ``bridged`` samples; ``step`` (m) is the resolution of its commands ``active`` ``(n,)`` m at ``samples``.
    """
    v, change = abs(velocity), deceleration * dt**2
    n, seen = rest_samples(v, deceleration, dt), ROUNDED * change + step
    unseen = 0
    while 0.5 * (unseen + 1) * (unseen + 2) * change <= seen:
        unseen += 1
    due, end, most = bridged + 1, bridged + n, way_of(v, bridged, deceleration, dt)
    stated = _stop_text(due, end, most, dt, step)
    numbers = np.asarray(samples) - since
    numbers, places = numbers[numbers > 0], np.asarray(active)[numbers > 0]
    if not len(numbers):
        return stated, "the axis does not brake within 0 mm", False
    short = math.copysign(1.0, velocity) * (position + velocity * numbers * dt - places)
    way = float(math.copysign(1.0, velocity) * (places[-1] - position))
    braking = np.flatnonzero(short > seen)
    if not len(braking):
        return stated, f"the axis does not brake within {way * 1e3:.3g} mm", False
    moving = np.flatnonzero(np.abs(places - places[-1]) > 1e-3 * seen + step)
    first, last = int(numbers[braking[0]]), int(numbers[moving[-1]]) if len(moving) else 0
    # the last state may be the first at rest
    if last + 1 >= numbers[-1] and not abs(places[-1] - places[-2:][0]) <= change + step:
        return stated, f"the axis does not come to rest within {way * 1e3:.3g} mm", False
    rest = last + 1
    took, harder = rest - first + 1 + unseen, n - 1 - max(1, n // 5)
    wrong = first > due + unseen + SPARE or rest > end + SPARE
    wrong |= not way <= most + (v * dt + step) * (1 + SPARE) or took < harder
    measured = _stop_text(first, rest, way, dt, step)
    if took < harder:
        measured += f"; the axis brakes in {took} samples instead of the stated {n}"
    return stated, measured, not wrong


def _stop_text(first: int, rest: int, way: float, dt: float, step: float) -> str:
    return f"the axis brakes after {first * dt * 1e3:.3g} ms; {rest_words(rest, way, dt, max(step, 1e-6))}"


def closed(bench: Bench) -> Rows:
    return _at_both_speeds(bench, CLOSED, _closed)


def killed(bench: Bench) -> Rows:
    return _at_both_speeds(bench, KILLED, _killed)


def _at_both_speeds(bench: Bench, cause: str, attempt: Callable[[Bench, bool], Rows]) -> Rows:
    rows = attempt(bench, False)
    if any(row.verdict == FAILED for row in rows):
        bench.fast = None
    if bench.fast is None:
        return [*rows, untried_fast(cause)]
    fast = attempt(bench, True)
    bench.fast = None if any(row.verdict == FAILED for row in fast) else bench.fast
    return rows + fast


def untried_fast(cause: str) -> CommissioningRow:
    why = "the free stroke and the limits allow no higher speed, or an earlier stop failed or was not tried"
    return CommissioningRow(cause, HIGHEST, "as above", why, NOT_TRIED)


def _closed(bench: Bench, fast: bool) -> Rows:
    with bench.opened() as rig:
        stated, ear = rig.stated(), rig.port.ear
        dash = _dash(bench, fast, stated)
        bench.clear(rig, moves(bench, dash, "then the session is closed"))
        start = _run_up(rig, dash)
        for sample in range(1, dash.rising + STEADY + 1):
            rig.tick(start + dash.place(sample))
        last, first = rig.rows[-1], rig.rows[0]
        lag = np.abs(last.active - first.active - last.displacement + first.displacement) / dash.velocity
        if ear is None:
            rig.close()
            ends = np.array((start, last.active))
            return by_place(bench, CLOSED, ends, dash.velocity, stated, bench.transport, _suffix(dash))
        ear.stop()
        states = _listen(bench, ear, dash, stated)
    if not fast:
        bench.fast = Dash.fastest(bench.scenario, stated, lag)
    return _stop_rows(bench, CLOSED, states, last.sample, last.active, dash, stated, bench.transport)


def _dash(bench: Bench, fast: bool, stated: FarEnd) -> Dash:
    return bench.fast if fast and bench.fast is not None else Dash.resolving(bench.scenario, stated.bridged)


def _run_up(rig: FreeRig, dash: Dash) -> Array:
    if dash.start is not None:
        rig.ramp(dash.start, rig.free_velocity)
        rig.hold(REST_S)
    return rig.command


def _killed(bench: Bench, fast: bool) -> Rows:
    for _ in range(KILLS):
        with bench.opened() as rig:
            stated = rig.stated()  # moves home: the process to be killed cannot ask for clearance
        dash = _dash(bench, fast, stated)
        words = "the process that drives it is killed while it moves"
        bench.operator.ready(moves(bench, dash, words), moves=True)
        if rows := _killed_once(bench, dash):
            return rows
    raise Refused(f"the process was killed {KILLS} times, but never while the axes moved at constant velocity")


def _killed_once(bench: Bench, dash: Dash) -> Rows:
    context = multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe()
    arguments = theirs, bench.scenario.data(), bench.realtime, dash
    process = context.Process(target=drive_until_killed, args=arguments)
    process.start()
    theirs.close()
    try:
        stated, ear = bench.opening(bench.rig().port.simulated, lambda: _opened(pipe))
        reached = _received(pipe)
    finally:
        process.kill()
        process.join()
    if isinstance(reached, str):
        raise Refused(reached)
    before, start = reached
    if ear is None:
        ends = np.array((start, start + dash.place(dash.until)))
        return by_place(bench, KILLED, ends, dash.velocity, stated, stated.bridged, _suffix(dash))
    states = _listen(bench, ear, dash, stated)
    ear.close()
    newest = max((state.newest for state in states), default=0)
    if not dash.rising < newest - before <= dash.until:
        return []
    place, since = start + dash.place(newest - before), newest + bench.transport
    rows = _stop_rows(bench, KILLED, states, since, place, dash, stated, stated.bridged)
    return [*rows, _session_over(bench, states, since, dash, stated)]


def _session_over(
    bench: Bench, states: list[ReportedState], since: int, dash: Dash, stated: FarEnd
) -> CommissioningRow:
    stopped = [state for state in states if state.stopped]
    took = stopped[0].measured.sample - since if stopped else None
    measured = (
        "the session does not end"
        if took is None
        else f"the session ends after {1e3 * took * bench.dt:.3g} ms: {stopped[0].stopped}"
    )
    allowed = f"the session ends after {1e3 * (stated.watchdog + TOLD) * bench.dt:.3g} ms at most"
    good = took is not None and took <= stated.watchdog + TOLD
    return judged(
        KILLED,
        "session of the receiver" + _suffix(dash),
        allowed,
        measured,
        good,
        resolution=f"{1e3 * bench.dt:.3g} ms",
    )


def _opened(pipe: Connection) -> tuple[FarEnd, Listener | None]:
    pipe.send("open")
    answer = _received(pipe)
    if isinstance(answer, str):
        raise ConfigError(answer)
    stated, ear = answer
    return stated, ear


def _received(pipe: Connection) -> Any:
    try:
        if pipe.poll(OPENED_S):
            return pipe.recv()
    except (EOFError, OSError) as error:
        raise Refused("the process that drives the rig has ended by itself") from error
    raise Refused(f"the process that drives the rig has sent nothing for {OPENED_S:g} s")


def drive_until_killed(pipe: Connection, data: dict[str, object], realtime: bool, dash: Dash) -> None:
    """Run in the process to be killed: open a session and move the axes along ``dash``.

    In lockstep, the process sends no commands while it waits to be killed, so that time stops.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    bench = Bench(from_data(Scenario, data), realtime, None)  # type: ignore[arg-type]  # no operator is asked
    with real_time(realtime):
        rig = _opened_when_asked(bench, pipe)
        try:
            _drive(rig, pipe, dash)
        except Exception as error:  # the other process reports the error
            pipe.send(f"the process that drives the rig has failed: {error}")
        finally:
            rig.close()


def _drive(rig: FreeRig, pipe: Connection, dash: Dash) -> None:
    pipe.send((rig.stated(), rig.port.ear))
    rig.warn()
    start = _run_up(rig, dash)
    before = rig.rows[-1].sample
    for sample in range(1, dash.until + dash.rising + 1):
        rig.tick(start + dash.place(sample))
        if sample == dash.rising + STEADY:
            pipe.send((before, start))
            while not rig.realtime:
                pipe.recv()
    while not pipe.poll():  # until the other process kills this one
        rig.tick()


def _opened_when_asked(bench: Bench, pipe: Connection) -> FreeRig:
    while True:
        pipe.recv()
        rig = bench.rig()
        try:
            rig.open()
            return rig
        except ConfigError as error:
            pipe.send(str(error))


def _si(bench: Bench, states: Sequence[ReportedState]) -> list[ReportedState]:
    return [replace(state, measured=bench.calibration.measured(state.measured)) for state in states]


def _listen(bench: Bench, ear: Listener, dash: Dash, stated: FarEnd) -> list[ReportedState]:
    limits = zip(dash.velocity.tolist(), stated.deceleration.tolist(), strict=True)
    longest = max(rest_samples(v, a, bench.dt) for v, a in limits) + stated.bridged + bench.transport
    longest = 3 * longest + 3 * STANDS + stated.watchdog
    states: list[ReportedState] = []
    patience = bench.scenario.port.longest_wait + LISTENED_S
    while more := ear.states(patience):
        states += more
        patience = LISTENED_S
        newest = max(state.newest for state in states)
        if _stands(states) or states[-1].measured.sample > newest + longest:
            break
    ear.stop()
    return _si(bench, states)


def _stands(states: Sequence[ReportedState]) -> bool:
    last = [state.measured.command for state in states[-STANDS:]]
    return len(last) == STANDS and bool(states[-1].stopped) and all(np.array_equal(one, last[0]) for one in last)


def _suffix(dash: Dash) -> str:
    return "" if dash.start is None else f", {HIGHEST}"


def _stop_rows(
    bench: Bench,
    cause: str,
    states: list[ReportedState],
    since: int,
    place: Array,
    dash: Dash,
    stated: FarEnd,
    bridged: int,
) -> Rows:
    samples = [state.measured.sample for state in states]
    shape = len(states), len(bench.names)
    active = np.array([state.measured.command for state in states]).reshape(shape)
    pistons = np.array([state.measured.displacement for state in states]).reshape(shape)
    rows = []
    for i, name in enumerate(bench.names):
        v, a, step = float(dash.velocity[i]), float(stated.deceleration[i]), float(bench.resolution[i])
        line = since, float(place[i]), v
        expected, measured, good = judge_stop(*line, samples, active[:, i], bridged, a, bench.dt, step)
        if good:
            first = max(0, sum(sample <= since for sample in samples) - 1)
            measured += f"; the axis moves {1e3 * abs(pistons[-1, i] - pistons[first, i]):.3g} mm"
        speed, finest = bench.speed(i, v), resolution_of(bench.dt, bench.finest(i))
        rows.append(judged(cause, name + _suffix(dash), expected, measured, good, speed, finest))
    return rows


def by_place(
    bench: Bench, cause: str, sent: Array, velocity: Array, stated: FarEnd, bridged: int, suffix: str = ""
) -> Rows:
    """Check, without a listener, that the rig rests within its motion ``sent`` plus a stopping distance.

    ``sent`` ``(n, n_axes)`` m are commands, including both ends of the motion, at up to ``velocity`` m/s.
    """
    bench.operator.ready("begin a new session at the rig")
    with bench.opened() as rig:
        rested = rig.rows[0].active
    rows = []
    for i, name in enumerate(bench.names):
        v = float(velocity[i])
        most = way_of(v, bridged + bench.transport, float(stated.deceleration[i]), bench.dt)
        far = max(float(sent[:, i].min() - rested[i]), float(rested[i] - sent[:, i].max()), 0.0)
        spare = float(bench.resolution[i]) + v * bench.dt
        allowed = f"the axis rests at most {1e3 * most:.3g} mm beyond the end of its motion"
        measured = f"the axis rests {resolved(1e3 * far, 1e3 * spare, 'mm')} beyond the end of its motion"
        finest = f"{1e3 * spare:.2g} mm; times are not measured"
        rows.append(
            judged(cause, name + suffix, allowed, measured, far <= most + spare, bench.speed(i, v), finest)
        )
    return rows


def cable(bench: Bench) -> Rows:
    with bench.opened() as rig:
        stated, ear, slow, velocity = rig.stated(), rig.port.ear, slowest(bench, rig), rig.velocity
        words = "pull the network cable of the rig while they move, for three seconds or more"
        bench.moving_soon(rig, slowly(bench, rig, words))
        reason = _until_silent(bench, rig)
        sent = [row.sent for row in rig.rows]
        if reason:
            bench.operator.ready("plug the network cable in again")
            states = [] if ear is None else _until_plugged(bench, ear)
    measured = reason or f"nothing has happened within {bench.patience:g} s"
    here = judged(
        CABLE, "test computer", "the test computer reports that the rig is silent", measured, bool(reason), slow
    )
    if not reason:
        return [here]
    if ear is None:
        return [here, *by_place(bench, CABLE, np.array(sent), velocity, stated, stated.bridged)]
    return [here, *_plugged(bench, states, sent, stated)]


def _until_silent(bench: Bench, rig: FreeRig) -> str:
    try:
        for row in to_and_fro(rig, bench.patience):
            if row.stopped:
                return row.stopped
    except PortError as error:
        return str(error)
    return ""


def _until_plugged(bench: Bench, ear: Listener) -> list[ReportedState]:
    end = time.monotonic() + bench.patience
    states: list[ReportedState] = []
    while time.monotonic() < end and not _stands(states):
        states += ear.states(LISTENED_S)
    return _si(bench, states)


def _plugged(bench: Bench, states: list[ReportedState], sent: list[Array], stated: FarEnd) -> Rows:
    if not states:
        return [judged(CABLE, "the rig", "the rig reports its state again", "the rig reports nothing", False)]
    last = states[-1]
    newest = min(last.newest, len(sent) - 1)
    place = sent[newest]
    slope = (place - sent[max(newest - 1, 0)]) / bench.dt
    still = np.array_equal(last.measured.command, states[-STANDS:][0].measured.command)
    rows = []
    for i, name in enumerate(bench.names):
        v, a, finest = abs(float(slope[i])), float(stated.deceleration[i]), 1e3 * bench.finest(i)
        most = way_of(v, stated.bridged, a, bench.dt) if v else 0.0
        far = float(last.measured.command[i] - place[i])
        spare = 2.0 * v * bench.dt + float(bench.resolution[i]) + 1e-9
        along = far if slope[i] >= 0.0 else -far
        good = still and bool(last.stopped) and -spare <= along <= most + spare
        allowed = f"the axis rests within {resolved((most + spare) * 1e3, finest, 'mm')}"
        measured = (
            f"the axis rests after {resolved(along * 1e3, finest, 'mm')}: "
            f"{last.stopped or 'the rig has not stopped'}"
        )
        rows.append(judged(CABLE, name, allowed, measured, good, bench.speed(i, v), f"{finest:.3g} mm"))
    return rows


def slowest(bench: Bench, rig: FreeRig) -> str:
    """Return, as text, the small-move velocity of the axis slowest relative to its limit."""
    most = np.array([axis.velocity for axis in bench.scenario.limits.values()])
    index = int(np.argmin(rig.velocity / most))
    return bench.speed(index, float(rig.velocity[index]))


def moves(bench: Bench, dash: Dash, words: str) -> str:
    ways = bench.ways(dash.way, dash.velocity, "up to ")
    if dash.start is None:
        return f"all axes move together: {ways}; {words}"
    starts = zip(bench.names, dash.start.tolist(), strict=True)
    back = ", ".join(f"{name} to {1e3 * start:.3g} mm" for name, start in starts)
    return f"all axes move slowly back, {back}; then fast and together: {ways}; {words}"


def slowly(bench: Bench, rig: FreeRig, words: str) -> str:
    ways = bench.ways(rig.way, rig.velocity)
    return f"all axes move to and fro for up to {bench.patience:g} s: {ways}; {words}"
