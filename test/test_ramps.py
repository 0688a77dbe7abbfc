"""Ramps: exact on lines and parabolas, on the target at the end of every step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rths_nodes import registry
from rths_nodes.components import Target

DT, SUBSTEPS = 1.0 / 1024.0, 10
STEP = DT * SUBSTEPS


def target(index: int, x: np.ndarray, v: np.ndarray, a: np.ndarray) -> Target:
    nothing = np.zeros_like(x)
    return Target(index, x, v, a, nothing, nothing, nothing)


def drive(ramp: Any, motion: Callable[[float], tuple[Any, Any, Any]], steps: int) -> list[tuple[float, Any]]:
    """Times and motions of a ramp that gets ``motion`` at the integration step."""
    at = [target(i, *(np.atleast_1d(value) for value in motion(i * STEP))) for i in range(steps + 1)]
    ramp.start(at[0])
    shown = []
    for index in range(steps):
        ramp.follow(at[index + 1])
        for substep in range(1, SUBSTEPS + 1):
            now = ramp.step(substep)
            copy = (now.displacement.copy(), now.velocity.copy(), now.acceleration.copy())
            shown.append(((index * SUBSTEPS + substep) * DT, copy))
    return shown


def test_the_parabola_is_exact_on_a_quadratic(make: Callable[..., Any]) -> None:
    x0, v0, a0 = np.array([0.01, -0.2]), np.array([0.3, 0.1]), np.array([-5.0, 7.0])
    ramp = make("ramp", "quadratic", DT, SUBSTEPS, 2)
    for t, (x, v, a) in drive(ramp, lambda t: (x0 + v0 * t + 0.5 * a0 * t**2, v0 + a0 * t, a0), 5):
        np.testing.assert_allclose(x, x0 + v0 * t + 0.5 * a0 * t**2, atol=1e-15)
        np.testing.assert_allclose(v, v0 + a0 * t, atol=1e-12)
        np.testing.assert_allclose(a, a0, atol=1e-9)


def test_the_linear_ramp_is_a_straight_line_with_its_own_slope(make: Callable[..., Any]) -> None:
    ramp = make("ramp", "linear", DT, SUBSTEPS, 1)
    # the integrator's velocity and acceleration are not the ramp's
    for t, (x, v, a) in drive(ramp, lambda t: (0.2 + 3.0 * t, 99.0, 99.0), 4):
        assert x[0] == pytest.approx(0.2 + 3.0 * t, abs=1e-15)
        assert v[0] == pytest.approx(3.0, rel=1e-12)
        assert a[0] == 0.0


@pytest.mark.parametrize("name", registry.names("ramp"))
def test_every_ramp_ends_each_step_on_its_target(make: Callable[..., Any], name: str) -> None:
    ramp = make("ramp", name, DT, SUBSTEPS, 1)
    for t, (x, _, _) in drive(ramp, lambda t: (np.sin(40.0 * t), 40.0 * np.cos(40.0 * t), 0.0), 30)[9::10]:
        assert x[0] == pytest.approx(np.sin(40.0 * t), abs=1e-14)


def test_the_parabola_follows_a_sine_a_hundred_times_closer_than_the_line(make: Callable[..., Any]) -> None:
    omega = 2.0 * np.pi

    def sine(t: float) -> tuple[float, float, float]:
        return np.sin(omega * t), omega * np.cos(omega * t), -(omega**2) * np.sin(omega * t)

    worst = {}
    for name in ("linear", "quadratic"):
        shown = drive(make("ramp", name, DT, SUBSTEPS, 1), sine, 100)
        worst[name] = max(abs(x[0] - np.sin(omega * t)) for t, (x, _, _) in shown)
    assert worst["linear"] == pytest.approx((omega * STEP) ** 2 / 8.0, rel=1e-2)
    assert worst["quadratic"] < 0.05 * worst["linear"]
