# SPDX-License-Identifier: Apache-2.0
"""Classical Runge-Kutta method of fourth order (Phillips & Spencer 2012, numerical examples)."""

from __future__ import annotations

import numpy as np

from rths_nodes.core.parameters import params
from rths_nodes.core.protocols import Structure
from rths_nodes.numerical.integrators.dynamics import Advance, Moving, Prepared, State, refuse_large
from rths_nodes.numerical.integrators.experimental_part import refuse_growth
from rths_nodes.numerical.integrators.state_space import (
    ByMatrix,
    Matrices,
    runge_kutta_transition,
    state_space,
)
from rths_nodes.numerical.structures.laws import Law, law_of
from rths_nodes.numerical.vectors import Loads, Operand, Vector, Vectors, vectors_of

Constants = tuple[Operand, Operand, object, float]


class RungeKutta(ByMatrix):
    """Four stages a step; the external force is interpolated, the measured one extrapolated, both linearly.

    It is of fourth order for the numerical substructure under a load that runs straight within each step, of
    second order under any other load and through a specimen. The stages of a linear structure are one matrix,
    computed in advance. Raises ConfigError for a step at which it grows.
    """

    @params
    class Params:
        pass

    def refuse(self, params: Params, structure: Structure, dt: float) -> None:
        refuse_large("runge_kutta", structure, "its step matrices are full, and it is stable for short steps only")
        refuse_growth("runge_kutta", lambda dt: self.growth(params, structure, dt), dt)

    @staticmethod
    def matrices(params: Params, structure: Structure, dt: float) -> tuple[Matrices, bool]:
        return runge_kutta_transition(*state_space(structure), dt), True

    @staticmethod
    def advancing(vectors: Vectors, law: Law) -> Advance:
        """The four stages, with the acceleration at trial displacements."""
        product, at, force = vectors.product, vectors.at, law.force

        def rate(k: Constants, memory: object, load: Vector, x: Vector, v: Vector) -> Vector:
            mass_inverse, damping_per_mass, of_force, _ = k
            _, r = force(of_force, memory, x)
            return product(mass_inverse, load - r) - product(damping_per_mass, v)

        def advance(
            k: Constants, s: State, exact: Vector, before: Vector, measured: Vector, external: Loads, index: int
        ) -> Moving:
            _, _, _, h = k
            x, v, _, _, _, _, _, own, memory = s
            half, sixth = 0.5 * h, h / 6.0
            load = at(external, index) - measured
            end = at(external, index + 1) - 2.0 * measured + before
            middle = 0.5 * (load + end)
            v2 = v + half * exact
            a2 = rate(k, memory, middle, x + half * v, v2)
            v3 = v + half * a2
            a3 = rate(k, memory, middle, x + half * v2, v3)
            v4 = v + h * a3
            a4 = rate(k, memory, end, x + h * v3, v4)
            x = x + sixth * (v + 2.0 * (v2 + v3) + v4)
            return own, x, v + sixth * (exact + 2.0 * (a2 + a3) + a4), exact

        return advance

    @classmethod
    def prepared(cls, params: Params, structure: Structure, dt: float, a: Vector) -> Prepared:
        """Acceleration per load, M^-1 C, constants of the restoring force and dt (s); no state."""
        vectors, law = vectors_of(structure.mass), law_of(structure.restoring_force)
        per_mass = np.linalg.inv(structure.mass) @ structure.damping
        return (vectors.inverse(structure.mass), vectors.operand(per_mass), law.constants, dt), ()
