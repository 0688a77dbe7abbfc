# SPDX-License-Identifier: Apache-2.0
"""Tests of the kernels of indices: allowed operations, and equal results for single samples and arrays."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
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
    rows = [tuple(np.array([next(x) for _ in range(3)]) for x in (metres, newtons)) for _ in range(SAMPLES)]
    return (), (energy, *map(np.array, state)), rows


KERNELS = {axis: of_axis, energy_monitor: of_targets}
NAMES = [module.__name__.split(".")[-1] for module in KERNELS]
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=NAMES)


def plain_values(values: Any) -> Any:
    """Return a tuple with lists of floats in place of arrays."""
    return tuple(value.tolist() if isinstance(value, np.ndarray) else value for value in values)


@every_kernel
def test_step_contains_only_arithmetic(kernel: Any) -> None:
    faults = {function.__qualname__: wrong_in(function) for function in functions_of(kernel.step, {}).values()}
    assert "step" in faults
    assert not any(faults.values()), faults


@pytest.mark.parametrize("extreme", [False, True], ids=["random", "extreme"])
@every_kernel
def test_plain_and_compiled_have_same_bits(kernel: Any, extreme: bool) -> None:
    rng = np.random.default_rng(9)
    constants, state, rows = KERNELS[kernel](numbers(rng, 0.01, extreme), numbers(rng, 1e5, extreme))
    compiled = tuple(value.copy() if isinstance(value, np.ndarray) else value for value in state)
    plain = plain_values(state) if kernel is energy_monitor else state
    step = in_c(kernel.step, constants, compiled, *rows[0])
    for sample, inputs in enumerate(rows):
        with np.errstate(all="ignore"):
            plain, expected = kernel.step(constants, plain, *plain_values(inputs))
        compiled, result = step(constants, compiled, *inputs)
        assert same(expected, result), (sample, inputs, expected, result)
        assert same(plain, compiled), (sample, inputs, plain, compiled)


@pytest.mark.parametrize("n_dof", [1, 3, 30])
def test_energies_of_arrays_equal_those_of_samples(n_dof: int) -> None:
    rng = np.random.default_rng(n_dof)
    x, f = np.cumsum(rng.normal(0.0, 1.0, (200, n_dof)), axis=0), rng.normal(0.0, 1e6, (200, n_dof))
    state, energies = energy_monitor.start(energy_monitor.rest(n_dof), x[0].tolist()), []
    for row in range(200):
        state, energy = energy_monitor.step((), state, x[row].tolist(), f[row].tolist())
        energies.append(energy)
    at_once, in_parts = EnergyMonitor(n_dof, 0.0), EnergyMonitor(n_dof, 0.0)
    missing = np.full((200, 1), np.nan)
    assert at_once.over(x, f, missing).tolist() == energies
    results = [
        in_parts.over(*(values[start:end] for values in (x, f, missing)))
        for start, end in pairwise([*range(0, 200, FEW + 3), 200, 200])
    ]
    assert np.concatenate(results).tolist() == energies
    for monitor in (at_once, in_parts):
        assert list(monitor.now.highest) == x.max(axis=0).tolist()
        assert list(monitor.now.lowest) == x.min(axis=0).tolist()
        assert list(monitor.now.before) == x[-1].tolist()


def test_given_energies_replace_computed_ones() -> None:
    monitor = EnergyMonitor(2, 0.0)
    measured = np.array([[0.0], [3.0], [math.nan], [5.0], [4.0], [7.0]])
    assert monitor.over(np.zeros((6, 2)), np.ones((6, 2)), measured).tolist() == [0.0, 3.0, 3.0, 5.0, 4.0, 7.0]


def test_nan_stays_in_indices() -> None:
    """A NaN hidden by later samples would look like a test without errors."""
    rng = np.random.default_rng(2)
    c, m, f = rng.normal(0.0, 1.0, (3, 20, 1))
    for column in (c, m):
        broken = column.copy()
        broken[7] = math.nan
        tracking = Tracking(1, 1)
        indicator, error = tracking.over(broken if column is c else c, broken if column is m else m, f)
        assert np.isnan(indicator[:, 0]).tolist() == np.isnan(error).tolist() == [k >= 7 for k in range(20)]
        assert math.isnan(tracking.maximum[0])
        assert math.isnan(tracking.norm_percent[0])
    x = np.zeros((20, 2))
    x[7, 1] = math.nan
    for size in (20, 1):
        monitor = EnergyMonitor(2, 0.0)
        for start in range(0, 20, size):
            rows = slice(start, start + size)
            monitor.over(x[rows], x[rows], np.full((size, 1), np.nan))
        assert np.isnan([*monitor.now.highest, *monitor.now.lowest]).tolist() == [False, True, False, True]
        assert math.isnan(monitor.input)


def test_step_leaves_previous_state_unchanged() -> None:
    before = axis.State(*axis.anew(0.1, 0.2, 3.0))
    after, (indicator, energy) = axis.step(axis.Constants(0.5), before, 0.3, 0.1, 4.0)
    assert before == axis.State(*axis.anew(0.1, 0.2, 3.0))
    assert (after[4], after[5]) == (indicator, energy)
    assert axis.step(axis.Constants(0.5), before, 0.3, 0.1, 4.0)[0] == after


@pytest.mark.parametrize("n_axes", [1, 3])
def test_indices_of_arrays_equal_those_of_samples(n_axes: int) -> None:
    """Over more than a chunk, split at any sample, with non-finite values near the end."""
    rng = np.random.default_rng(n_axes)
    c, m, f = np.cumsum(rng.normal(0.0, 1e-3, (3, 6000, n_axes)), axis=1)
    m[-30, 0], f[-40, -1] = math.nan, math.inf
    scale = np.array([1.0, 2.5, 0.3])[:n_axes]
    single, halves, parts = (Tracking(n_axes, 40, scale) for _ in range(3))
    for sample, values in enumerate(zip(c.tolist(), m.tolist(), f.tolist(), strict=True)):
        single.step(sample, *values)
        if sample == 5900:
            before = single.states, [single.energy_error]
    halves.over(c[:5901], m[:5901], f[:5901])
    check_close((halves.states, [halves.energy_error]), before)
    indicators, errors = halves.over(c[5901:], m[5901:], f[5901:])
    for start, end in pairwise((0, 0, 3, 4000, 4004, 6000)):
        result = parts.over(c[start:end], m[start:end], f[start:end])
    for tracking in (halves, parts):
        check_close((tracking.states, [tracking.energy_error]), (single.states, [single.energy_error]))
        rows, expected = (list(t.indices("abc"[:n_axes], 1e-3).values()) for t in (tracking, single))
        check_close([[*row.values()] for row in rows], [[*row.values()] for row in expected])
        assert tracking.sample == single.sample
    check_close((indicators, errors), (result[0][-len(errors) :], result[1][-len(errors) :]))


def check_close(results: Any, expected: Any) -> None:
    """Compare up to the rounding of sums over 6000 samples."""
    for values, reference in zip(results, expected, strict=True):
        np.testing.assert_allclose(values, reference, rtol=1e-10, atol=1e-12)
