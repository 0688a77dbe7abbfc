# SPDX-License-Identifier: Apache-2.0
"""Actuators that move one rigid coupler (loading beam, platform) by translation and rotation in a plane.

Actuator a connects a hinge on the reaction wall, at the anchor p_a, with a hinge on the coupler, at the arm r_a
from the reference point q_0. q = (x, y) is the translation of the reference point, theta is the rotation
(counter-clockwise) with the matrix R, and S = [[0, -1], [1, 0]]. Primes are time derivatives:

    arm            s_a = R r_a,  s_a' = theta' S s_a,  s_a'' = theta'' S s_a - theta'^2 s_a
    link           l_a = q_0 + q + s_a - p_a,  L_a = |l_a|,  u_a = l_a / L_a
    axis           d_a   = L_a - L_a(0)                                    positive when the actuator extends
                   d_a'  = u_a . w = J_a (x', y', theta'),  w = q' + s_a'
                   d_a'' = u_a . (q'' + s_a'') + (w . w - d_a'^2) / L_a
    forces         (f_x, f_y, m) = sum_a f_a (u_a, u_a . S s_a) = J^T f    the same virtual work in every pose

This is the inverse kinematics of a planar parallel manipulator (Merlet, Parallel Robots, 2nd ed. 2006). ``linear``
keeps J of the pose at rest and neglects second-order terms. ``long`` keeps the directions u_a at rest, which is
exact for long actuators: d_a = u_a . (q + s_a - r_a). A pose is (x, theta) for two actuators and (x, y, theta) for
three.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import NamedTuple

import numpy as np

from rths_nodes.core.arithmetic import INF, NAN, Numbers, all_nan, along, cos, hypot, mapped, sin, times
from rths_nodes.core.errors import ConfigError, show
from rths_nodes.core.kernels import Function
from rths_nodes.core.parameters import matrix, number, params, text, vector
from rths_nodes.core.samples import Array

Rows = tuple[Numbers, ...]

SINGULAR = 1e-3
"""Magnitude of the Jacobian determinant (rotations times the longest arm) below which the actuators jam."""
ITERATIONS = 20
"""Largest number of iterations of Newton's method. Within the limits, four to six suffice."""
CLOSED = 1e-13
"""Tolerance of Newton's method for an axis, relative to the length of the longest actuator."""

Axis = tuple[tuple[float, float], tuple[float, float], tuple[float, float], float]
Link = tuple[float, float, float, float, float]
"""Direction u, length from pin to pin (m) and arm s (m) of an actuator."""
Motion = tuple[Numbers, Numbers, Numbers]


class Constants(NamedTuple):
    axes: tuple[Axis, ...]
    """Anchor relative to the reference point, arm, direction and length of each actuator."""
    long: bool
    largest_rotation: float
    shortest: float
    scale: float
    """Length of the longest arm, m."""
    sign: float
    close: float
    """Tolerance of Newton's method, m."""
    rows: Rows
    inverse: Rows
    transposed: Rows


def guided(values: Numbers) -> tuple[float, float, float]:
    """Return the pose (x, theta) as x, y, theta. A guide holds y at 0."""
    return values[0], 0.0, values[1]


def planar(values: Numbers) -> tuple[float, float, float]:
    return values[0], values[1], values[2]


def guided_row(link: Link, scale: float) -> tuple[float, float]:
    """Return the row of the Jacobian for one of two actuators. Rotations are multiplied by ``scale`` (m)."""
    ux, uy, _, sx, sy = link
    return ux, (sx * uy - sy * ux) / scale


def planar_row(link: Link, scale: float) -> tuple[float, float, float]:
    ux, uy, _, sx, sy = link
    return ux, uy, (sx * uy - sy * ux) / scale


def determinant_of_two(rows: Rows) -> float:
    (a, b), (c, d) = rows
    return a * d - b * c


def determinant_of_three(rows: Rows) -> float:
    (a, b, c), (d, e, f), (g, h, i) = rows
    return a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)


