# SPDX-License-Identifier: Apache-2.0
"""Actuators that move one rigid coupler (loading beam, platform) by translation and rotation in a plane.

Actuator a is hinged at the anchor p_a on the reaction wall and at the attachment on the coupler, whose arm from
the reference point q_0 is r_a. With the translation q = (x, y) of that point, the rotation theta
(counter-clockwise), R(theta) its matrix and S = [[0, -1], [1, 0]]:

    arm            s_a = R r_a,  s_a' = theta' S s_a,  s_a'' = theta'' S s_a - theta'^2 s_a
    link           l_a = q_0 + q + s_a - p_a,  L_a = |l_a|,  u_a = l_a / L_a
    axis           d_a   = L_a - L_a(0)                                    positive when the actuator extends
                   d_a'  = u_a . w = J_a (x', y', theta'),  w = q' + s_a'
                   d_a'' = u_a . (q'' + s_a'') + (w . w - d_a'^2) / L_a    = J x'' + J' x'
    forces         (f_x, f_y, m) = sum_a f_a (u_a, u_a . S s_a) = J' f     the same virtual work in every pose

This is the inverse kinematics of a planar parallel manipulator with legs of variable length (Merlet, Parallel
Robots, 2nd ed. 2006), the loading unit of multi-axis hybrid tests. ``linear`` keeps J of the pose at rest:
d = J x, forces J' f. It leaves out (w . w - (u . w)^2) / 2 L - theta^2 u . r / 2, of second order, with
w = q + theta S r. ``long`` is exact for actuators so long that they keep their directions: u_a as at rest,
d_a = u_a . (q + s_a - r_a).
"""

from __future__ import annotations

import math
from functools import reduce

import numpy as np

from rths_nodes.core.errors import ConfigError, show
from rths_nodes.core.parameters import matrix, number, params, text, vector
from rths_nodes.core.samples import Array
from rths_nodes.mechanics.coupler_kernels import (
    CLOSED,
    ITERATIONS,
    SINGULAR,
    THREE,
    TWO,
    Constants,
    CouplerKernel,
    Shape,
    exact,
    first_pose,
    linear,
    link,
)


@params
class Geometry:
    """Points (x, y) in the plane of the coupler, in the pose at rest."""

    anchors: tuple[tuple[float, ...], ...] = matrix("pins on the reaction wall, one row x, y per axis", "m")
    attachments: tuple[tuple[float, ...], ...] = matrix("pins on the coupler, one row x, y per axis", "m")
    reference: tuple[float, ...] = vector(
        "point of the coupler whose translation is a degree of freedom", "m", (0.0, 0.0)
    )
    kinematics: str = text(
        "exact; long: exact for actuators so long that they keep their directions; linear: that of small motions",
        "exact",
        choices=("exact", "long", "linear"),
    )
    largest_rotation: float = number("magnitude of the rotation", "rad", 0.2, more_than=0.0, at_most=1.5)
    shortest_length: float = number(
        "length of each actuator, pin to pin with its piston in", "m", 0.1, more_than=0.0, at_most=100.0
    )

    def validate(self, path: str) -> None:
        for name in ("anchors", "attachments"):
            rows = getattr(self, name)
            if len(rows[0]) != 2:
                raise ConfigError(f"{path}.{name}: rows of {len(rows[0])} numbers; must be 2, x and y in m")
        if len(self.reference) != 2:
            raise ConfigError(f"{path}.reference = {show(self.reference)}: must be 2 numbers, x and y in m")
        if len(self.anchors) != len(self.attachments):
            raise ConfigError(
                f"{path}.anchors: {len(self.anchors)} rows; must be {len(self.attachments)}, "
                f"as many as {path}.attachments"
            )


def shape_of(params: Geometry) -> Shape:
    return THREE if len(params.anchors) == 3 else TWO


def kernel_of(params: Geometry) -> CouplerKernel:
    return linear(shape_of(params)) if params.kinematics == "linear" else exact(shape_of(params))


