"""What the integrators of an equation of motion share: equilibrium, prediction and the published arrays.

With so few numbers ``@`` takes three times as long as ``dot``, and a loop in real time waits for it.
"""

from __future__ import annotations

import copy

import numpy as np

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.protocols import Integrator, Structure
from rths_nodes.core.samples import Array
from rths_nodes.numerical.structures.linear_force import is_linear


class Dynamics(Integrator):
    """State of M a + C v + r(x) + r_e = F at the current step; all attributes ``(n_dof,)``, SI.

    ``external_force`` has the shape ``(steps + 1, n_dof)`` N. Subclasses implement ``_advance``, which moves
    displacement and velocity to the next step from the exact acceleration of this one. ``_experimental`` is the
    measured force of the step before, ``_load`` what else acts on the masses at the current step, inertia apart.
    """

    def __init__(self, structure: Structure | None, external_force: Array, dt: float) -> None:
        if structure is None:
            raise ConfigError("structure: missing; only the integrator 'prescribed' does without")
        self.structure = structure
        self.dt = dt
        self._external = external_force
        self._mass_inverse = np.linalg.inv(structure.mass)
        self._acceleration_per_load = self._mass_inverse
        self._n_dof = len(structure.influence)

    def reset(self) -> None:
        """At rest at step 0, the predicted acceleration from the first external force."""
        self.structure.restoring_force.reset()
        self._index = 0
        self.displacement = np.zeros(self._n_dof)
        self.velocity = np.zeros(self._n_dof)
        self.exact_acceleration = np.zeros(self._n_dof)
        self.restoring_force = np.zeros(self._n_dof)
        self._experimental = np.zeros(self._n_dof)
        self._force = self.structure.restoring_force.force(self.displacement)
        self._load = self._apart()
        self.acceleration = self._mass_inverse.dot(self._load)

    def step(self, experimental_force: Array) -> None:
        """Finish the current step with the force measured there, ``(n_dof,)`` N, and go to the next."""
        if self._index == 0:  # nothing is known of the time before: as if it had always been so
            self._experimental = experimental_force.copy()
        self.exact_acceleration = self._acceleration_per_load.dot(self._load - experimental_force)
        self.restoring_force = self._force
        self._advance(experimental_force)
        self._index += 1
        self._force = self.structure.restoring_force.force(self.displacement)
        self._load = self._apart()
        extrapolated = 2.0 * experimental_force - self._experimental
        self._experimental = experimental_force.copy()
        self.acceleration = self._acceleration_per_load.dot(self._load - extrapolated)

    def _apart(self) -> Array:
        load: Array = self._external[self._index] - self.structure.damping.dot(self.velocity) - self._force
        return load

    def _advance(self, experimental_force: Array) -> None:
        raise TypeError(f"{type(self).__name__} does not say how to advance")


def trial_force(structure: Structure, displacement: Array) -> Array:
    """Restoring force at ``displacement`` (m) without going there: its memory stays as it is.

    A restoring force must rebind its memory, not change it in place; all of this package do.
    """
    force = structure.restoring_force
    return (force if is_linear(structure) else copy.copy(force)).force(displacement)
