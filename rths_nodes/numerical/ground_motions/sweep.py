"""A sine whose frequency changes evenly: the loading test of the TADC verification."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from rths_nodes.core.checks import TestContext
from rths_nodes.core.parameters import number, params
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


class Sweep(Finite):
    """a sin(2 pi (f_0 t + (f_1 - f_0) t^2 / (2 T))) from 0 to T, rest after.

    The defaults are those of the TADC verification, sin(2 pi (0.1 t + 9.9 t^2 / 100)) mm.
    """

    @params
    class Params:
        proportional_to: ClassVar[str] = "amplitude"
        amplitude: float = number(
            "amplitude a; m where it is a prescribed displacement", "m/s^2 or m", default=0.001
        )
        start_frequency: float = number("frequency f_0 at the beginning", "Hz", default=0.1, at_least=0.0)
        end_frequency: float = number("frequency f_1 at the end", "Hz", default=10.0, at_least=0.0)
        duration: float = number("duration T", "s", default=50.0, more_than=0.0)
        taper: float = number("time of a smooth rise at the beginning and fall at the end", "s", 0.0, at_least=0.0)

        def validate(self, path: str) -> None:
            """Refuses tapers that do not fit."""
            check_taper(self.taper, self.duration, f"{path}.taper")

        def cautions(self, test: TestContext) -> list[str]:
            """Warns of a sweep that is cut off or too fast for the steps."""
            name = "end_frequency" if self.end_frequency >= self.start_frequency else "start_frequency"
            return excitation_cautions(name, getattr(self, name), self.duration, test)

    def _triple(self, times: Array) -> Triple:
        p, t = self._p, np.asarray(times, dtype=float)
        start = 2.0 * np.pi * p.start_frequency
        growth = 2.0 * np.pi * (p.end_frequency - p.start_frequency) / p.duration
        angle = ((start + 0.5 * growth * t) * t, start + growth * t, np.full(t.shape, growth))
        value, first, second = product(window(t, p.duration, p.taper), wave(angle))
        return p.amplitude * value, p.amplitude * first, p.amplitude * second
