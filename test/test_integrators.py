"""Integrators: order, stability and energy on a single degree of freedom; the paper's alpha."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rths_nodes.integrators.dynamics import Dynamics
from rths_nodes.params import ConfigError

EXPLICIT = ["cr", "central_difference"]
MASS, FREQUENCY = 2.0, 1.0
OMEGA = 2.0 * math.pi * FREQUENCY
STIFFNESS = MASS * OMEGA**2
STATIC = 0.01
"""Displacement under the constant load, m: released from rest, the mass swings freely round it."""


@pytest.fixture
def swing(make: Callable[..., Any]) -> Callable[..., np.ndarray]:
    """Displacements of a mass that is released from rest, off its static position."""

    def swing(name: str, dt: float, steps: int, damping_ratio: float = 0.0) -> np.ndarray:
        frame = make("structure", "sdof", mass=MASS, frequency=FREQUENCY, damping_ratio=damping_ratio)
        solver = make("integrator", name, frame, np.full((steps + 1, 1), STIFFNESS * STATIC), dt)
        history = [0.0]
        for _ in range(steps):
            solver.step(np.zeros(1))
            history.append(float(solver.displacement[0]))
        return np.array(history)

    return swing


def test_cr_has_the_alpha_of_the_reference_set_up(make: Callable[..., Any]) -> None:
    force = {"type": "bouc_wen", "stiffness": 11.76e6, "yield_displacement": 0.01}
    frame = make("structure", "sdof", mass=503.4e3, frequency=0.77, damping_ratio=0.02, restoring_force=force)
    equivalent = {"equivalent_stiffness": 7.6e6, "equivalent_damping": 0.64e6}
    solver = make("integrator", "cr", frame, np.zeros((2, 1)), 10.0 / 1024.0, **equivalent)
    assert solver.alpha[0, 0] == pytest.approx(0.9919949569, abs=1e-10)


def largest_error(solver: Any, exact: np.ndarray) -> float:
    history = [float(solver.displacement[0])]
    for _ in exact[1:]:
        solver.step(np.zeros(1))
        history.append(float(solver.displacement[0]))
    return float(np.abs(np.array(history) - exact).max())


def assert_second_order(errors: list[float], size: float) -> None:
    assert errors[0] < 0.02 * size
    assert errors[0] / errors[1] == pytest.approx(4.0, rel=0.06)
    assert errors[1] / errors[2] == pytest.approx(4.0, rel=0.06)


def test_cr_is_of_second_order_on_a_free_vibration(make: Callable[..., Any]) -> None:
    frame = make("structure", "sdof", mass=MASS, frequency=FREQUENCY, damping_ratio=0.0)
    errors = []
    for steps in (200, 400, 800):
        solver = make("integrator", "cr", frame, np.zeros((steps + 1, 1)), 2.0 / steps)
        solver.velocity = np.array([OMEGA])
        errors.append(largest_error(solver, np.sin(OMEGA * np.linspace(0.0, 2.0, steps + 1))))
    assert_second_order(errors, 1.0)


def test_central_difference_is_of_second_order_on_a_free_vibration(swing: Callable[..., np.ndarray]) -> None:
    zeta, errors = 0.05, []
    damped = OMEGA * math.sqrt(1.0 - zeta**2)
    for steps in (200, 400, 800):
        time = np.linspace(0.0, 2.0, steps + 1)
        shape = np.cos(damped * time) + zeta * OMEGA / damped * np.sin(damped * time)
        exact = STATIC * (1.0 - np.exp(-zeta * OMEGA * time) * shape)
        errors.append(float(np.abs(swing("central_difference", 2.0 / steps, steps, zeta) - exact).max()))
    assert_second_order(errors, STATIC)


@pytest.mark.parametrize("name", EXPLICIT)
def test_second_order_with_damping_under_a_sine_load(make: Callable[..., Any], name: str) -> None:
    """The load starts at zero: x_1 = dt^2 alpha a_0 of CR is twice the exact one, an error of first order."""
    zeta, load = 0.05, 0.6 * OMEGA
    damped = OMEGA * math.sqrt(1.0 - zeta**2)
    steady = 1.0 / (MASS * (OMEGA**2 - load**2 + 2j * zeta * OMEGA * load))
    frame = make("structure", "sdof", mass=MASS, frequency=FREQUENCY, damping_ratio=zeta)
    errors = []
    for steps in (200, 400, 800):
        time = np.linspace(0.0, 2.0, steps + 1)
        force = np.sin(load * time)[:, None]
        a = -steady.imag
        b = (zeta * OMEGA * a - load * steady.real) / damped
        fading = np.exp(-zeta * OMEGA * time) * (a * np.cos(damped * time) + b * np.sin(damped * time))
        exact = (steady * np.exp(1j * load * time)).imag + fading
        errors.append(largest_error(make("integrator", name, frame, force, 2.0 / steps), exact))
    assert_second_order(errors, abs(steady))


@pytest.mark.parametrize("name", EXPLICIT)
def test_without_damping_the_swing_neither_grows_nor_fades(swing: Callable[..., np.ndarray], name: str) -> None:
    history = swing(name, 0.02, 20_000) - STATIC
    first, last = np.abs(history[:2000]).max(), np.abs(history[-2000:]).max()
    assert last == pytest.approx(first, rel=1e-4)


@pytest.mark.parametrize("name", EXPLICIT)
def test_damping_brings_the_mass_to_its_static_position(swing: Callable[..., np.ndarray], name: str) -> None:
    assert swing(name, 0.02, 2000, 0.1)[-1] == pytest.approx(STATIC, rel=1e-6)


@pytest.mark.parametrize(("name", "order"), [("cr", 1), ("central_difference", 2)])
def test_the_velocity_belongs_to_the_displacement(make: Callable[..., Any], name: str, order: int) -> None:
    frame = make("structure", "sdof", mass=MASS, frequency=FREQUENCY, damping_ratio=0.0)
    errors = []
    for steps in (200, 400):
        dt = 2.0 / steps
        load = STIFFNESS * STATIC * np.sin(0.5 * OMEGA * dt * np.arange(steps + 1))[:, None]
        solver = make("integrator", name, frame, load, dt)
        history = []
        for _ in range(steps):
            solver.step(np.zeros(1))
            history.append((float(solver.displacement[0]), float(solver.velocity[0])))
        x, v = np.array(history).T
        errors.append(np.abs(np.gradient(x, dt)[1:-1] - v[1:-1]).max())
    assert errors[0] / errors[1] > 0.9 * 2**order


def test_cr_is_stable_with_a_step_far_beyond_the_period(swing: Callable[..., np.ndarray]) -> None:
    history = np.abs(swing("cr", 7.0, 20_000) - STATIC)
    assert history[10_000:].max() <= 1.001 * history[:10_000].max()


def test_central_difference_names_its_stability_limit(swing: Callable[..., np.ndarray]) -> None:
    limit = 2.0 / OMEGA
    with pytest.raises(ConfigError, match=rf"0\.32 s: must be < {limit:.6g} s \(stability limit 2/omega_max\)"):
        swing("central_difference", 0.32, 10)
    assert np.abs(swing("central_difference", 0.99 * limit, 2000) - STATIC).max() < 20.0 * STATIC


def test_central_difference_counts_the_specimen_in_its_limit(make: Callable[..., Any]) -> None:
    frame = make("structure", "sdof", mass=MASS, frequency=FREQUENCY)
    with pytest.raises(ConfigError, match="stability limit"):
        make(
            "integrator", "central_difference", frame, np.zeros((2, 1)), 0.2, equivalent_stiffness=3.0 * STIFFNESS
        )


@pytest.mark.parametrize("name", EXPLICIT)
def test_the_exact_acceleration_is_in_equilibrium(make: Callable[..., Any], name: str) -> None:
    frame = make("structure", "sdof", mass=MASS, frequency=FREQUENCY, damping_ratio=0.0)
    load = np.sin(np.arange(51.0))[:, None]
    solver = make("integrator", name, frame, load, 0.02)
    for index in range(50):
        before, measured = solver.displacement.copy(), np.array([0.3 * index])
        solver.step(measured)
        np.testing.assert_allclose(
            MASS * solver.exact_acceleration + STIFFNESS * before + measured, load[index], atol=1e-9
        )
        np.testing.assert_allclose(solver.restoring_force, STIFFNESS * before)


def test_the_predicted_acceleration_extrapolates_the_measured_force(make: Callable[..., Any]) -> None:
    frame = make("structure", "sdof", mass=MASS, frequency=FREQUENCY, damping_ratio=0.0)
    solver = make("integrator", "cr", frame, np.zeros((4, 1)), 0.02)
    solver.step(np.array([0.0]))
    solver.step(np.array([1.0]))
    expected = -(STIFFNESS * solver.displacement + 2.0) / MASS
    np.testing.assert_allclose(solver.acceleration, expected)


def test_at_rest_it_stays_at_rest(make: Callable[..., Any]) -> None:
    frame = make("structure", "sdof", mass=MASS, frequency=FREQUENCY)
    for name in EXPLICIT:
        solver = make("integrator", name, frame, np.zeros((6, 1)), 0.02)
        for _ in range(5):
            solver.step(np.zeros(1))
        assert not solver.displacement.any()


def test_prescribed_follows_the_function_with_its_derivatives(make: Callable[..., Any]) -> None:
    sine = {"type": "sine", "amplitude": 0.02, "frequency": 1.0}
    solver = make("integrator", "prescribed", None, np.zeros((101, 2)), 0.01, displacement=sine)
    for index in range(101):
        angle = OMEGA * 0.01 * index
        np.testing.assert_allclose(solver.displacement, 0.02 * math.sin(angle) * np.ones(2), atol=1e-15)
        np.testing.assert_allclose(solver.velocity, 0.02 * OMEGA * math.cos(angle) * np.ones(2), atol=1e-13)
        np.testing.assert_allclose(solver.acceleration, -(OMEGA**2) * solver.displacement, atol=1e-12)
        if index < 100:
            solver.step(np.full(2, 1e9))  # the force has no influence


def test_prescribed_and_a_structure_exclude_each_other(make: Callable[..., Any]) -> None:
    frame = make("structure", "sdof", mass=MASS, frequency=FREQUENCY)
    sine = {"type": "sine", "amplitude": 0.02, "frequency": 1.0}
    with pytest.raises(ConfigError, match="structure: must be left out"):
        make("integrator", "prescribed", frame, np.zeros((2, 1)), 0.01, displacement=sine)
    with pytest.raises(ConfigError, match="structure: missing"):
        make("integrator", "cr", None, np.zeros((2, 1)), 0.01)


def test_prescribed_needs_a_motion_with_derivatives(make: Callable[..., Any]) -> None:
    record = {"type": "record", "record": "elcentro_1940_ns"}
    with pytest.raises(ConfigError, match="'record': gives no velocity and acceleration; known: none, sine"):
        make("integrator", "prescribed", None, np.zeros((2, 1)), 0.01, displacement=record)


def test_an_integrator_says_how_to_advance(make: Callable[..., Any]) -> None:
    solver = Dynamics(make("structure", "sdof", mass=1.0, frequency=1.0), np.zeros((2, 1)), 0.01)
    solver.reset()
    with pytest.raises(TypeError, match="how to advance"):
        solver.step(np.zeros(1))
