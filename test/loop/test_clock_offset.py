# SPDX-License-Identifier: Apache-2.0
"""Clocks of other machines: offset, bound and drift, from exchanges whose times are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from messages import each_mentions, mentions

from rths_nodes.loop.timing import Exchange, clock_notes, clock_numbers, too_slow

AHEAD = 3600.0125
"""s by which the other clock is ahead."""


def exchange(there: float, back: float, ahead: float = AHEAD) -> Exchange:
    """One whose question takes ``there``, and whose answer ``back``, s."""
    return Exchange(ahead + there, there + back)


def test_with_equal_ways_the_offset_is_exact() -> None:
    assert exchange(2e-4, 2e-4).offset == pytest.approx(AHEAD, abs=1e-9)


def test_with_any_ways_the_bound_holds_and_the_quickest_exchange_has_the_smallest() -> None:
    rng = np.random.default_rng(1)
    ways = rng.exponential(3e-4, (200, 2)) + 5e-5
    found = clock_numbers([exchange(*way) for way in ways.tolist()], [])
    assert abs(found["offset_s"] - AHEAD) <= found["bound_s"] + 1e-9
    assert found["bound_s"] == pytest.approx(0.5 * ways.sum(axis=1).min())
    assert found["round_trip_median_s"] == pytest.approx(np.median(ways.sum(axis=1)))
    assert math.isnan(found["drift_s"])


def test_the_drift_is_the_change_from_before_to_after() -> None:
    found = clock_numbers([exchange(1e-4, 1e-4)], [exchange(3e-4, 1e-4, AHEAD + 0.002)])
    assert abs(found["drift_s"] - 0.002) <= found["drift_bound_s"] == pytest.approx(3e-4)


def test_a_silent_clock_is_not_known() -> None:
    assert all(math.isnan(value) for value in clock_numbers([], []).values())


def test_offset_bound_and_drift_are_told_in_words() -> None:
    clock = clock_numbers([exchange(1e-4, 1e-4, 0.5)], [exchange(1e-4, 1e-4, 0.502)])
    assert each_mentions(clock_notes({"clocks": {"integrator": clock}}), ("+500 ms", "0.1 ms", "+2 ms", "0.2 ms"))
    assert clock_notes({}) == []


def test_a_way_longer_than_a_sample_is_refused_by_its_median() -> None:
    one_slow = [exchange(1e-4, 1e-4)] * 3 + [exchange(1.0, 1.0)]
    assert too_slow("compensator", one_slow, 1e-3) == ""
    words = too_slow("compensator", [exchange(1e-3, 1e-3)] * 3, 1e-3)
    assert mentions(words, "2 ms", "3", "<= 1 ms")
    assert too_slow("compensator", [exchange(1e-3, 1e-3)], math.inf) == ""


@pytest.mark.parametrize("round_trip", [1.1e-3, 1.9e-3, 2.1e-3, 7.5e-3])
def test_the_least_depth_of_hops_is_named(round_trip: float) -> None:
    exchanges, dt = [Exchange(0.0, round_trip)] * 3, 1e-3
    words = too_slow("compensator", exchanges, dt)
    depth = int(words.partition("hops.depth >= ")[2].partition(",")[0])
    assert too_slow("compensator", exchanges, dt, depth) == ""
    assert too_slow("compensator", exchanges, dt, depth - 1)
