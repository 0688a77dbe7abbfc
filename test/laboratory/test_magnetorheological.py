# SPDX-License-Identifier: Apache-2.0
"""Magnetorheological damper: its limits in closed form, the published damper, steps that are short enough."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from messages import naming
from scipy.integrate import trapezoid

from rths_nodes.laboratory.actuators.unloaded import SpecimenPath

YIELD = math.sqrt(301.0 / (363e4 + 363e4))
"""m: largest z."""
BARE = {"stiffness": 0.0, "accumulator_stiffness": 0.0}
"""Nothing but dashpots and hysteresis: constant velocities have a steady force."""

Make = Callable[..., Any]


@pytest.fixture
def damper(make: Make) -> Make:
    def damper(**data: Any) -> Any:
        return make("specimen", "magnetorheological_damper", **data)

    return damper


def constants(voltage: float) -> tuple[float, float, float]:
    """alpha, c_0, c_1 of the published damper."""
    return 14000.0 + 69500.0 * voltage, 2100.0 + 350.0 * voltage, 28300.0 + 295.0 * voltage


def pull(damper: Any, velocity: float, duration: float, step: float = 1e-4) -> np.ndarray:
    """Forces under a constant velocity from rest."""
    path = SpecimenPath(damper, step)
    return np.array([path.move(velocity * k * step, velocity) for k in range(1, round(duration / step) + 1)])


@pytest.mark.parametrize(("voltage", "force"), [(0.0, 279.4), (2.25, 1260.2)])
def test_beyond_yield_it_is_a_constant_force_and_a_dashpot(damper: Make, voltage: float, force: float) -> None:
    """F = c_1 / (c_0 + c_1) (alpha z_max + c_0 v), z_max = (A / (beta + gamma))^(1/n)."""
    alpha, c_0, c_1 = constants(voltage)
    expected = c_1 / (c_0 + c_1) * (alpha * YIELD + c_0 * 0.1)
    assert expected == pytest.approx(force, abs=0.1)
    assert pull(damper(voltage=voltage, **BARE), 0.1, 0.1)[-1] == pytest.approx(expected, rel=1e-6)


def test_below_yield_it_is_the_series_dashpot_alone(damper: Make) -> None:
    """A velocity too small to slip: z comes to rest where all of it goes through c_1."""
    assert pull(damper(voltage=2.25, **BARE), 0.01, 0.2)[-1] == pytest.approx(0.01 * constants(2.25)[2], rel=1e-6)


def test_pushed_and_pulled_it_is_the_same(damper: Make) -> None:
    for voltage in (0.0, 1.0):
        np.testing.assert_array_equal(
            pull(damper(voltage=voltage), 0.07, 0.02), -pull(damper(voltage=voltage), -0.07, 0.02)
        )


def test_full_voltage_makes_the_yield_level_twelve_times_as_high() -> None:
    """alpha z_max: 90 N and 1097 N."""
    levels = [constants(voltage)[0] * YIELD for voltage in (0.0, 2.25)]
    assert levels == pytest.approx([90.1, 1097.0], rel=1e-3)


def loop(damper: Any, step: float, parts: int = 1, amplitude: float = 0.015, frequency: float = 2.5) -> np.ndarray:
    """x (m), v (m/s) and force (N) over two periods of a sine, sampled every ``step`` s, in ``parts`` moves."""
    time = np.arange(round(2.0 / frequency / step) + 1) * step
    phase = 2.0 * math.pi * frequency * time
    x, v = amplitude * np.sin(phase), 2.0 * math.pi * frequency * amplitude * np.cos(phase)
    path = SpecimenPath(damper, step / parts)
    forces = [path.move(0.0, v[0])]
    for before, after, velocity in zip(x, x[1:], v[1:], strict=False):
        for part in range(1, parts + 1):
            force = path.move(float(before + part / parts * (after - before)), float(velocity))
        forces.append(force)
    return np.array([x, v, forces])


def test_loops_of_the_published_experiment(damper: Make) -> None:
    """2.5 Hz, 15 mm (Spencer et al. 1997): about 1.5 kN at 2.25 V; all loops dissipate, more with more voltage."""
    peaks, energies = [], []
    for voltage in (0.0, 0.75, 1.5, 2.25):
        x, v, force = loop(damper(voltage=voltage), 0.5e-3)
        second = slice(len(x) // 2, None)
        peaks.append(np.abs(force[second]).max())
        energies.append(trapezoid(force[second], x[second]))
        fast = np.abs(v) > 0.1
        assert (force[fast] * v[fast] > 0.0)[second].all()
    assert peaks[3] == pytest.approx(1500.0, rel=0.1)
    assert peaks == sorted(peaks)
    assert energies == sorted(energies)
    assert energies[0] > 0.0


@pytest.mark.parametrize("rate", [500.0, 1000.0, 2000.0, 4000.0])
def test_its_loops_do_not_depend_on_the_increments(damper: Make, rate: float) -> None:
    """Against samples that are divided into sixteen along the same path."""

    def second_period(parts: int) -> np.ndarray:
        force = loop(damper(voltage=2.25), 1.0 / rate, parts)[2]
        return force[len(force) // 2 :]

    fine = second_period(16)
    assert np.abs(second_period(1) - fine).max() < 2e-3 * np.abs(fine).max()


def test_the_field_follows_the_voltage_with_the_rate_of_the_filter(damper: Make) -> None:
    driven = damper()
    state, step = list(driven.initial_state), 1e-5
    driven.voltage = 2.0
    for _ in range(500):
        state[2] += (
            step * driven.rate([0.0, 0.0, state[2] + 0.5 * step * driven.rate(state, 0.0, 0.0)[2]], 0, 0)[2]
        )
    assert state[2] == pytest.approx(2.0 * (1.0 - math.exp(-190.0 * 0.005)), rel=1e-5)


@pytest.mark.parametrize(("wanted", "given"), [(-1.0, 0.0), (1.5, 1.5), (9.0, 2.25)])
def test_the_driver_saturates(damper: Make, wanted: float, given: float) -> None:
    driven = damper()
    driven.voltage = wanted
    assert driven.voltage == given


def test_the_accumulator_pushes_before_anything_moves(damper: Make) -> None:
    loaded = damper(accumulator_displacement=0.143)
    assert loaded.force(loaded.initial_state, 0.0, 0.0) == pytest.approx(-71.5)
    tared = damper()
    assert tared.force(tared.initial_state, 0.0, 0.0) == 0.0


def test_what_cannot_be_is_refused(damper: Make) -> None:
    with pytest.raises(ValueError, match=r"specimen\.beta \+ gamma = 0 1/m\^2: must be > 0"):
        damper(beta=0.0, gamma=0.0)
    with pytest.raises(ValueError, match=naming("specimen.voltage", "3 V", "<= max_voltage", "2.25 V")):
        damper(voltage=3.0)


@pytest.mark.parametrize("velocity", [0.1, 0.3, 1.0])
def test_it_is_stable_at_any_velocity(damper: Make, velocity: float) -> None:
    """Beyond yield F = c_1 / (c_0 + c_1) (alpha z_max + c_0 v); four increments diverged beyond 0.24 m/s."""
    alpha, c_0, c_1 = constants(0.0)
    expected = c_1 / (c_0 + c_1) * (alpha * YIELD + c_0 * velocity)
    assert pull(damper(**BARE), velocity, 0.1, 5e-4)[-1] == pytest.approx(expected, rel=1e-3)
