# SPDX-License-Identifier: Apache-2.0
"""Simulated sensors and command path of one axis, with their errors, kernels and noise.

These errors persist for the whole run. Events during a run are faults (``loop/faults``). The kernel of the sensors
of one axis is

    step(constants, state, displacement, force, noises, sample) -> state, (displacement, force, end)

The kernel converts true to measured displacement (m) and force (N). ``end`` is true if a sensor saturates. Each
axis has one noise stream, whose seed depends on the scenario's seed and the axis name. Exactly one row of the
stream is drawn per sample.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import ClassVar, NamedTuple

import numpy as np

from rths_nodes.core.arithmetic import NAN, Numbers, copysign, rounded
from rths_nodes.core.errors import ConfigError, join, show, unknown
from rths_nodes.core.kernels import Kernel, ToNumber, no_state
from rths_nodes.core.parameters import Field, TestContext, integer, number, params, section, text
from rths_nodes.core.samples import Array

LARGEST_SCALE = 1e3
FURTHEST = 100.0


def _scale(meaning: str) -> Field:
    return number(
        f"factor by which {meaning} is multiplied: 1 is correct, a negative factor inverts the sign, and 0 is "
        "refused",
        "1",
        1.0,
        at_least=-LARGEST_SCALE,
        at_most=LARGEST_SCALE,
    )


def _offset(meaning: str) -> Field:
    return number(meaning, "m", 0.0, at_least=-FURTHEST, at_most=FURTHEST)


def _cable(meaning: str) -> Field:
    return text(f"{meaning}, by name; default: this axis", None)


def _check_scales(params: object, path: str, *names: str) -> None:
    for name in names:
        if getattr(params, name) == 0.0:
            raise ConfigError(f"{join(path, name)} = 0: must not be 0")


def converted(value: float, resolution: float, limit: float) -> float:
    """Return ``value`` rounded to ``resolution`` (0: not rounded) and limited to +-``limit`` (NaN: no limit)."""
    if resolution > 0.0:
        value = rounded(value / resolution) * resolution
    return copysign(limit, value) if abs(value) >= limit else value


class MayBeWrong:
    WRONG: ClassVar[tuple[str, ...]]
    SCALES: ClassVar[tuple[str, ...]]
    cabled_to: str | None

    def validate(self, path: str) -> None:
        _check_scales(self, path, *self.SCALES)

    def fits(self, test: TestContext) -> None:
        if self.cabled_to is not None and self.cabled_to not in test.axes:
            raise unknown(f"cabled_to = {show(self.cabled_to)}", "axis", self.cabled_to, test.axes)

    def cautions(self, test: TestContext) -> list[str]:
        faults = self.wrong()
        return [f"deliberate errors are declared: {', '.join(faults)}"] if faults else []

    def wrong(self) -> list[str]:
        true = type(self)()
        return [name for name in self.WRONG if getattr(self, name) != getattr(true, name)]


@params
class SecondSensor:
    """Second displacement sensor on the same actuator, read as an auxiliary channel; by default error-free."""

    noise_rms: float = number("rms of the noise of the second sensor", "m", 0.0, at_least=0.0)
    offset: float = _offset("reading at zero")
    scale: float = _scale("the reading")
    channel: str = text("name of the channel of the second sensor; default: second_displacement_AXIS", "")

    def validate(self, path: str) -> None:
        _check_scales(self, path, "scale")


@params
class Sensors(MayBeWrong):
    """Sensors of one axis; by default error-free."""

    WRONG = (
        *("displacement_offset", "displacement_scale", "displacement_drift", "displacement_dead"),
        *("force_offset", "force_scale", "force_drift", "force_dead", "cabled_to"),
    )
    SCALES = ("displacement_scale", "force_scale")
    displacement_noise_rms: float = number("rms of the displacement noise", "m", 0.0, at_least=0.0)
    force_noise_rms: float = number("rms of the force noise", "N", 0.0, at_least=0.0)
    displacement_resolution: float = number(
        "quantisation step of the displacement; 0: no quantisation", "m", 0.0, at_least=0.0
    )
    force_resolution: float = number("quantisation step of the force; 0: no quantisation", "N", 0.0, at_least=0.0)
    displacement_range: float | None = number(
        "displacement at which the channel saturates; default: unlimited", "m", None, more_than=0.0
    )
    force_range: float | None = number(
        "force at which the channel saturates; default: unlimited", "N", None, more_than=0.0
    )
    force_delay: int = integer("delay of the measured force", "samples", 0, at_least=0, at_most=1000)
    displacement_offset: float = _offset("displacement reading at zero displacement")
    force_offset: float = number(
        "force reading at zero force, e.g. of a load cell without a tare", "N", 0.0, at_least=-1e9, at_most=1e9
    )
    displacement_scale: float = _scale("the displacement")
    force_scale: float = _scale("the force")
    displacement_drift: float = number(
        "drift of the displacement", "m/s", 0.0, at_least=-FURTHEST, at_most=FURTHEST
    )
    force_drift: float = number("drift of the force", "N/s", 0.0, at_least=-1e9, at_most=1e9)
    displacement_dead: float | None = number(
        "constant reading of a displacement sensor that has failed; default: the sensor works",
        "m",
        None,
        at_least=-FURTHEST,
        at_most=FURTHEST,
    )
    force_dead: float | None = number(
        "constant reading of a load cell that has failed; default: the load cell works",
        "N",
        None,
        at_least=-1e9,
        at_most=1e9,
    )
    cabled_to: str | None = _cable("axis of the actuator that these sensors measure")
    second: SecondSensor | None = section(
        SecondSensor, "second displacement sensor, reported as an auxiliary channel; default: none", None
    )


@params
class Output(MayBeWrong):
    """Command path of one axis: converter, controller and cable; by default error-free."""

    WRONG = ("offset", "scale", "static_stiffness", "lost_motion", "start", "cabled_to")
    SCALES = ("scale",)
    resolution: float = number("quantisation step of the command; 0: no quantisation", "m", 0.0, at_least=0.0)
    range: float | None = number(
        "magnitude at which the command saturates; default: unlimited", "m", None, more_than=0.0
    )
    offset: float = _offset("position of the actuator for the command 0 m")
    scale: float = _scale("the command in the controller")
    static_stiffness: float | None = number(
        "stiffness of a proportional loop, whose static error is the force divided by this stiffness; default: "
        "rigid",
        "N/m",
        None,
        more_than=0.0,
    )
    lost_motion: float = number(
        "play of the drive: the command must reverse by this distance before the actuator moves",
        "m",
        0.0,
        at_least=0.0,
        at_most=1.0,
    )
    start: float | None = number(
        "active command of the controller at the start; default: the command for the position 0 m",
        "m",
        None,
        at_least=-FURTHEST,
        at_most=FURTHEST,
    )
    cabled_to: str | None = _cable("axis of the actuator that this command drives")

    @property
    def converts(self) -> bool:
        return self.resolution > 0.0 or self.range is not None

    @property
    def converter(self) -> tuple[float, float]:
        return self.resolution, NAN if self.range is None else self.range


def seats(sensors: Mapping[str, Sensors]) -> list[int]:
    """Return, for each axis, the index of the actuator that its sensors measure.

    The list is empty if the sensors of every axis measure its own actuator.
    """
    names = list(sensors)
    seat_numbers = [names.index(sensor.cabled_to or name) for name, sensor in sensors.items()]
    return [] if seat_numbers == list(range(len(names))) else seat_numbers


BLOCK = 256
"""Number of samples whose noise is drawn at once. The block size does not change the sequence."""


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
    """Return the converted readings of displacement (m) and force (N), and whether a sensor saturates."""
    one, other = k
    shown = converted(read(one, displacement, noise, sample), one[5], one[6])
    push = converted(read(other, force, noise_of_force, sample), other[5], other[6])
    return s, (shown, push, abs(shown) >= one[6] or abs(push) >= other[6])


SHORT = 8
"""Largest delay, samples, for which a tuple holds the forces. A ring buffer costs 10 ns more per sample."""


def late(passed: ToNumber) -> Callable[..., tuple[object, tuple[float, float, bool]]]:
    def step(
        k: Pair, s: object, displacement: float, force: float, noise: float, noise_of_force: float, sample: int
    ) -> tuple[object, tuple[float, float, bool]]:
        """Return the measured displacement (m) and the delayed measured force (N)."""
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
    """Gaussian noise, one row per sample, drawn in blocks."""

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
        """Return the noise of the next ``BLOCK`` samples, one row per sample, in reverse order."""
        rows: list[list[float]] = self.ahead(BLOCK)[::-1].tolist()
        return rows

    def ahead(self, samples: int) -> Array:
        """Draw and return the noise of the next ``samples`` samples, ``(samples, n)``."""
        drawn: Array = self._random.standard_normal((samples, len(self._rms)))
        # scale columns, because scaling rows takes five times as long
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
        without_errors = np.array_equal(self._constants, constants(Sensors(), dt), equal_nan=True)
        self.perfect = without_errors and not (self.noise.any or p.force_delay)
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
        """Return the measured displacement (m) and force (N), and set ``saturated`` if a sensor saturates."""
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


def auxiliary_noise(rms: tuple[float, ...] | None, names: tuple[str, ...], seed: int) -> Noise:
    """Return the noise of a rig's auxiliary channels. Raises ConfigError if ``rms`` has the wrong length."""
    if rms is not None and len(rms) != len(names):
        raise ConfigError(
            f"port.auxiliary_noise_rms: must have {len(names)} numbers "
            f"({', '.join(names) or 'the rig has no auxiliary channel'}), but has {len(rms)}"
        )
    return Noise([seed, zlib.crc32(b"auxiliary"), len(names)], rms or (0.0,) * len(names))


class SecondSensors:
    """Simulates the second displacement sensors of all axes with such a sensor, as auxiliary channels in m."""

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
