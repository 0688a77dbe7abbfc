# SPDX-License-Identifier: Apache-2.0
"""Setups: convert between degrees of freedom of the numerical substructure and actuator axes (virtual work).

The axes equal the degrees of freedom, are linear combinations of them, or move a rigid coupler. Two other setups
wrap a setup: one for a scaled specimen, and one for an inclined load actuator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.arithmetic import Numbers, first, mapped, matvec, raised, scaled, times
from rths_nodes.core.control import Setup, SetupKernel, SetupOfKernel, functions_of
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.kernels import Function
from rths_nodes.core.parameters import OfParams, TestContext, component, flag, integer, matrix, number, params
from rths_nodes.core.samples import Array
from rths_nodes.mechanics.axial_load import horizontal_share
from rths_nodes.mechanics.coupler import Coupler, Geometry, kernel_of

TABLE = {
    "identity": ":Identity",
    "matrix": ":Matrix",
    "rigid_coupler": ":RigidCoupler",
    "upright_load": ":UprightLoad",
}
FEW = 64
"""Largest number of matrix elements for which floats are faster than arrays."""
T = TypeVar("T")
Triple = tuple[float, float, float]
Motions = tuple[Numbers, Numbers, Numbers]


def equal_numbers(params: object, n_dof: int, n_axes: int) -> tuple[()]:
    if n_dof != n_axes:
        raise ConfigError(
            f"setup identity: the number of axes is {n_axes}, but must be {n_dof}, one per degree of freedom"
        )
    return ()


def unchanged(k: tuple[()], x: T, v: T, a: T) -> tuple[T, T, T]:
    return x, v, a


def unchanged_forces(k: tuple[()], axis_forces: T, displacement: T) -> T:
    return axis_forces


class Identity(SetupOfKernel):
    """Each axis moves with the degree of freedom of the same number."""

    @params
    class Params:
        def stop_groups(self, n_moved: int, n_axes: int) -> tuple[int, ...]:
            return tuple(range(n_axes))

    KERNEL = SetupKernel(equal_numbers, unchanged, unchanged_forces)

    def histories(self, displacement: Array) -> Array:
        return displacement

    def degrees_of_freedom(self, displacement: Array) -> Array:
        return displacement


def is_small(params: Matrix.Params) -> bool:
    return len(params.matrix) * len(params.matrix[0]) <= FEW


def matrices(params: Matrix.Params, n_dof: int, n_axes: int) -> tuple[object, object]:
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


def multiplied(product: Callable[..., T]) -> tuple[Function, Function]:
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
    """Return the motion of one axis that combines three degrees of freedom."""
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
            """Return a stop group per axis: one group for all ``coupled`` axes with shared degrees of freedom."""
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
        axes, forces = multiplied(times if is_small(params) else matvec)
        if len(params.matrix) == 1 and len(params.matrix[0]) == 3:
            axes = axis_of_three
        return SetupKernel(matrices, axes, forces)

    def histories(self, displacement: Array) -> Array:
        displacements: Array = displacement @ self._matrix.T
        return displacements

    def degrees_of_freedom(self, displacement: Array) -> Array:
        return self._inverse @ displacement


# Rigid coupler

Posed = tuple[object, tuple[Sequence[tuple[int, float]], ...], tuple[Numbers, ...]]
"""Constants of the coupler, indices and nonzero elements of each row of ``pose``, and the transposed ``pose``."""


def weighted(row: Sequence[tuple[int, float]], values: Numbers) -> float:
    """Return the weighted sum of ``values``. ``row`` lists their indices and weights."""
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
    counter-clockwise, moments in N m). If the matrix P = ``pose`` is set, the structure has other degrees of
    freedom x. The coupler's pose is then P x, and axis forces f act on x as P^T J^T f with the Jacobian J (equal
    virtual work). Beyond the largest rotation or the shortest length, or if the actuators jam, all results are
    NaN, which trips the rig. The kinematics are in :mod:`rths_nodes.mechanics.coupler`.
    """

    @params
    class Params(Geometry):
        pose: tuple[tuple[float, ...], ...] | None = matrix(
            "motion of the coupler per degree of freedom of the structure, with rows for x, (y) and theta "
            "and a column for each degree of freedom; default: the identity matrix",
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
            return SetupKernel(coupler_constants, inner_axes, inner_forces)
        return SetupKernel(coupler_constants, *posed(inner_axes, inner_forces))

    def degrees_of_freedom(self, displacement: Array) -> Array:
        """Return the degrees of freedom by Newton's method, or NaN if no solution is within the limits."""
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
                f"setup.pose: the number of columns is {len(params.pose[0])}, but must be {n_dof}, one for "
                "each degree of freedom"
            )
        if np.linalg.matrix_rank(np.array(params.pose)) < size:
            raise ConfigError("setup.pose: the rows must be linearly independent")
    return coupler


def coupler_constants(params: RigidCoupler.Params, n_dof: int, n_axes: int) -> object:
    """Return the coupler's constants, as :data:`Posed` if ``pose`` is set."""
    rows_of_axes = coupler_of(params, n_dof, n_axes).constants
    if params.pose is None:
        return rows_of_axes
    rows = [[(column, share) for column, share in enumerate(row) if share] for row in params.pose]
    longest = max(map(len, rows))
    pose = tuple([(*row, *[(0, 0.0)] * (longest - len(row))) for row in rows])
    return rows_of_axes, pose, tuple(zip(*params.pose, strict=True))


# Scaled specimens

