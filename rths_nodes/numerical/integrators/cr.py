# SPDX-License-Identifier: Apache-2.0
"""The explicit, unconditionally stable CR algorithm (Chen & Ricles 2008; 2010, Eqs. 11a-12b)."""

from __future__ import annotations

from rths_nodes.core.parameters import params
from rths_nodes.core.protocols import Structure
from rths_nodes.numerical.integrators.dynamics import Advance, Dynamics, Moving, Prepared, State
from rths_nodes.numerical.integrators.experimental_part import Equivalent, damping_and_stiffness
from rths_nodes.numerical.structures.laws import Law
from rths_nodes.numerical.vectors import Loads, Operand, Vector, Vectors, vectors_of

Constants = tuple[Operand, float]


class ChenRicles(Dynamics):
    """CR algorithm: v_{k+1} = v_k + dt alpha a_k, x_{k+1} = x_k + dt v_k + dt^2 alpha a_k.

    alpha is the matrix [4 M + 2 dt C + dt^2 K]^-1 4 M. If alpha omits the stiffness and damping under test (Eq.
    12a of Chen & Ricles 2010 instead of 12b), only the numerical part is unconditionally stable. The published
    velocity is the backward difference (x_{k+1} - x_k) / dt, half a step late.
    """

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
            k: Constants, s: State, exact: Vector, before: Vector, measured: Vector, external: Loads, index: int
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
