"""The explicit KR-alpha algorithm: unconditionally stable, with numerical damping of the high modes.

C. Kolay, J. M. Ricles: Development of a family of unconditionally stable explicit direct integration algorithms
with controllable numerical energy dissipation. Earthquake Engineering & Structural Dynamics 43, 2014,
doi 10.1002/eqe.2401.
"""

from __future__ import annotations

import numpy as np

from rths_nodes.core.parameters import number, params
from rths_nodes.core.protocols import Structure
from rths_nodes.core.samples import EMPTY, Array
from rths_nodes.core.sparse import Matrix, inverse, is_sparse, product
from rths_nodes.numerical.integrators.dynamics import Dynamics
from rths_nodes.numerical.integrators.experimental_part import Equivalent, damping_and_stiffness


class _LargeSteps:
    """The matrices alpha1 and (1 - alpha3)^-1 of a structure that is kept sparse, by solutions and products.

    With A = M + R, ``rest`` R and alpha3 = A^-1 (alpha_m M + alpha_f R), what is weighted to w has solved
    [(1 - alpha_m) M + (1 - alpha_f) R] w = y. So of M w and R w, which both the change of velocity and the next
    step need, only the second takes a product.
    """

    def __init__(self, mass: Matrix, rest: Matrix, alpha_m: float, alpha_f: float) -> None:
        self._alpha_m, self._alpha_f = alpha_m, alpha_f
        self._mass, self._rest, self._all = product(mass), product(rest), product(mass + rest)
        self._of_all = inverse(mass + rest)
        self._of_new = inverse((1.0 - alpha_m) * mass + (1.0 - alpha_f) * rest)
        self._known: tuple[Array | None, Array, Array] = (None, EMPTY, EMPTY)
        """The acceleration that was weighted last, with its products with M and R."""

    def first(self, acceleration: Array) -> Array:
        """alpha1 times ``acceleration``."""
        return np.asarray(self._of_all.dot(self._products(acceleration)[0]))

    def weighted(self, load: Array, before: Array) -> Array:
        """(1 - alpha3)^-1 (load - alpha3 before), both of them accelerations."""
        mass_times, rest_times = self._products(before)
        y = self._all.dot(load) - (self._alpha_m * mass_times + self._alpha_f * rest_times)
        found = np.asarray(self._of_new.dot(y))
        rest_times = self._rest.dot(found)
        self._known = found, (y - (1.0 - self._alpha_f) * rest_times) / (1.0 - self._alpha_m), rest_times
        return found

    def _products(self, acceleration: Array) -> tuple[Array, Array]:
        known, mass_times, rest_times = self._known
        if acceleration is known:
            return mass_times, rest_times
        return self._mass.dot(acceleration), self._rest.dot(acceleration)


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
        self._share = 0.5 + gamma
        self._large: _LargeSteps | None = None
        if is_sparse(mass):
            self._large = _LargeSteps(mass, rest, alpha_m, self._alpha_f)
        else:
            self.alpha1 = np.linalg.solve(mass + rest, mass)
            self.alpha2 = self._share * self.alpha1
            self.alpha3 = np.linalg.solve(mass + rest, alpha_m * mass + self._alpha_f * rest)
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
            if self._large is None:
                weighted = self._weight @ (load - self.alpha3 @ self._weighted)
            else:
                weighted = self._large.weighted(load, self._weighted)
        self._before, self._weighted = now, weighted
        if self._large is not None:
            change = self._large.first(weighted)
            self.displacement = self.displacement + self.dt * (self.velocity + self.dt * self._share * change)
            self.velocity = self.velocity + self.dt * change
            return
        self.displacement = self.displacement + self.dt * (self.velocity + self.dt * (self.alpha2 @ weighted))
        self.velocity = self.velocity + self.dt * (self.alpha1 @ weighted)
