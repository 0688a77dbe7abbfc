# SPDX-License-Identifier: Apache-2.0
"""Identification by frequency responses: known rigs come out of noise, degrees are found, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from coupled_blocks import transfer_matrix
from messages import naming
from noisy_rigs import DT, RIG, answers, noise, one_by_one

from rths_nodes.analysis.identification.frequency_responses import (
    NONE,
    Experiment,
    FrequencyResponse,
    fit_inverse,
    frequency_response,
)
from rths_nodes.mechanics.models.coupled_rig import feedforward
from rths_nodes.mechanics.models.inverse import inverse_response

BAND = (0.5, 40.0)


@pytest.fixture(scope="module")
def clean() -> FrequencyResponse:
    return frequency_response(one_by_one(), DT, 0.5, BAND)


def test_the_responses_are_those_of_the_transfer_matrix(clean: FrequencyResponse) -> None:
    """But for the ramp within each sample, whose sinc^2 belongs to the response of samples to samples."""
    hold = np.sinc(clean.frequency * DT)[:, None, None] ** 2
    wanted = hold * np.array([transfer_matrix(RIG, s) for s in clean.s])
    scale = np.abs(np.einsum("fii->fi", wanted)).min()
    assert np.abs(clean.response - wanted).max() < 1e-3 * scale
    assert clean.coherence.min() > 0.999


def test_all_axes_may_move_at_once_if_the_experiments_differ(clean: FrequencyResponse) -> None:
    mixed = [answers(RIG, np.outer(noise(12.0, k), [1.0, 0.2 * k, -0.5 + 0.4 * k**2])) for k in range(3)]
    found = frequency_response(mixed, DT, 0.5, BAND)
    assert np.abs(found.response - clean.response).max() < 3e-3


def test_a_known_delay_is_taken_out(clean: FrequencyResponse) -> None:
    late = frequency_response(one_by_one(late=3), DT, 0.5, BAND)
    assert np.abs(late.response - clean.response).max() > 0.1
    assert np.abs(late.without_delay(3 * DT).response - clean.response).max() < 1e-3


def test_coherence_tells_noise_from_motion() -> None:
    """Of power ratio r the coherence is r / (1 + r); the noise has power 2 DT s^2, the motion rms^2 / 50 Hz."""
    sigma = 2e-4
    found = frequency_response(one_by_one(noise_rms=sigma), DT, 1.0, BAND)
    at_rest = np.abs(found.response[:, 0, 0]) ** 2 * 1e-6 / 50.0
    ratio = at_rest / (2.0 * DT * sigma**2)
    np.testing.assert_allclose(found.coherence[:, 0, 0].mean(), (ratio / (1.0 + ratio)).mean(), atol=0.02)
    assert found.coherence[:, 2, 0].mean() < 0.2


def test_the_fit_of_exact_responses_is_the_inverse() -> None:
    """And the degrees are those of Eq. (2.8): none for floors that do not touch."""
    frequency = np.linspace(0.5, 40.0, 80)
    response = np.array([transfer_matrix(RIG, 2j * np.pi * f) for f in frequency])
    fit = fit_inverse(FrequencyResponse(frequency, response, np.ones((80, 3, 3))))
    known = feedforward(RIG)
    np.testing.assert_array_equal(fit.orders, [[3, 2, NONE], [2, 3, 2], [NONE, 2, 3]])
    np.testing.assert_allclose(fit.coefficients, known, rtol=1e-6, atol=1e-15)
    assert fit.error.max() < 1e-9


def test_the_fit_of_noisy_responses_has_no_more_degrees_than_it_can_tell() -> None:
    measured = frequency_response(one_by_one(noise_rms=2e-6), DT, 0.5, BAND)
    fit = fit_inverse(measured)
    np.testing.assert_array_equal(fit.orders.diagonal(), 3)
    assert fit.orders[0, 2] == fit.orders[2, 0] == NONE
    assert fit.orders[0, 1] >= 1
    known = inverse_response(feedforward(RIG), measured.s)
    found = inverse_response(fit.coefficients, measured.s)
    hold = np.sinc(measured.frequency * DT)[:, None, None] ** 2
    diagonal = np.abs(np.einsum("fii->fi", known))
    assert (np.abs(found - known / hold) / diagonal[:, :, None]).max() < 2e-3
    assert np.abs(fit.response(measured.frequency) @ found - np.eye(3)).max() < 1e-9


def test_the_orders_of_the_paper_may_be_given(clean: FrequencyResponse) -> None:
    """Three zeros on the diagonal, one beside it, no dynamics for the extreme ones, which are zero."""
    orders = np.array([[3, 1, NONE], [1, 3, 1], [NONE, 1, 3]])
    fit = fit_inverse(clean, orders)
    np.testing.assert_array_equal(fit.orders, orders)
    assert not fit.coefficients[:, 0, 2].any()
    assert not fit.coefficients[2:, 0, 1].any()
    assert fit.coefficients[1, 0, 1] == pytest.approx(feedforward(RIG)[1, 0, 1], rel=0.02)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_order_of_a_single_axis_is_found(order: int) -> None:
    frequency = np.linspace(0.5, 20.0, 60)
    s = 2j * np.pi * frequency
    inverse = sum((0.01 * s) ** power / (power + 1) for power in range(order + 1))
    response = (1.0 / inverse)[:, None, None]
    fit = fit_inverse(FrequencyResponse(frequency, response, np.ones((60, 1, 1))))
    assert fit.orders[0, 0] == order


def test_what_tells_nothing_is_refused() -> None:
    experiments = one_by_one()
    with pytest.raises(ValueError, match=naming("drive", "axis")):
        frequency_response([experiments[0], experiments[1], experiments[1]], DT, 0.5, BAND)
    with pytest.raises(ValueError, match=naming("3", "frequencies", "1", "2.5 Hz")):
        frequency_response(experiments, DT, 0.5, (1.0, 2.5))
    with pytest.raises(ValueError, match=naming("12.4 s", "0.5", "40 Hz", "0.1 Hz")):
        frequency_response(experiments, DT, 0.1, BAND)
    with pytest.raises(ValueError, match=naming("resolution", "0 Hz", "> 0")):
        frequency_response(experiments, DT, 0.0, BAND)
    with pytest.raises(ValueError, match=naming("must be equal")):
        frequency_response([Experiment(np.zeros((9, 2)), np.zeros((8, 2)))], DT, 0.5, BAND)
