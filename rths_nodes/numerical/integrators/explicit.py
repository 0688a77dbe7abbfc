# SPDX-License-Identifier: Apache-2.0
"""Explicit methods, which compute the next displacement from the forces at this step.

Central differences and Newmark's method yield the same displacements. KR-alpha: Kolay & Ricles 2014, doi
10.1002/eqe.2401.
"""

from __future__ import annotations

from rths_nodes.core.kernels import Kernel
from rths_nodes.core.parameters import AnyParams, number, params
from rths_nodes.core.protocols import Structure
from rths_nodes.core.samples import Array
from rths_nodes.numerical.integrators.dynamics import (
    Advance,
    Constants,
    Dynamics,
    Equivalent,
    Moved,
    Moving,
    Prepared,
    State,
    Step,
    damping_and_stiffness,
    per_load_of,
    refuse_beyond_central_limit,
    standing,
    start,
)
from rths_nodes.numerical.structures.restoring_forces import Law, law_of
from rths_nodes.numerical.vectors import Loads, Operand, Vector, Vectors, vectors_of

OfCentral = tuple[Operand, Operand, Operand, float]
OfNewmark = tuple[object, object, float, object, object]
OfCr = tuple[Operand, float]
OfKr = tuple[Operand, Operand, float, float, float, float, float]


class CentralDifference(Dynamics):
    """Central difference method: (M/dt^2 + C/2dt) x_{k+1} = F - r - r_e + 2M/dt^2 x_k - (M/dt^2 - C/2dt) x_{k-1}.

    Forces are at step k. The published velocity is predicted, (x_{k+1} - x_k)/dt + a dt/2. Raises ConfigError
    unless dt is below the stability limit (2/w_max for springs, with the largest circular frequency w_max).
    """

    ABOUT = "Central difference method: explicit, conditionally stable, no numerical damping."

    follows = True
    memory = (*Dynamics.memory, "previous")

    @params
    class Params(Equivalent):
        pass

    def refuse(self, params: Params, structure: Structure, dt: float) -> None:
        refuse_beyond_central_limit("central_difference", params, structure, dt)

    @staticmethod
    def advancing(vectors: Vectors, law: Law) -> Advance:
        product = vectors.product

        def advance(
            k: OfCentral, s: State, exact: Vector, before: Vector, measured: Vector, external: Loads, index: int
        ) -> Moving:
            """Compute the next displacement and predicted velocity, and the exact acceleration at this step."""
            left, now, earlier, dt = k
            x, _, _, _, _, r, _, (previous,), _ = s
            load = external[index] - r - measured
            after = product(left, load + product(now, x) - product(earlier, previous))
            exact = (after - 2.0 * x + previous) / (dt * dt)
            return (x,), after, (after - x) / dt + 0.5 * dt * exact, exact

        return advance

    @classmethod
    def prepared(cls, params: Params, structure: Structure, dt: float, a: Vector) -> Prepared:
        mass, damping, vectors = structure.mass, structure.damping, vectors_of(structure.mass)
        left = vectors.inverse(mass / dt**2 + damping / (2.0 * dt))
        now, earlier = vectors.operand(2.0 * mass / dt**2), vectors.operand(mass / dt**2 - damping / (2.0 * dt))
        return (left, now, earlier, dt), (0.5 * dt**2 * a,)


def predict(
    dt: float, s: State, exact: Vector, before: Vector, measured: Vector, external: Loads, index: int
) -> Moving:
    """Advance displacement and predicted velocity by an explicit Newmark step."""
    x, v, _, _, _, _, _, of_method, _ = s
    half = 0.5 * dt * exact
    velocity = v + half
    return of_method, x + dt * (velocity + half), velocity + half, exact


def corrected(predicted: Step) -> Step:
    def step(k: OfNewmark, s: object, measured: Vector, external: Loads, index: int) -> tuple[object, Moved]:
        """Make an explicit Newmark step, and correct the velocity with the predicted acceleration."""
        _, _, dt, _, _ = k
        s, (x, v, a, exact, r) = predicted(k, s, measured, external, index)
        return s, (x, v + 0.5 * dt * a, a, exact, r)

    return step


class ExplicitNewmark(Dynamics):
    """Explicit Newmark method, with the velocity v~ predicted and then corrected.

        x_{k+1} = x_k + dt v_k + dt^2/2 a_k,  v~_{k+1} = v_k + dt/2 a_k
        (M + dt/2 C) a_{k+1} = F - C v~_{k+1} - r - r_e,  v_{k+1} = v~_{k+1} + dt/2 a_{k+1}

    Forces are at step k + 1. ``memory`` contains v~. The published velocity is corrected with the predicted
    acceleration. Raises ConfigError unless dt is below the stability limit (2/w_max for springs, with the largest
    circular frequency w_max).
    """

    ABOUT = (
        "Explicit Newmark method (gamma = 1/2, beta = 0): predictor and corrector of the velocity (Newmark 1959)."
    )
    SOURCES = ("newmark_1959",)

    follows = True
    memory = ("displacement", "predicted_velocity", "experimental_force")

    @params
    class Params(Equivalent):
        pass

    def refuse(self, params: Params, structure: Structure, dt: float) -> None:
        refuse_beyond_central_limit("explicit_newmark", params, structure, dt)

    @staticmethod
    def advancing(vectors: Vectors, law: Law) -> Advance:
        return predict

    @classmethod
    def kernel_of(cls, params: AnyParams, structure: Structure) -> Kernel:
        return Kernel(cls.constants_of, start, corrected(super().kernel_of(params, structure).step))

    @classmethod
    def constants_of(cls, params: AnyParams, structure: Structure, external_force: Array, dt: float) -> Constants:
        k: Constants = super().constants_of(params, structure, external_force, dt)
        vectors, law = vectors_of(structure.mass), law_of(structure.restoring_force)
        heavier = structure.mass + 0.5 * dt * structure.damping
        k = k._replace(per_load=per_load_of(vectors, heavier), advance=dt)
        nothing, a, applied = k.start.x, k.start.a, vectors.vector(external_force[0])
        state = standing(vectors, law, k, nothing, -0.5 * dt * a, nothing, (), applied)
        return k._replace(start=state._replace(a=a))


