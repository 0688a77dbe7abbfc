"""Structures: the matrices of the paper's frame."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

MASS, FREQUENCY = 503.4e3, 0.77
OMEGA = 2.0 * math.pi * FREQUENCY


def test_sdof_has_the_damping_and_the_linear_stiffness_of_its_frequency(make: Callable[..., Any]) -> None:
    frame = make("structure", "sdof", mass=MASS, frequency=FREQUENCY, damping_ratio=0.02)
    np.testing.assert_array_equal(frame.mass, [[MASS]])
    np.testing.assert_allclose(frame.damping, [[2.0 * 0.02 * MASS * OMEGA]])
    np.testing.assert_allclose(frame.stiffness, [[MASS * OMEGA**2]])
    np.testing.assert_array_equal(frame.influence, [1.0])
    assert frame.names == ("x",)
    assert frame.elastic_energy == 0.0


def test_sdof_takes_the_stiffness_and_the_energy_of_its_restoring_force(make: Callable[..., Any]) -> None:
    force = {"type": "bouc_wen", "stiffness": 11.76e6, "yield_displacement": 0.01}
    frame = make("structure", "sdof", mass=MASS, frequency=FREQUENCY, restoring_force=force)
    np.testing.assert_array_equal(frame.stiffness, [[11.76e6]])
    assert frame.elastic_energy == pytest.approx(588.0)
    # the paper's 11.76 kN/mm and 0.77 Hz agree to the digits it prints
    assert pytest.approx(11.76e6, rel=5e-3) == MASS * OMEGA**2
