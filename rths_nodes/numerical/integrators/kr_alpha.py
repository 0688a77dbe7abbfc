# SPDX-License-Identifier: Apache-2.0
"""Explicit KR-alpha algorithm: unconditionally stable, with numerical damping of the high modes.

Kolay & Ricles 2014, doi 10.1002/eqe.2401.
"""

from __future__ import annotations

from rths_nodes.core.parameters import number, params
from rths_nodes.core.protocols import Structure
from rths_nodes.numerical.integrators.dynamics import Advance, Dynamics, Moving, Prepared, State
from rths_nodes.numerical.integrators.experimental_part import Equivalent, damping_and_stiffness
from rths_nodes.numerical.structures.laws import Law
from rths_nodes.numerical.vectors import Loads, Operand, Vector, Vectors, vectors_of

Constants = tuple[Operand, Operand, float, float, float, float, float]


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
            k: Constants, s: State, exact: Vector, before: Vector, measured: Vector, external: Loads, index: int
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
