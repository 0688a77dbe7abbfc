# SPDX-License-Identifier: Apache-2.0
"""The stamps of samples, and how long the loop and the rig took."""

from __future__ import annotations

from typing import Any

import pytest

from rths_nodes.loop.indices.late_periods import LateData
from rths_nodes.loop.pacing import ANSWERED, Pacer
from rths_nodes.ros.nodes.observers import RigClock

MS = 1_000_000
DT = 0.01


@pytest.fixture
def paced(still_clock: Any) -> RigClock:
    """In real time, its schedule started."""
    times = RigClock(DT, 5, Pacer(DT, 5, still_clock), still_clock)
    assert times.pacer
    times.pacer.start()
    return times


def test_a_stamp_is_the_nominal_time_of_a_sample(still_clock: Any) -> None:
    times = RigClock(DT, 5, None, still_clock)
    times.start()
    started = still_clock.now
    still_clock.now += 7 * MS
    assert [times.measured(sample) - started for sample in (0, 1, 3)] == [0, 10 * MS, 30 * MS]


def test_a_schedule_that_has_slipped_moves_the_stamps(paced: RigClock, still_clock: Any) -> None:
    assert paced.pacer
    paced.start()
    started = still_clock.now
    still_clock.now += 35 * MS
    assert paced.pacer() == 2
    assert paced.measured(1) - started == 30 * MS


def test_a_command_has_most_of_a_sample_from_its_tick_or_a_late_measurement_on(
    paced: RigClock, still_clock: Any
) -> None:
    assert paced.pacer
    paced.measured(0)
    assert paced.deadline == paced.pacer.due
    still_clock.now += 9 * MS
    paced.measured(0)
    assert paced.deadline == still_clock.now + round(ANSWERED * 10 * MS)


def test_in_lockstep_no_command_is_late(still_clock: Any) -> None:
    assert RigClock(DT, 5, None, still_clock).deadline is None


def test_a_command_under_way_is_timed_from_its_own_measurement_to_its_coming(still_clock: Any) -> None:
    times = RigClock(DT, 5, None, still_clock)
    for sample in range(4):
        times.measured(sample)
        still_clock.now += 10 * MS
    times.answered(2, waited=5 * MS)
    assert times.durations()["loop"].seconds.tolist() == pytest.approx([0.025])


def test_loop_and_work_are_timed(still_clock: Any) -> None:
    times = RigClock(DT, 5, None, still_clock)
    times.start()
    times.begin()
    times.measured(0)
    for sample, took in enumerate((2, 4), 1):
        still_clock.now += took * MS
        assert times.waited == took * MS
        times.answered(sample)
        times.tick()
        still_clock.now += MS
        times.measured(sample)
    times.end()
    durations = times.durations()
    assert sorted(durations) == ["loop", "work"]
    assert durations["loop"].seconds.tolist() == pytest.approx([0.002, 0.004])
    assert durations["work"].seconds.tolist() == pytest.approx([0.001, 0.001])
    summary = times.summary(LateData(3), late_commands=2)
    assert (summary["bridged"], summary["late_commands"], summary["missed"], summary["slipped"]) == (3, 2, 0, 0)
    assert summary["running_s"] == pytest.approx(0.008)
    assert summary["loop"]["mean_s"] == pytest.approx(0.003)


def test_in_real_time_work_counts_from_the_tick_and_not_from_the_wait_for_it(
    paced: RigClock, still_clock: Any
) -> None:
    assert paced.pacer
    paced.tick()
    still_clock.now += 10 * MS
    paced.pacer()
    still_clock.now += MS
    paced.measured(1)
    assert paced.durations()["work"].seconds.tolist() == pytest.approx([0.001])
    assert len(paced.durations()["lateness"]) == 1


def test_a_test_that_never_began_has_run_for_no_time(still_clock: Any) -> None:
    times = RigClock(DT, 5, None, still_clock)
    still_clock.now += MS
    times.end()
    assert times.summary(LateData(), 0)["running_s"] == 0.0
