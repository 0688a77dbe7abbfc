"""Channels of one axis: noise, resolution, range and delay of what is measured, and the command's converter.

Noise comes from one stream per axis, seeded by the scenario's seed and the axis' name and drawn exactly once
per sample, so that a run does not depend on how many axes or nodes there are.
"""

from __future__ import annotations

import math
import zlib
from collections import deque

import numpy as np

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import integer, number, params
from rths_nodes.core.samples import Array

BLOCK = 256
"""Samples of noise drawn at a time; the sequence is the same as drawn one by one."""


@params
class Sensors:
    """Parameters of the sensors of one axis; the defaults are a perfect measurement."""

    displacement_noise_rms: float = number("rms of the displacement noise", "m", 0.0, at_least=0.0)
    force_noise_rms: float = number("rms of the force noise", "N", 0.0, at_least=0.0)
    displacement_resolution: float = number(
        "quantisation step of the displacement; 0 is none", "m", 0.0, at_least=0.0
    )
    force_resolution: float = number("quantisation step of the force; 0 is none", "N", 0.0, at_least=0.0)
    displacement_range: float | None = number(
        "the channel saturates at +- this; never if left out", "m", None, more_than=0.0
    )
    force_range: float | None = number(
        "the channel saturates at +- this; never if left out", "N", None, more_than=0.0
    )
    force_delay: int = integer(
        "samples by which the measured force is late; the displacement is not",
        "samples",
        0,
        at_least=0,
        at_most=1000,
    )


@params
class Output:
    """The converter of one axis' command; the defaults send it as it is."""

    resolution: float = number("quantisation step of the command; 0 is none", "m", 0.0, at_least=0.0)
    range: float | None = number("the command saturates at +- this; never if left out", "m", None, more_than=0.0)

    def sent(self, command: float) -> float:
        """What the converter makes of ``command`` (m)."""
        return _converted(command, self.resolution, self.range)


def _converted(value: float, resolution: float, limit: float | None) -> float:
    if resolution > 0.0 and math.isfinite(value):
        value = round(value / resolution) * resolution
    if limit is not None and abs(value) >= limit:
        value = math.copysign(limit, value)
    return value


def _at_end(value: float, limit: float | None) -> bool:
    return limit is not None and abs(value) >= limit


class SensorPair:
    """Turns the true displacement (m) and force (N) of one axis into measured ones."""

    def __init__(self, params: Sensors, seed: int, axis: str) -> None:
        self._seed = [seed, zlib.crc32(axis.encode())]
        p = params
        self._rms = np.array([p.displacement_noise_rms, p.force_noise_rms])
        self._displacement = (p.displacement_resolution, p.displacement_range)
        self._force = (p.force_resolution, p.force_range)
        self._converts = (self._displacement, self._force) != ((0.0, None), (0.0, None))
        self.perfect = params == Sensors()
        self._noisy = p.displacement_noise_rms > 0.0 or p.force_noise_rms > 0.0
        self._late = p.force_delay
        self.reset()

    def reset(self) -> None:
        """The noise stream from its beginning, and no force before."""
        self._random = np.random.default_rng(np.random.SeedSequence(self._seed))
        self._drawn: list[list[float]] = []
        self._under_way = deque([0.0] * self._late)
        self.saturated = False

    def measure(self, displacement: float, force: float) -> tuple[float, float]:
        """Measured displacement and force; ``saturated`` tells whether one is at the end of its range."""
        if self.perfect:
            return displacement, force
        if self._noisy:
            if not self._drawn:
                self._draw()
            of_displacement, of_force = self._drawn.pop()
            displacement += of_displacement
            force += of_force
        if self._converts:
            displacement = _converted(displacement, *self._displacement)
            force = _converted(force, *self._force)
            self.saturated = _at_end(displacement, self._displacement[1]) or _at_end(force, self._force[1])
        if self._late:
            self._under_way.append(force)
            force = self._under_way.popleft()
        return displacement, force

    def _draw(self) -> None:
        """The next block of noise, the last sample first."""
        noise = self._random.standard_normal((BLOCK, 2)) * self._rms
        self._drawn = noise[::-1].tolist()


class AuxiliarySensors:
    """Noise on the auxiliary channels of a rig, from a stream of their own."""

    def __init__(self, noise_rms: tuple[float, ...] | None, names: tuple[str, ...], seed: int) -> None:
        if noise_rms is not None and len(noise_rms) != len(names):
            raise ConfigError(
                f"port.auxiliary_noise_rms: {len(noise_rms)} numbers; must be {len(names)}: "
                f"{', '.join(names) or 'the rig has no auxiliary channel'}"
            )
        self._rms = np.array(noise_rms or (0.0,) * len(names))
        self._seed = [seed, zlib.crc32(b"auxiliary"), len(names)]
        self._noisy = bool(self._rms.any())
        self.reset()

    def reset(self) -> None:
        """The noise stream from its beginning."""
        self._random = np.random.default_rng(np.random.SeedSequence(self._seed))

    def measure(self, true: Array) -> Array:
        """The measured channels ``(n,)``."""
        if not self._noisy:
            return true
        return true + self._rms * self._random.standard_normal(len(self._rms))
