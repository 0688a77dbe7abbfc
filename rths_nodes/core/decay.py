# SPDX-License-Identifier: Apache-2.0
"""Decay rates of the inner states of a specimen, and the increments that their integration needs for them.

Explicit Runge-Kutta of fourth order is stable while decay rate times increment stays below 2.785. Bouc-Wen states
decay with the velocity, so that an increment which is right for a slow test diverges in a fast one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from rths_nodes.core.checks import TestContext
from rths_nodes.core.errors import ConfigError

LONGEST = 1.5
"""Largest decay rate times increment: RK4 damps by 0.273 where exp(-1.5) is 0.223, goes monotonically to the limit
of a Bouc-Wen state and never beyond."""
MOST = 64
"""Increments of a sample that a test may need at its velocity limit: about 0.2 ms of computing."""
HARD_LIMIT = 2 * MOST
"""Increments of a sample beyond which the states become nan, which trips the test: the rig is far too fast."""
ROUNDED_OFF = 40.0
"""Decay times after which what was before is below the rounding of the numbers."""


@dataclass(frozen=True, slots=True)
class Decay:
    """A bound on the decay rates of all inner states: ``at_rest + per_velocity * abs(v)`` (1/s), v in m/s."""

    at_rest: float = 0.0
    """1/s."""
    per_velocity: float = 0.0
    """1/m."""
    settling: float = math.inf
    """Under a constant velocity the states stand still after so many decay times; inf where they do not."""

    @property
    def numbers(self) -> tuple[float, float, float]:
        """At rest (1/s), per velocity (1/m) and settling: among the constants of a kernel."""
        return self.at_rest, self.per_velocity, self.settling

    def times(self, velocity: float, duration: float) -> float:
        """The decay times in ``duration`` (s) at ``velocity`` (m/s)."""
        return (self.at_rest + self.per_velocity * abs(velocity)) * duration

    def increments(self, velocity: float, duration: float, constant: bool = False) -> float:
        """Increments that ``duration`` (s) needs at a velocity of at most ``velocity`` (m/s); whole, or inf.

        Where the velocity is ``constant`` none is needed once the states have settled.
        """
        times = self.times(velocity, duration)
        needed = (min(times, self.settling) if constant else times) / LONGEST
        return math.ceil(needed) if needed < math.inf else math.inf

    def fastest(self, increment: float) -> float:
        """The largest velocity (m/s) at which an ``increment`` (s) is short enough; negative where none is."""
        left = LONGEST / increment - self.at_rest
        if left < 0.0:
            return -1.0
        return left / self.per_velocity if self.per_velocity else math.inf

    def beside(self, other: Decay) -> Decay:
        """Return the decay of the states of two specimens that move together."""
        for one, the_other in ((self, other), (other, self)):
            if one == Decay():
                return the_other
        return Decay(max(self.at_rest, other.at_rest), max(self.per_velocity, other.per_velocity))


def decay_of(specimen: Any) -> Decay:
    """Return the ``decay`` of ``specimen``. Raises ConfigError where it has inner states, but no ``decay``."""
    found = specimen.decay
    if isinstance(found, Decay):
        return found
    if specimen.initial_state:
        raise ConfigError(
            f"specimen {type(specimen).__name__}: has inner states, but no attribute decay, a Decay of "
            "rths_nodes.core: without it nobody knows how short the increments of its states must be"
        )
    return Decay()


def stated(params: object) -> Decay:
    """Return the ``decay()`` of a specimen's parameters; ``Decay()`` where they leave it out."""
    return declared(params) or Decay()


def declared(params: object) -> Decay | None:
    """The same; None where they leave it out."""
    return params.decay() if hasattr(params, "decay") else None


def check_increments(decay: Decay, words: str, test: TestContext) -> None:
    """Raises ConfigError where a specimen on an axis needs too many increments for real time.

    ``words`` name the parameter and its value: ``slip_displacement = 1e-07 m``.
    """
    limit = test.velocity_limit
    if limit is None:
        return  # part of a rig, which knows how fast it moves
    check_at(decay, words, limit, test.dt, constant=True)


def check_at(decay: Decay, words: str, velocity: float, dt: float, constant: bool = False) -> None:
    """As :func:`check_increments`, at ``velocity`` (m/s), ``constant`` in a sample or not, of ``dt`` (s)."""
    needed = decay.increments(velocity, dt, constant)
    if needed > MOST:
        moving = decay.per_velocity > 0.0
        where = f"at {velocity:g} m/s, the velocity limit, " if moving else ""
        way_out = "raise servo_rate or lower limits.velocity" if moving else "raise servo_rate"
        raise ConfigError(
            f"{words}: {where}the specimen's states need {needed:.4g} increments of a sample, must be <= {MOST}: "
            f"{way_out}"
        )
