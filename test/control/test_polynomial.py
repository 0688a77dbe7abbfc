# SPDX-License-Identifier: Apache-2.0
"""Polynomial extrapolation: Table 1 of the paper, Eq. (2) of TADC, exactness, the apparent spring of Eq. (6)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from messages import naming
from scipy.linalg import expm

from rths_nodes.control.compensators.polynomial import MAX_ORDER, weights
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Motion

DT = 1.0 / 1024.0
ORDERS = range(MAX_ORDER + 1)
TABLE_1 = [[1], [2, -1], [3, -3, 1], [4, -6, 4, -1], [5, -10, 10, -5, 1]]


def commands(compensator: Any, targets: np.ndarray) -> np.ndarray:
    """Commands for one axis, ``(n,)``."""
    nothing = np.zeros(1)
    return np.array([compensator.step(Motion(np.array([x]), nothing, nothing), nothing)[0] for x in targets])


@pytest.mark.parametrize("order", ORDERS)
def test_the_weights_are_those_of_table_1(order: int) -> None:
    assert weights(order, 1.0).tolist() == TABLE_1[order]
    assert TABLE_1[order] == [(-1) ** i * math.comb(order + 1, i + 1) for i in range(order + 1)]


@pytest.mark.parametrize("eta", [0.0, 0.3, 0.978, 1.0, 1.7, 2.0])
def test_order_2_is_eq_2_of_tadc(eta: float) -> None:
    expected = [1.0 + 1.5 * eta + 0.5 * eta**2, -(2.0 * eta + eta**2), 0.5 * eta + 0.5 * eta**2]
    np.testing.assert_allclose(weights(2, eta), expected, rtol=1e-15, atol=1e-16)


@pytest.mark.parametrize("order", ORDERS)
def test_without_a_delay_it_is_the_target_and_it_never_scales(order: int) -> None:
    assert weights(order, 0.0).tolist() == [1.0] + [0.0] * order
    assert weights(order, 0.37).sum() == pytest.approx(1.0)


@pytest.mark.parametrize("order", [-1, 5])
def test_weights_of_no_table_are_refused(order: int) -> None:
    with pytest.raises(ValueError, match=f"order = {order}: must be 0 to 4"):
        weights(order, 1.0)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("spacing", [None, 1, 9, 30])
def test_it_is_exact_on_polynomials_of_its_order(
    make: Callable[..., Any], order: int, spacing: int | None
) -> None:
    delay = 0.0137 if spacing is None else 0.8 * max(order, 1) * spacing * DT
    curve = np.polynomial.Polynomial(np.arange(1.0, order + 2.0))
    times = DT * np.arange(200)
    compensator = make("compensator", "polynomial", DT, 1, delay=delay, order=order, spacing=spacing)
    sent = commands(compensator, curve(times))[order * (spacing or 14) :]
    wanted = curve(times + delay) if order else curve(times)
    np.testing.assert_allclose(sent, wanted[-len(sent) :], rtol=1e-10)


def test_a_pure_delay_behind_it_is_gone(make: Callable[..., Any]) -> None:
    nothing = make("specimen", "kelvin_voigt", stiffness=0.0, damping=0.0)
    actuator = make("actuator", "pure_delay", DT, nothing, delay=14 * DT)
    targets = 1e-3 * (DT * np.arange(1, 300)) ** 3
    compensator = make("compensator", "polynomial", DT, 1, delay=14 * DT, order=3)
    measured = []
    for command in commands(compensator, targets).tolist():
        actuator.step(command)
        measured.append(actuator.displacement)
    # 42 samples until the history is full, and 14 until its first command is there
    np.testing.assert_allclose(measured[60:], targets[60:], rtol=1e-9)


# The apparent spring of Eqs. (5) and (6)


def apparent(make: Callable[..., Any], order: int, phase: float, spacing: int = 8) -> complex:
    """k*/k + j c* w/k: a unit spring, moved a spacing late, as a sine of ``phase`` per spacing sees it."""
    compensator = make("compensator", "polynomial", DT, 2, delay=spacing * DT, order=order)
    samples = (order + 1) * spacing
    for k in range(-samples, 1):
        angle = phase * (k - spacing) / spacing  # the actuator is late
        x = np.array([math.cos(angle), math.sin(angle)])
        command = compensator.step(Motion(x, x, x), x)
    return complex(command[0], command[1])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("phase", [0.1, 0.7025, 1.0, 2.5])
def test_the_apparent_spring_is_the_closed_form(make: Callable[..., Any], order: int, phase: float) -> None:
    closed = 1.0 - (1.0 - np.exp(-1j * phase)) ** (order + 1)
    found = apparent(make, order, phase)
    assert found == pytest.approx(closed, abs=1e-12)
    damping = -((2.0 * math.sin(phase / 2.0)) ** (order + 1)) * math.sin((order + 1) * (math.pi - phase) / 2.0)
    assert found.imag == pytest.approx(damping, abs=1e-12)


@pytest.mark.parametrize(("order", "critical"), [(2, math.pi / 3.0), (3, 1.571)])
def test_damping_turns_negative_where_the_paper_says(
    make: Callable[..., Any], order: int, critical: float
) -> None:
    assert apparent(make, order, 0.98 * critical).imag > 0.0 > apparent(make, order, 1.02 * critical).imag


@pytest.mark.parametrize("phase", [0.05, 0.5, 1.5, 3.0])
def test_orders_0_and_1_take_damping_at_every_frequency(make: Callable[..., Any], phase: float) -> None:
    assert apparent(make, 0, phase).imag < 0.0
    assert apparent(make, 1, phase).imag < 0.0


def test_order_4_takes_damping_up_to_a_fifth_of_pi(make: Callable[..., Any]) -> None:
    signs = [apparent(make, 4, share * math.pi / 5.0).imag > 0.0 for share in (0.98, 1.02, 2.98, 3.02)]
    assert signs == [False, True, True, False]


# Spacing


def test_the_spacing_is_the_delay_if_left_out(make: Callable[..., Any]) -> None:
    targets = np.random.default_rng(1).normal(size=100)
    left_out, given = (
        commands(make("compensator", "polynomial", DT, 1, delay=0.0137, order=2, **spacing), targets)
        for spacing in ({}, {"spacing": 14})
    )
    np.testing.assert_array_equal(left_out, given)
    history = np.concatenate((np.zeros(28), targets))
    a = weights(2, 0.0137 / (14 * DT))
    expected = a[0] * targets + a[1] * history[14:-14] + a[2] * history[:-28]
    np.testing.assert_allclose(given, expected, rtol=1e-12)


@pytest.mark.parametrize("order", ORDERS)
def test_no_delay_is_the_target(make: Callable[..., Any], order: int) -> None:
    targets = np.random.default_rng(2).normal(size=20)
    compensator = make("compensator", "polynomial", DT, 1, delay=0.0, order=order)
    np.testing.assert_array_equal(commands(compensator, targets), targets)


def test_every_delay_is_within_the_default_spacing(make: Callable[..., Any]) -> None:
    for samples in (0.2, 0.5, 1.49, 1.5, 13.5, 14.03, 14.49):
        make("compensator", "polynomial", DT, 1, delay=samples * DT, order=1)


def test_more_delay_than_history_is_refused(make: Callable[..., Any]) -> None:
    make("compensator", "polynomial", DT, 1, delay=28 * DT, order=2, spacing=14)
    with pytest.raises(ConfigError, match=naming("compensator.delay", "0.03 s", "<= 0.0273438 s")):
        make("compensator", "polynomial", DT, 1, delay=0.030, order=2, spacing=14)
    make("compensator", "polynomial", DT, 1, delay=0.030, order=0, spacing=1)  # rests on no history


@pytest.mark.parametrize(
    "wrong", [{"order": 5}, {"order": -1}, {"spacing": 0}, {"spacing": 1.5}, {"delay": -1e-3}]
)
def test_parameters_out_of_bounds_are_refused(make: Callable[..., Any], wrong: dict[str, Any]) -> None:
    name = next(iter(wrong))
    with pytest.raises(ConfigError, match=rf"compensator\.{name} = "):
        make("compensator", "polynomial", DT, 1, **({"delay": 0.01} | wrong))


def test_a_delay_in_another_unit_is_refused(make: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match=naming("compensator.delay", "137000 s", "<= 97.6562 s")):
        make("compensator", "polynomial", DT, 1, delay=137e3)


def test_it_names_the_history_it_needs(make: Callable[..., Any]) -> None:
    params = make("compensator", "polynomial", DT, 1, delay=0.01, order=3).Params
    assert params(delay=0.01, order=3).spans() == {"delay": 0.03}
    assert params(delay=0.01, order=0).spans() == {"delay": 0.01}
    assert params(delay=0.01, order=3, spacing=5).spans() == {"delay": 0.01}


# The set-up of TADC


def test_the_sweep_of_tadc_has_the_reference_errors(make: Callable[..., Any]) -> None:
    """J2 = 21.54 %, J3 = 54.55 %: the actuator is late and the polynomial amplifies above 6 Hz."""
    times = DT * np.arange(50 * 1024 + 1)
    targets = 1e-3 * np.sin(2.0 * np.pi * (0.1 * times + 9.9 / 100.0 * times**2))
    sent = commands(make("compensator", "polynomial", DT, 1, delay=0.0137, order=2, spacing=14), targets)
    error = held_second_order(sent[:-1], 15.571359045, 0.6415455449) - targets
    assert 100.0 * np.linalg.norm(error) / np.linalg.norm(targets) == pytest.approx(21.54, abs=0.005)
    assert 100.0 * np.abs(error).max() / np.abs(targets).max() == pytest.approx(54.55, abs=0.005)


def held_second_order(held: np.ndarray, frequency: float, damping_ratio: float) -> np.ndarray:
    """Displacement at the samples 0..n of an actuator whose command i is held from sample i to i + 1."""
    w = 2.0 * math.pi * frequency
    system = np.array([[0.0, 1.0, 0.0], [-(w**2), -2.0 * damping_ratio * w, w**2], [0.0, 0.0, 0.0]])
    (a, b, c), (d, e, f), _ = expm(system * DT).tolist()
    x, v, found = 0.0, 0.0, [0.0]
    for command in held.tolist():
        x, v = a * x + b * v + c * command, d * x + e * v + f * command
        found.append(x)
    return np.array(found)