class ChenRicles(Dynamics):
    """CR algorithm: v_{k+1} = v_k + dt alpha a_k, x_{k+1} = x_k + dt v_k + dt^2 alpha a_k.

    alpha is the matrix [4 M + 2 dt C + dt^2 K]^-1 4 M. If alpha omits the stiffness and damping under test (Eq.
    12a of Chen & Ricles 2010 instead of 12b), only the numerical part is unconditionally stable. The published
    velocity is the backward difference (x_{k+1} - x_k) / dt, half a step late.
    """

    ABOUT = "The explicit, unconditionally stable CR algorithm (Chen & Ricles 2008; 2010, Eqs. 11a-12b)."
    SOURCES = ("chen_ricles_2008",)

    follows = True
    late_velocity = True

    @params
    class Params(Equivalent):
        pass

    @staticmethod
    def advancing(vectors: Vectors, law: Law) -> Advance:
        product = vectors.product

        def advance(
            k: OfCr, s: State, exact: Vector, before: Vector, measured: Vector, external: Loads, index: int
        ) -> Moving:
            """Advance displacement and velocity by the CR algorithm."""
            alpha, dt = k
            x, v, _, _, _, _, _, of_method, _ = s
            increment = dt * product(alpha, exact)
            return of_method, x + dt * (v + increment), v + increment, exact

        return advance

    @classmethod
    def prepared(cls, params: Params, structure: Structure, dt: float, a: Vector) -> Prepared:
        damping, stiffness = damping_and_stiffness(params, structure)
        damping, stiffness = structure.damping + damping, structure.stiffness + stiffness
        four_mass = 4.0 * (structure.mass + structure.experimental_mass)
        effective_mass = four_mass + 2.0 * dt * damping + dt**2 * stiffness
        return (vectors_of(effective_mass).quotient(effective_mass, four_mass), dt), ()


class KolayRicles(Dynamics):
    """KR-alpha algorithm: v_{k+1} = v_k + dt c_k, x_{k+1} = x_k + dt v_k + dt^2 (1/2 + gamma) c_k.

    c = alpha1 a. The paper's matrices alpha1 and alpha3 have the same modes, so that the acceleration a can be
    eliminated:

        c_k = [(1 - alpha_m) M + (1 - alpha_f) R]^-1 M (l - e c_{k-1}) - f c_{k-1}
        f = alpha_f / (1 - alpha_f),  e = alpha_m - f (1 - alpha_m),  R = gamma dt C + beta dt^2 K

    M l is the unbalanced load, weighted by 1 - alpha_f at step k and by alpha_f at step k - 1. ``rho_infinity`` is
    the spectral radius at infinite frequency: 1 gives no dissipation (the CR algorithm), 0 the largest
    dissipation. M and R include the part under test. The published velocity is late by gamma = 1/2 - alpha_m +
    alpha_f steps; in the middle of the step the velocity is (x_{k+1} - x_k) / dt.
    """

    ABOUT = "Explicit KR-alpha algorithm: unconditionally stable, with numerical damping of the high modes."
    SOURCES = ("kolay_ricles_2014",)

    follows = True
    late_velocity = True
    memory = (*Dynamics.memory, "acceleration_before", "change")

    @params
    class Params(Equivalent):
        rho_infinity: float = number(
            "spectral radius at infinite frequency; 1: no numerical damping", "1", 0.75, at_least=0.0, at_most=1.0
        )

    @staticmethod
    def advancing(vectors: Vectors, law: Law) -> Advance:
        product = vectors.product

        def advance(
            k: OfKr, s: State, exact: Vector, before: Vector, measured: Vector, external: Loads, index: int
        ) -> Moving:
            """Advance displacement and velocity by the KR-alpha algorithm."""
            alpha1, weight, alpha_f, kept, faded, share, dt = k
            x, v, _, _, _, _, _, (earlier, change), _ = s
            if index == 0:
                change = product(alpha1, exact)
            else:
                load = (1.0 - alpha_f) * exact + alpha_f * earlier
                change = product(weight, load - kept * change) - faded * change
            return (exact, change), x + dt * (v + dt * share * change), v + dt * change, exact

        return advance

    @classmethod
    def prepared(cls, params: Params, structure: Structure, dt: float, a: Vector) -> Prepared:
        vectors, rho = vectors_of(structure.mass), params.rho_infinity
        alpha_m, alpha_f = (2.0 * rho - 1.0) / (rho + 1.0), rho / (rho + 1.0)
        gamma = 0.5 - alpha_m + alpha_f
        beta = 0.25 * (0.5 + gamma) ** 2
        damping, stiffness = damping_and_stiffness(params, structure)
        mass = structure.mass + structure.experimental_mass
        rest = gamma * dt * (structure.damping + damping)
        rest = rest + beta * dt**2 * (structure.stiffness + stiffness)
        faded = alpha_f / (1.0 - alpha_f)
        alpha1 = vectors.quotient(mass + rest, mass)
        weight = vectors.quotient((1.0 - alpha_m) * mass + (1.0 - alpha_f) * rest, mass)
        kept = alpha_m - faded * (1.0 - alpha_m)
        return (alpha1, weight, alpha_f, kept, faded, 0.5 + gamma, dt), (0.0 * a, 0.0 * a)
