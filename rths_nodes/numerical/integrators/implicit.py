# SPDX-License-Identifier: Apache-2.0
"""Implicit methods: Newmark's method, solved directly, and the HHT-alpha method with a fixed number of iterations.

Newmark 1959, in the form of the multi-axial benchmark (Condori Uribe et al., Frontiers in Built Environment,
2023):

    (K + 2/dt C + 4/dt^2 M) x_1 = p_1 - f_0 + M (4/dt^2 x_0 + 4/dt v_0 + a_0) + C (2/dt x_0 + v_0)
    v_1 = 2/dt (x_1 - x_0) - v_0,   a_1 = 2/dt (v_1 - v_0) - a_0

The indices 0 and 1 are the beginning and the end of the step. p is the external and f the measured force. Masses
can be zero.

HHT-alpha in real-time tests: Jung & Shing 2006, Mercan & Ricles 2007. Comparison with the CR algorithm: Chen &
Ricles 2010.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rths_nodes.core.arithmetic import matvec, place
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.kernels import Kernel
from rths_nodes.core.parameters import TestContext, integer, number, params
from rths_nodes.core.protocols import Structure
from rths_nodes.core.samples import Array
from rths_nodes.mechanics.structure import Inverse, diagonal, have_damping, is_sparse, massless, product, zero
from rths_nodes.numerical.integrators.dynamics import (
    Advance,
    Constants,
    Dynamics,
    Equivalent,
    Moved,
    Moving,
    Prepared,
    State,
    damping_and_stiffness,
    refuse_growth,
    start,
)
from rths_nodes.numerical.reductions import CraigBampton, Reduced
from rths_nodes.numerical.structures.restoring_forces import Law, refuse_yielding
from rths_nodes.numerical.vectors import ONE, Loads, Multiplier, Operand, Vector, Vectors, vectors_of

JUDGED = 60


Rates = tuple[Array, Array, Array, Array]


def rates_of(structure: Structure, dt: float) -> Rates:
    """Return the coefficients p, q, s and t of :func:`rates` for a step ``dt`` (s).

    Degrees of freedom with mass have the coefficients 2/dt, 1, 2/dt and 1. Without mass, s = 1/dt and t = 0.
    Without mass and damping, p = s = 1/dt and q = t = 0.
    """
    none = massless(structure.mass)
    undamped = none & (not none.any() or not have_damping(structure.mass, structure.damping, structure.stiffness))
    return (
        np.where(undamped, 1.0 / dt, 2.0 / dt),
        np.where(undamped, 0.0, 1.0),
        np.where(none, 1.0 / dt, 2.0 / dt),
        np.where(none, 0.0, 1.0),
    )


def rates(k: Rates, change: Array, v: Array, a: Array) -> tuple[Array, Array]:
    """Return the velocity v_1 = p ``change`` - q v and the acceleration s (v_1 - v) - t a after a step."""
    p, q, s, t = k
    velocity = p * change - q * v
    return velocity, s * (velocity - v) - t * a


def motion_of(structure: Structure, dt: float) -> tuple[Array, Array]:
    """Return the matrices of a step ``dt`` (s) that yield the displacement x_1.

    The first matrix ``(n, 3 n)`` multiplies (x_0, v_0, a_0); the second matrix ``(n, n)`` multiplies p_1 - f_0.
    """
    mass, damping = structure.mass, structure.damping
    dynamic = structure.stiffness + 2.0 / dt * damping + 4.0 / dt**2 * mass
    per_force = np.asarray(np.linalg.inv(dynamic), float)
    motion = np.hstack([4.0 / dt**2 * mass + 2.0 / dt * damping, 4.0 / dt * mass + damping, mass])
    return per_force @ motion, per_force


class Direct(NamedTuple):
    """Constants of Newmark's method for a structure with full matrices.

    The matrices ``onward`` and ``accelerated`` ``(n, 4 n)`` multiply the vector of x, v, a and the net force, i.e.
    external minus measured force. ``onward`` yields the next displacement from the external force of the next
    step. ``accelerated`` yields the exact acceleration from the external force of this step.
    """

    onward: Array
    accelerated: Array
    stiffness: Array
    rates: Rates
    n: int  # number of degrees of freedom
    start: tuple[Array]


def direct_step(
    k: Direct, state: tuple[Array], measured: Vector, external: Loads, index: int
) -> tuple[tuple[Array], tuple[Array, ...]]:
    """Perform a Newmark step, with a single matrix product for the displacement."""
    onward, accelerated, stiffness, of_rates, n, _ = k
    (flat,) = state
    vectors = flat.reshape(4, n)
    vectors[3] = external[index] - measured
    exact, restoring = matvec(accelerated, flat), matvec(stiffness, vectors[0])
    vectors[3] = external[index + 1] - measured
    x = matvec(onward, flat)
    velocity, acceleration = rates(of_rates, x - vectors[0], vectors[1], vectors[2])
    vectors[0] = x
    vectors[1] = velocity
    vectors[2] = acceleration
    return state, (x, velocity, acceleration, exact, restoring)


def direct_step_of_one(
    k: Direct, s: tuple[Array], measured: float, external: Sequence[float], index: int
) -> tuple[object, Moved]:
    """Perform a Newmark step of a single degree of freedom, and return floats instead of arrays."""
    s, (x, v, a, exact, r) = direct_step(k, s, measured, external, index)
    return s, (float(x[0]), float(v[0]), float(a[0]), float(exact[0]), float(r[0]))


class Large(NamedTuple):
    """Constants for a sparse structure. ``without`` marks degrees of freedom without mass; ``dt`` is in s."""

    mass: Multiplier
    damping: Multiplier
    stiffness: Multiplier
    solver: Inverse  # K + 2/dt C + 4/dt^2 M
    accelerated: Inverse
    without: NDArray[np.bool_]
    rates: Rates
    dt: float
    start: tuple[Array, Array, Array]


def large_step(
    k: Large, state: tuple[Array, Array, Array], measured: Array, external: Array, index: int
) -> tuple[object, Moved]:
    """Perform a Newmark step of a sparse structure, with sparse products and solvers."""
    mass, damping, stiffness, solver, accelerated, without, of_rates, dt, _ = k
    x, v, a = state
    r = stiffness.dot(x)
    exact = accelerated.dot(external[index] - damping.dot(v) - r - measured)
    exact[without] = a[without]
    slope = 2.0 / dt * x + v
    moved = mass.dot(2.0 / dt * (slope + v) + a)
    now = solver.dot(external[index + 1] - measured + moved + damping.dot(slope))
    velocity, acceleration = rates(of_rates, now - x, v, a)
    return (now, velocity, acceleration), (now, velocity, acceleration, exact, r)


class Newmark(Dynamics):
    """Constant average acceleration, solved directly for a linear structure. Masses can be zero.

    The only cause of a stability limit is the delay of the measured force by one step. Rates of massless degrees
    of freedom would oscillate without decay. Therefore the acceleration of these degrees of freedom is the
    change of the velocity divided by dt. Without damping, their velocity is the change of the displacement divided
    by dt. Raises ConfigError if the restoring force is nonlinear or the coupled motion is unstable.
    """

    ABOUT = (
        "Implicit Newmark method (gamma = 1/2, beta = 1/4): constant average acceleration, with the last measured "
        "force."
    )
    SOURCES = ("newmark_1959",)

    takes_massless = True
    memory = ("displacement", "velocity", "acceleration")
    force_age = 1.0

    @params
    class Params:
        pass

    def refuse(self, params: Params, structure: Structure, dt: float) -> None:
        refuse_yielding("newmark", structure)
        if is_sparse(structure.mass):
            _refuse_growth_of_reduced(structure, dt)
        else:
            refuse_growth("newmark", lambda dt: growth(structure, dt), dt)

    @classmethod
    def kernel_of(cls, params: Params, structure: Structure) -> Kernel:
        if is_sparse(structure.mass):
            return Kernel(cls.constants_of, start, large_step)
        one = vectors_of(structure.mass) is ONE
        return Kernel(cls.constants_of, start, direct_step_of_one if one else direct_step)

    @classmethod
    def constants_of(
        cls, params: Params, structure: Structure, external_force: Array, dt: float
    ) -> Direct | Large:
        n, of_rates = len(structure.influence), rates_of(structure, dt)
        if is_sparse(structure.mass):
            mass, damping, stiffness = structure.mass, structure.damping, structure.stiffness
            solver = Inverse(stiffness + 2.0 / dt * damping + 4.0 / dt**2 * mass)
            without = massless(mass)
            accelerated = Inverse(mass + diagonal(without.astype(float)))  # 1 kg where there is no mass
            a = accelerated.dot(external_force[0])
            a[without] = 0.0
            multiplied = (product(mass), product(damping), product(stiffness))
            return Large(*multiplied, solver, accelerated, without, of_rates, dt, (np.zeros(n), np.zeros(n), a))
        inverse, none = _of_masses(structure.mass), np.diag(massless(structure.mass).astype(float))
        rest = inverse @ np.hstack([structure.stiffness, structure.damping])
        onward = np.asfortranarray(np.hstack(motion_of(structure, dt)))
        exact = np.asfortranarray(np.hstack([-rest, none, inverse]))
        state = np.concatenate([np.zeros(2 * n), inverse @ external_force[0], np.zeros(n)])
        return Direct(onward, exact, np.asfortranarray(structure.stiffness), of_rates, n, (state,))

    def _at_rest(self, constants: Direct | Large) -> Array:
        if isinstance(constants, Large):
            return constants.start[2]
        n = constants.n
        return constants.start[0][2 * n : 3 * n].copy()

    def recalled(self, memory: Array) -> Sequence[object]:
        return (np.concatenate([memory, np.zeros(len(self._first))]),)

    def remembered(self, state: Any) -> Array:
        vectors: Array = state[0]
        return vectors[: 3 * len(self._first)].copy()


def _of_masses(mass: Array) -> Array:
    some = ~massless(mass)
    accelerations, kept = np.zeros_like(mass), np.ix_(some, some)
    accelerations[kept] = np.linalg.inv(mass[kept])
    return accelerations


def growth(structure: Structure, dt: float) -> float:
    """Return the growth factor per step ``dt`` (s) if a perfect actuator moves the part under test."""
    n = len(structure.influence)
    motion, per_force = motion_of(structure, dt)
    tested = (structure.experimental_stiffness, structure.experimental_damping, structure.experimental_mass)
    x = motion - per_force @ np.hstack(tested)
    before, (p, q, s, t) = np.split(np.eye(3 * n), 3), (rate[:, None] for rate in rates_of(structure, dt))
    v, a = rates((p, q, s, t), x - before[0], before[1], before[2])

    return float(np.abs(np.linalg.eigvals(np.vstack([x, v, a]))).max())


def _refuse_growth_of_reduced(structure: Structure, dt: float) -> None:
    if not zero(structure.experimental_mass):
        raise ConfigError(
            "integrator newmark: stability with a mass under test cannot be checked for a sparse "
            "structure. Set reduction"
        )
    tested = np.flatnonzero(
        ~(massless(structure.experimental_stiffness) & massless(structure.experimental_damping))
    )
    if len(tested):
        most = int((~massless(structure.mass)).sum())
        kept: Any = CraigBampton(CraigBampton.Params(modes=min(JUDGED, most - len(tested))))
        model: Any = Reduced(kept, structure, tested.tolist())
        refuse_growth("newmark", lambda dt: growth(model, dt), dt)


Begun = tuple[Vector, Vector, Vector, Vector, Vector]


class Method(NamedTuple):
    """Constants of an iteration. ``h`` is the length of a time step, s, and ``last`` the number of the last step.

    ``last`` is a float, so that tests of any duration share a C library.
    """

    inverse: Operand  # [M + (1 + alpha) (gamma h C + beta h^2 K)]^-1
    damping: Operand
    """Damping of the numerical substructure."""
    tested_damping: Operand
    total_damping: Operand
    stiffness: Operand
    """Stiffness of both substructures."""
    alpha: float
    beta: float
    gamma: float
    iterations: int
    h: float
    last: float


class OfMethod(NamedTuple):
    """Displacements of the last two time steps and of the newest iterate, predictions, and constant terms."""

    x: Vector
    x_before: Vector
    x_next: Vector
    x_predicted: Vector
    v_predicted: Vector
    terms: Vector


def solving(product: Callable[..., Vector]) -> Callable[..., Vector]:
    def solved(k: Method, terms: Vector, measured: Vector, x: Vector, v: Vector) -> Vector:
        """Return the acceleration at the end of the time step, for the ``measured`` force at ``x`` and ``v``."""
        inverse, _, tested_damping, _, stiffness, alpha, _, _, _, _, _ = k
        off = measured - product(stiffness, x) - product(tested_damping, v)
        return product(inverse, terms - (1.0 + alpha) * off)

    return solved


def beginning(product: Callable[..., Vector], solved: Callable[..., Vector]) -> Callable[..., Begun]:
    def begun(
        k: Method, s: OfMethod, x: Vector, v: Vector, exact: Vector, measured: Vector, external: Loads, index: int
    ) -> Begun:
        """Complete the last time step with the measured force, and predict the next time step."""
        _, damping, tested_damping, total_damping, stiffness, alpha, beta, gamma, iterations, h, last = k
        x_end, x_before, x_next, _, v_predicted, terms = s
        if index == 0:
            a, v_end = exact, v
            x_before = x_end + 0.5 * (h * h) * a
        else:
            x_before, x_end = x_end, x_next
            a = solved(k, terms, measured, x, v)
            v_end = v_predicted + gamma * h * a
        x_predicted = x_end + h * v_end + (0.5 - beta) * (h * h) * a
        v_predicted = v_end + (1.0 - gamma) * h * a
        # force at the end of the time step, corrected from the parabola's velocity to v_end
        now = measured + product(tested_damping, v_end - v) + product(damping, v_end)
        end = index + iterations
        while end > last:
            end -= 1
        terms = (1.0 + alpha) * external[end] - alpha * (external[index] - now)
        predicted = product(total_damping, v_predicted) + product(stiffness, x_predicted)
        return x_end, x_before, x_predicted, v_predicted, terms - (1.0 + alpha) * predicted

    return begun


def advancing(solved: Callable[..., Vector], begun: Callable[..., Begun]) -> Advance:
    def advance(
        k: Method, s: State, exact: Vector, before: Vector, measured: Vector, external: Loads, index: int
    ) -> Moving:
        """Perform one iteration, and move the target along the parabola to the new iterate."""
        _, _, _, _, _, _, beta, _, iterations, h, _ = k
        x, v, _, _, _, r, _, of_method, _ = s
        x_end, x_before, _, x_predicted, v_predicted, terms = of_method
        measured = r + measured
        iteration = place(index, iterations)
        if iteration == 0:
            x_end, x_before, x_predicted, v_predicted, terms = begun(
                k, of_method, x, v, exact, measured, external, index
            )
        x_next = x_predicted + beta * (h * h) * solved(k, terms, measured, x, v)
        part = (iteration + 1) / iterations
        slope = 0.5 * (x_next - x_before)
        curvature = x_next - 2.0 * x_end + x_before
        x = x_end + part * (slope + 0.5 * part * curvature)
        return (
            (x_end, x_before, x_next, x_predicted, v_predicted, terms),
            x,
            (slope + part * curvature) / h,
            exact,
        )

    return advance


class HilberHughesTaylor(Dynamics):
    """HHT-alpha; each ``step`` is one of the ``iterations`` of a time step h, with the newest measured force.

        M a_1 + (1 + alpha) (C v_1 + r_1) - alpha (C v_0 + r_0) = (1 + alpha) F_1 - alpha F_0
        x_1 = x~ + beta h^2 a_1,  v_1 = v~ + gamma h a_1,  beta = (1 - alpha)^2 / 4,  gamma = 1/2 - alpha

    The indices 0 and 1 are the beginning and the end of the time step. r includes the measured force; x~ and v~
    are predictions.

    An iteration solves these equations with r_1 linearised about the measured position and velocity (initial
    stiffness, including the part under test). Displacements between time steps lie on the parabola through the
    last two time steps and the newest iterate.
    """

    ABOUT = "HHT-alpha method with a fixed number of substep iterations (Hilber, Hughes & Taylor 1977)."
    SOURCES = ("hilber_1977", "jung_shing_2006")

    memory = (*Dynamics.memory, *OfMethod._fields)

    @params
    class Params(Equivalent):
        alpha: float = number(
            "parameter alpha of the numerical damping; 0: no damping (trapezoidal rule)",
            default=-0.05,
            at_least=-1.0 / 3.0,
            at_most=0.0,
        )
        iterations: int = integer(
            "number of iterations in a time step; each iteration is one integration step",
            default=10,
            at_least=1,
            at_most=1000,
        )

        def cautions(self, test: TestContext) -> list[str]:
            if test.substeps == 1:
                return []
            return ["substeps must be 1, because each sample is one iteration"]

    def __init__(self, params: Params, structure: Structure | None, external_force: Array, dt: float) -> None:
        self.period = params.iterations
        super().__init__(params, structure, external_force, dt)

    def refuse(self, params: Params, structure: Structure, dt: float) -> None:
        if not zero(structure.experimental_mass):
            raise ConfigError(
                "integrator hht_alpha: the mass under test must be 0, because its inertia force would jump; "
                "use another integrator"
            )

    @staticmethod
    def advancing(vectors: Vectors, law: Law) -> Advance:
        solved = solving(vectors.product)
        return advancing(solved, beginning(vectors.product, solved))

    @classmethod
    def constants_of(cls, params: Params, structure: Structure, external_force: Array, dt: float) -> Constants:
        k: Constants = super().constants_of(params, structure, external_force, dt)
        assert isinstance(k.advance, Method)
        return k._replace(advance=k.advance._replace(last=float(len(external_force) - 1)))

    @classmethod
    def prepared(cls, params: Params, structure: Structure, dt: float, a: Vector) -> Prepared:
        vectors, alpha, h = vectors_of(structure.mass), params.alpha, params.iterations * dt
        beta, gamma = 0.25 * (1.0 - alpha) ** 2, 0.5 - alpha
        tested_damping, tested_stiffness = damping_and_stiffness(params, structure)
        damping, stiffness = structure.damping + tested_damping, structure.stiffness + tested_stiffness
        tangent = gamma * h * damping + beta * h**2 * stiffness
        method = Method(
            vectors.inverse(structure.mass + (1.0 + alpha) * tangent),
            vectors.operand(structure.damping),
            vectors.operand(tested_damping),
            vectors.operand(damping),
            vectors.operand(stiffness),
            alpha,
            beta,
            gamma,
            params.iterations,
            h,
            0.0,
        )
        nothing = 0.0 * a
        return method, OfMethod(nothing, nothing, nothing, nothing, nothing, nothing)
