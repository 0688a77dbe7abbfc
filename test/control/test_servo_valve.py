# SPDX-License-Identifier: Apache-2.0
"""The controller of a rig with its servo-valve: closed forms of its loops on a spring."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from messages import naming

from rths_nodes.control.force_controllers.servo_valve import ServoValve
from rths_nodes.core.checks import TestContext
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.validation import from_data

DT, STIFFNESS, GAIN, TIME = 1e-4, 1e9, 60.0, 0.003


def controller(**given: Any) -> ServoValve:
    data = {"stiffness": STIFFNESS, "gain": GAIN, "valve_time_constant": TIME, "largest_velocity": 1.0} | given
    return ServoValve(from_data(ServoValve.Params, data, "law"), DT)


def forces(valve: ServoValve, target: float, samples: int, stiffness: float = STIFFNESS) -> np.ndarray:
    """Forces on a spring while the loop is closed by force."""
    found, force = [], 0.0
    valve.begin(0.0, 0.0, 0.0, 0.0)
    for _ in range(samples):
        force = stiffness * valve.step(target, force, 0.0)
        found.append(force)
    return np.array(found)


def test_a_step_of_force_is_answered_as_a_spool_and_an_integrating_piston_do() -> None:
    """T s^2 + s + k = 0: f / F = 1 - (b e^{-a t} - a e^{-b t}) / (b - a)."""
    found = forces(controller(), 1e3, 2000)
    root = math.sqrt(1.0 - 4.0 * GAIN * TIME)
    a, b = (1.0 - root) / (2.0 * TIME), (1.0 + root) / (2.0 * TIME)
    t = DT * np.arange(1, 2001)
    closed = 1e3 * (1.0 - (b * np.exp(-a * t) - a * np.exp(-b * t)) / (b - a))
    np.testing.assert_allclose(found, closed, atol=6.0)


def test_a_leak_leaves_the_error_of_the_closed_form() -> None:
    """Open in one direction, the spool is held against the leak: F - f = q_0 K / k_f."""
    assert 1e3 - forces(controller(leakage=1e-6), 1e3, 4000)[-1] == pytest.approx(
        -1e-6 * STIFFNESS / GAIN, rel=1e-6
    )


def test_a_wide_open_valve_moves_at_its_largest_velocity() -> None:
    found = np.diff(forces(controller(largest_velocity=0.02), 1e8, 400)) / STIFFNESS / DT
    assert found[-1] == pytest.approx(0.02, rel=1e-3)
    assert found.max() <= 0.02


def test_held_it_goes_where_the_sensor_shows_the_command_and_a_change_moves_nothing() -> None:
    valve, place = controller(), 0.0
    valve.stand(1e-3)
    for _ in range(100):
        place = valve.hold(1e-3, place or 1e-3)
    assert place == 1e-3
    valve.begin(place, 7e5, 0.0, 0.0)
    for _ in range(100):
        assert valve.step(7e5, 7e5, 0.0) == place
    assert valve.correction == 0.0


def test_what_neither_stiffness_nor_drift_explains_is_its_correction() -> None:
    valve = controller(column={"column_length": 3.0})
    assert valve.coupled_to == 0
    valve.begin(0.0, 0.0, 0.0, 0.0)
    force, place, drift = 0.0, 0.0, 0.0
    for k in range(4000):
        drift = 0.02 * k / 4000
        place = valve.step(5e5, force, drift)
        force = STIFFNESS * (place - (3.0 - math.sqrt(9.0 - drift**2)))
        assert abs(valve.correction) < 4e-6
    valve.step(5e5, force - 1e5, drift)  # a cell that shows 100 kN too little
    assert valve.correction == pytest.approx(1e5 / STIFFNESS, rel=0.05)


@pytest.mark.parametrize("name", ["gain", "displacement_gain"])
def test_a_loop_that_cannot_be_stable_is_refused(name: str) -> None:
    context = TestContext.__new__(TestContext)
    object.__setattr__(context, "dt", 1e-3)
    params = from_data(ServoValve.Params, {"stiffness": STIFFNESS, name: 400.0}, "law")
    with pytest.raises(ConfigError, match=naming(name, "400 1/s", "< 349 1/s", "4.5 ms")):
        params.fits(context)
