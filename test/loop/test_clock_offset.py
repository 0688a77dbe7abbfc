# SPDX-License-Identifier: Apache-2.0
"""Tests of clock offset, bound and drift from exchanges with known times."""

from __future__ import annotations

import math

import numpy as np
import pytest
from messages import each_mentions, mentions

from rths_nodes.loop.timing import Exchange, clock_notes, clock_numbers, too_slow

AHEAD = 3600.0125
"""Time by which the remote clock is ahead, s."""


def exchange(there: float, back: float, ahead: float = AHEAD) -> Exchange:
    """Exchange whose request takes ``there`` s and whose reply takes ``back`` s."""
    return Exchange(ahead + there, there + back)


def test_offset_is_exact_for_symmetric_delays() -> None:
    assert exchange(2e-4, 2e-4).offset == pytest.approx(AHEAD, abs=1e-9)


def test_bound_holds_for_asymmetric_delays() -> None:
    delays = np.random.default_rng(1).exponential(3e-4, (200, 2)) + 5e-5
    clock = clock_numbers([exchange(*times) for times in delays.tolist()], [])
    assert abs(clock["offset_s"] - AHEAD) <= clock["bound_s"] + 1e-9
    assert clock["bound_s"] == pytest.approx(0.5 * delays.sum(axis=1).min())
    assert clock["round_trip_median_s"] == pytest.approx(np.median(delays.sum(axis=1)))
    assert math.isnan(clock["drift_s"])


def test_drift_is_change_of_offset() -> None:
    clock = clock_numbers([exchange(1e-4, 1e-4)], [exchange(3e-4, 1e-4, AHEAD + 0.002)])
    assert abs(clock["drift_s"] - 0.002) <= clock["drift_bound_s"] == pytest.approx(3e-4)


def test_clock_without_exchanges_is_nan() -> None:
    assert all(math.isnan(value) for value in clock_numbers([], []).values())


def test_notes_mention_offset_bound_and_drift() -> None:
    clock = clock_numbers([exchange(1e-4, 1e-4, 0.5)], [exchange(1e-4, 1e-4, 0.502)])
    assert each_mentions(clock_notes({"clocks": {"integrator": clock}}), ("+500 ms", "0.1 ms", "+2 ms", "0.2 ms"))
    assert clock_notes({}) == []


def test_median_round_trip_above_sample_is_refused() -> None:
    one_slow = [exchange(1e-4, 1e-4)] * 3 + [exchange(1.0, 1.0)]
    assert too_slow("compensator", one_slow, 1e-3) == ""
    assert mentions(too_slow("compensator", [exchange(1e-3, 1e-3)] * 3, 1e-3), "2 ms", "3", "<= 1 ms")
    assert too_slow("compensator", [exchange(1e-3, 1e-3)], math.inf) == ""


@pytest.mark.parametrize("round_trip", [1.1e-3, 1.9e-3, 2.1e-3, 7.5e-3])
def test_smallest_depth_of_hops_is_reported(round_trip: float) -> None:
    exchanges, dt = [Exchange(0.0, round_trip)] * 3, 1e-3
    reason = too_slow("compensator", exchanges, dt)
    depth = int(reason.partition("hops.depth >= ")[2].partition(",")[0])
    assert too_slow("compensator", exchanges, dt, depth) == ""
    assert too_slow("compensator", exchanges, dt, depth - 1)
