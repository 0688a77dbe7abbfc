# SPDX-License-Identifier: Apache-2.0
"""A rig with three coupled axes, driven with noise one by one, and its transfer matrix from blocks.

The blocks are from Phillips & Spencer (2012), Fig. 1.2.
"""

from __future__ import annotations

import numpy as np

from rths_nodes.analysis.identification.frequency_responses import Experiment
from rths_nodes.mechanics.coupled_rig import CoupledModel, coupled_model, state_space
from rths_nodes.mechanics.structure import transition

DT = 1.0 / 1000.0
MASS = (98.3 * np.eye(3)).tolist()
DAMPING = [[175.0, -50.0, 0.0], [-50.0, 100.0, -50.0], [0.0, -50.0, 50.0]]
STIFFNESS = [[12.0e5, -6.84e5, 0.0], [-6.84e5, 13.7e5, -6.84e5], [0.0, -6.84e5, 6.84e5]]
RIG = coupled_model(
    *(MASS, DAMPING, STIFFNESS, [1e-3, 2e-3, 0.7e-3]),
    *([0.1, 0.15, 0.06], [-200.0, -150.0, -260.0], [1.26e11, 0.8e11, 2e11]),
)


def noise(seconds: float, seed: int) -> np.ndarray:
    """Noise of 1 mm rms up to 50 Hz, at rest at both ends."""
    n = round(seconds / DT)
    rng = np.random.default_rng(seed)
    lines = np.zeros(n // 2 + 1, complex)
    last = round(50.0 * seconds)
    lines[1:last] = np.exp(2j * np.pi * rng.random(last - 1))
    history = np.fft.irfft(lines, n)
    rise = np.minimum(1.0, np.minimum(np.arange(n), np.arange(n)[::-1]) * DT / 0.5)
    return 1e-3 * history / history.std() * np.sin(0.5 * np.pi * rise) ** 2


def answers(model: CoupledModel, command: np.ndarray, noise_rms: float = 0.0, late: int = 0) -> Experiment:
    """Exact response of the rig to ``command``, at rest at the end."""
    command = np.vstack([command, np.zeros((400, command.shape[1]))])
    phi, before, now = transition(*state_space(model)[:2], DT)
    state, n = np.zeros(len(phi)), len(model.mass)
    response = np.zeros_like(command)
    sent = np.vstack([np.zeros((late, n)), command])[: len(command)]
    for k in range(1, len(command)):
        state = phi @ state + before @ sent[k - 1] + now @ sent[k]
        response[k] = state[:n]
    rng = np.random.default_rng(9)
    return (command, response + noise_rms * rng.standard_normal(response.shape))


def one_by_one(noise_rms: float = 0.0, late: int = 0) -> list[Experiment]:
    return [answers(RIG, np.outer(noise(12.0, axis), np.eye(3)[axis]), noise_rms, late) for axis in range(3)]


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
