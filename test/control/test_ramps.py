# SPDX-License-Identifier: Apache-2.0
"""Tests of ramps."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from loop_parts import make

from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Target

DT, SUBSTEPS = 1.0 / 1024.0, 10
STEP = DT * SUBSTEPS


def target(index: int, x: np.ndarray, v: np.ndarray, a: np.ndarray) -> Target:
    return Target(index, x, v, a, *np.zeros((3, len(x))))


def drive(ramp: Any, motion: Callable[[float], tuple[Any, Any, Any]], steps: int) -> list[tuple[float, Any]]:
    """Times and motions of a ramp that receives ``motion`` at every integration step."""
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


def test_quadratic_ramp_is_exact_on_parabola() -> None:
    x0, v0, a0 = np.array([0.01, -0.2]), np.array([0.3, 0.1]), np.array([-5.0, 7.0])
    ramp = make("ramp", "quadratic", DT, SUBSTEPS, 2)
    for t, (x, v, a) in drive(ramp, lambda t: (x0 + v0 * t + 0.5 * a0 * t**2, v0 + a0 * t, a0), 5):
        np.testing.assert_allclose(x, x0 + v0 * t + 0.5 * a0 * t**2, atol=1e-15)
        np.testing.assert_allclose(v, v0 + a0 * t, atol=1e-12)
        np.testing.assert_allclose(a, a0, atol=1e-9)


def test_hermite_ramp_is_exact_on_fifth_degree() -> None:
    polynomial = np.polynomial.Polynomial([0.01, 0.3, -5.0, 40.0, -200.0, 700.0])
    at = [polynomial, polynomial.deriv(), polynomial.deriv(2)]
    ramp = make("ramp", "hermite", DT, SUBSTEPS, 1)
    for t, motion in drive(ramp, lambda t: (at[0](t), at[1](t), at[2](t)), 5):
        for value, exact in zip(motion, at, strict=True):
            assert value[0] == pytest.approx(exact(t), rel=1e-9)


def test_hermite_ramp_ends_on_inconsistent_targets() -> None:
    """With one substep, and at the end of every step, it gives the integrator's motion."""
    ramp = make("ramp", "hermite", STEP, 1, 2)
    rng = np.random.default_rng(1)
    targets = [target(i, *rng.standard_normal((3, 2))) for i in range(4)]
    ramp.start(targets[0])
    for following in targets[1:]:
        ramp.follow(following)
        now = ramp.step(1)
        for name in ("velocity", "acceleration"):
            np.testing.assert_allclose(getattr(now, name), getattr(following, name), rtol=1e-9, atol=1e-9)


def test_linear_ramp_has_slope_of_its_line() -> None:
    ramp = make("ramp", "linear", DT, SUBSTEPS, 1)
    # the ramp ignores the integrator's velocity and acceleration
    for t, (x, v, a) in drive(ramp, lambda t: (0.2 + 3.0 * t, 99.0, 99.0), 4):
        assert x[0] == pytest.approx(0.2 + 3.0 * t, abs=1e-15)
        assert v[0] == pytest.approx(3.0, rel=1e-12)
        assert a[0] == 0.0


@pytest.mark.parametrize("name", registry.names("ramp"))
def test_every_ramp_ends_step_on_target(name: str) -> None:
    ramp = make("ramp", name, DT, SUBSTEPS, 1)
    for t, (x, _, _) in drive(ramp, lambda t: (np.sin(40.0 * t), 40.0 * np.cos(40.0 * t), 0.0), 30)[9::10]:
        assert x[0] == pytest.approx(np.sin(40.0 * t), abs=1e-14)


def test_quadratic_ramp_follows_sine_closer_than_linear() -> None:
    omega = 2.0 * np.pi

    def sine(t: float) -> tuple[float, float, float]:
        return np.sin(omega * t), omega * np.cos(omega * t), -(omega**2) * np.sin(omega * t)

    worst = {}
    for name in ("linear", "quadratic"):
        shown = drive(make("ramp", name, DT, SUBSTEPS, 1), sine, 100)
        worst[name] = max(abs(x[0] - np.sin(omega * t)) for t, (x, _, _) in shown)
    assert worst["linear"] == pytest.approx((omega * STEP) ** 2 / 8.0, rel=1e-2)
    assert worst["quadratic"] < 0.05 * worst["linear"]


