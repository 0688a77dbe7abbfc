# SPDX-License-Identifier: Apache-2.0
"""Viscous damping of a structure from damping ratios, and the modes of a structure.

Rayleigh and modal damping follow Chopra, Dynamics of Structures, chapter 11, and use the whole structure.
"""

from __future__ import annotations

import math

import numpy as np

from rths_nodes.core.errors import ConfigError, show
from rths_nodes.core.parameters import matrix, params, vector
from rths_nodes.core.samples import Array
from rths_nodes.mechanics.structure import Matrix as Kept
from rths_nodes.mechanics.structure import NotDefinite, dense, followers, is_sparse, lowest_modes, massless

TABLE = {
    "rayleigh": ":Rayleigh",
    "modal": ":Modal",
    "matrix": ":Matrix",
}


RIGID = 1e-7
"""Smallest nonzero frequency, relative to the highest. Lower values are rounding errors of rigid-body modes."""
SMALL = 100
"""Largest number of degrees of freedom with mass for which modes of a sparse structure are always computed with
full matrices."""


def modes(mass: Array, stiffness: Array) -> tuple[Array, Array]:
    """Return the undamped circular frequencies ``(n,)`` rad/s, ascending, and mode shapes ``(n_dof, n)``.

    Shapes are scaled to a modal mass of 1 kg. Both matrices are symmetric. n is the number of degrees of freedom
    with mass, for which ``mass`` (kg) is positive definite.
    """
    some = ~massless(mass)
    if some.all():
        return _modes(mass, stiffness)
    nothing = np.zeros_like(mass)
    static = followers(mass, nothing, stiffness).static
    shape = np.zeros((len(mass), int(some.sum())))
    shape[some], shape[~some] = np.eye(int(some.sum())), static
    omega, vectors = _modes(mass[np.ix_(some, some)], shape.T @ stiffness @ shape)
    return omega, shape @ vectors


def _modes(mass: Array, stiffness: Array) -> tuple[Array, Array]:
    root = np.linalg.inv(np.linalg.cholesky(mass))
    squares, vectors = np.linalg.eigh(root @ stiffness @ root.T)
    return np.sqrt(np.maximum(squares, 0.0)), root.T @ vectors


def frequencies_and_ratios(mass: Array, damping: Array, stiffness: Array) -> tuple[Array, Array]:
    """Return the natural frequencies (Hz), ascending, and the viscous damping ratios, ``(n_dof,)`` each.

    Both follow from the complex eigenvalues s = -zeta w +- j w sqrt(1 - zeta^2), for any damping matrix. For an
    overdamped mode the two real eigenvalues satisfy s1 s2 = w^2 and s1 + s2 = -2 zeta w, and have the same shape.
    """
    nothing, identity = np.zeros_like(mass), np.eye(len(mass))
    inverse = np.linalg.inv(mass)
    values, shapes = np.linalg.eig(np.block([[nothing, identity], [-inverse @ stiffness, -inverse @ damping]]))
    upper = values[values.imag > 0.0]
    real = values.imag == 0.0
    slow, fast = _paired(values[real].real, shapes[: len(mass), real].real)
    omega = np.concatenate([np.abs(upper), np.sqrt(np.maximum(slow * fast, 0.0))])
    omega[omega <= RIGID * omega.max()] = 0.0
    decay = np.concatenate([-upper.real, -0.5 * (slow + fast)])
    order = np.argsort(omega, kind="stable")
    ratios = np.divide(decay, omega, out=np.zeros_like(omega), where=omega > 0.0)
    return omega[order] / (2.0 * math.pi), ratios[order]


def _paired(values: Array, shapes: Array) -> tuple[Array, Array]:
    """Return the real eigenvalues of overdamped modes, slow and fast, paired by their ``shapes`` ``(n, m)``."""
    sizes = np.linalg.norm(shapes, axis=0)
    alike, left, pairs = np.abs(shapes.T @ shapes) / np.outer(sizes, sizes), np.argsort(values).tolist(), []
    while len(left) > 1:
        fast = left.pop(0)
        slow = max(left, key=lambda other: alike[fast, other])
        left.remove(slow)
        pairs.append((values[slow], values[fast]))
    slow_ones, fast_ones = np.array(pairs).reshape(-1, 2).T
    return slow_ones, fast_ones


def some_modes(mass: Kept, stiffness: Kept, count: int) -> tuple[Array, Array]:
    """Return at most ``count`` of the lowest modes, in the form of :func:`modes`."""
    if not is_sparse(mass) or max(SMALL, 2 * count) >= int((~massless(mass)).sum()):
        omega, shapes = modes(dense(mass), dense(stiffness))
        return omega[:count], shapes[:, :count]
    try:
        return lowest_modes(mass, stiffness, count)
    except NotDefinite:
        raise ConfigError(
            "structure: the stiffness must be positive definite, but parts of the structure can move freely"
        ) from None


