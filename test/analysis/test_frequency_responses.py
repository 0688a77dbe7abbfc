# SPDX-License-Identifier: Apache-2.0
"""Tests of identification by frequency responses and by periodic noise."""

from __future__ import annotations

import numpy as np
import pytest
from coupled_rigs import DT, RIG, answers, noise, one_by_one, transfer_matrix
from messages import naming

from rths_nodes.analysis.identification import frequency_responses
from rths_nodes.analysis.identification.frequency_responses import NONE, Experiment, FrequencyResponse, fit, lines
from rths_nodes.mechanics.coupled_rig import feedforward
from rths_nodes.mechanics.loading_model import inverse_response

BAND = (0.5, 40.0)


@pytest.fixture(scope="module")
def clean() -> FrequencyResponse:
    return frequency_responses.frequency_response(one_by_one(), DT, 0.5, BAND)


def test_responses_equal_transfer_matrix(clean: FrequencyResponse) -> None:
    """The ramp within each sample adds a factor sinc^2."""
    hold = np.sinc(clean.frequency * DT)[:, None, None] ** 2
    expected = hold * np.array([transfer_matrix(RIG, s) for s in clean.s])
    scale = np.abs(np.einsum("fii->fi", expected)).min()
    assert np.abs(clean.response - expected).max() < 1e-3 * scale
    assert clean.coherence.min() > 0.999


def test_simultaneous_axes_give_same_responses(clean: FrequencyResponse) -> None:
    mixed = [answers(RIG, np.outer(noise(12.0, k), [1.0, 0.2 * k, -0.5 + 0.4 * k**2])) for k in range(3)]
    result = frequency_responses.frequency_response(mixed, DT, 0.5, BAND)
    assert np.abs(result.response - clean.response).max() < 3e-3


def test_known_delay_is_removed(clean: FrequencyResponse) -> None:
    late = frequency_responses.frequency_response(one_by_one(late=3), DT, 0.5, BAND)
    assert np.abs(late.response - clean.response).max() > 0.1
    assert np.abs(late.without_delay(3 * DT).response - clean.response).max() < 1e-3


def test_coherence_separates_noise_from_motion() -> None:
    """Of power ratio r the coherence is r / (1 + r); the noise has power 2 DT s^2, the motion rms^2 / 50 Hz."""
    sigma = 2e-4
    result = frequency_responses.frequency_response(one_by_one(noise_rms=sigma), DT, 1.0, BAND)
    at_rest = np.abs(result.response[:, 0, 0]) ** 2 * 1e-6 / 50.0
    ratio = at_rest / (2.0 * DT * sigma**2)
    np.testing.assert_allclose(result.coherence[:, 0, 0].mean(), (ratio / (1.0 + ratio)).mean(), atol=0.02)
    assert result.coherence[:, 2, 0].mean() < 0.2


def test_fit_of_exact_responses_equals_inverse() -> None:
    """The orders are those of Eq. (2.8): none for floors that are not adjacent."""
    frequency = np.linspace(0.5, 40.0, 80)
    response = np.array([transfer_matrix(RIG, 2j * np.pi * f) for f in frequency])
    fit = frequency_responses.fit_of(
        frequency_responses.entry_fits(FrequencyResponse(frequency, response, np.ones((80, 3, 3)))), 160
    )
    exact = feedforward(RIG)
    np.testing.assert_array_equal(fit.orders, [[3, 2, NONE], [2, 3, 2], [NONE, 2, 3]])
    np.testing.assert_allclose(fit.coefficients, exact, rtol=1e-6, atol=1e-15)
    assert fit.error.max() < 1e-9


