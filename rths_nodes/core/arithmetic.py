"""Arithmetic of kernels: elementary functions that are defined for every float, and sums in a stated order.

A kernel (``core/kernels.py``) is one text that runs in plain Python and compiled. Bare ``math`` raises in plain
Python where compiled code gives inf or nan, ``sum()`` of floats is compensated from Python 3.12 on, and a product
of BLAS depends on the processor. The functions here give the same bits in both forms, on every Python and with
every BLAS. ``exp``, ``log``, ``tanh``, ``sin``, ``cos`` and ``power`` take the functions of the C library: their
last bit is that of the libm in use (glibc 2.28 or later: the same on every x86-64 and aarch64 machine).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rths_nodes.core.samples import Array

NAN, INF = math.nan, math.inf
LARGEST_EXPONENT = 709.78
"""exp of more is beyond the largest float."""
WHOLE = 4503599627370496.0
"""2^52: every float of this size or larger is a whole number."""
MANY = 64
"""Products from which on a sum over whole rows of them is quicker than one that keeps its parts."""

_multiply: Any = np.multiply
_accumulate: Any = np.add.accumulate
_reduce: Any = np.add.reduce


def finite(x: float) -> bool:
    """Whether ``x`` is neither infinite nor nan."""
    return x - x == 0.0


def sqrt(x: float) -> float:
    """Square root; nan below zero."""
    return math.sqrt(x) if x >= 0.0 else NAN


def exp(x: float) -> float:
    """Exponential; inf beyond the largest float."""
    return INF if x > LARGEST_EXPONENT else math.exp(x)


def log(x: float) -> float:
    """Natural logarithm; -inf at zero, nan below."""
    if x > 0.0:
        return math.log(x)
    return -INF if x == 0.0 else NAN


def tanh(x: float) -> float:
    """Hyperbolic tangent."""
    return math.tanh(x)


def sin(x: float) -> float:
    """Sine of ``x`` (rad); nan for an infinite one."""
    return math.sin(x) if x - x == 0.0 else NAN


def cos(x: float) -> float:
    """Cosine of ``x`` (rad); nan for an infinite one."""
    return math.cos(x) if x - x == 0.0 else NAN


def power(x: float, exponent: float) -> float:
    """``x`` to a positive ``exponent``, for ``x`` >= 0; nan below zero, inf beyond e^709.78."""
    if x > 1.0 and exponent * math.log(x) > LARGEST_EXPONENT:
        return INF
    return math.pow(x, exponent) if x >= 0.0 else NAN


def rounded(x: float) -> float:
    """The nearest whole number, a half to the even one, as a float; nan and inf stay."""
    if not abs(x) < WHOLE:
        return x
    near = (abs(x) + WHOLE) - WHOLE  # the sum has no room for what is behind the point
    return math.copysign(near, x)


def ceiling(x: float) -> float:
    """The least whole number that is not below ``x``, as a float; nan and inf stay."""
    near = rounded(x)
    return near + 1.0 if near < x else near


def copysign(size: float, sign: float) -> float:
    """The size of the one with the sign of the other."""
    return math.copysign(size, sign)


def place(index: int, period: int) -> int:
    """Where a number that is not negative stands in a ``period``, from 0 on."""
    return index % period


def dot(a: Sequence[float], b: Sequence[float]) -> float:
    """Sum of products from left to right."""
    total = 0.0
    for index in range(len(a)):
        total += a[index] * b[index]
    return total


def matvec(matrix: Array, vector: Array) -> Array:
    """``matrix`` ``(m, n)`` times ``vector`` ``(n,)``, each row summed from left to right.

    Quickest where a large matrix is kept column by column (``np.asfortranarray``).
    """
    terms = _multiply(matrix.T, vector[:, None], order="C")
    if terms.size < MANY or len(matrix) == 1:
        found: Array = _accumulate(terms)[-1]
        return found
    # from the first row to the last; along a single one numpy would add in pairs
    total: Array = _reduce(terms, 0, None, None, False, -0.0)
    return total


def along(state: tuple[float, ...], h: float, rates: tuple[float, ...]) -> tuple[float, ...]:
    """``state`` moved by ``h`` times its ``rates``."""
    return tuple([s + h * rate for s, rate in zip(state, rates, strict=True)])


def all_nan(state: tuple[float, ...]) -> tuple[float, ...]:
    """nan for each number of ``state``."""
    return tuple([NAN for _ in state])