def solved_two(rows: Rows, right: Numbers) -> tuple[float, float]:
    """Return x of ``rows`` x = ``right`` by Cramer's rule, or NaN if ``rows`` is singular."""
    ((a, b), (c, d)), (p, q) = rows, right
    determinant = a * d - b * c
    if determinant == 0.0:
        return NAN, NAN
    return (p * d - b * q) / determinant, (a * q - p * c) / determinant


def solved_three(rows: Rows, right: Numbers) -> tuple[float, float, float]:
    ((a, b, c), (d, e, f), (g, h, i)), (p, q, r) = rows, right
    one, two, three = e * i - f * h, f * g - d * i, d * h - e * g
    determinant = a * one + b * two + c * three
    if determinant == 0.0:
        return NAN, NAN, NAN
    return (
        (p * one + q * (c * h - b * i) + r * (b * f - c * e)) / determinant,
        (p * two + q * (a * i - c * g) + r * (c * d - a * f)) / determinant,
        (p * three + q * (b * g - a * h) + r * (a * e - b * d)) / determinant,
    )


def transposed_two(rows: Rows) -> Rows:
    (a, b), (c, d) = rows
    return (a, c), (b, d)


def transposed_three(rows: Rows) -> Rows:
    (a, b, c), (d, e, f), (g, h, i) = rows
    return (a, d, g), (b, e, h), (c, f, i)


class Shape(NamedTuple):
    """Functions that differ between two and three actuators."""

    split: Function
    row: Function
    determinant: Callable[[Rows], float]
    solved: Callable[[Rows, Numbers], Numbers]
    transposed: Callable[[Rows], Rows]


TWO = Shape(guided, guided_row, determinant_of_two, solved_two, transposed_two)
THREE = Shape(planar, planar_row, determinant_of_three, solved_three, transposed_three)


def link(axis: Axis, pose: tuple[float, float, float, float, bool]) -> Link:
    """Return the :data:`Link` of an actuator. ``pose`` has x, y, cos(theta), sin(theta) and ``long``."""
    (px, py), (rx, ry), (ux, uy), rest = axis
    x, y, cosine, sine, long = pose
    sx, sy = cosine * rx - sine * ry, sine * rx + cosine * ry
    if long:
        return ux, uy, rest + ux * (x + sx - rx) + uy * (y + sy - ry), sx, sy
    lx, ly = x + sx - px, y + sy - py
    length = hypot(lx, ly)
    if not length > 0.0:
        return NAN, NAN, length, sx, sy
    return lx / length, ly / length, length, sx, sy


def moving(link: Link, rates: tuple[float, float, float, float, float, float, bool]) -> tuple[float, float]:
    """Return velocity and acceleration of an axis; ``rates`` has x', y', theta', x'', y'', theta'', ``long``."""
    ux, uy, length, sx, sy = link
    vx, vy, spin, ax, ay, spin_rate, long = rates
    wx, wy = vx - spin * sy, vy + spin * sx
    rate = ux * wx + uy * wy
    bx, by = ax - spin_rate * sy - spin * spin * sx, ay + spin_rate * sx - spin * spin * sy
    turning = 0.0 if long else (wx * wx + wy * wy - rate * rate) / length
    return rate, ux * bx + uy * by + turning


def at(values: Numbers, index: int) -> float:
    return float(values[index])


def rest_of(axis: Axis, nothing: float) -> float:
    return float(axis[3])


class CouplerKernel(NamedTuple):
    """Functions for motion and forces of a coupler with the constants k. Motions are tuples."""

    axes: Callable[..., Motion]
    """``(k, x, v, a) -> d, d', d''``: motion of the axes from motion of the coupler."""
    forces: Callable[..., Numbers]
    """``(k, forces of the axes, pose) -> forces`` on the coupler, from equal virtual work."""
    axis_forces: Callable[..., Numbers]
    """``(k, forces, pose) -> forces of the axes`` that balance ``forces``."""
    pose: Callable[..., Numbers]
    """``(k, d, near) -> pose`` for axis displacements d. ``near`` is a nearby pose."""
    motion: Callable[..., Motion]
    """``(k, d, d', d'', near) -> x, v, a``: motion of the coupler from motion of the axes."""


