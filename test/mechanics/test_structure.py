# SPDX-License-Identifier: Apache-2.0
"""Tests of exact steps of linear systems, and of degrees of freedom without mass."""

from __future__ import annotations

import math

import numpy as np
import pytest
from messages import naming

from rths_nodes.core.errors import ConfigError
from rths_nodes.mechanics.structure import first_order, followers, massless, transition
from rths_nodes.numerical.structures.damping import modes

MASS = np.diag([3.0, 0.0, 2.0, 0.0])
STIFFNESS = np.array(
    [
        [900.0, -200.0, -300.0, 0.0],
        [-200.0, 500.0, -100.0, 50.0],
        [-300.0, -100.0, 700.0, -150.0],
        [0, 50.0, -150.0, 400.0],
    ]
)
NOTHING = np.zeros((4, 4))


def response(mass: np.ndarray, damping: np.ndarray, omega: float) -> np.ndarray:
    """Displacements per force on the masses, by the dynamic stiffness."""
    s = 1j * omega
    return np.asarray(np.linalg.inv(s**2 * mass + s * damping + STIFFNESS)[:, [0, 2]])


def test_zero_mass_row_marks_massless_degree_of_freedom() -> None:
    np.testing.assert_array_equal(massless(MASS), [False, True, False, True])


@pytest.mark.parametrize(
    "damping", [NOTHING, 1e-3 * STIFFNESS, np.diag([5.0, 3.0, 2.0, 7.0])], ids=["none", "stiff", "any"]
)
def test_first_order_system_has_response_of_matrices(damping: np.ndarray) -> None:
    system, inputs, displacement = first_order(MASS, damping, STIFFNESS)
    assert len(system) == (6 if damping.any() else 4)
    for omega in (1.0, 11.0, 40.0):
        z = np.linalg.solve(1j * omega * np.eye(len(system)) - system, inputs[:, [0, 2]])
        np.testing.assert_allclose(displacement @ z, response(MASS, damping, omega), rtol=1e-9, atol=1e-15)


def test_static_condensation_is_exact_with_rayleigh_damping() -> None:
    damping = 0.4 * MASS + 2e-3 * STIFFNESS
    static = followers(MASS, damping, STIFFNESS).static
    for omega in (1.0, 11.0, 40.0):
        x = response(MASS, damping, omega)
        np.testing.assert_allclose(x[[1, 3]], static @ x[[0, 2]], rtol=1e-9)


def test_massless_modes_are_limit_of_vanishing_mass() -> None:
    omega, shapes = modes(MASS, STIFFNESS)
    small, all_shapes = modes(MASS + np.diag([0.0, 1e-9, 0.0, 1e-9]), STIFFNESS)
    assert shapes.shape == (4, 2)
    np.testing.assert_allclose(omega, small[:2], rtol=1e-6)
    np.testing.assert_allclose(np.abs(shapes), np.abs(all_shapes[:, :2]), rtol=1e-5)
    np.testing.assert_allclose(shapes.T @ MASS @ shapes, np.eye(2), atol=1e-12)


def test_unsupported_massless_degree_of_freedom_is_refused() -> None:
    with pytest.raises(ConfigError, match=naming("degrees", "freedom", "2", "4")):
        followers(MASS, NOTHING, np.diag([1.0, 0.0, 1.0, 1.0]))


def test_damping_at_some_massless_degrees_is_refused() -> None:
    with pytest.raises(ConfigError, match=naming("mass", "2", "4", "damping")):
        followers(MASS, np.diag([0.0, 1.0, 0.0, 0.0]), STIFFNESS)


def test_transition_of_double_integrator_with_linear_input() -> None:
    phi, before, now = transition(np.array([[0.0, 1.0], [0.0, 0.0]]), np.array([[0.0], [1.0]]), 0.5)
    np.testing.assert_allclose(phi, [[1.0, 0.5], [0.0, 1.0]])
    np.testing.assert_allclose(before[:, 0], [0.5**2 / 3.0, 0.25], rtol=1e-12)
    np.testing.assert_allclose(now[:, 0], [0.5**2 / 6.0, 0.25], rtol=1e-12)


def test_transition_of_oscillator_with_held_inputs() -> None:
    omega, dt = 3.0, 0.7
    system, inputs = np.array([[0.0, 1.0], [-(omega**2), 0.0]]), np.array([[0.0, 0.0], [1.0, -2.0]])
    phi, before, now = transition(system, inputs, dt)
    cosine, sine = math.cos(omega * dt), math.sin(omega * dt)
    np.testing.assert_allclose(phi, [[cosine, sine / omega], [-omega * sine, cosine]], rtol=1e-12)
    held = [(1.0 - cosine) / omega**2, sine / omega]
    np.testing.assert_allclose(before + now, np.outer(held, [1.0, -2.0]), rtol=1e-12)


def test_transition_refuses_overflow() -> None:
    with pytest.raises(ConfigError, match=naming("step", "1 s")):
        transition(np.array([[1e4]]), np.array([[1.0]]), 1.0)
