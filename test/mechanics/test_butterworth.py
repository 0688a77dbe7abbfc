# SPDX-License-Identifier: Apache-2.0
"""Tests of the Butterworth low-pass against scipy, closed forms and a filtered sine."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import signal

from rths_nodes.mechanics.butterworth import Butterworth, filtered

DT = 1.0 / 1024.0


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("cutoff", [5.0, 100.0, 400.0])
def test_filter_matches_scipy(order: int, cutoff: float) -> None:
    low = Butterworth(order, cutoff, DT)
    sections = signal.butter(order, cutoff, fs=1.0 / DT, output="sos")
    values = np.random.default_rng(1).standard_normal(400)
    low.start(0.0)
    filtered_values = [low.step(value) for value in values]
    np.testing.assert_allclose(filtered_values, signal.sosfilt(sections, values), atol=1e-11)
    omega = 2.0 * math.pi * np.array([0.0, 1.0, cutoff, 500.0])
    expected = signal.sosfreqz(sections, omega, fs=2.0 * math.pi / DT)[1]
    np.testing.assert_allclose(low.frequency_response(omega), expected, atol=1e-10)
    assert abs(low.frequency_response(omega)[2]) == pytest.approx(math.sqrt(0.5))


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_group_delay_matches_analogue_closed_form(order: int) -> None:
    """Sum over the poles of sin(theta_k) / omega_c, for omega_c far below the Nyquist rate; Butterworth 1930."""
    cutoff = 2.0
    angles = (2 * np.arange(1, order + 1) - 1) * math.pi / (2 * order)
    expected = np.sin(angles).sum() / (2.0 * math.pi * cutoff)
    assert Butterworth(order, cutoff, DT).delay == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("order", [1, 2, 4, 7])
def test_slow_sine_is_delayed_by_group_delay(order: int) -> None:
    low = Butterworth(order, 50.0, DT)
    omega, time = 2.0 * math.pi * 0.5, np.arange(8192) * DT
    result = filtered(np.sin(omega * time), low)
    np.testing.assert_allclose(result[2048:], np.sin(omega * (time[2048:] - low.delay)), atol=2e-4)
    shift = np.abs(result[2048:] - np.sin(omega * time[2048:])).max()
    assert shift == pytest.approx(omega * low.delay, rel=0.01)


def test_constant_signal_has_no_transient() -> None:
    for order in (1, 2, 5):
        np.testing.assert_allclose(filtered(np.full(50, 3.7), Butterworth(order, 20.0, DT)), 3.7, rtol=1e-12)


@pytest.mark.parametrize(("order", "cutoff"), [(0, 10.0), (2, 512.0), (2, 0.0)])
def test_invalid_order_or_cutoff_is_refused(order: int, cutoff: float) -> None:
    with pytest.raises(ValueError, match=r"order = .* must be >= 1, and cutoff = .* Hz must be > 0 and < 512 Hz"):
        Butterworth(order, cutoff, DT)
