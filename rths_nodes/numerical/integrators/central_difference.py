# SPDX-License-Identifier: Apache-2.0
"""Central difference method: explicit, conditionally stable, no numerical damping."""

from __future__ import annotations

from rths_nodes.core.parameters import params
from rths_nodes.core.protocols import Structure
from rths_nodes.numerical.integrators.dynamics import Advance, Dynamics, Moving, Prepared, State
from rths_nodes.numerical.integrators.experimental_part import Equivalent, refuse_beyond_central_limit
from rths_nodes.numerical.structures.laws import Law
from rths_nodes.numerical.vectors import Loads, Operand, Vector, Vectors, vectors_of

Constants = tuple[Operand, Operand, Operand, float]


class CentralDifference(Dynamics):
    """Central difference method: (M/dt^2 + C/2dt) x_{k+1} = F - r - r_e + 2M/dt^2 x_k - (M/dt^2 - C/2dt) x_{k-1}.

    Forces are at step k. The published velocity is predicted, (x_{k+1} - x_k)/dt + a dt/2. Raises ConfigError
    unless dt is below the stability limit (2/w_max for springs, with the largest circular frequency w_max).
    """

    follows = True
    memory = (*Dynamics.memory, "previous")

    @params
    class Params(Equivalent):
        pass

    def refuse(self, params: Params, structure: Structure, dt: float) -> None:
        refuse_beyond_central_limit("central_difference", params, structure, dt)

    @staticmethod
    def advancing(vectors: Vectors, law: Law) -> Advance:
        product, at = vectors.product, vectors.at

        def advance(
            k: Constants, s: State, exact: Vector, before: Vector, measured: Vector, external: Loads, index: int
        ) -> Moving:
            """Compute the next displacement and predicted velocity, and the exact acceleration at this step."""
            left, now, earlier, dt = k
            x, _, _, _, _, r, _, (previous,), _ = s
            load = at(external, index) - r - measured
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
