# SPDX-License-Identifier: Apache-2.0
"""Real-time settings of a process: scheduling, locked memory, processor wake-up latency, and CPU time limit."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

PRIORITY = 60
"""SCHED_FIFO priority of a process in the loop: above ordinary work and below kernel threads."""
ABOVE = PRIORITY + 10
"""SCHED_FIFO priority of a watcher on the same computer."""
BELOW = PRIORITY - 10
"""SCHED_FIFO priority of a less urgent thread in a process of the loop."""
SWITCH_S = 1e-4
"""Longest time for which another Python thread can delay the loop, s."""

STARVING_S, KILLED_S = 1, 3
"""CPU time without sleep under SCHED_FIFO, s. After ``STARVING_S`` the loop aborts. After ``KILLED_S`` the kernel
kills the process."""
RESTED_S = 0.001

LOCK_CURRENT, LOCK_FUTURE, LOCK_ON_FAULT = 1, 2, 4

IDLE_LATENCY = "/dev/cpu_dma_latency"
"""File that limits the wake-up latency of processors to the written value (int32, us) while it is open."""


class Starving(RuntimeError):
    """Raised if the process has used the processor for too long without sleeping."""


def not_locked(problem: str) -> str:
    return f"memory locking was refused ({problem}), so page faults can delay a tick"


def not_scheduled(problem: str) -> str:
    return f"SCHED_FIFO was refused ({problem}), so latencies can be longer. See `ulimit -r`"


@contextmanager
def real_time(wanted: bool, priority: int = PRIORITY) -> Iterator[list[str]]:
    """Apply real-time settings in the ``with`` block if ``wanted``. Yield the messages about refused settings.

    All threads are changed, because threads of the middleware do not inherit the scheduling. Real-time scheduling
    must not be used in lockstep, because under SCHED_FIFO the kernel throttles a process that never sleeps. A
    process that hangs would block its processor. It therefore raises ``Starving``, and the kernel kills it if it
    continues.
    """
    refused: list[str] = []
    if not wanted:
        yield refused
        return
    gc.collect()
    gc.freeze()
    gc.disable()
    with ExitStack() as stack:
        stack.callback(gc.enable)
        stack.callback(gc.unfreeze)  # otherwise frozen objects of the middleware would never be freed
        _guard(stack)  # before other settings: a middleware thread can hang once its scheduling changes
        if problem := _lock_memory(stack):
            refused.append(not_locked(problem))
        if problem := _keep_awake(stack):
            refused.append(f"{IDLE_LATENCY} cannot be used ({problem}), so waking an idle processor takes longer")
        problem = _for_all_threads(
            lambda thread: os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(priority))
        )
        stack.callback(
            _for_all_threads,
            lambda thread: os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0)),
        )
        # only a sleep resets the kernel's count of CPU time without sleep; a scheduling change does not
        stack.callback(time.sleep, RESTED_S)
        if problem:
            refused.append(not_scheduled(problem))
        yield refused


def step_back() -> None:
    if os.sched_getscheduler(0) == os.SCHED_FIFO and os.sched_getparam(0).sched_priority > BELOW:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(BELOW))


@contextmanager
def quick_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, SWITCH_S))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _lock_memory(stack: ExitStack) -> str:
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if limit != resource.RLIM_INFINITY and os.geteuid() != 0:
        return f"the limit is {limit // 1024} KiB, see `ulimit -l`"
    library = ctypes.CDLL(None, use_errno=True)
    if library.mlockall(LOCK_CURRENT | LOCK_FUTURE | LOCK_ON_FAULT):
        return os.strerror(ctypes.get_errno())
    stack.callback(library.munlockall)
    return ""


def _keep_awake(stack: ExitStack) -> str:
    """Keep idle processors awake, because their wake-up delays messages. Return the reason for a refusal."""
    try:
        file = os.open(IDLE_LATENCY, os.O_WRONLY)
        stack.callback(os.close, file)
        os.write(file, bytes(4))
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _guard(stack: ExitStack) -> None:
    """Limit the CPU time without sleep under real-time scheduling.

    A SIGXCPU with another cause (RLIMIT_CPU, the operator) is passed to the previous handler.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_RTTIME)
    killed = KILLED_S * 1_000_000 if hard == resource.RLIM_INFINITY else min(hard, KILLED_S * 1_000_000)
    allowed = min(killed, STARVING_S * 1_000_000)
    before: object = signal.SIG_DFL

    def starve(number: int, frame: object) -> None:
        # the kernel raises the limit by a second each time it is exceeded
        if resource.getrlimit(resource.RLIMIT_RTTIME)[0] == allowed:
            if callable(before):
                before(number, frame)
            return
        raise Starving(
            f"no sleep for {STARVING_S} s under real-time scheduling: the loop hangs or is far too slow"
        )

    with suppress(ValueError, OSError):  # only the main thread handles signals; other threads have no guard
        before = signal.signal(signal.SIGXCPU, starve)
        stack.callback(signal.signal, signal.SIGXCPU, before)
        resource.setrlimit(resource.RLIMIT_RTTIME, (allowed, killed))
        # the hard limit stays: raising it needs privileges, and it has no effect under normal scheduling
        stack.callback(resource.setrlimit, resource.RLIMIT_RTTIME, (killed, killed))


@contextmanager
def share_processors(at_every_sample: bool) -> Iterator[None]:
    """Restrict this process to the last processor, or to all others, during the ``with`` block.

    Processes that work for the loop ``at_every_sample`` share the last processor, because they take turns. Waking
    a process takes 6 us on the same processor, and 26 to 57 us on another.
    """
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) == 1:
        yield
        return
    mine = allowed[-1:] if at_every_sample else allowed[:-1]
    _for_all_threads(lambda thread: os.sched_setaffinity(thread, mine))
    try:
        yield
    finally:
        _for_all_threads(lambda thread: os.sched_setaffinity(thread, allowed))


def _for_all_threads(action: Callable[[int], None]) -> str:
    refusal = ""
    for name in os.listdir("/proc/self/task"):
        try:
            action(int(name))
        except ProcessLookupError:
            continue  # the thread has ended
        except OSError as error:
            refusal = refusal or error.strerror or str(error)
    return refusal