class Rayleigh:
    """Rayleigh damping C = a M + b K from ratios in two modes or at two frequencies: zeta = (a / w + b w) / 2."""

    @params
    class Params:
        ratios: tuple[float, ...] = vector(
            "damping ratios in the two modes", "1", (0.02, 0.02), at_least=0.0, less_than=1.0
        )
        modes: tuple[float, ...] = vector(
            "numbers of the two modes; the lowest mode has number 1", "1", (1.0, 2.0), at_least=1.0, at_most=1e6
        )
        frequencies: tuple[float, ...] | None = vector(
            "two frequencies at which the damping ratios apply, instead of modes", "Hz", None, more_than=0.0
        )

        def validate(self, path: str) -> None:
            if len(self.ratios) != 2:
                raise ConfigError(f"{path}.ratios = {show(self.ratios)}: must be 2 numbers, one for each mode")
            if len(set(self.modes)) != 2 or len(self.modes) != 2 or any(mode % 1.0 for mode in self.modes):
                raise ConfigError(f"{path}.modes = {show(self.modes)}: must be 2 different whole numbers")
            if self.frequencies is not None and (len(self.frequencies) != 2 or len(set(self.frequencies)) != 2):
                raise ConfigError(
                    f"{path}.frequencies = {show(self.frequencies)}: must be 2 different numbers in Hz"
                )

    def __init__(self, params: Params) -> None:
        self._p = params

    def coefficients(self, mass: Kept, stiffness: Kept) -> tuple[float, float]:
        """Return a (1/s) and b (s). Raises ConfigError if the structure lacks one of the modes."""
        if self._p.frequencies is not None:
            return self._with_ratios_at(2.0 * math.pi * np.array(self._p.frequencies))
        first, second = (int(mode) - 1 for mode in self._p.modes)
        omega = some_modes(mass, stiffness, 1 + max(first, second))[0]
        if max(first, second) >= len(omega):
            raise ConfigError(
                f"structure.damping.modes = {show(self._p.modes)}: must be <= {len(omega)}, the number of modes"
            )
        pair = omega[[first, second]]
        if not 0.0 < pair[0] != pair[1] > 0.0:
            raise ConfigError("structure.damping.modes: the frequencies of the two modes must be > 0 and differ")
        return self._with_ratios_at(pair)

    def _with_ratios_at(self, pair: Array) -> tuple[float, float]:
        a, b = np.linalg.solve(np.array([1.0 / pair, pair]).T / 2.0, np.array(self._p.ratios))
        return float(a), float(b)

    def matrix(self, mass: Kept, stiffness: Kept) -> Kept:
        a, b = self.coefficients(mass, stiffness)
        return a * mass + b * stiffness


class Modal:
    """Modal damping with a ratio for each mode: C = M (sum of 2 zeta_i w_i phi_i phi_i^T) M.

    w_i is the circular frequency and phi_i the shape of mode i, with a modal mass of 1 kg.
    """

    @params
    class Params:
        ratios: tuple[float, ...] = vector(
            "damping ratio of each mode, lowest mode first, or one ratio for all modes",
            "1",
            (0.02,),
            at_least=0.0,
            less_than=1.0,
        )

    def __init__(self, params: Params) -> None:
        self._ratios = params.ratios

    def matrix(self, mass: Kept, stiffness: Kept) -> Array:
        if is_sparse(mass):
            raise ConfigError(
                "structure.damping.type = 'modal': must be rayleigh or matrix for a sparse structure, because "
                f"the modal damping matrix of {mass.shape[0]} rows is full"
            )
        omega, shapes = modes(mass, stiffness)
        if len(self._ratios) not in (1, len(omega)):
            raise ConfigError(
                f"structure.damping.ratios = {show(self._ratios)}: must be 1 number for all modes, or "
                f"{len(omega)} numbers, one for each mode"
            )
        weighted = mass @ shapes
        damping: Array = (weighted * (2.0 * np.array(self._ratios) * omega)) @ weighted.T
        return damping


class Matrix:
    """Damping defined by its matrix C."""

    @params
    class Params:
        matrix: tuple[tuple[float, ...], ...] = matrix("damping matrix of the whole structure", "N s/m")

    def __init__(self, params: Params) -> None:
        self._matrix = np.array(params.matrix)

    def matrix(self, mass: Kept, stiffness: Kept) -> Kept:
        if self._matrix.shape != mass.shape or not np.allclose(self._matrix, self._matrix.T):
            raise ConfigError(
                f"structure.damping.matrix: must be a symmetric {mass.shape[0]} x {mass.shape[0]} matrix, in N s/m"
            )
        if is_sparse(mass):
            from scipy.sparse import csr_array

            return csr_array(self._matrix)
        return self._matrix
