# SPDX-License-Identifier: Apache-2.0
"""LQG feedback on the deviation from the target (Phillips & Spencer 2012, section 2.2).

The deviation of a loading system from the target obeys the same model as the system itself, driven by the feedback
u~ and by a disturbance of the command (Eqs. 2.4 to 2.6). For the model z' = A z + B (u~ + d), y = C z + v:

    u~ = -K z^            K of the regulator that makes the integral of q y'y + r u~'u~ least
    z^' = A z^ + B (u~ + d^) + L_z (y - C z^)
    d^' = ...  + L_d (y - C z^)

The disturbance d is white noise through a filter of second order on each axis, the shaping filter, so that the
observer looks for deviations in the range of frequencies where they are; v is white noise of the measurement.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from rths_nodes.core.arithmetic import Numbers, first, matvec, numbers, put
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import number, params
from rths_nodes.core.samples import Array
from rths_nodes.mechanics.models.inverse import StateSpace
from rths_nodes.mechanics.structure import transition


@params
class FeedbackParams:
    """Weights of the regulator and noises of the observer; only their ratios matter."""

    displacement_weight: float = number("q of the deviation", "1", 14.0, more_than=0.0)
    command_weight: float = number("r of the feedback", "1", 1.0, more_than=0.0)
    process_noise: float = number(
        "spectral density of what drives the shaping filter, at the command", "m^2/Hz", 1e3, more_than=0.0
    )
    measurement_noise: float = number(
        "spectral density of the noise of the measurement", "m^2/Hz", 1.0, more_than=0.0
    )
    shaping_frequency: float = number("of the shaping filter", "Hz", 5.0, more_than=0.0)
    shaping_damping: float = number("damping ratio of the shaping filter", "1", 0.7, more_than=0.0)


class DeviationController(NamedTuple):
    """z^_k = Phi z^_{k-1} + Gamma y_{k-1}, u~_k = -K z^_k."""

    phi: Array
    """``(n, n)``."""
    gamma: Array
    """``(n, n_axes)``."""
    gain: Array
    """``(n_axes, n)``."""

    @property
    def constants(self) -> Array:
        """Matrix of :func:`step`: from z^_{k-1} and y_{k-1} to z^_k, then u~_k."""
        onward = np.hstack([self.phi, self.gamma])
        return np.asfortranarray(np.vstack([onward, -self.gain @ onward]))


def rest(k: Array) -> Array:
    return np.zeros(k.shape[1])


def step(k: Array, known: Array, deviation: Numbers, feedback: Numbers) -> Numbers:
    """Replace the ``feedback`` (m) of the sample before, from the deviation one sample ago (m, by axis)."""
    n = len(known) - len(deviation)
    put(known, n, deviation)
    found = matvec(k, known)
    put(known, 0, found[:n])
    return first(feedback, numbers(found[n:]))


def deviation_controller(
    plant: StateSpace, params: FeedbackParams, coupled: bool, dt: float, lead: float, path: str
) -> DeviationController:
    """Return the feedback for ``plant``, every ``dt`` (s); commands act ``lead`` (s) later.

    Without ``coupled``, each axis has the feedback for its own transfer function alone: the off-diagonal terms of
    Eq. (1.5) are ignored. Raises ConfigError, with ``path``, if there is no such feedback or its sampled loop with
    ``plant`` is unstable.
    """
    from scipy.linalg import block_diag  # takes half a second to import, too long to list components

    n = len(plant.outputs)
    groups = [list(range(n))] if coupled else [[axis] for axis in range(n)]
    plants = (StateSpace(plant.system, plant.inputs[:, axes], plant.outputs[axes]) for axes in groups)
    parts = [_continuous(part, params, path) for part in plants]
    system, inputs, gain = (block_diag(*blocks) for blocks in zip(*parts, strict=True))
    phi, before, now = transition(system, inputs, dt)
    controller = DeviationController(phi, before + now, gain)
    radius = loop_radius(plant, controller, dt, round(lead / dt))
    if not radius < 1.0:
        raise ConfigError(
            f"{path}: the feedback is not stable with this model: deviations grow {radius:.4g} times from sample "
            f"to sample at {1.0 / dt:g} Hz, with commands {lead:g} s late; take a smaller displacement_weight or "
            "process_noise"
        )
    return controller


def _continuous(plant: StateSpace, params: FeedbackParams, path: str) -> tuple[Array, Array, Array]:
    from scipy.linalg import solve_continuous_are

    speed = float(np.abs(plant.poles()).max())  # unit of time for well-scaled Riccati equations
    a, b, c = plant.system / speed, plant.inputs / speed, plant.outputs
    n, m = b.shape
    pair, push, look = _shaping(params, speed)
    one = np.eye(m)
    shaped = np.vstack(
        [np.hstack([a, b @ np.kron(one, look)]), np.hstack([np.zeros((2 * m, n)), np.kron(one, pair)])]
    )
    driven = np.vstack([np.zeros((n, m)), np.kron(one, push)])
    seen = np.hstack([c, np.zeros((m, 2 * m))])
    noise = params.process_noise / params.measurement_noise
    weight = params.displacement_weight / params.command_weight
    try:
        gain = b.T @ solve_continuous_are(a, b, weight * (c.T @ c), one)
        observer = solve_continuous_are(shaped.T, seen.T, noise * (driven @ driven.T), one) @ seen.T
    except (np.linalg.LinAlgError, ValueError) as error:
        raise ConfigError(f"{path}: no feedback for this model and these weights ({error})") from None
    gain = np.hstack([gain, np.zeros((m, 2 * m))])
    closed = shaped - observer @ seen - np.vstack([b, np.zeros((2 * m, m))]) @ gain
    return closed * speed, observer * speed, gain


def _shaping(params: FeedbackParams, speed: float) -> tuple[Array, Array, Array]:
    omega = 2.0 * math.pi * params.shaping_frequency / speed
    # the second state is the rate over omega
    system = omega * np.array([[0.0, 1.0], [-1.0, -2.0 * params.shaping_damping]])
    return system, np.array([[0.0], [omega]]), np.array([[1.0, 0.0]])


def loop_radius(plant: StateSpace, controller: DeviationController, dt: float, late: int) -> float:
    """Return the growth per sample of deviations (stable below 1); commands act ``late`` samples later."""
    phi, before, now = transition(plant.system, plant.inputs, dt)
    n, m, c = len(phi), before.shape[1], len(controller.phi)
    line = (late + 1) * m  # commands of the samples before, the newest first
    loop = np.zeros((n + c + line, n + c + line))
    estimate, feedback = slice(n, n + c), slice(n + c, n + c + m)
    loop[estimate, :n], loop[estimate, estimate] = controller.gamma @ plant.outputs, controller.phi
    loop[feedback] = -controller.gain @ loop[estimate]
    loop[n + c + m :, n + c : -m or None] = np.eye(line - m)
    loop[:n, :n] = phi
    loop[:n, -m:] += before
    # the command that arrives at the end of the sample
    loop[:n] += now @ (loop[feedback] if late == 0 else np.eye(len(loop))[-2 * m : -m])
    return float(np.abs(np.linalg.eigvals(loop)).max())
