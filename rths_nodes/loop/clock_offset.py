# SPDX-License-Identifier: Apache-2.0
"""Offset of another machine's clock, from the fastest of many requests.

A request sent at t0 arrives at t1 of the other clock; the answer leaves at t2 of that and arrives at t3:

    round trip  d = (t3 - t0) - (t2 - t1)          offset  o = ((t1 - t0) + (t2 - t3)) / 2 = (t1 - t0) - d / 2

The error of o is at most d / 2, so the exchange with the shortest d is the most accurate (Cristian, 1989,
Distributed Computing 3, 146-158; RFC 5905, section 8, and its clock filter).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Exchange:
    """A request and its answer, s. ``ahead``: t1 - t0, ``round_trip``: d."""

    ahead: float
    round_trip: float

    @property
    def offset(self) -> float:
        """Offset of the other clock, s; the error is at most half the round trip."""
        return self.ahead - 0.5 * self.round_trip


def clock_numbers(before: Sequence[Exchange], after: Sequence[Exchange]) -> dict[str, float]:
    """Return offset and drift of one machine's clock, from exchanges ``before`` and ``after`` a test; times in s.

    ``offset_s`` before the test with its ``bound_s``; ``drift_s`` is its change during the test, with
    ``drift_bound_s``; median and largest round trip of all. Unknown values are nan.
    """
    found = {"offset_s": math.nan, "bound_s": math.nan, "drift_s": math.nan, "drift_bound_s": math.nan}
    first, last = (min(each, key=lambda one: one.round_trip, default=None) for each in (before, after))
    if first is not None:
        found |= {"offset_s": first.offset, "bound_s": 0.5 * first.round_trip}
    if first is not None and last is not None:
        bound = 0.5 * (first.round_trip + last.round_trip)
        found |= {"drift_s": last.offset - first.offset, "drift_bound_s": bound}
    trips = [one.round_trip for one in (*before, *after)] or [math.nan]
    return found | {"round_trip_median_s": float(np.median(trips)), "round_trip_max_s": max(trips)}


def too_slow(peer: str, exchanges: Sequence[Exchange], dt: float, depth: int = 0) -> str:
    """Return why ``peer`` is too slow for a loop of ``dt`` s with hops of ``depth`` in real time, or empty."""
    within = (1 + depth) * dt
    if not exchanges:
        return ""
    median = float(np.median([one.round_trip for one in exchanges]))
    if median <= within:
        return ""
    samples = "a sample" if not depth else f"{1 + depth} samples (hops.depth = {depth})"
    needed = math.ceil(median / dt) - 1
    return (
        f"the way to the {peer} node and back takes {1e3 * median:.3g} ms (median of {len(exchanges)}): must be "
        f"<= {1e3 * within:.3g} ms, {samples}, in real time: hops.depth = {needed} at least, a slower servo_rate, "
        "pace = lockstep, or the loop on one machine"
    )
