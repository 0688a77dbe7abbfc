# SPDX-License-Identifier: Apache-2.0
"""Loading protocols for components: cycles of prescribed displacement with increasing amplitudes.

Each cycle is a sine of amplitude a, whose velocity at zero displacement is the parameter ``velocity`` v. The
period is 2 pi a / v. Displacement, velocity and acceleration are continuous from one amplitude to the next.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from rths_nodes.core.checks import TestContext
from rths_nodes.core.declarations import AnyParams
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import integer, number, params
from rths_nodes.core.samples import Array
from rths_nodes.numerical.ground_motions.waves import (
    Finite,
    Triple,
    excitation_cautions,
    rise,
)

RATIO = 1.4
"""Ratio of consecutive amplitudes (FEMA 461, section 2.9.1)."""
FURTHER = 0.3
"""Increment of the amplitude beyond the target, as a fraction of the target (FEMA 461, section 2.9.1)."""
CYCLES = 2
"""Number of cycles at each amplitude (FEMA 461, section 2.9.1)."""
BEAM_TO_COLUMN = ((6, 0.00375), (6, 0.005), (6, 0.0075), (4, 0.01), (2, 0.015), (2, 0.02), (2, 0.03), (2, 0.04))
"""Numbers of cycles and story drift angles, rad (AISC 341, K2.4b)."""
INCREMENT = 0.01
"""Increment of the drift angle beyond 0.04 rad (AISC 341, K2.4b)."""


@params
class CyclesParams:
    proportional_to: ClassVar[str] = "scale"
    velocity: float = number("largest velocity, reached in each cycle at zero displacement", "m/s", more_than=0.0)
    ease: float = number(
        "duration of the rise of the speed at the beginning, and of the fall at the end", "s", 0.5, at_least=0.0
    )
    scale: float = number("factor on amplitudes and velocity", default=1.0, more_than=0.0)

    def amplitudes(self) -> Array:
        """Return the amplitudes of all cycles, m, one number per cycle."""
        raise TypeError("a subclass of CyclesParams must define amplitudes()")

    def validate(self, path: str) -> None:
        longest = float(periods(self.amplitudes(), self.velocity).sum())
        if self.ease > longest:
            raise ConfigError(
                f"{path}.ease = {self.ease:g} s: must be <= {longest:.4g} s, the duration of all cycles"
            )

    def fits(self, test: TestContext) -> None:
        if test.has_structure:
            raise ConfigError(
                "type: a loading protocol is a displacement and not a ground acceleration; use the protocol as "
                "the displacement of the integrator predefined"
            )

    def cautions(self, test: TestContext) -> list[str]:
        lengths = periods(self.amplitudes(), self.velocity)
        return excitation_cautions("frequency", 1.0 / float(lengths.min()), float(lengths.sum()) + self.ease, test)


class Cycles(Finite):
    """Base of loading protocols, with one cycle of displacement for each of ``params.amplitudes()`` (m).

    ``scale`` multiplies displacement, velocity and acceleration, but not the periods.
    """

    def __init__(self, params: AnyParams, seed: int) -> None:
        super().__init__(params, seed)
        self._amplitudes = params.amplitudes()
        self._ends = np.cumsum(periods(self._amplitudes, params.velocity))

    def _triple(self, times: Array) -> Triple:
        t, ends, amplitudes = np.asarray(times, dtype=float), self._ends, self._amplitudes
        along, speed, change = self._path(t)
        index = np.searchsorted(ends, along, side="right").clip(max=len(ends) - 1)
        a, velocity = amplitudes[index], self._p.velocity
        angle = (along - np.concatenate([[0.0], ends])[index]) * velocity / a
        moving = (t > 0.0) & (t < ends[-1] + self._p.ease)
        sine, cosine = np.where(moving, np.sin(angle), 0.0), np.where(moving, np.cos(angle), 0.0)
        scale = self._p.scale
        largest = scale * velocity
        return (
            scale * a * sine,
            largest * cosine * speed,
            largest * (cosine * change - velocity / a * sine * speed**2),
        )

    def _path(self, times: Array) -> Triple:
        """Return the time along the cycles (s), the fraction of full speed, and the rate of the fraction (1/s)."""
        ease, length = self._p.ease, self._ends[-1]
        if not ease:
            return times.clip(0.0, length), np.ones(times.shape), np.zeros(times.shape)
        left = length + ease - times
        up, down = rise(times, ease), rise(left, ease)
        first, last = _integral(times, ease), length - _integral(left, ease)
        begins = 2.0 * times < length + ease
        return (
            np.where(begins, first, last),
            np.where(begins, up[0], down[0]),
            np.where(begins, up[1], -down[1]),
        )


def _integral(times: Array, length: float) -> Array:
    x = np.clip(times / length, 0.0, 1.0)
    return length * x**4 * (2.5 - 3.0 * x + x * x) + np.maximum(times - length, 0.0)


def periods(amplitudes: Array, velocity: float) -> Array:
    """Return the periods (s) of sines with these amplitudes (m) and the largest velocity ``velocity`` (m/s)."""
    return 2.0 * np.pi * amplitudes / velocity


class Fema461(Cycles):
    """Quasi-static protocol of FEMA 461: two cycles at each amplitude a_i = 1.4^(i - n) times the target.

    n is ``steps`` (section 2.9.1). Each of the ``further_steps`` adds 0.3 times the target.
    """

    SOURCES = ("fema_461_2007",)

    @params
    class Params(CyclesParams):
        amplitude: float = number("targeted largest amplitude of deformation", "m", more_than=0.0)
        steps: int = integer(
            "number n of amplitudes up to the targeted amplitude", default=10, at_least=1, at_most=30
        )
        further_steps: int = integer(
            "number of amplitudes beyond the targeted amplitude", default=0, at_least=0, at_most=30
        )

        def amplitudes(self) -> Array:
            rising = RATIO ** (np.arange(self.steps) - self.steps + 1.0)
            beyond = 1.0 + FURTHER * np.arange(1.0, self.further_steps + 1.0)
            return self.amplitude * np.repeat(np.concatenate([rising, beyond]), CYCLES)


class Aisc341(Cycles):
    """Loading sequence of AISC 341, K2.4b, for beam-to-column moment connections, in story drift angles.

    Six cycles each at 0.00375, 0.005 and 0.0075 rad, four at 0.01 rad, two each at 0.015, 0.02, 0.03 and 0.04 rad,
    and two at every further 0.01 rad. The displacement is the drift angle times ``length``.
    """

    SOURCES = ("aisc_341_2016",)

    @params
    class Params(CyclesParams):
        length: float = number("height of the story: displacement divided by drift angle", "m", more_than=0.0)
        largest_angle: float = number(
            "largest story drift angle", "rad", 0.04, at_least=BEAM_TO_COLUMN[0][1], at_most=0.2
        )

        def amplitudes(self) -> Array:
            beyond = np.arange(BEAM_TO_COLUMN[-1][1], self.largest_angle, INCREMENT) + INCREMENT
            sequence = [*BEAM_TO_COLUMN, *((CYCLES, round(angle, 9)) for angle in beyond.tolist())]
            cycles = [angle for count, angle in sequence for _ in range(count)]
            return self.length * np.array([angle for angle in cycles if angle <= self.largest_angle])

        def validate(self, path: str) -> None:
            last = float(self.amplitudes()[-1]) / self.length
            if abs(last - self.largest_angle) > 1e-9:
                raise ConfigError(
                    f"{path}.largest_angle = {self.largest_angle:g} rad: must be an angle of the sequence; the "
                    f"next smaller angle is {last:g} rad"
                )
            CyclesParams.validate(self, path)
