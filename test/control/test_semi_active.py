# SPDX-License-Identifier: Apache-2.0
"""Tests of semi-active control."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from loop_parts import make
from messages import doubts, mentions, naming
from scipy.integrate import solve_ivp

from rths_nodes import run
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.response_errors import measured_names, response_errors
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Measurement
from rths_nodes.loop.embedded import checked_loop
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.files import load
from rths_nodes.mechanics.structure import combined

DT = 1.0 / 2000.0
NAMES = measured_names(3)
NOTHING = np.zeros(3)

SPECIMEN = {
    "experimental_mass": (98.3 * np.eye(3)).tolist(),
    "experimental_damping": [[175.0, -50.0, 0.0], [-50.0, 100.0, -50.0], [0.0, -50.0, 50.0]],
    "experimental_stiffness": [[12.0e5, -6.84e5, 0.0], [-6.84e5, 13.7e5, -6.84e5], [0.0, -6.84e5, 6.84e5]],
}


@pytest.fixture(scope="module")
def frame() -> Any:
    """The frame of Phillips & Spencer (2012): ten times the mass of the specimen, its stiffness, modal damping."""
    damping = {"type": "modal", "ratios": [0.01, 0.01, 0.0157]}
    matrices = {"mass": (983.0 * np.eye(3)).tolist(), "stiffness": SPECIMEN["experimental_stiffness"]}
    return make("structure", "matrices", damping=damping, **matrices, **SPECIMEN)


def plant(frame: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A, B (force of the damper) and rows of the absolute accelerations, z = (x, x')."""
    mass, damping, stiffness = combined(frame)
    lower = -np.linalg.solve(mass, np.hstack([stiffness, damping]))
    system = np.vstack([np.hstack([np.zeros((3, 3)), np.eye(3)]), lower])
    return system, np.array([0.0, 0.0, 0.0, -1.0 / 983.0, 0.0, 0.0]), lower


def measurement(displacement: float = 0.0, force: float = 0.0, acceleration: np.ndarray = NOTHING) -> Measurement:
    return Measurement(0, NOTHING, NOTHING, NOTHING, np.array([*acceleration, displacement, force]))


def hamiltonian(a: np.ndarray, s: np.ndarray, q: np.ndarray) -> np.ndarray:
    return np.block([[a, -s], [-q, -a.T]])


def stable(values: np.ndarray) -> np.ndarray:
    return np.sort_complex(values[values.real < 0.0])


def test_regulator_has_stable_eigenvalues_of_hamiltonian(frame: Any) -> None:
    """Minimum of the integral of a_3^2 + r f^2; the damper does not act on the third floor."""
    weight = 1e-8  # keeps the eigenvalues well conditioned
    controller = make("semi_active", "clipped_optimal", frame, DT, NAMES, force_weight=weight)
    a, b, rows = plant(frame)
    expected = stable(np.linalg.eigvals(hamiltonian(a, np.outer(b, b) / weight, np.outer(rows[2], rows[2]))))
    eigenvalues = stable(np.linalg.eigvals(a - np.outer(b, controller.bound()[1].gain[0])))
    np.testing.assert_allclose(eigenvalues, expected, rtol=1e-5)


def test_regulator_weights_floor_with_damper(frame: Any) -> None:
    """a_1 = c z + d f: with v = f + d c z / (d^2 + r) the cross term vanishes."""
    weight = 1e-8
    data = {"force_weight": weight, "weights": [1.0, 0.0, 0.0]}
    controller = make("semi_active", "clipped_optimal", frame, DT, NAMES, **data)
    a, b, rows = plant(frame)
    c, d = rows[0], -1.0 / 983.0
    effort = d * d + weight
    shifted = a - np.outer(b, d * c) / effort
    q = np.outer(c, c) * (1.0 - d * d / effort)
    expected = stable(np.linalg.eigvals(hamiltonian(shifted, np.outer(b, b) / effort, q)))
    eigenvalues = stable(np.linalg.eigvals(a - np.outer(b, controller.bound()[1].gain[0])))
    np.testing.assert_allclose(eigenvalues, expected, rtol=1e-5)


