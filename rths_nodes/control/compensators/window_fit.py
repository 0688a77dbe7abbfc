# SPDX-License-Identifier: Apache-2.0
"""Least squares of commands by measurements and their derivatives over a moving window, as sums that run along.

A row has the filtered measurement x, its derivatives y and z, and the command u. The sums of the products of all
rows in the window gain those of the newest row and lose those of the oldest, which are known before; what rounding
leaves of rows that are gone ends with the next whole window, whose own sums take the place of the running ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rths_nodes.core.samples import Array

COLUMNS = 4
Three = tuple[float, float, float]
Sums = tuple[float, float, float, float, float, float, float, float, float]
"""xx, xy, xz, yy, yz, zz, xu, yu, zu."""
NONE = ((0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0), 0)


class Fit(NamedTuple):
    """Constants of the fit."""

    lower: Three
    upper: Three
    powers: Three
    """Powers of the filter's frequency, over which it gives derivatives."""
    shares: Three
    """The ranges by these: in shares of them all coefficients weigh the same, and one without a range stays."""
    ratio: float
    """Weight against changing what the motion does not tell, relative to what it tells."""
    trigger: float
    """Displacement, m, that one row of the window must have."""


Counted = tuple[Sums, int]
"""Sums of some rows, and the number of those beyond the trigger."""


class Window(NamedTuple):
    """The last rows ``(rows, 4)``, a ring, and their sums."""

    rows: Array
    oldest: int
    sums: Counted
    left: Counted
    """Without the oldest row."""
    fresh: Counted
    """Since the last whole window."""
    filled: int


Ring = tuple[Array, int, Counted, Counted, Counted, int]
"""A window as a step hands it on."""


def empty(rows: int) -> Window:
    """At rest before."""
    return Window(np.zeros((rows, COLUMNS)), 0, NONE, NONE, NONE, 0)


def raised(s: Counted, sign: int, trigger: float, x: float, y: float, z: float, u: float) -> Counted:
    """``s`` with the products of a row, or without them."""
    (xx, xy, xz, yy, yz, zz, xu, yu, zu), large = s
    p, q, r = sign * x, sign * y, sign * z
    sums = (
        xx + p * x,
        xy + p * y,
        xz + p * z,
        yy + q * y,
        yz + q * z,
        zz + r * z,
        xu + p * u,
        yu + q * u,
        zu + r * u,
    )
    return sums, large + sign if abs(x) > trigger else large


def without_oldest(k: Fit, s: Ring) -> Ring:
    """Ahead of the next row: the sums without the one whose place it takes."""
    rows, oldest, sums, _, fresh, filled = s
    x, y, z, u = float(rows[oldest, 0]), float(rows[oldest, 1]), float(rows[oldest, 2]), float(rows[oldest, 3])
    return rows, oldest, sums, raised(sums, -1, k[5], x, y, z, u), fresh, filled


def with_row(k: Fit, s: Ring, x: float, y: float, z: float, u: float) -> Ring:
    """The next row, in the place of the oldest."""
    rows, oldest, _, left, fresh, filled = s
    rows[oldest, 0] = x
    rows[oldest, 1] = y
    rows[oldest, 2] = z
    rows[oldest, 3] = u
    oldest += 1
    filled += 1
    if oldest == len(rows):
        oldest = 0
    sums, fresh = raised(left, 1, k[5], x, y, z, u), raised(fresh, 1, k[5], x, y, z, u)
    if filled == len(rows):
        sums, fresh, filled = fresh, NONE, 0
    return rows, oldest, sums, left, fresh, filled


def fitted(k: Fit, s: Ring, coefficients: Three) -> Three:
    """``coefficients`` after one fit, within their limits; as they are where nothing has moved enough."""
    _, _, (sums, large), _, _, _ = s
    if large == 0:
        return coefficients
    lower, upper, powers, shares, ratio, _ = k
    x, y, z, yy, yz, zz, xu, yu, zu = sums
    (s0, s1, s2), (p0, p1, p2), (c0, c1, c2) = shares, powers, coefficients
    a, b, c = c0 * p0, c1 * p1, c2 * p2
    right = (
        s0 * (xu - x * a - y * b - z * c),
        s1 * (yu - y * a - yy * b - yz * c),
        s2 * (zu - z * a - yz * b - zz * c),
    )
    xx, xy, xz = s0 * s0 * x, s0 * s1 * y, s0 * s2 * z
    yy, yz, zz = s1 * s1 * yy, s1 * s2 * yz, s2 * s2 * zz
    weight = ratio * (xx + yy + zz)
    if weight == 0.0:
        weight = 1.0
    first, second, third = solved((xx + weight, xy, xz, yy + weight, yz, zz + weight), right)
    return (
        limited(c0 + first * s0 / p0, lower[0], upper[0]),
        limited(c1 + second * s1 / p1, lower[1], upper[1]),
        limited(c2 + third * s2 / p2, lower[2], upper[2]),
    )


def limited(value: float, low: float, high: float) -> float:
    """``value`` within its limits."""
    return low if value < low else high if value > high else value


def solved(left: tuple[float, ...], right: tuple[float, ...]) -> Three:
    """Solution of three equations with a symmetric positive definite matrix, given by its upper triangle."""
    xx, xy, xz, yy, yz, zz = left
    p, q, r = right
    f, g = xy / xx, xz / xx
    yy, yz, zz = yy - f * xy, yz - f * xz, zz - g * xz
    q, r = q - f * p, r - g * p
    h = yz / yy
    third = (r - h * q) / (zz - h * yz)
    second = (q - yz * third) / yy
    return (p - xy * second - xz * third) / xx, second, third
