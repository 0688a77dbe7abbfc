"""Ground motions that are formulas: a sine and rest."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from rths_nodes.core.checks import TestContext
from rths_nodes.core.parameters import number, params
from rths_nodes.core.samples import Array
from rths_nodes.numerical.ground_motions.windows import excitation_cautions


class Sine:
    """A sine without end, a sin(2 pi f t + phase): as ground acceleration or as prescribed displacement.

    It starts at once: a prescribed displacement with phase 0 has its full velocity 2 pi f a at t = 0.
    """

    @params
    class Params:
        proportional_to: ClassVar[str] = "amplitude"
        amplitude: float = number("amplitude a; m where it is a prescribed displacement", "m/s^2 or m")
        frequency: float = number("frequency f", "Hz", more_than=0.0)
        phase: float = number("phase at t = 0", "rad", default=0.0)

        def cautions(self, test: TestContext) -> list[str]:
            """Warns of a sine that is too fast for the steps."""
            return excitation_cautions("frequency", self.frequency, 0.0, test)

    def __init__(self, params: Params, seed: int) -> None:
        self._amplitude = params.amplitude
        self._phase = params.phase
        self._omega = 2.0 * np.pi * params.frequency

    def sample(self, times: Array) -> Array:
        values: Array = self._amplitude * np.sin(self._omega * np.asarray(times) + self._phase)
        return values

    def derivatives(self, times: Array) -> tuple[Array, Array]:
        angle = self._omega * np.asarray(times) + self._phase
        first: Array = self._amplitude * self._omega * np.cos(angle)
        second: Array = -self._amplitude * self._omega**2 * np.sin(angle)
        return first, second


class NoMotion:
    """Rest: zero at all times."""

    @params
    class Params:
        pass

    def __init__(self, params: Params, seed: int) -> None:
        pass

    def sample(self, times: Array) -> Array:
        return np.zeros(np.shape(times))

    def derivatives(self, times: Array) -> tuple[Array, Array]:
        return self.sample(times), self.sample(times)
