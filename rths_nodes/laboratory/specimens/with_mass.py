# SPDX-License-Identifier: Apache-2.0
"""A specimen with mass, such as a frame whose beam moves with the actuator (Silva et al. 2020).

F = m a + the force of another specimen at the same displacement and velocity. The acceleration is the actuator's:
the change of velocity in a sample if it moves the specimen by displacement; ``servo_hydraulic_linear`` solves the
specimen's motion with its own.
"""

from __future__ import annotations

from rths_nodes.core import registry
from rths_nodes.core.decay import Decay, decay_of, stated
from rths_nodes.core.declarations import OfParams
from rths_nodes.core.parameters import component, number, params
from rths_nodes.core.specimen import Specimen


class WithMass(Specimen):
    """Another specimen, and a mass that moves with the actuator."""

    @params
    class Params:
        mass: float = number("mass that moves with the actuator", "kg", more_than=0.0)
        specimen: OfParams = component("specimen", "what holds the mass", {"type": "kelvin_voigt"})

        def decay(self) -> Decay:
            return stated(self.specimen)

    def __init__(self, params: Params) -> None:
        held: Specimen = registry.build("specimen", params.specimen)
        kernel, own = held.bound()
        super().__init__(params, kernel._replace(constants=lambda p: own))
        self.mass = params.mass + held.mass
        self.linear, self.felt, self.decay = held.linear, held.felt, decay_of(held)
