"""Dashpot with a spring in series (Maxwell), and perhaps one in parallel: a fluid damper behind its brace."""

from __future__ import annotations

from collections.abc import Sequence

from rths_nodes.core.decay import ROUNDED_OFF, Decay
from rths_nodes.core.parameters import number, params


class MaxwellDamper:
    """F = f + k_p d with f' = k_s (v - f / c): a dashpot when moved slowly, a spring when moved fast."""

    @params
    class Params:
        """Parameters of a Maxwell damper; its relaxation time is c / k_s."""

        damping: float = number("damping c", "N s/m", 0.2e6, more_than=0.0)
        series_stiffness: float = number("spring k_s in series", "N/m", 20e6, more_than=0.0)
        parallel_stiffness: float = number("spring k_p in parallel with both", "N/m", 0.0, at_least=0.0)

        def decay(self) -> Decay:
            """Towards the dashpot's force at a constant velocity."""
            return Decay(self.series_stiffness / self.damping, settling=ROUNDED_OFF)

    initial_state: tuple[float, ...] = (0.0,)
    """Force f of spring and dashpot, N."""

    def __init__(self, params: Params) -> None:
        self._damping = params.damping
        self.decay = params.decay()
        self._series, self._parallel = params.series_stiffness, params.parallel_stiffness

    def force(self, state: Sequence[float], displacement: float, velocity: float) -> float:
        return state[0] + self._parallel * displacement

    def rate(self, state: Sequence[float], displacement: float, velocity: float) -> tuple[float, ...]:
        return (self._series * (velocity - state[0] / self._damping),)
