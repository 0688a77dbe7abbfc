# SPDX-License-Identifier: Apache-2.0
"""Tests of real time: set-up of a process, abort of a hung loop, pacing, durations and their statistics."""

from __future__ import annotations

import gc
import math
import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from messages import mentions, naming

from rths_nodes.core.data import flatten
from rths_nodes.core.durations import Durations, histogram, periods, statistics, trimmed
from rths_nodes.loop import realtime
from rths_nodes.loop.interrupts import orderly_stop
from rths_nodes.loop.pacing import DEBT_NS, FollowedTicks, Pacer
from rths_nodes.loop.realtime import IDLE_LATENCY, Starving
from rths_nodes.loop.timing import gathered, of_hop, timing


def scheduling() -> int:
    return os.sched_getscheduler(0)


def test_real_time_restores_process() -> None:
    def state() -> tuple[object, ...]:
        return scheduling(), gc.isenabled(), gc.get_freeze_count(), signal.getsignal(signal.SIGXCPU)

    gc.unfreeze()  # pytest has frozen objects; other processes have not
    before = state()
    with realtime.real_time(True) as refused:
        assert not gc.isenabled()
        granted = scheduling() == os.SCHED_FIFO
        assert granted or any("SCHED_FIFO was refused" in reason for reason in refused)
    assert state() == before


def test_idle_latency_is_held_during_real_time() -> None:
    def held() -> bool:
        return any(os.path.realpath(file) == IDLE_LATENCY for file in Path("/proc/self/fd").iterdir())

    with realtime.real_time(True) as refused:
        if any(IDLE_LATENCY in reason for reason in refused):
            pytest.skip(f"{IDLE_LATENCY} is refused here")
        assert held()
        assert int.from_bytes(Path(IDLE_LATENCY).read_bytes(), sys.byteorder) == 0  # the minimum of all requests
    assert not held()


def test_missing_idle_latency_file_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(realtime, "IDLE_LATENCY", str(tmp_path / "missing" / "cpu_dma_latency"))
    with realtime.real_time(True) as refused:
        assert mentions(refused, "file", "directory")


def test_real_time_off_changes_nothing() -> None:
    with realtime.real_time(False) as refused:
        assert (scheduling(), gc.isenabled(), refused) == (os.SCHED_OTHER, True, [])


def test_memory_is_not_locked_with_small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """With locked memory, later allocations beyond the limit would fail."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (65536, 65536))
    with ExitStack() as stack:
        assert realtime._lock_memory(stack) == "the limit is 64 KiB, see `ulimit -l`"


@pytest.fixture
def granted() -> None:
    """Real-time scheduling; skips where it is refused."""
    with realtime.real_time(True) as refused:
        if any("SCHED_FIFO" in reason for reason in refused):
            pytest.skip("real-time scheduling is not granted here")


def hang() -> None:
    with realtime.real_time(True):
        while True:
            pass


@pytest.mark.usefixtures("granted")
def test_hung_loop_is_aborted() -> None:
    with pytest.raises(Starving, match=naming("sleep", "1 s")):
        hang()


def test_sigxcpu_from_outside_requests_orderly_stop() -> None:
    """The operator or RLIMIT_CPU may send the same signal."""
    with orderly_stop() as requested, realtime.real_time(True):
        os.kill(os.getpid(), signal.SIGXCPU)
        assert requested()


@pytest.mark.usefixtures("granted")
def test_process_that_ignores_signals_is_killed() -> None:
    program = """
from rths_nodes.loop.realtime import real_time
with real_time(True):
    sum(iter(int, 1))  # never returns, never handles signals
