# SPDX-License-Identifier: Apache-2.0
"""Vectors of an equation of motion: floats for one degree of freedom, arrays for several; what multiplies them.

The steps of integrators and restoring forces are one text for all sizes. It is made by functions that take
``product`` and ``at`` of one of these:

    ONE      floats, matrices of one number
    SEVERAL  arrays, full matrices, the ordered product of ``core/arithmetic.py``
    LARGE    arrays, matrices that are kept sparse and multiply or solve by themselves (``mechanics/sparse.py``):
             the same text, but no kernel, as LAPACK's bands have neither a compiled form nor an order that is ours
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import getitem, mul
from typing import NamedTuple, Protocol

import numpy as np

from rths_nodes.core.arithmetic import matvec
from rths_nodes.core.samples import Array
from rths_nodes.mechanics import sparse
from rths_nodes.mechanics.sparse import Matrix, is_sparse

Vector = float | Array
"""A number for one degree of freedom, an array ``(n,)`` for several."""
Loads = Sequence[float] | Array
"""The external force by steps, of which ``at`` takes one."""


class Multiplier(Protocol):
    """A large matrix, or a solver with one: it multiplies by itself."""

    def dot(self, vector: Array, /) -> Array: ...


Operand = float | Array | Multiplier
"""A factor of a vector."""


def applied(operand: Multiplier, x: Array) -> Array:
    """The product of what multiplies by itself, as a large matrix does."""
    return np.asarray(operand.dot(x))


class Vectors(NamedTuple):
    """The way in which vectors are kept, what multiplies them, and what a matrix becomes that multiplies."""

    product: Callable[..., Vector]
    at: Callable[..., Vector]
    """The number, or the row ``(n,)``, of a step."""
    operand: Callable[[Matrix], Operand]
    vector: Callable[[Array], Vector]
    """An array ``(n,)``, not shared."""

    def inverse(self, matrix: Matrix) -> Operand:
        found = sparse.inverse(matrix)
        return found if is_sparse(matrix) else self.operand(found)

    def quotient(self, left: Matrix, right: Matrix) -> Operand:
        """``left``^-1 ``right``, to multiply with."""
        found = sparse.quotient(left, right)
        return found if is_sparse(left) else self.operand(found)


def _number(matrix: Array) -> float:
    return float(matrix[0, 0])


def _only(values: Array) -> float:
    return float(values[0])


ONE = Vectors(mul, getitem, _number, _only)
SEVERAL = Vectors(matvec, getitem, np.asfortranarray, np.array)
LARGE = Vectors(applied, getitem, sparse.product, np.array)


def vectors_of(matrix: Matrix) -> Vectors:
    """The way in which vectors are kept where the structure has such a matrix ``(n, n)``."""
    if is_sparse(matrix):
        return LARGE
    return ONE if len(matrix) == 1 else SEVERAL
