# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of kernels: elementary functions defined for every float, and sums in a defined order.

The functions of this module return identical bits in plain Python and in compiled kernels, on every version of
Python and with every BLAS. Other functions may differ. ``math`` raises exceptions where compiled code returns inf
or NaN. ``sum()`` of floats is compensated from Python 3.12 on. BLAS products depend on the processor. ``exp``,
``tanh``, ``sin``, ``cos`` and ``power`` use the C library. With glibc 2.28 or later the last bit of their results
is the same on every x86-64 and aarch64 machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from operator import add, mul
from struct import Struct
from typing import Any, TypeVar

import numpy as np

from rths_nodes.core.samples import Array

S = TypeVar("S")
G = TypeVar("G")
T = TypeVar("T")
Numbers = tuple[float, ...]
NAN, INF = math.nan, math.inf
LARGEST_EXPONENT = 709.78
WHOLE = 4503599627370496.0
MANY = 64

_PACK = tuple(Struct(f"{count}d").pack_into for count in range(MANY))
_multiply = np.multiply
_accumulate = np.add.accumulate
_reduce: Any = np.add.reduce
HALVES = 134217729.0
"""2^27 + 1: factor that splits a float into two floats with half as many digits."""
LONGEST = 1e150


tanh = math.tanh
copysign = math.copysign
root = math.sqrt
"""Square root; the argument must not be negative."""


def finite(x: float) -> bool:
    return x - x == 0.0


def all_finite(values: Sequence[float] | Array) -> bool:
    """Return whether all ``values`` are finite."""
    total = 0.0
    for value in values:
        total += value - value
    return total == 0.0


def sqrt(x: float) -> float:
    """Return the square root of ``x``; NaN if ``x`` is negative."""
    return math.sqrt(x) if x >= 0.0 else NAN


def hypot(x: float, y: float) -> float:
    """Return the length of the vector (``x``, ``y``), corrected for rounding (Dekker 1971); inf above 1e154."""
    long, short = (abs(y), abs(x)) if abs(x) < abs(y) else (abs(x), abs(y))
    length = sqrt(long * long + short * short)
    if not 0.0 < length < LONGEST:
        return length
    left = (long * long - length * length) + short * short
    left += (_square_error(long) + _square_error(short)) - _square_error(length)
    return length + left / (2.0 * length)


def _square_error(x: float) -> float:
    """Return the rounding error of ``x * x``: the exact square minus the rounded product."""
    upper = HALVES * x - (HALVES * x - x)
    lower = x - upper
    return ((upper * upper - x * x) + 2.0 * upper * lower) + lower * lower


def exp(x: float) -> float:
    """Return the exponential of ``x``; inf if it exceeds the largest float."""
    return INF if x > LARGEST_EXPONENT else math.exp(x)


def sin(x: float) -> float:
    """Return the sine of ``x`` (rad); NaN if ``x`` is infinite."""
    return math.sin(x) if x - x == 0.0 else NAN


def cos(x: float) -> float:
    """Return the cosine of ``x`` (rad); NaN if ``x`` is infinite."""
    return math.cos(x) if x - x == 0.0 else NAN


def power(x: float, exponent: float) -> float:
    """Return ``x`` raised to a positive ``exponent``; NaN if ``x`` < 0, inf if the result exceeds e^709.78."""
    if x > 1.0 and exponent * math.log(x) > LARGEST_EXPONENT:
        return INF
    return math.pow(x, exponent) if x >= 0.0 else NAN


def rounded(x: float) -> float:
    """Return ``x`` rounded half to even, as a float; NaN and inf are unchanged."""
    if 0.0 < x < WHOLE:
        return (x + WHOLE) - WHOLE  # the sum has no fractional digits
    return -((WHOLE - x) - WHOLE) if -WHOLE < x < 0.0 else x


def ceiling(x: float) -> float:
    """Return the smallest integer not below ``x``, as a float; NaN and inf are unchanged."""
    near = rounded(x)
    return near + 1.0 if near < x else near


def place(index: int, period: int) -> int:
    """Return the remainder of a non-negative ``index`` divided by ``period``."""
    return index % period


def dot(a: Sequence[float] | Array, b: Sequence[float] | Array) -> float:
    """Return the scalar product of ``a`` and ``b``, summed from left to right."""
    return float(reduce(add, map(mul, a, b), 0.0))


def matvec(matrix: Array, vector: Array) -> Array:
    """Return ``matrix`` ``(m, n)`` times ``vector`` ``(n,)``, summed left to right; column-major is fastest."""
    terms = _multiply(matrix.T, vector[:, None], order="C")
    if terms.size < MANY or len(matrix) == 1:
        product: Array = _accumulate(terms)[-1]
        return product
    # sum from the first row to the last; numpy sums a single column pairwise
    total: Array = _reduce(terms, 0, None, None, False, -0.0)
    return total


def matvec_into(array: Array, matrix: Array, vector: Array) -> None:
    array[:] = matvec(matrix, vector)


def groups(
    like: tuple[tuple[float, ...], ...], matrix: Array, vector: Array | Numbers
) -> Sequence[Sequence[float]]:
    """Return the :func:`matvec` product, split into ``len(like)`` lists of equal length (tuples if compiled)."""
    return matvec(matrix, np.asarray(vector)).reshape(len(like), -1).tolist()