Scaled = tuple[object, Numbers, Numbers]
"""Constants of the inner setup, length ratios (specimen / structure), and force ratios (structure / specimen)."""


def to_scale(inner_axes: Function, inner_forces: Callable[..., Numbers]) -> tuple[Function, Function]:
    def axes(k: Scaled, x: Numbers, v: Numbers, a: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        scales, per_length, _ = k
        x, v, a = inner_axes(scales, x, v, a)
        return scaled(x, per_length), scaled(v, per_length), scaled(a, per_length)

    def forces(k: Scaled, axis_forces: Numbers, displacement: Numbers) -> Numbers:
        scales, _, force = k
        return inner_forces(scales, scaled(axis_forces, first(axis_forces, force)), displacement)

    return axes, forces


class ScaledSetup(SetupOfKernel):
    """Converts between a structure and a scaled specimen. ``setup`` has the scale of the structure.

    Axes, measurements and limits have the scale of the specimen. ``length`` ``(n_axes,)`` and ``force`` are ratios
    of structure to specimen. The last entries of ``force`` are for the force axes.
    """

    def __init__(self, setup: Setup, length: Sequence[float], force: Sequence[float]) -> None:
        self._setup, self._length, self.takes_loads = setup, np.array(length), setup.takes_loads
        axes, forces, constants = functions_of(setup)
        self._axes, self._forces = to_scale(axes, forces)
        self._constants = constants, tuple(1.0 / factor for factor in length), tuple(force)

    def degrees_of_freedom(self, displacement: Array) -> Array:
        return self._setup.degrees_of_freedom(displacement * self._length)


# Load actuator that inclines

Upright = tuple[object, float, int, int]
"""Constants of the inner setup, and the results of :func:`places`."""


def upright(inner_axes: Callable[..., Motions], inner_forces: Callable[..., Numbers]) -> tuple[Function, Function]:
    def axes(k: Upright, x: Numbers, v: Numbers, a: Numbers) -> Motions:
        coupler, _, _, _ = k
        return inner_axes(coupler, x, v, a)

    def forces(k: Upright, axis_forces: Numbers, displacement: Numbers) -> Numbers:
        """Return the forces, corrected for the load actuator's lateral force on the axis that moves the head."""
        coupler, length, by, load = k
        pose, _, _ = inner_axes(coupler, displacement, displacement, displacement)
        moved = first(pose, axis_forces)
        if load < len(axis_forces):  # without load axes (model of the specimen alone) there is no correction
            moved = raised(moved, by, axis_forces[load] * horizontal_share(pose[by], length))
        return inner_forces(coupler, moved, displacement)

    return axes, forces


class UprightLoad(SetupOfKernel):
    """Setup that corrects the forces of another ``setup`` for an inclined load actuator.

    If the column head drifts by u, a load actuator above it inclines by b, with sin b = u / sqrt(L^2 + u^2) for
    the length L from pin to pin. Its force P pushes the head sideways with P sin b. The load cell of the actuator
    that moves the head measures F = R - P sin b. Therefore R = F + P sin b is the restoring force of the specimen,
    including the P-Delta effect of an upright load. The small change e of L under the load is neglected; its
    relative effect on the correction is e / L, 2.5e-4 for 0.5 mm on 2 m.
    """

    takes_loads = True

    @params
    class Params:
        actuator_length: float = number(
            "length of the load actuator from pin to pin", "m", more_than=0.0, at_most=100.0
        )
        force_axis: int = integer(
            "number (from 1) of the load actuator among the axes controlled by force", "", 1, at_least=1
        )
        inclined_by: int = integer(
            "number (from 1) of the displacement axis that inclines the load actuator", "", 1, at_least=1
        )
        setup: OfParams = component(
            "setup", "setup that converts between degrees of freedom and displacement axes", {"type": "identity"}
        )

        def fits(self, test: TestContext) -> None:
            loads = len(test.force_axes)
            for key, most, phrase in (
                ("force_axis", loads, "axes controlled by force"),
                ("inclined_by", len(test.axes) - loads, "displacement axes"),
            ):
                if getattr(self, key) > most:
                    raise ConfigError(f"{key} = {getattr(self, key)}: must be <= {most}, the number of {phrase}")

        def stop_groups(self, n_moved: int, n_axes: int) -> tuple[int, ...]:
            groups = list(self.setup.stop_groups(n_moved, n_axes))
            load = n_moved + self.force_axis - 1
            groups[load] = groups[self.inclined_by - 1]
            return tuple(groups)

    def __init__(self, params: Params, n_dof: int, n_axes: int) -> None:
        self._inner: Setup = registry.build("setup", params.setup, n_dof, n_axes)
        if self._inner.takes_loads:
            raise ConfigError(
                "setup.setup.type = 'upright_load': must be another type, because setup already corrects the load"
            )
        axes, forces, constants = functions_of(self._inner)
        self._axes, self._forces = upright(axes, forces)
        self._constants = constants, *places(params, n_axes)

    def degrees_of_freedom(self, displacement: Array) -> Array:
        return self._inner.degrees_of_freedom(displacement)


def places(params: UprightLoad.Params, n_axes: int) -> tuple[float, int, int]:
    """Return the length (m) of the load actuator, and the indices of the inclining axis and the load axis.

    Raises ConfigError if ``inclined_by`` exceeds the number of displacement axes.
    """
    if params.inclined_by > n_axes:
        raise ConfigError(
            f"setup.inclined_by = {params.inclined_by}: must be <= {n_axes}, the number of displacement axes"
        )
    return params.actuator_length, params.inclined_by - 1, n_axes + params.force_axis - 1
