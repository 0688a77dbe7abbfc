# SPDX-License-Identifier: Apache-2.0
"""Levels of axes, of the complete rig, and of expressions: optional limits, checked as rows (``limits.py``).

Their values are quantities (``core/limits.py``), auxiliary channels, quantities with memory, and expressions.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rths_nodes.core import registry
from rths_nodes.core.data import Data
from rths_nodes.core.dimensions import Unit, unit_of
from rths_nodes.core.errors import ComponentError, ConfigError, counted, show, unknown
from rths_nodes.core.expressions import Expression
from rths_nodes.core.limits import (
    INDICATE,
    QUANTITIES,
    SHARE,
    SHARE_S,
    WHOLE,
    AxisQuantity,
    Disagreement,
    Level,
    Limits,
    OfExpression,
    Reading,
    RigQuantity,
    unit_of_level,
)
from rths_nodes.core.protocols import Quantity
from rths_nodes.core.samples import Command, Measurement
from rths_nodes.laboratory.corrections import forces_shown, shown_forces
from rths_nodes.loop.supervision.handover import Tares
from rths_nodes.loop.supervision.limits import NEVER, Row, acting, table

CHANNEL, QUANTITY = "channel", "quantity"
OF_AXES = tuple(name for name, row in QUANTITIES.items() if row.level is not Disagreement)
"""Names of quantities that need the name of an axis in an expression."""
WHOLE_RIG = "whole rig"
"""Name that replaces the name of an axis for levels of the complete rig."""


def _counter(row: RigQuantity, dt: float) -> Callable[[int, int], float]:
    """Return a function that computes a quantity of the complete rig from the flags of Command and Measurement.

    The quantity is a number of consecutive samples, or a fraction of the samples in the last second.
    """
    count, length = 0, max(1, round(SHARE_S / dt))
    last: deque[bool] | None = deque([False] * length, maxlen=length) if row.unit == SHARE else None

    def value(command: int, measured: int) -> float:
        nonlocal count
        counted = row.counted(command, measured)
        if last is not None:
            count += bool(counted) - last[0]
            last.append(bool(counted))
            return count / len(last)
        if counted is not None:
            count = count + 1 if counted else 0
        return float(count)

    return value


class Values:
    """Computes the values that levels use, as one list; unused quantities are 0. ``dt`` is in s.

    ``channels`` are auxiliary names with units. ``names`` contains the index and the unit of each value, by
    quantity and by axis or channel.
    """

    def __init__(self, axes: Sequence[str], dt: float, channels: Sequence[str], tares: Tares) -> None:
        self._n, self._dt, self._rate = len(axes), dt, 1.0 / dt
        self._channels, self._tares, self._shown = channels, tares, shown_forces(channels, list(axes))
        self._of_rig = len(QUANTITIES) * self._n
        self._of_channels = self._of_rig + len(WHOLE)
        self._count = self._of_channels + len(channels)
        """Number of values before the values of ``_made``."""
        self.names: dict[str, dict[str, tuple[int, Unit]]] = {
            noun: {axis: (self.index(noun, i), unit_of(QUANTITIES[noun].unit)) for i, axis in enumerate(axes)}
            for noun in OF_AXES
        } | {CHANNEL: {}, QUANTITY: {}}
        for number, channel in enumerate(channels):
            name, _, unit = channel.partition(" [")
            try:
                self.names[CHANNEL][name] = self._of_channels + number, unit_of(unit.rstrip("]") or "1")
            except ValueError:
                continue  # a value without a unit cannot be used in expressions
        self._used: dict[int, tuple[int, Callable[[Reading, Reading, float], float]]] = {}
        self._second_sensors: dict[int, int] = {}
        self._counts: dict[int, Callable[[int, int], float]] = {}
        self._made: list[Callable[[list[float]], float]] = []
        """Functions for the values after the channels. Each function receives the list of all earlier values."""
        self._before: list[Reading] = []
        self.failure = ""
        """Error of the first failed quantity, whose value is then NaN; empty without a failure."""

    def index(self, quantity: str, axis: int) -> int:
        return list(QUANTITIES).index(quantity) * self._n + axis

    def use(self, index: int) -> int:
        if index < self._of_rig:
            number, axis = divmod(index, self._n)
            self._used[index] = axis, list(QUANTITIES.values())[number].value
        return index

    def expression(self, text: str) -> Expression:
        made = Expression(text, self.names)
        for index_of_value in made.places:
            self.use(index_of_value)
        return made

    def _add(self, value: Callable[[list[float]], float]) -> int:
        self._made.append(value)
        return self._count + len(self._made) - 1

    def remember(self, quantities: Mapping[str, Any]) -> None:
        for name, params in quantities.items():
            made: Quantity = registry.build("quantity", params, self._dt)
            try:
                parts = [self.expression(text) for text in params.of]
                unit = made.unit([part.unit for part in parts])
            except (ValueError, ComponentError) as error:
                raise ConfigError(f"levels.quantities.{name}.of = {show(list(params.of))}: {error}") from None
            if not isinstance(unit, Unit):
                raise ConfigError(
                    f"levels.quantities.{name}: the method unit returns {show(unit)}, but must return a Unit"
                )
            self.names[QUANTITY][name] = self._add(self._stepped(name, made, parts)), Unit(1.0, unit.powers)

    def _stepped(
        self, name: str, quantity: Quantity, parts: Sequence[Expression]
    ) -> Callable[[list[float]], float]:
        def value(values: list[float]) -> float:
            try:
                return float(quantity.step([part.value(values) for part in parts]))
            except Exception as error:  # any exception of foreign code; the supervision continues
                self.failure = self.failure or f"levels.quantities.{name}: {type(error).__name__}: {error}"
                return math.nan

        return value

    def of_level(self, index: int, axis: str, quantity: str, level: Level) -> int:
        """Return the index of the value of a ``level``.

        Raises ConfigError if the channel or the expression of the level is invalid.
        """
        path = level_path(axis, quantity)
        if isinstance(level, OfExpression):
            return self._of_expression(path, level)
        if axis == WHOLE_RIG:
            position = self._of_rig + list(WHOLE).index(quantity)
            self._counts[position] = _counter(WHOLE[quantity], self._dt)
            return position
        position = self.use(self.index(quantity, index))
        if isinstance(level, Disagreement):
            self._second_sensors[position] = _second(
                path, level.channel, QUANTITIES[quantity].unit, self._channels
            )
        return position

    def _of_expression(self, path: str, level: OfExpression) -> int:
        try:
            made, unit = self.expression(level.of), unit_of(level.unit)
        except ValueError as error:
            raise ConfigError(f"{path}.of = {show(level.of)}: {error}") from None
        if made.unit.powers != unit.powers:
            problem = f"must be a unit of {made.unit.dimension}, like the unit of {level.of}"
            raise ConfigError(f"{path}.unit = {level.unit!r}: {problem}")
        at_rest = made.value([0.0] * (1 + max(made.places, default=0))) / unit.factor
        low, high = _bounds(level.minimum, level.maximum)
        complete = all(position < self._of_rig for position in made.places)
        if complete and level.acts and not low <= at_rest <= high:
            problem = "is not a number" if math.isnan(at_rest) else f"is {at_rest:g} {level.unit}"
            raise ConfigError(
                f"{path}.of = {show(level.of)}: {problem} if the rig is at rest at zero, so that "
                "the level would act at rest"
            )
        return self._add(lambda values: made.value(values) / unit.factor)

    def of(self, command: Command | None, measured: Measurement, aims: list[float] | None) -> list[float]:
        displacements, forces = measured.displacement.tolist(), measured.force.tolist()
        channels = measured.auxiliary.tolist()
        tracked = (measured.displacement - self._tares.displacement).tolist()
        if self._shown:
            forces = forces_shown(forces, channels, self._shown)
        commands = targets = (measured.command - self._tares.command).tolist()
        if command is not None:
            commands, targets = command.command.tolist(), command.target.tolist()
        if aims is not None and aims is not targets:
            tracked = [x - (aim - target) for x, aim, target in zip(tracked, aims, targets, strict=True)]
        now = list(map(Reading, displacements, forces, commands, targets, tracked))
        before, rate, self._before = self._before or now, self._rate, now
        values: list[float] = [0.0] * self._of_channels + channels
        for position, (axis, value) in self._used.items():
            values[position] = value(now[axis], before[axis], rate)
        for position, channel in self._second_sensors.items():
            values[position] -= channels[channel]
        flags = 0 if command is None else command.flags
        for position, count in self._counts.items():
            values[position] = count(flags, measured.flags)
        for made in self._made:
            values.append(made(values))
        return values


class Breach(NamedTuple):
    """An exceeded level: its reason and its action (``core/limits.py``)."""

    reason: str
    action: str


class LevelWatch:
    """Checks the levels of all axes and of the rig. ``told`` collects one report for each exceeded level.

    Each element of ``levels`` has the index of an axis, its name, a quantity, and the level. A level has two pairs
    of bounds: exceeding the first causes the report, exceeding the second causes the action.
    """

    def __init__(self, levels: Sequence[tuple[int, str, str, Level]], values: Values) -> None:
        self._values, self._levels = values, {values.of_level(*level): level for level in levels}
        self._told: dict[int, Row] = {}
        self._acted: dict[int, Row] = {}
        for position, (_, axis, quantity, level) in self._levels.items():
            low, high = _bounds(level.minimum, level.maximum)
            warn_low, warn_high = _bounds(level.warn_minimum, level.warn_maximum, low, high)
            persistence, path = level.persistence if level.acts else NEVER, level_path(axis, quantity)
            if low == -high == -math.inf:  # a level without bounds only warns, even if the value is NaN
                low, high = warn_low, warn_high
            self._told[position] = Row(path, position, warn_low, warn_high, action=INDICATE)
            self._acted[position] = Row(path, position, low, high, persistence, level.action)
        self._telling, self._acting = table(self._told.values()), table(self._acted.values())
        self._ends = dict.fromkeys(self._told, (math.inf, -math.inf))
        self._beyond: dict[int, tuple[int, int]] = {}
        """Number of samples beyond the level, and the first of these samples, by index of the value."""
        self._calls = 0
        self.told: list[str] = []

    @classmethod
    def of(
        cls,
        limits: dict[str, Limits],
        dt: float,
        channels: Sequence[str] = (),
        tares: Tares | None = None,
        whole: Mapping[str, Level] | None = None,
        quantities: Mapping[str, object] | None = None,
    ) -> LevelWatch | None:
        """Return a LevelWatch for the levels in ``limits`` and of the ``whole`` rig, or None if no level is set.

        ``channels`` are auxiliary names with units. ``quantities`` are parameters of quantities with memory, by
        name. Raises ConfigError if a channel, quantity or expression is invalid.
        """
        axes = [
            (index, axis, axis_limits.levels)
            for index, (axis, axis_limits) in enumerate(limits.items())
            if axis_limits.levels
        ]
        levels = [
            (index, axis, *level) for index, axis, axis_limits in axes for level in axis_limits.in_effect().items()
        ]
        levels += [(0, WHOLE_RIG, *level) for level in (whole or {}).items()]
        values = Values(list(limits), dt, channels, tares or Tares.none(len(limits)))
        values.remember(quantities or {})  # check quantities even if no level uses them
        return cls(levels, values) if levels else None

    def judge(
        self, command: Command | None, measured: Measurement, aims: list[float] | None = None
    ) -> Breach | None:
        """Return the Breach of the first level that acts on a Measurement and its Command, or None.

        Without a Command, the applied command is also the target. Tracking errors are computed with ``aims``
        ``(n_axes,)`` m instead of the targets, if given.
        """
        values, call = self._values.of(command, measured, aims), self._calls
        self._calls = call + 1
        for position, (low, high) in self._ends.items():
            self._ends[position] = min(low, values[position]), max(high, values[position])
        if acting(self._telling, values, call) < 0:
            return None
        broken = acting(self._acting, values, call)
        for position in (candidate for candidate in self._told if self._telling[2][candidate] == call):
            samples, first = self._beyond.get(position, (0, measured.sample))
            self._beyond[position] = samples + 1, first
            if not samples:
                self.told.append(f"sample {measured.sample}: {self._words(position, values[position], call)}")
        if broken < 0:
            return None
        return Breach(self._words(broken, values[broken], call), self._acted[broken].action)

    def _words(self, position: int, value: float, call: int) -> str:
        _, in_a_row, last = self._acting
        lasted = in_a_row[position] if last[position] == call else 0
        row, (_, axis, quantity, level) = (self._acted if lasted else self._told)[position], self._levels[position]
        bound, sign = (row.low, ">=") if value < row.low else (row.high, "<=")
        during, unit = f" for {lasted} samples" if lasted > 1 else "", unit_of_level(quantity, level)
        if axis == WHOLE_RIG and quantity in WHOLE:
            during = WHOLE[quantity].reason
        failure = self._values.failure
        why = f" ({failure})" if math.isnan(value) and failure else ""
        return f"{row.path}: {value:.6g} {unit}{during}: must be {sign} {bound:g} {unit}{why}"

    def take_warnings(self) -> list[str]:
        reports, self.told = self.told, []
        return reports

    def numbers(self) -> Data:
        numbers: Data = {}
        for position, (_, axis, quantity, _) in self._levels.items():
            (low, high), (samples, first) = self._ends[position], self._beyond.get(position, (0, 0))
            beyond = {"samples": float(samples)} | ({"first": float(first)} if samples else {})
            ends = {"lowest": low, "highest": high} if low <= high else {}
            numbers.setdefault(axis, {})[quantity] = ends | beyond
        return numbers


def _second(path: str, channel: str, unit: str, channels: Sequence[str]) -> int:
    names = [name.partition(" [")[0] for name in channels]
    if channel not in names:
        raise unknown(f"{path}.channel", "channel", channel, names)
    unit_of_channel = channels[names.index(channel)].partition(" [")[2].rstrip("]")
    if unit_of_channel != unit:
        raise ConfigError(
            f"{path}.channel = {channel!r}: its unit is {unit_of_channel or 'none'}, but must be {unit}"
        )
    return names.index(channel)


def level_numbers(watch: LevelWatch | None) -> dict[str, object]:
    return {} if watch is None else {"levels": watch.numbers()}


def level_path(axis: str, quantity: str) -> str:
    section = "levels" if quantity in WHOLE else "levels.expressions"
    return f"{section}.{quantity}" if axis == WHOLE_RIG else f"axes.{axis}.limits.levels.{quantity}"


def level_notes(timing: Data) -> list[str]:
    return [
        f"{level_path(axis, quantity)}: the level was exceeded in {counted(row['samples'], 'sample')}, "
        f"first at sample {row['first']:.0f}. "
        f"{_range(row, (WHOLE if axis == WHOLE_RIG else QUANTITIES).get(quantity))}"
        for axis, rows in timing.get("levels", {}).items()
        for quantity, row in rows.items()
        if row.get("samples")
    ]


def _range(row: Mapping[str, float], quantity: AxisQuantity | RigQuantity | None) -> str:
    if "lowest" not in row:
        return "The value was NaN throughout the test"
    unit = "in its unit" if quantity is None else quantity.unit
    return f"The value ranged from {row['lowest']:.4g} to {row['highest']:.4g} {unit}"


def _bounds(
    low: float | None, high: float | None, lowest: float = -math.inf, highest: float = math.inf
) -> tuple[float, float]:
    return (lowest if low is None else low), (highest if high is None else high)
