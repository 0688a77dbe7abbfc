"""Oil damper with relief valve: a stiff dashpot up to the relief force, a soft one above.

The first story of the steel building of Horiuchi et al. (1996) held such a damper. The paper gives no numbers of
it: the defaults are ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rths_nodes.core.checks import TestContext
from rths_nodes.core.decay import ROUNDED_OFF, Decay, check_increments
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import number, params


class ReliefValveDamper:
    """F = c_1 v up to the relief force F_r, then F_r + c_2 (v - F_r / c_1); perhaps with a spring in series.

    With the spring k_s, F is an inner state, F' = k_s (v - v_d), and v_d the velocity of the piston at F.
    """

    @params
    class Params:
        """Parameters of an oil damper."""

        damping: float = number("damping c_1 below the relief force", "N s/m", 4.0e6, more_than=0.0)
        relief_force: float = number("force F_r at which the valve opens", "N", 200e3, more_than=0.0)
        relief_damping: float = number("damping c_2 above the relief force", "N s/m", 0.27e6, at_least=0.0)
        series_stiffness: float | None = number(
            "spring k_s in series: oil, mounts and brace; rigid if left out", "N/m", None, more_than=0.0
        )

        def validate(self, path: str) -> None:
            """Refuses a valve that closes, and one without damping behind a spring."""
            if self.relief_damping > self.damping:
                raise ConfigError(
                    f"{path}.relief_damping = {self.relief_damping:g} N s/m: "
                    f"must be <= damping = {self.damping:g} N s/m"
                )
            if self.series_stiffness is not None and self.relief_damping == 0.0:
                raise ConfigError(f"{path}.relief_damping = 0 N s/m: must be > 0 with a series_stiffness")

        def decay(self) -> Decay:
            """Fast where the valve is open, slowly where it is shut."""
            if self.series_stiffness is None:
                return Decay()
            slower = self.damping / self.relief_damping
            return Decay(self.series_stiffness / self.relief_damping, settling=ROUNDED_OFF * slower)

        def fits(self, test: TestContext) -> None:
            """Refuses a relaxation that is too fast for the servo rate."""
            if self.series_stiffness is not None:
                words = f"relief_damping / series_stiffness = {self.relief_damping / self.series_stiffness:g} s"
                check_increments(self.decay(), words, test)

    def __init__(self, params: Params) -> None:
        self._damping, self._relief_damping = params.damping, params.relief_damping
        self._relief_force = params.relief_force
        self._relief_velocity = params.relief_force / params.damping
        self._series = params.series_stiffness
        self.decay = params.decay()
        self.initial_state: tuple[float, ...] = () if self._series is None else (0.0,)

    def force(self, state: Sequence[float], displacement: float, velocity: float) -> float:
        if self._series is not None:
            return state[0]
        over = abs(velocity) - self._relief_velocity
        if over <= 0.0:
            return self._damping * velocity
        return math.copysign(self._relief_force + self._relief_damping * over, velocity)

    def rate(self, state: Sequence[float], displacement: float, velocity: float) -> tuple[float, ...]:
        return () if self._series is None else (self._series * (velocity - self._piston_velocity(state[0])),)

    def _piston_velocity(self, force: float) -> float:
        over = abs(force) - self._relief_force
        if over <= 0.0:
            return force / self._damping
        return math.copysign(self._relief_velocity + over / self._relief_damping, force)
