# SPDX-License-Identifier: Apache-2.0
"""Convergence from run to run: the row of each run, and the rule by which another one follows or not.

The error of a run is the distance, rms below the cut-off and as a part of the target's, that is still to go: of
tracking, from the target to the measured displacement; of whole histories, from the measured displacement to that
at which both substructures agree, as the specimens of the run tell it. A small residual is not enough there: near
a resonance it is a large distance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from rths_nodes.core.errors import ConfigError

TRACKING, HISTORY = "tracking", "history"
"""Modes: the commands are corrected, or the targets and the commands."""
CONVERGED, SOFTENED, DIVERGED, ENDED, EXHAUSTED = "converged", "softened", "diverged", "ended", "not converged"
HELD = "held"
"""Verdicts after which no run follows; held before a run that would leave its bounds."""
RISES = 2
"""Number of consecutive rises of the error after which the iteration ends."""
SOFTER = 0.05
"""Largest loss of force for the same motion since the first run, as a part of it."""
TOLERANCE = 0.5
"""Error that is small enough, % of the rms of the target."""
AT_FLOOR = 2.0
"""Largest ratio of error to noise that counts as converged; two runs of the same commands differ by sqrt(2)."""


@dataclass(frozen=True)
class Row:
    """A run in the table of convergence; percentages are of the rms of the target, of the worst axis.

    ``error`` to go, ``noise`` below the cut-off, ``residual`` of whole histories; ``missed`` the measured
    displacement from its target, all frequencies, m rms. ``true`` is the distance of the true displacement, which
    a simulator knows, from the target (tracking) or from the structure in one piece as the scenario states it.
    ``answer`` by axis: the force of the specimen, as a part of what that of the first run would give to the same
    motion. ``command``, ``velocity`` and ``force`` are peaks in parts of those of the first run.
    """

    number: int
    outcome: str
    reason: str = ""
    error: float = math.nan
    noise: float = math.nan
    residual: float = math.nan
    missed: float = math.nan
    true: float = math.nan
    answer: dict[str, float] = field(default_factory=dict)
    command: float = math.nan
    velocity: float = math.nan
    force: float = math.nan
    recording: str = ""


@dataclass(frozen=True)
class Rule:
    """When an iteration ends: at most ``runs``; ``tolerance`` % of the target's rms, or the noise, is enough."""

    runs: int = 5
    tolerance: float = TOLERANCE

    def __post_init__(self) -> None:
        if not 1 <= self.runs <= 50:
            raise ConfigError(f"--runs {self.runs}: must be >= 1 and <= 50")
        if not 0.0 < self.tolerance <= 100.0:
            raise ConfigError(f"--tolerance {self.tolerance:g} %: must be > 0 and <= 100 %")

    def verdict(self, rows: Sequence[Row]) -> tuple[str, str]:
        """Verdict and its reason in words; empty where another run follows."""
        last = rows[-1]
        if last.outcome != "finished":
            return ENDED, f"run {last.number} {last.outcome}: {last.reason}"
        if losses := softened(last.answer):
            return SOFTENED, "; ".join(losses)
        if by := enough(last.error, last.noise, self.tolerance):
            return CONVERGED, f"error {last.error:.3g} %, within {by}"
        if words := risen([row.error for row in rows]):
            return DIVERGED, words
        if last.number >= self.runs:
            return EXHAUSTED, f"error {last.error:.3g} % after {last.number} runs"
        return "", ""


def risen(errors: Sequence[float]) -> str:
    """Describe ``RISES`` consecutive rises at the end of the ``errors`` (%); empty if there are none."""
    tail = errors[-RISES - 1 :]
    if len(tail) <= RISES or not all(after > before for before, after in pairwise(tail)):
        return ""
    return f"the error has risen {RISES} times: {', '.join(f'{error:.3g}' for error in tail)} %"


def enough(error: float, noise: float, tolerance: float = TOLERANCE) -> str:
    """Name the bound that an ``error`` (%) meets, the tolerance or the ``noise``; empty if it meets none."""
    if not error <= max(tolerance, AT_FLOOR * noise):
        return ""
    return "the tolerance" if error <= tolerance else "twice the noise of the sensor"


def softened(answer: Mapping[str, float]) -> list[str]:
    """Describe the axes that have lost more than ``SOFTER`` of their force since the first run.

    ``answer`` by axis: the force, as a part of the force of the first run for the same motion.
    """
    return [
        f"axes.{axis}: {100.0 * (1.0 - part):.3g} % less force for the same motion than in run 1: must be <= "
        f"{100.0 * SOFTER:g} %"
        for axis, part in answer.items()
        if part < 1.0 - SOFTER
    ]
