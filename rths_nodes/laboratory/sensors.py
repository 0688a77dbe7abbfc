"""Channels of one axis: what is measured of it, with all that is wrong with it, and the way of its command.

A channel may be wrong in every way a real one is: these are properties of the rig, from its first sample to its
last. What happens in the course of a run is a fault (``loop/faults``). Noise comes from one stream per axis,
seeded by the scenario's seed and the axis' name and drawn exactly once per sample, so that a run does not depend
on how many axes or nodes there are.
"""

from __future__ import annotations

import math
import zlib
from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np

from rths_nodes.core.checks import TestContext
from rths_nodes.core.errors import ConfigError, join, show, unknown
from rths_nodes.core.parameters import integer, number, params, section, text
from rths_nodes.core.samples import Array
from rths_nodes.laboratory.sensor_faults import RIGHT, ChannelFault

BLOCK = 256
"""Samples of noise drawn at a time; the sequence is the same as drawn one by one."""

LARGEST_SCALE = 1e3
"""Factors beyond are a wrong unit of the scenario, not a wrong rig."""
FURTHEST = 100.0
"""m: as far as a stroke may be."""


WRONG_SENSORS = (
    *(
        f"{channel}_{error}"
        for channel in ("displacement", "force")
        for error in ("offset", "scale", "drift", "dead")
    ),
    "cabled_to",
)
WRONG_OUTPUTS = ("offset", "scale", "static_stiffness", "lost_motion", "start", "cabled_to")
"""Parameters by which an axis is not as it should be."""


def _scale(what: str) -> float:
    found: float = number(
        f"factor on {what}: 1 is true, below 0 the sign is wrong, not 0",
        "1",
        1.0,
        at_least=-LARGEST_SCALE,
        at_most=LARGEST_SCALE,
    )
    return found


def _offset(what: str) -> float:
    found: float = number(what, "m", 0.0, at_least=-FURTHEST, at_most=FURTHEST)
    return found


def _cable(what: str) -> str | None:
    found: str | None = text(f"{what}, by name; its own if left out", None)
    return found


def _check_scales(params: object, path: str, *names: str) -> None:
    for name in names:
        if getattr(params, name) == 0.0:
            raise ConfigError(f"{join(path, name)} = 0: must not be 0: a channel without life is dead")


def _check_cable(name: str | None, test: TestContext) -> None:
    if name is not None and name not in test.axes:
        raise unknown(f"cabled_to = {show(name)}", "axis", name, test.axes)


def _on_purpose(params: object, true: object, names: tuple[str, ...]) -> list[str]:
    """What is wrong, in words: the parameters ``names`` that are not as in ``true``."""
    found = [name for name in names if getattr(params, name) != getattr(true, name)]
    return [f"wrong on purpose: {', '.join(found)}"] if found else []


@params
class SecondSensor:
    """A second displacement sensor on the same actuator, an auxiliary channel; the defaults are a perfect one."""

    noise_rms: float = number("rms of its noise", "m", 0.0, at_least=0.0)
    offset: float = _offset("what it shows at zero")
    scale: float = _scale("what it shows")

    def validate(self, path: str) -> None:
        """Refuses a scale of 0."""
        _check_scales(self, path, "scale")


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
    displacement_offset: float = _offset("displacement that is shown at zero")
    force_offset: float = number(
        "force that is shown without one, as of a load cell that nobody has tared",
        "N",
        0.0,
        at_least=-1e9,
        at_most=1e9,
    )
    displacement_scale: float = _scale("the displacement")
    force_scale: float = _scale("the force")
    displacement_drift: float = number(
        "drift of the displacement", "m/s", 0.0, at_least=-FURTHEST, at_most=FURTHEST
    )
    force_drift: float = number("drift of the force", "N/s", 0.0, at_least=-1e9, at_most=1e9)
    displacement_dead: float | None = number(
        "the displacement sensor is dead and shows this; it lives if left out",
        "m",
        None,
        at_least=-FURTHEST,
        at_most=FURTHEST,
    )
    force_dead: float | None = number(
        "the load cell is dead and shows this; it lives if left out", "N", None, at_least=-1e9, at_most=1e9
    )
    cabled_to: str | None = _cable("axis on whose actuator these sensors really sit")
    second: SecondSensor | None = section(
        SecondSensor, "second displacement sensor, an auxiliary channel; none if left out", None
    )

    def validate(self, path: str) -> None:
        """Refuses a scale of 0."""
        _check_scales(self, path, "displacement_scale", "force_scale")

    def fits(self, test: TestContext) -> None:
        """Raises ConfigError for a cable to an axis that the test has not."""
        _check_cable(self.cabled_to, test)

    def cautions(self, test: TestContext) -> list[str]:
        """Tells what does not show what is there."""
        return _on_purpose(self, Sensors(), WRONG_SENSORS)


