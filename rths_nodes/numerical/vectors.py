# SPDX-License-Identifier: Apache-2.0
"""Vectors of an equation of motion (floats for one degree of freedom, arrays for several) and their products.

Integrators and restoring forces use the ``product`` of one of these constants:

    ONE      floats; a matrix is one number
    SEVERAL  arrays and full matrices; product with a fixed order of summation (``core/arithmetic.py``)
    LARGE    arrays and sparse matrices, with the products and solvers of ``mechanics/structure.py``; not compiled,
             because LAPACK's band solvers cannot be translated to C and have no fixed order of summation
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import mul
from typing import NamedTuple, Protocol

import numpy as np

from rths_nodes.core.arithmetic import matvec
from rths_nodes.core.samples import Array
from rths_nodes.mechanics import structure
from rths_nodes.mechanics.structure import Matrix, is_sparse

Vector = float | Array
"""A number for one degree of freedom, an array ``(n,)`` for several."""
Loads = Sequence[float] | Array
"""External force: one number, or one row ``(n,)``, per step."""


class Multiplier(Protocol):
    def dot(self, vector: Array, /) -> Array: ...


Operand = float | Array | Multiplier


def applied(operand: Multiplier, x: Array) -> Array:
    return np.asarray(operand.dot(x))


class Vectors(NamedTuple):
    """Operations on vectors of one representation: products and conversions."""

    product: Callable[..., Vector]
    operand: Callable[[Matrix], Operand]
    vector: Callable[[Array], Vector]
    """Function that copies an array ``(n,)`` to a vector."""

    def inverse(self, matrix: Matrix) -> Operand:
        inverse = structure.inverse(matrix)
        return inverse if is_sparse(matrix) else self.operand(inverse)

    def quotient(self, left: Matrix, right: Matrix) -> Operand:
        if is_sparse(left):
            return structure.Quotient(left, right)
        return self.operand(np.linalg.solve(left, right))


def _number(matrix: Array) -> float:
    return float(matrix[0, 0])


def _only(values: Array) -> float:
    return float(values[0])


ONE = Vectors(mul, _number, _only)
SEVERAL = Vectors(matvec, np.asfortranarray, np.array)
LARGE = Vectors(applied, structure.product, np.array)


def vectors_of(matrix: Matrix) -> Vectors:
    if is_sparse(matrix):
        return LARGE
    return ONE if len(matrix) == 1 else SEVERAL
