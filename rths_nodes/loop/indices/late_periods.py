# SPDX-License-Identifier: Apache-2.0
"""Late periods of a test. Their fraction and the longest gap decide whether the test is valid."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from rths_nodes.core.data import Data
from rths_nodes.core.samples import ROUNDING

MOST_LATE = 0.02
"""Largest fraction of late periods in a valid test."""


@dataclass(frozen=True)
class LateData:
    """Late periods: number of ``bridged`` samples, and number of periods whose tick the host's clock ``missed``.

    ``gap`` is the longest time of consecutive late periods, s. ``max_bridge`` is the largest ``gap`` of a valid
    test, s.
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
        """Return late periods from sorted numbers of bridged ``samples`` of ``dt`` s, without missed periods."""
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
        """Return the reasons why a test of ``samples`` samples is not valid, as one text; empty if it is valid."""
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
