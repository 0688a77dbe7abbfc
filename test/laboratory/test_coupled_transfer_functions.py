# SPDX-License-Identifier: Apache-2.0
"""A rig by zeros, poles and gains with a condensed specimen behind its coupler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from array_coupler import ArrayCoupler
from messages import naming
from scipy.signal import TransferFunction, lsim, zpk2tf

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Motion
from rths_nodes.core.validation import from_data
from rths_nodes.laboratory.rigs.coupled_transfer_functions import (
    CondensedFrame,
    CoupledTransferFunctions,
    state_space,
)

Make = Callable[..., Any]
DT = 1.0 / 1024.0
HZ = 2.0 * np.pi
NOTHING = np.zeros(0)
FRAME = {
    "mass": np.diag([8.0, 0.9, 0.7]).tolist(),
    "damping": (5e-4 * np.array([[1.3e7, 2.1e6, 2.1e6], [2.1e6, 1.4e6, 2.2e5], [2.1e6, 2.2e5, 1.3e6]])).tolist(),
    "stiffness": [[1.3e7, 2.1e6, 2.1e6], [2.1e6, 1.4e6, 2.2e5], [2.1e6, 2.2e5, 1.3e6]],
    "driven": [1, 2],
}
COUPLER = {"anchors": [[-0.7, -0.13], [-0.7, 0.13]], "attachments": [[0.27, -0.13], [0.27, 0.13]]}
RIG: dict[str, Any] = {
    "responses": {
        "one": {"static_gains": [0.86, 0.14], "poles": [-2.65, -40.0], "zeros": [[-120.0, -90.0]]},
        "two": {"static_gains": [0.13, 0.93], "poles": [-3.5, -18.5], "zeros": [[-3.0], [-5.0]]},
    },
    "common_poles": {"frequency": 80.0, "damping_ratio": 0.6},
    "coupler": COUPLER,
    "frame": FRAME,
}


def rig_with(make: Make, **changes: Any) -> Any:
    return make("rig", "coupled_transfer_functions", DT, 2, **(RIG | changes))


def test_its_responses_are_those_of_the_zeros_poles_and_gains() -> None:
    params = from_data(CoupledTransferFunctions.Params, RIG)
    system, inputs, outputs = state_space(params)
    pair = 80.0 * np.array([complex(-0.6, 0.8), complex(-0.6, -0.8)])
    for f in (0.0, 1.0, 7.0, 60.0):
        s = 2j * np.pi * f
        found = outputs @ np.linalg.solve(s * np.eye(len(system)) - system, inputs)
        for column, one in enumerate(params.responses.values()):
            for axis in range(2):
                assert one.zeros is not None
                zeros = one.zeros[axis if len(one.zeros) > 1 else 0]
                h = one.static_gains[axis] * np.prod([1.0 - s / (HZ * z) for z in zeros])
                h /= np.prod([1.0 - s / (HZ * p) for p in [*one.poles, *pair]])
                assert found[axis, column] == pytest.approx(h, rel=1e-9)


def test_its_motion_is_that_of_another_solver(make: Make) -> None:
    """The command of the first actuator runs straight, as scipy takes it."""
    rig = rig_with(make)
    commands = 0.003 * np.sin(HZ * 3.0 * DT * np.arange(600))
    moved = [np.zeros(2)]
    for command in commands[1:]:
        rig.step(np.array([command, 0.0]), NOTHING)
        moved.append(rig.displacement.copy())
    pair = 80.0 * np.array([complex(-0.6, 0.8), complex(-0.6, -0.8)])
    zeros, poles = HZ * np.array([-120.0, -90.0]), HZ * np.array([-2.65, -40.0, *pair])
    gain = np.real(np.prod(-poles) / np.prod(-zeros))
    _, one, _ = lsim(TransferFunction(*zpk2tf(zeros, poles, gain)), commands, DT * np.arange(600))
    np.testing.assert_allclose(np.array(moved), np.outer(one, [0.86, 0.14]), atol=1e-9)


def test_its_forces_are_the_specimens_by_virtual_work(make: Make) -> None:
    """Of the motion of the node, from differences of the axes' displacement: no formula of the rig."""
    rig = rig_with(make)
    coupler = ArrayCoupler(from_data(CoupledTransferFunctions.Params, RIG).coupler, 2, 2, "x")
    mass, damping, stiffness = from_data(CondensedFrame, FRAME).condensed()
    poses, forces = [], []
    for k in range(3000):
        phase = HZ * np.array([1.0, 1.7]) * DT * k
        rig.step(0.004 * np.sin(phase) * min(1.0, k / 1000.0), NOTHING)
        poses.append(coupler.degrees_of_freedom(rig.displacement))
        forces.append(coupler.forces(rig.force, poses[-1]))
    q = np.array(poses)
    v = (q[2:] - q[:-2]) / (2.0 * DT)
    a = (q[2:] - 2.0 * q[1:-1] + q[:-2]) / DT**2
    wanted = q[1:-1] @ stiffness + v @ damping + a @ mass
    np.testing.assert_allclose(np.array(forces)[1:-1], wanted, atol=2e-3 * np.abs(wanted).max())


def test_a_condensed_frame_is_the_whole_one_while_it_moves_slowly() -> None:
    """Behind the driven degrees of freedom the others move freely: exact at rest, of second order in frequency."""
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


def test_the_coupler_of_long_actuators_moves_as_in_the_benchmark() -> None:
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
    np.testing.assert_allclose(
        axes.acceleration, (moved(1e-4) - 2.0 * moved(0.0) + moved(-1e-4)) / 1e-8, rtol=1e-5
    )
    back = coupler.motion(axes)
    np.testing.assert_allclose(back.displacement, motion.displacement, atol=1e-12)
    np.testing.assert_allclose(back.velocity, motion.velocity, rtol=1e-9)
    np.testing.assert_allclose(back.acceleration, motion.acceleration, rtol=1e-9)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"responses": {"one": RIG["responses"]["one"]}}, ("static_gains", "1", "numbers")),
        (
            {"common_poles": None},
            ("responses.one", "2", "poles"),
        ),
        ({"frame": FRAME | {"driven": [1]}}, ("frame.driven", "2", "numbers")),
        ({"frame": FRAME | {"driven": [1, 4]}}, ("frame.driven", "numbers", "1", "3")),
        (
            {"frame": FRAME | {"stiffness": [[1.0, 0, 0], [0, 1.0, 0], [0, 0, 0.0]]}},
            ("frame.stiffness", "positive definite"),
        ),
        (
            {"coupler": COUPLER | {"attachments": [[0.0, 0.0], [0.0, 0.0]]}},
            ("rig.coupler.attachments", "actuators"),
        ),
    ],
)
def test_what_does_not_fit_is_refused(make: Make, changes: Any, words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*words)):
        rig_with(make, **changes)
