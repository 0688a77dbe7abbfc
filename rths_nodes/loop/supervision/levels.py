# SPDX-License-Identifier: Apache-2.0
"""Levels of axes, of the complete rig, and of expressions: optional limits, checked as rows (``limits.py``).

A level bounds a quantity (``core/limits.py``), an auxiliary channel, a quantity with memory, or an expression.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import product
from operator import attrgetter
from typing import Any

from rths_nodes.core import registry
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ComponentError, ConfigError, counted, show, unknown
from rths_nodes.core.expressions import Expression, Unit, unit_of
from rths_nodes.core.limits import (
    ACTIONS,
    INDICATE,
    PREVIOUS,
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
"""Quantities that an expression can use only together with the name of an axis."""
WHOLE_RIG = "whole rig"
"""Name that replaces an axis name for levels of the complete rig."""
FLAGS = 2
"""Number of values before the channels: the flags of Command and Measurement."""


Column = Callable[[list[Reading], list[Reading], list[float]], float]
"""Function that computes a value from the axes' readings, their previous readings, and the earlier values."""


def _counter(row: RigQuantity, dt: float) -> Column:
    """Return a column for ``row``: number of consecutive counted samples, or their share of the last second."""
    count, length = 0, max(1, round(SHARE_S / dt))
    last: deque[bool] | None = deque([False] * length, maxlen=length) if row.unit == SHARE else None

    def value(now: list[Reading], before: list[Reading], values: list[float]) -> float:
        nonlocal count
        counted = row.counted(int(values[0]), int(values[1]))
        if last is not None:
            count += bool(counted) - last[0]
            last.append(bool(counted))
            return count / len(last)
        if counted is not None:
            count = count + 1 if counted else 0
        return float(count)

    return value


