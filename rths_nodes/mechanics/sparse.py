# SPDX-License-Identifier: Apache-2.0
"""Matrices of large structures, kept sparse and factorised once as a band.

The matrices of a structure are arrays, or ``scipy.sparse.csr_array`` if large; the functions here take both. For
arrays the results are bit-identical to numpy, and scipy is not imported.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rths_nodes.core.samples import Array

Matrix = Any
"""An Array ``(n, n)``, or a symmetric ``scipy.sparse.csr_array``."""
Indices = NDArray[np.intp]

WELL_FILLED = 2.0
"""Largest size of a band, in entries per nonzero entry of the matrix, for which products use the band."""


class NotDefinite(ValueError):
    """The matrix is not positive definite."""


def is_sparse(matrix: Matrix) -> bool:
    return not isinstance(matrix, np.ndarray)


def dense(matrix: Matrix) -> Array:
    return np.asarray(matrix.toarray() if is_sparse(matrix) else matrix, float)


def zero(matrix: Matrix) -> bool:
    return not (matrix.count_nonzero() if is_sparse(matrix) else matrix.any())


def largest(matrix: Matrix) -> float:
    return float(abs(matrix).max())


def inverse(matrix: Matrix) -> Array | Inverse:
    """Return an operator that multiplies by the inverse.

    Raises LinAlgError for a singular array, NotDefinite for a sparse matrix that is not positive definite.
    """
    return Inverse(matrix) if is_sparse(matrix) else np.linalg.inv(matrix)


def quotient(left: Matrix, right: Matrix) -> Array | Quotient:
    return Quotient(left, right) if is_sparse(left) else np.linalg.solve(left, right)


def diagonal(values: Array) -> Matrix:
    from scipy.sparse import dia_array

    return dia_array((values[None], [0]), shape=(len(values), len(values))).tocsr()


def is_definite(matrix: Matrix) -> bool:
    try:
        Inverse(matrix)
    except NotDefinite:
        return False
    return True


def lower_band(n: int, rows: Indices, columns: Indices, values: Array, width: int) -> Array:
    """Return the diagonals of the lower triangle as rows ``(width + 1, n)``, the storage of LAPACK."""
    lower = rows >= columns
    band = np.zeros((width + 1, n), order="F")
    np.add.at(band, ((rows - columns)[lower], columns[lower]), values[lower])
    return band


class Inverse:
    """Solves systems with a symmetric positive definite sparse matrix by a banded Cholesky factor.

    Rows keep their order unless reverse Cuthill-McKee order makes the band narrower. Raises NotDefinite if the
    matrix is not positive definite.
    """

    def __init__(self, matrix: Matrix) -> None:
        from scipy.linalg import get_lapack_funcs
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import reverse_cuthill_mckee

        entries = coo_array(matrix)
        rows, columns = entries.row, entries.col
        n = matrix.shape[0]
        self._order: Indices | None = None
        width = int(np.abs(rows - columns).max(initial=0))
        if width > 1:
            order = np.asarray(reverse_cuthill_mckee(matrix.tocsr(), symmetric_mode=True))
            positions = np.empty(n, int)
            positions[order] = np.arange(n)
            narrower = int(np.abs(positions[rows] - positions[columns]).max())
            if narrower < width:
                self._order, rows, columns, width = order, positions[rows], positions[columns], narrower
        self.half_bandwidth = width
        band = lower_band(n, rows, columns, entries.data, width)
        factorise, self._solve = get_lapack_funcs(("pbtrf", "pbtrs"), (band,))
        if not np.isfinite(band).all() or not (band[0] > 0.0).all():
            raise NotDefinite("a diagonal entry is not positive")
        self._diagonal = 1.0 / band[0] if width == 0 else None
        self._factor, info = factorise(band, lower=1)
        if info:
            raise NotDefinite(f"the leading minor of order {info} is not positive")

    def dot(self, vector: Array) -> Array:
        if self._diagonal is not None:
            return np.asarray((self._diagonal * vector.T).T)
        if self._order is None:
            return np.asarray(self._solve(self._factor, vector, lower=1)[0])
        product = np.empty(vector.shape)
        product[self._order] = self._solve(self._factor, vector[self._order], lower=1)[0]
        return product

    __matmul__ = dot


class Quotient:
    """Multiplies by ``left``^-1 ``right`` for sparse matrices."""

    def __init__(self, left: Matrix, right: Matrix) -> None:
        self._inverse, self._right = Inverse(left), product(right)

    def dot(self, vector: Array) -> Array:
        return self._inverse.dot(self._right.dot(vector))

    __matmul__ = dot


def lowest_modes(mass: Matrix, stiffness: Matrix, count: int) -> tuple[Array, Array]:
    """Return the ``count`` lowest undamped modes of a sparse structure: circular frequencies (rad/s) and shapes.

    Shapes ``(n, count)`` are scaled to a modal mass of 1 kg. ``stiffness`` is positive definite; ``mass`` may have
    zero rows. The Lanczos method with the inverse of the stiffness (ARPACK) starts from a fixed vector.
    """
    from scipy.sparse.linalg import LinearOperator, eigsh

    n = mass.shape[0]
    solver = Inverse(stiffness)
    flexible = LinearOperator((n, n), matvec=solver.dot, dtype=float)
    start = solver.dot(mass.dot(np.ones(n)) + mass.diagonal() * np.linspace(0.0, 1.0, n))
    independent = int((abs(mass).sum(axis=1) > 0.0).sum())  # degrees of freedom without mass add no vectors
    vectors_kept = min(max(2 * count + 1, 20), independent - 1)
    squares, vectors = eigsh(stiffness, count, mass, sigma=0.0, OPinv=flexible, v0=start, ncv=vectors_kept)
    order = np.argsort(squares)
    shapes = vectors[:, order]
    scale = np.sqrt(np.einsum("ij,ij->j", shapes, mass.dot(shapes)))
    return np.sqrt(np.maximum(squares[order], 0.0)), shapes / scale


def product(matrix: Matrix) -> Matrix | Band:
    """Return ``matrix`` in a form for fast products: a :class:`Band` if sparse and narrow, else unchanged."""
    if not is_sparse(matrix):
        return matrix
    entries = matrix.tocoo()
    width = int(np.abs(entries.row - entries.col).max(initial=0))
    narrow = matrix.shape[0] * (2 * width + 1) < WELL_FILLED * matrix.nnz
    return Band(matrix.shape[0], entries, width) if narrow else matrix


class Band:
    """Symmetric sparse matrix stored as a band, for products."""

    def __init__(self, n: int, entries: Matrix, width: int) -> None:
        from scipy.linalg import get_blas_funcs

        self._width, self._band = width, lower_band(n, entries.row, entries.col, entries.data, width)
        (self._multiply,) = get_blas_funcs(("sbmv",), (self._band,))

    def dot(self, vector: Array) -> Array:
        return np.asarray(self._multiply(self._width, 1.0, self._band, vector, lower=1))

    __matmul__ = dot
