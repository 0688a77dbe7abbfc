"""The setup whose axes move by fixed linear combinations of the degrees of freedom."""

from __future__ import annotations

import numpy as np

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import flag, matrix, params
from rths_nodes.core.samples import Array, Motion


class Matrix:
    """The axes move with d = T x, their forces act on the degrees of freedom as T' f: the same virtual work.

    A row for each axis, a column for each degree of freedom: ``[[1, 0, 0]]`` is an actuator on the first of
    three floors, ``[[-1, 1, 0]]`` one between the first and the second.
    """

    @params
    class Params:
        matrix: tuple[tuple[float, ...], ...] = matrix(
            "T, one row per axis, one column per degree of freedom", "m/m"
        )
        coupled: bool = flag(
            "axes that share a degree of freedom move one specimen, and stop together; false: each axis has a "
            "specimen of its own, as dampers of several stories",
            True,
        )

        def stop_groups(self, n_moved: int, n_axes: int) -> tuple[int, ...]:
            """Axes whose rows share a degree of freedom, directly or by others between them, are one group."""
            groups = list(range(n_axes))
            for column in zip(*self.matrix, strict=False) if self.coupled else ():
                joined = {groups[axis] for axis, share in enumerate(column[:n_moved]) if share}
                groups = [min(joined) if group in joined else group for group in groups]
            return tuple(groups)

    def __init__(self, params: Params, n_dof: int, n_axes: int) -> None:
        self._matrix = np.array(params.matrix)
        if self._matrix.shape != (n_axes, n_dof):
            rows, columns = self._matrix.shape
            raise ConfigError(
                f"setup.matrix: {rows} rows of {columns} numbers; must be {n_axes} rows (axes) of {n_dof} "
                "(degrees of freedom)"
            )
        if np.linalg.matrix_rank(self._matrix) < n_axes:
            raise ConfigError("setup.matrix: its rows depend on each other: the axes cannot move on their own")
        self._transposed = self._matrix.T.copy()
        self._inverse = np.linalg.pinv(self._matrix)

    def axes(self, motion: Motion) -> Motion:
        of = self._matrix.dot  # with so few numbers several times faster than @
        return Motion(of(motion.displacement), of(motion.velocity), of(motion.acceleration))

    def forces(self, axis_forces: Array, displacement: Array) -> Array:
        found: Array = self._transposed.dot(axis_forces)
        return found

    def histories(self, displacement: Array) -> Array:
        """Displacements of the axes ``(steps, n_axes)`` at those of the degrees of freedom ``(steps, n_dof)``."""
        found: Array = displacement @ self._matrix.T
        return found

    def degrees_of_freedom(self, displacement: Array) -> Array:
        return self._inverse @ displacement
