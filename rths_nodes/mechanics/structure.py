# SPDX-License-Identifier: Apache-2.0
"""Matrices of a structure: large matrices, degrees of freedom without mass, exact steps of linear systems.

Matrices are arrays. Large matrices are ``scipy.sparse.csr_array``; they stay sparse and are factorised once as a
band. Functions of a :data:`Matrix` accept both. For arrays they use numpy only, and return exactly its results.

With the index t for degrees of freedom with mass and o for those without mass, M a + C v + K x = p is

    M_tt a_t + C_tt v_t + C_to v_o + K_tt x_t + K_to x_o = p_t
               C_ot v_t + C_oo v_o + K_ot x_t + K_oo x_o = p_o

With damping C_oo the second line is of first order in x_o. Without damping, x_o follows x_t without delay and is
condensed statically. The same applies if C_oo = b K_oo and C_ot = b K_ot (Rayleigh), and no load acts on x_o.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Array

Matrix = Any
"""Array ``(n, n)``, or a symmetric ``scipy.sparse.csr_array``."""
Indices = NDArray[np.intp]

WELL_FILLED = 2.0
"""Products use a band if it has fewer entries than this number times the nonzero entries of the matrix."""


class NotDefinite(ValueError):
    """Raised for a matrix that is not positive definite."""


def is_sparse(matrix: Matrix) -> bool:
    return not isinstance(matrix, np.ndarray)


def dense(matrix: Matrix) -> Array:
    return np.asarray(matrix.toarray() if is_sparse(matrix) else matrix, float)


def zero(matrix: Matrix) -> bool:
    return not (matrix.count_nonzero() if is_sparse(matrix) else matrix.any())


def largest(matrix: Matrix) -> float:
    return float(abs(matrix).max())


def inverse(matrix: Matrix) -> Array | Inverse:
    """Return the inverse as an array, or as an operator for products if ``matrix`` is sparse.

    Raises LinAlgError for a singular array, and NotDefinite for a sparse matrix that is not positive definite.
    """
    return Inverse(matrix) if is_sparse(matrix) else np.linalg.inv(matrix)


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
    """Return the lower band ``(width + 1, n)`` of a matrix in LAPACK storage, one row per diagonal."""
    lower = rows >= columns
    band = np.zeros((width + 1, n), order="F")
    np.add.at(band, ((rows - columns)[lower], columns[lower]), values[lower])
    return band


class Inverse:
    """Solves systems with a symmetric positive definite sparse matrix by a banded Cholesky factor.

    Rows are reordered (reverse Cuthill-McKee) if this makes the band narrower. Raises NotDefinite if the
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
    """Multiplies vectors by ``left``^-1 ``right``, without forming the product of these sparse matrices."""

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


def transition(system: Array, inputs: Array, dt: float) -> tuple[Array, Array, Array]:
    """Return Phi ``(n, n)``, Gamma_0 and Gamma_1 ``(n, m)`` of z_k = Phi z_{k-1} + Gamma_0 u_{k-1} + Gamma_1 u_k.

    These matrices solve z' = ``system`` z + ``inputs`` u exactly if u is linear over the step ``dt`` (s), by one
    matrix exponential (Van Loan 1978). For a held input, add both Gammas. Raises ConfigError on overflow.
    """
    from scipy.linalg import expm  # the import takes a tenth of a second

    n, m = inputs.shape
    matrix = np.zeros((n + 2 * m, n + 2 * m))
    matrix[:n, :n], matrix[:n, n : n + m] = system * dt, inputs * dt
    matrix[n : n + m, n + m :] = np.eye(m)
    with np.errstate(all="ignore"):  # overflow is checked below
        rows = expm(matrix)[:n] if np.isfinite(matrix).all() else matrix[:n] * np.nan
    if not np.isfinite(rows).all():
        raise ConfigError(
            f"the dynamics of a linear system cannot be solved over a step of {dt:g} s, because values overflow"
        )
    held, sloped = rows[:, n : n + m], rows[:, n + m :]
    return rows[:, :n].copy(), held - sloped, sloped.copy()


def massless(mass: Matrix) -> NDArray[np.bool_]:
    """Return a mask ``(n,)``, true for each row of ``mass`` that is zero."""
    return np.asarray(abs(mass).sum(axis=1) == 0.0 if is_sparse(mass) else ~mass.any(axis=1))


def numbered(chosen: NDArray[np.bool_]) -> str:
    return ", ".join(str(index + 1) for index in np.flatnonzero(chosen))


