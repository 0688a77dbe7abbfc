"""A few periods of a sine: the three- and ten-period excitations of Horiuchi et al. (1996)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from rths_nodes.core.checks import TestContext
from rths_nodes.core.parameters import integer, number, params
from rths_nodes.core.samples import Array
from rths_nodes.numerical.ground_motions.windows import (
    Finite,
    Triple,
    check_taper,
    excitation_cautions,
    product,
    wave,
    window,
)


class Harmonic(Finite):
    """a sin(2 pi f t) for a number of periods, rest after; ``sine`` goes on for ever.

    Without ``ramp_periods`` it starts and ends at full velocity: right for a ground acceleration, too much for an
    actuator.
    """

    @params
    class Params:
        proportional_to: ClassVar[str] = "amplitude"
        amplitude: float = number("amplitude a; m where it is a prescribed displacement", "m/s^2 or m")
        frequency: float = number("frequency f", "Hz", more_than=0.0)
        periods: int = integer("length in periods", default=10, at_least=1)
        ramp_periods: int = integer(
            "periods of a smooth rise at the beginning and fall at the end", default=0, at_least=0
        )

        def validate(self, path: str) -> None:
            """Refuses rises that do not fit."""
            check_taper(self.ramp_periods, self.periods, f"{path}.ramp_periods", "periods")

        def cautions(self, test: TestContext) -> list[str]:
            """Warns of an excitation that is cut off or too fast for the steps."""
            return excitation_cautions("frequency", self.frequency, self.periods / self.frequency, test)

    def _triple(self, times: Array) -> Triple:
        p, t = self._p, np.asarray(times, dtype=float)
        omega = 2.0 * np.pi * p.frequency
        angle = (omega * t, np.full(t.shape, omega), np.zeros(t.shape))
        shape = window(t, p.periods / p.frequency, p.ramp_periods / p.frequency)
        value, first, second = product(shape, wave(angle))
        return p.amplitude * value, p.amplitude * first, p.amplitude * second
