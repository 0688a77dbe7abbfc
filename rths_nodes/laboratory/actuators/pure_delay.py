"""An actuator that follows its command exactly, but late."""

from __future__ import annotations

import math
from collections import deque

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.frequency_response import Complex, Frequencies, taps
from rths_nodes.core.parameters import number, params
from rths_nodes.core.protocols import Specimen
from rths_nodes.laboratory.actuators.specimen_path import SpecimenPath

LONGEST = 1_000_000
"""Samples of history that a delay may take: beyond, a wrong unit is more likely than a slow actuator."""


class PureDelay:
    """d(t) = c(t - delay); the command runs straight from sample to sample, so any delay is exact."""

    @params
    class Params:
        delay: float = number("time by which the actuator is late", "s", 0.0, at_least=0.0)

    def __init__(self, params: Params, dt: float, specimen: Specimen) -> None:
        samples = params.delay / dt
        if samples > LONGEST:
            raise ConfigError(f"actuator.delay = {params.delay:g} s: must be <= {LONGEST * dt:g} s")
        whole = math.floor(samples)
        self._fraction = samples - whole
        self._ages = (whole * dt, (whole + 1) * dt)
        self._dt = dt
        self._history: deque[float] = deque(maxlen=whole + 2)
        self._path = SpecimenPath(specimen, dt)
        self.reset()

    def reset(self) -> None:
        """At rest at zero, and commanded to be there for ever before."""
        self._history.extend([0.0] * (self._history.maxlen or 0))
        self._path.reset()
        self.displacement = self.velocity = self.force = 0.0

    def frequency_response(self, omega: Frequencies) -> Complex:
        """Displacement over command at ``omega`` (rad/s)."""
        return taps(omega, (1.0 - self._fraction, self._fraction), self._ages)

    def step(self, command: float) -> None:
        self._history.append(command)
        before, after = self._history[0], self._history[1]
        self.displacement = after + self._fraction * (before - after)
        self.velocity = (after - before) / self._dt
        self.force = self._path.move(self.displacement, self.velocity)
