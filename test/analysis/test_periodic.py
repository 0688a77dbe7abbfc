# SPDX-License-Identifier: Apache-2.0
"""Identification by periodic noise: the inverse of a known rig, its deviations, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from messages import naming

from rths_nodes.analysis.identification.frequency_responses import Experiment, Lines, fit, lines

DT, PERIOD = 0.005, 4.0
SAMPLES = round(PERIOD / DT)
BAND = (0.3, 20.0)
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


def experiments(noise: float = 0.0, periods: int = 4) -> list[Experiment]:
    """Each axis driven in turn, the other one a little as well; the first period is no periodic motion yet."""
    generator = np.random.default_rng(4)
    frequency = np.arange(SAMPLES // 2 + 1) / PERIOD
    excited = (frequency >= BAND[0]) & (frequency <= BAND[1])
    found = []
    for axis in range(2):
        spectrum = np.zeros((len(frequency), 2), complex)
        phases = np.exp(2j * np.pi * generator.uniform(size=(excited.sum(), 2)))
        spectrum[excited] = phases * np.where(np.arange(2) == axis, 1.0, 0.1)
        answer = np.zeros_like(spectrum)
        answer[excited] = np.einsum("fij,fj->fi", response(frequency[excited]), spectrum[excited])
        command, measured = (np.tile(np.fft.irfft(part, axis=0), (periods, 1)) for part in (spectrum, answer))
        measured[: SAMPLES // 2] *= np.linspace(0.0, 1.0, SAMPLES // 2)[:, None]
        measured = measured + 0.7 + noise * generator.normal(size=measured.shape)
        found.append(Experiment(command, measured))
    return found


def test_the_inverse_of_a_known_rig_is_found() -> None:
    seen = lines(experiments(), DT, PERIOD, BAND)
    assert seen.frequency[0] == pytest.approx(0.5)  # the first multiple of 1 / period in the band
    assert seen.frequency[-1] == pytest.approx(20.0)
    np.testing.assert_allclose(seen.response, response(seen.frequency), atol=1e-9)
    np.testing.assert_allclose(fit(seen.up_to(10.0)).coefficients, TWO, atol=1e-9)


def test_the_deviations_are_those_of_the_coefficients() -> None:
    """Over many trials with noise, the errors are as large as stated."""
    generator = np.random.default_rng(9)
    frequency = np.arange(2, 81) / PERIOD
    errors = []
    for _ in range(200):
        noise = 1e-3 * (generator.normal(size=(len(frequency), 2, 2)) @ [1.0, 0.0] + 0.0)[..., None]
        seen = Lines(frequency, response(frequency) + noise * np.eye(2))
        found = fit(seen)
        errors.append((found.coefficients - TWO)[0, 0, 0] / found.deviation[0, 0, 0])
    assert 0.6 < np.std(errors) < 1.6


def test_the_fit_is_best_where_it_is_asked_to_be() -> None:
    """A delay is no polynomial: the fit up to 5 Hz is better at 3 Hz than the one up to 20 Hz."""
    frequency = np.arange(2, 81) / PERIOD
    late = Lines(frequency, np.exp(-2j * np.pi * frequency * 0.03)[:, None, None])

    def error(up_to: float) -> float:
        c = fit(late.up_to(up_to)).coefficients.ravel()
        s = 6j * np.pi
        return abs(np.exp(-s * 0.03) * (c @ s ** np.arange(4)) - 1.0)

    assert error(5.0) < 0.2 * error(20.0)


def test_what_tells_nothing_is_refused() -> None:
    alone = [experiments()[0], experiments()[0]]
    with pytest.raises(ValueError, match=naming("drive", "axis")):
        lines(alone, DT, PERIOD, BAND)
    with pytest.raises(ValueError, match=naming("two", "periods")):
        lines(experiments(periods=1), DT, PERIOD, BAND)
    with pytest.raises(ValueError, match=naming("number", "samples")):
        lines(experiments(), DT, PERIOD + 0.3 * DT, BAND)
    with pytest.raises(ValueError, match=naming("lines", "more", "8")):
        fit(lines(experiments(), DT, PERIOD, BAND).up_to(2.0))