def test_fit_of_noisy_responses_has_only_significant_orders() -> None:
    measured = frequency_responses.frequency_response(one_by_one(noise_rms=2e-6), DT, 0.5, BAND)
    fit = frequency_responses.fit_of(frequency_responses.entry_fits(measured), 2 * len(measured.frequency))
    np.testing.assert_array_equal(fit.orders.diagonal(), 3)
    assert fit.orders[0, 2] == fit.orders[2, 0] == NONE
    assert fit.orders[0, 1] >= 1
    exact = inverse_response(feedforward(RIG), measured.s)
    inverse = inverse_response(fit.coefficients, measured.s)
    hold = np.sinc(measured.frequency * DT)[:, None, None] ** 2
    diagonal = np.abs(np.einsum("fii->fi", exact))
    assert (np.abs(inverse - exact / hold) / diagonal[:, :, None]).max() < 2e-3
    assert np.abs(fit.response(measured.frequency) @ inverse - np.eye(3)).max() < 1e-9


def test_fit_accepts_published_orders(clean: FrequencyResponse) -> None:
    """Three zeros on the diagonal, one next to it, no dynamics for the extreme elements, which are zero."""
    orders = np.array([[3, 1, NONE], [1, 3, 1], [NONE, 1, 3]])
    fit = frequency_responses.fit_of(frequency_responses.entry_fits(clean), 2 * len(clean.frequency), orders)
    np.testing.assert_array_equal(fit.orders, orders)
    assert not fit.coefficients[:, 0, 2].any()
    assert not fit.coefficients[2:, 0, 1].any()
    assert fit.coefficients[1, 0, 1] == pytest.approx(feedforward(RIG)[1, 0, 1], rel=0.02)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_order_of_single_axis_is_identified(order: int) -> None:
    frequency = np.linspace(0.5, 20.0, 60)
    s = 2j * np.pi * frequency
    inverse = sum((0.01 * s) ** power / (power + 1) for power in range(order + 1))
    response = (1.0 / inverse)[:, None, None]
    fit = frequency_responses.fit_of(
        frequency_responses.entry_fits(FrequencyResponse(frequency, response, np.ones((60, 1, 1)))), 120
    )
    assert fit.orders[0, 0] == order


def test_unsuitable_experiments_are_refused() -> None:
    experiments = one_by_one()
    with pytest.raises(ValueError, match=naming("drive", "axis")):
        frequency_responses.frequency_response([experiments[0], experiments[1], experiments[1]], DT, 0.5, BAND)
    with pytest.raises(ValueError, match=naming("3", "frequencies", "1", "2.5 Hz")):
        frequency_responses.frequency_response(experiments, DT, 0.5, (1.0, 2.5))
    with pytest.raises(ValueError, match=naming("12.4 s", "0.5", "40 Hz", "0.1 Hz")):
        frequency_responses.frequency_response(experiments, DT, 0.1, BAND)
    with pytest.raises(ValueError, match=naming("resolution", "0 Hz", "> 0")):
        frequency_responses.frequency_response(experiments, DT, 0.0, BAND)
    with pytest.raises(ValueError, match=naming("must be equal")):
        frequency_responses.frequency_response([(np.zeros((9, 2)), np.zeros((8, 2)))], DT, 0.5, BAND)


PERIODIC_DT, PERIOD = 0.005, 4.0
SAMPLES = round(PERIOD / PERIODIC_DT)
PERIODIC_BAND = (0.3, 20.0)
TWO = np.array(
    [
        [[1.0, 0.1], [-0.2, 0.95]],
        [[0.020, 0.004], [0.002, 0.028]],
        [[1.2e-4, 2e-5], [0.0, 1.5e-4]],
        [[4e-7, 0.0], [0.0, 6e-7]],
    ]
)


def response(frequency: np.ndarray) -> np.ndarray:
    s = 2j * np.pi * frequency
    return np.linalg.inv(np.tensordot(s[:, None] ** np.arange(4), TWO, 1))


