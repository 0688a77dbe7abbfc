# SPDX-License-Identifier: Apache-2.0
"""Table of a study, with one row per run, and its evaluation."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from rths_nodes.analysis.units import rounded
from rths_nodes.core.samples import Array

FEW_LEVELS = 12
"""Number of levels of a numeric factor above which it is plotted as continuous."""
LOW, HIGH = 5.0, 95.0
REFUSED, LOST = "refused", "lost"
"""Outcomes of runs without a test: the scenario was refused, or the process of the run died."""
INFINITE = "∞"
AMPLITUDE = "fei_amplitude"
T = TypeVar("T", float, Array)
UNIT_BY_FIRST_WORD = {"J1": "ms", "J2": "%", "J3": "%", "response": "%", "acceleration": "%"}
UNIT_BY_WORD = {"ms": "ms", "mm": "mm", "percent": "%"}


class Spread(NamedTuple):
    """Distribution of an index's magnitude in a group, or at one level of a factor within the group.

    ``runs`` is the number of finished and failed runs. ``low`` and ``high`` are the 5th and 95th percentiles. The
    magnitude of a failed run is infinite.
    """

    group: str
    level: str
    rows: NDArray[np.intp]
    runs: int
    failed: int
    low: float
    median: float
    high: float
    worst: float

    @property
    def finished(self) -> str:
        return f"{self.runs - self.failed} of {self.runs}"


@dataclass(frozen=True, eq=False)
class StudyTable:
    """Results of a study, one row for each run.

    ``columns`` holds ``name``, ``outcome`` and ``reason``, then factors, drawn values and indices. Factors vary
    over levels; drawn values come from a distribution. ``indices`` are displayed; a missing index is NaN.
    Runs are grouped by the factors whose levels are names (laws, cases). Groups are never pooled.
    """

    title: str
    description: str
    scenario: str
    columns: Mapping[str, Sequence[Any]]
    factors: tuple[str, ...]
    indices: tuple[str, ...]
    drawn: tuple[str, ...] = ()
    titles: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.columns["name"])

    @cached_property
    def finished(self) -> NDArray[np.bool_]:
        return np.isin(self.columns["outcome"], ["finished"])

    @cached_property
    def failed(self) -> NDArray[np.bool_]:
        return ~np.isin(self.columns["outcome"], ["finished", REFUSED, LOST])

    def outcomes(self) -> dict[str, int]:
        counts = Counter({"finished": 0})
        counts.update(self.columns["outcome"])
        return {outcome: count for outcome, count in counts.items() if count}

    def title_of(self, column: str) -> str:
        return self.titles.get(column) or index_title(column)

    def values(self, index: str) -> Array:
        """Return the values of an index, ``(n,)``; NaN for unfinished runs."""
        values = np.array([value if is_number(value) else math.nan for value in self.columns[index]], float)
        return np.where(self.finished, values, np.nan)

    def magnitudes(self, index: str) -> Array:
        """Return the magnitudes of an index, ``(n,)``: inf for failed runs, NaN for runs without a test.

        A finished run without the index (delay too long) counts as inf if other runs of its group have the index.
        """
        size = np.where(self.failed, np.inf, magnitude(index, self.values(index)))
        for rows in self.groups.values():
            if np.isfinite(size[rows]).any():
                size[rows[self.finished[rows] & np.isnan(size[rows])]] = np.inf
        return size

    def continuous(self, factor: str) -> bool:
        many = factor in self.drawn or len(set(self.columns[factor])) > FEW_LEVELS
        return many and self._numeric(factor)

    def _numeric(self, factor: str) -> bool:
        return all(map(is_number, self.columns[factor]))

    @property
    def shown_factors(self) -> tuple[str, ...]:
        return tuple(key for key in (*self.factors, *self.drawn) if self._numeric(key))

    @cached_property
    def groups(self) -> dict[str, NDArray[np.intp]]:
        """Row numbers by group, in order of appearance; a single unnamed group if no factor has named levels."""
        named = [self.columns[factor] for factor in self.factors if not self._numeric(factor)]
        labels = [", ".join(map(shown, levels)) for levels in zip(*named, strict=True)] or [""] * len(self)
        rows: dict[str, list[int]] = {}
        for row, label in enumerate(labels):
            rows.setdefault(label, []).append(row)
        return {label: np.array(row) for label, row in rows.items()}

    def spreads(self, index: str, factor: str = "") -> list[Spread]:
        """Return the spread of an index in each group, or at each level of a factor within each group."""
        size, failed = self.magnitudes(index), self.failed
        spreads = []
        for group, members in self.groups.items():
            labels = np.array([shown(self.columns[factor][row]) if factor else "" for row in members])
            for level in dict.fromkeys(labels.tolist()):
                rows = members[labels == level]
                tested = rows[(failed | self.finished)[rows]]
                values = [percentile(size[tested], percent) for percent in (LOW, 50.0, HIGH, 100.0)]
                spreads.append(Spread(group, level, rows, len(tested), int(failed[tested].sum()), *values))
        return spreads

    def summary(self, index: str) -> list[tuple[str, list[str]]]:
        """Return the number of finished runs and the median, low, high and worst magnitude by group, as text."""
        return [
            (row.group, [row.finished, *map(in_cell, (row.median, row.low, row.high, row.worst))])
            for row in self.spreads(index)
        ]

    def worst(self, index: str, count: int, group: str = "") -> list[int]:
        """Return at most ``count`` rows with the largest magnitudes of an index. Unfinished runs come first.

        The rows belong to ``group``, or to any group if ``group`` is empty.
        """
        rows = self.groups[group] if group else np.arange(len(self))
        size = np.where(self.finished, self.magnitudes(index), np.inf)[rows]
        order = np.argsort(-np.nan_to_num(size, nan=-1.0, posinf=np.inf), kind="stable")
        return [int(row) for row in rows[order[:count]]]


def magnitude(index: str, values: T) -> T:
    """Return the magnitudes of an index: distances from 0, or from 1 for an amplitude ratio."""
    return abs(values - 1.0 if index.startswith(AMPLITUDE) else values)


def percentile(size: Array, percent: float) -> float:
    """Return a percentile of magnitudes, ignoring NaN: inf if it falls on a failed run, NaN if all are NaN.

    A percentile below the median is rounded down to the magnitude of a run, a percentile above it is rounded up.
    """
    size = size[~np.isnan(size)]
    if not len(size):
        return math.nan
    if percent == 50.0:
        return float(np.median(size))
    return float(np.percentile(size, percent, method="lower" if percent < 50.0 else "higher"))


def index_unit(name: str) -> str:
    parts = name.split("_")
    return next(
        (UNIT_BY_WORD[word] for word in parts if word in UNIT_BY_WORD), UNIT_BY_FIRST_WORD.get(parts[0], "")
    )


def index_title(name: str) -> str:
    unit = index_unit(name)
    text = " ".join(words_of(name))
    return f"{text} ({unit})" if unit else text


def words_of(name: str) -> list[str]:
    return [word for word in name.split("_") if word not in UNIT_BY_WORD]


def in_cell(value: float) -> str:
    return INFINITE if math.isinf(value) else rounded(value)


def shown(value: object) -> str:
    return f"{value:.6g}" if is_number(value) else str(value)


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