@pytest.mark.parametrize("mass", [2.0, 1e2, 1e4, 1e6])
@pytest.mark.parametrize("weight", [1e-17, 1e-14, 1e-8])
def test_gain_of_one_floor_has_closed_form(mass: float, weight: float) -> None:
    """q a(s) a(-s) + r = p(s) p(-s) of the acceleration a, however small the weight of the force.

    With rho = r / (r + 1 / m^2): p = s^2 + alpha s + beta,
    beta = sqrt(rho) w^2, alpha^2 = 2 beta - rho (2 - 4 z^2) w^2.
    """
    w, ratio = 2.0 * np.pi * 1.5, 0.02
    floor = make("structure", "sdof", mass=mass, frequency=1.5, damping_ratio=ratio)
    law = make("semi_active", "clipped_optimal", floor, DT, measured_names(1), force_weight=weight).bound()[1]
    rho = weight / (weight + mass**-2.0)
    beta = np.sqrt(rho) * w**2
    alpha = np.sqrt(2.0 * beta - rho * (2.0 - 4.0 * ratio**2) * w**2)
    np.testing.assert_allclose(law.gain[0], mass * np.array([w**2 - beta, 2.0 * ratio * w - alpha]), rtol=1e-6)


def test_observer_has_stable_eigenvalues_of_hamiltonian(frame: Any) -> None:
    """The published weight r = 1e-17 also gives a stable controller, whose force is nearly free."""
    controller = make("semi_active", "clipped_optimal", frame, DT, NAMES)
    a, b, rows = plant(frame)
    assert (np.linalg.eigvals(a - np.outer(b, controller.bound()[1].gain[0])).real < 0.0).all()
    outputs = np.vstack([rows, [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]])
    ground = np.array([0.0, 0.0, 0.0, -1.0, -1.0, -1.0])
    expected = stable(np.linalg.eigvals(hamiltonian(a.T, outputs.T @ outputs, 50.0 * np.outer(ground, ground))))
    eigenvalues = stable(np.linalg.eigvals(a - controller.bound()[1].observer @ outputs))
    np.testing.assert_allclose(eigenvalues, expected, rtol=1e-6)


def test_estimate_converges_to_structure(frame: Any) -> None:
    """Exact measurements, known force, no ground motion: the initial error decays."""
    controller = make("semi_active", "clipped_optimal", frame, DT, NAMES)
    a, b, rows = plant(frame)
    times = np.arange(3001) * DT

    def force(t: float) -> float:
        return 500.0 * np.sin(9.0 * t)

    start = np.array([0.002, 0.004, 0.005, 0.0, 0.0, 0.0])
    moved = solve_ivp(lambda t, z: a @ z + b * force(t), (0.0, times[-1]), start, "DOP853", times, rtol=1e-9)
    for t, z in zip(times, moved.y.T, strict=True):
        absolute = rows @ z + b[3:] * force(t)
        controller.step(measurement(z[0], force(t), absolute), 0.0)
    np.testing.assert_allclose(controller._state[0][:6], moved.y[:, -1], atol=2e-3 * np.abs(moved.y).max())


def test_ground_acceleration_is_added_to_channels(frame: Any) -> None:
    """Channels are relative to the laboratory floor."""
    controller = make("semi_active", "clipped_optimal", frame, DT, NAMES)
    for _ in range(5):
        controller.step(measurement(acceleration=np.full(3, -2.5)), 2.5)
    assert not controller._state[0][:6].any()


def test_voltage_follows_clipping_rule(frame: Any) -> None:
    """V = V_max H((f_c - f) f)."""
    controller = make("semi_active", "clipped_optimal", frame, DT, NAMES, voltage=2.0)
    signs = set()
    for k in range(400):
        t = k * DT
        force = 300.0 * np.sin(200.0 * t)
        measured = measurement(1e-3 * np.sin(90.0 * t), force, np.sin(30.0 * t + np.arange(3.0)))
        voltage = float(controller.step(measured, 0.0)[0])
        desired = float(controller._state[1])
        increase = (force > 0.0 and desired > force) or (force < 0.0 and desired < force)
        assert voltage == (2.0 if increase else 0.0)
        signs.add((force > 0.0, desired > force))
    assert len(signs) == 4
    assert controller.step(measurement(displacement=0.01), 0.0)[0] == 0.0  # without force


