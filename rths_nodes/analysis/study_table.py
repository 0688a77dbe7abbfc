# SPDX-License-Identifier: Apache-2.0
"""The table of a study, with one row for each run, and its evaluation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rths_nodes.core.samples import Array

FEW_LEVELS = 12
"""Values of a factor above which it is drawn as continuous."""
LOW, HIGH = 5.0, 95.0
"""Percentiles of the spread."""


class Level(NamedTuple):
    """Effect of one level of a factor on an index: percentiles over its finished runs."""

    label: str
    runs: int
    low: float
    median: float
    high: float
    worst: float


@dataclass(frozen=True, eq=False)
class StudyTable:
    """Columns of equal length by name: ``name``, ``outcome``, ``reason``, then factors, drawn values, indices.

    ``factors`` are varied by levels, ``drawn`` values have a distribution, ``indices`` are shown. A missing index
    is nan.
    """

    title: str
    description: str
    scenario: str
    columns: Mapping[str, Sequence[Any]]
    factors: tuple[str, ...]
    indices: tuple[str, ...]
    drawn: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.columns["name"])

    @property
    def finished(self) -> NDArray[np.bool_]:
        return np.array([outcome == "finished" for outcome in self.columns["outcome"]], dtype=bool)

    def outcomes(self) -> dict[str, int]:
        """Count the runs by outcome, finished ones first."""
        found = dict.fromkeys(("finished", *self.columns["outcome"]), 0)
        for outcome in self.columns["outcome"]:
            found[outcome] += 1
        return {outcome: count for outcome, count in found.items() if count}

    def values(self, index: str) -> Array:
        """Return an index of all runs ``(n,)``; nan for unfinished ones."""
        given = np.array([value if _is_number(value) else math.nan for value in self.columns[index]], float)
        return np.where(self.finished, given, np.nan)

    def continuous(self, factor: str) -> bool:
        """Return whether a factor is drawn, or has many values, all numbers."""
        values = self.columns[factor]
        many = factor in self.drawn or len(set(values)) > FEW_LEVELS
        return many and all(map(_is_number, values))

    @property
    def shown_factors(self) -> tuple[str, ...]:
        """Factors, and drawn values that are numbers: lists have no effect to show."""
        return self.factors + tuple(key for key in self.drawn if self.continuous(key))

    def levels(self, factor: str, index: str) -> list[Level]:
        size = np.abs(self.values(index))
        labels = [shown(value) for value in self.columns[factor]]
        return [
            Level(label, *_spread(size[[other == label for other in labels]])) for label in dict.fromkeys(labels)
        ]

    def summary(self, index: str) -> dict[str, float]:
        """Return median, percentiles and largest magnitude of an index over the finished runs; nan for none."""
        _, low, median, high, worst = _spread(np.abs(self.values(index)))
        return {"low": low, "median": median, "high": high, "worst": worst}

    def worst(self, index: str, count: int) -> list[int]:
        """Return rows of the largest magnitudes of an index, largest first, after unfinished runs."""
        size = np.where(self.finished, np.abs(self.values(index)), np.inf)
        order = np.argsort(-np.nan_to_num(size, nan=-1.0, posinf=np.inf), kind="stable")
        return [int(row) for row in order[:count]]


def _spread(size: Array) -> tuple[int, float, float, float, float]:
    """Return number, percentiles and largest of the finite magnitudes; nan without any."""
    size = size[np.isfinite(size)]
    if not len(size):
        return 0, math.nan, math.nan, math.nan, math.nan
    low, median, high = map(float, np.percentile(size, (LOW, 50.0, HIGH)))
    return len(size), low, median, high, float(size.max())


def shown(value: object) -> str:
    return f"{value:.6g}" if _is_number(value) else str(value)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
