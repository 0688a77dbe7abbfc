# SPDX-License-Identifier: Apache-2.0
"""Actuators on one coupler, described by transfer functions with zeros, poles and gains.

The motion of axis i per command j is

    H_ij(s) = g_ij  prod_k (1 - s / z_ijk)  /  prod_k (1 - s / p_jk)  /  (1 + 2 zeta s / w + s^2 / w^2)

Poles and zeros belong to command j. All axes share one pair of poles (w, zeta) of the specimen. Frequencies in Hz
are multiplied by 2 pi. The transfer functions include the effect of the specimen on the actuators. There are at
least two more poles than zeros, because the specimen has mass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rths_nodes.core.arithmetic import along, first, matvec, numbers, times
from rths_nodes.core.errors import ConfigError, show
from rths_nodes.core.parameters import TestContext, matrix, number, params, section, sections, vector
from rths_nodes.core.samples import ROUNDING, Array
from rths_nodes.core.simulators import Rig, RigKernel, Shown, still
from rths_nodes.laboratory.actuators.unloaded import hold_parameter
from rths_nodes.mechanics.coupled_rig import checked
from rths_nodes.mechanics.coupler import Coupler, CouplerKernel, Geometry, Rows
from rths_nodes.mechanics.structure import transition

Indices = NDArray[np.intp]


@params
class CondensedFrame:
    """Matrices of a linear specimen, condensed to the degrees of freedom that the rig drives.

        q_o = -K_oo^-1 K_ot q_t = G q_t,   T = [1; G],   M_r = T' M T,   C_r = T' C T,   K_r = T' K T

    (R. J. Guyan, AIAA Journal 3, 1965). No external load acts on the other degrees of freedom o. Their inertia and
    damping are transferred to the driven degrees of freedom t by equal virtual work. The result is accurate well
    below the natural frequencies of the specimen with t held.
    """

    mass: tuple[tuple[float, ...], ...] = matrix("mass matrix of the specimen, n rows of n numbers", "kg")
    damping: tuple[tuple[float, ...], ...] = matrix("damping matrix of the specimen", "N s/m")
    stiffness: tuple[tuple[float, ...], ...] = matrix("stiffness matrix of the specimen", "N/m")
    driven: tuple[float, ...] = vector(
        "numbers (from 1) of the degrees of freedom that the rig drives, in the order of the rig",
        "1",
        at_least=1.0,
    )

    def validate(self, path: str) -> None:
        n = len(self.mass)
        for name in ("mass", "damping", "stiffness"):
            checked(np.array(getattr(self, name)), n, f"{path}.{name}")
        if any(one % 1.0 or one > n for one in self.driven) or len(set(self.driven)) < len(self.driven):
            raise ConfigError(
                f"{path}.driven = {show(self.driven)}: must be different whole numbers from 1 to {n}"
            )
        _, o = self._split()
        stiffness = np.array(self.stiffness)
        if len(o) and np.linalg.eigvalsh(stiffness[np.ix_(o, o)])[0] <= ROUNDING * np.abs(stiffness).max():
            raise ConfigError(
                f"{path}.stiffness: must be positive definite for degrees of freedom that the rig does not drive"
            )

    def _split(self) -> tuple[Indices, Indices]:
        driven = np.array(self.driven, int) - 1
        return driven, np.setdiff1d(np.arange(len(self.mass)), driven)

    def condensed(self) -> tuple[Array, Array, Array]:
        """Return the mass (kg), damping (N s/m) and stiffness (N/m) matrices of the driven degrees of freedom."""
        t, o = self._split()
        stiffness = np.array(self.stiffness)
        shape = np.zeros((len(stiffness), len(t)))
        shape[t] = np.eye(len(t))
        shape[o] = -np.linalg.solve(stiffness[np.ix_(o, o)], stiffness[np.ix_(o, t)])
        mass, damping = np.array(self.mass), np.array(self.damping)
        return shape.T @ mass @ shape, shape.T @ damping @ shape, shape.T @ stiffness @ shape


HZ = 2.0 * np.pi


@params
class Response:
    static_gains: tuple[float, ...] = vector("steady motion of each axis per unit of a constant command", "1")
    poles: tuple[float, ...] = vector("real poles", "Hz", less_than=0.0)
    zeros: tuple[tuple[float, ...], ...] | None = matrix(
        "real zeros, with a row for each axis or one row for all axes; default: none", "Hz", None
    )


@params
class PolePair:
    frequency: float = number("natural frequency (distance of the poles from the origin)", "Hz", more_than=0.0)
    damping_ratio: float = number("damping ratio", more_than=0.0, less_than=1.0)


class Constants(NamedTuple):
    """Constants for n axes whose transfer functions have m states in total."""

    n: int
    onward: Array
    """Matrix ``(m, m + 2 n)`` that maps (commands before, states before, commands now) to states now."""
    seen: Array
    """Matrix ``(3 n, m + n)`` that maps (states, commands now) to displacements, velocities and accelerations."""
    coupler: object
    mass: Rows
    damping: Rows
    stiffness: Rows


State = tuple[Array, tuple[float, ...]]
"""Array of (commands before, states, commands now), and the last pose of the coupler."""


def behind_coupler(coupler: CouplerKernel) -> Callable[..., tuple[object, Shown]]:
    _, _, axis_forces, _, motion = coupler

    def step(k: Constants, s: State, command: Array, auxiliary: Array) -> tuple[object, Shown]:
        """Advance the actuators, then compute the forces of the specimen at the coupler's pose."""
        n, onward, motions, of_coupler, mass, damping, stiffness = k
        states, near = s
        m = len(states) - 2 * n
        states[:n] = states[n + m :]
        states[n + m :] = command
        states[n : n + m] = matvec(onward, states)
        motion_of_axes = matvec(motions, states[n:])
        seen = numbers(motion_of_axes)
        x, v, a = first(near, seen), first(near, seen[n:]), first(near, seen[2 * n :])
        pose, rate, acceleration = motion(of_coupler, x, v, a, near)
        forces = along(times(stiffness, pose), 1.0, times(damping, rate))
        forces = along(forces, 1.0, times(mass, acceleration))
        pushed = np.array(axis_forces(of_coupler, forces, pose))
        return (states, pose), (motion_of_axes[:n], motion_of_axes[n : 2 * n], pushed, np.zeros(0))

    return step


