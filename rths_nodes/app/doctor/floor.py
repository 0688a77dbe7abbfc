# SPDX-License-Identifier: Apache-2.0
"""Floors, the best that the machine can do: every figure about real time is set beside them, in the same run.

The paced loop waits as the nodes do (same pacing, same scheduling) and does nothing else: what it misses, no
software of ours can help. The ping-pong wakes a process and is woken by it over a socket, as nodes on one machine
do: what a hop between two of them costs.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress

import numpy as np

from rths_nodes.app.doctor.background_load import processor_times
from rths_nodes.core.data import Data
from rths_nodes.core.durations import histogram, statistics
from rths_nodes.core.samples import Array
from rths_nodes.loop.pacing import Pacer
from rths_nodes.loop.realtime import PRIORITY, real_time

__all__ = ["PRIORITY", "computing", "paced", "ping_pong", "python_step", "try_ping_pong"]

ECHO = "import os\nwhile word := os.read({end}, 1000): os.write({end}, word)"
"""The other process of the ping-pong: it answers until the socket is closed."""
WORD = bytes(300)
"""As long as a Measurement of one axis."""
STEPS_TO_TRY = 2000
LONGEST_S, LEAST = 3.0, 100
"""A ping-pong ends after this time, s, with what it has; with fewer round trips it tells nothing."""


def paced(rate: float, seconds: float) -> tuple[Data, Array]:
    """A bare paced loop at ``rate`` Hz under the scheduling of the nodes: its figures, and the lateness, s."""
    ticks = max(1, round(rate * seconds))
    pacer = Pacer(1.0 / rate, ticks)
    before = _times()
    with real_time(True) as refused:
        pacer.start()
        while len(pacer.lateness) + pacer.missed < ticks:  # missed ticks do not make it longer
            pacer()
    lateness = pacer.lateness.seconds
    figures = {
        "rate_hz": rate,
        "ticks": ticks,
        "missed": pacer.missed,
        "missed_share": pacer.missed / (len(lateness) + pacer.missed),
        "lateness": statistics(lateness),
        "lateness_histogram": histogram(lateness),
        "stolen_share": _stolen_since(before),
        "refused": list(refused),
    }
    return figures, lateness


def _times() -> tuple[int, int] | None:
    with suppress(OSError, ValueError, IndexError):
        return processor_times()
    return None


def _stolen_since(before: tuple[int, int] | None) -> float | None:
    """Share of the processors' time that went to others since ``before``; None where that cannot be read."""
    after = _times()
    if before is None or after is None or after[1] <= before[1]:
        return None
    return (after[0] - before[0]) / (after[1] - before[1])


def ping_pong(count: int = 5000, in_real_time: bool = True) -> dict[str, float]:
    """Round trips between two processes over a unix socket: ``statistics`` in s. Raises OSError.

    In real time both run as the nodes of the host ``processes`` do: on the last processor, under SCHED_FIFO where
    granted; otherwise as in lockstep: wherever they are put.
    """
    taken: list[int] = []
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    words = [sys.executable, "-I", "-S", "-c", ECHO.format(end=theirs.fileno())]
    with ours, theirs, subprocess.Popen(words, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL) as other:
        theirs.close()
        try:
            with suppress(ConnectionError), _on_one_processor(other.pid) if in_real_time else nullcontext():
                end = time.monotonic() + LONGEST_S
                while len(taken) <= count and (left := end - time.monotonic()) > 0.0:
                    started = time.perf_counter_ns()
                    ours.send(WORD)
                    if not select.select([ours], [], [], left)[0] or not ours.recv(len(WORD)):
                        break
                    taken.append(time.perf_counter_ns() - started)
        finally:
            other.kill()
    if len(taken) <= LEAST:
        raise OSError(f"the other process answered {len(taken)} times in {LONGEST_S:g} s: the processor is taken")
    return statistics(np.array(taken[1:]) * 1e-9)  # the first one waited for the other's start


def try_ping_pong() -> dict[str, float] | str:
    """As :func:`ping_pong`, or in words why there is none."""
    try:
        return ping_pong()
    except OSError as error:
        return error.strerror or str(error)


@contextmanager
def _on_one_processor(other: int) -> Iterator[None]:
    """This process and ``other`` on the last processor that both may use, under real-time scheduling."""
    allowed = os.sched_getaffinity(0)
    with real_time(True):
        with suppress(OSError):
            os.sched_setscheduler(other, os.SCHED_FIFO, os.sched_param(PRIORITY))
        for pid in (0, other):
            os.sched_setaffinity(pid, {max(allowed)})
        try:
            yield
        finally:
            os.sched_setaffinity(0, allowed)


def python_step(count: int = 40_000, rounds: int = 5) -> float:
    """Time of one step of a bare oscillator in plain Python, s: how fast the processor is at our kind of work."""
    return min(_oscillate(count) for _ in range(rounds)) / count  # the fastest one: the others were disturbed


def computing(rate: float, seconds: float, wanted: float) -> dict[str, float]:
    """A computation of about ``wanted`` s in each tick of the bare loop, and nothing else: ``statistics`` in s.

    What its tail has beyond its median, the machine does by itself: it stretches computing at times.
    """
    pacer = Pacer(1.0 / rate, max(1, round(rate * seconds)))
    taken = []
    with real_time(True):
        count = max(1, round(wanted * STEPS_TO_TRY / float(np.median([_oscillate() for _ in range(100)]))))
        pacer.start()
        for _ in range(max(1, round(rate * seconds))):
            pacer()
            taken.append(_oscillate(count))
    return statistics(np.array(taken))


def _oscillate(count: int = STEPS_TO_TRY) -> float:
    """Time of ``count`` steps of a bare oscillator, s."""
    x, v, started = 1.0, 0.0, time.perf_counter()
    for _ in range(count):
        v -= 0.01 * x
        x += 0.01 * v
    return time.perf_counter() - started
