"""Setups: motions and forces by virtual work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rths_nodes.components import Motion
from rths_nodes.params import ConfigError


def test_identity_hands_through(make: Callable[..., Any]) -> None:
    setup = make("setup", "identity", 2, 2)
    motion = Motion(np.array([1.0, 2.0]), np.array([3.0, 4.0]), np.array([5.0, 6.0]))
    moved = setup.axes(motion)
    np.testing.assert_array_equal(moved.displacement, motion.displacement)
    np.testing.assert_array_equal(setup.forces(np.array([7.0, 8.0])), [7.0, 8.0])


def test_identity_is_refused_when_the_numbers_differ(make: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match="2 axes for 1 degrees of freedom: the numbers must be equal"):
        make("setup", "identity", 1, 2)


def test_a_matrix_moves_axes_between_floors(make: Callable[..., Any]) -> None:
    setup = make("setup", "matrix", 3, 2, matrix=[[1.0, 0.0, 0.0], [0.0, -1.0, 1.0]])
    x = np.array([1.0, 3.0, 7.0])
    motion = setup.axes(Motion(x, 2.0 * x, 3.0 * x))
    np.testing.assert_array_equal(motion.displacement, [1.0, 4.0])
    np.testing.assert_array_equal(motion.velocity, [2.0, 8.0])
    np.testing.assert_array_equal(motion.acceleration, [3.0, 12.0])
    np.testing.assert_array_equal(setup.forces(np.array([10.0, 5.0])), [10.0, -5.0, 5.0])
    back = setup.degrees_of_freedom(np.array([0.1, 0.2]))
    np.testing.assert_allclose(setup.axes(Motion(back, back, back)).displacement, [0.1, 0.2])


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        ([[1.0, 0.0]], r"setup.matrix: 1 rows of 2 numbers; must be 2 rows \(axes\) of 3"),
        ([[1.0, 0.0, 0.0], [2.0, 0.0, 0.0]], "depend on each other"),
    ],
)
def test_a_matrix_that_does_not_fit_is_refused(make: Callable[..., Any], matrix: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make("setup", "matrix", 3, 2, matrix=matrix)
