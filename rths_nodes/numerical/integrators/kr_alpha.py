"""The explicit KR-alpha algorithm: unconditionally stable, with numerical damping of the high modes.

C. Kolay, J. M. Ricles: Development of a family of unconditionally stable explicit direct integration algorithms
with controllable numerical energy dissipation. Earthquake Engineering & Structural Dynamics 43, 2014,
doi 10.1002/eqe.2401.
"""

from __future__ import annotations

import numpy as np

from rths_nodes.core.parameters import number, params
from rths_nodes.core.protocols import Structure
from rths_nodes.core.samples import Array
from rths_nodes.core.sparse import is_sparse, quotient
from rths_nodes.numerical.integrators.dynamics import Dynamics
from rths_nodes.numerical.integrators.experimental_part import Equivalent, damping_and_stiffness


class KolayRicles(Dynamics):
    """v' = v + dt alpha1 a, x' = x + dt v + dt^2 alpha2 a with equilibrium weighted between two steps.

    M [(1 - alpha3) a' + alpha3 a] is the load out of equilibrium, (1 - alpha_f) of this step and alpha_f of the
    step before. ``rho_infinity`` is the spectral radius at infinite frequency: 1 dissipates nothing and is the CR
    algorithm, 0 dissipates most. What is under test belongs into alpha1 to alpha3.
    """

    memory = (*Dynamics.memory, "_before", "_weighted")

    @params
    class Params(Equivalent):
        rho_infinity: float = number(
            "spectral radius at infinite frequency; 1: no numerical damping", "1", 0.75, at_least=0.0, at_most=1.0
        )

    def __init__(self, params: Params, structure: Structure | None, external_force: Array, dt: float) -> None:
        super().__init__(structure, external_force, dt)
        rho = params.rho_infinity
        alpha_m, self._alpha_f = (2.0 * rho - 1.0) / (rho + 1.0), rho / (rho + 1.0)
        gamma = 0.5 - alpha_m + self._alpha_f
        beta = 0.25 * (0.5 + gamma) ** 2
        damping, stiffness = damping_and_stiffness(params, self.structure)
        mass = self.structure.mass + self.structure.experimental_mass
        rest = gamma * dt * (self.structure.damping + damping)
        rest = rest + beta * dt**2 * (self.structure.stiffness + stiffness)
        self.alpha1 = quotient(mass + rest, mass)
        self.alpha2 = (0.5 + gamma) * self.alpha1
        weighted = alpha_m * mass + self._alpha_f * rest
        self.alpha3 = quotient(mass + rest, weighted)
        if is_sparse(mass):  # (1 - alpha3)^-1 without its inverse
            self._weight = quotient(mass + rest - weighted, mass + rest)
        else:
            self._weight = np.linalg.inv(np.eye(self._n_dof) - self.alpha3)
        self.reset()

    def reset(self) -> None:
        """At rest at step 0."""
        super().reset()
        self._before = self._weighted = np.zeros(self._n_dof)

    def _advance(self, experimental_force: Array) -> None:
        now = self.exact_acceleration
        if self._index == 0:
            weighted = now
        else:
            load = (1.0 - self._alpha_f) * now + self._alpha_f * self._before
            weighted = self._weight @ (load - self.alpha3 @ self._weighted)
        self._before, self._weighted = now, weighted
        self.displacement = self.displacement + self.dt * (self.velocity + self.dt * (self.alpha2 @ weighted))
        self.velocity = self.velocity + self.dt * (self.alpha1 @ weighted)
