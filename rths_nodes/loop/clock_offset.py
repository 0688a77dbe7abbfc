# SPDX-License-Identifier: Apache-2.0
"""Offset by which the clock of another machine is ahead of ours, by the quickest of many questions and answers.

A question asked at t0 comes at t1 of the other clock, the answer leaves at t2 of that and comes back at t3:

    round trip  d = (t3 - t0) - (t2 - t1)          offset  o = ((t1 - t0) + (t2 - t3)) / 2 = (t1 - t0) - d / 2

Whatever the two ways are, o is wrong by d / 2 at most, so the exchange with the shortest d knows most (Cristian,
1989, Distributed Computing 3, 146-158; RFC 5905, section 8, and its clock filter).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Exchange:
    """A question and its answer, s. ``ahead``: t1 - t0, ``round_trip``: d."""

    ahead: float
    round_trip: float

    @property
    def offset(self) -> float:
        """Time by which the other clock is ahead, s; wrong by half the round trip at most."""
        return self.ahead - 0.5 * self.round_trip


def clock_numbers(before: Sequence[Exchange], after: Sequence[Exchange]) -> dict[str, float]:
    """Return offset and drift of one machine's clock, by exchanges ``before`` and ``after`` a test; times in s.

    ``offset_s`` before the test with its ``bound_s``; ``drift_s`` by how much more the clock is ahead after it,
    with ``drift_bound_s``; median and largest round trip of all. What is not known is nan.
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
    """Why a loop of ``dt`` s, with hops of ``depth``, cannot go by way of ``peer`` in real time; empty: it may."""
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
