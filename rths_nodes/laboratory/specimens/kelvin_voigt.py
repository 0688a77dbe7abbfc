"""Spring and dashpot in parallel; the defaults are the equivalent damper of Chen & Ricles (2010).

With an exponent below 1 it is the fluid viscous damper of structural engineering; 200 kN s/m and 1 kN/mm are the
damper of the TADC verification tests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rths_nodes.core.decay import Decay
from rths_nodes.core.parameters import number, params


class KelvinVoigt:
    """F = k d + c v; with an exponent a other than 1, k d + c v_0 sgn(v) (abs(v) / v_0)^a."""

    @params
    class Params:
        """The dashpot's force at the reference velocity v_0 is c v_0, whatever the exponent."""

        stiffness: float = number("stiffness k", "N/m", 7.6e6, at_least=0.0)
        damping: float = number("damping c, at the reference velocity", "N s/m", 0.64e6, at_least=0.0)
        exponent: float = number("a of the velocity", default=1.0, more_than=0.0, at_most=5.0)
        reference_velocity: float = number(
            "velocity v_0 at which c holds; matters only with an exponent", "m/s", 1.0, more_than=0.0
        )

    initial_state: tuple[float, ...] = ()
    decay = Decay()

    def __init__(self, params: Params) -> None:
        self._stiffness, self._damping = params.stiffness, params.damping
        self._exponent, self._reference = params.exponent, params.reference_velocity
        self.linear = (self._stiffness, self._damping) if self._exponent == 1.0 else None

    def force(self, state: Sequence[float], displacement: float, velocity: float) -> float:
        if self._exponent != 1.0:
            velocity = math.copysign(self._reference * self._power(abs(velocity / self._reference)), velocity)
        return self._stiffness * displacement + self._damping * velocity

    def _power(self, ratio: float) -> float:
        try:
            return math.pow(ratio, self._exponent)
        except OverflowError:  # diverged: not a number, which the limits judge
            return math.nan

    def rate(self, state: Sequence[float], displacement: float, velocity: float) -> tuple[float, ...]:
        return ()
