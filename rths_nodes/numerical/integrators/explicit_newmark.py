"""Explicit Newmark method (gamma = 1/2, beta = 0), a predictor and a corrector of the velocity.

N. M. Newmark: A method of computation for structural dynamics. Journal of the Engineering Mechanics Division
(ASCE) 85, 1959. The displacements are those of the central difference method.
"""

from __future__ import annotations

import numpy as np

from rths_nodes.core.parameters import params
from rths_nodes.core.protocols import Structure
from rths_nodes.core.samples import Array
from rths_nodes.core.sparse import inverse
from rths_nodes.numerical.integrators.dynamics import Dynamics
from rths_nodes.numerical.integrators.experimental_part import Equivalent, refuse_beyond_central_limit


class ExplicitNewmark(Dynamics):
    """x' = x + dt v + dt^2/2 a; v~' = v + dt/2 a; (M + dt/2 C) a' = F' - C v~' - r' - r_e'; v' = v~' + dt/2 a'.

    The velocity handed on is corrected with the predicted acceleration. Raises ConfigError when dt is not below
    the stability limit, 2/w_max for springs.
    """

    memory = (*Dynamics.memory, "_predicted")

    @params
    class Params(Equivalent):
        pass

    def __init__(self, params: Params, structure: Structure | None, external_force: Array, dt: float) -> None:
        super().__init__(structure, external_force, dt)
        refuse_beyond_central_limit("explicit_newmark", params, self.structure, dt)
        heavier = self.structure.mass + 0.5 * dt * self.structure.damping
        self._acceleration_per_load = inverse(heavier)
        self.reset()

    def reset(self) -> None:
        """At rest; the predicted velocity is such that the first acceleration makes it zero."""
        self._predicted = np.zeros(self._n_dof)
        super().reset()
        self._predicted = -0.5 * self.dt * self.acceleration
        self._load = self._apart()

    def step(self, experimental_force: Array) -> None:
        super().step(experimental_force)
        self.velocity = self._predicted + 0.5 * self.dt * self.acceleration

    def _apart(self) -> Array:
        load: Array = self._external[self._index] - self._damping @ self._predicted - self._force
        return load

    def _advance(self, experimental_force: Array) -> None:
        half = 0.5 * self.dt * self.exact_acceleration
        velocity = self._predicted + half
        self.displacement = self.displacement + self.dt * (velocity + half)
        self._predicted = velocity + half
