# SPDX-License-Identifier: Apache-2.0
"""Declared limits of an axis: required limits, optional levels, and the resulting braking distances.

``loop/supervision`` checks limits and levels in SI units, in the coordinates of the actuator, without tare.

Axes that stop together brake within their declared decelerations. d is the difference of two successive commands
of an axis. With the deceleration a, d may change by a dt^2 per sample period dt. For the axes j of a group:

    N = ceil(max_j |d_j| / (a_j dt^2))       samples to rest, the same for all axes of the group
    d_m = d (1 - m / N),  m = 1 .. N         steps of the stop: successive steps differ by |d| / N <= a dt^2
    w = |d| (N - 1) / 2                      braking distance, the sum of the steps

Therefore w < |v| T / 2 with v = d / dt and T = max_j |v_j| / a_j; for one axis w < v^2 / (2 a). An axis with |v|
<= sqrt(2 a l) stops within the remaining distance l. An axis with |d| <= a dt^2 may stop at the limit of its
stroke.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from rths_nodes.core.arithmetic import INF, ceiling
from rths_nodes.core.errors import ConfigError, join
from rths_nodes.core.expressions import unit_of
from rths_nodes.core.parameters import (
    components,
    declared,
    fields_from,
    integer,
    number,
    params,
    section,
    sections,
    text,
)
from rths_nodes.core.samples import FLAG_AT_BOUND, FLAG_BRIDGED

INDICATE, HOLD, STOP, INTERLOCK = ACTIONS = ("indicate", "hold", "stop", "interlock")
"""Actions if a level is violated. ``indicate`` reports; ``hold`` stops the axes safely and holds the test;
``stop`` stops the axes safely and trips the test. ``interlock`` trips the test and stops the heartbeat of the
port, if it has one, so that the far end also stops the rig."""

_ITS_UNIT = "its unit"


@params
class Level:
    """Levels for warnings and actions, in the unit of the quantity."""

    minimum: float | None = number("smallest value that does not trigger the action", _ITS_UNIT, None)
    maximum: float | None = number("largest value that does not trigger the action", _ITS_UNIT, None)
    warn_minimum: float | None = number("smallest value that does not trigger a warning", _ITS_UNIT, None)
    warn_maximum: float | None = number("largest value that does not trigger a warning", _ITS_UNIT, None)
    persistence: int = integer(
        "number of consecutive samples beyond minimum or maximum that triggers the action", "", 1, at_least=1
    )
    action: str = text("action; every action except indicate decelerates the axes", STOP, ACTIONS)

    @property
    def acts(self) -> bool:
        """True if a value beyond ``minimum`` or ``maximum`` stops the axes."""
        return self.action != INDICATE and not (self.minimum is None and self.maximum is None)

    def validate(self, path: str) -> None:
        names = ("minimum", "warn_minimum", "warn_maximum", "maximum")
        bounds = [(name, value) for name in names if (value := getattr(self, name)) is not None]
        if not bounds:
            raise ConfigError(f"{path}: has no level. Set at least one of {', '.join(names)}")
        for (below, low), (above, high) in pairwise(bounds):
            if low >= high:
                raise ConfigError(f"{path}.{below} = {low:g}: must be < {above} = {high:g}")


@params
class Disagreement(Level):
    """Levels for the difference between a measured value of an axis and an auxiliary channel."""

    channel: str = text("name (without the unit) of an auxiliary channel that measures the same quantity")


@params
class OfExpression(Level):
    """Levels of an expression over the quantities of a test (``expressions.py``), in a declared unit."""

    of: str = text("expression, such as abs(force.north * piston_velocity.north)")
    unit: str = text("unit of the levels, such as kW; 1 for a dimensionless number")

    def validate(self, path: str) -> None:
        super().validate(path)
        try:
            unit_of(self.unit)
        except ValueError as error:
            raise ConfigError(f"{path}.unit = {self.unit!r}: {error}") from None


class Reading(NamedTuple):
    """Measured displacement (m), measured force (N), command (m) and target (m) of an axis at a sample.

    ``tracked`` (m) is the displacement relative to the zero of the test, for comparison with the target.
    """

    displacement: float
    force: float
    command: float
    target: float
    tracked: float


PREVIOUS = "previous"


class AxisQuantity(NamedTuple):
    """Quantity of an axis: the field ``reading`` of :class:`Reading`, minus its field ``minus`` if not empty.

    If ``minus`` is PREVIOUS, the value of ``reading`` at the previous sample is subtracted. If ``unit`` is per
    second, the difference is multiplied by the sampling rate. ``level`` is the class of the quantity's levels, or
    None if only expressions use the quantity. For :class:`Disagreement`, the value of an auxiliary channel is
    subtracted. ``limit`` names the limit of this quantity, and ``noise`` the sensor whose noise it contains.
    ``at_rest`` is true if the quantity may be non-zero at rest. ``in_metres`` is true if the quantity is undefined
    for a force axis, whose commands are in N.
    """

    unit: str
    meaning: str
    reading: str
    minus: str = ""
    level: type[Level] | None = Level
    limit: str = ""
    noise: str = ""
    at_rest: bool = False
    in_metres: bool = False


QUANTITIES = {
    "displacement": AxisQuantity("m", "measured displacement", "displacement", limit="stroke", at_rest=True),
    "force": AxisQuantity("N", "measured force", "force", limit="force", noise="force", at_rest=True),
    "force_rate": AxisQuantity("N/s", "rate of the measured force", "force", PREVIOUS, noise="force"),
    "command_step": AxisQuantity("m", "command minus the previous command", "command", PREVIOUS, in_metres=True),
    "piston_velocity": AxisQuantity(
        "m/s", "rate of the measured displacement", "displacement", PREVIOUS, noise="displacement"
    ),
    "command_error": AxisQuantity("m", "command minus target", "command", "target", in_metres=True),
    "tracking_error": AxisQuantity(
        "m",
        "target minus measured displacement",
        "target",
        "tracked",
        limit="tracking_error",
        noise="displacement",
        in_metres=True,
    ),
    "command": AxisQuantity("m", "command", "command", level=None),
    "target": AxisQuantity("m", "target", "target", level=None),
    "displacement_disagreement": AxisQuantity(
        "m",
        "measured displacement minus the displacement of a second sensor",
        "displacement",
        level=Disagreement,
        noise="displacement",
    ),
    "force_disagreement": AxisQuantity(
        "N", "measured force minus the force of a second load cell", "force", level=Disagreement
    ),
}
"""Quantities of one axis, by name. Rates are differences between two samples and include noise."""


@params
@fields_from(
    {
        name: section(row.level, f"{row.meaning}, {row.unit}", None)
        for name, row in QUANTITIES.items()
        if row.level is not None
    }
)
class Levels:
    """Levels of the quantities of one axis."""

    def in_effect(self) -> dict[str, Level]:
        return {name: level for name in declared(Levels) if (level := getattr(self, name)) is not None}


class RigQuantity(NamedTuple):
    """Quantity of the rig: number of consecutive ``counted`` samples, or their fraction in the last second.

    ``counted(command, measured)`` takes the flags of Command and Measurement. It returns whether the sample
    counts, or None to leave the count unchanged. In messages, ``reason`` follows the value.
    """

    unit: str
    meaning: str
    counted: Callable[[int, int], bool | None]
    reason: str


def _bridged(command: int, measured: int) -> bool:
    return bool((command | measured) & FLAG_BRIDGED)


SHARE = "1"
WHOLE = {
    "bridge_length": RigQuantity("samples", "consecutive bridged samples", _bridged, " in a row were bridged"),
    "bridged_share": RigQuantity(
        SHARE,
        "fraction of bridged samples in the last second; default, except on a simulator: report above 1 %, "
        "hold above 10 %",
        _bridged,
        " of the samples of a second were bridged",
    ),
    "parameter_at_bound": RigQuantity(
        "samples",
        "number of consecutive samples with an adaptive parameter of the compensator at its bound; default, "
        "except on a simulator: report at once, hold after half a second",
        # a bridged Command has no flags of the compensator
        lambda command, measured: None if command & FLAG_BRIDGED else bool(command & FLAG_AT_BOUND),
        " in a row had an adaptive parameter of the compensator at its bound",
    ),
}
BRIDGED_TOLD, BRIDGED_HELD = 0.01, 0.10
SHARE_S = 1.0
AT_BOUND_S = 0.5


@params
@fields_from({name: section(Level, row.meaning, None) for name, row in WHOLE.items()})
class WholeLevels:
    """Levels of the quantities of the whole rig."""

    quantities: dict[str, Any] = components(
        "quantity", "quantities with memory, by name; expressions refer to them as quantity.NAME"
    )
    expressions: dict[str, OfExpression] = sections(
        OfExpression, "levels, by name, of expressions over the quantities of the test", optional=True
    )

    def validate(self, path: str) -> None:
        for name in self.expressions:
            if name in WHOLE:
                raise ConfigError(
                    f"{join(path, 'expressions')}.{name}: another level has this name. Choose a different name"
                )

    def in_effect(self, simulated: bool, rate: float) -> dict[str, Level]:
        levels = {name: level for name in WHOLE if (level := getattr(self, name)) is not None} | self.expressions
        if not simulated and "bridged_share" not in levels:
            levels["bridged_share"] = Level(maximum=BRIDGED_HELD, warn_maximum=BRIDGED_TOLD, action=HOLD)
        if not simulated and "parameter_at_bound" not in levels:
            longest = max(1.0, AT_BOUND_S * rate)
            levels["parameter_at_bound"] = Level(maximum=longest, warn_maximum=0.0, action=HOLD)
        return levels


WIDEST = {"stroke": 100.0, "velocity": 1e3, "force": 1e9}
"""Largest permitted limits (m, m/s, N), far above the limits of any rig."""


@params
class Limits:
    """Limits of one axis. Stroke, velocity and force depend on the rig and have no defaults.

    These three limits have finite bounds, so that none can be switched off and every safe stop ends.
    """

    stroke: float = number(
        "largest permitted magnitude of command and measured displacement",
        "m",
        more_than=0.0,
        at_most=WIDEST["stroke"],
    )
    velocity: float = number(
        "largest permitted change of the command per servo period, as a velocity",
        "m/s",
        more_than=0.0,
        at_most=WIDEST["velocity"],
    )
    force: float = number(
        "largest permitted magnitude of the measured force", "N", more_than=0.0, at_most=WIDEST["force"]
    )
    tracking_error: float | None = number(
        "largest permitted magnitude of target minus measured displacement; default: no limit",
        "m",
        None,
        more_than=0.0,
    )
    force_rate: float | None = number(
        "largest permitted rate of the force command; only for an axis controlled by force",
        "N/s",
        None,
        more_than=0.0,
        at_most=1e12,
    )
    force_error: float | None = number(
        "largest permitted magnitude of force target minus measured force; only for an axis controlled by force",
        "N",
        None,
        more_than=0.0,
        at_most=1e9,
    )
    deceleration: float = number("deceleration of the safe stop", "m/s^2", 10.0, at_least=0.1)
    levels: Levels | None = section(Levels, "further levels, each of which may warn, hold or stop", None)

    @property
    def are_stated(self) -> bool:
        """False if all limits have their widest permitted values, as in an imported test without limits."""
        return {"stroke": self.stroke, "velocity": self.velocity, "force": self.force} != WIDEST

    @property
    def of_force(self) -> bool:
        return self.force_rate is not None

    def validate(self, path: str) -> None:
        """Raise ConfigError for a level that is beyond the limit of the same quantity, and so has no effect."""
        for name, level in ({} if self.levels is None else self.levels.in_effect()).items():
            key = QUANTITIES[name].limit
            limit: float | None = getattr(self, key) if key else None
            for key, value in (("minimum", level.minimum), ("maximum", level.maximum)):
                if limit is not None and value is not None and abs(value) > limit:
                    raise ConfigError(
                        f"{join(path, 'levels')}.{name}.{key} = {value:g}: must be within +- {limit:g}, the "
                        "limit at which the test stops in any case"
                    )


def unit_of_level(quantity: str, level: Level) -> str:
    if isinstance(level, OfExpression):
        return level.unit
    return (WHOLE if quantity in WHOLE else QUANTITIES)[quantity].unit


LONGEST = 2.0**40
"""Largest duration of a stop, samples. Longer and infinite durations are replaced by this value."""


def changes_of_step(limits: Iterable[Limits], dt: float) -> list[float]:
    """Return for each axis the largest change (m) of the command step from sample to sample while braking."""
    return [limit.deceleration * dt * dt for limit in limits]


def samples_to_rest(steps: Iterable[float], changes: Iterable[float]) -> int:
    """Return the number of samples in which axes that stop together come to rest.

    ``steps`` (m) are the command steps of the axes, ``changes`` (m) the results of :func:`changes_of_step`.
    """
    return int(
        full_samples(max((abs(step) / change for step, change in zip(steps, changes, strict=True)), default=0.0))
    )


def full_samples(samples: float) -> float:
    return ceiling(samples) if samples < LONGEST else LONGEST


def braking_way(step: float, samples: float) -> float:
    """Return the braking distance (m) of a stop that takes ``samples`` from ``step`` (m per sample) to rest."""
    return 0.5 * abs(step) * max(samples - 1.0, 0.0)


def samples_within(step: float, way: float) -> float:
    """Return the duration (samples) of the longest stop from ``step`` (m per sample) in at most ``way`` (m)."""
    longest = 2.0 * max(way, 0.0) / abs(step) if step != 0.0 else INF
    return 1.0 - ceiling(-longest) if longest < LONGEST else LONGEST


def way_left(position: float, step: float, stroke: float) -> float:
    return stroke - position if step > 0.0 else stroke + position


def braked_together(limits: Iterable[Limits], groups: Sequence[int] = ()) -> list[list[int]]:
    """Return a list of axis indices for each group of axes that stop together.

    Axes with the same number in ``groups`` form a group. Force axes stop alone. Every axis stops alone if
    ``groups`` is empty.
    """
    together: dict[int, list[int]] = {}
    for axis, limit in enumerate(limits):
        alone = limit.of_force or not groups
        together.setdefault(-1 - axis if alone else groups[axis], []).append(axis)
    return list(together.values())
