# SPDX-License-Identifier: Apache-2.0
"""Exact steps of linear systems: closed forms of an integrator and an oscillator."""

from __future__ import annotations

import math

import numpy as np
import pytest
from messages import naming

from rths_nodes.core.errors import ConfigError
from rths_nodes.mechanics.structure import transition


def test_a_straight_input_of_a_double_integrator() -> None:
    phi, before, now = transition(np.array([[0.0, 1.0], [0.0, 0.0]]), np.array([[0.0], [1.0]]), 0.5)
    np.testing.assert_allclose(phi, [[1.0, 0.5], [0.0, 1.0]])
    np.testing.assert_allclose(before[:, 0], [0.5**2 / 3.0, 0.25], rtol=1e-12)
    np.testing.assert_allclose(now[:, 0], [0.5**2 / 6.0, 0.25], rtol=1e-12)


def test_an_oscillator_under_two_held_inputs() -> None:
    omega, dt = 3.0, 0.7
    system, inputs = np.array([[0.0, 1.0], [-(omega**2), 0.0]]), np.array([[0.0, 0.0], [1.0, -2.0]])
    phi, before, now = transition(system, inputs, dt)
    cosine, sine = math.cos(omega * dt), math.sin(omega * dt)
    np.testing.assert_allclose(phi, [[cosine, sine / omega], [-omega * sine, cosine]], rtol=1e-12)
    held = [(1.0 - cosine) / omega**2, sine / omega]
    np.testing.assert_allclose(before + now, np.outer(held, [1.0, -2.0]), rtol=1e-12)


def test_dynamics_that_overflow_are_refused() -> None:
    with pytest.raises(ConfigError, match=naming("step", "1 s")):
        transition(np.array([[1e4]]), np.array([[1.0]]), 1.0)
