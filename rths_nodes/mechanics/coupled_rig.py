# SPDX-License-Identifier: Apache-2.0
"""Linear model of several servo-hydraulic actuators coupled through one specimen.

Phillips & Spencer 2012, after Dyke et al. 1995. Actuator i acts on degree of freedom i of the specimen with the
force f_i:

    M x'' + C x' + K x = f
    f_i' = p_ai f_i + k_ai k_si (u_i - x_i) - k_ai A_i x_i'

u is the command; :class:`CoupledModel` describes the constants. The velocity x' changes the force f
(control-structure interaction) and thus couples the actuators.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rths_nodes.core.errors import ConfigError, show
from rths_nodes.core.parameters import matrix, params, vector
from rths_nodes.core.samples import ROUNDING, Array

Rows = tuple[tuple[float, ...], ...]


class CoupledModel(NamedTuple):
    """Constants of the specimen ``(n_axes, n_axes)`` and actuators ``(n_axes,)``; see :func:`coupled_model`."""

    mass: Array
    damping: Array
    stiffness: Array
    area: Array
    """Effective piston area A_i, m^2."""
    servo_gain: Array
    """Gain k_si of servo-controller and valve, m^2/s: flow per displacement error."""
    actuator_pole: Array
    """Pole p_ai, 1/s, negative, caused by leakage through the piston."""
    actuator_gain: Array
    """Gain k_ai, N/m^3: force per volume of oil."""


def coupled_model(
    mass: ArrayLike,
    damping: ArrayLike,
    stiffness: ArrayLike,
    area: Sequence[float],
    servo_gain: Sequence[float],
    actuator_pole: Sequence[float],
    actuator_gain: Sequence[float],
    path: str = "rig",
) -> CoupledModel:
    """Return the model with the given constants. A sequence of one number applies to all actuators.

    Raises ConfigError, naming ``path``, for mismatched sizes, an asymmetric matrix, a mass that is not positive
    definite, or a negative eigenvalue of damping or stiffness.
    """
    matrices = {"mass": np.array(mass, float), "damping": np.array(damping), "stiffness": np.array(stiffness)}
    n = len(matrices["mass"])
    for name, rows in matrices.items():
        matrices[name] = checked(rows.astype(float), n, f"{path}.{name}")
    if np.linalg.eigvalsh(matrices["mass"])[0] <= 0.0:
        raise ConfigError(f"{path}.mass: must be positive definite, because every degree of freedom needs mass")
    constants = {
        "area": area,
        "servo_gain": servo_gain,
        "actuator_pole": actuator_pole,
        "actuator_gain": actuator_gain,
    }
    for name, values in constants.items():
        if len(values) not in (1, n):
            raise ConfigError(
                f"{path}.{name} = {show(tuple(values))}: must be 1 number for all axes, or {n} numbers, one for "
                "each axis"
            )
    actuators = {name: np.broadcast_to(np.array(values, float), (n,)) for name, values in constants.items()}
    return CoupledModel(**matrices, **actuators)


def checked(matrix: Array, n: int, path: str) -> Array:
    """Return ``matrix``. Raises ConfigError unless it is ``(n, n)``, symmetric and positive semidefinite."""
    if matrix.shape != (n, n) or not np.allclose(matrix, matrix.T):
        raise ConfigError(f"{path}: must be a symmetric {n} x {n} matrix, with as many rows as mass")
    lowest = float(np.linalg.eigvalsh(matrix)[0])
    if lowest < -ROUNDING * float(np.abs(matrix).max()):
        raise ConfigError(f"{path}: has the eigenvalue {lowest:g}, which must be >= 0")
    return matrix


def state_space(model: CoupledModel) -> tuple[Array, Array, Array]:
    """Return the state space A ``(3 n, 3 n)``, B ``(3 n, n)``, C ``(4 n, 3 n)`` of Phillips & Spencer (2012).

    States are displacements (m), velocities and forces (N). Inputs are commands (m). Outputs are displacements,
    velocities, accelerations and forces, without direct feedthrough.
    """
    m = model
    n = len(m.mass)
    zero, one = np.zeros((n, n)), np.eye(n)
    flow = m.actuator_gain * m.servo_gain
    acceleration = np.linalg.solve(m.mass, np.hstack([-m.stiffness, -m.damping, one]))
    rate_of_force = np.hstack([-np.diag(flow), -np.diag(m.actuator_gain * m.area), np.diag(m.actuator_pole)])
    system = np.vstack([np.hstack([zero, one, zero]), acceleration, rate_of_force])
    inputs = np.vstack([zero, zero, np.diag(flow)])
    outputs = np.vstack(
        [np.hstack([one, zero, zero]), np.hstack([zero, one, zero]), acceleration, np.hstack([zero, zero, one])]
    )
    return system, inputs, outputs


def force_input(model: CoupledModel, location: ArrayLike) -> Array:
    """Return the input column ``(3 n,)`` for the restoring force (N) of a device at ``location`` ``(n,)``.

    For a device between ground and first floor, ``location`` is 1 at the first degree of freedom and 0 elsewhere.
    """
    n = len(model.mass)
    return np.concatenate([np.zeros(n), -np.linalg.solve(model.mass, np.asarray(location, float)), np.zeros(n)])


def feedforward(model: CoupledModel) -> Array:
    """Return the coefficients of the inverse model, ``(4, n, n)``, with units 1, s, s^2, s^3.

    Row i of M s^2 + C s + K is scaled by (s - p_ai) / (k_ai k_si), and 1 + A_i s / k_si is added on the diagonal
    (Phillips & Spencer 2012, Eq. 2.7). The printed Eq. (2.8) scales columns; the two equations agree only for
    identical actuators.
    """
    m = model
    row = (1.0 / (m.actuator_gain * m.servo_gain))[:, None]
    pole = m.actuator_pole[:, None]
    return np.array(
        [
            np.eye(len(m.mass)) - row * pole * m.stiffness,
            row * (m.stiffness - pole * m.damping) + np.diag(m.area / m.servo_gain),
            row * (m.damping - pole * m.mass),
            row * m.mass,
        ]
    )


@params
class RigConstants:
    """Constants of the specimen and actuators. A list of one number applies to all axes."""

    mass: Rows = matrix("mass matrix of the specimen, one row per axis", "kg")
    damping: Rows = matrix("damping matrix of the specimen, without installed dampers", "N s/m")
    stiffness: Rows = matrix("stiffness matrix of the specimen, without installed dampers", "N/m")
    area: tuple[float, ...] = vector("effective piston area A", "m^2", (1e-3,), more_than=0.0)
    servo_gain: tuple[float, ...] = vector(
        "gain k_s of servo-controller and valve (flow per displacement error)", "m^2/s", (0.1,), more_than=0.0
    )
    actuator_pole: tuple[float, ...] = vector("pole p_a, caused by leakage", "1/s", (-200.0,), less_than=0.0)
    actuator_gain: tuple[float, ...] = vector(
        "gain k_a (force per volume of oil)", "N/m^3", (1.26e11,), more_than=0.0
    )

    def model(self, path: str = "rig") -> CoupledModel:
        constants = (self.area, self.servo_gain, self.actuator_pole, self.actuator_gain)
        return coupled_model(self.mass, self.damping, self.stiffness, *constants, path=path)
