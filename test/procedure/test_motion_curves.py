# SPDX-License-Identifier: Apache-2.0
"""Curves of motions of the procedure: every sample is in a column of its motion, whoever looks when."""

from __future__ import annotations

import numpy as np
import pytest

from rths_nodes.core.samples import MODE_DISPLACEMENT, MODE_FORCE, Array, Measurement
from rths_nodes.loop.indices.live_columns import FIRST, HIGHEST, LAST, LOWEST, MOST, OF_AXIS, MotionCurves

RATE = 1000.0
PER = 10
MEASURED, FORCE, ERROR = (OF_AXIS.index(name) for name in ("measured", "force", "error"))


def measured(sample: int, moved: Array, mode: int = MODE_DISPLACEMENT) -> Measurement:
    nothing = np.zeros(0)
    modes = bytes([mode] * len(moved))
    return Measurement(sample, moved, 1e3 * moved, moved, nothing, 0, modes)


def taken(curves: MotionCurves) -> dict[int, Array]:
    """Columns by motion, of one look."""
    found = {}
    for number, per, first, values in curves.take():
        assert per == PER
        assert first % PER == 0
        found[number] = values
    return found


@pytest.mark.parametrize("look", [7, 50, 1000])
def test_no_sample_is_left_out(look: int) -> None:
    curves, found = MotionCurves([False], RATE), dict[int, list[Array]]()
    walk = np.random.default_rng(look).normal(size=(437, 1)).cumsum(axis=0)
    for sample, x in enumerate(walk):
        curves.add(measured(1000 + sample, x), x + 0.5)
        if sample % look == 0:
            for number, each in taken(curves).items():
                found.setdefault(number, []).append(each)
    for _ in range(2):  # what stands still is over
        for number, each in taken(curves).items():
            found.setdefault(number, []).append(each)
    assert list(found) == [1]
    columns = np.concatenate(found[1])
    rows = [walk[at : at + PER, 0] for at in range(0, len(walk), PER)]
    np.testing.assert_allclose(columns[:, MEASURED, LOWEST], [each.min() for each in rows])
    np.testing.assert_allclose(columns[:, MEASURED, HIGHEST], [each.max() for each in rows])
    np.testing.assert_allclose(columns[:, MEASURED, FIRST], [each[0] for each in rows])
    np.testing.assert_allclose(columns[:, MEASURED, LAST], [each[-1] for each in rows])
    np.testing.assert_allclose(columns[:, FORCE], 1e3 * columns[:, MEASURED])
    np.testing.assert_allclose(columns[:, ERROR], 0.5, atol=1e-9)


def test_another_motion_has_another_number_and_begins_at_its_first_sample() -> None:
    curves = MotionCurves([False], RATE)
    for sample in (*range(25), *range(900, 915)):
        curves.add(measured(sample, np.array([float(sample)])), np.zeros(1))
    first = taken(curves)
    assert {number: len(each) for number, each in first.items()} == {1: 3, 2: 1}
    assert first[1][-1, MEASURED, LAST] == 24.0
    rest = taken(curves)
    assert rest[2][-1, MEASURED, LAST] == 914.0
    assert taken(curves) == {}


def test_where_nobody_looks_little_is_kept() -> None:
    curves = MotionCurves([False], RATE)
    for motion in range(3 * MOST):
        for sample in range(3):
            curves.add(measured(1000 * motion + sample, np.zeros(1)), np.zeros(1))
    assert list(taken(curves)) == list(range(2 * MOST + 1, 3 * MOST))  # the last one is under way


def test_an_axis_in_the_other_mode_has_no_target() -> None:
    curves = MotionCurves([True], RATE)
    for sample in range(PER):
        curves.add(measured(sample, np.array([0.1])), np.array([0.1]))
    for sample in range(PER, 2 * PER):
        curves.add(measured(sample, np.array([0.1]), MODE_FORCE), np.array([90.0]))
    columns = taken(curves)[1]
    assert np.isnan(columns[0, [0, ERROR]]).all()
    np.testing.assert_allclose(columns[1, 0], 90.0)
    np.testing.assert_allclose(columns[1, ERROR], -10.0)
