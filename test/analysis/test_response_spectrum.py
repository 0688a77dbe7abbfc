# SPDX-License-Identifier: Apache-2.0
"""Response spectra: closed forms, and the same by an integrator of the loop."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rths_nodes.analysis.figures.histories import response_spectrum

STEP = 1.0 / 256.0


def test_a_step_of_acceleration_overshoots_as_it_must() -> None:
    """S_d = a / omega^2 (1 + exp(-pi zeta / sqrt(1 - zeta^2))); the ground's acceleration stays."""
    periods, zeta = np.array([0.5, 1.0, 2.0]), 0.1
    moved_most, strength = response_spectrum(np.full(4096, 3.0), STEP, periods, zeta)
    omega = 2.0 * math.pi / periods
    overshoot = 1.0 + math.exp(-math.pi * zeta / math.sqrt(1.0 - zeta**2))
    np.testing.assert_allclose(moved_most, 3.0 / omega**2 * overshoot, rtol=2e-3)
    np.testing.assert_allclose(strength, 3.0 * overshoot, rtol=2e-3)


def test_resonance_is_one_over_twice_the_damping() -> None:
    time = np.arange(0.0, 60.0, STEP)
    _, strength = response_spectrum(np.sin(2.0 * math.pi * time), STEP, np.array([1.0]))
    assert strength[0] == pytest.approx(1.0 / (2.0 * 0.05), rel=1e-3)


def test_its_ends_are_the_ground_s_own() -> None:
    """A stiff oscillator has the acceleration of the ground, a soft one its displacement."""
    time = np.arange(0.0, 8.0, STEP)
    ground = np.sin(2.0 * math.pi * time) * np.sin(math.pi * time / 8.0) ** 2
    moved = np.cumsum(np.cumsum(ground)) * STEP**2
    moved_most, strength = response_spectrum(ground, STEP, np.array([0.02, 400.0]))
    assert strength[0] == pytest.approx(np.abs(ground).max(), rel=2e-3)
    assert moved_most[1] == pytest.approx(np.abs(moved).max(), rel=3e-2)
