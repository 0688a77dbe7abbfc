"""Pacing on absolute times, and the real-time set-up of a process."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rths_nodes.timing import Durations

BUSY_WAIT_NS = 150_000
"""The end of a sleep is waited for actively: the scheduler wakes a sleeper up to this late."""

PRIORITY = 60
"""SCHED_FIFO priority of a process in the loop: above ordinary work, below the kernel's own threads."""


class Pacer:
    """Ticks at absolute times of the monotonic clock; a missed tick slips the schedule by whole periods.

    ``lateness`` keeps how late each tick began; ``ticks`` is how many are expected.
    """

    def __init__(self, period: float, ticks: int) -> None:
        self._period = round(period * 1e9)
        self.due = 0
        self.missed = 0
        self.lateness = Durations(ticks)

    def start(self) -> None:
        """The first tick is one period from now."""
        self.due = time.monotonic_ns() + self._period

    @property
    def slack(self) -> int:
        """Time to the next tick, ns; negative when it is over."""
        return self.due - time.monotonic_ns()

    def __call__(self) -> int:
        """Wait for the tick; the number of periods by which it was missed."""
        ahead = self.due - time.monotonic_ns() - BUSY_WAIT_NS
        if ahead > 0:
            time.sleep(ahead * 1e-9)
        now = time.monotonic_ns()
        while now < self.due:
            now = time.monotonic_ns()
        late = now - self.due
        self.lateness.add(late)
        slipped = late // self._period
        self.missed += slipped
        self.due += (1 + slipped) * self._period
        return slipped


@contextmanager
def real_time(wanted: bool) -> Iterator[list[str]]:
    """Real-time scheduling of this process while inside; yields what was refused, in words.

    Every step is optional: the loop works without it, with a longer tail. All threads are moved, because
    those of the middleware do not inherit. Not for lockstep: full speed under SCHED_FIFO meets throttling.
    """
    refused: list[str] = []
    if not wanted:
        yield refused
        return
    gc.collect()
    gc.freeze()
    gc.disable()
    problem = _for_all_threads(
        lambda thread: os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(PRIORITY))
    )
    if problem:
        refused.append(f"SCHED_FIFO refused ({problem}): expect a longer tail; see `ulimit -r`")
    try:
        yield refused
    finally:
        gc.enable()
        _for_all_threads(lambda thread: os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0)))


def share_processors(in_loop: bool) -> None:
    """Put the processes of the loop on one processor and all others on the rest.

    The loop is a chain: only one of its nodes has something to do at a time, and waking a process on the same
    processor takes 6 us instead of 26-57.
    """
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) > 1:
        mine = allowed[-1:] if in_loop else allowed[:-1]
        _for_all_threads(lambda thread: os.sched_setaffinity(thread, mine))


def _for_all_threads(action: Callable[[int], None]) -> str:
    """Do something to every thread of this process; the first refusal in words."""
    refusal = ""
    for name in os.listdir("/proc/self/task"):
        try:
            action(int(name))
        except ProcessLookupError:
            continue  # a thread that has ended meanwhile
        except OSError as error:
            refusal = refusal or error.strerror or str(error)
    return refusal
