# SPDX-License-Identifier: Apache-2.0
"""Trials of the stops at the far end of the port: closed session, killed process, pulled cable.

The commissioning process shares the socket of the process that it kills, and receives the rig's states while the
far end brakes. If the port has no listener, a new session measures the position at which the rig rests.

An axis moves with constant velocity v when its commands end. After ``since``, the last sample that the far end
received, the axis may continue at v, and then brakes with the deceleration a. It rests after ceil(v / (a dt))
further samples. Samples are counted by the rig.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from rths_nodes.core.child_program import end_with
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.protocols import Listener, ReportedState
from rths_nodes.core.samples import Array
from rths_nodes.core.validation import from_data
from rths_nodes.laboratory.calibration import Calibration, channels_of
from rths_nodes.loop import commissioning as sheet
from rths_nodes.loop.commissioning import CommissioningRow
from rths_nodes.loop.realtime import real_time
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.procedure.commissioning.rig import HIGHEST, STEADY, Bench, Dash, Refused

KILLS = 3
TOLD = 2
"""Largest accepted delay from the watchdog's timeout to the state that reports the end of the session, samples."""
LISTENED_S = 1.0
"""Timeout for the next state, s."""
STANDS = 12
"""Number of consecutive samples at one position that count as rest."""
OPENED_S = 120.0
"""Timeout for a process to start, open its session and reach its velocity, s."""

SPARE = 1
"""Tolerance of a stop, samples. A stop begins and ends between two samples."""
ROUNDED = 0.25
"""Deviation from constant velocity that counts as rounding, as a fraction of the first deviation by braking."""

Rows = list[CommissioningRow]


def judged(
    subject: str, stated: str, measured: str, good: bool, speed: str = "", resolution: str = "", cause: str = ""
) -> CommissioningRow:
    """Return a row of the report, passed if ``good``. An empty ``cause`` means the first cause of the trial."""
    verdict = sheet.PASSED if good else sheet.FAILED
    return CommissioningRow(cause, subject, stated, measured, verdict, speed, resolution)


def detected(bench: Bench, subject: str, stated: str, seen: str = "", speed: str = "") -> CommissioningRow:
    """Return the row for an action of the operator. ``seen`` is the detected effect; without it, the row fails."""
    measured = seen or f"nothing was detected within {bench.patience:g} s"
    return judged(subject, stated, measured, bool(seen), speed or bench.slow)


def resolved(value: float, step: float, unit: str) -> str:
    """Return ``value`` with its ``unit``. A value below the resolution ``step`` becomes "less than" ``step``."""
    return f"less than {step:.3g} {unit}" if abs(value) < step else f"{value:.3g} {unit}"


def rest_words(samples: int, way: float, dt: float, step: float) -> str:
    time = resolved(1e3 * samples * dt, 1e3 * dt, "ms")
    return f"the axis rests after {time} and {resolved(1e3 * way, 1e3 * step, 'mm')}"


def rest_samples(velocity: Array | float, deceleration: Array | float, dt: float) -> int:
    """Return the number of samples in which all axes brake to rest; at least 1."""
    return max(1, math.ceil(np.max(np.abs(velocity) / (deceleration * dt)) - 1e-6))


def way_of(velocity: float, bridged: int, deceleration: float, dt: float) -> float:
    """Return the stopping distance (m): ``bridged`` samples at ``velocity`` (m/s), then braking."""
    n = rest_samples(velocity, deceleration, dt)
    return velocity * (bridged + n) * dt - 0.5 * n * (n + 1) * min(deceleration * dt, velocity / n) * dt


def at_both_speeds(attempt: Callable[[Bench, Dash | None], Rows], bench: Bench) -> Rows:
    rows: Rows = []
    for fast in (False, True):
        if fast and bench.fast is None:
            return [*rows, untried_fast()]
        rows += attempt(bench, bench.fast if fast else None)
        if any(row.verdict == sheet.FAILED for row in rows):
            bench.fast = None
    return rows


def untried_fast() -> CommissioningRow:
    why = "the free stroke and the limits allow no higher speed, or an earlier stop failed or was not tried"
    return CommissioningRow("", HIGHEST, "as above", why, sheet.NOT_TRIED)


