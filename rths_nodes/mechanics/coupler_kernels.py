# SPDX-License-Identifier: Apache-2.0
"""Kernels of actuators that move one rigid coupler; equations: ``mechanics/coupler.py``.

Motions of the axes and of the coupler are tuples of two or three numbers; a pose is x, (y) and theta. Beyond the
reach everything is nan.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rths_nodes.core.arithmetic import INF, NAN, Numbers, all_nan, along, cos, hypot, mapped, sin, times
from rths_nodes.core.kernels import Function

Rows = tuple[Numbers, ...]

SINGULAR = 1e-3
"""Magnitude of the determinant of J, rotations counted in arcs of the longest arm, below which actuators jam."""
ITERATIONS = 20
"""Most iterations of Newton's method, which needs four to six within the reach."""
CLOSED = 1e-13
"""Error of an axis at which Newton's method ends, relative to the longest actuator."""

Axis = tuple[tuple[float, float], tuple[float, float], tuple[float, float], float]
Link = tuple[float, float, float, float, float]
"""Direction u, pin to pin length (m) and arm s (m) of an actuator."""
Motion = tuple[Numbers, Numbers, Numbers]


class Constants(NamedTuple):
    """Constants of the coupler at rest, and of its reach."""

    axes: tuple[Axis, ...]
    """Anchor relative to the reference point, arm, direction and length of each actuator."""
    long: bool
    """Actuators have constant directions."""
    largest_rotation: float
    shortest: float
    scale: float
    """Length of the longest arm, m."""
    sign: float
    """Sign of the determinant at rest."""
    close: float
    """Tolerance of Newton's method, m."""
    rows: Rows
    """J at rest."""
    inverse: Rows
    transposed: Rows


# The pose of two actuators has no y, which is guided


def guided(values: Numbers) -> tuple[float, float, float]:
    return values[0], 0.0, values[1]


def planar(values: Numbers) -> tuple[float, float, float]:
    return values[0], values[1], values[2]


def guided_row(link: Link, scale: float) -> tuple[float, float]:
    """Return an actuator's row of J for two actuators: m/m and m per ``scale`` of rotation."""
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
    """Solve ``rows`` x = ``right`` by Cramer's rule; nan if singular."""
    ((a, b), (c, d)), (p, q) = rows, right
    determinant = a * d - b * c
    if determinant == 0.0:
        return NAN, NAN
    return (p * d - b * q) / determinant, (a * q - p * c) / determinant


def solved_three(rows: Rows, right: Numbers) -> tuple[float, float, float]:
    """Solve the same with three by the cofactors."""
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


def link(axis: Axis, place: tuple[float, float, float, float, bool]) -> Link:
    """Return the actuator of ``axis`` with the coupler at ``place``: x, y, cos, sin, long."""
    (px, py), (rx, ry), (ux, uy), rest = axis
    x, y, cosine, sine, long = place
    sx, sy = cosine * rx - sine * ry, sine * rx + cosine * ry
    if long:
        return ux, uy, rest + ux * (x + sx - rx) + uy * (y + sy - ry), sx, sy
    lx, ly = x + sx - px, y + sy - py
    length = hypot(lx, ly)
    if not length > 0.0:
        return NAN, NAN, length, sx, sy
    return lx / length, ly / length, length, sx, sy


def moving(link: Link, rates: tuple[float, float, float, float, float, float, bool]) -> tuple[float, float]:
    """Return velocity and acceleration of an axis from those of x, y, theta."""
    ux, uy, length, sx, sy = link
    vx, vy, spin, ax, ay, spin_rate, long = rates
    wx, wy = vx - spin * sy, vy + spin * sx
    rate = ux * wx + uy * wy
    bx, by = ax - spin_rate * sy - spin * spin * sx, ay + spin_rate * sx - spin * spin * sy
    turning = 0.0 if long else (wx * wx + wy * wy - rate * rate) / length
    return rate, ux * bx + uy * by + turning


def at(values: Numbers, place: int) -> float:
    return float(values[place])


def rest_of(axis: Axis, nothing: float) -> float:
    return float(axis[3])


class CouplerKernel(NamedTuple):
    """Functions of the constants; motions in tuples."""

    axes: Callable[..., Motion]
    """``(k, x, v, a) -> d, d', d''`` of the axes from the motion of the coupler."""
    forces: Callable[..., Numbers]
    """``(k, forces of the axes, pose) -> forces`` of the coupler, by the same virtual work."""
    axis_forces: Callable[..., Numbers]
    """``(k, forces, pose) -> forces of the axes`` that balance them."""
    pose: Callable[..., Numbers]
    """``(k, d, near) -> pose`` of displacements of the axes, by Newton's method from a pose ``near`` it."""
    motion: Callable[..., Motion]
    """``(k, d, d', d'', near) -> x, v, a`` of the coupler from the motion of the axes."""


def reaches(k: Constants, theta: float, lengths: Numbers) -> bool:
    """Return whether the coupler may turn by ``theta`` and its actuators have these ``lengths``; nan is beyond."""
    shortest = k[3]
    if not abs(theta) <= k[2]:
        return False
    within = True
    for length in lengths:
        within = within and shortest <= length < INF
    return within


