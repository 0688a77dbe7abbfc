"""The real-time set-up of a process, and what keeps it from holding its processor for ever."""

from __future__ import annotations

import gc
import os
import resource
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from rths_nodes import pacing


def scheduling() -> int:
    return os.sched_getscheduler(0)


def test_everything_is_as_before_afterwards() -> None:
    def state() -> tuple[object, ...]:
        return scheduling(), gc.isenabled(), signal.getsignal(signal.SIGXCPU)

    before = state()
    with pacing.real_time(True) as refused:
        assert not gc.isenabled()
        granted = scheduling() == os.SCHED_FIFO
        assert granted or any("SCHED_FIFO refused" in words for words in refused)
    assert state() == before


def test_nothing_is_touched_when_it_is_not_wanted() -> None:
    with pacing.real_time(False) as refused:
        assert (scheduling(), gc.isenabled(), refused) == (os.SCHED_OTHER, True, [])


def test_memory_is_not_locked_where_allocations_would_fail_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (65536, 65536))
    with pacing.ExitStack() as stack:
        assert pacing._lock_memory(stack) == "limit 64 KiB, see `ulimit -l`"


def granted() -> bool:
    with pacing.real_time(True) as refused:
        return not any("SCHED_FIFO" in words for words in refused)


def hang() -> None:
    with pacing.real_time(True):
        while True:
            pass


def test_a_loop_that_hangs_is_broken_off() -> None:
    if not granted():
        pytest.skip("real-time scheduling is not granted here")
    with pytest.raises(pacing.Starving, match="no rest for 1 s"):
        hang()


def test_a_process_that_hangs_beyond_help_is_ended() -> None:
    if not granted():
        pytest.skip("real-time scheduling is not granted here")
    words = """
from rths_nodes.pacing import real_time
with real_time(True):
    sum(iter(int, 1))  # never returns, and never looks at signals
"""
    started = time.monotonic()
    found = subprocess.run([sys.executable, "-c", words], capture_output=True, timeout=30, check=False)
    assert found.returncode == -signal.SIGKILL
    assert time.monotonic() - started < 15.0


def test_a_loop_that_is_always_late_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    now = [0]
    monkeypatch.setattr(pacing, "time", SimpleNamespace(monotonic_ns=lambda: now[0], sleep=slept.append))
    pacer = pacing.Pacer(1e-3, 2000)
    pacer.start()
    for _ in range(1000):
        now[0] += 2_000_000
        pacer()
    assert slept == [pacing.GIVEN_S] * 7
    assert pacer.missed == 1000