@params
class Output:
    """The way of one axis' command: converter, controller, cable; by default it gets to its actuator as it is."""

    resolution: float = number("quantisation step of the command; 0 is none", "m", 0.0, at_least=0.0)
    range: float | None = number("the command saturates at +- this; never if left out", "m", None, more_than=0.0)
    offset: float = _offset("where the actuator goes at command zero: the controller has its zero elsewhere")
    scale: float = _scale("the command, in the controller")
    static_stiffness: float | None = number(
        "of a proportional loop, which rests short of its command by the force over this; it does not if left out",
        "N/m",
        None,
        more_than=0.0,
    )
    lost_motion: float = number(
        "play of the drive: where the command turns round, the actuator stays until it has gone back by so much",
        "m",
        0.0,
        at_least=0.0,
        at_most=1.0,
    )
    start: float | None = number(
        "active command of the controller at the start, to where it has led the actuator before; where the "
        "actuator is at zero if left out",
        "m",
        None,
        at_least=-FURTHEST,
        at_most=FURTHEST,
    )
    cabled_to: str | None = _cable("axis whose actuator this command really drives")

    def validate(self, path: str) -> None:
        """Refuses a scale of 0."""
        _check_scales(self, path, "scale")

    def fits(self, test: TestContext) -> None:
        """Raises ConfigError for a cable to an axis that the test has not."""
        _check_cable(self.cabled_to, test)

    def cautions(self, test: TestContext) -> list[str]:
        """Tells what leads the actuator elsewhere."""
        return _on_purpose(self, Output(), WRONG_OUTPUTS)

    @property
    def converts(self) -> bool:
        """True where the converter changes the command."""
        return self.resolution > 0.0 or self.range is not None

    @property
    def leads_astray(self) -> bool:
        """True where the command, once converted, is not where the actuator goes, or does not begin at zero."""
        return bool(_on_purpose(self, Output(), WRONG_OUTPUTS))

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


def seats(sensors: Mapping[str, Sensors]) -> list[int]:
    """On whose actuator the sensors of each axis sit; empty where all are where they should be."""
    names = list(sensors)
    found = [names.index(each.cabled_to or name) for name, each in sensors.items()]
    return [] if found == list(range(len(names))) else found


