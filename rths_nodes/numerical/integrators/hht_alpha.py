# SPDX-License-Identifier: Apache-2.0
"""HHT-alpha method with a fixed number of sub-step iterations (Hilber, Hughes & Taylor 1977).

Real-time tests: Jung & Shing 2006, Mercan & Ricles 2007. Comparison with the CR algorithm: Chen & Ricles 2010.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rths_nodes.core.arithmetic import place
from rths_nodes.core.checks import TestContext
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import integer, number, params
from rths_nodes.core.protocols import Structure
from rths_nodes.core.samples import Array
from rths_nodes.mechanics.sparse import zero
from rths_nodes.numerical.integrators.dynamics import Advance, Constants, Dynamics, Moving, Prepared, State
from rths_nodes.numerical.integrators.experimental_part import Equivalent, damping_and_stiffness
from rths_nodes.numerical.structures.laws import Law
from rths_nodes.numerical.vectors import Loads, Operand, Vector, Vectors, vectors_of

Begun = tuple[Vector, Vector, Vector, Vector, Vector]


class Method(NamedTuple):
    """Constants of an iteration. ``h`` is the length of a time step, s, and ``last`` the last step.

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
        """Return the acceleration at the end of the time step."""
        inverse, _, tested_damping, _, stiffness, alpha, _, _, _, _, _ = k
        off = measured - product(stiffness, x) - product(tested_damping, v)
        return product(inverse, terms - (1.0 + alpha) * off)

    return solved


def beginning(
    product: Callable[..., Vector], at: Callable[..., Vector], solved: Callable[..., Vector]
) -> Callable[..., Begun]:
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
        terms = (1.0 + alpha) * at(external, end) - alpha * (at(external, index) - now)
        predicted = product(total_damping, v_predicted) + product(stiffness, x_predicted)
        return x_end, x_before, x_predicted, v_predicted, terms - (1.0 + alpha) * predicted

    return begun


def advancing(solved: Callable[..., Vector], begun: Callable[..., Begun]) -> Advance:
    def advance(
        k: Method, s: State, exact: Vector, before: Vector, measured: Vector, external: Loads, index: int
    ) -> Moving:
        """Make one iteration, and move the target along the parabola to the new iterate."""
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
    """Each ``step`` is one iteration with the newest measured force; a time step h has ``iterations`` steps.

        M a_1 + (1 + alpha) (C v_1 + r_1) - alpha (C v_0 + r_0) = (1 + alpha) F_1 - alpha F_0
        x_1 = x~ + beta h^2 a_1,  v_1 = v~ + gamma h a_1,  beta = (1 - alpha)^2 / 4,  gamma = 1/2 - alpha

    The indices 0 and 1 are the beginning and the end of the time step. r includes the measured force; x~ and v~
    are predictions.

    An iteration solves these equations with r_1 linearised about the measured position and velocity (initial
    stiffness, including the part under test). Displacements between time steps lie on the parabola through the
    last two time steps and the newest iterate.
    """

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
        return advancing(solved, beginning(vectors.product, vectors.at, solved))

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