def periodic_experiments(noise: float = 0.0, periods: int = 4) -> list[Experiment]:
    """Each axis driven in turn, the other at a tenth; the first period is not yet periodic."""
    generator = np.random.default_rng(4)
    frequency = np.arange(SAMPLES // 2 + 1) / PERIOD
    excited = (frequency >= PERIODIC_BAND[0]) & (frequency <= PERIODIC_BAND[1])
    runs = []
    for axis in range(2):
        spectrum = np.zeros((len(frequency), 2), complex)
        phases = np.exp(2j * np.pi * generator.uniform(size=(excited.sum(), 2)))
        spectrum[excited] = phases * np.where(np.arange(2) == axis, 1.0, 0.1)
        moved = np.zeros_like(spectrum)
        moved[excited] = np.einsum("fij,fj->fi", response(frequency[excited]), spectrum[excited])
        command, measured = (np.tile(np.fft.irfft(part, axis=0), (periods, 1)) for part in (spectrum, moved))
        measured[: SAMPLES // 2] *= np.linspace(0.0, 1.0, SAMPLES // 2)[:, None]
        measured = measured + 0.7 + noise * generator.normal(size=measured.shape)
        runs.append((command, measured))
    return runs


def test_periodic_noise_identifies_inverse() -> None:
    frequency, seen = lines(periodic_experiments(), PERIODIC_DT, PERIOD, PERIODIC_BAND)
    assert frequency[0] == pytest.approx(0.5)  # the first multiple of 1 / period in the band
    assert frequency[-1] == pytest.approx(20.0)
    np.testing.assert_allclose(seen, response(frequency), atol=1e-9)
    slow = lines(periodic_experiments(), PERIODIC_DT, PERIOD, (PERIODIC_BAND[0], 10.0))
    np.testing.assert_allclose(fit(*slow).coefficients, TWO, atol=1e-9)


def test_periodic_fit_deviations_match_scatter() -> None:
    """Over many trials with noise, the errors are as large as stated."""
    generator = np.random.default_rng(9)
    frequency = np.arange(2, 81) / PERIOD
    errors = []
    for _ in range(200):
        noise = 1e-3 * (generator.normal(size=(len(frequency), 2, 2)) @ [1.0, 0.0] + 0.0)[..., None]
        result = fit(frequency, response(frequency) + noise * np.eye(2))
        errors.append((result.coefficients - TWO)[0, 0, 0] / result.deviation[0, 0, 0])
    assert 0.6 < np.std(errors) < 1.6


def test_periodic_fit_is_best_in_its_band() -> None:
    """A delay is no polynomial: the fit up to 5 Hz is better at 3 Hz than the one up to 20 Hz."""
    frequency = np.arange(2, 81) / PERIOD
    delay = np.exp(-2j * np.pi * frequency * 0.03)[:, None, None]

    def error(count: int) -> float:
        c = fit(frequency[:count], delay[:count]).coefficients.ravel()
        s = 6j * np.pi
        return abs(np.exp(-s * 0.03) * (c @ s ** np.arange(4)) - 1.0)

    assert error(np.searchsorted(frequency, 5.01)) < 0.2 * error(len(frequency))


def test_unsuitable_periodic_data_are_refused() -> None:
    alone = [periodic_experiments()[0]] * 2
    with pytest.raises(ValueError, match=naming("drive", "axis")):
        lines(alone, PERIODIC_DT, PERIOD, PERIODIC_BAND)
    with pytest.raises(ValueError, match=naming("two", "periods")):
        lines(periodic_experiments(periods=1), PERIODIC_DT, PERIOD, PERIODIC_BAND)
    for periods in (2, 4):
        noise = np.random.default_rng(1).normal(size=(periods * SAMPLES, 1))
        with pytest.raises(ValueError, match=naming("command", "repeat", SAMPLES)):
            lines([(noise, noise)], PERIODIC_DT, PERIOD, PERIODIC_BAND)
    with pytest.raises(ValueError, match=naming("number", "samples")):
        lines(periodic_experiments(), PERIODIC_DT, PERIOD + 0.3 * PERIODIC_DT, PERIODIC_BAND)
    with pytest.raises(ValueError, match=naming("0.3 to 0.2 Hz", "multiple")):  # of a slow structure
        lines(periodic_experiments(), PERIODIC_DT, PERIOD, (PERIODIC_BAND[0], 0.2))
    with pytest.raises(ValueError, match=naming("lines", "more", "8")):
        fit(*lines(periodic_experiments(), PERIODIC_DT, PERIOD, (PERIODIC_BAND[0], 2.0)))
