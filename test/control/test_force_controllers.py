# SPDX-License-Identifier: Apache-2.0
"""Tests of force controllers on a spring: feed-forward PI, and a rig's controller with its servo-valve."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import numpy as np
import pytest
from messages import naming

from rths_nodes.control.force_controllers import FeedForwardPi, ServoValve
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import TestContext
from rths_nodes.core.validation import from_data
from rths_nodes.mechanics.axial_load import ColumnGeometry, extension_at, lengths_of

DT, STIFFNESS = 1.0 / 1024.0, 1e9


def feed_forward_pi(**params: Any) -> FeedForwardPi:
    return FeedForwardPi(from_data(FeedForwardPi.Params, {"stiffness": STIFFNESS} | params), DT)


def forces_of_pi(pi: FeedForwardPi, target: float, stiffness: float, late: int, seconds: float) -> list[float]:
    """Forces of a spring that follows its commands after ``late`` samples, from a displacement of zero."""
    line = deque([0.0] * late)
    pi.begin(0.0, 0.0, 0.0, 0.0)
    force, forces = 0.0, []
    for _ in range(round(seconds / DT)):
        line.append(pi.step(target, force, 0.0))
        force = stiffness * line.popleft()
        forces.append(force)
    return forces


def test_pi_feeds_compliance_forward() -> None:
    forces = forces_of_pi(feed_forward_pi(integral_gain=1e-3), 100e3, STIFFNESS, 1, 0.1)
    assert forces[-1] == pytest.approx(100e3, rel=1e-4)


@pytest.mark.parametrize("stiffness", [0.5e9, 1.4e9])
def test_pi_error_of_wrong_stiffness_decays_with_integral_gain(stiffness: float) -> None:
    forces = forces_of_pi(feed_forward_pi(integral_gain=5.0), 100e3, stiffness, 1, 3.0)
    assert forces[-1] == pytest.approx(100e3, rel=1e-3)
    rate = 5.0 * stiffness / STIFFNESS
    after = forces[1 + round(1.0 / rate / DT)] - 100e3
    before = 100e3 * stiffness / STIFFNESS - 100e3
    assert after / before == pytest.approx(0.36, abs=0.03)  # 1 / e, except for the delay


def test_pi_stability_limit_is_quarter_turn() -> None:
    late = 20
    delay = (late + 0.5) * DT  # the integral includes the current sample
    gains = (0.9 * 1.5708 / delay, 1.1 * 1.5708 / delay)
    stable, unstable = (
        forces_of_pi(feed_forward_pi(integral_gain=gain), 1e3, STIFFNESS * 1.01, late, 8.0) for gain in gains
    )
    assert max(abs(force - 1e3) for force in stable[-200:]) < 1.0
    assert max(abs(force - 1e3) for force in unstable[-200:]) > 10.0


def test_pi_takes_over_at_current_displacement() -> None:
    column = {"column_length": 3.0, "actuator_length": 2.0}
    controller, geometry = feed_forward_pi(lead=0.01, column=column), lengths_of(from_data(ColumnGeometry, column))
    drift, step, displacement, force = 0.012, 1e-5, 3.3e-4, 250e3
    controller.begin(displacement, force, drift, drift - step)
    ahead = 0.01 / DT
    first = controller.step(force, force, drift)
    assert controller.correction == 0.0
    # the drift has stopped: only its feed-forward is removed
    back = extension_at(geometry, force / STIFFNESS, drift) - extension_at(
        geometry, force / STIFFNESS, drift + ahead * step
    )
    assert first == pytest.approx(displacement + back, abs=1e-12)


def test_pi_reset_restores_initial_state() -> None:
    used, fresh = feed_forward_pi(lead=0.01), feed_forward_pi(lead=0.01)
    forces_of_pi(used, 1e5, 2e9, 3, 0.2)
    used.reset()
    assert forces_of_pi(used, 1e5, 2e9, 3, 0.2) == forces_of_pi(fresh, 1e5, 2e9, 3, 0.2)


VALVE_DT, GAIN, TIME = 1e-4, 60.0, 0.003


def servo_valve(**changes: Any) -> ServoValve:
    data = {"stiffness": STIFFNESS, "gain": GAIN, "valve_time_constant": TIME, "largest_velocity": 1.0} | changes
    return ServoValve(from_data(ServoValve.Params, data, "law"), VALVE_DT)


def forces_of_valve(valve: ServoValve, target: float, samples: int, stiffness: float = STIFFNESS) -> np.ndarray:
    """Forces on a spring while the loop is closed by force."""
    forces, force = [], 0.0
    valve.begin(0.0, 0.0, 0.0, 0.0)
    for _ in range(samples):
        force = stiffness * valve.step(target, force, 0.0)
        forces.append(force)
    return np.array(forces)


def test_valve_step_response_has_closed_form() -> None:
    """T s^2 + s + k = 0: f / F = 1 - (b e^{-a t} - a e^{-b t}) / (b - a)."""
    forces = forces_of_valve(servo_valve(), 1e3, 2000)
    root = math.sqrt(1.0 - 4.0 * GAIN * TIME)
    a, b = (1.0 - root) / (2.0 * TIME), (1.0 + root) / (2.0 * TIME)
    t = VALVE_DT * np.arange(1, 2001)
    closed = 1e3 * (1.0 - (b * np.exp(-a * t) - a * np.exp(-b * t)) / (b - a))
    np.testing.assert_allclose(forces, closed, atol=6.0)


def test_valve_leakage_error_has_closed_form() -> None:
    """The spool stays open against the leak: F - f = q_0 K / k_f."""
    assert 1e3 - forces_of_valve(servo_valve(leakage=1e-6), 1e3, 4000)[-1] == pytest.approx(
        -1e-6 * STIFFNESS / GAIN, rel=1e-6
    )


def test_valve_velocity_is_limited() -> None:
    forces = np.diff(forces_of_valve(servo_valve(largest_velocity=0.02), 1e8, 400)) / STIFFNESS / VALVE_DT
    assert forces[-1] == pytest.approx(0.02, rel=1e-3)
    assert forces.max() <= 0.02


def test_valve_holds_displacement_and_switches_without_motion() -> None:
    valve, displacement = servo_valve(), 0.0
    valve.stand(1e-3)
    for _ in range(100):
        displacement = valve.hold(1e-3, displacement or 1e-3)
    assert displacement == 1e-3
    valve.begin(displacement, 7e5, 0.0, 0.0)
    for _ in range(100):
        assert valve.step(7e5, 7e5, 0.0) == displacement
    assert valve.correction == 0.0


def test_valve_correction_excludes_stiffness_and_drift() -> None:
    valve = servo_valve(column={"column_length": 3.0})
    assert valve.coupled_to == 0
    valve.begin(0.0, 0.0, 0.0, 0.0)
    force, displacement, drift = 0.0, 0.0, 0.0
    for k in range(4000):
        drift = 0.02 * k / 4000
        displacement = valve.step(5e5, force, drift)
        force = STIFFNESS * (displacement - (3.0 - math.sqrt(9.0 - drift**2)))
        assert abs(valve.correction) < 4e-6
    valve.step(5e5, force - 1e5, drift)  # the load cell shows 100 kN too little
    assert valve.correction == pytest.approx(1e5 / STIFFNESS, rel=0.05)


@pytest.mark.parametrize("name", ["gain", "displacement_gain"])
def test_valve_gain_without_stability_is_refused(name: str) -> None:
    context = TestContext.__new__(TestContext)
    object.__setattr__(context, "dt", 1e-3)
    params = from_data(ServoValve.Params, {"stiffness": STIFFNESS, name: 400.0}, "law")
    with pytest.raises(ConfigError, match=naming(name, "400 1/s", "< 349 1/s", "4.5 ms")):
        params.fits(context)
