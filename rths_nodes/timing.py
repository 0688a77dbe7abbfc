"""Statistics of the timing of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rths_nodes.components import Array

_BINS_PER_DECADE = 10


class Durations:
    """Durations in ns, in memory that is taken at once, so that a long test does not grow."""

    def __init__(self, expected: int) -> None:
        self._values = np.full(max(expected, 1), -1, dtype=np.int64)
        self._count = 0

    def add(self, nanoseconds: int) -> None:
        """One more; beyond the expected number the last one is replaced (the tail of a safe stop)."""
        self._values[min(self._count, len(self._values) - 1)] = nanoseconds
        self._count += 1

    def __len__(self) -> int:
        return self._count

    @property
    def seconds(self) -> Array:
        """All durations in s."""
        return np.asarray(self._values[: self._count] * 1e-9, dtype=np.float64)


def statistics(seconds: Array) -> dict[str, float]:
    """Median, 99th, 99.9th percentile and maximum in s; nan without data."""
    if not len(seconds):
        return dict.fromkeys(("median_s", "p99_s", "p999_s", "max_s"), math.nan)
    median, p99, p999 = np.percentile(seconds, (50.0, 99.0, 99.9)).tolist()
    return {"median_s": median, "p99_s": p99, "p999_s": p999, "max_s": float(seconds.max())}


def histogram(seconds: Array) -> dict[str, list[float]]:
    """Counts in bins of equal ratio between 1 us and 1 s; what is outside counts in the outermost bins."""
    edges = np.logspace(-6.0, 0.0, 6 * _BINS_PER_DECADE + 1)
    counts, _ = np.histogram(np.clip(seconds, edges[0], edges[-1]), edges)
    return {"edges_s": edges.tolist(), "counts": counts.astype(float).tolist()}


def trimmed(bins: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """A histogram without its empty bins at both ends, and with whole counts: for JSON."""
    used = np.flatnonzero(bins["counts"])
    if not len(used):
        return {"edges_s": [], "counts": []}
    first, last = int(used[0]), int(used[-1]) + 1
    return {
        "edges_s": [float(f"{edge:.4g}") for edge in bins["edges_s"][first : last + 1]],
        "counts": [round(count) for count in bins["counts"][first:last]],
    }


def periods(lateness: Array, period: float) -> Array:
    """Times ``(n - 1,)`` s between ticks that are late by ``lateness`` ``(n,)`` s and slip by whole periods."""
    slipped = np.floor(lateness[:-1] / period)
    found: Array = (1.0 + slipped) * period + np.diff(lateness)
    return found


def timing(
    running_s: float, loop: Array, lateness: Array, missed: int, bridged: int, period: float | None = None
) -> dict[str, Any]:
    """The timing of a run as it is reported: ``loop`` and ``lateness`` in s, times between ticks of ``period`` s.

    ``running_s`` is the time from the first sample to the last; ``period`` is None where nothing is paced.
    """
    report: dict[str, Any] = {"running_s": running_s, "missed": missed, "bridged": bridged}
    clocks = {"loop": loop, "lateness": lateness}
    if period is not None:
        clocks["period"] = periods(lateness, period)
    for name, seconds in clocks.items():
        report[name] = statistics(seconds)
        if len(seconds):
            report[f"{name}_histogram"] = histogram(seconds)
    return report
