# SPDX-License-Identifier: Apache-2.0
"""Tests of rigs of transfer functions with a coupler, and of the axially loaded column."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from loop_parts import make
from messages import naming
from scipy.signal import TransferFunction, lsim, zpk2tf

from rths_nodes.control.setups import UprightLoad
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import EMPTY, Motion
from rths_nodes.core.validation import from_data
from rths_nodes.laboratory.rigs.axially_loaded_column import AxiallyLoadedColumn
from rths_nodes.laboratory.rigs.coupled_transfer_functions import (
    CondensedFrame,
    CoupledTransferFunctions,
    state_space,
)
from rths_nodes.mechanics.coupler import Coupler, first_pose

Numbers = tuple[float, ...]


class ArrayCoupler(Coupler):
    """The kernel of a coupler, called with arrays: m, rad, N, N m."""

    def axes(self, motion: Motion) -> Motion:
        """Motion of the axes ``(n_axes,)`` from the motion of the degrees of freedom ``(n_dof,)``."""
        return motion_of(self.kernel.axes(self.constants, *numbers(motion)))

    def forces(self, axis_forces: np.ndarray, pose: np.ndarray) -> np.ndarray:
        """Forces ``(n_dof,)`` from the forces ``(n_axes,)`` of the axes in a pose."""
        return np.array(self.kernel.forces(self.constants, tuple(axis_forces.tolist()), tuple(pose.tolist())))

    def axis_forces(self, forces: np.ndarray, pose: np.ndarray) -> np.ndarray:
        """Forces of the axes ``(n_axes,)`` that balance ``forces`` ``(n_dof,)`` in a pose."""
        return np.array(self.kernel.axis_forces(self.constants, tuple(forces.tolist()), tuple(pose.tolist())))

    def motion(self, axes: Motion) -> Motion:
        """Motion of the degrees of freedom ``(n_dof,)`` from the motion of the axes."""
        rows = numbers(axes)
        return motion_of(self.kernel.motion(self.constants, *rows, first_pose(self.constants, rows[0])))


def numbers(motion: Motion) -> list[Numbers]:
    return [tuple(values.tolist()) for values in (motion.displacement, motion.velocity, motion.acceleration)]


def motion_of(rows: tuple[Numbers, ...]) -> Motion:
    return Motion(*map(np.array, rows))


DT = 1.0 / 1024.0
HZ = 2.0 * np.pi
FRAME = {
    "mass": np.diag([8.0, 0.9, 0.7]).tolist(),
    "damping": (5e-4 * np.array([[1.3e7, 2.1e6, 2.1e6], [2.1e6, 1.4e6, 2.2e5], [2.1e6, 2.2e5, 1.3e6]])).tolist(),
    "stiffness": [[1.3e7, 2.1e6, 2.1e6], [2.1e6, 1.4e6, 2.2e5], [2.1e6, 2.2e5, 1.3e6]],
    "driven": [1, 2],
}
COUPLER = {"anchors": [[-0.7, -0.13], [-0.7, 0.13]], "attachments": [[0.27, -0.13], [0.27, 0.13]]}
COMMON_POLES = 80.0 * np.array([complex(-0.6, 0.8), complex(-0.6, -0.8)])
"""Pair of 80 Hz with a damping ratio of 0.6, Hz."""
RIG: dict[str, Any] = {
    "responses": {
        "one": {"static_gains": [0.86, 0.14], "poles": [-2.65, -40.0], "zeros": [[-120.0, -90.0]]},
        "two": {"static_gains": [0.13, 0.93], "poles": [-3.5, -18.5], "zeros": [[-3.0], [-5.0]]},
    },
    "common_poles": {"frequency": 80.0, "damping_ratio": 0.6},
    "coupler": COUPLER,
    "frame": FRAME,
}


def rig_with(**changes: Any) -> Any:
    return make("rig", "coupled_transfer_functions", DT, 2, **(RIG | changes))


def test_responses_equal_zeros_poles_and_gains() -> None:
    params = from_data(CoupledTransferFunctions.Params, RIG)
    system, inputs, outputs = state_space(params)
    for f in (0.0, 1.0, 7.0, 60.0):
        s = 2j * np.pi * f
        result = outputs @ np.linalg.solve(s * np.eye(len(system)) - system, inputs)
        for column, response in enumerate(params.responses.values()):
            for axis in range(2):
                assert response.zeros is not None
                zeros = response.zeros[axis if len(response.zeros) > 1 else 0]
                h = response.static_gains[axis] * np.prod([1.0 - s / (HZ * z) for z in zeros])
                h /= np.prod([1.0 - s / (HZ * p) for p in [*response.poles, *COMMON_POLES]])
                assert result[axis, column] == pytest.approx(h, rel=1e-9)


def test_motion_agrees_with_scipy() -> None:
    """Commands of the first actuator are linear between samples, as in scipy."""
    rig = rig_with()
    commands = 0.003 * np.sin(HZ * 3.0 * DT * np.arange(600))
    moved = [np.zeros(2)]
    for command in commands[1:]:
        rig.step(np.array([command, 0.0]), EMPTY)
        moved.append(rig.displacement.copy())
    zeros, poles = HZ * np.array([-120.0, -90.0]), HZ * np.array([-2.65, -40.0, *COMMON_POLES])
    gain = np.real(np.prod(-poles) / np.prod(-zeros))
    _, response, _ = lsim(TransferFunction(*zpk2tf(zeros, poles, gain)), commands, DT * np.arange(600))
    np.testing.assert_allclose(np.array(moved), np.outer(response, [0.86, 0.14]), atol=1e-9)


def test_forces_agree_with_virtual_work() -> None:
    """Reference: motion of the node by differences of the axes' displacements."""
    rig = rig_with()
    coupler = ArrayCoupler(from_data(CoupledTransferFunctions.Params, RIG).coupler, 2, 2, "x")
    mass, damping, stiffness = from_data(CondensedFrame, FRAME).condensed()
    poses, forces = [], []
    for k in range(3000):
        phase = HZ * np.array([1.0, 1.7]) * DT * k
        rig.step(0.004 * np.sin(phase) * min(1.0, k / 1000.0), EMPTY)
        poses.append(coupler.degrees_of_freedom(rig.displacement))
        forces.append(coupler.forces(rig.force, poses[-1]))
    q = np.array(poses)
    v = (q[2:] - q[:-2]) / (2.0 * DT)
    a = (q[2:] - 2.0 * q[1:-1] + q[:-2]) / DT**2
    expected = q[1:-1] @ stiffness + v @ damping + a @ mass
    np.testing.assert_allclose(np.array(forces)[1:-1], expected, atol=2e-3 * np.abs(expected).max())


