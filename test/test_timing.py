"""Statistics of durations."""

from __future__ import annotations

import math

import numpy as np

from rths_nodes.timing import Durations, histogram, statistics, timing


def test_durations_are_kept_and_do_not_grow() -> None:
    durations = Durations(3)
    for nanoseconds in (1000, 2000, 3000, 4000):
        durations.add(nanoseconds)
    np.testing.assert_allclose(durations.seconds, [1e-6, 2e-6, 4e-6])
    assert len(Durations(10).seconds) == 0


def test_statistics_are_percentiles() -> None:
    found = statistics(np.arange(1001) * 1e-6)
    assert list(found) == ["median_s", "p99_s", "p999_s", "max_s"]
    np.testing.assert_allclose(list(found.values()), [500e-6, 990e-6, 999e-6, 1000e-6])


def test_without_data_there_are_no_numbers() -> None:
    assert all(math.isnan(value) for value in statistics(np.zeros(0)).values())


def test_the_histogram_counts_everything() -> None:
    bins = histogram(np.array([1e-9, 1.5e-6, 1e-3, 7.0]))
    assert sum(bins["counts"]) == 4.0
    assert (bins["counts"][0], bins["counts"][-1]) == (1.0, 1.0)
    assert len(bins["edges_s"]) == len(bins["counts"]) + 1


def test_timing_reports_what_there_is() -> None:
    report = timing(0.5, np.array([1e-4, 2e-4]), np.zeros(0), missed=1, bridged=2)
    assert (report["running_s"], report["missed"], report["bridged"]) == (0.5, 1, 2)
    assert report["loop"]["max_s"] == 2e-4
    assert "loop_histogram" in report
    assert "lateness_histogram" not in report