def reaches(k: Constants, theta: float, lengths: Numbers) -> bool:
    """Return whether ``theta`` and the actuators' ``lengths`` are within their limits; false for NaN."""
    shortest = k[3]
    if not abs(theta) <= k[2]:
        return False
    within = True
    for length in lengths:
        within = within and shortest <= length < INF
    return within


def links_of(shape: Shape) -> tuple[Callable[..., tuple[Link, ...]], Callable[..., bool]]:
    split, row, determinant, _, _ = shape

    def links(k: Constants, pose: Numbers) -> tuple[Link, ...]:
        x, y, theta = split(pose)
        return mapped(link, k[0], (x, y, cos(theta), sin(theta), k[1]))

    def is_open(k: Constants, pose: Numbers, held: tuple[Link, ...]) -> bool:
        """Return whether ``pose``, with links ``held``, is within the limits and has a nonsingular Jacobian."""
        if not reaches(k, split(pose)[2], mapped(at, held, 2)):
            return False
        return k[5] * determinant(mapped(row, held, k[4])) > SINGULAR

    return links, is_open


def newton(shape: Shape) -> Callable[..., Numbers]:
    links, is_open = links_of(shape)
    row, solved = shape.row, shape.solved

    def pose(k: Constants, displacement: Numbers, near: Numbers) -> Numbers:
        """Return the pose at axis ``displacement`` by Newton's method from ``near``; NaN if not converged."""
        solution, close = near, k[6]
        for _ in range(ITERATIONS):
            held = links(k, solution)
            if not is_open(k, solution, held):
                break
            gone = along(mapped(at, held, 2), -1.0, mapped(rest_of, k[0], 0.0))
            left = along(displacement, -1.0, gone)
            closed = True
            for link in left:
                closed = closed and abs(link) <= close
            if closed:
                return solution
            solution = along(solution, 1.0, solved(mapped(row, held, 1.0), left))
        return all_nan(near)

    return pose


def exact(shape: Shape) -> CouplerKernel:
    split, row, _, solved, transposed = shape
    (links, is_open), pose = links_of(shape), newton(shape)

    def rates(k: Constants, held: tuple[Link, ...], v: Numbers, a: Numbers) -> tuple[tuple[float, float], ...]:
        """Return velocity and acceleration of each axis for links ``held`` and coupler motion ``v``, ``a``."""
        vx, vy, spin = split(v)
        ax, ay, spin_rate = split(a)
        return mapped(moving, held, (vx, vy, spin, ax, ay, spin_rate, k[1]))

    def axes(k: Constants, x: Numbers, v: Numbers, a: Numbers) -> Motion:
        """Return the motion of the axes from the coupler's motion ``x``, ``v``, ``a``; NaN beyond the limits."""
        held = links(k, x)
        if not is_open(k, x, held):
            none = all_nan(x)
            return none, none, none
        rates_held = rates(k, held, v, a)
        gone = along(mapped(at, held, 2), -1.0, mapped(rest_of, k[0], 0.0))
        return gone, mapped(at, rates_held, 0), mapped(at, rates_held, 1)

    def forces(k: Constants, axis_forces: Numbers, pose: Numbers) -> Numbers:
        """Return forces on the coupler with the same virtual work as ``axis_forces``; NaN beyond the limits."""
        held = links(k, pose)
        if not is_open(k, pose, held):
            return all_nan(pose)
        return times(transposed(mapped(row, held, 1.0)), axis_forces)

    def axis_forces(k: Constants, forces: Numbers, pose: Numbers) -> Numbers:
        return solved(transposed(mapped(row, links(k, pose), 1.0)), forces)

    def motion(
        k: Constants, displacement: Numbers, velocity: Numbers, acceleration: Numbers, near: Numbers
    ) -> Motion:
        """Return the motion of the coupler from the motion of the axes, by Newton's method from pose ``near``."""
        x = pose(k, displacement, near)
        held = links(k, x)
        rows = mapped(row, held, 1.0)
        v = solved(rows, velocity)
        turning = mapped(at, rates(k, held, v, along(v, -1.0, v)), 1)
        return x, v, solved(rows, along(acceleration, -1.0, turning))

    return CouplerKernel(axes, forces, axis_forces, pose, motion)


