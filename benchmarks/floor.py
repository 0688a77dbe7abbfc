# SPDX-License-Identifier: Apache-2.0
"""Floors: the best times of the machine, measured in the same run as the figures of a benchmark.

``wake_up`` is a paced loop that does nothing. In the ping-pong, two processes wake each other over a socket, as
nodes on one machine do.
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

ECHO = "import os\nwhile word := os.read({end}, 1000): os.write({end}, word)"
"""The other process of the ping-pong: it answers until the socket is closed."""
WORD = bytes(300)
"""As long as a Measurement of one axis."""
STEPS_TO_TRY = 2000
LONGEST_S, LEAST = 3.0, 100
"""A ping-pong ends after this time, s, with what it has; with fewer round trips it tells nothing."""


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


def computing(rate: float, seconds: float, wanted: float) -> dict[str, float]:
    """A computation of about ``wanted`` s in each tick of the bare loop, and nothing else: ``statistics`` in s.

    What its tail has beyond its median, the machine does by itself: it stretches computing at times.
    """
    pacer = Pacer(1.0 / rate, max(1, round(rate * seconds)))
    taken = []
    with real_time(True):
        count = max(
            1, round(wanted * STEPS_TO_TRY / float(np.median([oscillate(STEPS_TO_TRY) for _ in range(100)])))
        )
        pacer.start()
        for _ in range(max(1, round(rate * seconds))):
            pacer()
            taken.append(oscillate(count))
    return statistics(np.array(taken))