@pytest.mark.parametrize("share", [0.0, 0.35, 0.8])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_predictor_corrector_is_exact_on_polynomial(order: int, share: float) -> None:
    curve = np.polynomial.Polynomial([0.01, 0.3, -5.0, 200.0][: order + 1])
    first, second = curve.deriv(), curve.deriv(2)
    ramp = make("ramp", "predictor_corrector", DT, SUBSTEPS, 1, order=order, predicted_share=share)
    shown = drive(ramp, lambda t: (curve(t), first(t), second(t)), 10)
    # the history before the start is a parabola; a cubic needs some targets to replace it
    for t, (x, v, a) in shown[(4 * SUBSTEPS if order == 3 else 0) :]:
        assert x[0] == pytest.approx(curve(t), abs=1e-14)
        assert v[0] == pytest.approx(first(t), abs=1e-11)
        assert a[0] == pytest.approx(second(t), abs=1e-8)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.8])
def test_prediction_does_not_use_next_target(share: float) -> None:
    predicted = round(share * SUBSTEPS)
    histories = []
    for last in (0.3, -0.7):
        values = np.array([0.0, 0.01, 0.03, last])
        ramp = make("ramp", "predictor_corrector", DT, SUBSTEPS, 1, predicted_share=share)
        shown = drive(ramp, lambda t, x=values: (x[round(t / STEP)], 0.0, 0.0), 3)
        histories.append(np.array([x[0] for _, (x, _, _) in shown]))
    first, second = (history[2 * SUBSTEPS :] for history in histories)
    np.testing.assert_array_equal(first[:predicted], second[:predicted])
    assert np.all(first[predicted:] != second[predicted:])
    assert first[-1] == pytest.approx(0.3, abs=1e-15)
    assert second[-1] == pytest.approx(-0.7, abs=1e-15)


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 0.8])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_prediction_before_target_equals_step_after_it(share: float, order: int) -> None:
    ramp = make("ramp", "predictor_corrector", DT, SUBSTEPS, 1, predicted_share=share, order=order)
    assert ramp.predicted == math.floor(share * SUBSTEPS + 1e-9)
    ramp.start(target(0, np.array([0.01]), np.array([0.3]), np.array([-2.0])))
    for index, value in enumerate((0.02, -0.05, 0.3, 0.1), 1):
        predicted = [ramp.predict(substep) for substep in range(1, ramp.predicted + 1)]
        ramp.follow(target(index, np.array([value]), np.zeros(1), np.zeros(1)))
        for substep, motion in enumerate(predicted, 1):
            stepped = ramp.step(substep)
            for name in ("displacement", "velocity", "acceleration"):
                np.testing.assert_array_equal(getattr(motion, name), getattr(stepped, name))


def test_correction_is_smooth_and_bounded_in_velocity() -> None:
    """After an unpredicted target the velocity stays below 1.5 errors per remaining time of the step."""
    fine, share = 1000, 0.8
    ramp = make("ramp", "predictor_corrector", STEP / fine, fine, 1, predicted_share=share)
    still, moved = (target(i, np.array([x]), np.zeros(1), np.zeros(1)) for i, x in enumerate((0.0, 0.01)))
    ramp.start(still)
    ramp.follow(moved)
    shown = [ramp.step(substep) for substep in range(1, fine + 1)]
    x, v, a = (
        np.array([getattr(m, name)[0] for m in shown]) for name in ("displacement", "velocity", "acceleration")
    )
    fastest = 1.5 * 0.01 / ((1.0 - share) * STEP)
    assert np.abs(v).max() == pytest.approx(fastest, rel=1e-4)
    assert np.abs(np.diff(x, prepend=0.0)).max() <= fastest * STEP / fine * 1.000001
    # velocity and acceleration are derivatives of the displacement
    np.testing.assert_allclose(np.gradient(x, STEP / fine)[1:-1], v[1:-1], atol=6e-3 * fastest)
    changing = np.arange(fine) > round(share * fine) + 1
    np.testing.assert_allclose(
        np.gradient(v, STEP / fine)[changing][1:-1], a[changing][1:-1], atol=1e-3 * np.abs(a).max()
    )


def test_predicted_share_above_limit_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"predicted_share = 0\.9: must be >= 0 and <= 0\.8"):
        make("ramp", "predictor_corrector", DT, SUBSTEPS, 1, predicted_share=0.9)


@pytest.mark.parametrize("substeps", [1, 2])
def test_predictor_corrector_works_with_few_substeps(substeps: int) -> None:
    ramp = make("ramp", "predictor_corrector", DT, substeps, 1, predicted_share=0.8)
    rest = np.zeros(1)
    ramp.start(target(0, rest, rest, rest))
    for index in range(1, 20):
        ramp.follow(target(index, np.array([0.1 * index**2]), rest, rest))
        assert ramp.step(substeps).displacement[0] == pytest.approx(0.1 * index**2)
