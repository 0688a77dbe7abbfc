"""Kernels of the indices: what may stand in them, and that arrays of the same give the same bits."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import numpy as np
import pytest

from rths_nodes.loop.supervision import kernels
from rths_nodes.loop.supervision.energy_monitor import FEW, EnergyMonitor
from rths_nodes.loop.supervision.indices import Tracking
from rths_nodes.loop.supervision.kernels import axis, targets

FOLDER = Path(kernels.__file__).parent
KERNELS = sorted(path.name for path in FOLDER.glob("*.py") if path.name != "__init__.py")
CALLED = {"abs", "len", "range"}
REFUSED = (ast.Raise, ast.Try, ast.Assert, ast.JoinedStr, ast.Pow, ast.Lambda, ast.ClassDef)


def functions(name: str) -> list[ast.FunctionDef]:
    tree = ast.parse((FOLDER / name).read_text(encoding="utf-8"))
    return [node for node in tree.body if isinstance(node, ast.FunctionDef)]


@pytest.mark.parametrize("name", KERNELS)
def test_a_step_is_arithmetic_and_nothing_else(name: str) -> None:
    """Without numpy, math, strings, exceptions and powers, and with calls only of what stands beside it."""
    local = {function.name for function in functions(name)}
    assert "step" in local
    for function in functions(name):
        if function.name in ("rest", "start"):  # once, before a test
            continue
        docstring = function.body[0]
        for node in (each for statement in function.body[1:] for each in ast.walk(statement)):
            assert not isinstance(node, (*REFUSED, ast.Attribute)), f"{name}:{node.lineno}"
            if isinstance(node, ast.Call):
                assert isinstance(node.func, ast.Name)
                assert node.func.id in local | CALLED, f"{name}:{node.lineno}"
            assert not (isinstance(node, ast.Constant) and isinstance(node.value, str)), f"{name}:{node.lineno}"
        assert isinstance(docstring, ast.Expr)


@pytest.mark.parametrize("n_dof", [1, 3, 30])
def test_targets_in_a_row_are_counted_as_one_by_one_to_the_bit(n_dof: int) -> None:
    rng = np.random.default_rng(n_dof)
    x, f = np.cumsum(rng.normal(0.0, 1.0, (200, n_dof)), axis=0), rng.normal(0.0, 1e6, (200, n_dof))
    state, energies = targets.start(targets.rest(n_dof), x[0].tolist()), []
    for row in range(200):
        state, energy = targets.step((), state, x[row].tolist(), f[row].tolist(), math.nan)
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
        assert list(monitor.highest) == x.max(axis=0).tolist()
        assert list(monitor.lowest) == x.min(axis=0).tolist()
        assert list(monitor.last) == x[-1].tolist()


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
        assert np.isnan([*monitor.highest, *monitor.lowest]).tolist() == [False, True, False, True]
        assert math.isnan(monitor.input)


def test_a_step_leaves_the_state_before_as_it_was() -> None:
    before = axis.rest(0.1, 0.2, 3.0)
    after, indicator, energy = axis.step(axis.Constants(0.5), before, 0.3, 0.1, 4.0)
    assert before == axis.rest(0.1, 0.2, 3.0)
    assert (after[4], after[5]) == (indicator, energy)
    again, *_ = axis.step(axis.Constants(0.5), before, 0.3, 0.1, 4.0)
    assert again == after