"""
    started = time.monotonic()
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=30, check=False)
    assert result.returncode == -signal.SIGKILL
    assert time.monotonic() - started < 15.0


class SetClock:
    """Simulated time, ns: each reading takes 100 ns, each sleep ends ``late`` ns late."""

    def __init__(self, late: int = 0, reading: int = 100) -> None:
        self.now, self.slept = 0, []
        self._late, self._reading = late, reading

    def monotonic_ns(self) -> int:
        self.now += self._reading
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append((self.now, round(seconds * 1e9) + self._late))
        self.now += self.slept[-1][1]


@pytest.mark.parametrize(("work_ns", "late_ns"), [(2_000_000, 0), (200_000, 60_000), (240_000, 0)])
def test_pacer_sleeps_enough_at_any_load(work_ns: int, late_ns: int) -> None:
    """Short sleeps in any second, enough for the kernel, at 4096 Hz on a machine that wakes ``late_ns`` late."""
    clock = SetClock(late_ns)
    pacer = Pacer(1.0 / 4096.0, 20_000, clock)
    pacer.start()
    while clock.now < 4_000_000_000:
        pacer()
        clock.now += work_ns
    for second in (1, 2, 3):
        durations = [duration for start, duration in clock.slept if second <= start * 1e-9 < second + 1]
        assert 0.06 < 1e-9 * sum(durations) < 0.15
    assert max(duration for _, duration in clock.slept) < 2 * DEBT_NS


def test_pacer_is_on_time_with_time_to_spare() -> None:
    """The last part of a wait is active, because the machine wakes late."""
    clock = SetClock(60_000)
    pacer = Pacer(1.0 / 1024.0, 2000, clock)
    pacer.start()
    for _ in range(1000):
        pacer()
        clock.now += 300_000
    assert pacer.missed == 0
    assert pacer.lateness.seconds.max() < 1e-6


@pytest.mark.parametrize("transport", [0, 1, 4])
def test_followed_ticks_follow_clock_of_rig(transport: int) -> None:
    clock, period = SetClock(reading=0), 1_000_000
    ticks = FollowedTicks(1e-3, 1000, transport, clock)
    ticks.start()
    for k in range(1, 400):
        late = 300_000 if k % 7 == 0 else 0  # in transport
        clock.now = k * 1_000_100 + late  # the clock of the rig is slower by 1e-4
        assert ticks() == 0
        assert ticks.due == clock.now + max(transport - 1, 0) * period
        if k > 100:
            assert ticks.slack + late == pytest.approx(period, abs=50_000)
    assert ticks.missed == ticks.slips == 0
    assert len(ticks.lateness) == 399


def test_followed_ticks_restart_after_silence() -> None:
    clock = SetClock(reading=0)
    ticks = FollowedTicks(1e-3, 10, 1, clock)
    ticks.start()
    clock.now = 50_000_000
    ticks()
    assert ticks.slack == 1_000_000


# Durations


def test_durations_are_stored_up_to_capacity() -> None:
    durations = Durations(3)
    for nanoseconds in (1000, 2000, 3000, 4000):
        durations.add(nanoseconds)
    np.testing.assert_allclose(durations.seconds, [1e-6, 2e-6, 4e-6])
    assert len(Durations(10).seconds) == 0


def test_duration_is_weighted_by_sample_count() -> None:
    seconds, counts = np.array([3e-6, 1e-6, 2e-6]), np.array([50, 2000, 450])
    repeated = np.repeat(seconds, counts)
    assert statistics(seconds, counts) == pytest.approx(statistics(repeated))
    assert histogram(seconds, None, counts) == histogram(repeated)


def test_statistics_are_percentiles() -> None:
    result = statistics(np.arange(1001) * 1e-6)
    assert list(result) == ["mean_s", "median_s", "p99_s", "p999_s", "max_s"]
    np.testing.assert_allclose(list(result.values()), [500e-6, 500e-6, 990e-6, 999e-6, 1000e-6])


def test_statistics_of_no_data_are_nan() -> None:
    assert all(math.isnan(value) for value in statistics(np.zeros(0)).values())


def test_histogram_counts_all_durations() -> None:
    bins = histogram(np.array([1e-9, 1.5e-6, 1e-3, 7.0]))
    assert sum(bins["counts"]) == 4.0
    assert (bins["counts"][0], bins["counts"][-1]) == (1.0, 1.0)
    assert len(bins["edges_s"]) == len(bins["counts"]) + 1


def test_trimmed_histogram_keeps_all_counts() -> None:
    bins = histogram(np.array([2e-4, 3e-4, 3e-4, 5e-4]))
    result = trimmed(bins)
    assert result["counts"] == [1, 2, 0, 1]
    assert len(result["edges_s"]) == 5
    assert result["edges_s"][0] <= 2e-4 <= result["edges_s"][1]
    assert result["edges_s"][-2] <= 5e-4 <= result["edges_s"][-1]
    first = next(index for index, count in enumerate(bins["counts"]) if count)
    assert result["counts"] == bins["counts"][first : first + len(result["counts"])]
    assert trimmed(histogram(np.zeros(0))) == {"edges_s": [], "counts": []}


def test_periods_are_times_between_ticks() -> None:
    """Ticks due at 1, 2, 3 and, after a lateness of 2.5 periods, 6 begin at 1.2, 2, 5.5 and 6.1."""
    np.testing.assert_allclose(periods(np.array([0.2, 0.0, 2.5, 0.1]), 1.0), [0.8, 3.5, 0.6])
    assert len(periods(np.zeros(0), 1.0)) == 0
    report = timing(0.5, np.zeros(0), np.array([1e-5, 2e-5]), missed=0, bridged=0, period=1e-3)
    assert report["period"]["median_s"] == 1.01e-3
    assert sum(report["period_histogram"]["counts"]) == 1


def durations(*microseconds: int) -> Durations:
    result = Durations(len(microseconds))
    for value in microseconds:
        result.add(1000 * value)
    return result


def test_transport_is_loop_time_minus_work_of_nodes() -> None:
    """Two steps of two samples: 4 x 100 us, with 2 x 60 us of the integrator and 4 x 20 us of the compensator."""
    hops = {"integrator": durations(50, 70), "compensator": durations(20, 20, 20, 20)}
    loop = timing(0.5, durations(130, 70, 130, 70).seconds, np.zeros(0), 0, 0)
    reports = [{"hops": {name: of_hop(values)}} for name, values in hops.items()]
    numbers = {path: value for part in (loop, *reports) for path, value in flatten(part, "timing").items()}
    report = gathered(numbers)
    assert (report["hops"]["integrator"]["count"], report["hops"]["compensator"]["median_s"]) == (2, 20e-6)
    assert sum(report["hops"]["integrator"]["histogram"]["counts"]) == 2
    assert report["hops"]["transport"]["mean_s"] == pytest.approx(50e-6)
    without_loop = {path: value for path, value in numbers.items() if ".loop" not in path}  # the actuator died
    assert set(gathered(without_loop)["hops"]) == set(hops)
    assert gathered({}) == {}
    parallel = numbers | {"timing.hops.integrator.mean_s": 1.0}  # a model that computes in parallel with the loop
    assert set(gathered(parallel)["hops"]) == set(hops)


def test_durations_since_index() -> None:
    result = durations(1, 2, 3)
    np.testing.assert_allclose(result.since(1), [2e-6, 3e-6])
    result.add(4000)  # beyond the capacity
    np.testing.assert_allclose(result.since(2), [4e-6])
    assert len(result.since(4)) == 0


def test_timing_omits_missing_parts() -> None:
    report = timing(0.5, np.array([1e-4, 2e-4]), np.zeros(0), missed=1, bridged=2)
    assert (report["running_s"], report["missed"], report["bridged"]) == (0.5, 1, 2)
    assert report["loop"]["max_s"] == 2e-4
    assert "loop_histogram" in report
    assert not {"lateness_histogram", "period"} & set(report)
