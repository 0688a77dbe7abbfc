"""Central difference method: explicit, conditionally stable, no numerical damping."""

from __future__ import annotations

from rths_nodes.core.parameters import params
from rths_nodes.core.protocols import Structure
from rths_nodes.core.samples import Array
from rths_nodes.core.sparse import inverse, product
from rths_nodes.numerical.integrators.dynamics import Dynamics
from rths_nodes.numerical.integrators.experimental_part import Equivalent, refuse_beyond_central_limit


class CentralDifference(Dynamics):
    """(M/dt^2 + C/2dt) x' = F - r - r_e + 2M/dt^2 x - (M/dt^2 - C/2dt) x_previous.

    The velocity handed on is predicted, (x' - x)/dt + a dt/2; the equilibrium itself uses the central one.
    Raises ConfigError when dt is not below the stability limit, 2/w_max for springs.
    """

    memory = (*Dynamics.memory, "_previous")

    @params
    class Params(Equivalent):
        pass

    def __init__(self, params: Params, structure: Structure | None, external_force: Array, dt: float) -> None:
        super().__init__(structure, external_force, dt)
        refuse_beyond_central_limit("central_difference", params, self.structure, dt)
        mass, damping = self.structure.mass, self.structure.damping
        self._left = inverse(mass / dt**2 + damping / (2.0 * dt))
        self._now = product(2.0 * mass / dt**2)
        self._before = product(mass / dt**2 - damping / (2.0 * dt))
        self.reset()

    def reset(self) -> None:
        """At rest, with the fictitious displacement before the start that belongs to the first acceleration."""
        super().reset()
        self._previous = 0.5 * self.dt**2 * self.acceleration

    def _advance(self, experimental_force: Array) -> None:
        load = self._external[self._index] - self._force - experimental_force
        x, before = self.displacement, self._previous
        after = self._left @ (load + self._now @ x - self._before @ before)
        self.exact_acceleration = (after - 2.0 * x + before) / self.dt**2
        self._previous, self.displacement = x, after
        self.velocity = (after - x) / self.dt + 0.5 * self.dt * self.exact_acceleration
