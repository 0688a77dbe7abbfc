"""Statistics of the timing of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rths_nodes import wire
from rths_nodes.components import Array

_BINS_PER_DECADE = 10


class Durations:
    """Durations in ns, in memory that is taken at once, so that a long test does not grow."""

    def __init__(self, expected: int) -> None:
        self._values = np.full(max(expected, 1), -1, dtype=np.int64)
        self._items = self._values.data  # a memoryview takes half the time of an array for one item
        self._room = len(self._values)
        self._count = 0

    def add(self, nanoseconds: int) -> None:
        """One more; beyond the expected number the last one is replaced (the tail of a safe stop)."""
        count = self._count
        self._items[count if count < self._room else -1] = nanoseconds
        self._count = count + 1

    def __len__(self) -> int:
        return self._count

    @property
    def seconds(self) -> Array:
        """All durations in s."""
        return self.since(0)

    def since(self, first: int) -> Array:
        """The durations from number ``first`` on, in s."""
        return np.asarray(self._values[first : self._count] * 1e-9, dtype=np.float64)


def statistics(seconds: Array) -> dict[str, float]:
    """Mean, median, 99th, 99.9th percentile and maximum in s; nan without data."""
    if not len(seconds):
        return dict.fromkeys(("mean_s", "median_s", "p99_s", "p999_s", "max_s"), math.nan)
    median, p99, p999 = np.percentile(seconds, (50.0, 99.0, 99.9)).tolist()
    mean, largest = float(seconds.mean()), float(seconds.max())
    return {"mean_s": mean, "median_s": median, "p99_s": p99, "p999_s": p999, "max_s": largest}


def histogram(seconds: Array, edges: Array | None = None) -> dict[str, list[float]]:
    """Counts between ``edges`` (s), by default in bins of equal ratio between 1 us and 1 s.

    What is outside counts in the outermost bins.
    """
    if edges is None:
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


def of_hop(durations: Durations) -> dict[str, Any]:
    """Statistics of a node's own work in the loop: from taking what it waits for to handing over what it makes."""
    seconds = durations.seconds
    report: dict[str, Any] = {"count": len(seconds)} | statistics(seconds)
    if len(seconds):
        report["histogram"] = histogram(seconds)
    return report


def gathered(numbers: Mapping[str, float]) -> dict[str, Any]:
    """The timing of a run from the final numbers of all nodes.

    What the loop takes beside the work of integrator and compensator is ``hops.transport``: publishing, waking,
    taking, and where they wait for each other. Only its mean is known: means add up, percentiles do not.
    """
    report = wire.nested(numbers, "timing")
    if not (hops := report.pop("hops", {})):
        return report
    report["hops"] = hops
    integrator, compensator = (hops.get(role, {}) for role in ("integrator", "compensator"))
    if "loop" in report and integrator.get("count") and compensator.get("count"):  # a dead node has told nothing
        a_sample = integrator["mean_s"] * integrator["count"] / compensator["count"]
        hops["transport"] = {"mean_s": report["loop"]["mean_s"] - compensator["mean_s"] - a_sample}
    return report


def _around(period: float) -> Array:
    """Edges (s) of bins for times between ticks, up to four: a twentieth of a period each, one around it."""
    edges = period * (np.arange(82) - 0.5) / 20.0
    return np.asarray(edges.clip(0.0), dtype=np.float64)


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
            edges = _around(period) if name == "period" and period else None
            report[f"{name}_histogram"] = histogram(seconds, edges)
    return report
