# SPDX-License-Identifier: Apache-2.0
"""The structure with its specimens at their place, at small motion: with a rig without error."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from rths_nodes.core.frequency_response import Complex
from rths_nodes.core.samples import Array
from rths_nodes.mechanics.small_specimen import SmallSpecimen


@dataclass(frozen=True, eq=False)
class WholeStructure:
    """Both substructures at small motion.

    ``mass``, ``damping``, ``stiffness``: numerical substructure, ``(n_dof, n_dof)``; ``axes_of`` T ``(n_axes,
    n_dof)``; ``forces_of`` T' ``(n_dof, n_axes)``. On a slower time axis the specimens move ``time_ratio`` times
    slower.
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
        """Stiffness with the specimens at their place, ``(n_dof, n_dof)`` N/m, memory excluded."""
        tested = np.diag([specimen.stiffness for specimen in self.specimens])
        return self.stiffness + self.forces_of @ tested @ self.axes_of

    def specimen_stiffness(self, s: Array | Complex) -> Complex:
        """Return the dynamic stiffness of the specimens at the structure's frequencies, ``(n, n_axes)`` N/m."""
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
        """Return motions (rad/s) of the structure and specimens for a constant ``rig``, ``(n, m)``.

        ``rig`` ``(n, n_axes, n_axes)``: the identity for the intended structure.
        """
        return np.asarray(np.linalg.eigvals(self._state_matrix(rig)), complex)

    def _state_matrix(self, rig: Array | Complex) -> Complex:
        """Return the state matrix of [x, x', inner states of the specimens], with d = rig T x."""
        n, r = len(self.mass), self.time_ratio
        moved = rig @ self.axes_of
        stiffness = np.array([one.stiffness for one in self.specimens])
        damping = np.array([one.damping / r for one in self.specimens])
        held = self.stiffness + self.forces_of @ (stiffness[:, None] * moved)
        slowed = self.damping + self.forces_of @ (damping[:, None] * moved)
        size = 2 * n + sum(len(one.states) for one in self.specimens)
        matrix = np.zeros((len(rig), size, size), complex)
        matrix[:, :n, n : 2 * n] = np.eye(n)
        inverse = self._inverse_with_masses(moved)
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
        return matrix

    def _inverse_with_masses(self, moved: Array | Complex) -> Array | Complex:
        """Invert the mass including the specimens', which are ``moved`` ``(n, n_axes, n_dof)`` per motion."""
        masses = np.array([one.mass / self.time_ratio**2 for one in self.specimens])
        if not masses.any():
            return self.inverse
        return np.linalg.inv(self.mass + self.forces_of @ (masses[:, None] * moved))