def first_pose(k: Constants, displacement: Numbers) -> Numbers:
    """Return an initial pose for Newton's method, from the Jacobian of the pose at rest."""
    return times(k[8], displacement)


def linear(shape: Shape) -> CouplerKernel:
    split, _, _, solved, _ = shape

    def open_at(k: Constants, pose: Numbers) -> bool:
        lengths = along(times(k[7], pose), 1.0, mapped(rest_of, k[0], 0.0))
        return reaches(k, split(pose)[2], lengths)

    def axes(k: Constants, x: Numbers, v: Numbers, a: Numbers) -> Motion:
        """Return the motion of the axes, computed with the Jacobian at rest; NaN beyond the limits."""
        if not open_at(k, x):
            none = all_nan(x)
            return none, none, none
        return times(k[7], x), times(k[7], v), times(k[7], a)

    def forces(k: Constants, axis_forces: Numbers, pose: Numbers) -> Numbers:
        return times(k[9], axis_forces) if open_at(k, pose) else all_nan(pose)

    def axis_forces(k: Constants, forces: Numbers, pose: Numbers) -> Numbers:
        return solved(k[9], forces)

    def pose(k: Constants, displacement: Numbers, near: Numbers) -> Numbers:
        displacement_of_pose = times(k[8], displacement)
        return displacement_of_pose if open_at(k, displacement_of_pose) else all_nan(near)

    def motion(
        k: Constants, displacement: Numbers, velocity: Numbers, acceleration: Numbers, near: Numbers
    ) -> Motion:
        x = pose(k, displacement, near)
        if not open_at(k, x):
            return x, x, x
        return x, solved(k[7], velocity), solved(k[7], acceleration)

    return CouplerKernel(axes, forces, axis_forces, pose, motion)


@params
class Geometry:
    """Geometry of a coupler and its actuators. Points (x, y) are positions in the pose at rest."""

    anchors: tuple[tuple[float, ...], ...] = matrix(
        "positions of the pins on the reaction wall, one row (x, y) per axis", "m"
    )
    attachments: tuple[tuple[float, ...], ...] = matrix(
        "positions of the pins on the coupler, one row (x, y) per axis", "m"
    )
    reference: tuple[float, ...] = vector(
        "reference point (x, y) of the coupler; the translation of this point is a degree of freedom",
        "m",
        (0.0, 0.0),
    )
    kinematics: str = text(
        "kinematic model: exact, long (for long actuators, which keep their directions) or linear (for small "
        "motions)",
        "exact",
        choices=("exact", "long", "linear"),
    )
    largest_rotation: float = number("largest magnitude of the rotation", "rad", 0.2, more_than=0.0, at_most=1.5)
    shortest_length: float = number(
        "shortest length of an actuator, pin to pin, with the piston retracted",
        "m",
        0.1,
        more_than=0.0,
        at_most=100.0,
    )

    def validate(self, path: str) -> None:
        for name in ("anchors", "attachments"):
            rows = getattr(self, name)
            if len(rows[0]) != 2:
                raise ConfigError(
                    f"{path}.{name}: the rows have {len(rows[0])} numbers, but must have 2, x and y in m"
                )
        if len(self.reference) != 2:
            raise ConfigError(f"{path}.reference = {show(self.reference)}: must be 2 numbers, x and y in m")
        if len(self.anchors) != len(self.attachments):
            raise ConfigError(
                f"{path}.anchors: the number of rows is {len(self.anchors)}, but must be {len(self.attachments)}, "
                f"as in {path}.attachments"
            )


def shape_of(params: Geometry) -> Shape:
    return THREE if len(params.anchors) == 3 else TWO


def kernel_of(params: Geometry) -> CouplerKernel:
    return linear(shape_of(params)) if params.kinematics == "linear" else exact(shape_of(params))


