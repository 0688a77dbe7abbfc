# SPDX-License-Identifier: Apache-2.0
"""Steps of a structure in state space, y = (x, v): exact steps, and the classical Runge-Kutta method.

Step matrices are Phi, Gamma_0, Gamma_1 of y_k = Phi y_{k-1} + Gamma_0 p_{k-1} + Gamma_1 p_k for a load p that is
linear over the step (:func:`rths_nodes.mechanics.structure.transition`). The TADC paper (Wang et al.) uses exact
steps (matrix exponential); Phillips & Spencer 2012 use Runge-Kutta.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from rths_nodes.core.arithmetic import Numbers, first, groups, matvec, numbers, put
from rths_nodes.core.kernels import Kernel
from rths_nodes.core.parameters import AnyParams, params, text
from rths_nodes.core.protocols import Structure
from rths_nodes.core.samples import Array
from rths_nodes.mechanics.structure import combined, first_order, transition
from rths_nodes.numerical.integrators.dynamics import (
    Advance,
    Dynamics,
    Moved,
    Moving,
    Prepared,
    State,
    refuse_growth,
    refuse_large,
    start,
)
from rths_nodes.numerical.structures.restoring_forces import Law, is_linear, law_of, refuse_yielding
from rths_nodes.numerical.vectors import Loads, Operand, Vector, Vectors, vectors_of

Matrices = tuple[Array, Array, Array]


def runge_kutta_transition(system: Array, inputs: Array, dt: float) -> Matrices:
    """Return the step matrices of the Runge-Kutta method, exact up to the fourth power of ``dt``."""
    z, identity = dt * system, np.eye(len(system))
    sloped = 0.5 * identity + z @ (identity / 6.0 + z / 24.0)
    held = identity + z @ sloped
    return identity + z @ held, dt * (held - sloped) @ inputs, dt * sloped @ inputs


class Constants(NamedTuple):
    """Matrix of a step, and state at step 0.

    ``matrix`` ``(5 n, 6 n)`` computes x, v and a at the next step, and exact acceleration and restoring force at
    this step. The inputs are x, v, the measured forces of the previous step and of this step, and the external
    forces of this step and of the next step.
    """

    matrix: Array
    n: int  # number of degrees of freedom
    start: tuple[Array]


OfFew = tuple[Sequence[float], Sequence[float], Numbers, Numbers]
"""x, v, the force measured at the last step, and the external force at the beginning of the step."""


FEW = 6
"""Largest number of degrees of freedom for which steps use floats."""


ONE_OF_EACH = ((0.0,),) * 5


def by_numbers(n: int) -> Callable[..., tuple[object, tuple[Sequence[float], ...]]]:
    like = ((0,) * n,) * 5

    def step(
        k: Constants, s: OfFew, measured: Numbers, external: Array, index: int
    ) -> tuple[object, tuple[Sequence[float], ...]]:
        """Perform a step. One matrix product yields motion, accelerations and restoring force."""
        matrix, _, _ = k
        x, v, before, load = s
        if index == 0:  # earlier values are unknown: assume that they are constant
            before, load = measured, first(load, numbers(external[0]))
        after = first(load, numbers(external[index + 1]))
        x, v, a, exact, r = groups(like, matrix, (*x, *v, *before, *measured, *load, *after))
        return (x, v, measured, after), (x, v, a, exact, r)

    return step


def by_floats(
    k: Constants, s: OfFew, measured: float, external: Sequence[float], index: int
) -> tuple[object, Moved]:
    """Perform a step of a structure with one degree of freedom, in floats."""
    matrix, _, _ = k
    (x,), (v,), (before,), (load,) = s
    if index == 0:
        before, load = measured, external[0]
    after = external[index + 1]
    (x,), (v,), (a,), (exact,), (r,) = groups(ONE_OF_EACH, matrix, (x, v, before, measured, load, after))
    return ((x,), (v,), (measured,), (after,)), (x, v, a, exact, r)


def by_arrays(k: Constants, s: tuple[Array], measured: Array, external: Array, index: int) -> tuple[object, Moved]:
    matrix, n, _ = k
    (state,) = s
    two, three, four, five = 2 * n, 3 * n, 4 * n, 5 * n
    if index == 0:
        put(state, two, measured)
    put(state, three, measured)
    put(state, four, external[index])
    put(state, five, external[index + 1])
    result = matvec(matrix, state)
    put(state, 0, result[:two])
    put(state, two, measured)
    return s, (result[:n], result[n:two], result[two:three], result[three:four], result[four:])


def constants_by_matrix(structure: Structure, matrices: Matrices, extrapolated: bool) -> Constants:
    """Return the constants for step ``matrices``. The measured force is held over a step, or ``extrapolated``."""
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


def in_numbers(k: Constants) -> OfFew:
    (state,) = k.start
    x, v, before, load = map(tuple, state.reshape(6, -1)[:4].tolist())
    return x, v, before, load


class ByMatrix(Dynamics):
    """Base of integrators that integrate linear structures with one precomputed step matrix."""

    @staticmethod
    def matrices(params: AnyParams, structure: Structure, dt: float) -> tuple[Matrices, bool]:
        """Return the step matrices, and whether the measured force is extrapolated."""
        raise TypeError("a subclass of ByMatrix must define matrices()")

    @classmethod
    def growth(cls, params: object, structure: Structure, dt: float) -> float:
        return spectral_radius(structure, *cls.matrices(params, structure, dt))

    @classmethod
    def kernel_of(cls, params: AnyParams, structure: Structure) -> Kernel:
        if not is_linear(structure):
            return super().kernel_of(params, structure)
        n = len(structure.mass)
        if n > FEW:
            return Kernel(cls.constants_of, start, by_arrays)
        return Kernel(cls.constants_of, in_numbers, by_floats if n == 1 else by_numbers(n))

    @classmethod
    def constants_of(cls, params: AnyParams, structure: Structure, external_force: Array, dt: float) -> Any:
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

    def recalled(self, memory: Array) -> Sequence[object]:
        if len(self._first) > FEW:
            return (np.concatenate([memory, memory]),)
        return [*map(tuple, memory.reshape(3, -1).tolist()), tuple(self._external[0].tolist())]

    def remembered(self, state: Any) -> Array:
        vector: Array = state[0] if len(self._first) > FEW else np.concatenate(state)
        return vector[: 3 * len(self._first)].copy()


def spectral_radius(structure: Structure, matrices: Matrices, extrapolated: bool) -> float:
    """Return the growth factor per step of the least damped motion.

    A perfect actuator moves the part under test. The force measured at the start of the step is held, or
    ``extrapolated`` from the last step.
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


