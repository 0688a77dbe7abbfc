# SPDX-License-Identifier: Apache-2.0
"""The real-time set-up of a process, and what keeps it from holding its processor for ever."""

from __future__ import annotations

import gc
import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest
from messages import mentions, naming

from rths_nodes.loop import realtime
from rths_nodes.loop.interrupts import orderly_stop
from rths_nodes.loop.pacing import DEBT_NS, FollowedTicks, Pacer
from rths_nodes.loop.realtime import IDLE_LATENCY, Starving


def scheduling() -> int:
    return os.sched_getscheduler(0)


def test_everything_is_as_before_afterwards() -> None:
    def state() -> tuple[object, ...]:
        return scheduling(), gc.isenabled(), gc.get_freeze_count(), signal.getsignal(signal.SIGXCPU)

    gc.unfreeze()  # as in every process that has frozen nothing itself; the run of the tests has
    before = state()
    with realtime.real_time(True) as refused:
        assert not gc.isenabled()
        granted = scheduling() == os.SCHED_FIFO
        assert granted or any("SCHED_FIFO was refused" in words for words in refused)
    assert state() == before


def test_processors_are_kept_awake_meanwhile() -> None:
    def held() -> bool:
        return any(os.path.realpath(file) == IDLE_LATENCY for file in Path("/proc/self/fd").iterdir())

    with realtime.real_time(True) as refused:
        if any(IDLE_LATENCY in words for words in refused):
            pytest.skip(f"{IDLE_LATENCY} is refused here")
        assert held()
        assert int.from_bytes(Path(IDLE_LATENCY).read_bytes(), sys.byteorder) == 0  # of all who ask
    assert not held()


def test_it_is_told_where_processors_cannot_be_kept_awake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(realtime, "IDLE_LATENCY", str(tmp_path / "missing" / "cpu_dma_latency"))
    with realtime.real_time(True) as refused:
        assert any(mentions(words, "file", "directory") for words in refused)


def test_nothing_is_touched_when_it_is_not_wanted() -> None:
    with realtime.real_time(False) as refused:
        assert (scheduling(), gc.isenabled(), refused) == (os.SCHED_OTHER, True, [])


def test_memory_is_not_locked_where_allocations_would_fail_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (65536, 65536))
    with ExitStack() as stack:
        assert realtime._lock_memory(stack) == "the limit is 64 KiB, see `ulimit -l`"


def granted() -> bool:
    with realtime.real_time(True) as refused:
        return not any("SCHED_FIFO" in words for words in refused)


def hang() -> None:
    with realtime.real_time(True):
        while True:
            pass


def test_a_loop_that_hangs_is_broken_off() -> None:
    if not granted():
        pytest.skip("real-time scheduling is not granted here")
    with pytest.raises(Starving, match=naming("sleep", "1 s")):
        hang()


def test_a_limit_of_processor_time_is_no_hang() -> None:
    """The same signal, of the operator or of RLIMIT_CPU, asks for an orderly stop."""
    with orderly_stop() as asked, realtime.real_time(True):
        os.kill(os.getpid(), signal.SIGXCPU)
        assert asked()


def test_a_process_that_hangs_beyond_help_is_ended() -> None:
    if not granted():
        pytest.skip("real-time scheduling is not granted here")
    words = """
from rths_nodes.loop.realtime import real_time
with real_time(True):
    sum(iter(int, 1))  # never returns, and never looks at signals
"""
    started = time.monotonic()
    found = subprocess.run([sys.executable, "-c", words], capture_output=True, timeout=30, check=False)
    assert found.returncode == -signal.SIGKILL
    assert time.monotonic() - started < 15.0


@pytest.mark.parametrize(("work_ns", "late_ns"), [(2_000_000, 0), (200_000, 60_000), (240_000, 0)])
def test_a_loop_rests_enough_for_the_kernel_however_much_it_has_to_do(work_ns: int, late_ns: int) -> None:
    """At 4096 Hz, on a machine that wakes up ``late_ns`` late; in any second, and never for long."""
    now, slept = [0], []

    def look() -> int:
        now[0] += 100
        return now[0]

    def sleep(seconds: float) -> None:
        slept.append((now[0], round(seconds * 1e9) + late_ns))
        now[0] += slept[-1][1]

    pacer = Pacer(1.0 / 4096.0, 20_000, SimpleNamespace(monotonic_ns=look, sleep=sleep))
    pacer.start()
    while now[0] < 4_000_000_000:
        pacer()
        now[0] += work_ns
    for second in (1, 2, 3):
        inside = [length for began, length in slept if second <= began * 1e-9 < second + 1]
        assert 0.06 < 1e-9 * sum(inside) < 0.15
    assert max(length for _, length in slept) < 2 * DEBT_NS


def test_a_loop_with_time_to_spare_is_on_time() -> None:
    """It waits actively for the end, because the machine wakes it up late."""
    now = [0]

    def look() -> int:
        now[0] += 100
        return now[0]

    def sleep(seconds: float) -> None:
        now[0] += round(seconds * 1e9) + 60_000

    pacer = Pacer(1.0 / 1024.0, 2000, SimpleNamespace(monotonic_ns=look, sleep=sleep))
    pacer.start()
    for _ in range(1000):
        pacer()
        now[0] += 300_000
    assert pacer.missed == 0
    assert pacer.lateness.seconds.max() < 1e-6


class SetClock:
    """Tells the time that a test sets, ns."""

    now = 0

    def monotonic_ns(self) -> int:
        return self.now


@pytest.mark.parametrize("transport", [0, 1, 4])
def test_followed_ticks_expect_the_next_one_when_the_rig_has_it(transport: int) -> None:
    clock, period = SetClock(), 1_000_000
    ticks = FollowedTicks(1e-3, 1000, transport, clock)  # type: ignore[arg-type]
    ticks.start()
    for k in range(1, 400):
        late = 300_000 if k % 7 == 0 else 0  # on the way
        clock.now = k * 1_000_100 + late  # its clock is slower by 1e-4
        assert ticks() == 0
        assert ticks.due == clock.now + max(transport - 1, 0) * period
        if k > 100:
            assert ticks.slack + late == pytest.approx(period, abs=50_000)
    assert ticks.missed == ticks.slips == 0
    assert len(ticks.lateness) == 399


def test_followed_ticks_begin_anew_where_the_rig_was_silent() -> None:
    clock = SetClock()
    ticks = FollowedTicks(1e-3, 10, 1, clock)  # type: ignore[arg-type]
    ticks.start()
    clock.now = 50_000_000
    ticks()
    assert ticks.slack == 1_000_000
