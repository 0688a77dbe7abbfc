"""Signals: the ring against slices of an array, recursive least squares against least squares over all samples."""

from __future__ import annotations

import numpy as np
import pytest

from rths_nodes.core.signals import RecursiveLeastSquares, Taps, ThreeParameterLeastSquares

RNG = np.random.default_rng(1)
REGRESSORS = RNG.normal(size=(200, 3))
VALUES = REGRESSORS @ [3.2, -1.7, 0.4] + 0.1 * RNG.normal(size=200)

both = pytest.mark.parametrize("kind", [RecursiveLeastSquares, ThreeParameterLeastSquares])
Kind = type[RecursiveLeastSquares]


def learned(model: RecursiveLeastSquares, count: int = len(VALUES)) -> RecursiveLeastSquares:
    for regressors, value in zip(REGRESSORS[:count].tolist(), VALUES[:count].tolist(), strict=True):
        model.update(regressors, value)
    return model


def weighted(weights: np.ndarray, initial: np.ndarray, information: float) -> np.ndarray:
    """Parameters that minimise weighted squares + ``information`` |theta - initial|^2, by the normal equations."""
    scaled = REGRESSORS * weights[:, None]
    normal = scaled.T @ REGRESSORS + information * np.eye(3)
    return np.linalg.solve(normal, scaled.T @ VALUES + information * initial)


@pytest.mark.parametrize(("count", "spacing"), [(1, 1), (3, 1), (3, 5), (4, 14)])
def test_taps_are_slices_of_the_past(count: int, spacing: int) -> None:
    taps, signal = Taps(count, spacing), RNG.normal(size=100)
    padded = np.concatenate((np.zeros(count * spacing), signal))
    for run in range(2):
        for k, value in enumerate(signal.tolist()):
            now = k + count * spacing
            assert taps.push(value) == [padded[now - tap * spacing] for tap in range(count)], run
        taps.reset()


@pytest.mark.parametrize("arguments", [(0, 1), (3, 0)])
def test_taps_need_a_count_and_a_spacing(arguments: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="must be >= 1"):
        Taps(*arguments)


@both
def test_without_forgetting_it_is_least_squares(kind: Kind) -> None:
    model = learned(kind([1.0, 0.0, 0.0], 1e10))
    np.testing.assert_allclose(model.theta, np.linalg.lstsq(REGRESSORS, VALUES, rcond=None)[0], rtol=1e-7)


@both
def test_the_start_is_one_more_sample(kind: Kind) -> None:
    initial = np.array([1.0, -2.0, 0.5])
    model = learned(kind(initial.tolist(), 0.25))
    np.testing.assert_allclose(model.theta, weighted(np.ones(200), initial, 4.0), rtol=1e-9)


@both
@pytest.mark.parametrize("rho", [0.9996, 0.95])
def test_forgetting_weights_the_past_exponentially(kind: Kind, rho: float) -> None:
    initial = np.array([1.0, 0.0, 0.0])
    model = learned(kind(initial.tolist(), 1000.0, rho))
    weights = rho ** np.arange(199, -1, -1)
    np.testing.assert_allclose(model.theta, weighted(weights, initial, 1e-3 * rho**200), rtol=1e-9)
    information = (REGRESSORS * weights[:, None]).T @ REGRESSORS + 1e-3 * rho**200 * np.eye(3)
    np.testing.assert_allclose(model.covariance, np.linalg.inv(information), rtol=1e-8)


@both
def test_one_sample_is_eq_5(kind: Kind) -> None:
    model, f, y, rho = kind([1.0, 0.0, 0.0], 7.0, 0.98), np.array([0.3, -0.5, 0.2]), 0.9, 0.98
    model.update(f.tolist(), y)
    covariance = 7.0 * np.eye(3)
    gain = covariance @ f / (rho + f @ covariance @ f)
    np.testing.assert_allclose(model.theta, [1.0, 0.0, 0.0] + gain * (y - f[0]), rtol=1e-14)
    np.testing.assert_allclose(model.covariance, (np.eye(3) - np.outer(gain, f)) @ covariance / rho, rtol=1e-13)


@both
def test_the_covariance_stays_symmetric_to_the_bit(kind: Kind) -> None:
    covariance = np.array(learned(kind([0.0, 0.0, 0.0], 1e9, 0.99)).covariance)
    np.testing.assert_array_equal(covariance, covariance.T)
    assert np.linalg.eigvalsh(covariance).min() > 0.0


def test_three_parameters_written_out_are_the_general_ones() -> None:
    general, written_out = (
        learned(kind([1.0, 0.0, 0.0], 1e3, 0.999)) for kind in (RecursiveLeastSquares, ThreeParameterLeastSquares)
    )
    np.testing.assert_allclose(written_out.theta, general.theta, rtol=1e-12)
    np.testing.assert_allclose(written_out.covariance, general.covariance, rtol=1e-10)


def test_any_number_of_parameters() -> None:
    model = RecursiveLeastSquares([0.0], 1e12)
    for x in (1.0, 2.0, 3.0):
        model.update([x], 2.5 * x)
    assert model.theta == pytest.approx([2.5])


@both
def test_it_follows_a_change_only_when_it_forgets(kind: Kind) -> None:
    errors = []
    for rho in (1.0, 0.9):
        model = learned(kind([0.0, 0.0, 0.0], 1e6, rho))
        for regressors in REGRESSORS[:60]:
            model.update(regressors.tolist(), float(regressors @ [0.0, 1.0, 2.0]))
        errors.append(float(np.abs(np.array(model.theta) - [0.0, 1.0, 2.0]).max()))
    assert errors[1] < 0.02 < 1.0 < errors[0]


@both
def test_forget_keeps_the_parameters_and_reset_does_not(kind: Kind) -> None:
    fresh, model = kind([1.0, 0.0, 0.0], 5.0), learned(kind([1.0, 0.0, 0.0], 5.0))
    theta = list(model.theta)
    model.forget()
    assert model.theta == theta
    assert model.covariance == fresh.covariance
    model.reset()
    assert model.theta == [1.0, 0.0, 0.0]
    assert learned(model).theta == learned(fresh).theta


@both
@pytest.mark.parametrize(
    ("covariance", "rho", "message"),
    [(0.0, 1.0, "covariance = 0"), (1.0, 0.0, "forgetting = 0"), (1.0, 1.1, "forgetting = 1.1")],
)
def test_wrong_weights_are_refused(kind: Kind, covariance: float, rho: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind([0.0, 0.0, 0.0], covariance, rho)


def test_three_parameters_are_three() -> None:
    with pytest.raises(ValueError, match="must be 3"):
        ThreeParameterLeastSquares([1.0, 0.0], 1.0)
