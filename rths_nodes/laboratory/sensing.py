# SPDX-License-Identifier: Apache-2.0
"""Measurement of the true state by the sensors: kernels and noise.

The kernel of the sensors of one axis is

    step(constants, state, displacement, force, noises, sample) -> state, (displacement, force, end)

The kernel converts true to measured displacement (m) and force (N). ``end`` is true if a sensor is at the end of
its range. Each axis has one noise stream, whose seed depends on the scenario's seed and the axis name. Exactly one
row of the stream is drawn per sample.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from rths_nodes.core.arithmetic import NAN, Numbers
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.kernels import Kernel, ToNumber, no_state
from rths_nodes.core.samples import Array
from rths_nodes.laboratory.sensors import Sensors, converted

BLOCK = 256
"""Number of samples whose noise is drawn together, in the same sequence as with single draws."""


class Channel(NamedTuple):
    """Errors of one channel, in its unit. ``drift`` is per sample. A missing ``limit`` is NaN."""

    scale: float
    offset: float
    drift: float
    dead: bool
    shown_dead: float
    resolution: float
    limit: float


Pair = tuple[Channel, Channel]


def read(k: Channel, value: float, noise: float, sample: int) -> float:
    scale, offset, drift, dead, shown_dead, _, _ = k
    return shown_dead if dead else scale * value + (offset + sample * drift) + noise


def sensors(
    k: Pair, s: tuple[()], displacement: float, force: float, noise: float, noise_of_force: float, sample: int
) -> tuple[tuple[()], tuple[float, float, bool]]:
    """Readings of both channels after the converters."""
    one, other = k
    shown = converted(read(one, displacement, noise, sample), one[5], one[6])
    push = converted(read(other, force, noise_of_force, sample), other[5], other[6])
    return s, (shown, push, abs(shown) >= one[6] or abs(push) >= other[6])


SHORT = 8
"""Largest delay, samples, for which a tuple holds the forces. A compiled ring buffer adds 10 ns per sample."""


def late(passed: ToNumber) -> Callable[..., tuple[object, tuple[float, float, bool]]]:
    def step(
        k: Pair, s: object, displacement: float, force: float, noise: float, noise_of_force: float, sample: int
    ) -> tuple[object, tuple[float, float, bool]]:
        """Measure displacement and force, and delay the force."""
        _, (displacement, force, end) = sensors(k, (), displacement, force, noise, noise_of_force, sample)
        s, force = passed(s, force)
        return s, (displacement, force, end)

    return step


def queued(waiting: Numbers, value: float) -> tuple[Numbers, float]:
    return waiting[1:] + (value,), waiting[0]


def in_ring(s: tuple[Array, int], value: float) -> tuple[tuple[Array, int], float]:
    ring, oldest = s
    before = float(ring[oldest])
    ring[oldest] = value
    oldest += 1
    return (ring, 0 if oldest == len(ring) else oldest), before


def waiting(samples: int) -> tuple[Callable[..., object], ToNumber]:
    if samples <= SHORT:
        return lambda k: (0.0,) * samples, queued
    return lambda k: (np.zeros(samples), 0), in_ring


def constants(p: object, dt: float) -> Pair:
    def channel(name: str) -> Channel:
        columns = (f"{name}_{suffix}" for suffix in ("scale", "offset", "drift", "dead", "resolution", "range"))
        scale, offset, drift, dead, resolution, limit = attrgetter(*columns)(p)
        shown, most = 0.0 if dead is None else dead, NAN if limit is None else limit
        return Channel(scale, offset, drift * dt, dead is not None, shown, resolution, most)

    return channel("displacement"), channel("force")


class Noise:
    """Provides normally distributed numbers, one row per sample, drawn in blocks."""

    def __init__(self, seed: Sequence[int], rms: Sequence[float]) -> None:
        self._seed, self._rms = list(seed), np.array(rms)
        self.any = bool(self._rms.any())
        self.reset()

    def reset(self) -> None:
        self._random = np.random.default_rng(np.random.SeedSequence(self._seed))
        self._left: list[Array] = []

    def resume(self, sample: int) -> None:
        self.reset()
        if self.any:
            self.ahead(sample + 1)

    def row(self) -> Array:
        if not self._left:
            self._left = list(self.ahead(BLOCK)[::-1])
        return self._left.pop()

    def numbers(self) -> list[list[float]]:
        """Return the rows of the next ``BLOCK`` samples, the last sample first."""
        rows: list[list[float]] = self.ahead(BLOCK)[::-1].tolist()
        return rows

    def ahead(self, samples: int) -> Array:
        """Return the next rows, ``(samples, n)``, after all rows that have been drawn."""
        drawn: Array = self._random.standard_normal((samples, len(self._rms)))
        # by columns, because scaling row by row takes five times as long
        for column, rms in zip(drawn.T, self._rms.tolist(), strict=True):
            column *= rms
        return drawn


class SensorPair:
    def __init__(self, params: Sensors, seed: int, axis: str, dt: float) -> None:
        p = params
        self.noise = Noise([seed, zlib.crc32(axis.encode())], [p.displacement_noise_rms, p.force_noise_rms])
        self._dt = dt
        self._kernel = self.kernel_of(params)
        self._constants: Pair = self._kernel.constants(params, dt)
        perfect = self.kernel_of(Sensors()).constants(Sensors(), dt)
        same = all(_same(*both) for both in zip(self._constants, perfect, strict=True))
        self.perfect = same and not (self.noise.any or p.force_delay)
        self.reset()

    @classmethod
    def kernel_of(cls, params: Sensors) -> Kernel:
        if not params.force_delay:
            return Kernel(constants, no_state, sensors)
        rest, passed = waiting(params.force_delay)
        return Kernel(constants, rest, late(passed))

    def reset(self) -> None:
        self.noise.reset()
        self._drawn: list[list[float]] = []
        self._state = self._kernel.rest(self._constants)
        self._sample = 0
        self.saturated = False

    def bound(self) -> tuple[Kernel, object]:
        return self._kernel, self._constants

    def resume(self, sample: int) -> None:
        self.noise.resume(sample)
        self._drawn, self._sample = [], sample + 1

    def take(self, change: Callable[[object], object]) -> None:
        self._state = change(self._state)

    def measure(self, displacement: float, force: float) -> tuple[float, float]:
        """Return measured displacement (m) and force (N). ``saturated`` is true if a sensor reaches its range."""
        if self.perfect:
            return displacement, force
        noise = noise_of_force = 0.0
        if self.noise.any:
            if not self._drawn:
                self._drawn = self.noise.numbers()
            noise, noise_of_force = self._drawn.pop()
        sample, self._sample = self._sample, self._sample + 1
        self._state, (displacement, force, self.saturated) = self._kernel.step(
            self._constants, self._state, displacement, force, noise, noise_of_force, sample
        )
        return displacement, force


def _same(one: Channel, other: Channel) -> bool:
    return all(a == b or (a != a and b != b) for a, b in zip(one, other, strict=True))


def auxiliary_noise(rms: tuple[float, ...] | None, names: tuple[str, ...], seed: int) -> Noise:
    """Return the noise of a rig's auxiliary channels. Raises ConfigError for a wrong number of ``rms`` values."""
    if rms is not None and len(rms) != len(names):
        raise ConfigError(
            f"port.auxiliary_noise_rms: must have {len(names)} numbers "
            f"({', '.join(names) or 'the rig has no auxiliary channel'}), but has {len(rms)}"
        )
    return Noise([seed, zlib.crc32(b"auxiliary"), len(names)], rms or (0.0,) * len(names))


class SecondSensors:
    """Simulates second displacement sensors of some axes, as auxiliary channels in m."""

    def __init__(self, sensors: Mapping[str, Sensors], seed: int) -> None:
        seconds = [(index, name, axis.second) for index, (name, axis) in enumerate(sensors.items()) if axis.second]
        self.places = [index for index, _, _ in seconds]
        self.names = tuple(f"{params.channel or f'second_displacement_{name}'} [m]" for _, name, params in seconds)
        self._scale = np.array([params.scale for _, _, params in seconds])
        self._offset = np.array([params.offset for _, _, params in seconds])
        seeds = [seed, zlib.crc32(b"second"), *(zlib.crc32(name.encode()) for _, name, _ in seconds)]
        self._noise = Noise(seeds, [params.noise_rms for _, _, params in seconds])

    def reset(self) -> None:
        self._noise.reset()

    def true(self, displacements: Sequence[float]) -> Array:
        return np.array([displacements[axis] for axis in self.places])

    def measure(self, true: Array) -> Array:
        shown: Array = self._scale * true + self._offset
        return shown + self._noise.row() if self._noise.any else shown
