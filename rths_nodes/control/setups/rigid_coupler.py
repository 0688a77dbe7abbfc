# SPDX-License-Identifier: Apache-2.0
"""Actuators that translate and rotate one rigid coupler (loading beam, platform) in a plane.

The kinematics are in :mod:`rths_nodes.mechanics.coupler`. With the matrix P = ``pose``, the coupler's pose for the
structure's degrees of freedom x is P x. Axis forces f act on x as P^T J^T f with the Jacobian J (equal virtual
work).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rths_nodes.core.arithmetic import Numbers, mapped, times
from rths_nodes.core.control import SetupKernel, SetupOfKernel
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.kernels import Function
from rths_nodes.core.parameters import matrix, params
from rths_nodes.core.samples import Array
from rths_nodes.mechanics.coupler import Coupler, Geometry, kernel_of

Motions = tuple[Numbers, Numbers, Numbers]
Posed = tuple[object, tuple[Sequence[tuple[int, float]], ...], tuple[Numbers, ...]]
"""Constants of the coupler, indices and nonzero elements of each row of ``pose``, and the transposed matrix."""


def weighted(row: Sequence[tuple[int, float]], values: Numbers) -> float:
    """Weighted sum of ``values``; ``row`` lists their indices and weights."""
    total = 0.0
    for column, share in row:
        total += share * values[column]
    return total


def posed(inner_axes: Callable[..., Motions], inner_forces: Callable[..., Numbers]) -> tuple[Function, Function]:
    def axes(k: Posed, x: Numbers, v: Numbers, a: Numbers) -> Motions:
        coupler, pose, _ = k
        return inner_axes(coupler, mapped(weighted, pose, x), mapped(weighted, pose, v), mapped(weighted, pose, a))

    def forces(k: Posed, axis_forces: Numbers, displacement: Numbers) -> Numbers:
        coupler, pose, back = k
        return times(back, inner_forces(coupler, axis_forces, mapped(weighted, pose, displacement)))

    return axes, forces


class RigidCoupler(SetupOfKernel):
    """Actuators on one rigid coupler in a plane: two move x and theta (y is guided), three move x, y and theta.

    Degrees of freedom are the translation of the reference point (m, forces in N) and the rotation (rad,
    counter-clockwise, moments in N m). If ``pose`` is set, the structure's degrees of freedom replace them. Beyond
    the largest rotation or the shortest length, or if the actuators jam, all results are NaN, which trips the rig.
    """

    @params
    class Params(Geometry):
        pose: tuple[tuple[float, ...], ...] | None = matrix(
            "motion of the coupler per degree of freedom of the structure, with a row each for x, (y) and "
            "theta and a column for each degree of freedom; default: the identity matrix",
            "m/m",
            None,
        )

    def __init__(self, params: Params, n_dof: int, n_axes: int) -> None:
        super().__init__(params, n_dof, n_axes)
        self._coupler = coupler_of(params, n_dof, n_axes)
        self._inverse = None if params.pose is None else np.linalg.pinv(np.array(params.pose))

    @classmethod
    def kernel_of(cls, params: Params) -> SetupKernel:
        inner_axes, inner_forces, *_ = kernel_of(params)
        if params.pose is None:
            return SetupKernel(constants, inner_axes, inner_forces)
        return SetupKernel(constants, *posed(inner_axes, inner_forces))

    def degrees_of_freedom(self, displacement: Array) -> Array:
        """Return the degrees of freedom by Newton's method; NaN if no solution is within the limits."""
        pose = self._coupler.degrees_of_freedom(displacement)
        return pose if self._inverse is None else self._inverse @ pose

    def poses(self, displacement: Array) -> Array:
        poses = self._coupler.poses(displacement)
        return poses if self._inverse is None else (self._inverse @ poses.T).T


def coupler_of(params: RigidCoupler.Params, n_dof: int, n_axes: int) -> Coupler:
    size = n_dof if params.pose is None else len(params.pose)
    if size not in (2, 3) or n_axes != size:
        raise ConfigError(
            f"setup rigid_coupler: {n_axes} axes for {size} degrees of freedom; both numbers must be 2 (x, "
            "theta) or 3 (x, y, theta). For a structure with more degrees of freedom, set setup.pose"
        )
    coupler = Coupler(params, size, n_axes, "setup")
    if params.pose is not None:
        if len(params.pose[0]) != n_dof:
            raise ConfigError(
                f"setup.pose: the number of columns is {len(params.pose[0])}; must be {n_dof}, one for each "
                "degree of freedom"
            )
        if np.linalg.matrix_rank(np.array(params.pose)) < size:
            raise ConfigError("setup.pose: the rows must be linearly independent")
    return coupler


def constants(params: RigidCoupler.Params, n_dof: int, n_axes: int) -> object:
    """Return the coupler's constants; if ``pose`` is set, return them as :data:`Posed`."""
    rows_of_axes = coupler_of(params, n_dof, n_axes).constants
    if params.pose is None:
        return rows_of_axes
    rows = [[(column, share) for column, share in enumerate(row) if share] for row in params.pose]
    longest = max(map(len, rows))
    pose = tuple([(*row, *[(0, 0.0)] * (longest - len(row))) for row in rows])
    return rows_of_axes, pose, tuple(zip(*params.pose, strict=True))
