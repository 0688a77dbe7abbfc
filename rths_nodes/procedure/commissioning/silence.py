# SPDX-License-Identifier: Apache-2.0
"""Trials of silence: closed session, killed test computer, pulled cable; the far end has to stop the rig.

A process that drives the rig is killed by SIGKILL. This process shares its socket and receives the states while
the far end brakes. For a port without such an ear, a new session shows where the rig rests.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rths_nodes.core.errors import ConfigError, PortError
from rths_nodes.core.readback import FarEnd, Listener, ReportedState
from rths_nodes.core.samples import Array, Measurement
from rths_nodes.core.validation import from_data
from rths_nodes.loop.realtime import real_time
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.procedure.commissioned import CABLE, CLOSED, FAILED, KILLED, PASSED, CommissioningRow
from rths_nodes.procedure.commissioning.bench import Bench, Dash
from rths_nodes.procedure.commissioning.braking import Line, rest_samples, stop_of, stop_row, way_of
from rths_nodes.procedure.commissioning.free_rig import FreeRig, Refused, to_and_fro

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

STEADY = 16
"""Samples of constant velocity before a motion is aborted."""
ATTEMPTS = 3
TOLD = 2
"""Samples after the watchdog until a state reports the end of the session."""
LISTENED_S = 1.0
"""Time without a state after which none is expected, s."""
STANDS = 12
"""Samples at one position that count as rest."""
OPENED_S = 120.0
"""Timeout for a process to start, open its session and reach its velocity, s."""

Rows = list[CommissioningRow]


def closed(bench: Bench) -> Rows:
    """Close the session while all axes move: the far end brakes at once."""
    with bench.opened() as rig:
        stated, ear = rig.stated(), rig.port.ear
        dash, start = Dash.of(bench.scenario, stated.bridged), rig.command
        bench.clear(rig, moves(bench, dash, "then the session is closed"))
        for sample in range(1, dash.rising + STEADY + 1):
            rig.tick(start + dash.place(sample))
        last = rig.rows[-1]
        if ear is None:
            rig.close()
            return _by_place(bench, CLOSED, last.active, dash, stated, bench.transport)
        ear.stop()
        heard = _listen(bench, ear, dash, stated)
    return _rows(bench, CLOSED, heard, last.active, last.sample, dash, stated, bench.transport)


def killed(bench: Bench) -> Rows:
    """Kill the driving process while all axes move: the far end misses commands and brakes."""
    for _ in range(ATTEMPTS):
        with bench.opened():
            pass  # at home: the process that is killed asks nothing and moves only forward
        bench.operator.ready(moves(bench, None, "the process that drives it is killed while it moves"), moves=True)
        if found := _killed(bench):
            return found
    raise Refused(f"the process was killed {ATTEMPTS} times, but never in its steady motion")


def _killed(bench: Bench) -> Rows:
    """Return the rows of one process, or none if it was not killed in steady motion."""
    context = multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe()
    process = context.Process(target=drive_until_killed, args=(theirs, bench.scenario.data(), bench.realtime))
    process.start()
    theirs.close()
    try:
        start, stated, ear = bench.opening(bench.rig().port.simulated, lambda: _opened(pipe))
        before = _received(pipe)
    finally:
        process.kill()
        process.join()
    if isinstance(before, str):
        raise Refused(before)
    dash = Dash.of(bench.scenario, stated.bridged)
    if ear is None:
        return _by_place(bench, KILLED, start + dash.place(dash.until), dash, stated, stated.bridged)
    heard = _listen(bench, ear, dash, stated)
    ear.close()
    newest = max((each.heard for each in heard), default=0)
    if not dash.rising < newest - before <= dash.until:
        return []
    place, since = start + dash.place(newest - before), newest + bench.transport
    over = _over(bench, heard, since, stated)
    return [*_rows(bench, KILLED, heard, place, since, dash, stated, stated.bridged), over]


def _over(bench: Bench, heard: list[Heard], since: int, stated: FarEnd) -> CommissioningRow:
    """Check that the session has ended; otherwise the rig would follow the next command of any sender."""
    found = [each for each in heard if each.stopped]
    took = found[0].measured.sample - since if found else None
    good = took is not None and took <= stated.watchdog + TOLD
    words = "is not over" if took is None else f"over after {1e3 * took * bench.dt:.3g} ms: {found[0].stopped}"
    allowed = f"over after {1e3 * (stated.watchdog + TOLD) * bench.dt:.3g} ms"
    return CommissioningRow(KILLED, "session", allowed, words, PASSED if good else FAILED)


def cable(bench: Bench) -> Rows:
    """Let the operator pull and reconnect the cable while all axes move slowly: both ends stop."""
    with bench.opened() as rig:
        stated, ear = rig.stated(), rig.port.ear
        words = "pull the network cable of the rig while they move, for three seconds or more"
        bench.moving_soon(rig, slowly(bench, rig, words))
        told = _until_silent(bench, rig)
        sent = [row.sent for row in rig.rows]
        if told:
            bench.operator.ready("plug the network cable in again")
            heard = [] if ear is None else _until_plugged(bench, ear)
            unheard = ear is None
    if not told:
        words = f"nothing has happened in {bench.patience:g} s"
        return [CommissioningRow(CABLE, "this end", "tells that the rig is silent", words, FAILED)]
    here = CommissioningRow(CABLE, "this end", "tells that the rig is silent", told, PASSED)
    if unheard:
        return [here, *_plugged_by_place(bench, np.array(sent), stated)]
    return [here, *_plugged(bench, heard, sent, stated)]


def _opened(pipe: Connection) -> tuple[Array, FarEnd, Listener | None]:
    """Return start, limits and ear of the other process's session. Raises ConfigError."""
    pipe.send("open")
    found = _received(pipe)
    if isinstance(found, str):
        raise ConfigError(found)
    start, stated, ear = found
    return start, stated, ear