def test_condensed_frame_is_exact_at_low_frequency() -> None:
    """The error of the condensation is zero at rest and of second order in frequency."""
    frame = from_data(CondensedFrame, FRAME)
    mass, damping, stiffness = frame.condensed()
    m, c, k = (np.array(getattr(frame, name)) for name in ("mass", "damping", "stiffness"))
    errors = []
    for f in (0.0, 1.0, 2.0):
        s = 2j * np.pi * f
        d = s**2 * m + s * c + k
        free = d[:2, :2] - d[:2, 2:] @ np.linalg.solve(d[2:, 2:], d[2:, :2])
        reduced = s**2 * mass + s * damping + stiffness
        errors.append(float(np.abs(free - reduced).max() / np.abs(free).max()))
    assert errors[0] < 1e-14
    assert errors[1] < 1e-5


def test_long_coupler_moves_as_in_benchmark() -> None:
    """x + d (cos(theta + alpha) - cos alpha), Condori Uribe et al. 2023; rates by differences."""
    data = COUPLER | {"kinematics": "long"}
    coupler = ArrayCoupler(from_data(CoupledTransferFunctions.Params, RIG | {"coupler": data}).coupler, 2, 2, "x")
    d, alpha = np.hypot(0.27, 0.13), np.arctan2([-0.13, 0.13], 0.27)

    def moved(t: float) -> np.ndarray:
        x, theta = 0.003 + 0.02 * t - 0.1 * t**2, 0.05 - 0.3 * t + 0.7 * t**2
        return np.asarray(x + d * (np.cos(theta + alpha) - np.cos(alpha)))

    motion = Motion(np.array([0.003, 0.05]), np.array([0.02, -0.3]), np.array([-0.2, 1.4]))
    axes = coupler.axes(motion)
    np.testing.assert_allclose(axes.displacement, moved(0.0), rtol=1e-12)
    np.testing.assert_allclose(axes.velocity, (moved(1e-5) - moved(-1e-5)) / 2e-5, rtol=1e-7)
    acceleration = (moved(1e-4) - 2.0 * moved(0.0) + moved(-1e-4)) / 1e-8
    np.testing.assert_allclose(axes.acceleration, acceleration, rtol=1e-5)
    back = coupler.motion(axes)
    np.testing.assert_allclose(back.displacement, motion.displacement, atol=1e-12)
    np.testing.assert_allclose(back.velocity, motion.velocity, rtol=1e-9)
    np.testing.assert_allclose(back.acceleration, motion.acceleration, rtol=1e-9)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"responses": {"one": RIG["responses"]["one"]}}, ("static_gains", "1", "numbers")),
        ({"common_poles": None}, ("responses.one", "2", "poles")),
        ({"frame": FRAME | {"driven": [1]}}, ("frame.driven", "2", "numbers")),
        ({"frame": FRAME | {"driven": [1, 4]}}, ("frame.driven", "numbers", "1", "3")),
        (
            {"frame": FRAME | {"stiffness": np.diag([1.0, 1.0, 0.0]).tolist()}},
            ("frame.stiffness", "positive definite"),
        ),
        ({"coupler": COUPLER | {"attachments": [[0.0, 0.0]] * 2}}, ("rig.coupler.attachments", "actuators")),
    ],
)
def test_invalid_coupled_rig_is_refused(changes: Any, parts: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*parts)):
        rig_with(**changes)


