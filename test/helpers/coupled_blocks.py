# SPDX-License-Identifier: Apache-2.0
"""Transfer matrix of coupled actuators from blocks (Phillips & Spencer 2012, Fig. 1.2), and their poles."""

from __future__ import annotations

import numpy as np

from rths_nodes.mechanics.models.coupled_rig import CoupledModel, state_space


def transfer_matrix(model: CoupledModel, s: complex) -> np.ndarray:
    """G_xu(s) = X / U ``(n, n)`` from the blocks.

    Eq. (1.2) read as matrices: X = [I + G_sf G_a (G_s + A s)]^-1 G_sf G_a G_s U.
    """
    m = model
    specimen = np.linalg.inv(m.mass * s * s + m.damping * s + m.stiffness)
    forward = specimen * (m.actuator_gain / (s - m.actuator_pole))
    closed = np.eye(len(m.mass)) + forward * (m.servo_gain + m.area * s)
    return np.linalg.solve(closed, forward * m.servo_gain).astype(np.complex128)


def poles(model: CoupledModel) -> np.ndarray:
    """The ``3 n`` poles of G_xu (Eq. 1.5), rad/s, slowest first."""
    values = np.linalg.eigvals(state_space(model)[0]).astype(np.complex128)
    return values[np.argsort(np.abs(values), kind="stable")]