def test_channels_are_selected_by_name(frame: Any) -> None:
    ordered = make("semi_active", "clipped_optimal", frame, DT, NAMES)
    reordered = make("semi_active", "clipped_optimal", frame, DT, ("oil [N/m^2]", *reversed(NAMES)))
    for k in range(50):
        values = np.array([np.sin(k), 2.0, -1.0, 1e-3 * np.cos(k), 100.0])
        measured = Measurement(k, NOTHING, NOTHING, NOTHING, values)
        permuted = Measurement(k, NOTHING, NOTHING, NOTHING, np.array([7.0, *reversed(values)]))
        assert ordered.step(measured, 0.3)[0] == reordered.step(permuted, 0.3)[0]
    np.testing.assert_array_equal(ordered._state[0][:6], reordered._state[0][:6])


def test_passive_voltage_is_constant() -> None:
    controller = make("semi_active", "passive", None, DT, NAMES, voltage=1.5)
    assert [controller.step(measurement(force=f), 1.0)[0] for f in (-1.0, 0.0, 5.0)] == [1.5, 1.5, 1.5]


def reversed_axes() -> list[Any]:
    """The test without noise: as published, and with the three floors in the opposite order."""
    data = load("phillips_spencer_2012", ["duration=1", "port={type: simulator}"]).data() | {"cases": {}}
    axes = {name: axis | {"sensors": {}} for name, axis in data["axes"].items()}
    rows = {key: [row[::-1] for row in data["rig"][key][::-1]] for key in ("mass", "damping", "stiffness")}
    other = data | {
        "interface": ["x_3", "x_2", "x_1"],
        "axes": dict(reversed(axes.items())),
        "rig": data["rig"] | rows | {"damper_location": [0.0, 0.0, 1.0]},
        "compensator": data["compensator"] | {"known": data["compensator"]["known"] | rows},
    }
    return [load(data | {"axes": axes}), load(other)]


def test_accelerations_belong_to_degrees_of_freedom() -> None:
    first, second = (run(scenario).displacement for scenario in reversed_axes())
    np.testing.assert_allclose(second[:, ::-1], first, atol=1e-12)
    scaled = load("phillips_spencer_2012", ["setup={type: matrix, matrix: [[2, 0, 0], [0, 1, 0], [0, 0, 1]]}"])
    with pytest.raises(ConfigError, match=naming("acceleration_1", "axis")):
        checked_loop(scaled)


def test_response_errors_belong_to_degrees_of_freedom() -> None:
    first, second = (response_errors(Evaluation(run(scenario))) for scenario in reversed_axes())
    for name, errors in first.items():
        assert second[name] == pytest.approx(errors)


def test_incompatible_settings_are_refused(frame: Any) -> None:
    def build(structure: Any = frame, names: Any = NAMES, **data: Any) -> None:
        make("semi_active", "clipped_optimal", structure, DT, names, **data)

    with pytest.raises(ConfigError, match=naming("needs", "structure")):
        build(None)
    reduced = load("phillips_spencer_2012", ["interface=[x_1, x_2, x_3]", "reduction={type: modal, modes: 3}"])
    with pytest.raises(ConfigError, match=naming("reduction", "modes")):
        build(Assembly(reduced).structure)
    with pytest.raises(ConfigError, match=naming("damper_force", "acceleration_1")):
        build(names=NAMES[:-1])
    with pytest.raises(ConfigError, match=naming("auxiliary", "channel")):
        build(names=())
    with pytest.raises(ConfigError, match=r"semi_active\.weights = \(1\.0,\): must be 3 numbers"):
        build(weights=[1.0])
    with pytest.raises(ConfigError, match=naming("damper_location", "(0.0, 0.0, 0.0)")):
        build(damper_location=[0.0, 0.0, 0.0])
    assert mentions(doubts(load("phillips_spencer_2012", ["time_ratio=2"])), "time_ratio", "accelerations")
