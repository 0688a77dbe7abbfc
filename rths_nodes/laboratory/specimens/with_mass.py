"""A specimen with mass, such as a frame whose beam moves with the actuator (Silva et al. 2020).

F = m a + the force of another specimen at the same displacement and velocity. The acceleration is the actuator's:
one that moves the specimen along its own displacement takes the change of its velocity in a sample, and
``servo_hydraulic_linear`` solves the specimen's motion with its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rths_nodes.core import registry
from rths_nodes.core.decay import Decay, decay_of, stated
from rths_nodes.core.parameters import component, number, params


class WithMass:
    """Another specimen, and a mass that moves with the actuator."""

    @params
    class Params:
        mass: float = number("mass that moves with the actuator", "kg", more_than=0.0)
        specimen: Any = component("specimen", "what holds the mass", {"type": "kelvin_voigt"})

        def decay(self) -> Decay:
            """Of the specimen that holds the mass."""
            return stated(self.specimen)

    def __init__(self, params: Params) -> None:
        self._held = registry.build("specimen", params.specimen)
        self.mass: float = params.mass + getattr(self._held, "mass", 0.0)
        self.linear: tuple[float, float] | None = getattr(self._held, "linear", None)
        self.initial_state: tuple[float, ...] = self._held.initial_state
        self.decay = decay_of(self._held)
        self.felt: bool = getattr(self._held, "felt", True)

    def force(self, state: Sequence[float], displacement: float, velocity: float) -> float:
        """Without that of the mass."""
        force: float = self._held.force(state, displacement, velocity)
        return force

    def rate(self, state: Sequence[float], displacement: float, velocity: float) -> tuple[float, ...]:
        rates: tuple[float, ...] = self._held.rate(state, displacement, velocity)
        return rates
