"""A specimen moved along straight lines: for actuators whose displacement is known at the samples only."""

from __future__ import annotations

import math

from rths_nodes.core.decay import HARD_LIMIT, LONGEST, decay_of
from rths_nodes.core.protocols import Specimen

INCREMENTS = 4
"""RK4 steps for the specimen's inner states within one sample, at least."""


class SpecimenPath:
    """Moves ``specimen`` from sample to sample at constant velocity and keeps its inner states.

    A specimen with mass also resists the acceleration, the change of the velocity in a sample; the first one
    begins at rest. Where the states forget fast a sample has more increments than ``INCREMENTS``, as many as
    ``specimen.decay`` asks for. Beyond ``HARD_LIMIT`` the states are nan.
    """

    def __init__(self, specimen: Specimen, dt: float) -> None:
        self._specimen = specimen
        self._dt = dt
        self._mass: float = getattr(specimen, "mass", 0.0)
        self._decay = decay_of(specimen)
        self._fastest = self._decay.fastest(dt / INCREMENTS)
        self.reset()

    def reset(self) -> None:
        """The specimen as built, at displacement zero."""
        self._state = list(self._specimen.initial_state)
        self._displacement = self._velocity = 0.0

    def move(self, displacement: float, velocity: float) -> float:
        """Force (N) after the move to ``displacement`` (m), with ``velocity`` (m/s) at its end."""
        if self._state:
            self._advance(displacement)
        self._displacement = displacement
        force = self._specimen.force(self._state, displacement, velocity)
        if self._mass:
            force += self._mass * (velocity - self._velocity) / self._dt
            self._velocity = velocity
        return force

    def _advance(self, displacement: float) -> None:
        v = (displacement - self._displacement) / self._dt
        increments, h = INCREMENTS, self._dt / INCREMENTS
        if abs(v) > self._fastest:
            increments, h = self._divided(v)
        x, state, rate = self._displacement, self._state, self._specimen.rate
        for _ in range(increments):
            k1 = rate(state, x, v)
            k2 = rate([s + 0.5 * h * k for s, k in zip(state, k1, strict=True)], x + 0.5 * h * v, v)
            k3 = rate([s + 0.5 * h * k for s, k in zip(state, k2, strict=True)], x + 0.5 * h * v, v)
            k4 = rate([s + h * k for s, k in zip(state, k3, strict=True)], x + h * v, v)
            slopes = zip(state, k1, k2, k3, k4, strict=True)
            state = [s + h / 6.0 * (a + 2.0 * b + 2.0 * c + d) for s, a, b, c, d in slopes]
            x += h * v
        self._state = state

    def _divided(self, velocity: float) -> tuple[int, float]:
        """Increments of a sample at ``velocity`` (m/s), and their length, s.

        They end where the states have settled. Where they would be too many, the states become nan.
        """
        times = self._decay.times(velocity, self._dt)
        moving = min(times, self._decay.settling)
        if not moving <= HARD_LIMIT * LONGEST:
            self._state = [math.nan] * len(self._state)
            return 1, self._dt
        increments = math.ceil(moving / LONGEST)
        return increments, self._dt * (moving / times) / increments
