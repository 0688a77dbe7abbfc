# SPDX-License-Identifier: Apache-2.0
"""Columns of the live curves: no peak is lost, whatever the borders, and what is missing does not count."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rths_nodes.loop.indices.live_columns import (
    FIRST,
    HIGHEST,
    LAST,
    LOWEST,
    OF_AXIS,
    LiveColumns,
    curve_names,
    units,
)

RATE = 1024.0


def added(columns: LiveColumns, samples: range) -> np.ndarray:
    """Rows ``(n, 12)`` of two axes, as they were added."""
    rows = []
    for k in samples:
        values = [[math.sin(0.3 * k + i + 0.5 * n) for n in range(2)] for i in range(5)]
        target, command, measured, force, indicator = values
        columns.add(k, target, command, measured, force, measured, indicator)
        errors = [t - m for t, m in zip(target, measured, strict=True)]
        rows.append([*target, *command, *measured, *force, *errors, *indicator])
    return np.array(rows)


def expected(rows: np.ndarray, per: int) -> np.ndarray:
    """First, lowest, highest, last number of each column of ``rows``."""
    found = []
    for start in range(0, len(rows), per):
        part = rows[start : start + per]
        found.append(np.stack([part[0], part.min(axis=0), part.max(axis=0), part[-1]], axis=1))
    return np.array(found)


@pytest.mark.parametrize(("rate", "samples"), [(1024.0, 10), (4096.0, 41), (256.0, 3), (20.0, 1)])
def test_a_column_has_ten_milliseconds_and_at_least_a_sample(rate: float, samples: int) -> None:
    assert LiveColumns(1, rate).samples_per_column == samples


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.integers(0, 30))
def test_every_column_comes_once_whatever_the_borders(lengths: list[int], stopping: int) -> None:
    columns, rows, parts, at = LiveColumns(2, RATE), [], [], 0
    for length in lengths:
        rows.append(added(columns, range(at, at + length)))
        at += length
        parts.append(columns.take())
    if stopping:
        rows.append(added(columns, range(at, at + stopping)))
    parts.append(columns.take(rest=True))
    assert [first for first, _ in parts] == list(np.cumsum([0, *(10 * len(values) for _, values in parts[:-1])]))
    np.testing.assert_array_equal(np.concatenate([each for _, each in parts]), expected(np.concatenate(rows), 10))
    assert len(columns.take(rest=True)[1]) == 0


def test_a_sample_that_is_missing_does_not_count() -> None:
    columns = LiveColumns(2, RATE)
    first, last = added(columns, range(3)), added(columns, range(7, 10))
    ((_, found),) = [columns.take()]
    np.testing.assert_array_equal(found[0, :, FIRST], first[0])
    np.testing.assert_array_equal(found[0, :, LAST], last[-1])
    np.testing.assert_array_equal(found[0, :, HIGHEST], np.concatenate((first, last)).max(axis=0))
    np.testing.assert_array_equal(found[0, :, LOWEST], np.concatenate((first, last)).min(axis=0))


def test_curves_are_named_by_axis_and_have_units() -> None:
    names = curve_names(["north", "south"])
    assert names[:3] == ["north/target", "south/target", "north/command"]
    assert len(names) == 2 * len(OF_AXIS) == 2 * len(units(of_force=False))
    assert dict(zip(OF_AXIS, units(of_force=True), strict=True))["error"] == "N"
