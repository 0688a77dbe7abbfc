# SPDX-License-Identifier: Apache-2.0
"""Floors: the shortest times of the machine, measured in the same run as the figures of a benchmark.

``wake_up`` is an empty paced loop. In the ping-pong, two processes wake each other over a socket, like nodes
on one machine.
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

from rths_nodes.app.commands.doctor import oscillate, python_step, wake_up
from rths_nodes.core.durations import statistics
from rths_nodes.loop.pacing import Pacer
from rths_nodes.loop.realtime import PRIORITY, real_time

__all__ = ["computing", "ping_pong", "python_step", "wake_up"]

ECHO = "import os\nwhile message := os.read({end}, 1000): os.write({end}, message)"
"""Program of the answering process, which ends when the socket is closed."""
MESSAGE = bytes(300)
"""Message of the length of a Measurement of one axis."""
CALIBRATION_STEPS = 2000
LONGEST_S, LEAST = 3.0, 100
"""Longest duration of a ping-pong, s, and smallest number of round trips for a result."""


def ping_pong(count: int = 5000, in_real_time: bool = True) -> dict[str, float]:
    """Return the ``statistics`` (s) of round trips between two processes over a unix socket. Raises OSError.

    ``in_real_time`` places both processes like the nodes of the host ``processes``: on the last processor, under
    SCHED_FIFO if permitted. Otherwise the scheduler places them, as in lockstep.
    """
    times: list[int] = []
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    echo = [sys.executable, "-I", "-S", "-c", ECHO.format(end=theirs.fileno())]
    with ours, theirs, subprocess.Popen(echo, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL) as other:
        theirs.close()
        try:
            with suppress(ConnectionError), _on_one_processor(other.pid) if in_real_time else nullcontext():
                end = time.monotonic() + LONGEST_S
                while len(times) <= count and (left := end - time.monotonic()) > 0.0:
                    start = time.perf_counter_ns()
                    ours.send(MESSAGE)
                    if not select.select([ours], [], [], left)[0] or not ours.recv(len(MESSAGE)):
                        break
                    times.append(time.perf_counter_ns() - start)
        finally:
            other.kill()
    if len(times) <= LEAST:
        raise OSError(f"the other process answered {len(times)} times in {LONGEST_S:g} s: the processor is busy")
    return statistics(np.array(times[1:]) * 1e-9)  # the first round trip includes the start of the process


@contextmanager
def _on_one_processor(other: int) -> Iterator[None]:
    """Run this process and ``other`` on the last allowed processor, under real-time scheduling."""
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


def computing(rate: float, seconds: float, wanted: float) -> dict[str, float]:
    """Return the ``statistics`` (s) of a computation of about ``wanted`` s in each tick of the bare loop.

    The machine alone causes the difference between tail and median: it sometimes interrupts the computation.
    """
    ticks, times = max(1, round(rate * seconds)), []
    pacer = Pacer(1.0 / rate, ticks)
    with real_time(True):
        median = float(np.median([oscillate(CALIBRATION_STEPS) for _ in range(100)]))
        steps = max(1, round(wanted * CALIBRATION_STEPS / median))
        pacer.start()
        for _ in range(ticks):
            pacer()
            times.append(oscillate(steps))
    return statistics(np.array(times))
