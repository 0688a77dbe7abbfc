# SPDX-License-Identifier: Apache-2.0
"""A rigid coupler whose kernel takes and returns arrays."""

from __future__ import annotations

import numpy as np

from rths_nodes.core.samples import Motion
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
