# SPDX-License-Identifier: Apache-2.0
"""Models of a loading system, defined by its inverse.

The command is the sum of the matrices G_p times the p-th derivatives of the motion. The inverse, G_FF(s), is thus
a matrix of polynomials of low degree (Phillips & Spencer 2012, Eqs. 2.7, 2.8). The loading system itself, which
feedback control needs (Eq. 2.9), has many poles and zeros. The inverse is stored, and a minimal state space is
derived from it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.frequency_response import Complex, Frequencies
from rths_nodes.core.samples import Array

DERIVATIVES = ("displacement", "velocity", "acceleration", "jerk")
"""Names of the derivatives of the motion, by power of s."""
UNITS = ("1", "s", "s^2", "s^3")

ORDER = len(DERIVATIVES) - 1

SINGULAR = 1e-9
"""Ratio of the smallest to the largest singular value below which a matrix counts as singular."""


class StateSpace(NamedTuple):
    """State space z' = A z + B u, x = C z, from commands u (m) to displacements x (m)."""

    system: Array
    inputs: Array
    outputs: Array

    def poles(self) -> Complex:
        """Return the eigenvalues of A, rad/s, slowest first."""
        values = np.linalg.eigvals(self.system).astype(np.complex128)
        return values[np.argsort(np.abs(values), kind="stable")]

    def response(self, s: Frequencies) -> Complex:
        """Return the response ``(m, n_axes, n_axes)`` at complex frequencies ``s`` ``(m,)``, rad/s."""
        resolvent = np.asarray(s)[:, None, None] * np.eye(len(self.system)) - self.system
        return np.asarray(self.outputs @ np.linalg.solve(resolvent, self.inputs.astype(np.complex128)[None]))


def inverse_response(coefficients: Array, s: Frequencies) -> Complex:
    """Return the inverse ``(m, n, n)`` at complex frequencies ``s`` ``(m,)``, rad/s.

    ``coefficients`` are ``(powers, n, n)``.
    """
    powers = np.asarray(s, np.complex128)[:, None] ** np.arange(len(coefficients))
    return np.tensordot(powers, coefficients, 1)


def ahead(coefficients: Array, lead: float) -> Array:
    """Return the coefficients for the motion ``lead`` (s) later, from a Taylor series up to the jerk.

    The shape does not change.
    """
    shifted = np.zeros_like(coefficients)
    for power, matrix in enumerate(coefficients):
        for shift in range(len(coefficients) - power):
            shifted[power + shift] += lead**shift / math.factorial(shift) * matrix
    return shifted


def diagonal(coefficients: Array) -> Array:
    return coefficients * np.eye(coefficients.shape[1])


def degrees(coefficients: Array) -> NDArray[np.intp]:
    """Return the order of the highest derivative in each command, ``(n,)``."""
    used = np.abs(coefficients).max(axis=2) > 0.0
    return np.where(used.any(axis=0), len(used) - 1 - np.argmax(used[::-1], axis=0), 0)


def leading(coefficients: Array) -> Array:
    """Return the coefficients ``(n, n)`` of the highest derivative in each command."""
    rows = degrees(coefficients)
    return coefficients[rows, np.arange(len(rows))]


def check(coefficients: Array, path: str) -> None:
    """Raise ConfigError if the model is unstable, or if its leading or static coefficients are singular."""
    rows = degrees(coefficients)
    name = DERIVATIVES[int(rows.max())]
    if is_singular(leading(coefficients)):
        raise ConfigError(
            f"{path}.{name}: is singular (with the rows of lower degree), so that the axes are not separable at "
            "high frequencies and the model has no state space"
        )
    check_static(coefficients, path)
    if rows.min() > 0:
        check_stable(state_space(coefficients), path)


def check_static(coefficients: Array, path: str) -> None:
    """Raise ConfigError for an inverse whose static part is singular.

    An inverse that is used directly need not be a physical model beyond the fitted frequencies.
    """
    if is_singular(coefficients[0]):
        raise ConfigError(f"{path}.{DERIVATIVES[0]}: is singular, so that the axes are not separable at rest")


def check_stable(model: StateSpace, path: str) -> None:
    worst = max(model.poles(), key=lambda pole: float(pole.real))
    if not worst.real < 0.0:
        raise ConfigError(
            f"{path}: the model is not stable, because the pole {worst:.4g} 1/s does not have a negative real part"
        )


def is_singular(matrix: Array) -> bool:
    """Return whether ``matrix`` is singular, independently of the units of its rows."""
    sizes = np.abs(matrix).max(axis=1, keepdims=True)
    if not sizes.all():
        return True
    singular = np.linalg.svd(matrix / sizes, compute_uv=False)
    return bool(singular[-1] < SINGULAR * singular[0])


def state_space(coefficients: Array) -> StateSpace:
    """Return the minimal state space of the loading system, balanced for Riccati solvers.

    With the matrix L of :func:`leading`, a chain of integrators leads from each command to a row of L x. Its
    length is the degree of the row. The lower coefficients feed back into the integrators (observer form; Kailath,
    Linear Systems, 1980, section 6.4). ``coefficients`` must pass :func:`check`, with rows of degree 1 or more.
    """
    rows = degrees(coefficients)
    n, count = len(rows), int(rows.sum())
    last = np.cumsum(rows) - 1  # indices of the states L x
    from_leading = np.linalg.inv(leading(coefficients))
    system, inputs, outputs = np.zeros((count, count)), np.zeros((count, n)), np.zeros((n, count))
    for axis, (degree, end) in enumerate(zip(rows, last, strict=True)):
        first = end - degree + 1
        inputs[first, axis] = 1.0
        for link in range(degree):
            system[first + link, last] -= coefficients[link, axis] @ from_leading
            if link:
                system[first + link, first + link - 1] += 1.0
    outputs[:, last] = from_leading
    return balanced(StateSpace(system, inputs, outputs))


def balanced(model: StateSpace) -> StateSpace:
    """Return the same system with states of comparable size, scaled exactly by powers of two."""
    from scipy.linalg import matrix_balance  # the import takes a tenth of a second

    speed = max(1.0, float(np.abs(model.poles()).max()))
    unit = 2.0 ** round(math.log2(speed))
    _, (scale, _) = matrix_balance(model.system / unit, permute=False, separate=True)
    system = model.system / scale[:, None] * scale
    inputs, outputs = model.inputs / scale[:, None], model.outputs * scale
    # the common factor of all states is free: give commands and displacements equal weight
    even = 2.0 ** round(0.5 * math.log2(np.linalg.norm(outputs) / np.linalg.norm(inputs / unit)))
    return StateSpace(system, inputs * even, outputs / even)
