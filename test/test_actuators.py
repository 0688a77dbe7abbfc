"""Actuators: delays in closed form; limits, order and small-signal delay of the servo-hydraulic one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

DT = 1.0 / 1024.0
FREE = {"stiffness": 0.0, "damping": 0.0}


@pytest.fixture
def actuator(make: Callable[..., Any]) -> Callable[..., Any]:
    """An actuator with a spring and dashpot, by default with nothing to push against."""

    def actuator(name: str, specimen: dict[str, float] | None = None, **data: Any) -> Any:
        return make("actuator", name, DT, make("specimen", "kelvin_voigt", **(specimen or FREE)), **data)

    return actuator


def follow(actuator: Any, commands: np.ndarray) -> np.ndarray:
    shown = []
    for command in commands.tolist():
        actuator.step(command)
        shown.append(actuator.displacement)
    return np.array(shown)


# Late, but otherwise exact


@pytest.mark.parametrize("samples", [0.0, 0.25, 1.0, 3.5, 28.0, 28.75])
def test_pure_delay_is_exact_on_a_ramp(actuator: Callable[..., Any], samples: float) -> None:
    late = actuator("pure_delay", delay=samples * DT)
    k = np.arange(1, 101)
    shown = follow(late, 0.002 * k)
    np.testing.assert_allclose(shown, 0.002 * np.maximum(k - samples, 0.0), atol=1e-15)
    assert late.velocity == pytest.approx(0.002 / DT)


def test_pure_delay_refuses_a_delay_in_the_wrong_unit(actuator: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match=r"actuator\.delay = 28000 s: must be <="):
        actuator("pure_delay", delay=28_000.0)


def test_first_order_lags_a_ramp_by_alpha_minus_one_samples(actuator: Callable[..., Any]) -> None:
    k = np.arange(1, 2001)
    shown = follow(actuator("first_order", alpha=29.0), 1e-4 * k)
    np.testing.assert_allclose(shown[-10:], 1e-4 * (k[-10:] - 28.0), rtol=1e-12)


def test_first_order_step_response(actuator: Callable[..., Any]) -> None:
    shown = follow(actuator("first_order", alpha=5.0), np.ones(50))
    np.testing.assert_allclose(shown, 1.0 - (1.0 - 1.0 / 5.0) ** np.arange(1, 51), rtol=1e-12)


def test_first_order_with_alpha_one_has_no_delay(actuator: Callable[..., Any]) -> None:
    commands = np.sin(np.arange(50.0))
    np.testing.assert_allclose(follow(actuator("first_order", alpha=1.0), commands), commands, atol=1e-15)


@pytest.mark.parametrize("name", ["first_order", "pure_delay"])
def test_the_force_belongs_to_displacement_and_velocity(actuator: Callable[..., Any], name: str) -> None:
    moved = actuator(name, {"stiffness": 3.0, "damping": 2.0})
    before = 0.0
    for command in (0.1, 0.3, 0.2):
        moved.step(command)
        assert moved.velocity == pytest.approx((moved.displacement - before) / DT)
        assert moved.force == pytest.approx(3.0 * moved.displacement + 2.0 * moved.velocity)
        before = moved.displacement


# Servo-hydraulic


def test_without_load_it_moves_at_its_largest_velocity(actuator: Callable[..., Any]) -> None:
    shown = follow(actuator("servo_hydraulic"), np.full(600, 10.0))
    assert (shown[-1] - shown[-101]) / (100 * DT) == pytest.approx(0.76, rel=1e-6)


def test_a_dashpot_slows_it_down_as_the_load_pressure_says(actuator: Callable[..., Any]) -> None:
    c = 0.64e6
    pushed = actuator("servo_hydraulic", {"stiffness": 0.0, "damping": c})
    follow(pushed, np.full(600, 10.0))
    half = 0.5 * 0.76**2 * c / 1.7e6  # v = v_max sqrt(1 - c v / F_max), solved for v
    assert pushed.velocity == pytest.approx(-half + math.sqrt(half**2 + 0.76**2), rel=2e-3)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_it_stalls_at_its_largest_force(actuator: Callable[..., Any], sign: float) -> None:
    stiff = actuator("servo_hydraulic", {"stiffness": 1.7e7, "damping": 0.0})
    follow(stiff, np.full(3000, sign * 10.0))
    assert stiff.displacement == pytest.approx(sign * 0.1, rel=1e-3)
    assert abs(stiff.velocity) < 1e-3


def test_runge_kutta_converges_with_the_fourth_order(actuator: Callable[..., Any]) -> None:
    # one way only: where the valve changes sign, the load pressure has a kink
    commands = 2.0 * (DT * np.arange(1, 101)) ** 2

    def run(substeps: int) -> np.ndarray:
        spring = {"stiffness": 7.6e6, "damping": 0.0}
        return follow(actuator("servo_hydraulic", spring, substeps=substeps, hold="ramp"), commands)

    exact = run(64)
    errors = [np.abs(run(substeps) - exact).max() for substeps in (1, 2, 4)]
    assert errors[0] / errors[1] > 12.0
    assert errors[1] / errors[2] > 12.0
    assert errors[2] < 1e-9


def test_the_force_of_a_large_damper_is_solved_within_the_sample(actuator: Callable[..., Any]) -> None:
    """It depends on the velocity that it slows down: the few passes are enough for 0.3 um in 57 mm."""
    commands = 6.0 * (DT * np.arange(1, 101)) ** 2
    damper = {"stiffness": 0.0, "damping": 0.64e6}
    usual, fine = (
        follow(actuator("servo_hydraulic", damper, substeps=substeps, hold="ramp"), commands)
        for substeps in (4, 64)
    )
    assert np.abs(usual - fine).max() < 3e-7


def test_a_small_slow_signal_is_late_by_one_over_the_gain(actuator: Callable[..., Any]) -> None:
    omega = 2.0 * np.pi * 0.5
    time = DT * np.arange(1, 4097)
    shown = follow(actuator("servo_hydraulic", hold="ramp"), 0.001 * np.sin(omega * time))[2048:]
    phase = np.angle(np.sum(shown * np.exp(-1j * omega * time[2048:]))) + np.pi / 2.0
    assert -phase / omega == pytest.approx(28.0 / 1024.0, abs=0.5e-3)


def test_a_staircase_is_half_a_sample_later_than_a_ramp(actuator: Callable[..., Any]) -> None:
    commands = 0.01 * DT * np.arange(1, 1001)
    stairs, ramp = (follow(actuator("servo_hydraulic", hold=hold), commands)[-1] for hold in ("staircase", "ramp"))
    assert stairs - ramp == pytest.approx(0.01 * DT / 2.0, rel=1e-3)