def times(rows: Sequence[Sequence[float]], vector: Sequence[float]) -> Numbers:
    """Return ``rows`` times ``vector`` as a tuple, summed left to right; fast if ``vector`` is short."""
    if len(vector) == 3:
        a, b, c = vector
        if len(rows) == 1:
            ((p, q, r),) = rows
            return (p * a + q * b + r * c,)
        return tuple([p * a + q * b + r * c for p, q, r in rows])
    if len(vector) == 2:
        a, b = vector
        return tuple([p * a + q * b for p, q in rows])
    if len(vector) == 1:
        (a,) = vector
        return tuple([p * a for (p,) in rows])
    if len(vector) == 4:
        a, b, c, d = vector
        return tuple([p * a + q * b + r * c + s * d for p, q, r, s in rows])
    if len(vector) == 7:
        a, b, c, d, e, f, g = vector
        return tuple([p * a + q * b + r * c + s * d + t * e + u * f + v * g for p, q, r, s, t, u, v in rows])
    return tuple([reduce(add, map(mul, row, vector)) for row in rows])


def numbers(vector: Array) -> list[float]:
    """Return ``vector`` as a list, for fast element access. Compiled code returns the array itself."""
    values: list[float] = vector.tolist()
    return values


def put(array: Array, first: int, values: Sequence[float] | Array) -> None:
    """Write ``values`` to ``array`` from index ``first`` on; compiles faster than a slice assignment."""
    array[first : first + len(values)] = values


def record(table: Array, first: int, values: Sequence[float]) -> None:
    """Write ``values`` to a ``table`` ``(n,)`` from index ``first`` on; twice as fast as a loop over elements."""
    count = len(values)
    pack: Any = _PACK[count] if count < MANY else Struct(f"{count}d").pack_into
    pack(table, 8 * first, *values)


def record_across(
    table: Array | memoryview[float], first: int, values: Sequence[float] | Array, step: int
) -> None:
    """Write ``values`` to every ``step``-th element of a ``table`` ``(n,)``, from index ``first`` on."""
    for value in values:  # a third faster than a slice if ``table`` is a memoryview
        table[first] = value
        first += step


def mapped(function: Callable[[S, G], T], items: Sequence[S], argument: G) -> tuple[T, ...]:
    return tuple([function(item, argument) for item in items])


# States as tuples: code unrolled for one, two and three numbers takes half the time of a loop


def along(state: Numbers, h: float, rates: Numbers) -> Numbers:
    """Return ``state`` plus ``h`` times ``rates``."""
    count = len(state)
    if count == 1:
        return (state[0] + h * rates[0],)
    if count == 3:
        x, y, z = state
        p, q, r = rates
        return x + h * p, y + h * q, z + h * r
    if count == 2:
        x, y = state
        p, q = rates
        return x + h * p, y + h * q
    if count == 0:
        return state
    return tuple([s + h * rate for s, rate in zip(state, rates, strict=True)])


def along_mean(
    state: Numbers,
    h: float,
    a: Numbers,
    b: Numbers,
    c: Numbers,
    d: Numbers,
) -> Numbers:
    """Return ``state`` plus ``h`` times the mean of four rates with the Runge-Kutta weights 1, 2, 2 and 1."""
    sixth = h / 6.0
    count = len(state)
    if count == 1:
        return (state[0] + sixth * (a[0] + 2.0 * (b[0] + c[0]) + d[0]),)
    if count == 3:
        x, y, z = state
        (ax, ay, az), (bx, by, bz), (cx, cy, cz), (dx, dy, dz) = a, b, c, d
        return (
            x + sixth * (ax + 2.0 * (bx + cx) + dx),
            y + sixth * (ay + 2.0 * (by + cy) + dy),
            z + sixth * (az + 2.0 * (bz + cz) + dz),
        )
    if count == 2:
        x, y = state
        (ax, ay), (bx, by), (cx, cy), (dx, dy) = a, b, c, d
        return x + sixth * (ax + 2.0 * (bx + cx) + dx), y + sixth * (ay + 2.0 * (by + cy) + dy)
    if count == 0:
        return state
    slopes = zip(state, a, b, c, d, strict=True)
    return tuple([s + sixth * (p + 2.0 * (q + r) + t) for s, p, q, r, t in slopes])


def replaced(rows: tuple[Numbers, ...], values: Array) -> tuple[Numbers, ...]:
    """Return ``rows`` with the first numbers of each row replaced by the corresponding row of ``values``."""
    return tuple([(*now, *row[len(now) :]) for row, now in zip(rows, values.tolist(), strict=True)])


def slopes(state: Numbers, before: Numbers, dt: float) -> Numbers:
    return tuple([(now - then) / dt for now, then in zip(state, before, strict=True)])


def interleaved(state: Numbers, second: Numbers) -> Numbers:
    return tuple([number for pair in zip(state, second, strict=True) for number in pair])


def scaled(state: Numbers, factors: Numbers) -> Numbers:
    return tuple([s * factor for s, factor in zip(state, factors, strict=True)])


def first(state: Numbers, values: Sequence[float]) -> Numbers:
    return tuple(values[: len(state)])


def raised(state: Numbers, index: int, by: float) -> Numbers:
    places = zip(range(len(state)), state, strict=True)
    return tuple([number + by if position == index else number for position, number in places])


def all_nan(state: Numbers) -> Numbers:
    return tuple([NAN for _ in state])


def is_finite(value: object) -> bool:
    """Return whether ``value``, with all elements of nested tuples, lists and arrays, is free of NaN and inf."""
    if isinstance(value, (tuple, list)):
        return all(map(is_finite, value))
    if isinstance(value, np.ndarray):
        return value.dtype.kind not in "fc" or bool(np.isfinite(value).all())
    return not isinstance(value, float) or math.isfinite(value)
