"""A setup in front of specimens to scale: lengths and forces of the structure against those of the axes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rths_nodes.core.protocols import Setup
from rths_nodes.core.samples import Array, Motion


class ScaledSetup:
    """``setup`` in the lengths and forces of the structure; axes, measurements and limits in the specimen's.

    ``length`` and ``force`` (n_axes,): one of the specimen stands for so many in the structure.
    """

    def __init__(self, setup: Setup, length: Sequence[float], force: Sequence[float]) -> None:
        self._setup = setup
        self._length, self._force = np.array(length), np.array(force)

    def axes(self, motion: Motion) -> Motion:
        """The motion of the axes, m of the specimen."""
        full, scale = self._setup.axes(motion), self._length
        return Motion(full.displacement / scale, full.velocity / scale, full.acceleration / scale)

    def forces(self, axis_forces: Array, displacement: Array) -> Array:
        """Forces ``(n_dof,)`` N of the structure of those that were measured, ``(n_axes,)`` N."""
        return self._setup.forces(axis_forces * self._force, displacement)

    def degrees_of_freedom(self, displacement: Array) -> Array:
        """The smallest motion ``(n_dof,)`` m that brings the axes to ``displacement`` ``(n_axes,)`` m."""
        return self._setup.degrees_of_freedom(displacement * self._length)
