# SPDX-License-Identifier: Apache-2.0
"""Ramps: exact on lines and parabolas, on the target at the end of every step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Target

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


def test_the_curve_with_all_ends_is_exact_on_the_fifth_degree_and_runs_on_smoothly(
    make: Callable[..., Any],
) -> None:
    polynomial = np.polynomial.Polynomial([0.01, 0.3, -5.0, 40.0, -200.0, 700.0])
    at = [polynomial, polynomial.deriv(), polynomial.deriv(2)]
    ramp = make("ramp", "hermite", DT, SUBSTEPS, 1)
    for t, motion in drive(ramp, lambda t: (at[0](t), at[1](t), at[2](t)), 5):
        for found, wanted in zip(motion, at, strict=True):
            assert found[0] == pytest.approx(wanted(t), rel=1e-9)


def test_the_curve_with_all_ends_hands_on_targets_that_do_not_fit_together(make: Callable[..., Any]) -> None:
    """With one sub-step, and at the end of every step, it is the integrator's own motion."""
    ramp = make("ramp", "hermite", STEP, 1, 2)
    rng = np.random.default_rng(1)
    targets = [target(i, *rng.standard_normal((3, 2))) for i in range(4)]
    ramp.start(targets[0])
    for each in targets[1:]:
        ramp.follow(each)
        now = ramp.step(1)
        for found, wanted in ((now.velocity, each.velocity), (now.acceleration, each.acceleration)):
            np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


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


# Prediction and correction


@pytest.mark.parametrize("share", [0.0, 0.35, 0.8])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_prediction_and_correction_are_exact_on_a_polynomial(
    make: Callable[..., Any], order: int, share: float
) -> None:
    curve = np.polynomial.Polynomial([0.01, 0.3, -5.0, 200.0][: order + 1])
    first, second = curve.deriv(), curve.deriv(2)
    ramp = make("ramp", "predictor_corrector", DT, SUBSTEPS, 1, order=order, predicted_share=share)
    shown = drive(ramp, lambda t: (curve(t), first(t), second(t)), 10)
    # the start is continued backwards as a parabola: beyond it, a cubic takes some targets
    for t, (x, v, a) in shown[(4 * SUBSTEPS if order == 3 else 0) :]:
        assert x[0] == pytest.approx(curve(t), abs=1e-14)
        assert v[0] == pytest.approx(first(t), abs=1e-11)
        assert a[0] == pytest.approx(second(t), abs=1e-8)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.8])
def test_the_prediction_does_not_know_the_next_target(make: Callable[..., Any], share: float) -> None:
    known = round(share * SUBSTEPS)
    histories = []
    for last in (0.3, -0.7):
        values = np.array([0.0, 0.01, 0.03, last])
        ramp = make("ramp", "predictor_corrector", DT, SUBSTEPS, 1, predicted_share=share)
        shown = drive(ramp, lambda t, x=values: (x[round(t / STEP)], 0.0, 0.0), 3)
        histories.append(np.array([x[0] for _, (x, _, _) in shown]))
    one, other = (history[2 * SUBSTEPS :] for history in histories)
    np.testing.assert_array_equal(one[:known], other[:known])
    assert np.all(one[known:] != other[known:])
    assert one[-1] == pytest.approx(0.3, abs=1e-15)
    assert other[-1] == pytest.approx(-0.7, abs=1e-15)


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 0.8])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_what_is_predicted_needs_no_target(make: Callable[..., Any], share: float, order: int) -> None:
    """Before a target has come the motion is that after it, to the bit."""
    ramp = make("ramp", "predictor_corrector", DT, SUBSTEPS, 1, predicted_share=share, order=order)
    assert ramp.predicted == math.floor(share * SUBSTEPS + 1e-9)
    ramp.start(target(0, np.array([0.01]), np.array([0.3]), np.array([-2.0])))
    for index, value in enumerate((0.02, -0.05, 0.3, 0.1), 1):
        before = [ramp.predict(substep) for substep in range(1, ramp.predicted + 1)]
        ramp.follow(target(index, np.array([value]), np.zeros(1), np.zeros(1)))
        for substep, motion in enumerate(before, 1):
            after = ramp.step(substep)
            for name in ("displacement", "velocity", "acceleration"):
                np.testing.assert_array_equal(getattr(motion, name), getattr(after, name))


def test_the_correction_neither_jumps_nor_runs(make: Callable[..., Any]) -> None:
    """A target that comes as a surprise: the slope stays below 1.5 errors over the rest of the step."""
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
    # velocity and acceleration are those of the displacement
    np.testing.assert_allclose(np.gradient(x, STEP / fine)[1:-1], v[1:-1], atol=6e-3 * fastest)
    changing = np.arange(fine) > round(share * fine) + 1
    np.testing.assert_allclose(
        np.gradient(v, STEP / fine)[changing][1:-1], a[changing][1:-1], atol=1e-3 * np.abs(a).max()
    )


def test_no_more_than_four_fifths_are_predicted(make: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match=r"predicted_share = 0\.9: must be >= 0 and <= 0\.8"):
        make("ramp", "predictor_corrector", DT, SUBSTEPS, 1, predicted_share=0.9)


@pytest.mark.parametrize("substeps", [1, 2])
def test_few_samples_leave_little_to_predict(make: Callable[..., Any], substeps: int) -> None:
    ramp = make("ramp", "predictor_corrector", DT, substeps, 1, predicted_share=0.8)
    rest = np.zeros(1)
    ramp.start(target(0, rest, rest, rest))
    for index in range(1, 20):
        ramp.follow(target(index, np.array([0.1 * index**2]), rest, rest))
        assert ramp.step(substeps).displacement[0] == pytest.approx(0.1 * index**2)
