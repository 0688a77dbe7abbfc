# SPDX-License-Identifier: Apache-2.0
"""Setup whose axes move by fixed linear combinations of the degrees of freedom."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from rths_nodes.core.arithmetic import matvec, times
from rths_nodes.core.control import SetupKernel, SetupOfKernel
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.kernels import Function
from rths_nodes.core.parameters import flag, matrix, params
from rths_nodes.core.samples import Array

FEW = 64
"""Largest number of matrix elements for which floats are faster than arrays."""
T = TypeVar("T")
Triple = tuple[float, float, float]


def is_small(params: Matrix.Params) -> bool:
    return len(params.matrix) * len(params.matrix[0]) <= FEW


def constants(params: Matrix.Params, n_dof: int, n_axes: int) -> tuple[object, object]:
    """Return ``matrix`` and its transpose. Raises ConfigError for a wrong size or linearly dependent axes."""
    matrix = np.array(params.matrix)
    if matrix.shape != (n_axes, n_dof):
        rows, columns = matrix.shape
        raise ConfigError(
            f"setup.matrix: must be {n_axes} x {n_dof} (axes x degrees of freedom), but is {rows} x {columns}"
        )
    if np.linalg.matrix_rank(matrix) < n_axes:
        raise ConfigError(
            "setup.matrix: the rows must be linearly independent, because each axis must be able to move "
            "separately"
        )
    if is_small(params):
        return tuple(params.matrix), tuple(zip(*params.matrix, strict=True))
    return matrix, matrix.T.copy()


def mapped(product: Callable[..., T]) -> tuple[Function, Function]:
    def axes(k: tuple[object, object], x: T, v: T, a: T) -> tuple[T, T, T]:
        to_axes, _ = k
        return product(to_axes, x), product(to_axes, v), product(to_axes, a)

    def forces(k: tuple[object, object], axis_forces: T, displacement: T) -> T:
        _, back = k
        return product(back, axis_forces)

    return axes, forces


def axis_of_three(
    k: tuple[tuple[Triple], object], x: Triple, v: Triple, a: Triple
) -> tuple[tuple[float], tuple[float], tuple[float]]:
    """Motion of one axis that combines three degrees of freedom."""
    ((p, q, r),), _ = k
    d, e, f = x
    g, h, i = v
    j, m, n = a
    return (p * d + q * e + r * f,), (p * g + q * h + r * i,), (p * j + q * m + r * n,)


class Matrix(SetupOfKernel):
    """Each axis moves by a fixed linear combination of the degrees of freedom.

    With the ``matrix`` T, degrees of freedom x move the axes by T x. Axis forces f act on x as T^T f (equal
    virtual work). ``[[1, 0, 0]]`` is an actuator on the first of three floors. ``[[-1, 1, 0]]`` is an actuator
    between the first two.
    """

    @params
    class Params:
        matrix: tuple[tuple[float, ...], ...] = matrix(
            "matrix T, with one row per axis and one column per degree of freedom", "m/m"
        )
        coupled: bool = flag(
            "stop axes together if they share a degree of freedom; false for axes with separate specimens, "
            "such as dampers in several stories",
            True,
        )

        def stop_groups(self, n_moved: int, n_axes: int) -> tuple[int, ...]:
            """Return the stop group of each axis; axes that share degrees of freedom have the same group."""
            groups = list(range(n_axes))
            for column in zip(*self.matrix, strict=False) if self.coupled else ():
                joined = {groups[axis] for axis, share in enumerate(column[:n_moved]) if share}
                groups = [min(joined) if group in joined else group for group in groups]
            return tuple(groups)

    def __init__(self, params: Params, n_dof: int, n_axes: int) -> None:
        super().__init__(params, n_dof, n_axes)
        self._on_arrays = not is_small(params)
        self._matrix = np.array(params.matrix)
        self._inverse = np.linalg.pinv(self._matrix)

    @classmethod
    def kernel_of(cls, params: Params) -> SetupKernel:
        axes, forces = mapped(times if is_small(params) else matvec)
        if len(params.matrix) == 1 and len(params.matrix[0]) == 3:
            axes = axis_of_three
        return SetupKernel(constants, axes, forces)

    def histories(self, displacement: Array) -> Array:
        displacements: Array = displacement @ self._matrix.T
        return displacements

    def degrees_of_freedom(self, displacement: Array) -> Array:
        return self._inverse @ displacement
