# SPDX-License-Identifier: Apache-2.0
"""Identification on closed forms: sines, first-order lags, models that are exactly of the wanted kind."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from messages import naming

from rths_nodes.analysis.identification.estimate import (
    delay_of_sine,
    discrete_model,
    first_order_alpha,
    sine_of,
)

DT = 1.0 / 1024.0
TIMES = DT * np.arange(3000)


def sine(frequency: float, amplitude: float = 1.0, delay: float = 0.0) -> np.ndarray:
    return amplitude * np.sin(2.0 * np.pi * frequency * (TIMES - delay))


@pytest.mark.parametrize("delay", [0.0137, 0.0, -0.004, 0.1])
def test_delay_and_amplitude_of_a_late_sine(delay: float) -> None:
    """2930 samples are no whole number of periods, and the measurement has an offset."""
    found = delay_of_sine(sine(2.0), 0.97 * sine(2.0, delay=delay) + 0.3, DT, 2.0)
    assert found.delay == pytest.approx(delay, abs=1e-12)
    assert found.amplitude_ratio == pytest.approx(0.97, rel=1e-9)


def test_the_amplitude_is_complex_with_the_cosine_in_front() -> None:
    history = 3.0 * np.cos(2.0 * np.pi * 1.7 * TIMES) - 4.0 * np.sin(2.0 * np.pi * 1.7 * TIMES)
    assert sine_of(history, DT, 1.7) == pytest.approx(3.0 + 4.0j)


def test_the_fit_averages_noise() -> None:
    noise = np.random.default_rng(1).normal(size=len(TIMES))
    found = delay_of_sine(sine(2.0), sine(2.0, delay=0.0137) + 0.05 * noise, DT, 2.0)
    assert found.delay == pytest.approx(0.0137, abs=4.0 * 0.05 / (2.0 * np.pi * 2.0) * math.sqrt(2.0 / len(TIMES)))


def test_the_first_order_actuator_has_its_frequency_response(make: Callable[..., Any]) -> None:
    """1 / (alpha - (alpha - 1) / z) at z = exp(j w dt): Chen & Ricles 2010, Eq. (4)."""
    actuator = make("actuator", "first_order", DT, make("specimen", "kelvin_voigt", stiffness=0.0, damping=0.0))
    measured = []
    for value in sine(3.0).tolist():
        actuator.step(value)
        measured.append(actuator.displacement)
    found = delay_of_sine(sine(3.0)[1000:], np.array(measured)[1000:], DT, 3.0)
    response = 1.0 / (29.0 - 28.0 * np.exp(-2j * np.pi * 3.0 * DT))
    assert found.amplitude_ratio == pytest.approx(abs(response))
    assert found.delay == pytest.approx(-np.angle(response) / (2.0 * np.pi * 3.0))


def test_alpha_is_a_sample_more_than_the_delay() -> None:
    assert first_order_alpha(0.0, DT) == 1.0
    assert first_order_alpha(28.0 * DT, DT) == 29.0
    with pytest.raises(ValueError, match=r"delay = -0\.001 s"):
        first_order_alpha(-0.001, DT)


@pytest.mark.parametrize("spacing", [1, 5])
def test_the_discrete_model_comes_back(spacing: int) -> None:
    measured, theta = np.random.default_rng(1).normal(size=500), [3.187, 0.428, -2.660]
    command = sum(t * np.roll(measured, tap * spacing) for tap, t in enumerate(theta))
    command[: 2 * spacing] = 1e9  # not used: the samples before them are not known
    np.testing.assert_allclose(discrete_model(command, measured, spacing), theta, rtol=1e-9)


def test_the_discrete_model_of_a_delayed_sweep_predicts() -> None:
    """Three taps at 5 samples undo a delay of 10 samples below 4 Hz to a per cent, where [1, 0, 0] fails."""
    sweep = np.sin(2.0 * np.pi * (0.1 * TIMES + 0.65 * TIMES**2))
    command, measured = sweep[10:], sweep[:-10]
    theta = discrete_model(command, measured, 5)
    predicted = sum(t * measured[10 - 5 * tap :][: len(measured) - 10] for tap, t in enumerate(theta))
    assert np.abs(predicted - command[10:]).max() < 0.01
    assert np.abs(measured - command).max() > 0.2
    assert theta.sum() == pytest.approx(1.0, abs=1e-3)  # no error at rest in a constant position


ONES = np.ones(100)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: delay_of_sine(ONES, ONES[1:], DT, 1.0), ("must be equal",)),
        (lambda: delay_of_sine(ONES, ONES, DT, 1.0), ("sine", "1 Hz")),
        (lambda: delay_of_sine(0.0 * ONES, ONES, DT, 1.0), ("sine", "1 Hz")),
        (lambda: delay_of_sine(ONES, ONES, DT, 0.0), ("frequency", "0 Hz")),
        (lambda: sine_of(ONES[:2], DT, 1.0), ("three", "samples")),
        (lambda: discrete_model(ONES, ONES[1:], 5), ("must be equal",)),
        (lambda: discrete_model(ONES, ONES, 0), ("spacing", "0")),
        (lambda: discrete_model(ONES[:12], ONES[:12], 5), ("12", ">= 13")),
        (lambda: discrete_model(ONES, ONES, 5), ("determine", "three")),
        (lambda: discrete_model(sine(2.0), sine(2.0), 5), ("determine", "three")),
    ],
)
def test_what_cannot_be_identified_is_refused(call: Callable[[], Any], message: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=naming(*message)):
        call()
