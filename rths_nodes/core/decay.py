# SPDX-License-Identifier: Apache-2.0
"""Decay rates of a specimen's inner states, and the integration increments that these rates require.

The fourth-order Runge-Kutta method is stable if the decay rate times the increment is below 2.785. Bouc-Wen states
decay faster at a higher velocity, so an increment that suits a slow test can be unstable in a fast test.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import TestContext

LONGEST = 1.5
"""Largest product of decay rate and increment. RK4 then multiplies a state by 0.273 per increment (exact:
exp(-1.5) = 0.223), and a Bouc-Wen state approaches its limit monotonically."""
MOST = 64
"""Largest number of increments per sample at the velocity limit. They take about 0.2 ms to compute."""
HARD_LIMIT = 2 * MOST
"""Largest number of increments per sample during a test. If more are needed, the states become NaN, which trips
the test."""
ROUNDED_OFF = 40.0
"""Number of decay times after which the effect of earlier states is below rounding errors."""


@dataclass(frozen=True, slots=True)
class Decay:
    """Bounds the decay rates of all inner states by ``at_rest + per_velocity * abs(v)`` (1/s), v in m/s."""

    at_rest: float = 0.0
    per_velocity: float = 0.0
    settling: float = math.inf
    """Number of decay times after which states settle under a constant velocity; inf if they do not settle."""

    @property
    def numbers(self) -> tuple[float, float, float]:
        return self.at_rest, self.per_velocity, self.settling

    def times(self, velocity: float, duration: float) -> float:
        return (self.at_rest + self.per_velocity * abs(velocity)) * duration

    def increments(self, velocity: float, duration: float, constant: bool = False) -> float:
        """Return the number of increments (an integer or inf) for ``duration`` (s) at up to ``velocity`` (m/s).

        If the velocity is ``constant``, no increments are needed after the states have settled.
        """
        times = self.times(velocity, duration)
        needed = (min(times, self.settling) if constant else times) / LONGEST
        return math.ceil(needed) if needed < math.inf else math.inf

    def fastest(self, increment: float) -> float:
        """Return the largest velocity (m/s) at which ``increment`` (s) is permitted; negative if there is none."""
        left = LONGEST / increment - self.at_rest
        if left < 0.0:
            return -1.0
        return left / self.per_velocity if self.per_velocity else math.inf

    def beside(self, other: Decay) -> Decay:
        for one, the_other in ((self, other), (other, self)):
            if one == Decay():
                return the_other
        return Decay(max(self.at_rest, other.at_rest), max(self.per_velocity, other.per_velocity))


def decay_of(specimen: Any) -> Decay:
    """Return the Decay of ``specimen``. Raises ConfigError if a specimen with inner states has no ``decay``."""
    decay = specimen.decay
    if isinstance(decay, Decay):
        return decay
    if specimen.initial_state:
        raise ConfigError(
            f"specimen {type(specimen).__name__}: the class has inner states but no attribute decay. Add a Decay "
            "of rths_nodes.core, which bounds the increments of these states"
        )
    return Decay()


def stated(params: object) -> Decay:
    return declared(params) or Decay()


def declared(params: object) -> Decay | None:
    return params.decay() if hasattr(params, "decay") else None


def check_increments(decay: Decay, law: str, test: TestContext) -> None:
    """Raise ConfigError if a specimen needs too many increments per sample. The message begins with ``law``."""
    if (limit := test.velocity_limit) is not None:  # without a limit, the rig checks the velocities
        check_at(decay, law, limit, test.dt, constant=True)


def check_at(decay: Decay, law: str, velocity: float, dt: float, constant: bool = False) -> None:
    needed = decay.increments(velocity, dt, constant)
    if needed > MOST:
        moving = decay.per_velocity > 0.0
        where = f"at the velocity limit of {velocity:g} m/s, " if moving else ""
        way_out = "raise servo_rate or lower limits.velocity" if moving else "raise servo_rate"
        raise ConfigError(
            f"{law}: {where}the specimen's states need {needed:.4g} increments per sample: must be <= {MOST}, so "
            f"{way_out}"
        )
