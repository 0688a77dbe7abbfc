# SPDX-License-Identifier: Apache-2.0
"""A linear structure in state space, y = (x, v), and the stability of its steps with a specimen behind it.

Step matrices are Phi, Gamma_0, Gamma_1 of y' = Phi y + Gamma_0 p + Gamma_1 p' for a load that runs straight from p
to p', as :func:`rths_nodes.mechanics.discretisation.transition` gives them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rths_nodes.core.arithmetic import groups, matvec, put
from rths_nodes.core.kernels import Kernel
from rths_nodes.core.protocols import Structure
from rths_nodes.core.samples import Array
from rths_nodes.mechanics.structure import combined
from rths_nodes.numerical.integrators.dynamics import Dynamics, start
from rths_nodes.numerical.structures.linear_force import is_linear
from rths_nodes.numerical.vectors import ONE, vectors_of

Matrices = tuple[Array, Array, Array]


def state_space(structure: Structure) -> tuple[Array, Array]:
    """A ``(2 n, 2 n)`` and B ``(2 n, n)`` of dy/dt = A y + B p for the numerical substructure; p in N."""
    n = len(structure.influence)
    inverse = np.linalg.inv(structure.mass)
    nothing, identity = np.zeros((n, n)), np.eye(n)
    system = np.block([[nothing, identity], [-inverse @ structure.stiffness, -inverse @ structure.damping]])
    return system, np.vstack([nothing, inverse])


def runge_kutta_transition(system: Array, inputs: Array, dt: float) -> Matrices:
    """Step matrices of the classical Runge-Kutta method: the exact ones as far as the fourth power of ``dt``."""
    z, identity = dt * system, np.eye(len(system))
    sloped = 0.5 * identity + z @ (identity / 6.0 + z / 24.0)
    held = identity + z @ sloped
    return identity + z @ held, dt * (held - sloped) @ inputs, dt * sloped @ inputs


class Constants(NamedTuple):
    """All that a step makes of what is known, and what is known at step 0.

    ``matrix`` ``(5 n, 6 n)`` gives x', v', a', exact acceleration and restoring force of what is known: x, v, the
    measured force before and now, the external force now and next.
    """

    matrix: Array
    n: int  # degrees of freedom
    start: tuple[Array]


FEW = 6
"""Degrees of freedom up to which a compiler keeps all that a step gives beside its processor."""


def put_one(array: Array, place: int, value: float) -> None:
    """Put a number to its ``place``."""
    array[place] = value


def in_turn(matrix: Array, known: Array, n: int) -> Any:
    """The product, cut into vectors of ``n`` numbers."""
    found = matvec(matrix, known)
    two, three, four = 2 * n, 3 * n, 4 * n
    return found[:n], found[n:two], found[two:three], found[three:four], found[four:]


def written_out(n: int) -> Callable[..., Any]:
    """The same for ``n`` degrees of freedom, by tuples where it is compiled."""
    like = ((0,) * n,) * 5

    def product(matrix: Array, known: Array, _: int) -> Any:
        return groups(like, matrix, known)

    return product


def by_matrix(
    at: Callable[[Any, int], Any], product: Callable[..., Any] = in_turn, fill: Callable[..., None] = put
) -> Callable[..., Any]:
    """The step of a linear structure by one matrix; see ``stepped.py`` for what it is given.

    ``product`` gives x', v', a', exact acceleration and restoring force; ``fill`` puts a vector, or a float of one
    degree of freedom, to its place.
    """

    def step(k: Constants, s: tuple[Array], measured: Any, external: Any, index: int) -> tuple[Any, Any]:
        matrix, n, _ = k
        (known,) = s
        two, three, four, five = 2 * n, 3 * n, 4 * n, 5 * n
        if index == 0:  # nothing is known of the time before: as if it had always been so
            fill(known, two, measured)
        fill(known, three, measured)
        fill(known, four, at(external, index))
        fill(known, five, at(external, index + 1))
        x, v, a, exact, r = product(matrix, known, n)
        put(known, 0, x)
        put(known, n, v)
        fill(known, two, measured)
        return s, (x, v, a, exact, r)

    return step


def in_floats(step: Callable[..., Any]) -> Callable[..., Any]:
    """A ``step`` that gives arrays, for one degree of freedom."""

    def of_one(k: Any, s: Any, measured: float, external: Any, index: int) -> tuple[Any, Any]:
        s, (x, v, a, exact, r) = step(k, s, measured, external, index)
        return s, (float(x[0]), float(v[0]), float(a[0]), float(exact[0]), float(r[0]))

    return of_one


def constants_by_matrix(structure: Structure, matrices: Matrices, extrapolated: bool) -> Constants:
    """Constants of steps by ``matrices``; the measured force is held over the step, or ``extrapolated``."""
    phi, before, now = matrices
    n = len(phi) // 2
    slope = now if extrapolated else np.zeros_like(now)
    moved = np.hstack([phi, slope, -(before + now) - slope, before, now])
    inverse, nothing, one = np.linalg.inv(structure.mass), np.zeros((n, n)), np.eye(n)
    rest = inverse @ np.hstack([structure.stiffness, structure.damping])
    next_load = inverse @ np.hstack([nothing, nothing, one, -2.0 * one, nothing, one])
    load = inverse @ np.hstack([nothing, nothing, nothing, -one, one, nothing])
    restoring = np.hstack([structure.stiffness, *(5 * [nothing])])
    exact = load - np.hstack([rest, *(4 * [nothing])])
    matrix = np.vstack([moved, next_load - rest @ moved, exact, restoring])
    return Constants(np.asfortranarray(matrix), n, (np.zeros(6 * n),))


class ByMatrix(Dynamics):
    """An integrator whose steps of a linear structure are one matrix, made beforehand."""

    @staticmethod
    def matrices(params: Any, structure: Structure, dt: float) -> tuple[Matrices, bool]:
        """Step matrices, and whether the measured force is extrapolated. Raises TypeError where there are none."""
        raise TypeError("an integrator by a matrix does not say which")

    @classmethod
    def growth(cls, params: Any, structure: Structure, dt: float) -> float:
        """Growth in a step ``dt`` (s) with a perfect actuator before the part under test."""
        return spectral_radius(structure, *cls.matrices(params, structure, dt))

    @classmethod
    def kernel_of(cls, params: Any, structure: Structure) -> Kernel:
        """The kernel by one matrix; that of the method for a structure that yields."""
        if not is_linear(structure):
            return super().kernel_of(params, structure)
        vectors = vectors_of(structure.mass)
        if vectors is ONE:
            return Kernel(cls.constants_of, start, in_floats(by_matrix(vectors.at, written_out(1), put_one)))
        n = len(structure.mass)
        return Kernel(cls.constants_of, start, by_matrix(vectors.at, written_out(n) if n <= FEW else in_turn))

    @classmethod
    def constants_of(cls, params: Any, structure: Structure, external_force: Array, dt: float) -> Any:
        """Constants of either kernel."""
        if not is_linear(structure):
            return super().constants_of(params, structure, external_force, dt)
        return constants_by_matrix(structure, *cls.matrices(params, structure, dt))

    @property
    def in_tuples(self) -> bool:  # type: ignore[override]
        return is_linear(self.structure) and 1 < len(self._first) <= FEW

    def _at_rest(self, constants: Any) -> Array:
        if not is_linear(self.structure):
            return super()._at_rest(constants)
        load: Array = np.linalg.inv(self.structure.mass) @ self._external[0]
        return load

    def recalled(self, memory: Array) -> Any:
        return (np.concatenate([memory, memory]),)

    def remembered(self, state: Any) -> Array:
        known: Array = state[0]
        return known[: len(known) // 2].copy()


def spectral_radius(structure: Structure, matrices: Matrices, extrapolated: bool) -> float:
    """Growth per step of the slowest to fade motion, with a perfect actuator before the part under test.

    The measured force is that of the start of the step, held or ``extrapolated`` from the step before.
    """
    phi, before, now = matrices
    mass, damping, stiffness = combined(structure)
    state = np.hstack([-stiffness, -damping])
    force = structure.experimental_mass @ np.linalg.solve(mass, state)
    force += np.hstack([structure.experimental_stiffness, structure.experimental_damping])
    slope = now @ force if extrapolated else np.zeros_like(phi)
    size = len(phi)
    step = np.block([[phi - (before + now) @ force - slope, slope], [np.eye(size), np.zeros((size, size))]])
    return float(np.abs(np.linalg.eigvals(step)).max())
