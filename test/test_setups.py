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
