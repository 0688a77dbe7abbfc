# SPDX-License-Identifier: Apache-2.0
"""Tests of integrators: order, stability and energy in closed form; identities of methods, modes, partitions."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from loop_parts import make, simulate
from messages import doubts, mentions, naming

from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.scenario import files
from rths_nodes.mechanics.structure import combined
from rths_nodes.numerical.integrators.dynamics import Dynamics
from rths_nodes.numerical.structures.damping import modes
from rths_nodes.numerical.structures.restoring_forces import trial_force

EXPLICIT = ["cr", "central_difference", "explicit_newmark", "kr_alpha"]
OPTIONS: dict[str, dict[str, Any]] = {"hht_alpha": {"iterations": 1}}
"""One iteration solves a linear implicit step."""

ALL = [*EXPLICIT, "hht_alpha", "runge_kutta", "exact", "newmark"]
CONSERVES = ["cr", "central_difference", "explicit_newmark", "newmark", "exact"]
MASS, FREQUENCY = 2.0, 1.0
OMEGA = 2.0 * math.pi * FREQUENCY
STIFFNESS = MASS * OMEGA**2
STATIC = 0.01
"""Static displacement under the constant load, m. The mass oscillates about it."""


def swing(name: str, dt: float, steps: int, damping_ratio: float = 0.0, **more: Any) -> np.ndarray:
    """Displacements of a mass released from rest, away from its static position."""
    frame = make("structure", "sdof", mass=MASS, frequency=FREQUENCY, damping_ratio=damping_ratio)
    load = np.full((steps + 1, 1), STIFFNESS * STATIC)
    solver = make("integrator", name, frame, load, dt, **OPTIONS.get(name, {}), **more)
    return displacements(solver, steps, no_force)[:, 0]


def test_cr_alpha_matches_reference_set_up() -> None:
    force = {"type": "bouc_wen", "stiffness": 11.76e6, "yield_displacement": 0.01}
    frame = make("structure", "sdof", mass=503.4e3, frequency=0.77, damping_ratio=0.02, restoring_force=force)
    equivalent = {"equivalent_stiffness": 7.6e6, "equivalent_damping": 0.64e6}
    solver = make("integrator", "cr", frame, np.zeros((2, 1)), 10.0 / 1024.0, **equivalent)
    alpha, _ = solver.constants.advance
    assert alpha == pytest.approx(0.9919949569, abs=1e-10)


def largest_error(solver: Any, exact: np.ndarray) -> float:
    history = displacements(solver, len(exact) - 1, no_force)[:, 0]
    return float(np.abs(history - exact).max())


def assert_second_order(errors: list[float], size: float) -> None:
    assert errors[0] < 0.02 * size
    assert errors[0] / errors[1] == pytest.approx(4.0, rel=0.06)
    assert errors[1] / errors[2] == pytest.approx(4.0, rel=0.06)


def test_cr_is_second_order_for_free_vibration() -> None:
    frame = make("structure", "sdof", mass=MASS, frequency=FREQUENCY, damping_ratio=0.0)
    errors = []
    for steps in (200, 400, 800):
        solver = make("integrator", "cr", frame, np.zeros((steps + 1, 1)), 2.0 / steps)
        solver.state = solver.recalled(np.array([0.0, OMEGA, 0.0]))
        errors.append(largest_error(solver, np.sin(OMEGA * np.linspace(0.0, 2.0, steps + 1))))
    assert_second_order(errors, 1.0)


def test_central_difference_is_second_order_for_free_vibration() -> None:
    zeta, errors = 0.05, []
    damped = OMEGA * math.sqrt(1.0 - zeta**2)
    for steps in (200, 400, 800):
        time = np.linspace(0.0, 2.0, steps + 1)
        shape = np.cos(damped * time) + zeta * OMEGA / damped * np.sin(damped * time)
        exact = STATIC * (1.0 - np.exp(-zeta * OMEGA * time) * shape)
        errors.append(float(np.abs(swing("central_difference", 2.0 / steps, steps, zeta) - exact).max()))
    assert_second_order(errors, STATIC)


@pytest.mark.parametrize("name", ALL)
def test_second_order_with_damping_under_sine_load(name: str) -> None:
    """The load starts at zero: x_1 = dt^2 alpha a_0 of CR is twice the exact value, a first-order error."""
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
        options = {"hht_alpha": {"iterations": 1, "alpha": 0.0}}.get(name, {})
        errors.append(largest_error(make("integrator", name, frame, force, 2.0 / steps, **options), exact))
    assert_second_order(errors, abs(steady))


@pytest.mark.parametrize("name", CONSERVES)
def test_undamped_amplitude_is_conserved(name: str) -> None:
    history = swing(name, 0.02, 8000) - STATIC
    first, last = np.abs(history[:1000]).max(), np.abs(history[-1000:]).max()
    assert last == pytest.approx(first, rel=1e-4)


@pytest.mark.parametrize("name", ALL)
def test_damped_mass_settles_at_static_position(name: str) -> None:
    assert swing(name, 0.02, 2000, 0.1)[-1] == pytest.approx(STATIC, rel=1e-6)


@pytest.mark.parametrize(("name", "order"), [("cr", 1), ("central_difference", 2), ("runge_kutta", 2)])
def test_velocity_is_derivative_of_displacement(name: str, order: int) -> None:
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


def test_explicit_newmark_velocity_is_central_difference() -> None:
    frame = make("structure", "sdof", mass=MASS, frequency=FREQUENCY, damping_ratio=0.1)
    solver = make("integrator", "explicit_newmark", frame, np.sin(np.arange(51.0))[:, None], 0.01)
    history = [(0.0, 0.0)]
    for _ in range(50):
        solver.step(np.zeros(1))
        history.append((float(solver.displacement[0]), float(solver.velocity[0])))
    x, v = np.array(history).T
    np.testing.assert_allclose(v[1:-1], (x[2:] - x[:-2]) / 0.02, atol=1e-12)


@pytest.mark.parametrize("name", ["cr", "kr_alpha", "hht_alpha", "exact"])
def test_unconditional_stability(name: str) -> None:
    history = np.abs(swing(name, 7.3, 4000) - STATIC)
    assert history[2000:].max() <= 1.001 * history[:2000].max()


@pytest.mark.parametrize("name", ["central_difference", "explicit_newmark"])
def test_step_beyond_stability_limit_is_refused(name: str) -> None:
    limit = 2.0 / OMEGA
    with pytest.raises(ConfigError, match=naming("0.32 s", f"< {limit:.6g} s", "2/omega_max")):
        swing(name, 0.32, 10)
    assert np.abs(swing(name, 0.99 * limit, 2000) - STATIC).max() < 20.0 * STATIC


@pytest.mark.parametrize("name", ["central_difference", "explicit_newmark"])
def test_equivalent_stiffness_lowers_stability_limit(name: str) -> None:
    frame = make("structure", "sdof", mass=MASS, frequency=FREQUENCY)
    with pytest.raises(ConfigError, match=rf"must be < {1.0 / OMEGA:.6g} s \(stability limit 2/omega_max\)"):
        make("integrator", name, frame, np.zeros((2, 1)), 0.2, equivalent_stiffness=3.0 * STIFFNESS)


def test_runge_kutta_stability_limit() -> None:
    """Stable on the imaginary axis up to sqrt(8)."""
    with pytest.raises(ConfigError, match=naming("runge_kutta", "0.5 s", "< 0.450158 s")) as caught:
        swing("runge_kutta", 0.5, 10)
    assert math.sqrt(8.0) / OMEGA == pytest.approx(float(str(caught.value).split("< ")[1].split()[0]), rel=1e-5)
    assert np.abs(swing("runge_kutta", 0.45, 2000) - STATIC).max() < 20.0 * STATIC


@pytest.mark.parametrize("name", ALL)
def test_exact_acceleration_satisfies_equilibrium(name: str) -> None:
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


def test_predicted_acceleration_extrapolates_measured_force() -> None:
    frame = make("structure", "sdof", mass=MASS, frequency=FREQUENCY, damping_ratio=0.0)
    solver = make("integrator", "cr", frame, np.zeros((4, 1)), 0.02)
    solver.step(np.array([0.0]))
    solver.step(np.array([1.0]))
    expected = -(STIFFNESS * solver.displacement + 2.0) / MASS
    np.testing.assert_allclose(solver.acceleration, expected)


def test_unloaded_mass_stays_at_rest() -> None:
    frame = make("structure", "sdof", mass=MASS, frequency=FREQUENCY)
    for name in ALL:
        assert not displacements(make("integrator", name, frame, np.zeros((6, 1)), 0.02), 5, no_force).any()


def test_prescribed_motion_and_derivatives() -> None:
    sine = {"type": "sine", "amplitude": 0.02, "frequency": 1.0}
    solver = make("integrator", "prescribed", None, np.zeros((101, 2)), 0.01, displacement=sine)
    for index in range(101):
        angle = OMEGA * 0.01 * index
        np.testing.assert_allclose(solver.displacement, 0.02 * math.sin(angle) * np.ones(2), atol=1e-15)
        np.testing.assert_allclose(solver.velocity, 0.02 * OMEGA * math.cos(angle) * np.ones(2), atol=1e-13)
        np.testing.assert_allclose(solver.acceleration, -(OMEGA**2) * solver.displacement, atol=1e-12)
        if index < 100:
            solver.step(np.full(2, 1e9))  # the force is ignored


def test_prescribed_refuses_structure_and_acceleration_record() -> None:
    frame = make("structure", "sdof", mass=MASS, frequency=FREQUENCY)
    sine = {"type": "sine", "amplitude": 0.02, "frequency": 1.0}
    with pytest.raises(ConfigError, match=naming("structure", "left")):
        make("integrator", "prescribed", frame, np.zeros((2, 1)), 0.01, displacement=sine)
    with pytest.raises(ConfigError, match="structure: missing"):
        make("integrator", "cr", None, np.zeros((2, 1)), 0.01)
    record = {"type": "record", "record": "elcentro_1940_ns"}
    with pytest.raises(ConfigError, match=naming("record", "acceleration")):
        make("integrator", "prescribed", None, np.zeros((2, 1)), 0.01, displacement=record)


def test_integrator_must_define_advancing() -> None:
    with pytest.raises(TypeError, match=naming("advancing")):
        Dynamics(None, make("structure", "sdof", mass=1.0, frequency=1.0), np.zeros((2, 1)), 0.01)


def test_runge_kutta_order_under_constant_linear_and_sine_loads() -> None:
    """m x'' + k x = t: x = (t - sin(w t) / w) / k; a sine is linear within a step, hence second order."""
    load, orders = 0.6 * OMEGA, []
    for kind in ("constant", "linear", "sine"):
        errors = []
        for steps in (50, 100, 200):
            time = np.linspace(0.0, 2.0, steps + 1)
            free, sine = np.sin(OMEGA * time) / OMEGA, np.sin(load * time)
            force, exact = {
                "constant": (np.ones(steps + 1), (1.0 - np.cos(OMEGA * time)) / STIFFNESS),
                "linear": (time, (time - free) / STIFFNESS),
                "sine": (sine, (sine - load * free) / (MASS * (OMEGA**2 - load**2))),
            }[kind]
            frame = make("structure", "sdof", mass=MASS, frequency=FREQUENCY, damping_ratio=0.0)
            solver = make("integrator", "runge_kutta", frame, force[:, None], 2.0 / steps)
            errors.append(largest_error(solver, exact))
        orders.append(np.log2(np.divide(errors[:-1], errors[1:])))
    np.testing.assert_allclose(orders[0], 4.0, atol=0.07)
    np.testing.assert_allclose(orders[1:], [[4.0, 4.0], [2.0, 2.0]], atol=0.1)


def decay_per_step(history: np.ndarray) -> float:
    """Factor per step of an oscillation about zero, from its first and last peaks."""
    peaks = np.abs(history)
    tenth = len(peaks) // 10
    first, last = peaks[:tenth].max(), peaks[-tenth:].max()
    return float((last / first) ** (1.0 / (len(peaks) - tenth)))


def test_runge_kutta_decay_matches_theory() -> None:
    """Taylor polynomial: |R(j phi)|^2 = 1 - phi^6/72 + phi^8/576."""
    dt = 0.08
    phi = OMEGA * dt
    history = swing("runge_kutta", dt, 4000) - STATIC
    expected = math.sqrt(1.0 - phi**6 / 72.0 + phi**8 / 576.0)
    assert decay_per_step(history) == pytest.approx(expected, rel=2e-6)


def assert_recurrence(history: np.ndarray, left: np.ndarray, right: np.ndarray) -> None:
    """Check the history against the characteristic polynomial of the amplification matrix left^-1 right."""
    polynomial = np.poly(np.linalg.solve(left, right))
    residual = np.convolve(history, polynomial, "valid")
    np.testing.assert_allclose(residual[1:], 0.0, atol=1e-12 * np.abs(history).max() * np.abs(polynomial).sum())


def kr_alpha_matrices(rho: float, w2: float) -> tuple[np.ndarray, np.ndarray]:
    """Matrices of the undamped state (x, dt v, dt^2 a), Kolay & Ricles (2014); w2 = (omega dt)^2."""
    alpha_m, alpha_f = (2.0 * rho - 1.0) / (rho + 1.0), rho / (rho + 1.0)
    gamma = 0.5 - alpha_m + alpha_f
    beta = 0.25 * (1.0 - alpha_m + alpha_f) ** 2
    alpha1 = 1.0 / (1.0 + beta * w2)
    alpha2 = (0.5 + gamma) * alpha1
    alpha3 = (alpha_m + alpha_f * beta * w2) * alpha1
    left = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [(1.0 - alpha_f) * w2, 0.0, 1.0 - alpha3]])
    right = np.array([[1.0, 1.0, alpha2], [0.0, 1.0, alpha1], [-alpha_f * w2, 0.0, -alpha3]])
    return left, right


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("dt", [0.05, 0.4, 5.0])
def test_kr_alpha_amplification_matches_paper(rho: float, dt: float) -> None:
    history = swing("kr_alpha", dt, 60, rho_infinity=rho) - STATIC
    assert_recurrence(history, *kr_alpha_matrices(rho, (OMEGA * dt) ** 2))


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9, 1.0])
def test_rho_infinity_is_spectral_radius_at_infinity(rho: float) -> None:
    roots = np.linalg.eigvals(np.linalg.solve(*kr_alpha_matrices(rho, 1e9)))
    assert np.abs(roots).max() == pytest.approx(rho, abs=2e-3)


def test_kr_alpha_damping_of_low_modes_is_third_order() -> None:
    """The numerical damping ratio falls with the cube of frequency times step."""
    losses = [1.0 - decay_per_step(swing("kr_alpha", dt, 3000, rho_infinity=0.5) - STATIC) for dt in (0.04, 0.02)]
    assert losses[0] / losses[1] == pytest.approx(2.0**4, rel=0.15)


@pytest.mark.parametrize("alpha", [0.0, -0.1, -0.3])
def test_hht_alpha_decay_matches_characteristic_polynomial(alpha: float) -> None:
    dt = 0.1
    w2 = (OMEGA * dt) ** 2
    beta, gamma, share = 0.25 * (1.0 - alpha) ** 2, 0.5 - alpha, 1.0 + alpha
    # state (x, dt v, dt^2 a): Hilber, Hughes, Taylor (1977)
    left = np.array([[1.0, 0.0, -beta], [0.0, 1.0, -gamma], [share * w2, 0.0, 1.0]])
    right = np.array([[1.0, 1.0, 0.5 - beta], [0.0, 1.0, 1.0 - gamma], [alpha * w2, 0.0, 0.0]])
    radius = np.abs(np.linalg.eigvals(np.linalg.solve(left, right))).max()
    assert (radius < 0.9995) if alpha else radius == pytest.approx(1.0, abs=1e-12)
    assert_recurrence(swing("hht_alpha", dt, 500, alpha=alpha) - STATIC, left, right)


FLOORS, STORY = 2e4, 4e7
MODAL = {"type": "modal", "ratios": [0.02, 0.03, 0.05]}


def tower(share: tuple[float, ...] = (0.0, 0.0, 0.0), damping: Any = MODAL, **more: Any) -> Any:
    """Three-story frame; ``share`` is the experimental part of its springs, from the bottom up."""
    tested = [STORY * part for part in share]
    data = {"masses": [FLOORS] * 3, "stiffnesses": [STORY] * 3, "damping": damping}
    return make("structure", "shear_frame", **data, experimental_stiffnesses=tested, **more)


def displacements(solver: Any, steps: int, force: Callable[[Any], np.ndarray]) -> np.ndarray:
    """Histories ``(steps + 1, n_dof)``; ``force`` returns the measured force at the state of the solver."""
    history = [solver.displacement.copy()]
    for _ in range(steps):
        solver.step(force(solver))
        history.append(solver.displacement.copy())
    return np.array(history)


def no_force(solver: Any) -> np.ndarray:
    return np.zeros_like(solver.displacement)


@pytest.mark.parametrize("name", ALL)
def test_frame_modes_match_single_masses(name: str) -> None:
    frame, dt, steps = tower(), 0.004, 150
    omega, shapes = modes(frame.mass, frame.stiffness)
    load = np.sin(60.0 * dt * np.arange(steps + 1) ** 1.1)
    options = {"hht_alpha": {"iterations": 5}}.get(name, {})
    for mode, ratio in enumerate(MODAL["ratios"]):
        modal_load = np.outer(load, frame.mass @ shapes[:, mode])
        frame_history = displacements(make("integrator", name, frame, modal_load, dt, **options), steps, no_force)
        single = make("structure", "sdof", mass=1.0, frequency=omega[mode] / (2.0 * math.pi), damping_ratio=ratio)
        solver = make("integrator", name, single, load[:, None], dt, **options)
        expected = displacements(solver, steps, no_force) * shapes[:, mode]
        assert np.abs(expected).max() > 0.0
        np.testing.assert_allclose(frame_history, expected, atol=1e-9 * np.abs(expected).max())


@pytest.mark.parametrize("share", [(1.0, 0.0, 0.0), (0.3, 0.5, 0.7), (1.0, 1.0, 1.0)])
@pytest.mark.parametrize("name", [*EXPLICIT, "hht_alpha"])
def test_experimental_spring_equals_numerical_spring(name: str, share: tuple[float, ...]) -> None:
    """The implicit method agrees at the ends of its time steps."""
    dt, steps = 0.004, 150
    load = np.outer(np.sin(20.0 * dt * np.arange(steps + 1)), [1e4, 2e4, -1e4])
    options = {"hht_alpha": {"iterations": 5, "alpha": -0.1}}.get(name, {})
    histories = []
    for frame in (tower(share), tower()):
        solver = make("integrator", name, frame, load, dt, **options)
        tested = frame.experimental_stiffness
        histories.append(displacements(solver, steps, lambda s, k=tested: k @ s.displacement))
    split, reference = (history[:: 5 if name == "hht_alpha" else 1] for history in histories)
    np.testing.assert_allclose(split, reference, atol=1e-9 * np.abs(reference).max())


@pytest.mark.parametrize(
    ("name", "options", "method", "share"),
    [("kr_alpha", {"rho_infinity": 1.0}, "cr", 0.5), ("explicit_newmark", {}, "central_difference", 0.0)],
)
def test_method_is_another_one(name: str, options: dict[str, Any], method: str, share: float) -> None:
    """KR-alpha without numerical damping is CR; explicit Newmark is the central difference method."""
    load = np.random.default_rng(1).normal(size=(201, 3)) * 1e4
    histories = [
        displacements(make("integrator", kind, tower((share, 0.0, 0.0)), load, 0.01, **more), 200, no_force)
        for kind, more in ((name, options), (method, {}))
    ]
    np.testing.assert_allclose(*histories, atol=1e-12 if share else 1e-13)


def chopra(zeta: float, dt: float) -> np.ndarray:
    """A. K. Chopra, Dynamics of Structures, Table 5.2.1: (x, v, p, p') -> (x', v'), for MASS and FREQUENCY."""
    root = math.sqrt(1.0 - zeta**2)
    damped, k = OMEGA * root, STIFFNESS
    sine, cosine = (math.exp(-zeta * OMEGA * dt) * f(damped * dt) for f in (math.sin, math.cos))
    q, r = zeta / root, 2.0 * zeta / (OMEGA * dt)
    c = (r + ((1.0 - 2.0 * zeta**2) / (damped * dt) - q) * sine - (1.0 + r) * cosine) / k
    d = (1.0 - r + (2.0 * zeta**2 - 1.0) / (damped * dt) * sine + r * cosine) / k
    c_rate = (-1.0 / dt + (OMEGA / root + q / dt) * sine + cosine / dt) / k
    d_rate = (1.0 - q * sine - cosine) / (k * dt)
    return np.array(
        [[q * sine + cosine, sine / damped, c, d], [-OMEGA / root * sine, cosine - q * sine, c_rate, d_rate]]
    )


@pytest.mark.parametrize("measured", [False, True], ids=["external", "measured"])
def test_exact_matches_coefficients_of_chopra(measured: bool) -> None:
    """The external force is linear over each step; the measured force is held."""
    zeta, dt, steps = 0.1, 0.2, 50
    load = np.random.default_rng(1).normal(size=steps + 1)
    frame = make("structure", "sdof", mass=MASS, frequency=FREQUENCY, damping_ratio=zeta)
    solver = make("integrator", "exact", frame, np.zeros((steps + 1, 1)) if measured else load[:, None], dt)
    state = np.zeros(2)
    for before, after in pairwise(load):
        solver.step(np.array([-before if measured else 0.0]))
        state = chopra(zeta, dt) @ [*state, before, before if measured else after]
        np.testing.assert_allclose([solver.displacement[0], solver.velocity[0]], state, rtol=1e-9, atol=1e-13)


def test_runge_kutta_is_taylor_series_of_exact() -> None:
    """Both extrapolate the measured force; their local difference is of fifth order."""
    load = np.outer(np.ones(401), [1e4, 2e4, -1e4])
    differences = []
    for dt in (0.008, 0.004):
        steps = round(0.8 / dt)
        frame = tower((0.6, 0.0, 0.0))
        runge_kutta, exact = (
            displacements(
                make("integrator", name, frame, load, dt, **more),
                steps,
                lambda s, k=frame.experimental_stiffness: k @ s.displacement,
            )
            for name, more in (("runge_kutta", {}), ("exact", {"measured_force": "extrapolated"}))
        )
        differences.append(np.abs(runge_kutta - exact).max() / np.abs(exact).max())
    assert differences[0] < 0.02
    assert differences[0] / differences[1] == pytest.approx(16.0, rel=0.2)


@pytest.mark.parametrize("name", ["central_difference", "explicit_newmark"])
@pytest.mark.parametrize("share", [(0.0, 0.0, 0.0), (0.3, 0.5, 0.7), (1.0, 1.0, 1.0)])
def test_stability_limit_of_split_frame_equals_whole_frame(name: str, share: tuple[float, ...]) -> None:
    reference = tower()
    limit = 2.0 / modes(reference.mass, reference.stiffness)[0][-1]
    load = np.outer(np.ones(3001), [1e4, 2e4, -1e4])
    frame = tower(share)
    with pytest.raises(ConfigError, match=rf"must be < {limit:.6g} s"):
        make("integrator", name, frame, load, 1.001 * limit)
    solver = make("integrator", name, frame, load, 0.999 * limit)
    tested = frame.experimental_stiffness
    stable = displacements(solver, 3000, lambda s: tested @ s.displacement)
    static = np.linalg.solve(reference.stiffness, load[0])
    np.testing.assert_allclose(stable[-1], static, rtol=1e-3)
    frame.experimental_stiffness = np.zeros((3, 3))  # an undeclared stiffness is not refused
    if share == (1.0, 1.0, 1.0):
        solver = make("integrator", name, frame, load, 1.01 * limit)
        assert np.abs(displacements(solver, 300, lambda s: tested @ s.displacement)).max() > 1e3 * static.max()


def test_experimental_dashpot_lowers_stability_limit() -> None:
    """The force acts on the backward difference: w dt < 2 (sqrt(1 + zeta^2) - zeta)."""
    zeta = 0.3
    frame = make("structure", "sdof", mass=MASS, frequency=FREQUENCY, damping_ratio=0.0)
    dashpot = 2.0 * zeta * MASS * OMEGA
    limit = 2.0 * (math.sqrt(1.0 + zeta**2) - zeta) / OMEGA
    load = np.full((401, 1), STIFFNESS * STATIC)

    def largest(dt: float, **more: float) -> float:
        solver = make("integrator", "central_difference", frame, load, dt, **more)
        before = [np.zeros(1)]

        def force(solver: Any) -> np.ndarray:
            velocity = (solver.displacement - before[0]) / dt
            before[0] = solver.displacement.copy()
            return dashpot * velocity

        return float(np.abs(displacements(solver, 400, force)).max())

    with pytest.raises(ConfigError, match=naming(f"< {limit:.6g} s", "stability", "test")):
        largest(1.01 * limit, equivalent_damping=dashpot)
    assert largest(0.99 * limit, equivalent_damping=dashpot) < 5.0 * STATIC
    assert largest(1.01 * limit) > 100.0 * STATIC


def test_heavier_experimental_mass_is_refused() -> None:
    frame = make("structure", "shear_frame", masses=[3.0], stiffnesses=[7.0], experimental_masses=[1.6])
    with pytest.raises(ConfigError, match=naming("inertia", "step")):
        make("integrator", "explicit_newmark", frame, np.zeros((2, 1)), 0.01)
    with pytest.raises(ConfigError, match=naming("mass", "test")):
        make("integrator", "hht_alpha", frame, np.zeros((2, 1)), 0.01)


def split_mass(zeta: float, share: float) -> Any:
    """One mass; ``share`` is the experimental part of its spring."""
    data = {"masses": [MASS], "stiffnesses": [STIFFNESS], "damping": {"type": "modal", "ratios": [zeta]}}
    return make("structure", "shear_frame", **data, experimental_stiffnesses=[share * STIFFNESS])


@pytest.mark.parametrize(("held", "share"), [("held", 1.0), ("held", 0.4), ("extrapolated", 1.0)])
def test_held_force_reduces_damping(held: str, share: float) -> None:
    """Delay of half a step: the damping ratio falls by w dt / 4 times the experimental share."""
    zeta, dt = 0.03, 0.01
    load = np.full((1001, 1), STIFFNESS * STATIC)
    solver = make("integrator", "exact", split_mass(zeta, share), load, dt, measured_force=held)
    history = displacements(solver, 1000, lambda s: share * STIFFNESS * s.displacement)[:, 0] - STATIC
    lost = share * OMEGA * dt / 4.0 if held == "held" else 0.0
    measured = -math.log(decay_per_step(history)) / (OMEGA * dt)
    assert measured == pytest.approx(zeta - lost, abs=4e-4)


def test_exact_refuses_step_with_negative_damping() -> None:
    zeta = 0.03
    frame = split_mass(zeta, 1.0)
    with pytest.raises(ConfigError, match=naming("exact", "step")) as caught:
        make("integrator", "exact", frame, np.zeros((2, 1)), 0.03)
    assert float(str(caught.value).split("< ")[1].split()[0]) == pytest.approx(4.0 * zeta / OMEGA, rel=0.03)
    make("integrator", "exact", frame, np.zeros((2, 1)), 0.03, measured_force="extrapolated")


@pytest.mark.parametrize("share", [(0.0, 0.0, 0.0), (0.6, 0.2, 0.0)])
@pytest.mark.parametrize("name", ["runge_kutta", "exact"])
def test_predicted_growth_matches_simulation(name: str, share: tuple[float, ...]) -> None:
    dt, frame = 0.012, tower(share)
    load = np.outer(np.ones(1201), [1e4, 2e4, -1e4])
    data = {"measured_force": "extrapolated"} if name == "exact" else {}
    solver = make("integrator", name, frame, load, dt, **data)
    history = displacements(solver, 1200, lambda s: frame.experimental_stiffness @ s.displacement)
    deviation = np.linalg.norm(history - np.linalg.solve(combined(frame)[2], load[0]), axis=1)
    growth = solver.growth(type(solver).Params(**data), frame, dt)
    assert 0.9 < growth < 1.0
    late = slice(600, 1200)  # only the slowest mode remains
    slope = np.polyfit(np.arange(1201)[late], np.log(deviation[late]), 1)[0]
    assert math.exp(slope) == pytest.approx(growth, rel=2e-4)


# Nonlinear structures


YIELDING = {"type": "bouc_wen", "stiffness": 80.0, "yield_displacement": 0.01, "post_yield_ratio": 0.05}


@pytest.mark.parametrize("name", [*EXPLICIT, "hht_alpha", "runge_kutta"])
def test_all_methods_agree_on_yielding_mass(name: str) -> None:
    load = 1.5 * np.sin(OMEGA * 0.002 * np.arange(2001))[:, None]
    options = {"hht_alpha": {"iterations": 5, "alpha": 0.0}}.get(name, {})
    histories = []
    for method, more in ((name, options), ("central_difference", {})):
        frame = make("structure", "sdof", mass=MASS, frequency=FREQUENCY, restoring_force=YIELDING)
        histories.append(displacements(make("integrator", method, frame, load, 0.002, **more), 2000, no_force))
    assert np.abs(histories[1]).max() > 0.03  # it yields
    np.testing.assert_allclose(*histories, atol=0.01 * np.abs(histories[1]).max())


def test_trial_force_preserves_state() -> None:
    frame = make("structure", "sdof", mass=MASS, frequency=FREQUENCY, restoring_force=YIELDING)
    force = frame.restoring_force
    force.force(np.array([0.02]))
    before = force.state
    trial = trial_force(frame, np.array([-0.03]))
    assert force.state == before
    np.testing.assert_array_equal(force.force(np.array([-0.03])), trial)


@pytest.mark.parametrize("name", [*EXPLICIT, "hht_alpha"])
def test_equivalent_values_require_single_degree_of_freedom(name: str) -> None:
    for key, unit in (("equivalent_stiffness", "N/m"), ("equivalent_damping", "N s/m")):
        with pytest.raises(ConfigError, match=naming(f"integrator.{key}", "5", unit)):
            make("integrator", name, tower(), np.zeros((2, 3)), 0.001, **{key: 5.0})


def test_hht_alpha_commands_lie_on_parabola() -> None:
    """Each iterate solves the step for a linear rig, so all commands of a time step lie on one parabola."""
    n, frame = 8, tower((1.0, 0.0, 0.0))
    load = np.outer(np.sin(0.05 * np.arange(401)), [1e4, 2e4, -1e4])
    solver = make("integrator", "hht_alpha", frame, load, 0.001, iterations=n)
    history = displacements(solver, 400, lambda s: frame.experimental_stiffness @ s.displacement)
    for start in range(n, 400 - n, n):
        before, now, after = history[start - n], history[start], history[start + n]
        for k in range(1, n):
            s = k / n
            parabola = now + 0.5 * s * (after - before) + 0.5 * s**2 * (after - 2.0 * now + before)
            np.testing.assert_allclose(history[start + k], parabola, atol=1e-11)


def test_hht_alpha_iterations_correct_wrong_stiffness() -> None:
    frame = make("structure", "sdof", mass=MASS, frequency=FREQUENCY, damping_ratio=0.02)
    load = STIFFNESS * STATIC * np.ones((481, 1))
    errors = []
    for n in (2, 4, 12):
        histories = []
        for assumed in (STIFFNESS, 0.6 * STIFFNESS):
            options = {"iterations": n, "alpha": 0.0, "equivalent_stiffness": assumed}
            solver = make("integrator", "hht_alpha", frame, load, 0.24 / n / 4, **options)
            histories.append(displacements(solver, 40 * n, lambda s: STIFFNESS * s.displacement)[::n])
        errors.append(np.abs(histories[0] - histories[1]).max() / STATIC)
    assert errors[0] > 1.9 * errors[1] > 3.8 * errors[2]
    assert errors[2] < 0.02


def test_hht_alpha_agrees_with_cr_in_loop() -> None:
    """Chen & Ricles (2010): "a good comparison was observed"; here with 10 iterations in the time step of CR."""
    perfect = ["duration=5", "compensator.alpha_es=29", "compensator.k_p_per_mm2=0"]
    equivalent = ["integrator.equivalent_stiffness=7.6e6", "integrator.equivalent_damping=0.64e6"]
    cr, cr_run = simulate("chen_ricles_2010", *perfect)
    hht, hht_run = simulate("chen_ricles_2010", *perfect, "integrator.type=hht_alpha", "substeps=1", *equivalent)
    assert cr.state is hht.state
    expected, x = cr_run.dof_displacement[:, 0], hht_run.dof_displacement[::10, 0]
    n = min(len(expected), len(x))
    assert np.abs(expected[:n] - x[:n]).max() < 0.004 * np.abs(expected).max()


def test_hht_alpha_cautions_about_substeps() -> None:
    scenario = files.load("chen_ricles_2010", ["integrator.type=hht_alpha"])
    assert mentions(doubts(scenario), "substeps must be 1", "iteration")
    assert not doubts(files.load("chen_ricles_2010", ["integrator.type=hht_alpha", "substeps=1"]))
