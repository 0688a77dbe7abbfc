# SPDX-License-Identifier: Apache-2.0
"""Durations measured in the loop, and their statistics."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from rths_nodes.core.samples import Array

SECOND = 1_000_000_000

_BINS_PER_DECADE = 10


class Durations:
    """Stores durations (ns) in preallocated memory."""

    def __init__(self, expected: int) -> None:
        self._values = np.full(max(expected, 1), -1, dtype=np.int64)
        self._items = self._values.data  # items of a memoryview are accessed twice as fast as items of an array
        self._room = len(self._values)
        self._count = 0

    def add(self, nanoseconds: int) -> None:
        """Add a duration. Once the memory is full, each new duration overwrites the previous duration."""
        count = self._count
        self._items[count if count < self._room else -1] = nanoseconds
        self._count = count + 1

    def __len__(self) -> int:
        return self._count

    @property
    def seconds(self) -> Array:
        return self.since(0)

    def since(self, first: int) -> Array:
        return np.asarray(self._values[first : self._count] * 1e-9, dtype=np.float64)


def statistics(seconds: Array, counts: Array | None = None) -> dict[str, float]:
    """Return the mean, median, 99th and 99.9th percentile, and maximum of durations, s; NaN without data.

    ``counts`` contains the number of occurrences of each duration, 1 by default.
    """
    if not len(seconds):
        return dict.fromkeys(("mean_s", "median_s", "p99_s", "p999_s", "max_s"), math.nan)
    if counts is None:
        values = np.percentile(seconds, (50.0, 99.0, 99.9))
    else:
        order = np.argsort(seconds)
        up_to = np.cumsum(counts[order])
        wanted = np.array((0.5, 0.99, 0.999)) * (up_to[-1] - 1)
        values = seconds[order][np.searchsorted(up_to, wanted, side="right")]
    median, p99, p999 = values.tolist()
    mean, largest = float(np.average(seconds, weights=counts)), float(seconds.max())
    return {"mean_s": mean, "median_s": median, "p99_s": p99, "p999_s": p999, "max_s": largest}


def median_count(counts: Counter[int]) -> int:
    left = counts.total() // 2
    for value in sorted(counts):
        left -= counts[value]
        if left < 0:
            break
    return value


def histogram(seconds: Array, edges: Array | None = None, counts: Array | None = None) -> dict[str, list[float]]:
    """Return the edges (s) and counts of bins. The default is 10 bins per decade from 1 us to 1 s.

    Durations outside the edges are counted in the first or last bin. ``counts`` is as in :func:`statistics`.
    """
    if edges is None:
        edges = np.logspace(-6.0, 0.0, 6 * _BINS_PER_DECADE + 1)
    counts_of_bins, _ = np.histogram(np.clip(seconds, edges[0], edges[-1]), edges, weights=counts)
    return {"edges_s": edges.tolist(), "counts": counts_of_bins.astype(float).tolist()}


def trimmed(bins: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    used = np.flatnonzero(bins["counts"])
    if not len(used):
        return {"edges_s": [], "counts": []}
    first, last = int(used[0]), int(used[-1]) + 1
    return {
        "edges_s": [float(f"{edge:.4g}") for edge in bins["edges_s"][first : last + 1]],
        "counts": [round(count) for count in bins["counts"][first:last]],
    }


def periods(lateness: Array, period: float) -> Array:
    """Return the intervals between ticks, ``(n - 1,)`` s, from the ``lateness`` of each tick, ``(n,)`` s.

    A tick with a lateness of one or more whole periods delays all later ticks by these periods.
    """
    slipped = np.floor(lateness[:-1] / period)
    return (1.0 + slipped) * period + np.diff(lateness)
