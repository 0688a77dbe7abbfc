"""Motions beside a test: within the velocity and the acceleration of every axis, and to the place."""

from __future__ import annotations

import numpy as np
import pytest

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Measurement
from rths_nodes.loop.procedure.motions import BoundedRamp, GuidedMotion

DT = 1.0 / 1024.0
AT_REST = Measurement(0, np.zeros(2), np.zeros(2), np.zeros(2))


def commands(motion: GuidedMotion) -> np.ndarray:
    found = []
    while (command := motion.step(AT_REST)) is not None:
        found.append(command)
    return np.array(found)


@pytest.mark.parametrize("far", [1e-6, 1e-3, 0.4])
def test_a_ramp_keeps_the_velocity_and_the_acceleration_of_every_axis(far):
    start, goal = np.array([0.01, -0.02]), np.array([0.01 + far, -0.02 - 0.3 * far])
    velocity, acceleration = np.array([0.02, 0.005]), np.array([0.5, 0.1])
    path = np.vstack([start, start, commands(BoundedRamp(start, goal, velocity, acceleration, DT)), goal])
    assert np.array_equal(path[-2], goal)
    assert (np.abs(np.diff(path, axis=0)) <= velocity * DT).all()
    assert (np.abs(np.diff(path, 2, axis=0)) <= 1.0001 * acceleration * DT**2 + 1e-16).all()


def test_all_axes_arrive_at_the_same_time_on_a_straight_line():
    goal = np.array([0.1, 0.02])
    path = commands(BoundedRamp(np.zeros(2), goal, np.array([0.05, 0.05]), np.array([1.0, 1.0]), DT))
    assert path[:, 1] == pytest.approx(0.2 * path[:, 0], abs=1e-15)


def test_a_ramp_that_goes_nowhere_is_over_at_once():
    assert BoundedRamp(np.ones(2), np.ones(2), np.ones(2), np.ones(2), DT).step(AT_REST) is None


def test_what_is_no_place_or_no_bound_is_refused():
    with pytest.raises(ConfigError, match="must be finite"):
        BoundedRamp(np.zeros(1), np.array([np.nan]), np.ones(1), np.ones(1), DT)
    with pytest.raises(ConfigError, match=r"velocity = \[0.0\]: must be > 0"):
        BoundedRamp(np.zeros(1), np.ones(1), np.zeros(1), np.ones(1), DT)
