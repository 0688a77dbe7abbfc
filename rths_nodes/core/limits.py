# SPDX-License-Identifier: Apache-2.0
"""Declared limits of an axis: required limits, and optional levels.

``loop/supervision/limits.py`` and ``levels.py`` check them, in SI units in the coordinates of the actuator,
untared.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from rths_nodes.core.dimensions import unit_of
from rths_nodes.core.errors import ConfigError, join
from rths_nodes.core.parameters import components, integer, number, params, section, sections, text

INDICATE, HOLD, STOP, INTERLOCK = ACTIONS = ("indicate", "hold", "stop", "interlock")
"""Actions beyond a level: report; safe stop, held; safe stop, tripped; the same, and the heartbeat of a port that
has one is dropped, so that the far end stops the rig, too."""

_ITS_UNIT = "its unit"


@params
class Level:
    """Levels of one quantity, in its unit; what is left out has none."""

    minimum: float | None = number("below this it acts", _ITS_UNIT, None)
    maximum: float | None = number("above this it acts", _ITS_UNIT, None)
    warn_minimum: float | None = number("below this it is told", _ITS_UNIT, None)
    warn_maximum: float | None = number("above this it is told", _ITS_UNIT, None)
    persistence: int = integer("samples in a row beyond minimum or maximum before it acts", "", 1, at_least=1)
    action: str = text("what it does; each but indicate decelerates", STOP, ACTIONS)

    @property
    def acts(self) -> bool:
        """True if an excess has another effect than a report."""
        return self.action != INDICATE and not (self.minimum is None and self.maximum is None)

    def validate(self, path: str) -> None:
        """Refuse a level without bounds, and bounds in the wrong order."""
        names = ("minimum", "warn_minimum", "warn_maximum", "maximum")
        given = [(name, value) for name in names if (value := getattr(self, name)) is not None]
        if not given:
            raise ConfigError(f"{path}: has no level; give at least one of {', '.join(names)}")
        for (below, low), (above, high) in pairwise(given):
            if low >= high:
                raise ConfigError(f"{path}.{below} = {low:g}: must be < {above} = {high:g}")


@params
class Disagreement(Level):
    """Levels of what an axis measures minus what another channel shows of the same."""

    channel: str = text("auxiliary channel that measures the same, by its name without the unit")


@params
class OfExpression(Level):
    """Levels of an expression over the quantities of a test (``expressions.py``), in a unit of its own."""

    of: str = text("expression, such as abs(force.north * piston_velocity.north)")
    unit: str = text("unit of the levels, such as kW; 1 for a number without one")

    def validate(self, path: str) -> None:
        """Refuse an invalid unit as well."""
        super().validate(path)
        try:
            unit_of(self.unit)
        except ValueError as error:
            raise ConfigError(f"{path}.unit = {self.unit!r}: {error}") from None


QUANTITIES = {
    "displacement": "m",
    "force": "N",
    "force_rate": "N/s",
    "command_step": "m",
    "piston_velocity": "m/s",
    "command_error": "m",
    "tracking_error": "m",
    "displacement_disagreement": "m",
    "force_disagreement": "N",
}
"""Quantities of one axis that have levels, and their units."""


@params
class Levels:
    """Levels of the quantities of one axis. Rates are differences of two samples: noise is in them."""

    displacement: Level | None = section(Level, "measured displacement, m", None)
    force: Level | None = section(Level, "measured force, N", None)
    force_rate: Level | None = section(Level, "rate of the measured force, N/s", None)
    command_step: Level | None = section(Level, "command minus the one before, m", None)
    piston_velocity: Level | None = section(Level, "rate of the measured displacement, m/s", None)
    command_error: Level | None = section(Level, "command minus target, m", None)
    tracking_error: Level | None = section(Level, "target minus measured displacement, m", None)
    displacement_disagreement: Disagreement | None = section(
        Disagreement, "measured displacement minus that of a second sensor, m", None
    )
    force_disagreement: Disagreement | None = section(
        Disagreement, "measured force minus that of a second load cell, N", None
    )

    def given(self) -> dict[str, Level]:
        return {name: level for name in QUANTITIES if (level := getattr(self, name)) is not None}


WHOLE = {"bridge_length": "samples", "bridged_share": "1", "parameter_at_bound": "samples"}
"""Quantities of the whole rig that have levels, and their units."""
BRIDGED_TOLD, BRIDGED_HELD = 0.01, 0.10
"""Default shares of bridged samples per second, on a real rig, that are reported and held."""
SHARE_S = 1.0
"""Time over which the share of bridged samples is taken, s."""
AT_BOUND_S = 0.5
"""Default time at a bound after which a test on a real rig is held, s."""


@params
class WholeLevels:
    """Levels of what concerns the whole rig."""

    bridge_length: Level | None = section(Level, "samples in a row that were bridged", None)
    bridged_share: Level | None = section(
        Level,
        "share of the samples of the last second that were bridged; left out: behind a port that is not a "
        "simulator told beyond 1 %, and held beyond 10 %",
        None,
    )
    parameter_at_bound: Level | None = section(
        Level,
        "samples in a row with an adaptive parameter of the compensator at its bound; left out: behind a port "
        "that is not a simulator told at once, and held after half a second",
        None,
    )

    quantities: dict[str, Any] = components(
        "quantity", "quantities with a memory, by name, which the expressions know as quantity.NAME"
    )
    expressions: dict[str, OfExpression] = sections(
        OfExpression, "levels of one's own, by name, on expressions over the quantities of the test", optional=True
    )

    def validate(self, path: str) -> None:
        """Refuse an expression with the name of another level."""
        for name in self.expressions:
            if name in WHOLE:
                raise ConfigError(f"{join(path, 'expressions')}.{name}: is the name of a level; choose another")

    def given(self, simulated: bool, rate: float) -> dict[str, Level]:
        """Return the levels for a ``simulated`` or real rig, at ``rate`` samples per second."""
        found = {name: level for name in WHOLE if (level := getattr(self, name)) is not None} | self.expressions
        if not simulated and self.bridged_share is None:
            found["bridged_share"] = Level(maximum=BRIDGED_HELD, warn_maximum=BRIDGED_TOLD, action=HOLD)
        if not simulated and self.parameter_at_bound is None:
            longest = max(1.0, AT_BOUND_S * rate)
            found["parameter_at_bound"] = Level(maximum=longest, warn_maximum=0.0, action=HOLD)
        return found


@params
class Limits:
    """Limits of one axis. Stroke, velocity and force have no defaults: they belong to the rig.

    Their bounds are far beyond any rig: a limit cannot be switched off, and every safe stop comes to an end.
    """

    stroke: float = number(
        "largest magnitude of command and measured displacement", "m", more_than=0.0, at_most=100.0
    )
    velocity: float = number(
        "largest step of the command from the previous one, per servo period", "m/s", more_than=0.0, at_most=1e3
    )
    force: float = number("largest magnitude of the measured force", "N", more_than=0.0, at_most=1e9)
    tracking_error: float | None = number(
        "largest magnitude of target minus measured displacement; not limited if left out",
        "m",
        None,
        more_than=0.0,
    )
    force_rate: float | None = number(
        "largest rate of the force command, of an axis that is controlled by force; only such a one has it",
        "N/s",
        None,
        more_than=0.0,
        at_most=1e12,
    )
    force_error: float | None = number(
        "largest magnitude of force target minus measured force, of an axis that is controlled by force",
        "N",
        None,
        more_than=0.0,
        at_most=1e9,
    )
    deceleration: float = number("deceleration of the safe stop", "m/s^2", 10.0, at_least=0.1)
    levels: Levels | None = section(Levels, "further levels, of which each may warn, hold or stop", None)

    @property
    def of_force(self) -> bool:
        """True for the limits of a force axis."""
        return self.force_rate is not None

    def validate(self, path: str) -> None:
        """Refuse a level beyond the limit of the same quantity, which would have no effect."""
        for name, limit in (
            ("displacement", self.stroke),
            ("force", self.force),
            ("tracking_error", self.tracking_error),
        ):
            level: Level | None = None if self.levels is None else getattr(self.levels, name)
            for key in ("minimum", "maximum") if level is not None else ():
                value = getattr(level, key)
                if limit is not None and value is not None and abs(value) > limit:
                    raise ConfigError(
                        f"{join(path, 'levels')}.{name}.{key} = {value:g}: must be within +- {limit:g}, where the "
                        "test stops in any case"
                    )


def unit_of_level(quantity: str, level: Level) -> str:
    return level.unit if isinstance(level, OfExpression) else (QUANTITIES | WHOLE)[quantity]
