"""Vectors of an equation of motion: floats for one degree of freedom, arrays for several; what multiplies them.

The steps of integrators and restoring forces are one text for all sizes. It is made by functions that take
``product`` and ``at`` of one of these:

    ONE      floats, matrices of one number
    SEVERAL  arrays, full matrices, the ordered product of ``core/arithmetic.py``
    LARGE    arrays, matrices that are kept sparse and multiply or solve by themselves (``core/sparse.py``): the
             same text, but no kernel, as LAPACK's bands have neither a compiled form nor an order that is ours
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rths_nodes.core import sparse
from rths_nodes.core.arithmetic import matvec
from rths_nodes.core.samples import Array
from rths_nodes.core.sparse import Matrix, is_sparse


def times(operand: float, x: float) -> float:
    """The product of one degree of freedom."""
    return operand * x


def applied(operand: Any, x: Array) -> Array:
    """The product of what multiplies by itself, as a large matrix does."""
    return np.asarray(operand.dot(x))


def number_at(table: Any, step: int) -> float:
    """The number of a step."""
    return float(table[step])


def row_at(table: Any, step: int) -> Any:
    """The row of a step, ``(n,)``."""
    return table[step]


def numbers_at(table: Any, step: int) -> Any:
    """The numbers of a step and the next, ``(2,)``."""
    return table[step : step + 2]


def rows_at(table: Any, step: int) -> Any:
    """The rows of a step and the next, one after the other: ``(2 n,)``."""
    return table[step : step + 2].ravel()


class Vectors(NamedTuple):
    """How vectors are kept: what multiplies them, the row of a step, what a matrix or its inverse becomes."""

    product: Callable[[Any, Any], Any]
    at: Callable[[Any, int], Any]
    pair: Callable[[Any, int], Any]
    operand: Callable[[Matrix], Any]
    inverse: Callable[[Matrix], Any]
    quotient: Callable[[Matrix, Matrix], Any]
    """Of ``left`` and ``right``: ``left``^-1 ``right``."""
    zero: Callable[[int], Any]
    vector: Callable[[Array], Any]
    """Of an array ``(n,)``, which it does not share."""


def _number(matrix: Array) -> float:
    return float(matrix[0, 0])


def _none(n: int) -> float:
    return 0.0


def _only(values: Array) -> float:
    return float(values[0])


def _solved(left: Matrix, right: Matrix) -> Array:
    return np.asarray(np.linalg.solve(left, right))


def _inverse(matrix: Matrix) -> Array:
    return np.asarray(np.linalg.inv(matrix))


ONE = Vectors(
    times,
    number_at,
    numbers_at,
    _number,
    lambda matrix: _number(_inverse(matrix)),
    lambda left, right: _number(_solved(left, right)),
    _none,
    _only,
)
SEVERAL = Vectors(
    matvec,
    row_at,
    rows_at,
    np.asfortranarray,
    lambda matrix: np.asfortranarray(_inverse(matrix)),
    lambda left, right: np.asfortranarray(_solved(left, right)),
    np.zeros,
    np.array,
)
LARGE = Vectors(applied, row_at, rows_at, sparse.product, sparse.inverse, sparse.quotient, np.zeros, np.array)


def vectors_of(matrix: Matrix) -> Vectors:
    """How the vectors are kept that a matrix ``(n, n)`` of the structure belongs to."""
    if is_sparse(matrix):
        return LARGE
    return ONE if len(matrix) == 1 else SEVERAL