class Coupler:
    """Computes poses of one rigid coupler in a plane from the displacements of its actuators."""

    def __init__(self, params: Geometry, n_dof: int, n_axes: int, path: str) -> None:
        """Raise ConfigError, naming ``path``, if the actuators cannot move the coupler."""
        if len(params.anchors) != n_axes:
            raise ConfigError(
                f"{path}.anchors: the number of rows is {len(params.anchors)}, but must be {n_axes}, one for each "
                "axis"
            )
        if n_axes not in (2, 3):
            raise ConfigError(
                f"{path}.anchors: the number of rows is {n_axes}, but must be 2 or 3 to move a coupler in a plane"
            )
        shape = self._shape = shape_of(params)
        self.kernel = kernel_of(params)
        anchors, attachments = np.array(params.anchors), np.array(params.attachments)
        arms = attachments - params.reference
        lengths = np.hypot(*(attachments - anchors).T)
        for axis, length in enumerate(lengths.tolist()):
            if length < params.shortest_length:
                raise ConfigError(
                    f"{path}.anchors[{axis}]: the length of the actuator at rest is {length:g} m, but must be >= "
                    f"{path}.shortest_length = {params.shortest_length:g} m"
                )
        directions = (attachments - anchors) / lengths[:, None]
        # anchors relative to the reference point at rest
        ends = (tuple(map(tuple, part.tolist())) for part in (anchors - params.reference, arms, directions))
        axes = tuple(zip(*ends, lengths.tolist(), strict=True))
        pose = 0.0, 0.0, 1.0, 0.0, params.kinematics == "long"
        links = [link(axis, pose) for axis in axes]
        scale = float(np.hypot(*arms.T).max()) or 1.0
        determinant = shape.determinant(tuple([shape.row(leg, scale) for leg in links]))
        if not abs(determinant) > SINGULAR:
            raise ConfigError(
                f"{path}.attachments: the actuators jam, because they do not drive every motion of the coupler. "
                "Two lines of action must not intersect the y axis through the reference point at the same y; "
                "three lines of action must not be parallel or meet at one point"
            )
        rows = np.array([shape.row(leg, 1.0) for leg in links])
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
        """Return the pose ``(n_dof,)`` at axis ``displacement`` ``(n_axes,)`` m; NaN beyond the limits."""
        gone, k = tuple(displacement.tolist()), self.constants
        return np.array(self.kernel.pose(k, gone, first_pose(k, gone)))

    @np.errstate(invalid="ignore", divide="ignore")
    def poses(self, displacement: Array) -> Array:
        """Return the poses ``(n, n_dof)`` at axis ``displacement`` ``(n, n_axes)`` m; NaN beyond the limits.

        Newton's method solves all poses together if the actuators keep their directions (``long``).
        """
        k = self.constants
        if not k.long:
            return np.array([self.degrees_of_freedom(row) for row in displacement])
        determinant, axes = self._shape.determinant, list(displacement.T)
        poses: Array = np.array(k.inverse) @ displacement.T
        left = np.arange(len(displacement))
        for _ in range(ITERATIONS):
            x, y, theta = self._shape.split(poses[:, left])
            origin = x, y, np.cos(theta), np.sin(theta), True
            held = [link(axis, origin) for axis in k.axes]
            lengths = [leg[2] for leg in held]
            rows = [self._shape.row(leg, 1.0) for leg in held]
            size = determinant(tuple(rows))
            within = (k.shortest <= reduce(np.minimum, lengths)) & (np.abs(theta) <= k.largest_rotation)
            within &= k.sign * size > SINGULAR * k.scale  # the limit is scaled, because the rows are not
            poses[:, left[~within]] = math.nan
            errors = [d[left] - (length - axis[3]) for d, length, axis in zip(axes, lengths, k.axes, strict=True)]
            going = within & ~(reduce(np.maximum, map(np.abs, errors)) <= k.close)
            left = left[going]
            if not len(left):
                return poses.T
            for column, pose in enumerate(poses):  # Cramer's rule
                changed = [(*row[:column], d, *row[column + 1 :]) for row, d in zip(rows, errors, strict=True)]
                pose[left] += np.divide(determinant(tuple(changed)), size)[going]
        poses[:, left] = math.nan
        return poses.T
