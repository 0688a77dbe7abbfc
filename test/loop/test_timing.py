# SPDX-License-Identifier: Apache-2.0
"""Statistics of durations."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rths_nodes.core.data import flatten
from rths_nodes.core.durations import Durations, histogram, periods, statistics, trimmed
from rths_nodes.loop.timing import gathered, of_hop, timing


def test_durations_are_kept_and_do_not_grow() -> None:
    durations = Durations(3)
    for nanoseconds in (1000, 2000, 3000, 4000):
        durations.add(nanoseconds)
    np.testing.assert_allclose(durations.seconds, [1e-6, 2e-6, 4e-6])
    assert len(Durations(10).seconds) == 0


def test_a_duration_of_several_samples_counts_as_often() -> None:
    seconds, counts = np.array([3e-6, 1e-6, 2e-6]), np.array([50, 2000, 450])
    every = np.repeat(seconds, counts)
    assert statistics(seconds, counts) == pytest.approx(statistics(every))
    assert histogram(seconds, None, counts) == histogram(every)


def test_statistics_are_percentiles() -> None:
    found = statistics(np.arange(1001) * 1e-6)
    assert list(found) == ["mean_s", "median_s", "p99_s", "p999_s", "max_s"]
    np.testing.assert_allclose(list(found.values()), [500e-6, 500e-6, 990e-6, 999e-6, 1000e-6])


def test_without_data_there_are_no_numbers() -> None:
    assert all(math.isnan(value) for value in statistics(np.zeros(0)).values())


def test_the_histogram_counts_everything() -> None:
    bins = histogram(np.array([1e-9, 1.5e-6, 1e-3, 7.0]))
    assert sum(bins["counts"]) == 4.0
    assert (bins["counts"][0], bins["counts"][-1]) == (1.0, 1.0)
    assert len(bins["edges_s"]) == len(bins["counts"]) + 1


def test_a_trimmed_histogram_keeps_every_count_between_its_edges() -> None:
    bins = histogram(np.array([2e-4, 3e-4, 3e-4, 5e-4]))
    found = trimmed(bins)
    assert found["counts"] == [1, 2, 0, 1]
    assert len(found["edges_s"]) == 5
    assert found["edges_s"][0] <= 2e-4 <= found["edges_s"][1]
    assert found["edges_s"][-2] <= 5e-4 <= found["edges_s"][-1]
    first = next(index for index, count in enumerate(bins["counts"]) if count)
    assert found["counts"] == bins["counts"][first : first + len(found["counts"])]
    assert trimmed(histogram(np.zeros(0))) == {"edges_s": [], "counts": []}


def test_periods_are_the_times_between_ticks() -> None:
    """Ticks due at 1, 2, 3 and, after a lateness of 2.5 periods, at 6: they begin at 1.2, 2, 5.5, 6.1."""
    np.testing.assert_allclose(periods(np.array([0.2, 0.0, 2.5, 0.1]), 1.0), [0.8, 3.5, 0.6])
    assert len(periods(np.zeros(0), 1.0)) == 0
    report = timing(0.5, np.zeros(0), np.array([1e-5, 2e-5]), missed=0, bridged=0, period=1e-3)
    assert report["period"]["median_s"] == 1.01e-3
    assert sum(report["period_histogram"]["counts"]) == 1


def durations(*microseconds: int) -> Durations:
    found = Durations(len(microseconds))
    for value in microseconds:
        found.add(1000 * value)
    return found


def test_what_the_loop_takes_beside_the_work_of_its_nodes_is_transport() -> None:
    """Two steps of two samples: 4 x 100 us, of it 2 x 60 us by the integrator and 4 x 20 us by the compensator."""
    hops = {"integrator": durations(50, 70), "compensator": durations(20, 20, 20, 20)}
    loop = timing(0.5, durations(130, 70, 130, 70).seconds, np.zeros(0), 0, 0)
    told = [{"hops": {name: of_hop(values)}} for name, values in hops.items()]
    numbers = {path: value for part in (loop, *told) for path, value in flatten(part, "timing").items()}
    report = gathered(numbers)
    assert (report["hops"]["integrator"]["count"], report["hops"]["compensator"]["median_s"]) == (2, 20e-6)
    assert sum(report["hops"]["integrator"]["histogram"]["counts"]) == 2
    assert report["hops"]["transport"]["mean_s"] == pytest.approx(50e-6)
    rest = {path: value for path, value in numbers.items() if ".loop" not in path}  # the actuator has died
    assert set(gathered(rest)["hops"]) == set(hops)
    assert gathered({}) == {}
    beside = numbers | {"timing.hops.integrator.mean_s": 1.0}  # a model that computes while the loop goes on
    assert set(gathered(beside)["hops"]) == set(hops)


def test_a_second_of_durations_is_what_came_since() -> None:
    found = durations(1, 2, 3)
    np.testing.assert_allclose(found.since(1), [2e-6, 3e-6])
    found.add(4000)  # beyond what was expected
    np.testing.assert_allclose(found.since(2), [4e-6])
    assert len(found.since(4)) == 0


def test_timing_reports_what_there_is() -> None:
    report = timing(0.5, np.array([1e-4, 2e-4]), np.zeros(0), missed=1, bridged=2)
    assert (report["running_s"], report["missed"], report["bridged"]) == (0.5, 1, 2)
    assert report["loop"]["max_s"] == 2e-4
    assert "loop_histogram" in report
    assert "lateness_histogram" not in report
    assert "period" not in report
