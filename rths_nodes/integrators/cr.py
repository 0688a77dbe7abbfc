"""The explicit, unconditionally stable CR algorithm (Chen & Ricles 2008; 2010, Eqs. 11a-12b)."""

from __future__ import annotations

from typing import Any

import numpy as np

from rths_nodes.components import Array, Structure
from rths_nodes.integrators.dynamics import Dynamics
from rths_nodes.params import number, params


class ChenRicles(Dynamics):
    """v' = v + dt alpha1 a, x' = x + dt v + dt^2 alpha2 a with alpha1 = alpha2 of Eq. (12b).

    The equivalent stiffness and damping of the specimen belong into alpha (Eq. 12b against 12a): without them
    the algorithm is stable for the numerical part alone.
    """

    @params
    class Params:
        equivalent_stiffness: float = number("k_eq of the experimental substructure", "N/m", 0.0, at_least=0.0)
        equivalent_damping: float = number("c_eq of the experimental substructure", "N s/m", 0.0, at_least=0.0)

    def __init__(self, params: Params, structure: Structure | None, external_force: Array, dt: float) -> None:
        super().__init__(structure, external_force, dt)
        identity: Any = np.eye(self._n_dof)
        damping = self.structure.damping + params.equivalent_damping * identity
        stiffness = self.structure.stiffness + params.equivalent_stiffness * identity
        four_mass = 4.0 * self.structure.mass
        self.alpha = np.linalg.solve(four_mass + 2.0 * dt * damping + dt**2 * stiffness, four_mass)
        self.reset()

    def _advance(self, experimental_force: Array) -> None:
        increment = self.dt * (self.alpha @ self.exact_acceleration)
        self.displacement = self.displacement + self.dt * (self.velocity + increment)
        self.velocity = self.velocity + increment