def links_of(shape: Shape) -> tuple[Callable[..., tuple[Link, ...]], Callable[..., bool]]:
    """Return functions for the links in a pose, and for whether the coupler may be there."""
    split, row, determinant, _, _ = shape

    def links(k: Constants, pose: Numbers) -> tuple[Link, ...]:
        x, y, theta = split(pose)
        return mapped(link, k[0], (x, y, cos(theta), sin(theta), k[1]))

    def is_open(k: Constants, pose: Numbers, held: tuple[Link, ...]) -> bool:
        if not reaches(k, split(pose)[2], mapped(at, held, 2)):
            return False
        return k[5] * determinant(mapped(row, held, k[4])) > SINGULAR

    return links, is_open


def newton(shape: Shape) -> Callable[..., Numbers]:
    """Return the function for the pose of axis displacements from one ``near`` it."""
    links, is_open = links_of(shape)
    row, solved = shape.row, shape.solved

    def pose(k: Constants, displacement: Numbers, near: Numbers) -> Numbers:
        found, close = near, k[6]
        for _ in range(ITERATIONS):
            held = links(k, found)
            if not is_open(k, found, held):
                break
            gone = along(mapped(at, held, 2), -1.0, mapped(rest_of, k[0], 0.0))
            left = along(displacement, -1.0, gone)
            closed = True
            for each in left:
                closed = closed and abs(each) <= close
            if closed:
                return found
            found = along(found, 1.0, solved(mapped(row, held, 1.0), left))
        return all_nan(near)

    return pose


def exact(shape: Shape) -> CouplerKernel:
    """Return the kernel with the links in their actual pose."""
    split, row, _, solved, transposed = shape
    (links, is_open), pose = links_of(shape), newton(shape)

    def rates(k: Constants, held: tuple[Link, ...], v: Numbers, a: Numbers) -> tuple[tuple[float, float], ...]:
        vx, vy, spin = split(v)
        ax, ay, spin_rate = split(a)
        return mapped(moving, held, (vx, vy, spin, ax, ay, spin_rate, k[1]))

    def axes(k: Constants, x: Numbers, v: Numbers, a: Numbers) -> Motion:
        held = links(k, x)
        if not is_open(k, x, held):
            none = all_nan(x)
            return none, none, none
        found = rates(k, held, v, a)
        gone = along(mapped(at, held, 2), -1.0, mapped(rest_of, k[0], 0.0))
        return gone, mapped(at, found, 0), mapped(at, found, 1)

    def forces(k: Constants, axis_forces: Numbers, pose: Numbers) -> Numbers:
        held = links(k, pose)
        if not is_open(k, pose, held):
            return all_nan(pose)
        return times(transposed(mapped(row, held, 1.0)), axis_forces)

    def axis_forces(k: Constants, forces: Numbers, pose: Numbers) -> Numbers:
        return solved(transposed(mapped(row, links(k, pose), 1.0)), forces)

    def motion(
        k: Constants, displacement: Numbers, velocity: Numbers, acceleration: Numbers, near: Numbers
    ) -> Motion:
        x = pose(k, displacement, near)
        held = links(k, x)
        rows = mapped(row, held, 1.0)
        v = solved(rows, velocity)
        turning = mapped(at, rates(k, held, v, along(v, -1.0, v)), 1)
        return x, v, solved(rows, along(acceleration, -1.0, turning))

    return CouplerKernel(axes, forces, axis_forces, pose, motion)


def first_pose(k: Constants, displacement: Numbers) -> Numbers:
    """Return an initial pose for Newton's method, by J of the pose at rest."""
    return times(k[8], displacement)


def linear(shape: Shape) -> CouplerKernel:
    """Return the kernel with J of the pose at rest."""
    split, _, _, solved, _ = shape

    def open_at(k: Constants, pose: Numbers) -> bool:
        lengths = along(times(k[7], pose), 1.0, mapped(rest_of, k[0], 0.0))
        return reaches(k, split(pose)[2], lengths)

    def axes(k: Constants, x: Numbers, v: Numbers, a: Numbers) -> Motion:
        if not open_at(k, x):
            none = all_nan(x)
            return none, none, none
        return times(k[7], x), times(k[7], v), times(k[7], a)

    def forces(k: Constants, axis_forces: Numbers, pose: Numbers) -> Numbers:
        return times(k[9], axis_forces) if open_at(k, pose) else all_nan(pose)

    def axis_forces(k: Constants, forces: Numbers, pose: Numbers) -> Numbers:
        return solved(k[9], forces)

    def pose(k: Constants, displacement: Numbers, near: Numbers) -> Numbers:
        found = times(k[8], displacement)
        return found if open_at(k, found) else all_nan(near)

    def motion(
        k: Constants, displacement: Numbers, velocity: Numbers, acceleration: Numbers, near: Numbers
    ) -> Motion:
        x = pose(k, displacement, near)
        if not open_at(k, x):
            return x, x, x
        return x, solved(k[7], velocity), solved(k[7], acceleration)

    return CouplerKernel(axes, forces, axis_forces, pose, motion)