class Exact(ByMatrix):
    """Exact steps for a load that is linear over the step.

    The measured force is extrapolated or held over the step. A held force reduces damping as much as a delay of
    half a step. Raises ConfigError if the restoring force is nonlinear or the coupled motion is unstable.
    """

    @params
    class Params:
        measured_force: str = text(
            "assumed variation of the measured force over the step", "held", ("held", "extrapolated")
        )

    def refuse(self, params: Params, structure: Structure, dt: float) -> None:
        refuse_large("exact", structure, "the step matrices of the method are full")
        refuse_yielding("exact", structure)
        self.force_age = 0.0 if params.measured_force == "extrapolated" else 0.5
        refuse_growth("exact", lambda dt: self.growth(params, structure, dt), dt)

    @staticmethod
    def matrices(params: Params, structure: Structure, dt: float) -> tuple[Matrices, bool]:
        system, inputs, _ = first_order(structure.mass, structure.damping, structure.stiffness)
        return transition(system, inputs, dt), params.measured_force == "extrapolated"


RungeKuttaConstants = tuple[Operand, Operand, object, float]


class RungeKutta(ByMatrix):
    """Runge-Kutta method with four stages per step.

    The external force is interpolated and the measured force extrapolated, both linearly. The numerical
    substructure is accurate to fourth order for a load that is linear within each step. The accuracy is of second
    order for any other load or with a specimen. Raises ConfigError if the coupled motion is unstable.
    """

    @params
    class Params:
        pass

    def refuse(self, params: Params, structure: Structure, dt: float) -> None:
        reason = "the step matrices of the method are full, and the method is stable only for short steps"
        refuse_large("runge_kutta", structure, reason)
        refuse_growth("runge_kutta", lambda dt: self.growth(params, structure, dt), dt)

    @staticmethod
    def matrices(params: Params, structure: Structure, dt: float) -> tuple[Matrices, bool]:
        system, inputs, _ = first_order(structure.mass, structure.damping, structure.stiffness)
        return runge_kutta_transition(system, inputs, dt), True

    @staticmethod
    def advancing(vectors: Vectors, law: Law) -> Advance:
        product, force = vectors.product, law.force

        def rate(k: RungeKuttaConstants, memory: object, load: Vector, x: Vector, v: Vector) -> Vector:
            mass_inverse, damping_per_mass, of_force, _ = k
            _, r = force(of_force, memory, x)
            return product(mass_inverse, load - r) - product(damping_per_mass, v)

        def advance(
            k: RungeKuttaConstants,
            s: State,
            exact: Vector,
            before: Vector,
            measured: Vector,
            external: Loads,
            index: int,
        ) -> Moving:
            _, _, _, h = k
            x, v, _, _, _, _, _, of_method, memory = s
            half, sixth = 0.5 * h, h / 6.0
            load = external[index] - measured
            end = external[index + 1] - 2.0 * measured + before
            middle = 0.5 * (load + end)
            v2 = v + half * exact
            a2 = rate(k, memory, middle, x + half * v, v2)
            v3 = v + half * a2
            a3 = rate(k, memory, middle, x + half * v2, v3)
            v4 = v + h * a3
            a4 = rate(k, memory, end, x + h * v3, v4)
            x = x + sixth * (v + 2.0 * (v2 + v3) + v4)
            return of_method, x, v + sixth * (exact + 2.0 * (a2 + a3) + a4), exact

        return advance

    @classmethod
    def prepared(cls, params: Params, structure: Structure, dt: float, a: Vector) -> Prepared:
        vectors, law = vectors_of(structure.mass), law_of(structure.restoring_force)
        per_mass = np.linalg.inv(structure.mass) @ structure.damping
        return (vectors.inverse(structure.mass), vectors.operand(per_mass), law.constants, dt), ()
