# SPDX-License-Identifier: Apache-2.0
"""Degrees of freedom without mass: what follows, systems of first order, modes."""

from __future__ import annotations

import numpy as np
import pytest
from messages import naming

from rths_nodes.core.errors import ConfigError
from rths_nodes.mechanics.structure import first_order, followers, massless
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
    """Displacements per force on the masses by the dynamic stiffness."""
    s = 1j * omega
    return np.asarray(np.linalg.inv(s**2 * mass + s * damping + STIFFNESS)[:, [0, 2]])


def test_a_row_of_zeros_is_a_degree_of_freedom_without_mass() -> None:
    np.testing.assert_array_equal(massless(MASS), [False, True, False, True])


@pytest.mark.parametrize(
    "damping", [NOTHING, 1e-3 * STIFFNESS, np.diag([5.0, 3.0, 2.0, 7.0])], ids=["none", "stiff", "any"]
)
def test_the_system_of_first_order_has_the_response_of_the_matrices(damping: np.ndarray) -> None:
    found = first_order(MASS, damping, STIFFNESS)
    assert len(found.system) == (4 if not damping.any() else 6)
    for omega in (1.0, 11.0, 40.0):
        z = np.linalg.solve(1j * omega * np.eye(len(found.system)) - found.system, found.inputs[:, [0, 2]])
        np.testing.assert_allclose(found.displacement @ z, response(MASS, damping, omega), rtol=1e-9, atol=1e-15)


def test_rayleigh_damping_leaves_the_static_condensation_exact() -> None:
    damping = 0.4 * MASS + 2e-3 * STIFFNESS
    static = followers(MASS, damping, STIFFNESS).static
    for omega in (1.0, 11.0, 40.0):
        x = response(MASS, damping, omega)
        np.testing.assert_allclose(x[[1, 3]], static @ x[[0, 2]], rtol=1e-9)


def test_modes_without_mass_are_those_of_a_vanishing_one() -> None:
    omega, shapes = modes(MASS, STIFFNESS)
    small, all_shapes = modes(MASS + np.diag([0.0, 1e-9, 0.0, 1e-9]), STIFFNESS)
    assert shapes.shape == (4, 2)
    np.testing.assert_allclose(omega, small[:2], rtol=1e-6)
    np.testing.assert_allclose(np.abs(shapes), np.abs(all_shapes[:, :2]), rtol=1e-5)
    np.testing.assert_allclose(shapes.T @ MASS @ shapes, np.eye(2), atol=1e-12)


def test_what_nothing_holds_is_refused() -> None:
    with pytest.raises(ConfigError, match=naming("degrees", "freedom", "2", "4")):
        followers(MASS, NOTHING, np.diag([1.0, 0.0, 1.0, 1.0]))


def test_damping_at_some_of_them_is_refused() -> None:
    with pytest.raises(ConfigError, match=naming("mass", "2", "4", "damping")):
        followers(MASS, np.diag([0.0, 1.0, 0.0, 0.0]), STIFFNESS)
