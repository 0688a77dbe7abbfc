# SPDX-License-Identifier: Apache-2.0
"""Recursive least squares against least squares over all samples."""

from __future__ import annotations

import numpy as np
import pytest

from rths_nodes.control.compensators.discrete_model import Numbers, starting, updated

RNG = np.random.default_rng(1)
REGRESSORS = RNG.normal(size=(200, 3))
VALUES = REGRESSORS @ [3.2, -1.7, 0.4] + 0.1 * RNG.normal(size=200)


def learned(model: Numbers, rho: float = 1.0) -> Numbers:
    for regressors, value in zip(REGRESSORS.tolist(), VALUES.tolist(), strict=True):
        model = updated(model, rho, *regressors, value)
    return model


def covariance(model: Numbers) -> np.ndarray:
    _, _, _, xx, xy, xz, yy, yz, zz = model
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


def weighted(weights: np.ndarray, initial: np.ndarray, information: float) -> np.ndarray:
    """Parameters that minimise weighted squares + ``information`` |theta - initial|^2, by the normal equations."""
    scaled = REGRESSORS * weights[:, None]
    normal = scaled.T @ REGRESSORS + information * np.eye(3)
    return np.linalg.solve(normal, scaled.T @ VALUES + information * initial)


def test_without_forgetting_it_is_least_squares() -> None:
    model = learned(starting(1.0, 0.0, 0.0, 1e10))
    np.testing.assert_allclose(model[:3], np.linalg.lstsq(REGRESSORS, VALUES, rcond=None)[0], rtol=1e-7)


def test_the_start_is_one_more_sample() -> None:
    initial = np.array([1.0, -2.0, 0.5])
    model = learned(starting(*initial.tolist(), 0.25))
    np.testing.assert_allclose(model[:3], weighted(np.ones(200), initial, 4.0), rtol=1e-9)


@pytest.mark.parametrize("rho", [0.9996, 0.95])
def test_forgetting_weights_the_past_exponentially(rho: float) -> None:
    initial = np.array([1.0, 0.0, 0.0])
    model = learned(starting(*initial.tolist(), 1000.0), rho)
    weights = rho ** np.arange(199, -1, -1)
    np.testing.assert_allclose(model[:3], weighted(weights, initial, 1e-3 * rho**200), rtol=1e-9)
    information = (REGRESSORS * weights[:, None]).T @ REGRESSORS + 1e-3 * rho**200 * np.eye(3)
    np.testing.assert_allclose(covariance(model), np.linalg.inv(information), rtol=1e-8)


def test_one_sample_is_eq_5() -> None:
    f, y, rho = np.array([0.3, -0.5, 0.2]), 0.9, 0.98
    model = updated(starting(1.0, 0.0, 0.0, 7.0), rho, *f.tolist(), y)
    first = 7.0 * np.eye(3)
    gain = first @ f / (rho + f @ first @ f)
    np.testing.assert_allclose(model[:3], [1.0, 0.0, 0.0] + gain * (y - f[0]), rtol=1e-14)
    np.testing.assert_allclose(covariance(model), (np.eye(3) - np.outer(gain, f)) @ first / rho, rtol=1e-13)


def test_the_covariance_stays_positive() -> None:
    assert np.linalg.eigvalsh(covariance(learned(starting(0.0, 0.0, 0.0, 1e9), 0.99))).min() > 0.0


def test_it_follows_a_change_only_when_it_forgets() -> None:
    errors = []
    for rho in (1.0, 0.9):
        model = learned(starting(0.0, 0.0, 0.0, 1e6), rho)
        for regressors in REGRESSORS[:60]:
            model = updated(model, rho, *regressors.tolist(), float(regressors @ [0.0, 1.0, 2.0]))
        errors.append(float(np.abs(np.array(model[:3]) - [0.0, 1.0, 2.0]).max()))
    assert errors[1] < 0.02 < 1.0 < errors[0]
