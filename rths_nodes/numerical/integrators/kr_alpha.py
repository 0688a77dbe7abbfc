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
from rths_nodes.core.sparse import quotient
from rths_nodes.numerical.integrators.dynamics import Dynamics
from rths_nodes.numerical.integrators.experimental_part import Equivalent, damping_and_stiffness


class KolayRicles(Dynamics):
    """v' = v + dt c, x' = x + dt v + dt^2 (1/2 + gamma) c with c = alpha1 a, in equilibrium between two steps.

    M [(1 - alpha3) a' + alpha3 a] is the load out of equilibrium, (1 - alpha_f) of this step and alpha_f of the
    step before: M l. With A = M + R, alpha1 = A^-1 M and alpha3 = A^-1 (alpha_m M + alpha_f R) all have the same
    modes, and a' goes out of the equations of the paper:

        c' = [(1 - alpha_m) M + (1 - alpha_f) R]^-1 M (l - e c) - f c
        f = alpha_f / (1 - alpha_f),  e = alpha_m - f (1 - alpha_m)

    so that a step takes one solution and one product of what is otherwise three and four. ``rho_infinity`` is the
    spectral radius at infinite frequency: 1 dissipates nothing and is the CR algorithm, 0 dissipates most. What is
    under test belongs into M and R.

    Its velocity is late by gamma = 1/2 - alpha_m + alpha_f steps, as published: that in the middle of the step is
    (x' - x) / dt = v + dt (1/2 + gamma) c.
    """

    late_velocity = True
    memory = (*Dynamics.memory, "_before", "_change")

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
        self._share = 0.5 + gamma
        self._faded = self._alpha_f / (1.0 - self._alpha_f)
        self._kept = alpha_m - self._faded * (1.0 - alpha_m)
        self._alpha1 = quotient(mass + rest, mass)
        self._weight = quotient((1.0 - alpha_m) * mass + (1.0 - self._alpha_f) * rest, mass)
        self.reset()

    def reset(self) -> None:
        """At rest at step 0."""
        super().reset()
        self._before = self._change = np.zeros(self._n_dof)

    def _advance(self, experimental_force: Array) -> None:
        now, change = self.exact_acceleration, self._change
        if self._index == 0:
            change = self._alpha1.dot(now)
        else:
            load = (1.0 - self._alpha_f) * now + self._alpha_f * self._before
            change = self._weight.dot(load - self._kept * change) - self._faded * change
        self._before, self._change = now, change
        self.displacement = self.displacement + self.dt * (self.velocity + self.dt * self._share * change)
        self.velocity = self.velocity + self.dt * change