class Followers(NamedTuple):
    """Matrices that give the motion of m massless, unloaded degrees of freedom from the motion of the t others."""

    damped: bool
    velocity: Array
    """Matrix ``(m, t + n)``, used if ``damped``: m velocities from t velocities and all n displacements."""
    static: Array
    """Matrix ``(m, t)``, used unless ``damped``: m displacements or rates from t displacements or rates."""


def followers(mass: Array, damping: Array, stiffness: Array) -> Followers:
    """Return the :class:`Followers` of a structure. Raises ConfigError if the matrices do not determine them."""
    o = massless(mass)
    t = ~o
    held, pulled = stiffness[np.ix_(o, o)], stiffness[np.ix_(o, t)]
    slow, dragged = damping[np.ix_(o, o)], damping[np.ix_(o, t)]
    if np.linalg.eigvalsh(held)[0] <= 0.0:
        raise ConfigError(
            f"structure: the stiffness of massless degrees of freedom ({numbered(o)}) must be positive definite"
        )
    static = np.asarray(-np.linalg.solve(held, pulled), float)
    if not (slow.any() or dragged.any()):
        return Followers(False, np.zeros((len(held), int(t.sum()) + len(mass))), static)
    if np.linalg.matrix_rank(slow) < len(slow):
        raise ConfigError(
            f"structure: only some of the degrees of freedom without mass ({numbered(o)}) have damping; either "
            "all or none of them must have damping"
        )
    flow = np.asarray(-np.linalg.solve(slow, np.hstack([dragged, stiffness[o]])), float)
    return Followers(True, flow, static)


def have_damping(mass: Matrix, damping: Matrix, stiffness: Matrix) -> bool:
    if not is_sparse(mass):
        return followers(mass, damping, stiffness).damped
    o = massless(mass)
    if not is_definite(stiffness[o][:, o]):
        raise ConfigError("structure: the stiffness of massless degrees of freedom must be positive definite")
    if zero(damping[o]):
        return False
    if not is_definite(damping[o][:, o]):
        raise ConfigError(
            "structure: only some of the degrees of freedom without mass have damping; either all or none of them "
            "must have damping"
        )
    return True


def first_order(mass: Array, damping: Array, stiffness: Array) -> tuple[Array, Array, Array]:
    """Return A, B and C of z' = A z + B p, x = C z, with loads p ``(n,)`` N on masses and displacements x (m).

    The states are displacements and velocities of masses, then displacements of damped degrees of freedom without
    mass. Raises ConfigError if :func:`followers` does.
    """
    o = massless(mass)
    n, t = len(mass), ~o
    m, k = int(o.sum()), int(t.sum())
    inverse = np.linalg.inv(mass[np.ix_(t, t)])
    force = np.zeros((k, n))
    force[:, t] = np.eye(k)
    nothing, one = np.zeros((k, k)), np.eye(k)
    if not m:
        system = np.block([[nothing, one], [-inverse @ stiffness, -inverse @ damping]])
        return system, np.vstack([nothing, inverse]), np.hstack([one, nothing])
    rule = followers(mass, damping, stiffness)
    kept = (2 * k + m) if rule.damped else 2 * k
    x, v = np.zeros((n, kept)), np.zeros((n, kept))
    x[t, :k], v[t, k : 2 * k] = one, one
    if rule.damped:
        x[o, 2 * k :] = np.eye(m)
        v[o] = rule.velocity @ np.vstack([v[t], x])
    else:
        x[o], v[o] = rule.static @ x[t], rule.static @ v[t]
    acceleration = -inverse @ (stiffness[t] @ x + damping[t] @ v)
    system = np.vstack([v[t], acceleration, v[o]] if rule.damped else [v[t], acceleration])
    inputs = np.zeros((kept, n))
    inputs[k : 2 * k] = inverse @ force
    return system, inputs, x


def combined_load(structure: Any) -> Array:
    """Return the load ``(n_dof,)`` N on both substructures for a ground acceleration of -1 m/s^2."""
    load: Array = (structure.mass + structure.experimental_mass) @ structure.influence
    return load


def combined(structure: Any) -> tuple[Array, Array, Array]:
    """Return mass (kg), damping (N s/m) and stiffness (N/m) ``(n_dof, n_dof)`` of both substructures together."""
    return (
        structure.mass + structure.experimental_mass,
        structure.damping + structure.experimental_damping,
        structure.stiffness + structure.experimental_stiffness,
    )