def closed(bench: Bench, fast: Dash | None) -> Rows:
    with bench.opened():
        ear, dash = bench.port.ear, fast or Dash.resolving(bench)
        bench.clear(dash.words(bench, "then the session is closed"))
        for sample, command in dash.commands(bench, bench.command):
            if sample > dash.rising + STEADY:
                break
            bench.tick(command)
        last = bench.rows[-1]
        lag = bench.lag(last) / dash.velocity
        if ear is None:
            bench.close()
            ends = np.array((last.sent - dash.place(dash.rising + STEADY), last.active))
            return by_place(bench, ends, dash.velocity, bench.transport, dash.suffix)
        ear.stop()
        states = _listen(bench, ear, dash.velocity, bench.scenario.port.longest_wait)
    if fast is None:
        bench.fast = Dash.fastest(bench, lag)
    return _stop_rows(bench, dash, states, last.measured.sample, last.active, bench.transport)


def killed(bench: Bench, fast: Dash | None) -> Rows:
    for _ in range(KILLS):
        with bench.opened():
            dash = fast or Dash.resolving(bench)  # start at home: the killed process cannot request CLEAR
        bench.operator.ask(dash.words(bench, "the process that drives the rig is killed on the way"), moves=True)
        ear, before, start = bench.opening(partial(_kill, bench, dash))
        bridged = bench.stated.bridged
        if ear is None:
            ends = np.array((start, start + dash.place(dash.until)))
            return by_place(bench, ends, dash.velocity, bridged, dash.suffix)
        states = _listen(bench, ear, dash.velocity, bench.scenario.port.longest_wait)
        ear.close()
        newest = max((state.newest for state in states), default=0)
        if dash.rising < newest - before <= dash.until:
            place, since = start + dash.place(newest - before), newest + bench.transport
            rows = _stop_rows(bench, dash, states, since, place, bridged)
            return [*rows, _session_over(bench, states, since, dash)]
    raise Refused(f"the process was killed {KILLS} times, but never while the axes moved at constant velocity")


def _kill(bench: Bench, dash: Dash) -> tuple[Listener | None, int, Array]:
    """Start a process that moves the axes along ``dash``, and kill it at constant velocity.

    Return the listener of the process, or None if the port has no listener. Also return number and commands
    ``(n_axes,)`` m of the last sample before the motion. Raises ConfigError if the process can open no session.
    """
    spawn = multiprocessing.get_context("spawn")
    pipe, theirs = spawn.Pipe()
    process = spawn.Process(target=drive_until_killed, args=(theirs, bench.scenario.data(), bench.realtime, dash))
    process.start()
    try:
        theirs.close()
        pipe.send(os.getpid())
        ear = _received(pipe)
        before, start = _received(pipe)
    finally:
        process.kill()
        process.join()
    return ear, before, start


def _received(pipe: Connection) -> Any:
    try:
        if not pipe.poll(OPENED_S):
            raise Refused(f"the process that drives the rig has sent nothing for {OPENED_S:g} s")
        message = pipe.recv()
    except (EOFError, OSError) as error:
        raise Refused("the process that drives the rig has ended by itself") from error
    if isinstance(message, Exception):
        raise message
    return message


