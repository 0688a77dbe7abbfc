# SPDX-License-Identifier: Apache-2.0
"""Continuous-time loop of a hybrid test for small motion.

    Z(s) = s^2 M + s C + K + T' S(s) H(s / r) T                                 equation of motion, closed loop

M, C and K belong to the numerical substructure. T maps degrees of freedom to axes, and T' maps forces of the axes
to degrees of freedom. S is the dynamic stiffness of the specimens. H is the response of the specimens'
displacement to the target: compensator, transport and actuator. The complex frequency s (rad/s) belongs to the
structure. On a time axis that is r times slower, the rig moves with s / r. Integrator and ramp are exact, and
measurements have no error; ``sampled_loop.py`` includes the effect of the steps.

Reference: Horiuchi, Nakagawa, Sugano, Konno 1996, Eqs. (1), (5), (6), extended from one spring to a rig.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np

from rths_nodes.analysis.stability.force_loops import ForceLoop
from rths_nodes.core.frequency_response import Complex, Frequencies
from rths_nodes.core.samples import Array
from rths_nodes.mechanics.small_specimen import SmallSpecimen

Response = Callable[[Frequencies], Complex]
"""Function from angular frequency (rad/s), real or complex, ``(n,)``, to response, ``(n,)`` or ``(n, n_axes,
n_axes)``."""
HAIR = 1e-13
"""Fraction of the highest natural frequency that just exceeds rounding errors."""
SLOW = 1e-3
"""Fraction of the highest natural frequency at which the delay is evaluated."""


@dataclass(frozen=True, eq=False)
class WholeStructure:
    """Both substructures at small motion with a perfect rig, which moves the specimens exactly.

    ``mass``, ``damping`` and ``stiffness`` are the numerical substructure, ``(n_dof, n_dof)``. ``axes_of`` is T
    ``(n_axes, n_dof)``, ``forces_of`` is T' ``(n_dof, n_axes)``. The specimens move ``time_ratio`` times slower.
    """

    mass: Array
    damping: Array
    stiffness: Array
    axes_of: Array
    forces_of: Array
    specimens: tuple[SmallSpecimen, ...]
    time_ratio: float = field(default=1.0, kw_only=True)

    @cached_property
    def inverse(self) -> Array:
        return np.asarray(np.linalg.inv(self.mass), float)

    @cached_property
    def whole_stiffness(self) -> Array:
        """Stiffness of both substructures, ``(n_dof, n_dof)`` N/m, without internal states of the specimens."""
        tested = np.diag([specimen.stiffness for specimen in self.specimens])
        return self.stiffness + self.forces_of @ tested @ self.axes_of

    def specimen_stiffness(self, s: Array | Complex) -> Complex:
        """Return the dynamic stiffness of the specimens, ``(n, n_axes)`` N/m, at the structure's ``s`` (rad/s)."""
        return np.stack([specimen.at(s / self.time_ratio) for specimen in self.specimens], axis=-1)

    def numerical(self, s: Array | Complex) -> Complex:
        """Return the dynamic stiffness of the numerical substructure, ``(n, n_dof, n_dof)`` N/m."""
        w = s[:, None, None]
        return np.asarray(w**2 * self.mass + w * self.damping + self.stiffness)

    @cached_property
    def scale(self) -> float:
        """Reference frequency of the structure, rad/s, which keeps determinants near one."""
        eigenvalues = np.linalg.eigvals(self.inverse @ self.whole_stiffness)
        return float(np.sqrt(np.abs(eigenvalues).max())) or 1.0

    def states(self, rig: Array | Complex) -> Complex:
        """Return the roots (rad/s) of structure and specimens for a constant response, ``(n, m)``.

        The response ``rig`` ``(n, n_axes, n_axes)`` is the identity for the intended structure. The state holds x,
        x' and the states of the specimens, which move by rig T x.
        """
        n, r = len(self.mass), self.time_ratio
        moved = rig @ self.axes_of
        stiffness = np.array([one.stiffness for one in self.specimens])
        damping = np.array([one.damping / r for one in self.specimens])
        held = self.stiffness + self.forces_of @ (stiffness[:, None] * moved)
        slowed = self.damping + self.forces_of @ (damping[:, None] * moved)
        size = 2 * n + sum(len(one.states) for one in self.specimens)
        matrix = np.zeros((len(rig), size, size), complex)
        matrix[:, :n, n : 2 * n] = np.eye(n)
        inverse: Array | Complex = self.inverse
        if any(one.mass for one in self.specimens):
            masses = np.array([one.mass / r**2 for one in self.specimens])
            inverse = np.linalg.inv(self.mass + self.forces_of @ (masses[:, None] * moved))
        matrix[:, n : 2 * n, :n] = -inverse @ held
        matrix[:, n : 2 * n, n : 2 * n] = -inverse @ slowed
        first = 2 * n
        for axis, one in enumerate(self.specimens):
            rows = slice(first, first + len(one.states))
            matrix[:, rows, :n] = r * one.displacement_to_state[:, None] * moved[:, axis, None, :]
            matrix[:, rows, n : 2 * n] = one.velocity_to_state[:, None] * moved[:, axis, None, :]
            matrix[:, rows, rows] = r * one.states
            force = np.outer(self.forces_of[:, axis], one.force_of_state)
            matrix[:, n : 2 * n, rows] = -inverse @ force
            first = rows.stop
        return np.asarray(np.linalg.eigvals(matrix), complex)


