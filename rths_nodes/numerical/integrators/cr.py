"""The explicit, unconditionally stable CR algorithm (Chen & Ricles 2008; 2010, Eqs. 11a-12b)."""

from __future__ import annotations

from rths_nodes.core.parameters import params
from rths_nodes.core.protocols import Structure
from rths_nodes.core.samples import Array
from rths_nodes.core.sparse import quotient
from rths_nodes.numerical.integrators.dynamics import Dynamics
from rths_nodes.numerical.integrators.experimental_part import Equivalent, damping_and_stiffness


class ChenRicles(Dynamics):
    """v' = v + dt alpha1 a, x' = x + dt v + dt^2 alpha2 a with alpha1 = alpha2 of Eq. (12b).

    With several degrees of freedom alpha is the matrix [4 M + 2 dt C + dt^2 K]^-1 4 M. Stiffness and damping of
    the part under test belong into it (Eq. 12b against 12a): without them the algorithm is stable for the
    numerical part alone.

    Its velocity is the backward difference of its displacements, (x' - x) / dt, as published: half a step late.
    """

    late_velocity = True

    @params
    class Params(Equivalent):
        pass

    def __init__(self, params: Params, structure: Structure | None, external_force: Array, dt: float) -> None:
        super().__init__(structure, external_force, dt)
        damping, stiffness = damping_and_stiffness(params, self.structure)
        damping, stiffness = self.structure.damping + damping, self.structure.stiffness + stiffness
        four_mass = 4.0 * (self.structure.mass + self.structure.experimental_mass)
        self.alpha = quotient(four_mass + 2.0 * dt * damping + dt**2 * stiffness, four_mass)
        self.reset()

    def _advance(self, experimental_force: Array) -> None:
        increment = self.dt * self.alpha.dot(self.exact_acceleration)
        self.displacement = self.displacement + self.dt * (self.velocity + increment)
        self.velocity = self.velocity + increment