class Coupler:
    """Actuators on one rigid coupler in a plane: two move x and theta (y is guided), three move x, y and theta.

    The degrees of freedom are the translation of the reference point (m) and the rotation (rad,
    counter-clockwise), their forces N and N m. Beyond the reach - the largest rotation, the shortest length, a
    pose in which the actuators jam - all results are nan, which trips the rig.
    """

    def __init__(self, params: Geometry, n_dof: int, n_axes: int, path: str) -> None:
        """Raises ConfigError, with the ``path`` of the parameters, for actuators that cannot move the coupler."""
        if len(params.anchors) != n_axes:
            raise ConfigError(f"{path}.anchors: {len(params.anchors)} rows; must be {n_axes}, one for each axis")
        if n_axes not in (2, 3):
            raise ConfigError(
                f"{path}.anchors: {n_axes} rows; must be 2 or 3: that many move a coupler in a plane"
            )
        shape = self._shape = shape_of(params)
        self.kernel = kernel_of(params)
        anchors, attachments = np.array(params.anchors), np.array(params.attachments)
        arms = attachments - params.reference
        lengths = np.hypot(*(attachments - anchors).T)
        for axis, length in enumerate(lengths.tolist()):
            if length < params.shortest_length:
                raise ConfigError(
                    f"{path}.anchors[{axis}]: its actuator is {length:g} m long at rest: must be >= "
                    f"{path}.shortest_length = {params.shortest_length:g} m"
                )
        directions = (attachments - anchors) / lengths[:, None]
        # anchor as seen from the reference point at rest
        ends = (tuple(map(tuple, part.tolist())) for part in (anchors - params.reference, arms, directions))
        axes = tuple(zip(*ends, lengths.tolist(), strict=True))
        place = 0.0, 0.0, 1.0, 0.0, params.kinematics == "long"
        links = [link(axis, place) for axis in axes]
        scale = float(np.hypot(*arms.T).max()) or 1.0
        determinant = shape.determinant(tuple([shape.row(each, scale) for each in links]))
        if not abs(determinant) > SINGULAR:
            raise ConfigError(
                f"{path}.attachments: the actuators jam, a motion of the coupler is left undriven: the "
                "lines of action of two must not cut the y axis through the reference point at one height, those "
                "of three must not be parallel or go through one point"
            )
        rows = np.array([shape.row(each, 1.0) for each in links])
        self.constants = Constants(
            axes,
            params.kinematics == "long",
            params.largest_rotation,
            params.shortest_length,
            scale,
            math.copysign(1.0, determinant),
            CLOSED * float(lengths.max()),
            *(tuple(map(tuple, part.tolist())) for part in (rows, np.linalg.inv(rows), rows.T)),
        )

    def degrees_of_freedom(self, displacement: Array) -> Array:
        """Return the pose ``(n_dof,)`` for the axes' ``displacement`` ``(n_axes,)`` m; nan beyond the reach.

        By Newton's method from the linear solution.
        """
        gone, k = tuple(displacement.tolist()), self.constants
        return np.array(self.kernel.pose(k, gone, first_pose(k, gone)))

    @np.errstate(invalid="ignore", divide="ignore")
    def poses(self, displacement: Array) -> Array:
        """Return the poses ``(n, n_dof)`` for many displacements ``(n, n_axes)`` m, as :meth:`degrees_of_freedom`.

        For actuators of constant direction, Newton's method solves all at once, within its tolerance.
        """
        k = self.constants
        if not k.long:
            return np.array([self.degrees_of_freedom(row) for row in displacement])
        determinant, axes = self._shape.determinant, list(displacement.T)
        poses: Array = np.array(k.inverse) @ displacement.T
        left = np.arange(len(displacement))
        for _ in range(ITERATIONS):
            x, y, theta = self._shape.split(poses[:, left])
            place = x, y, np.cos(theta), np.sin(theta), True
            held = [link(axis, place) for axis in k.axes]
            lengths = [each[2] for each in held]
            rows = [self._shape.row(each, 1.0) for each in held]
            size = determinant(tuple(rows))
            within = (k.shortest <= reduce(np.minimum, lengths)) & (np.abs(theta) <= k.largest_rotation)
            within &= k.sign * size > SINGULAR * k.scale  # of rotations in arcs, as SINGULAR is
            poses[:, left[~within]] = math.nan
            errors = [d[left] - (length - axis[3]) for d, length, axis in zip(axes, lengths, k.axes, strict=True)]
            going = within & ~(reduce(np.maximum, map(np.abs, errors)) <= k.close)
            left = left[going]
            if not len(left):
                return poses.T
            for column, pose in enumerate(poses):  # by Cramer's rule
                changed = [(*row[:column], d, *row[column + 1 :]) for row, d in zip(rows, errors, strict=True)]
                pose[left] += np.divide(determinant(tuple(changed)), size)[going]
        poses[:, left] = math.nan
        return poses.T
