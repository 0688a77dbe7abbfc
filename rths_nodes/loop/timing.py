# SPDX-License-Identifier: Apache-2.0
"""Timing of a run: late periods, statistics, and the offset of another machine's clock.

The fastest of many requests determines this offset. A request is sent at t0 and received at t1. The answer is sent
at t2 and received at t3. The other machine's clock measures t1 and t2:

    round trip  d = (t3 - t0) - (t2 - t1)          offset  o = ((t1 - t0) + (t2 - t3)) / 2 = (t1 - t0) - d / 2

The error of o is at most d / 2, so the exchange with the shortest d is the most accurate (Cristian, 1989,
Distributed Computing 3, 146-158; RFC 5905, section 8, and its clock filter).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rths_nodes.core.data import Data, unflatten
from rths_nodes.core.durations import Durations, histogram, periods, statistics
from rths_nodes.core.errors import counted
from rths_nodes.core.protocols import OfPort
from rths_nodes.core.samples import ROUNDING, Array

MOST_LATE = 0.02
"""Largest fraction of late periods in a valid test."""


@dataclass(frozen=True)
class LateData:
    """Late periods. ``bridged`` counts bridged samples, and ``missed`` the periods with a missed tick.

    ``gap`` (s) is the longest series of consecutive late periods, ``max_bridge`` (s) its bound in a valid test.
    """

    bridged: int = 0
    missed: float = 0.0
    gap: float = 0.0
    max_bridge: float = math.inf

    @classmethod
    def from_timing(cls, timing: Data, bridged: int, max_bridge: float) -> LateData:
        return cls(bridged, timing.get("missed", 0.0), timing.get("longest_gap_s", 0.0), max_bridge)

    @classmethod
    def of_bridged(cls, samples: Iterable[int], dt: float, max_bridge: float) -> LateData:
        """Return the late periods of a run with bridged ``samples`` (sorted, ``dt`` s) and no missed periods."""
        count = longest = length = 0
        previous = -1
        for sample in samples:
            length = length + 1 if sample == previous + 1 else 1
            longest, previous, count = max(longest, length), sample, count + 1
        return cls(count, gap=longest * dt, max_bridge=max_bridge)

    @property
    def counts(self) -> str:
        return f"{self.missed:.0f} ticks missed, {self.bridged:.0f} bridged"

    def not_valid(self, samples: float) -> str:
        late, reasons = self.bridged + self.missed, []
        if late > MOST_LATE * (max(samples, 0) + self.missed):
            share = min(100.0, 100.0 * late / (samples + self.missed)) if samples > 0 else 100.0
            late_by = " or ".join(name for name in ("missed", "bridged") if getattr(self, name))
            reasons.append(f"{share:.{0 if share >= 10.0 else 1}f} % {late_by} (at most {100.0 * MOST_LATE:g} %)")
        if self.gap > self.max_bridge * (1.0 + ROUNDING):
            bound = f"bridge.max_bridge = {1e3 * self.max_bridge:g} ms"
            reasons.append(f"no sample for {1e3 * self.gap:.4g} ms ({bound})")
        return f"not valid: {'; '.join(reasons)}" if reasons else ""

    def ending(self, outcome: str, samples: float) -> str:
        reason = self.not_valid(samples) if outcome in ("finished", "not valid") else ""
        return reason or outcome


def of_hop(durations: Durations) -> dict[str, object]:
    seconds = durations.seconds
    report: Data = {"count": len(seconds)} | statistics(seconds)
    if len(seconds):
        report["histogram"] = histogram(seconds)
    return report


def pause_notes(timing: Data) -> list[str]:
    if not timing.get("pauses"):
        return []
    pauses, slowed, longer = (float(timing[name]) for name in ("pauses", "slowed", "paused_s"))
    return [
        f"the test paused {counted(pauses, 'time')}, {longer:.3g} s in total, and did not run in "
        f"real time. Slowed samples ({slowed:.0f}) are not valid for a rate-dependent specimen"
    ]


def clock_notes(timing: Data) -> list[str]:
    notes, names = [], ("offset_s", "bound_s", "drift_s", "drift_bound_s")
    for peer, clock in timing.get("clocks", {}).items():
        offset, bound, drift, of_drift = (1e3 * float(clock[name]) for name in names)
        later = f", with a drift of {drift:+.3g} ms during the test (± {of_drift:.2g} ms)"
        later = "" if math.isnan(drift) else later
        notes.append(f"the clock of the {peer} node is {offset:+.3g} ms ahead (± {bound:.2g} ms){later}")
    return notes


def port_numbers(port: OfPort) -> dict[str, object]:
    counts, start = port.numbers(), port.counter_at_start
    numbers: dict[str, object] = {"port": counts} if counts else {}
    return numbers if start is None else numbers | {"counter_at_start": float(start)}


def gathered(numbers: Mapping[str, float]) -> dict[str, object]:
    """Return the timing of a run, as nested data, from the final numbers of all nodes.

    ``hops.transport`` is the part of the loop time outside integrator and compensator: publishing, waking,
    receiving and waiting. Only its mean is known, because percentiles cannot be subtracted. It is omitted if the
    integrator works in parallel with the loop, as with an OpenSees model.
    """
    report = unflatten(numbers, "timing")
    if not (hops := report.pop("hops", {})):
        return report
    report["hops"] = hops
    integrator, compensator = (hops.get(role, {}) for role in ("integrator", "compensator"))
    # reports are incomplete if a node has died
    if "loop" in report and integrator.get("count") and compensator.get("count"):
        a_sample = integrator["mean_s"] * integrator["count"] / compensator["count"]
        rest = report["loop"]["mean_s"] - compensator["mean_s"] - a_sample
        if rest >= 0.0:
            hops["transport"] = {"mean_s": rest}
    return report


def timing(
    running_s: float,
    loop: Array,
    lateness: Array,
    missed: int,
    bridged: int,
    period: float | None = None,
    gap: float = 0.0,
    counts: Array | None = None,
) -> Data:
    """Return statistics and histograms of the times in ``loop`` and ``lateness``, and of the periods, in s.

    ``running_s`` is the time from the first to the last sample. ``period`` (s) is None without pacing. ``gap`` (s)
    is the longest series of missed or bridged periods. ``counts`` are the weights of the values in ``loop``.
    """
    report: Data = {"running_s": running_s, "missed": missed, "bridged": bridged, "longest_gap_s": gap}
    clocks: dict[str, tuple[Array, Array | None, Array | None]]
    clocks = {"loop": (loop, None, counts), "lateness": (lateness, None, None)}
    if period is not None:
        clocks["period"] = periods(lateness, period), (period * (np.arange(82) - 0.5) / 20.0).clip(0.0), None
    for name, (seconds, edges, weights) in clocks.items():
        report[name] = statistics(seconds, weights)
        if len(seconds):
            report[f"{name}_histogram"] = histogram(seconds, edges, weights)
    return report


@dataclass(frozen=True)
class Exchange:
    """One clock comparison: time from sending to receipt by the two clocks (``ahead``), and round trip, s."""

    ahead: float
    round_trip: float

    @property
    def offset(self) -> float:
        return self.ahead - 0.5 * self.round_trip


def clock_numbers(before: Sequence[Exchange], after: Sequence[Exchange]) -> dict[str, float]:
    """Return offset and drift (s) of another machine's clock, from exchanges ``before`` and ``after`` a test.

    ``offset_s`` is the offset before the test, and ``bound_s`` its largest error. ``drift_s`` is the change of the
    offset during the test, and ``drift_bound_s`` the largest error of this change. The results also include median
    and largest round trip of all exchanges. Unknown values are NaN.
    """
    numbers = {"offset_s": math.nan, "bound_s": math.nan, "drift_s": math.nan, "drift_bound_s": math.nan}
    first, last = (min(exchanges, key=lambda one: one.round_trip, default=None) for exchanges in (before, after))
    if first is not None:
        numbers |= {"offset_s": first.offset, "bound_s": 0.5 * first.round_trip}
    if first is not None and last is not None:
        bound = 0.5 * (first.round_trip + last.round_trip)
        numbers |= {"drift_s": last.offset - first.offset, "drift_bound_s": bound}
    trips = [one.round_trip for one in (*before, *after)] or [math.nan]
    return numbers | {"round_trip_median_s": float(np.median(trips)), "round_trip_max_s": max(trips)}


def too_slow(peer: str, exchanges: Sequence[Exchange], dt: float, depth: int = 0) -> str:
    """Return a message if the round trip to ``peer`` takes more than 1 + ``depth`` samples, or an empty string."""
    within = (1 + depth) * dt
    if not exchanges:
        return ""
    median = float(np.median([one.round_trip for one in exchanges]))
    if median <= within:
        return ""
    samples = "a sample" if not depth else f"{1 + depth} samples with hops.depth = {depth}"
    needed = math.ceil(median / dt) - 1
    return (
        f"the round trip to the {peer} node takes {1e3 * median:.3g} ms (median of {len(exchanges)}), but must be "
        f"<= {1e3 * within:.3g} ms ({samples}) in real time. Use hops.depth >= {needed}, a smaller servo_rate, "
        "pace = lockstep, or a single machine"
    )