@dataclass(frozen=True, eq=False)
class ContinuousLoop(WholeStructure):
    """Computes the responses of a closed loop for small motion.

    ``compensator`` and ``actuators`` are functions of the rig's frequency (rad/s). ``dt`` is the servo period, s;
    ``transport`` is the delay of the port, s.
    """

    compensator: Response
    actuators: tuple[Response, ...]
    dt: float
    transport: float = 0.0

    sampled = False
    finest = 1e-13
    force_loops: ClassVar[tuple[ForceLoop, ...]] = ()

    @property
    def border(self) -> float:
        """Growth rate (rad/s) at which crossings are searched for, off the poles of an undamped structure."""
        return HAIR * self.scale

    @property
    def whole(self) -> WholeStructure:
        return self

    def reach(self, ratio: float) -> float:
        return ratio

    @property
    def n_axes(self) -> int:
        return len(self.actuators)

    @property
    def highest(self) -> float:
        """Angular frequency of the structure at the servo's Nyquist frequency, rad/s."""
        return float(self.time_ratio * np.pi / self.dt)

    @property
    def delay(self) -> float:
        """Low-frequency delay of the slowest axis without a compensator, s."""
        omega = np.array([SLOW * self.scale / self.time_ratio])
        return float(max(-np.angle(response(omega)[0]) / omega[0] for response in self.actuators)) + self.transport

    def rig(self, omega: Frequencies) -> Complex:
        """Return displacement over target, ``(n, n_axes, n_axes)``, at the rig's angular frequencies ``omega``."""
        actuators = np.stack([response(omega) for response in self.actuators], axis=-1)
        late = actuators * np.exp(-1j * omega * self.transport)[:, None]
        command = self.compensator(omega)
        if command.ndim == 1:
            command = command[:, None, None] * np.eye(len(self.actuators))
        return np.asarray(late[:, :, None] * command)

    def open_loop(self, s: Frequencies) -> Complex:
        """Return the specimens' force per force on the axes, ``(n, n_axes, n_axes)``. The critical point is -1."""
        tested = self.specimen_stiffness(s)[:, :, None] * self.rig(-1j * s / self.time_ratio)
        flexibility = self.axes_of @ np.linalg.solve(self.numerical(s), self.forces_of + 0.0 * s[:, None, None])
        return np.asarray(tested @ flexibility)

    def characteristic(self, s: Frequencies, gain: float = 1.0, delay: float = 0.0, ratio: float = 1.0) -> Complex:
        """Return det(M^-1 Z(s)) ``(n,)``, whose zeros are the motions of the closed loop.

        ``gain`` multiplies the specimens' forces. ``delay`` is a further delay of every axis (s). ``ratio``
        multiplies all times of the rig, which is equivalent to multiplying the structure's natural frequencies.
        """
        omega = -1j * s * ratio / self.time_ratio
        way = self.rig(omega) * (gain * np.exp(-1j * omega * delay))[:, None, None]
        tested = self.specimen_stiffness(s)[:, :, None] * way
        impedance = self.numerical(s) + self.forces_of @ tested @ self.axes_of
        scaled = self.inverse @ impedance / self.scale**2
        return np.asarray(np.linalg.det(scaled), complex)
