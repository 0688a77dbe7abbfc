# SPDX-License-Identifier: Apache-2.0
"""Convergence from run to run (``doc/iterate.md``): the row of each run, and the rule for continuing.

A small residual is not sufficient: near a resonance the error may still be large.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from rths_nodes.core.errors import ConfigError

TRACKING, HISTORY = "tracking", "history"
"""Modes: correction of the commands only, or of targets and commands."""
CONVERGED, SOFTENED, DIVERGED, ENDED, EXHAUSTED = "converged", "softened", "diverged", "ended", "not converged"
HELD = "held"
"""Verdict if the next run would exceed its bounds. Every verdict ends the iteration."""
RISES = 2
SOFTER = 0.05
"""Largest permitted relative loss of force for the same motion since the first run."""
TOLERANCE = 0.5
"""Default tolerance of the error, % of the rms of the target."""
AT_FLOOR = 2.0
"""Largest ratio of error to noise at which an iteration has converged. The difference of two equal runs has a
ratio of sqrt(2)."""


@dataclass(frozen=True)
class Row:
    """Results of a run. Percentages are relative to the target's rms, for the worst axis.

    ``error`` (%) is the remaining error, ``noise`` (%) the noise below the cut-off, and ``residual`` (%) the
    residual of whole histories. ``missed`` (m rms) is the target minus the displacement, at all frequencies.
    ``true`` (%) is the error of a simulator's true displacement, relative to the target in the mode ``tracking``,
    otherwise relative to the structure in one piece. ``answer`` is the force of each specimen divided by its force
    for the same motion in the first run. ``command``, ``velocity`` and ``force`` are peaks relative to the first
    run.
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
    """Ends an iteration after ``runs`` runs or within the ``tolerance`` (% of the rms of the target)."""

    runs: int = 5
    tolerance: float = TOLERANCE

    def __post_init__(self) -> None:
        if not 1 <= self.runs <= 50:
            raise ConfigError(f"--runs {self.runs}: must be >= 1 and <= 50")
        if not 0.0 < self.tolerance <= 100.0:
            raise ConfigError(f"--tolerance {self.tolerance:g} %: must be > 0 and <= 100 %")

    def verdict(self, rows: Sequence[Row]) -> tuple[str, str]:
        last = rows[-1]
        if last.outcome != "finished":
            return ENDED, f"run {last.number} {last.outcome}: {last.reason}"
        if losses := softened(last.answer):
            return SOFTENED, "; ".join(losses)
        if by := enough(last.error, last.noise, self.tolerance):
            return CONVERGED, f"the error of {last.error:.3g} % is within {by}"
        if reason := risen([row.error for row in rows]):
            return DIVERGED, reason
        if last.number >= self.runs:
            return EXHAUSTED, f"the error is {last.error:.3g} % after run {last.number}, the last run"
        return "", ""


def risen(errors: Sequence[float]) -> str:
    tail = errors[-RISES - 1 :]
    if len(tail) <= RISES or not all(after > before for before, after in pairwise(tail)):
        return ""
    return f"the error has risen {RISES} times in succession: {', '.join(f'{error:.3g}' for error in tail)} %"


def enough(error: float, noise: float, tolerance: float = TOLERANCE) -> str:
    """Return the bound that an ``error`` (%) satisfies: ``tolerance`` or twice the ``noise`` (%); "" if none."""
    if not error <= max(tolerance, AT_FLOOR * noise):
        return ""
    return "the tolerance" if error <= tolerance else "twice the noise of the sensor"


def softened(answer: Mapping[str, float]) -> list[str]:
    return [
        f"axes.{axis}: the force for the same motion is {100.0 * (1.0 - part):.3g} % smaller than in run 1; the "
        f"reduction must be <= {100.0 * SOFTER:g} %"
        for axis, part in answer.items()
        if part < 1.0 - SOFTER
    ]