def drive_until_killed(pipe: Connection, data: dict[str, object], realtime: bool, dash: Dash) -> None:
    """Open a session and move the axes along ``dash``. Runs in the process that will be killed.

    In lockstep, the process sends no commands while it waits to be killed, so that rig time stops.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    bench = Bench(from_data(Scenario, data), realtime, None)  # type: ignore[arg-type]  # no operator is asked
    with real_time(realtime), suppress(OSError):  # the pipe breaks when the other process ends
        try:
            end_with(pipe.recv())  # do not open a session before the other process can kill this one
            bench.open()
            pipe.send(bench.port.ear)
            bench.warn()
            for sample, command in dash.commands(bench, bench.command):
                row = bench.tick(command)
                if sample == dash.rising + STEADY:
                    pipe.send((row.measured.sample - sample, command - dash.place(sample)))
                    while not realtime:
                        pipe.recv()
            while not pipe.poll():  # hold until the other process kills this one
                bench.tick()
        except Exception as error:  # the other process raises it; only a ConfigError permits another attempt
            failed = Refused(f"the process that drives the rig has failed: {error}")
            pipe.send(failed if bench.rows or not isinstance(error, ConfigError) else ConfigError(str(error)))
        finally:
            bench.close()


def _session_over(bench: Bench, states: list[ReportedState], since: int, dash: Dash) -> CommissioningRow:
    stopped = next((state for state in states if state.stopped), None)
    took, most, ms = 0, bench.stated.watchdog + TOLD, 1e3 * bench.dt
    measured = "the session does not end"
    if stopped is not None:
        took = stopped.measured.sample - since
        measured = f"the session ends after {ms * took:.3g} ms: {stopped.stopped}"
    stated, good = f"the session ends after {ms * most:.3g} ms at most", stopped is not None and took <= most
    return judged(f"session of the receiver{dash.suffix}", stated, measured, good, resolution=f"{ms:.3g} ms")


def _listen(bench: Bench, ear: Listener, velocity: Array, patience: float) -> list[ReportedState]:
    """Return the states until axes that moved at ``velocity`` m/s rest. ``patience`` s extends the first wait."""
    braking = rest_samples(velocity, bench.stated.deceleration, bench.dt)
    longest = 3 * (braking + bench.stated.bridged + bench.transport + STANDS) + bench.stated.watchdog
    states: list[ReportedState] = []
    while more := ear.states(LISTENED_S if states else patience + LISTENED_S):
        states += more
        if _stands(states) or len(states) > longest:
            break
    ear.stop()
    auxiliary = bench.scenario.rig_file.auxiliary if bench.scenario.rig_file is not None else {}
    calibration = Calibration(bench.scenario.axes, channels_of(bench.port.auxiliary_names, auxiliary))
    return [replace(state, measured=calibration.measured(state.measured)) for state in states]


def _stands(states: Sequence[ReportedState]) -> bool:
    last = [state.measured.command for state in states[-STANDS:]]
    return len(last) == STANDS and bool(states[-1].stopped) and all(np.array_equal(one, last[0]) for one in last)


def _stop_rows(
    bench: Bench, dash: Dash, states: list[ReportedState], since: int, place: Array, bridged: int
) -> Rows:
    """Return a row on the stop of each axis. At sample ``since``, the axes were at ``place`` ``(n_axes,)`` m."""
    numbers, shape = np.array([state.measured.sample for state in states]) - since, (-1, len(bench.names))
    ways = np.array([state.measured.command for state in states]).reshape(shape) - place
    pistons = np.array([state.measured.displacement for state in states]).reshape(shape)
    rows = []
    for i, name in enumerate(bench.names):
        v = float(dash.velocity[i])
        stated, measured, good = _judge_stop(bench, i, v, numbers, ways[:, i], bridged)
        if good:
            first = max(0, int((numbers <= 0).sum()) - 1)
            measured += f"; the axis moves {1e3 * abs(pistons[-1, i] - pistons[first, i]):.3g} mm"
        speed, finest = bench.speed(i, v), f"{1e3 * bench.dt:.3g} ms, {1e3 * bench.finest[i]:.3g} mm"
        rows.append(judged(name + dash.suffix, stated, measured, good, speed, finest))
    return rows


def _judge_stop(
    bench: Bench, index: int, v: float, numbers: Array, ways: Array, bridged: int
) -> tuple[str, str, bool]:
    """Return the stated and the measured stop of an axis as texts, and whether they agree.

    ``ways`` ``(n,)`` m is the travel of the active command at the samples ``numbers`` ``(n,)``. At sample 0, the
    axis moved with velocity ``v`` (m/s). The far end states that it brakes after ``bridged`` samples.
    """
    dt, step, a = bench.dt, float(bench.resolution[index]), float(bench.stated.deceleration[index])
    change = a * dt**2
    n, seen = rest_samples(v, a, dt), ROUNDED * change + step
    unseen = int(0.5 * (math.sqrt(1.0 + 8.0 * seen / change) - 1.0))
    due, end, most = bridged + 1, bridged + n, way_of(v, bridged, a, dt)
    stated = _stop_text(due, end, most, dt, step)
    numbers, ways = numbers[numbers > 0], ways[numbers > 0]
    way = float(ways[-1]) if len(ways) else 0.0
    braking = np.flatnonzero(v * numbers * dt - ways > seen)
    if not len(braking):
        return stated, f"the axis does not brake within {way * 1e3:.3g} mm", False
    moving = np.flatnonzero(np.abs(ways - way) > 1e-3 * seen + step)
    first, rest = int(numbers[braking[0]]), int(numbers[moving[-1]]) + 1 if len(moving) else 1
    # the last state may be the first state at rest
    if rest >= numbers[-1] and not abs(way - ways[-2:][0]) <= change + step:
        return stated, f"the axis does not come to rest within {way * 1e3:.3g} mm", False
    took, harder = rest - first + 1 + unseen, n - 1 - max(1, n // 5)
    wrong = first > due + unseen + SPARE or rest > end + SPARE
    wrong |= not way <= most + (v * dt + step) * (1 + SPARE) or took < harder
    measured = _stop_text(first, rest, way, dt, step)
    if took < harder:
        measured += f"; the axis brakes in {took} samples instead of the stated {n}"
    return stated, measured, not wrong


def _stop_text(first: int, rest: int, way: float, dt: float, step: float) -> str:
    return f"the axis brakes after {first * dt * 1e3:.3g} ms; {rest_words(rest, way, dt, max(step, 1e-6))}"


def cable(bench: Bench) -> Rows:
    words = "pull the network cable of the rig while they move, for three seconds or more"
    with bench.acted(words, lambda row: row.stopped, loses_rig=True) as reason:
        rows = [detected(bench, "test computer", "the test computer reports that the rig is silent", reason)]
        if not reason:
            return rows
        ear, sent = bench.port.ear, np.array([row.sent for row in bench.rows])
        bench.operator.ask("plug the network cable in again")
        states = [] if ear is None else _listen(bench, ear, bench.velocity, bench.patience)
    if ear is None:
        return rows + by_place(bench, sent, bench.velocity, bench.stated.bridged)
    if not states:
        return [*rows, judged("the rig", "the rig reports its state again", "no state was received", False)]
    last = states[-1]
    newest = min(last.newest, len(sent) - 1)
    velocity = (sent[newest] - sent[max(newest - 1, 0)]) / bench.dt
    far = (last.measured.command - sent[newest]) * np.where(velocity >= 0.0, 1.0, -1.0)
    spare = 2.0 * np.abs(velocity) * bench.dt + bench.resolution + 1e-9
    fine, pattern = np.array((spare, bench.finest)), f"after {{}}: {last.stopped or 'the rig has not stopped'}"
    return rows + _rest_rows(bench, far, velocity, bench.stated.bridged, fine, _stands(states), pattern)


def by_place(bench: Bench, sent: Array, velocity: Array, bridged: int, suffix: str = "") -> Rows:
    """Check, without a listener, that the rig rests at most a stopping distance beyond its motion ``sent``.

    ``sent`` ``(n, n_axes)`` m holds commands at up to ``velocity`` m/s, including both ends of the motion.
    """
    bench.operator.ask("begin a new session at the rig")
    with bench.opened():
        rested = bench.rows[0].active
    far = np.maximum(np.maximum(sent.min(axis=0) - rested, rested - sent.max(axis=0)), 0.0)
    fine, pattern = np.tile(bench.resolution + velocity * bench.dt, (2, 1)), "{} beyond the end of its motion"
    rows = _rest_rows(bench, far, velocity, bridged + bench.transport, fine, True, pattern)
    times = "; times are not measured"
    return [replace(row, what=row.what + suffix, resolution=row.resolution + times) for row in rows]


def _rest_rows(
    bench: Bench, far: Array, velocity: Array, bridged: int, fine: Array, still: bool, pattern: str
) -> Rows:
    """Return a row for each axis, which rests ``far`` ``(n_axes,)`` m beyond its last command.

    ``fine`` ``(2, n_axes)`` m holds tolerance and resolution. In ``pattern``, the distance replaces ``{}``.
    """
    rows = []
    for i, name in enumerate(bench.names):
        v, way, (spare, finest) = abs(float(velocity[i])), float(far[i]), fine[:, i].tolist()
        most = spare + (way_of(v, bridged, float(bench.stated.deceleration[i]), bench.dt) if v else 0.0)
        stated, distance = (resolved(1e3 * length, 1e3 * finest, "mm") for length in (most, way))
        measured = f"the axis rests {pattern.replace('{}', distance)}"
        good = still and -spare <= way <= most
        texts = bench.speed(i, v), f"{1e3 * finest:.3g} mm"
        rows.append(judged(name, f"the axis rests within {stated}", measured, good, *texts))
    return rows