class SensorPair:
    """Turns the true displacement (m) and force (N) of one axis, ``dt`` (s) apart, into measured ones."""

    def __init__(self, params: Sensors, seed: int, axis: str, dt: float) -> None:
        self._seed = [seed, zlib.crc32(axis.encode())]
        p = params
        self._rms = np.array([p.displacement_noise_rms, p.force_noise_rms])
        self._displacement = (p.displacement_resolution, p.displacement_range)
        self._force = (p.force_resolution, p.force_range)
        self._converts = (self._displacement, self._force) != ((0.0, None), (0.0, None))
        self._errors = (
            (p.displacement_scale, p.displacement_offset, p.displacement_drift * dt),
            (p.force_scale, p.force_offset, p.force_drift * dt),
        )
        self._wrong = self._errors != ((1.0, 0.0, 0.0),) * 2
        self._dead = p.displacement_dead, p.force_dead
        self._lives = self._dead == (None, None)
        self._noisy = p.displacement_noise_rms > 0.0 or p.force_noise_rms > 0.0
        self._late = p.force_delay
        self._dt = dt
        self._true = self._lives and not (self._wrong or self._noisy or self._converts or self._late)
        self.reset()

    def reset(self) -> None:
        """The noise stream from its beginning, no force before, and nothing has gone wrong."""
        self._faults: list[ChannelFault | None] = [None, None]
        self.perfect = self._true
        self._random = np.random.default_rng(np.random.SeedSequence(self._seed))
        self._drawn: list[list[float]] = []
        self._under_way = deque([0.0] * self._late)
        self._sample = 0
        self.saturated = False

    def goes_wrong(self, channel: int, how: str, rate: float = 0.0) -> None:
        """From the next sample on: 0 is the displacement, 1 the force, ``rate`` m/s or N/s that of a drift."""
        self._faults[channel] = None if how == RIGHT else ChannelFault(how, rate * self._dt)
        self.perfect = self._true and self._faults == [None, None]

    def measure(self, displacement: float, force: float) -> tuple[float, float]:
        """Measured displacement and force; ``saturated`` tells whether one is at the end of its range."""
        if self.perfect:
            return displacement, force
        if self._wrong:
            displacement, force = self._misread(displacement, force)
        if self._noisy:
            if not self._drawn:
                self._draw()
            of_displacement, of_force = self._drawn.pop()
            displacement += of_displacement
            force += of_force
        if not self._lives:
            displacement, force = self._shown_dead(displacement, force)
        if self._faults != [None, None]:
            displacement, force = (
                value if fault is None else fault.shown(value, channel[0])
                for value, fault, channel in zip(
                    (displacement, force), self._faults, (self._displacement, self._force), strict=True
                )
            )
        if self._converts:
            displacement = _converted(displacement, *self._displacement)
            force = _converted(force, *self._force)
            self.saturated = _at_end(displacement, self._displacement[1]) or _at_end(force, self._force[1])
        if self._late:
            self._under_way.append(force)
            force = self._under_way.popleft()
        return displacement, force

    def _misread(self, displacement: float, force: float) -> tuple[float, float]:
        """Scale, offset and drift, which begins with the first sample."""
        of_displacement, of_force = self._errors
        k, self._sample = self._sample, self._sample + 1
        scale, offset, drift = of_displacement
        displacement = scale * displacement + (offset + k * drift)
        scale, offset, drift = of_force
        return displacement, scale * force + (offset + k * drift)

    def _shown_dead(self, displacement: float, force: float) -> tuple[float, float]:
        of_displacement, of_force = self._dead
        return (
            displacement if of_displacement is None else of_displacement,
            force if of_force is None else of_force,
        )

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


class SecondSensors:
    """The second displacement sensors of some axes: auxiliary channels named ``second_displacement_AXIS [m]``."""

    def __init__(self, sensors: Mapping[str, Sensors], seed: int) -> None:
        found = [(index, name, axis.second) for index, (name, axis) in enumerate(sensors.items()) if axis.second]
        self.places = [index for index, _, _ in found]
        """Of their axes, in order."""
        self.names = tuple(f"second_displacement_{name} [m]" for _, name, _ in found)
        self._scale = np.array([params.scale for _, _, params in found])
        self._offset = np.array([params.offset for _, _, params in found])
        self._rms = np.array([params.noise_rms for _, _, params in found])
        self._seed = [seed, zlib.crc32(b"second"), *(zlib.crc32(name.encode()) for _, name, _ in found)]
        self._noisy = bool(self._rms.any())
        self.reset()

    def reset(self) -> None:
        """The noise stream from its beginning."""
        self._random = np.random.default_rng(np.random.SeedSequence(self._seed))

    def true(self, displacements: Sequence[float]) -> Array:
        """True displacements (m) of their axes, of those of all."""
        return np.array([displacements[place] for place in self.places])

    def measure(self, true: Array) -> Array:
        """What they show of the ``true`` displacements (m) of their axes."""
        shown: Array = self._scale * true + self._offset
        if self._noisy:
            shown += self._rms * self._random.standard_normal(len(shown))
        return shown