class CoupledTransferFunctions(Rig):
    """Actuators that move a linear specimen through a rigid coupler, described by a transfer-function matrix."""

    SOURCES = ("condori_uribe_2023",)

    @params
    class Params:
        responses: dict[str, Response] = sections(Response, "transfer functions by the name of the commanded axis")
        common_poles: PolePair | None = section(
            PolePair, "poles common to all transfer functions; default: none", None
        )
        coupler: Geometry = section(Geometry, "positions of the actuators on the coupler in the laboratory")
        frame: CondensedFrame = section(
            CondensedFrame, "specimen, whose driven degrees of freedom are x, (y) and theta of the coupler"
        )
        hold: str = hold_parameter("ramp")

        def validate(self, path: str) -> None:
            n = len(self.responses)
            for name, one in self.responses.items():
                key = f"{path}.responses.{name}"
                if len(one.static_gains) != n:
                    raise ConfigError(
                        f"{key}.static_gains = {show(one.static_gains)}: must be {n} numbers, one for each axis"
                    )
                zeros = one.zeros or ()
                if zeros and len(zeros) not in (1, n):
                    raise ConfigError(
                        f"{key}.zeros: the number of rows is {len(zeros)}; must be {n}, one for each axis, or 1 "
                        "for all axes"
                    )
                if any(value == 0.0 for row in zeros for value in row):
                    raise ConfigError(
                        f"{key}.zeros: must not contain 0 Hz, because static_gains has the gain at 0 Hz"
                    )
                poles = len(one.poles) + (2 if self.common_poles else 0)
                if (zeros and poles < len(zeros[0]) + 2) or poles < 2:
                    raise ConfigError(
                        f"{key}: {poles} poles and {len(zeros[0]) if zeros else 0} zeros; must have at least two "
                        "more poles than zeros, because the specimen has mass"
                    )
            if len(self.frame.driven) != n:
                raise ConfigError(
                    f"{path}.frame.driven = {show(self.frame.driven)}: must be {n} numbers, one for each axis"
                )

        def fits(self, test: TestContext) -> None:
            test.check_order("responses", self.responses)

    @classmethod
    def kernel_of(cls, params: Params, n_axes: int) -> RigKernel:
        coupler = Coupler(params.coupler, n_axes, n_axes, "rig.coupler")

        return RigKernel(
            lambda plant, dt: _constants(plant, coupler, dt),
            lambda k: (np.zeros(k.onward.shape[1]), (0.0,) * n_axes),
            behind_coupler(coupler.kernel),
            lambda k, s: still(n_axes),
        )


def _constants(params: CoupledTransferFunctions.Params, coupler: Coupler, dt: float) -> Constants:
    n = len(params.responses)
    system, inputs, outputs = state_space(params)
    phi, before, now = transition(system, inputs, dt)
    if params.hold == "staircase":
        before, now = np.zeros_like(before), before + now
    # commands do not act instantly on displacement or velocity
    rows = np.vstack([outputs, outputs @ system, outputs @ system @ system])
    through = np.vstack([np.zeros((2 * n, n)), outputs @ system @ inputs])
    matrices = (tuple(map(tuple, matrix.tolist())) for matrix in params.frame.condensed())
    onward, seen = np.hstack([before, phi, now]), np.hstack([rows, through])
    return Constants(n, onward, seen, coupler.constants, *matrices)


def state_space(params: CoupledTransferFunctions.Params) -> tuple[Array, Array, Array]:
    """Return A ``(m, m)``, B ``(m, n_axes)`` and C ``(n_axes, m)`` of the matrix of transfer functions.

    Each command has one state per pole. The states are successive derivatives, scaled by powers of the poles' mean
    frequency.
    """
    from scipy.linalg import block_diag

    systems, inputs, outputs = [], [], []
    pair = params.common_poles
    for one in params.responses.values():
        poles = HZ * np.array(one.poles, complex)
        if pair is not None:
            omega = HZ * pair.frequency
            upper = omega * complex(-pair.damping_ratio, np.sqrt(1.0 - pair.damping_ratio**2))
            poles = np.concatenate([poles, [upper, upper.conjugate()]])
        scale = float(np.abs(np.prod(poles))) ** (1.0 / len(poles))
        below = np.real(_polynomial(poles / scale))
        order = len(poles)
        system = np.diag(np.ones(order - 1), 1)
        system[-1] = -below[:-1] / below[-1]
        systems.append(scale * system)
        inputs.append(np.eye(order)[:, -1:] * scale / below[-1])
        rows = one.zeros or ((),)
        above = np.zeros((len(params.responses), order))
        for axis, gain in enumerate(one.static_gains):
            zeros = HZ * np.array(rows[axis if len(rows) > 1 else 0], complex)
            numerator = np.real(_polynomial(zeros / scale))
            above[axis, : len(numerator)] = gain * numerator
        outputs.append(above)
    return block_diag(*systems), block_diag(*inputs), np.hstack(outputs)


def _polynomial(roots: NDArray[np.complex128]) -> NDArray[np.complex128]:
    polynomial = np.ones(1, complex)
    for root in roots:
        polynomial = np.convolve(polynomial, [1.0, -1.0 / root])
    return polynomial