# Axially loaded column

STIFFNESS, LATERAL = 1e9, 1e6
COLUMN = {
    "column_length": 3.0,
    "axial_stiffness": STIFFNESS,
    "lateral": {"type": "kelvin_voigt", "stiffness": LATERAL, "damping": 0.0},
    "horizontal": {"type": "first_order", "alpha": 1.0},
    "vertical": {"type": "first_order", "alpha": 1.0},
}
"""The actuators have no delay."""


def column(**changes: Any) -> AxiallyLoadedColumn:
    return AxiallyLoadedColumn(from_data(AxiallyLoadedColumn.Params, COLUMN | changes), DT, 2)


def forces_at(rig: AxiallyLoadedColumn, drift: float, extension: float) -> tuple[float, float]:
    rig.step(np.array([drift, extension]), EMPTY)
    return float(rig.force[0]), float(rig.force[1])


def test_column_load_at_rest_is_stiffness_times_extension() -> None:
    assert forces_at(column(), 0.0, 0.5e-3) == (0.0, pytest.approx(500e3))
    assert forces_at(column(frame_stiffness=STIFFNESS), 0.0, 0.5e-3)[1] == pytest.approx(250e3), "in series"


def test_drift_of_20_mm_unloads_column_by_67_kn() -> None:
    rig = column()
    before = forces_at(rig, 0.0, 0.5e-3)[1]
    assert before - forces_at(rig, 0.020, 0.5e-3)[1] == pytest.approx(66.7e3, rel=2e-3)


def test_column_includes_p_delta() -> None:
    """An upright load reduces the lateral force by P u / h; an inclined actuator adds its push P u / L."""
    upright = forces_at(column(), 0.020, 0.5e-3 + 0.020**2 / 6.0)
    assert upright[0] == pytest.approx(LATERAL * 0.020 - upright[1] * 0.020 / 3.0, rel=1e-3)
    inclined = forces_at(column(actuator_length=2.0), 0.020, 0.5e-3 + 0.020**2 * (1.0 / 6.0 + 0.25))
    assert inclined[1] == pytest.approx(upright[1], rel=1e-3)
    assert inclined[0] == pytest.approx(upright[0] - inclined[1] * 0.010, rel=2e-3)


@pytest.mark.parametrize("length", [None, 1.5])
def test_column_takes_no_work_on_closed_path(length: float | None) -> None:
    """The column is elastic: forces and geometry must be consistent."""
    rig, n = column(actuator_length=length), 4000
    angle = np.linspace(0.0, 2.0 * math.pi, n + 1)
    path = np.stack([0.05 * np.sin(angle), 3e-4 * (1.0 - np.cos(angle)) + 2e-4 * np.sin(2.0 * angle)], 1)
    force = np.array([forces_at(rig, *point) for point in path])
    increments = 0.5 * (force[1:] + force[:-1]) * np.diff(path, axis=0)
    work, exchanged = increments.sum(0), np.abs(increments).sum(0)
    assert abs(work.sum()) < 1e-5 * exchanged.sum()
    assert abs(work[0]) > 1e-3 * exchanged[0], "not zero for a single actuator"


def test_upright_load_setup_corrects_inclined_actuator() -> None:
    setup = UprightLoad(from_data(UprightLoad.Params, {"actuator_length": 2.0}), 1, 1)
    rig, drift = column(actuator_length=2.0), 0.020
    force = np.array(forces_at(rig, drift, 0.7e-3))
    upright = LATERAL * drift - force[1] * drift / 3.0
    assert setup.forces(force, np.array([drift]))[0] == pytest.approx(upright, rel=1e-3)
    motion = Motion(np.array([drift]), np.zeros(1), np.zeros(1))
    assert setup.axes(motion).displacement[0] == setup.degrees_of_freedom(np.array([drift]))[0] == drift


def test_crushed_column_keeps_residual_force() -> None:
    rig = column(crushing_force=400e3, crushed_force=50e3)
    assert forces_at(rig, 0.0, 0.399e-3)[1] == pytest.approx(399e3)
    assert forces_at(rig, 0.0, 0.401e-3)[1] == pytest.approx(50e3)
    assert forces_at(rig, 0.0, 0.300e-3)[1] == pytest.approx(50e3)
    rig.reset()
    assert forces_at(rig, 0.0, 0.399e-3)[1] == pytest.approx(399e3)


def test_invalid_column_is_refused() -> None:
    with pytest.raises(ConfigError, match=naming("3", "axes", "2")):
        AxiallyLoadedColumn(from_data(AxiallyLoadedColumn.Params, COLUMN), DT, 3)
    with pytest.raises(ConfigError, match=naming("crushed_force", "2 N", "<= crushing_force", "1 N")):
        from_data(AxiallyLoadedColumn.Params, COLUMN | {"crushing_force": 1.0, "crushed_force": 2.0}, "rig")
