"""A test without a structure: the target follows a given function of time."""

from __future__ import annotations

from typing import Any

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import component, params
from rths_nodes.core.protocols import Integrator, Structure
from rths_nodes.core.samples import Array


class Prescribed(Integrator):
    """Every degree of freedom follows the same displacement history, with its exact derivatives."""

    @params
    class Params:
        displacement: Any = component("ground_motion", "displacement as a function of time, in m")

    def __init__(self, params: Params, structure: Structure | None, external_force: Array, dt: float) -> None:
        if structure is not None:
            raise ConfigError("structure: must be left out with the integrator 'prescribed'")
        motion = registry.build("ground_motion", params.displacement, 0)
        if not hasattr(motion, "derivatives"):
            known = [
                name
                for name in registry.names("ground_motion")
                if hasattr(registry.load("ground_motion", name), "derivatives")
            ]
            raise ConfigError(
                f"integrator.displacement.type = {type(params.displacement).type_name!r}: gives no velocity and "
                f"acceleration; known: {', '.join(known)}"
            )
        times = dt * np.arange(len(external_force))
        self._history = np.array([motion.sample(times), *motion.derivatives(times)])
        self._n_dof = external_force.shape[1]
        self.reset()

    def reset(self) -> None:
        """To the start of the history."""
        self._index = 0
        self.restoring_force = np.zeros(self._n_dof)
        self._show()

    def step(self, experimental_force: Array) -> None:
        """Go one step on; the force has no influence."""
        self.exact_acceleration = self.acceleration
        self._index += 1
        self._show()

    def _show(self) -> None:
        values = self._history[:, self._index, None] * np.ones(self._n_dof)
        self.displacement, self.velocity, self.acceleration = values
        if self._index == 0:
            self.exact_acceleration = self.acceleration