class LevelWatch:
    """Checks the levels of all axes in ``limits`` and of the ``whole`` rig. An instance without levels is false.

    A level has two pairs of bounds. A value outside the first pair is reported once per level, in ``told``. A
    value outside the second pair causes the action. ``channels`` are names of auxiliary channels, with units.
    ``quantities`` are parameters of quantities with memory, by name. Raises ConfigError if a channel, quantity or
    expression is invalid.

    The values of a sample are one list: flags of Command and Measurement, channels, columns. Unused columns are 0.
    """

    def __init__(
        self,
        limits: dict[str, Limits],
        dt: float,
        channels: Sequence[str] = (),
        tares: Tares | None = None,
        whole: Mapping[str, Level] | None = None,
        quantities: Mapping[str, object] | None = None,
    ) -> None:
        self._axes, self._dt, self._channels = list(limits), dt, channels
        self._tares, self._shown = tares or Tares.none(len(limits)), shown_forces(channels, self._axes)
        self._of_axes = dict(enumerate(product(OF_AXES, limits), FLAGS + len(channels)))
        self._size = FLAGS + len(channels) + len(self._of_axes)
        self._columns: dict[int, Column] = {}
        self._names: dict[str, dict[str, tuple[int, Unit]]] = {noun: {} for noun in (*OF_AXES, CHANNEL, QUANTITY)}
        for index, (noun, axis) in self._of_axes.items():
            self._names[noun][axis] = index, unit_of(QUANTITIES[noun].unit)
        for index, channel in enumerate(channels, FLAGS):
            name, _, unit = channel.partition(" [")
            with suppress(ValueError):  # a value without a unit cannot be used in expressions
                self._names[CHANNEL][name] = index, unit_of(unit.rstrip("]") or "1")
        self._before: list[Reading] = []
        self._failure = ""
        """Error of the first quantity that failed, or empty. The values of failed quantities are NaN."""
        for name, params in (quantities or {}).items():
            self._remember(name, params)
        of_axes = {axis: of_axis.levels.in_effect() for axis, of_axis in limits.items() if of_axis.levels}
        self._levels: dict[int, tuple[str, str]] = {}
        self._told: dict[int, Row] = {}
        self._acted: dict[int, Row] = {}
        for axis, of_axis in [*of_axes.items(), (WHOLE_RIG, whole or {})]:
            for quantity, level in of_axis.items():
                index = self._of_level(axis, quantity, level)
                self._levels[index] = axis, quantity
                self._told[index], self._acted[index] = _rows(index, axis, quantity, level)
        by_severity = sorted(self._acted.values(), key=lambda row: -ACTIONS.index(row.action))
        self._telling, self._acting = table(self._told.values()), table(by_severity)
        self._ends = dict.fromkeys(self._told, (math.inf, -math.inf))
        self._beyond: dict[int, tuple[int, int]] = {}
        """Number of samples outside the bounds, and the first of these samples, by index of the value."""
        self._calls = 0
        self.told: list[str] = []

    def __bool__(self) -> bool:
        return bool(self._levels)

    def _add(self, column: Column) -> int:
        self._columns[self._size] = column
        self._size += 1
        return self._size - 1

    def _of_axis(self, quantity: str, axis: str) -> Column:
        row, i = QUANTITIES[quantity], self._axes.index(axis)
        reading, other = attrgetter(row.reading), attrgetter(row.minus)
        if row.minus == PREVIOUS:
            factor = 1.0 / self._dt if row.unit.endswith("/s") else 1.0
            return lambda now, before, values: (reading(now[i]) - reading(before[i])) * factor
        if row.minus:
            return lambda now, before, values: reading(now[i]) - other(now[i])
        return lambda now, before, values: reading(now[i])

    def _expression(self, text: str) -> Expression:
        made = Expression(text, self._names)
        self._columns |= {i: self._of_axis(*self._of_axes[i]) for i in made.places if i in self._of_axes}
        return made

    def _remember(self, name: str, params: Any) -> None:
        path = f"levels.quantities.{name}"
        made: Quantity = registry.build("quantity", params, self._dt)
        try:
            parts = [self._expression(text) for text in params.of]
            unit = made.unit([part.unit for part in parts])
        except (ValueError, ComponentError) as error:
            raise ConfigError(f"{path}.of = {show(list(params.of))}: {error}") from None
        if not isinstance(unit, Unit):
            raise ConfigError(f"{path}: its method unit returns {show(unit)}, but must return a Unit")

        def value(now: list[Reading], before: list[Reading], values: list[float]) -> float:
            try:
                return float(made.step([part.value(values) for part in parts]))
            except Exception as error:  # user code can raise any exception, but supervision must continue
                self._failure = self._failure or f"{path}: {type(error).__name__}: {error}"
                return math.nan

        self._names[QUANTITY][name] = self._add(value), Unit(1.0, unit.powers)

    def _of_level(self, axis: str, quantity: str, level: Level) -> int:
        path = level_path(axis, quantity)
        if isinstance(level, OfExpression):
            return self._add(self._of_expression(path, level))
        if axis == WHOLE_RIG:
            return self._add(_counter(WHOLE[quantity], self._dt))
        column = self._of_axis(quantity, axis)
        if isinstance(level, Disagreement):
            names = [name.partition(" [")[0] for name in self._channels]
            if level.channel not in names:
                raise unknown(f"{path}.channel", "channel", level.channel, names)
            second, unit = names.index(level.channel), QUANTITIES[quantity].unit
            unit_of_channel = self._channels[second].partition(" [")[2].rstrip("]")
            if unit_of_channel != unit:
                problem = f"its unit is {unit_of_channel or 'none'}, but must be {unit}"
                raise ConfigError(f"{path}.channel = {level.channel!r}: {problem}")
            return self._add(lambda now, before, values: column(now, before, values) - values[FLAGS + second])
        index = self._names[quantity][axis][0]  # expressions also use this index
        self._columns[index] = column
        return index

    def _of_expression(self, path: str, level: OfExpression) -> Column:
        try:
            made, unit = self._expression(level.of), unit_of(level.unit)
        except ValueError as error:
            raise ConfigError(f"{path}.of = {show(level.of)}: {error}") from None
        if made.unit.powers != unit.powers:
            problem = f"must be a unit of {made.unit.dimension}, like the unit of {level.of}"
            raise ConfigError(f"{path}.unit = {level.unit!r}: {problem}")
        at_rest = made.value([0.0] * (1 + max(made.places, default=0))) / unit.factor
        low, high = _bounds(level.minimum, level.maximum)
        if level.acts and all(i in self._of_axes for i in made.places) and not low <= at_rest <= high:
            problem = "is not a number" if math.isnan(at_rest) else f"is {at_rest:g} {level.unit}"
            raise ConfigError(
                f"{path}.of = {show(level.of)}: {problem} if the rig is at rest at zero, so "
                "the level would act without any motion"
            )
        return lambda now, before, values: made.value(values) / unit.factor

    def _values(self, command: Command | None, measured: Measurement, aims: list[float] | None) -> list[float]:
        displacements, forces = measured.displacement.tolist(), measured.force.tolist()
        channels = measured.auxiliary.tolist()
        if self._shown:
            forces = forces_shown(forces, channels, self._shown)
        tracked = (measured.displacement - self._tares.displacement).tolist()
        commands = targets = (measured.command - self._tares.command).tolist()
        if command is not None:
            commands, targets = command.command.tolist(), command.target.tolist()
        if aims is not None and aims is not targets:
            tracked = [x - (aim - target) for x, aim, target in zip(tracked, aims, targets, strict=True)]
        now = list(map(Reading, displacements, forces, commands, targets, tracked))
        before, self._before = self._before or now, now
        flags = 0 if command is None else command.flags
        values = [flags, measured.flags, *channels, *[0.0] * (self._size - FLAGS - len(channels))]
        for index, column in self._columns.items():
            values[index] = column(now, before, values)
        return values

    def judge(
        self, command: Command | None, measured: Measurement, aims: list[float] | None = None
    ) -> tuple[str, str]:
        """Return reason and action (``core/limits.py``) of the most severe level that acts on a Measurement.

        Both are empty if no level acts. If ``command`` is None, the applied command also counts as target. If
        ``aims`` ``(n_axes,)`` m is not None, it replaces the targets in tracking errors.
        """
        values, call = self._values(command, measured, aims), self._calls
        self._calls = call + 1
        for index, (low, high) in self._ends.items():
            self._ends[index] = min(low, values[index]), max(high, values[index])
        if acting(self._telling, values, call) < 0:
            return "", ""
        broken = acting(self._acting, values, call)
        for index in (candidate for candidate in self._told if self._telling[2][candidate] == call):
            samples, first = self._beyond.get(index, (0, measured.sample))
            self._beyond[index] = samples + 1, first
            if not samples:
                self.told.append(f"sample {measured.sample}: {self._words(index, values[index], call)}")
        return (self._words(broken, values[broken], call), self._acted[broken].action) if broken >= 0 else ("", "")

    def _words(self, index: int, value: float, call: int) -> str:
        _, in_a_row, last = self._acting
        lasted, failure = in_a_row[index] if last[index] == call else 0, self._failure
        row = (self._acted if lasted else self._told)[index]
        why = f" ({failure})" if math.isnan(value) and failure else ""
        return row.words(value, f" for {lasted} samples" if lasted > 1 else "") + why

    def take_warnings(self) -> list[str]:
        reports, self.told = self.told, []
        return reports

    def numbers(self) -> Data:
        numbers: Data = {}
        for index, (axis, quantity) in self._levels.items():
            (low, high), (samples, first) = self._ends[index], self._beyond.get(index, (0, 0))
            beyond = {"samples": float(samples)} | ({"first": float(first)} if samples else {})
            ends = {"lowest": low, "highest": high} if low <= high else {}
            numbers.setdefault(axis, {})[quantity] = ends | beyond
        return numbers


def _rows(index: int, axis: str, quantity: str, level: Level) -> tuple[Row, Row]:
    low, high = _bounds(level.minimum, level.maximum)
    warn_low, warn_high = _bounds(level.warn_minimum, level.warn_maximum, low, high)
    if low == -high == -math.inf:  # a level without bounds only warns, even if the value is NaN
        low, high = warn_low, warn_high
    unit = unit_of_level(quantity, level)
    during = WHOLE[quantity].reason if axis == WHOLE_RIG and quantity in WHOLE else "{5}"
    text = f": {{0:.6g}} {unit}{during}: must be {{3}} {{4:g}} {unit}"
    told = Row(level_path(axis, quantity), index, warn_low, warn_high, action=INDICATE, text=text)
    persistence = level.persistence if level.acts else NEVER
    return told, told._replace(low=low, high=high, persistence=persistence, action=level.action)


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
