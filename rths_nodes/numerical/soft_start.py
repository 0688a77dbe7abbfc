# SPDX-License-Identifier: Apache-2.0
"""Soft start: a prescribed displacement before the test, to train adaptive compensators.

Wang et al. (two-stage adaptive delay compensation), sections 2 and 3.5: the parameters are initialised "through
loading prescribed desired displacements to the testing system prior to final RTHS".
"""

from __future__ import annotations

import math

import numpy as np

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import number, params
from rths_nodes.core.rounding import ROUNDING
from rths_nodes.core.samples import FLAG_RESTING, FLAG_SOFT_START, Array


@params
class SoftStart:
    """A sine with an amplitude that rises, stays and falls, the same for all axes; times are the rig's."""

    amplitude: float = number("largest displacement of every axis", "m", more_than=0.0)
    frequency: float = number("frequency of the sine", "Hz", 3.0, more_than=0.0)
    rise_time: float = number("time in which the amplitude grows", "s", 2.0, at_least=0.0)
    duration: float = number("time from the beginning until the amplitude falls", "s", 5.0, more_than=0.0)
    fall_time: float = number("time in which the amplitude falls; adaptation rests", "s", 1.0, at_least=0.0)
    rest_time: float = number("time at rest before the test; adaptation rests", "s", 0.5, at_least=0.0)

    def validate(self, path: str) -> None:
        if self.rise_time > self.duration:
            raise ConfigError(
                f"{path}.rise_time = {self.rise_time:g} s: must be <= {path}.duration = {self.duration:g} s"
            )
        if self.total > 3600.0:
            raise ConfigError(f"{path}: lasts {self.total:g} s altogether, must be <= 3600 s")

    @property
    def total(self) -> float:
        """Time from its beginning to the beginning of the test, s."""
        return self.duration + self.fall_time + self.rest_time

    def steps(self, step: float) -> int:
        return math.ceil(self.total / step - ROUNDING)

    def motion(self, step: float) -> tuple[Array, Array, Array, list[int]]:
        """Return displacement (m), velocity, acceleration, flags of Targets 0 .. ``steps``, ``(steps + 1,)`` each.

        The last one is the start of the test: at rest at zero.
        """
        times = step * np.arange(self.steps(step) + 1)
        fallen = self.duration + self.fall_time
        corners, heights = [0.0, self.rise_time, self.duration, fallen, fallen + 1.0], [0.0, 1.0, 1.0, 0.0, 0.0]
        envelope = self.amplitude * np.interp(times, corners, heights)
        ends = np.searchsorted(corners, times, side="right").clip(1, len(corners) - 1)
        slope = self.amplitude * (np.diff(heights) / np.maximum(np.diff(corners), 1e-12))[ends - 1]
        omega = 2.0 * math.pi * self.frequency
        sine, cosine = np.sin(omega * times), np.cos(omega * times)
        over = times >= fallen
        displacement = np.where(over, 0.0, envelope * sine)
        velocity = np.where(over, 0.0, slope * sine + envelope * omega * cosine)
        acceleration = np.where(over, 0.0, 2.0 * slope * omega * cosine - envelope * omega**2 * sine)
        displacement[-1] = velocity[-1] = acceleration[-1] = 0.0
        flags = np.where(times > self.duration, FLAG_SOFT_START | FLAG_RESTING, FLAG_SOFT_START)
        return displacement, velocity, acceleration, [int(flag) for flag in flags]
