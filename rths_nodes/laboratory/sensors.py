# SPDX-License-Identifier: Apache-2.0
"""Channels of one axis: possible errors of its sensors and of its command path.

Errors last for the whole run; events during a run are faults (``loop/faults``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from rths_nodes.core.arithmetic import NAN, copysign, rounded
from rths_nodes.core.checks import TestContext
from rths_nodes.core.errors import ConfigError, join, show, unknown
from rths_nodes.core.parameters import integer, number, params, section, text

LARGEST_SCALE = 1e3
FURTHEST = 100.0


def _scale(meaning: str) -> float:
    declared: float = number(
        f"factor by which {meaning} is multiplied: 1 is correct, a negative factor inverts the sign, and 0 is "
        "refused",
        "1",
        1.0,
        at_least=-LARGEST_SCALE,
        at_most=LARGEST_SCALE,
    )
    return declared


def _offset(meaning: str) -> float:
    declared: float = number(meaning, "m", 0.0, at_least=-FURTHEST, at_most=FURTHEST)
    return declared


def _cable(meaning: str) -> str | None:
    declared: str | None = text(f"{meaning}, by name; default: this axis", None)
    return declared


def _check_scales(params: object, path: str, *names: str) -> None:
    for name in names:
        if getattr(params, name) == 0.0:
            raise ConfigError(f"{join(path, name)} = 0: must not be 0")


def converted(value: float, resolution: float, limit: float) -> float:
    """Round ``value`` to steps of ``resolution`` (0: no steps), limited to +- ``limit`` (NaN: no limit)."""
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
    """A second displacement sensor on the same actuator, as an auxiliary channel; by default perfect."""

    noise_rms: float = number("rms of the noise of the second sensor", "m", 0.0, at_least=0.0)
    offset: float = _offset("reading at zero")
    scale: float = _scale("the reading")
    channel: str = text("name of the channel of the second sensor; default: second_displacement_AXIS", "")

    def validate(self, path: str) -> None:
        _check_scales(self, path, "scale")


@params
class Sensors(MayBeWrong):
    """Sensors of one axis; by default perfect."""

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
        "magnitude at which the channel saturates; default: unlimited", "m", None, more_than=0.0
    )
    force_range: float | None = number(
        "magnitude at which the channel saturates; default: unlimited", "N", None, more_than=0.0
    )
    force_delay: int = integer("delay of the measured force", "samples", 0, at_least=0, at_most=1000)
    displacement_offset: float = _offset("displacement reading at zero displacement")
    force_offset: float = number(
        "force reading at zero force, as of a load cell that is not tared", "N", 0.0, at_least=-1e9, at_most=1e9
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
    """Command path of one axis: converter, controller and cable; by default perfect."""

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
        "play of the drive, the distance by which the command reverses before the actuator moves",
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
    def misdirects(self) -> bool:
        """True if the actuator does not start at zero, or moves to a position other than the converted command."""
        return bool(self.wrong())

    @property
    def converter(self) -> tuple[float, float]:
        return self.resolution, NAN if self.range is None else self.range


def seats(sensors: Mapping[str, Sensors]) -> list[int]:
    """Return, for each axis, the index of the actuator that its sensors measure.

    The list is empty if all sensors measure the actuators of their own axes.
    """
    names = list(sensors)
    seat_numbers = [names.index(sensor.cabled_to or name) for name, sensor in sensors.items()]
    return [] if seat_numbers == list(range(len(names))) else seat_numbers
