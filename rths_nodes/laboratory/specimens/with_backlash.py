"""A specimen behind a joint with play, as the pins of a clevis have: where the force turns round, it pauses.

    F = f(x - b/2, x')   for x >  b/2, and not below zero
    F = f(x + b/2, x')   for x < -b/2, and not above zero
    F = 0                between: the actuator crosses the gap b, the specimen has sprung back

The joint gives and takes no energy. It is not the lost motion of a drive, in which an actuator stays behind its
command (``output.lost_motion``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rths_nodes.core import registry
from rths_nodes.core.decay import Decay
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import component, number, params


class WithBacklash:
    """Another specimen, and a joint with play before it; it begins in the middle of the gap."""

    @params
    class Params:
        width: float = number("width b of the gap, from one side to the other", "m", more_than=0.0, at_most=1.0)
        specimen: Any = component("specimen", "what is behind the joint", {"type": "kelvin_voigt"})

    decay = Decay()

    def __init__(self, params: Params) -> None:
        """Raises ConfigError for a specimen that does not spring back to zero at once in the gap."""
        self._held = registry.build("specimen", params.specimen)
        kind = type(params.specimen).type_name
        if getattr(self._held, "mass", 0.0):
            raise ConfigError(
                f"specimen with_backlash: specimen.type = {kind!r}: must have no mass, which would move by itself "
                "in the gap; put with_mass around with_backlash, for a mass on the side of the actuator"
            )
        if self._held.initial_state:
            raise ConfigError(
                f"specimen with_backlash: specimen.type = {kind!r}: must have no inner states: it would not "
                "spring back to zero in the gap; take kelvin_voigt, or output.lost_motion of the axis"
            )
        self._half = 0.5 * params.width
        self.initial_state: tuple[float, ...] = ()
        self.felt: bool = getattr(self._held, "felt", True)

    def force(self, state: Sequence[float], displacement: float, velocity: float) -> float:
        half = self._half
        if displacement > half:
            return max(float(self._held.force(state, displacement - half, velocity)), 0.0)
        if displacement < -half:
            return min(float(self._held.force(state, displacement + half, velocity)), 0.0)
        return 0.0 * displacement  # nan stays nan

    def rate(self, state: Sequence[float], displacement: float, velocity: float) -> tuple[float, ...]:
        return ()
