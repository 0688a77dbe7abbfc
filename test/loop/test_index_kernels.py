# SPDX-License-Identifier: Apache-2.0
"""Kernels of the indices: what may stand in them, and that arrays of the same give the same bits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from driven_kernels import SAMPLES, functions_of, in_c, numbers, same, wrong_in

from rths_nodes.loop.indices import energy_monitor
from rths_nodes.loop.indices import tracking as axis
from rths_nodes.loop.indices.energy_monitor import FEW, EnergyMonitor
from rths_nodes.loop.indices.tracking import Tracking


def of_axis(metres: Iterator[float], newtons: Iterator[float]) -> tuple[Any, Any, list[Any]]:
    rows = [(next(metres), next(metres), next(newtons)) for _ in range(SAMPLES)]
    return axis.Constants(0.5), axis.anew(0.0, 0.0, 0.0), rows


def of_targets(metres: Iterator[float], newtons: Iterator[float]) -> tuple[Any, Any, list[Any]]:
    energy, *state = energy_monitor.rest(3)
    rows = [tuple(np.array([next(each) for _ in range(3)]) for each in (metres, newtons)) for _ in range(SAMPLES)]
    return (), (energy, *map(np.array, state)), rows


KERNELS = {axis: of_axis, energy_monitor: of_targets}
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=[each.__name__.split(".")[-1] for each in KERNELS])


@every_kernel
def test_a_step_is_arithmetic_and_nothing_else(kernel: Any) -> None:
    found = {each.__qualname__: wrong_in(each) for each in functions_of(kernel.step, {}).values()}
    assert "step" in found
    assert {name: words for name, words in found.items() if words} == {}


@pytest.mark.parametrize("extreme", [False, True], ids=["random", "extreme"])
@every_kernel
def test_plain_and_compiled_give_the_same_bits(kernel: Any, extreme: bool) -> None:
    rng = np.random.default_rng(9)
    constants, state, rows = KERNELS[kernel](numbers(rng, 0.01, extreme), numbers(rng, 1e5, extreme))
    plain, quick = state, tuple(each.copy() if isinstance(each, np.ndarray) else each for each in state)
    if kernel is energy_monitor:  # in plain Python the numbers are floats, not those of numpy
        plain = tuple(each.tolist() if isinstance(each, np.ndarray) else each for each in state)
    step = in_c(kernel.step, constants, quick, *rows[0])
    for sample, inputs in enumerate(rows):
        floats = [each.tolist() if isinstance(each, np.ndarray) else each for each in inputs]
        with np.errstate(all="ignore"):
            plain, found = kernel.step(constants, plain, *floats)
        quick, quickly = step(constants, quick, *inputs)
        assert same(found, quickly), (sample, inputs, found, quickly)
        assert same(plain, quick), (sample, inputs, plain, quick)


@pytest.mark.parametrize("n_dof", [1, 3, 30])
def test_targets_in_a_row_are_counted_as_one_by_one_to_the_bit(n_dof: int) -> None:
    rng = np.random.default_rng(n_dof)
    x, f = np.cumsum(rng.normal(0.0, 1.0, (200, n_dof)), axis=0), rng.normal(0.0, 1e6, (200, n_dof))
    state, energies = energy_monitor.start(energy_monitor.rest(n_dof), x[0].tolist()), []
    for row in range(200):
        state, energy = energy_monitor.step((), state, x[row].tolist(), f[row].tolist())
        energies.append(energy)
    whole, parts = EnergyMonitor(n_dof, 0.0), EnergyMonitor(n_dof, 0.0)
    nothing = np.full((200, 1), np.nan)
    assert whole.over(x, f, nothing).tolist() == energies
    rows = [*range(0, 200, FEW + 3), 200]
    found = [
        parts.over(*(values[start:end] for values in (x, f, nothing)))
        for start, end in zip(rows, [*rows[1:], 200], strict=True)
    ]
    assert np.concatenate(found).tolist() == energies
    for monitor in (whole, parts):
        assert list(monitor.now.highest) == x.max(axis=0).tolist()
        assert list(monitor.now.lowest) == x.min(axis=0).tolist()
        assert list(monitor.now.before) == x[-1].tolist()


def test_energies_that_are_told_take_the_place_of_those_that_are_counted() -> None:
    monitor = EnergyMonitor(2, 0.0)
    told = np.array([[0.0], [3.0], [math.nan], [5.0], [4.0], [7.0]])
    x, f = np.zeros((6, 2)), np.ones((6, 2))
    assert monitor.over(x, f, told).tolist() == [0.0, 3.0, 3.0, 5.0, 4.0, 7.0]


def test_what_is_no_number_stays_in_the_indices() -> None:
    """A nan that a later sample hid would be a test without an error."""
    rng = np.random.default_rng(2)
    c, m, f = rng.normal(0.0, 1.0, (3, 20, 1))
    for column in (c, m):
        broken = column.copy()
        broken[7] = math.nan
        given = (broken, m) if column is c else (c, broken)
        tracking = Tracking(1, 1)
        indicator, error = tracking.over(*given, f)
        assert np.isnan(indicator[:, 0]).tolist() == np.isnan(error).tolist() == [k >= 7 for k in range(20)]
        assert math.isnan(tracking.maximum[0])
        assert math.isnan(tracking.norm_percent[0])
    x = np.zeros((20, 2))
    x[7, 1] = math.nan
    for monitor, at_once in ((EnergyMonitor(2, 0.0), 20), (EnergyMonitor(2, 0.0), 1)):
        for start in range(0, 20, at_once):
            rows = slice(start, start + at_once)
            monitor.over(x[rows], x[rows], np.full((at_once, 1), np.nan))
        assert np.isnan([*monitor.now.highest, *monitor.now.lowest]).tolist() == [False, True, False, True]
        assert math.isnan(monitor.input)


def test_a_step_leaves_the_state_before_as_it_was() -> None:
    before = axis.State(*axis.anew(0.1, 0.2, 3.0))
    after, (indicator, energy) = axis.step(axis.Constants(0.5), before, 0.3, 0.1, 4.0)
    assert before == axis.State(*axis.anew(0.1, 0.2, 3.0))
    assert (after[4], after[5]) == (indicator, energy)
    again, *_ = axis.step(axis.Constants(0.5), before, 0.3, 0.1, 4.0)
    assert again == after


@pytest.mark.parametrize("n_axes", [1, 3])
def test_samples_in_a_row_are_counted_as_one_by_one(n_axes: int) -> None:
    """Over more than a chunk, wherever it is cut; with a number that is none at its end."""
    rng = np.random.default_rng(n_axes)
    c, m, f = np.cumsum(rng.normal(0.0, 1e-3, (3, 6000, n_axes)), axis=1)
    m[-30, 0], f[-40, -1] = math.nan, math.inf
    scale = np.array([1.0, 2.5, 0.3])[:n_axes]
    one, other, cut = (Tracking(n_axes, 40, scale) for _ in range(3))
    for sample, each in enumerate(zip(c.tolist(), m.tolist(), f.tolist(), strict=True)):
        one.step(sample, *each)
        if sample == 5900:
            before = one.states, [one.energy_error]
    other.over(c[:5901], m[:5901], f[:5901])
    close((other.states, [other.energy_error]), before)
    indicators, errors = other.over(c[5901:], m[5901:], f[5901:])
    for start, end in ((0, 0), (0, 3), (3, 4000), (4000, 4004), (4004, 6000)):
        found = cut.over(c[start:end], m[start:end], f[start:end])
    for tracking in (other, cut):
        close((tracking.states, [tracking.energy_error]), (one.states, [one.energy_error]))
        rows, expected = (list(each.indices("abc"[:n_axes], 1e-3).values()) for each in (tracking, one))
        close([[*row.values()] for row in rows], [[*row.values()] for row in expected])
        assert tracking.sample == one.sample
    close((indicators, errors), (found[0][-len(errors) :], found[1][-len(errors) :]))


def close(found: Any, expected: Any) -> None:
    """Compare up to the rounding of sums over 6000 samples."""
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)