def _received(pipe: Connection) -> Any:
    try:
        if pipe.poll(OPENED_S):
            return pipe.recv()
    except (EOFError, OSError) as error:
        raise Refused("the process that drives the rig has ended by itself") from error
    raise Refused(f"the process that drives the rig has said nothing for {OPENED_S:g} s")


def drive_until_killed(pipe: Connection, data: dict[str, object], realtime: bool) -> None:
    """Open a session and move, in the process to be killed; in real time until it is killed.

    In lockstep time stops without commands: it waits for its end.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    scenario = from_data(Scenario, data)
    bench = Bench(scenario, realtime, None)  # type: ignore[arg-type]  # nobody is asked here
    with real_time(realtime):
        rig = _session(bench, pipe)
        try:
            _drive(bench, rig, pipe)
        except Exception as error:  # reported by the other process
            pipe.send(f"the process that drives the rig: {error}")
        finally:
            rig.close()


def _drive(bench: Bench, rig: FreeRig, pipe: Connection) -> None:
    stated = rig.stated()
    pipe.send((rig.command, stated, rig.port.ear))
    rig.warn()
    dash, start, before = Dash.of(bench.scenario, stated.bridged), rig.command, rig.rows[-1].sample
    for sample in range(1, dash.until + dash.rising + 1):
        rig.tick(start + dash.place(sample))
        if sample == dash.rising + STEADY:
            pipe.send(before)
            while not rig.realtime:
                pipe.recv()
    while not pipe.poll():  # ends with the other process
        rig.tick()


def _session(bench: Bench, pipe: Connection) -> FreeRig:
    while True:
        pipe.recv()
        rig = bench.rig()
        try:
            rig.open()
            return rig
        except ConfigError as error:
            pipe.send(str(error))


@dataclass(frozen=True)
class Heard:
    """A state of the far end, SI: Measurement, newest received command, and reason of a stop."""

    measured: Measurement
    heard: int
    stopped: str


def _si(bench: Bench, states: Sequence[ReportedState]) -> list[Heard]:
    calibration = bench.calibration
    return [Heard(calibration.measured(each.measured), each.newest, each.stopped) for each in states]


def _listen(bench: Bench, ear: Listener, dash: Dash, stated: FarEnd) -> list[Heard]:
    limits = zip(dash.velocity.tolist(), stated.deceleration.tolist(), strict=True)
    longest = max(rest_samples(v, a, bench.dt) for v, a in limits) + stated.bridged + bench.transport
    longest = 3 * longest + 3 * STANDS + stated.watchdog
    found: list[ReportedState] = []
    patience = bench.scenario.port.longest_wait + LISTENED_S
    while states := ear.states(patience):
        found += states
        patience = LISTENED_S
        newest = max(each.newest for each in found)
        if _stands(found) or found[-1].measured.sample > newest + longest:
            break
    ear.stop()
    return _si(bench, found)


def _stands(found: Sequence[ReportedState]) -> bool:
    last = [each.measured.command for each in found[-STANDS:]]
    return len(last) == STANDS and bool(found[-1].stopped) and all(np.array_equal(each, last[0]) for each in last)


def _rows(
    bench: Bench,
    cause: str,
    heard: list[Heard],
    place: Array,
    since: int,
    dash: Dash,
    stated: FarEnd,
    bridged: int,
) -> Rows:
    samples = [each.measured.sample for each in heard]
    active = np.array([each.measured.command for each in heard]).reshape(len(heard), len(bench.names))
    found = []
    for i, name in enumerate(bench.names):
        line = Line(since, float(place[i]), float(dash.velocity[i]))
        a, step = float(stated.deceleration[i]), float(bench.resolution[i])
        stop = stop_of(line, samples, active[:, i], a, bench.dt, step)
        found.append(stop_row(cause, name, line, stop, bridged, a, bench.dt, step))
    return found


def _by_place(bench: Bench, cause: str, place: Array, dash: Dash, stated: FarEnd, bridged: int) -> Rows:
    """Check the position at rest in a new session, for a port without an ear."""
    bench.operator.ready("begin a new session at the rig")
    with bench.opened() as rig:
        rested = rig.rows[0].active
    found = []
    for i, name in enumerate(bench.names):
        v = float(dash.velocity[i])
        most = way_of(v, bridged + bench.transport, float(stated.deceleration[i]), bench.dt)
        far, spare = float(rested[i] - place[i]), float(bench.resolution[i]) + v * bench.dt
        verdict = PASSED if far <= most + spare else FAILED
        found.append(CommissioningRow(cause, name, f"{most * 1e3:.3g} mm", f"{far * 1e3:.3g} mm", verdict))
    return found


def _until_silent(bench: Bench, rig: FreeRig) -> str:
    """Move to and fro until the rig is silent, and return the reason; empty on timeout."""
    try:
        for row in to_and_fro(rig, bench.patience):
            if row.stopped:
                return row.stopped
    except PortError as error:
        return str(error)
    return ""


def _until_plugged(bench: Bench, ear: Listener) -> list[Heard]:
    end = time.monotonic() + bench.patience
    found: list[ReportedState] = []
    while time.monotonic() < end and not _stands(found):
        found += ear.states(LISTENED_S)
    return _si(bench, found)


def _plugged(bench: Bench, heard: list[Heard], sent: list[Array], stated: FarEnd) -> Rows:
    """Check where the far end rests, by its newest received command."""
    if not heard:
        return [CommissioningRow(CABLE, "the rig", "tells its state again", "it says nothing", FAILED)]
    last = heard[-1]
    newest = min(last.heard, len(sent) - 1)
    place = sent[newest]
    slope = (place - sent[max(newest - 1, 0)]) / bench.dt
    still = np.array_equal(last.measured.command, heard[-STANDS:][0].measured.command)
    found = []
    for i, name in enumerate(bench.names):
        v, a = abs(float(slope[i])), float(stated.deceleration[i])
        most = way_of(v, stated.bridged, a, bench.dt) if v else 0.0
        far = float(last.measured.command[i] - place[i])
        spare = 2.0 * v * bench.dt + float(bench.resolution[i]) + 1e-9
        along = far if slope[i] >= 0.0 else -far
        good = still and bool(last.stopped) and -spare <= along <= most + spare
        allowed = f"rests within {(most + spare) * 1e3:.3g} mm"
        measured = f"rests after {along * 1e3:.3g} mm: {last.stopped or 'it has not stopped'}"
        found.append(CommissioningRow(CABLE, name, allowed, measured, PASSED if good else FAILED))
    return found


def _plugged_by_place(bench: Bench, sent: Array, stated: FarEnd) -> Rows:
    """Check, for a port without an ear, that the rig rests within its motion and a stop."""
    bench.operator.ready("begin a new session at the rig")
    with bench.opened() as rig:
        rested, v = rig.rows[0].active, rig.velocity
    found = []
    for i, name in enumerate(bench.names):
        most = way_of(float(v[i]), stated.bridged + bench.transport, float(stated.deceleration[i]), bench.dt)
        far = max(float(sent[:, i].min() - rested[i]), float(rested[i] - sent[:, i].max()), 0.0)
        verdict = PASSED if far <= most + float(bench.resolution[i]) else FAILED
        words = f"rests {1e3 * most:.3g} mm beyond its motion at most"
        found.append(CommissioningRow(CABLE, name, words, f"rests {1e3 * far:.3g} mm beyond it", verdict))
    return found


def moves(bench: Bench, dash: Dash | None, words: str) -> str:
    dash = dash or Dash.of(bench.scenario, 1)
    return f"all axes move together: {bench.ways(dash.way, dash.velocity, 'up to ')}; {words}"


def slowly(bench: Bench, rig: FreeRig, words: str) -> str:
    ways = bench.ways(rig.way, rig.velocity)
    return f"for up to {bench.patience:g} s all axes go to and fro: {ways}; {words}"
