# SPDX-License-Identifier: Apache-2.0
"""Semi-active controllers: set the auxiliary inputs of the rig, e.g. the voltage of a damper in the specimen.

At step i, with n samples per step, the controller receives the measurement of sample i n and the ground
acceleration. It returns the auxiliary inputs for the following step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rths_nodes.core.arithmetic import Numbers, groups, numbers, put, times
from rths_nodes.core.control import DAMPER_DISPLACEMENT, DAMPER_FORCE, SemiActiveOfKernel, accelerations
from rths_nodes.core.errors import ConfigError, show
from rths_nodes.core.kernels import Kernel, no_state
from rths_nodes.core.parameters import TestContext, integer, number, params, vector
from rths_nodes.core.protocols import Structure
from rths_nodes.core.samples import Array
from rths_nodes.mechanics.structure import combined, is_sparse, transition

TABLE = {
    "clipped_optimal": ":ClippedOptimal",
    "passive": ":Passive",
    "random_switching": ":RandomSwitching",
}
BLOCK = 4096
"""Number of random decisions drawn at a time."""
State = tuple[Array, float]
"""Array of the estimate ``(2 n,)``, the previous and the current measurements; requested force (N)."""


class Constants(NamedTuple):
    gain: tuple[Numbers]
    """Gain, ``2 n`` numbers, N/m and N s/m. The requested force is minus this gain times the estimate."""
    observer: Array
    """Gain ``(2 n, n + 1)`` of the Kalman filter."""
    onward: Array
    """Matrix that computes the estimate from the previous estimate, the previous and the current measurements."""
    channels: tuple[int, ...]
    """Indices of the measurements among the auxiliary channels."""
    ground: Numbers
    """Factors with which the ground acceleration is added to the measurements."""
    voltage: float


def constants(
    params: ClippedOptimal.Params, structure: Structure | None, dt: float, measured: Sequence[str]
) -> Constants:
    """Return the constants for ``structure``. ``measured`` names the auxiliary channels of the rig.

    Raises ConfigError if the structure or a channel is missing, or if the parameters do not fit the structure.
    """
    if structure is None:
        raise ConfigError("semi_active clipped_optimal: the controller needs a structure")
    if is_sparse(structure.mass):
        raise ConfigError(
            f"semi_active clipped_optimal: {len(structure.influence)} degrees of freedom are too many for the "
            "Riccati equation of the controller"
        )
    if hasattr(structure, "shapes"):
        raise ConfigError(
            "semi_active clipped_optimal: reduction must be left out, because the rig measures accelerations of "
            "degrees of freedom, not of modes"
        )
    n = len(structure.influence)
    wanted = (*accelerations(n), DAMPER_DISPLACEMENT, DAMPER_FORCE)
    if missing := [name for name in wanted if name not in measured]:
        raise ConfigError(
            f"semi_active: the controller needs the channel {missing[0]!r}, but the rig measures "
            f"{', '.join(measured) or 'no auxiliary channel'}"
        )
    weights = _sized("weights", params.weights, np.eye(n)[-1])
    location = _sized("damper_location", params.damper_location, np.eye(n)[0])
    # z' = A z + B f + E a_g with displacements and velocities z, damper force f and ground acceleration a_g; the
    # measurement is C z + D f (without a_g)
    mass, damping, stiffness = combined(structure)
    absolute = -np.linalg.solve(mass, np.hstack([stiffness, damping]))
    push, nothing = -np.linalg.solve(mass, location), np.zeros(n)
    system = np.vstack([np.hstack([np.zeros((n, n)), np.eye(n)]), absolute])
    force, exciting = np.concatenate([nothing, push]), np.concatenate([nothing, -structure.influence])
    outputs, direct = np.vstack([absolute, np.concatenate([location, nothing])]), np.append(push, 0.0)
    gain = _regulator(system, force, outputs, direct, weights, params.force_weight)
    # Kalman filter for measurements with noise of intensity 1
    covariance = _riccati(system.T, outputs.T, params.noise_ratio * np.outer(exciting, exciting), 1.0)
    observer = covariance @ outputs.T
    inputs = np.column_stack([observer, force - observer @ direct])
    onward = np.asfortranarray(np.hstack(transition(system - observer @ outputs, inputs, dt)))
    channels = tuple([list(measured).index(name) for name in wanted])
    ground = (*structure.influence.tolist(), 0.0, 0.0)
    return Constants((tuple(gain.tolist()),), observer, onward, channels, ground, params.voltage)


def rest(k: Constants) -> State:
    return np.zeros(k.onward.shape[1]), 0.0


def step(
    k: Constants, s: State, auxiliary: Array, ground_acceleration: float, chance: float
) -> tuple[State, tuple[float]]:
    """Update the filter. Return full voltage if this moves the force towards the requested force, otherwise 0."""
    gain, _, onward, channels, ground, voltage = k
    estimated, _ = s
    states, count, shown = len(onward), len(channels), numbers(auxiliary)
    put(estimated, states, estimated[states + count :])
    for index in range(count):
        estimated[states + count + index] = shown[channels[index]] + ground_acceleration * ground[index]
    (estimate,) = groups(gain, onward, estimated)
    put(estimated, 0, estimate)
    desired = -times(gain, estimate)[0]
    force = float(estimated[len(estimated) - 1])
    return (estimated, desired), (voltage if (desired - force) * force > 0.0 else 0.0,)


class ClippedOptimal(SemiActiveOfKernel):
    """Clipped-optimal control (Dyke, Spencer, Sain & Carlson 1996): full or zero voltage.

    The voltage is full if it moves the damper's force f towards the requested force f_c: (f_c - f) f > 0. An
    LQG controller for the structure requests f_c. It minimises the integral of sum q_i a_i^2 + r f^2, with the
    absolute accelerations a_i, the ``weights`` q_i and the ``force_weight`` r. The Kalman filter uses the absolute
    accelerations and the damper's displacement, and is exact for inputs linear between samples.
    """

    SOURCES = ("dyke_1996",)

    @params
    class Params:
        voltage: float = number("voltage V_max, applied when the force must grow", "V", 2.25, more_than=0.0)
        weights: tuple[float, ...] | None = vector(
            "weight q of the absolute acceleration of each degree of freedom; default: 1 for the last degree of "
            "freedom, otherwise 0",
            "1",
            None,
            at_least=0.0,
        )
        force_weight: float = number("weight r of the damper's force", "m^2/(s^4 N^2)", 1e-17, more_than=0.0)
        noise_ratio: float = number(
            "spectral density of the ground acceleration, divided by the spectral density of the noise of each "
            "measurement, in SI units",
            default=50.0,
            more_than=0.0,
        )
        damper_location: tuple[float, ...] | None = vector(
            "elongation of the damper per displacement of each degree of freedom; default: 1 for the first "
            "degree of freedom, otherwise 0",
            "1",
            None,
        )

        def validate(self, path: str) -> None:
            for name in ("weights", "damper_location"):
                values = getattr(self, name)
                if values is not None and not any(values):
                    raise ConfigError(f"{path}.{name} = {show(values)}: must not be all zero")

        def cautions(self, test: TestContext) -> list[str]:
            if test.samples_per_step == test.substeps:
                return []
            return ["time_ratio must be 1, because the controller uses accelerations measured in real time"]

    KERNEL = Kernel(constants, rest, step)


def _sized(name: str, values: tuple[float, ...] | None, default: Array) -> Array:
    if values is None:
        return default
    if len(values) != len(default):
        raise ConfigError(
            f"semi_active.{name} = {show(values)}: must be {len(default)} numbers, one for each degree of freedom"
        )
    return np.array(values)


def _regulator(
    system: Array, force: Array, outputs: Array, direct: Array, weights: Array, force_weight: float
) -> Array:
    """Return the gain ``(2 n,)`` of the regulator, whose cost has cross terms of state and force.

    The weight of the state in the Riccati equation is computed as a sum of squares. An equivalent difference
    would lose all digits if the force can cancel the response and ``force_weight`` is very small.
    """
    rows, push = np.sqrt(weights)[:, None] * outputs[:-1], np.sqrt(weights) * direct[:-1]
    pushed, cross = float(push @ push), push @ rows
    effort = pushed + force_weight
    state = rows.T @ rows
    if pushed:
        apart = rows - np.outer(push, cross) / pushed
        state = apart.T @ apart + np.outer(cross, cross) * (force_weight / (pushed * effort))
    crossed = system - np.outer(force, cross) / effort
    return np.asarray((force @ _riccati(crossed, force[:, None], state, effort) + cross) / effort)


def _riccati(a: Array, b: Array, q: Array, r: float) -> Array:
    from scipy.linalg import solve_continuous_are

    try:
        # b / sqrt(r) in place of r keeps precision for very small r
        solution: Array = solve_continuous_are(a, b * (1.0 / np.sqrt(r)), q, np.eye(b.shape[1]))
    except (np.linalg.LinAlgError, ValueError) as error:
        raise ConfigError(
            f"semi_active: no controller exists for this structure and these weights ({error})"
        ) from error
    return solution


# Voltages that do not depend on measurements


def constant(
    k: tuple[float], s: tuple[()], auxiliary: Array, ground_acceleration: float, chance: float
) -> tuple[tuple[()], tuple[float]]:
    return s, k


class Passive(SemiActiveOfKernel):
    """Constant voltage during the test: 0 V is "passive off" and the largest voltage is "passive on"."""

    @params
    class Params:
        voltage: float = number("voltage at the current driver", "V", 0.0, at_least=0.0)

    KERNEL = Kernel(lambda params, *_: (params.voltage,), no_state, constant)


def switched(
    k: tuple[float], s: tuple[()], auxiliary: Array, ground_acceleration: float, chance: float
) -> tuple[tuple[()], tuple[float]]:
    (voltage,) = k
    return s, (voltage if chance > 0.0 else 0.0,)


class RandomSwitching(SemiActiveOfKernel):
    """Full or zero voltage, drawn at random for each interval (Phillips & Spencer 2012, section 3.1)."""

    @params
    class Params:
        voltage: float = number(
            "voltage in about half of the intervals; 0 V is applied in the others", "V", 2.25, more_than=0.0
        )
        interval: float = number(
            "interval between two decisions, rounded to whole steps", "s", 0.05, more_than=0.0
        )
        seed: int = integer("seed of the random decisions", default=1, at_least=0)

    KERNEL = Kernel(lambda params, *_: (params.voltage,), no_state, switched)

    def __init__(self, params: Params, structure: Structure | None, dt: float, measured: Sequence[str]) -> None:
        self._seed, self._steps = params.seed, max(1, round(params.interval / dt))
        super().__init__(params, structure, dt, measured)

    def reset(self) -> None:
        super().reset()
        self._generator = np.random.default_rng(self._seed)
        self._index = 0

    def chance(self) -> float:
        interval, within = divmod(self._index, self._steps)
        if within == 0 and interval % BLOCK == 0:
            self._decisions = self._generator.integers(0, 2, BLOCK).tolist()
        self._index += 1
        return float(self._decisions[interval % BLOCK])
