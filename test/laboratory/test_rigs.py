# SPDX-License-Identifier: Apache-2.0
"""Tests of coupled rigs: exact linear solution, convergence with dampers, the published frame."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from loop_parts import make
from messages import naming
from scipy.integrate import solve_ivp

from rths_nodes.analysis.response_errors import IdealResponse, ideal_response, measured_names
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.validation import from_data
from rths_nodes.laboratory.rigs.linear_with_specimen import substeps_of
from rths_nodes.mechanics.coupled_rig import coupled_model, feedforward, state_space
from rths_nodes.mechanics.structure import combined

DT = 1.0 / 2000.0
MASS = 98.3 * np.eye(3)
DAMPING = np.array([[175.0, -50.0, 0.0], [-50.0, 100.0, -50.0], [0.0, -50.0, 50.0]])
STIFFNESS = 1e5 * np.array([[12.0, -6.84, 0.0], [-6.84, 13.7, -6.84], [0.0, -6.84, 6.84]])
MODEL = coupled_model(MASS, DAMPING, STIFFNESS, [1e-3], [0.1], [-200.0], [1.26e11])
NO_INPUT = np.zeros(0)
UNEQUAL = {
    "area": [1e-3, 2e-3, 0.7e-3],
    "servo_gain": [0.1, 0.15, 0.06],
    "actuator_pole": [-200.0, -150.0, -260.0],
    "actuator_gain": [1.26e11, 0.8e11, 2e11],
}
MAGNETORHEOLOGICAL = {"type": "magnetorheological_damper"}


def rig(dt: float = DT, n_axes: int = 3, **data: Any) -> Any:
    """A coupled rig with the specimen of Phillips & Spencer (2012), three axes."""
    matrices = {"mass": MASS.tolist(), "damping": DAMPING.tolist(), "stiffness": STIFFNESS.tolist()}
    return make("rig", "coupled_servo_hydraulic", dt, n_axes, **(matrices | data))


def wave(samples: int, dt: float = DT) -> np.ndarray:
    """Commands ``(samples, 3)`` from rest, m."""
    t = dt * np.arange(1, samples + 1)[:, None]
    return 0.01 * np.sin(2.0 * np.pi * np.array([1.7, 3.1, 5.3]) * t) * np.minimum(t / 0.05, 1.0)


def follow(rig: Any, commands: np.ndarray, inputs: np.ndarray = NO_INPUT) -> np.ndarray:
    """Displacements, velocities, forces and auxiliary channels at every sample."""
    shown = []
    for command in commands:
        rig.step(command, inputs)
        shown.append(np.concatenate([rig.displacement, rig.velocity, rig.force, rig.auxiliary]))
    return np.array(shown)


@pytest.mark.parametrize("data", [{}, UNEQUAL], ids=["equal", "unequal"])
@pytest.mark.parametrize("hold", ["ramp", "staircase"])
def test_linear_rig_is_exact_solution_of_model(data: dict[str, Any], hold: str) -> None:
    commands = wave(20)
    samples = follow(rig(hold=hold, **data), commands)
    system, inputs, outputs = state_space(coupled_model(MASS, DAMPING, STIFFNESS, **UNEQUAL) if data else MODEL)
    state, previous = np.zeros(9), np.zeros(3)
    for command, sample in zip(commands, samples, strict=True):
        start = previous if hold == "ramp" else command

        def rate(t: float, z: np.ndarray, start: np.ndarray = start, end: np.ndarray = command) -> np.ndarray:
            return system @ z + inputs @ (start + t / DT * (end - start))

        state = solve_ivp(rate, (0.0, DT), state, "DOP853", rtol=1e-12, atol=1e-15).y[:, -1]
        np.testing.assert_allclose(sample[:9], state, rtol=1e-7, atol=1e-9 * np.abs(state).max())
        np.testing.assert_allclose(sample[9:], outputs[6:9] @ state, rtol=1e-6, atol=1e-6)
        previous = command


def test_piecewise_linear_command_is_independent_of_samples() -> None:
    coarse = wave(40)
    fine = np.vstack([np.linspace(a, b, 6)[1:] for a, b in pairwise([np.zeros(3), *coarse])])
    displacements = follow(rig(DT / 5.0), fine)[4::5]
    np.testing.assert_allclose(displacements, follow(rig(), coarse), rtol=1e-8, atol=1e-9)


def test_load_cells_measure_inertia_damping_and_stiffness() -> None:
    shown = follow(rig(damper=MAGNETORHEOLOGICAL), wave(400), np.array([1.0]))
    x, v, f, a = shown[:, :3], shown[:, 3:6], shown[:, 6:9], shown[:, 9:12]
    damper = shown[:, 13:] * [[1.0, 0.0, 0.0]]
    np.testing.assert_allclose(f, a @ MASS + v @ DAMPING + x @ STIFFNESS + damper, atol=1e-6)
    np.testing.assert_allclose(shown[:, 12], x[:, 0], rtol=1e-12)


def test_held_actuator_is_loaded_by_its_neighbours() -> None:
    commands = np.zeros((100, 3))
    commands[:, 1] = 0.005
    shown = follow(rig(), commands)
    assert np.abs(shown[-1, [6, 8]]).min() > 1000.0
    assert np.abs(shown[:, 0]).max() > 1e-5


def dashpot(stiffness: float, damping: float) -> dict[str, Any]:
    return {"type": "kelvin_voigt", "stiffness": stiffness, "damping": damping}


def test_damper_converges_to_dashpot_in_matrices() -> None:
    """The reference has no substeps; the error is of second order in the substep."""
    commands, location = wave(200), np.array([-1.0, 1.0, 0.0])
    added = np.outer(location, location)
    reference = rig(stiffness=(STIFFNESS + 3e4 * added).tolist(), damping=(DAMPING + 2e3 * added).tolist())
    exact = follow(reference, commands)
    data = {"damper": dashpot(3e4, 2e3), "damper_location": location.tolist()}

    def error(substeps: int) -> float:
        damped = rig(**data, longest_substep=DT / substeps * 1.0001)
        return float(np.abs(follow(damped, commands)[:, 6:9] - exact[:, 6:9]).max() / np.abs(exact[:, 6:9]).max())

    errors = [error(substeps) for substeps in (2, 4, 8)]
    assert errors[0] / errors[1] == pytest.approx(4.0, rel=0.2)
    assert errors[1] / errors[2] == pytest.approx(4.0, rel=0.2)
    assert errors[1] < 1e-4


def test_default_substep_resolves_magnetorheological_damper() -> None:
    """1/8000 s against 1/64000 s, with switching voltage."""

    def run(rate: float) -> np.ndarray:
        moved = rig(damper=MAGNETORHEOLOGICAL, longest_substep=1.0 / rate)
        shown = [
            follow(moved, commands, np.array([2.25 * (index % 2)]))
            for index, commands in enumerate(np.split(wave(500), 10))
        ]
        return np.vstack(shown)

    default, fine = run(8000.0), run(64000.0)
    force = np.abs(fine[:, 13]).max()
    assert force > 800.0
    assert np.abs(default[:, 13] - fine[:, 13]).max() < 1e-3 * force
    assert np.abs(default[:, :3] - fine[:, :3]).max() < 1e-7
    assert np.abs(default[:, 6:9] - fine[:, 6:9]).max() < 1e-3 * force


def test_voltage_raises_force_until_reset() -> None:
    moved = rig(damper=MAGNETORHEOLOGICAL)
    assert moved.auxiliary_inputs == ("damper_voltage [V]",)
    off = follow(moved, wave(300), np.zeros(1))
    moved.reset()
    on = follow(moved, wave(300), np.array([2.25]))
    assert np.abs(on[:, 13]).max() > 2.0 * np.abs(off[:, 13]).max()
    moved.reset()
    np.testing.assert_array_equal(follow(moved, wave(300), np.zeros(1)), off)


def test_auxiliary_channels_depend_on_damper_and_axes() -> None:
    bare, damped = rig(), rig(damper=dashpot(0.0, 1.0))
    accelerations = tuple(f"acceleration_{floor} [m/s^2]" for floor in (1, 2, 3))
    assert (bare.auxiliary_names, bare.auxiliary_inputs) == (accelerations, ())
    assert damped.auxiliary_names == measured_names(3)
    assert damped.auxiliary_inputs == ()
    single = rig(n_axes=1, mass=[[98.3]], damping=[[10.0]], stiffness=[[1e5]])
    assert single.auxiliary_names == accelerations[:1]


def test_invalid_rig_is_refused() -> None:
    for data, parts in (
        ({"n_axes": 2}, ("rig.mass", "3", "rows", "2")),
        ({"damper_location": [1.0]}, ("rig.damper_location", "(1.0,)", "3")),
        ({"area": [1.0, 2.0]}, ("rig.area", "(1.0, 2.0)", "1 number", "3 numbers")),
        ({"actuator_pole": [200.0]}, ("rig.actuator_pole[0]", "200 1/s", "< 0")),
    ):
        with pytest.raises(ConfigError, match=naming(*parts)):
            rig(**data)


@pytest.mark.parametrize(("dt", "count"), [(1 / 2000, 4), (1 / 1024, 8), (1 / 8000, 1), (1 / 8001, 1), (1e-3, 8)])
def test_number_of_substeps_covers_sample(dt: float, count: int) -> None:
    assert substeps_of(dt, 1.0 / 8000.0) == count


# The published frame


@pytest.fixture(scope="module")
def frame() -> Any:
    """Nine tenths of the mass are numerical; the damping of the complete frame is published."""
    return make(
        "structure",
        "matrices",
        mass=(10.0 * MASS).tolist(),
        stiffness=STIFFNESS.tolist(),
        damping={"type": "modal", "ratios": [0.01, 0.01, 0.0157]},
        experimental_mass=MASS.tolist(),
        experimental_damping=DAMPING.tolist(),
        experimental_stiffness=STIFFNESS.tolist(),
    )


@pytest.fixture(scope="module")
def ideal(frame: Any) -> tuple[IdealResponse, np.ndarray]:
    """Case (a) up to the largest force, and the ground acceleration."""
    record = make("ground_motion", "record", 1, record="elcentro_1940_ns", scale=0.5)
    ground = record.sample(DT * np.arange(round(6.0 / DT) + 1))
    damper = make("specimen", "magnetorheological_damper")
    controller = make("semi_active", "clipped_optimal", frame, DT, measured_names(3))
    return ideal_response(frame, damper, ground, DT, controller), ground


def test_ideal_response_has_published_damper_force(ideal: tuple[IdealResponse, np.ndarray]) -> None:
    """Damper force 1487 N (reference numbers), about 5 % of the seismic weight (section 3)."""
    response, ground = ideal
    assert np.abs(ground).max() / 9.80665 == pytest.approx(0.5 * 0.319, abs=1e-3)
    assert np.abs(response.damper_force).max() == pytest.approx(1487.0, rel=5e-3)
    assert np.abs(response.damper_force).max() / (3 * 983.0 * 9.80665) == pytest.approx(0.05, abs=0.003)
    assert set(np.unique(response.voltage)) == {0.0, 2.25}
    assert 20 < np.count_nonzero(np.diff(response.voltage)) < 200


def test_ideal_response_is_in_equilibrium(ideal: tuple[IdealResponse, np.ndarray], frame: Any) -> None:
    """M (absolute acceleration) + C v + K x + damper = 0, and the histories are derivatives of each other."""
    response, ground = ideal
    mass, damping, stiffness = combined(frame)
    rest = response.acceleration @ mass + response.velocity @ damping + response.displacement @ stiffness
    rest[:, 0] += response.damper_force
    assert np.abs(rest).max() < 1e-6
    relative = response.acceleration - ground[:, None]
    means = 0.5 * (relative[1:] + relative[:-1])
    assert np.abs(np.diff(response.velocity, axis=0) / DT - means).max() < 0.01 * np.abs(relative).max()


def test_ideal_response_without_damper_is_linear(frame: Any) -> None:
    """The damper has zero stiffness and damping; reference: DOP853."""
    nothing = make("specimen", "kelvin_voigt", stiffness=0.0, damping=0.0)
    ground = np.sin(2.0 * np.pi * 1.7 * DT * np.arange(1001))
    response = ideal_response(frame, nothing, ground, DT)
    mass, damping, stiffness = combined(frame)
    times = DT * np.arange(1001)

    def rate(t: float, z: np.ndarray) -> np.ndarray:
        a = -np.linalg.solve(mass, stiffness @ z[:3] + damping @ z[3:]) - np.interp(t, times, ground)
        return np.concatenate([z[3:], a])

    exact = solve_ivp(
        rate, (0.0, times[-1]), np.zeros(6), "DOP853", times[::100], rtol=1e-9, atol=1e-12, max_step=DT
    )
    np.testing.assert_allclose(response.displacement[::100], exact.y[:3].T, atol=1e-8)


def test_controller_reduces_response_of_all_floors(frame: Any, ideal: Any) -> None:
    """Reduction by a fifth against the damper without voltage; the damper force doubles."""
    response, ground = ideal
    off = ideal_response(frame, make("specimen", "magnetorheological_damper"), ground, DT)
    assert (np.abs(response.displacement).max(0) < 0.82 * np.abs(off.displacement).max(0)).all()
    assert np.std(response.acceleration[:, 2]) < 0.8 * np.std(off.acceleration[:, 2])
    assert np.abs(response.damper_force).max() > 2.0 * np.abs(off.damper_force).max()


def test_feedforward_errors_are_published_values(ideal: tuple[IdealResponse, np.ndarray]) -> None:
    """Rows (c), (d) of Table 3.1, driven along the ideal response: 1.71, 1.99, 0.910 %; 0.133 % (floor 1)."""
    response, ground = ideal
    relative = response.acceleration - ground[:, None]
    motion = [response.displacement, response.velocity, relative, np.gradient(relative, DT, axis=0)]

    def errors(coefficients: np.ndarray) -> np.ndarray:
        moved = rig(damper=MAGNETORHEOLOGICAL)
        commands = sum(history @ part.T for history, part in zip(motion, coefficients, strict=True))
        shown = np.zeros_like(response.displacement)
        for k in range(1, len(shown)):
            moved.step(commands[k], response.voltage[k : k + 1])
            shown[k] = moved.displacement
        error = shown - response.displacement
        return np.asarray(100.0 * np.sqrt((error**2).sum(0) / (response.displacement**2).sum(0)))

    alone = np.array([np.diag(np.diag(part)) for part in feedforward(MODEL)])
    assert errors(alone) == pytest.approx([1.71, 1.99, 0.910], rel=0.02)
    coupled = errors(feedforward(MODEL))
    assert coupled[0] == pytest.approx(0.118, abs=0.03)
    assert coupled[1:].max() < 2e-3


@pytest.mark.parametrize("longest", [1.0 / 8000.0, 1.0 / 2000.0])
def test_fast_damper_does_not_diverge(longest: float) -> None:
    """Reference: short substeps; one increment per substep diverged beyond 0.24 m/s."""
    commands = np.zeros((400, 3))
    commands[:, 0] = 0.02 * np.sin(2.0 * np.pi * 6.0 * DT * np.arange(1, 401))
    shown, fine = (
        follow(rig(damper=MAGNETORHEOLOGICAL, longest_substep=step), commands, np.array([2.0]))
        for step in (longest, 1.0 / 64_000.0)
    )
    force = -1  # the last auxiliary channel
    assert np.abs(shown[:, force]).max() < 1.1 * np.abs(fine[:, force]).max()
    assert np.abs(shown[:, force] - fine[:, force]).max() < 0.05 * np.abs(fine[:, force]).max()


def test_stiff_yielding_damper_does_not_diverge() -> None:
    """The velocity varies within a substep, so that the states do not settle and all of it is divided."""
    steel = {"type": "elastoplastic_absorber", "stiffness": 2e7, "yield_force": 1e3, "exponent": 10.0}
    commands = np.zeros((200, 3))
    commands[:, 0] = 0.02 * np.sin(2.0 * np.pi * 6.0 * DT * np.arange(1, 201))
    force = follow(rig(damper=steel | {"post_yield_ratio": 0.0}), commands)[:, -1]
    assert 0.99e3 < np.abs(force).max() <= 1e3 * (1.0 + 1e-9)


def test_damper_too_fast_for_increments_is_refused() -> None:
    cls = registry.load("rig", "coupled_servo_hydraulic")
    data = {"mass": MASS.tolist(), "damping": DAMPING.tolist(), "stiffness": STIFFNESS.tolist()}
    built = from_data(cls.Params, data | {"damper": MAGNETORHEOLOGICAL}, "rig")
    built.fits(SimpleNamespace(dt=DT, axes=("a", "b", "c"), velocity_limits=(0.3, 0.3, 0.3)))
    with pytest.raises(ConfigError, match=naming("magnetorheological_damper", "9 m/s")):
        built.fits(SimpleNamespace(dt=DT, axes=("a", "b", "c"), velocity_limits=(9.0, 0.3, 0.3)))
