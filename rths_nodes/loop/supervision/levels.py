# SPDX-License-Identifier: Apache-2.0
"""Levels of axes, of the whole rig, and user-defined ones (expressions): rows (``limit_rows.py``) with texts."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rths_nodes.core import registry
from rths_nodes.core.data import Data
from rths_nodes.core.dimensions import Unit, unit_of
from rths_nodes.core.errors import ComponentError, ConfigError, show, unknown
from rths_nodes.core.expressions import Expression
from rths_nodes.core.limits import (
    INDICATE,
    QUANTITIES,
    SHARE_S,
    WHOLE,
    Disagreement,
    Level,
    Limits,
    OfExpression,
    unit_of_level,
)
from rths_nodes.core.protocols import Quantity
from rths_nodes.core.samples import FLAG_AT_BOUND, FLAG_BRIDGED, Command, Measurement
from rths_nodes.laboratory.corrections import forces_shown, shown_forces
from rths_nodes.loop.supervision.handover import Tares
from rths_nodes.loop.supervision.limit_rows import NEVER, PER_AXIS, Lists, Row, acting, of_levels, table

COMMAND, TARGET, CHANNEL, QUANTITY = "command", "target", "channel", "quantity"
OF_AXES = (*list(QUANTITIES)[:PER_AXIS], COMMAND, TARGET)
"""Nouns of an expression that are followed by an axis name."""


class OwnLevels:
    """Values of expressions that have levels; false without any.

    Expressions may use the first PER_AXIS of QUANTITIES of each of the ``axes``, its command and target (m),
    auxiliary ``channels`` with a known unit, and quantities of :meth:`remember`.
    """

    def __init__(self, axes: Sequence[str], channels: Sequence[str]) -> None:
        self._made: list[tuple[Expression, float]] = []
        self._names: dict[str, dict[str, tuple[int, Unit]]] = {}
        n, metre = len(axes), unit_of("m")
        for number, (noun, unit) in enumerate(list(QUANTITIES.items())[:PER_AXIS]):
            of = unit_of(unit)
            self._names[noun] = {axis: (PER_AXIS * i + number, of) for i, axis in enumerate(axes)}
        behind = PER_AXIS * n + len(WHOLE)
        for number, noun in enumerate((COMMAND, TARGET)):
            self._names[noun] = {axis: (behind + number * n + i, metre) for i, axis in enumerate(axes)}
        self._first_channel = behind + 2 * n
        self._names[CHANNEL] = {}
        for number, channel in enumerate(channels):
            name, _, unit = channel.partition(" [")
            try:
                self._names[CHANNEL][name] = self._first_channel + number, unit_of(unit.rstrip("]") or "1")
            except ValueError:
                continue  # without a unit nothing can be added to it
        self._remembered: list[tuple[str, Quantity, list[Expression]]] = []
        self.failure = ""
        """Error of the first quantity that failed, which is nan since, or empty."""
        self._names[QUANTITY] = {}
        self._behind = self._first_channel + len(channels)

    def remember(self, quantities: Mapping[str, Any], dt: float) -> None:
        """Make ``quantities`` (parameters by name), each from earlier ones; ``dt`` s. Raises ConfigError."""
        for name, params in quantities.items():
            made: Quantity = registry.build("quantity", params, dt)
            try:
                parts = [Expression(text, self._names) for text in params.of]
                unit = made.unit([each.unit for each in parts])
            except (ValueError, ComponentError) as error:
                raise ConfigError(f"levels.quantities.{name}.of = {show(list(params.of))}: {error}") from None
            if not isinstance(unit, Unit):
                raise ConfigError(f"levels.quantities.{name}: unit gives {show(unit)}: must be a Unit")
            self._names[QUANTITY][name] = self._behind + len(self._remembered), Unit(1.0, unit.powers)
            self._remembered.append((name, made, parts))

    def __bool__(self) -> bool:
        return bool(self._made)

    def add(self, path: str, level: OfExpression) -> int:
        """Return the number of the expression of ``level``, at ``path``.

        Raises ConfigError for an invalid one, for another unit, and if the level acts on a rig at rest.
        """
        try:
            made, unit = Expression(level.of, self._names), unit_of(level.unit)
        except ValueError as error:
            raise ConfigError(f"{path}.of = {show(level.of)}: {error}") from None
        if made.unit.powers != unit.powers:
            words = f"is of another quantity than {made.unit.words}, in which {level.of} is"
            raise ConfigError(f"{path}.unit = {level.unit!r}: {words}")
        at_rest = made.value([0.0] * (1 + max(made.places, default=0))) / unit.factor
        low = -math.inf if level.minimum is None else level.minimum
        high = math.inf if level.maximum is None else level.maximum
        told = all(place < self._first_channel for place in made.places)
        if told and level.acts and not low <= at_rest <= high:
            words = "is not a number" if math.isnan(at_rest) else f"is {at_rest:g} {level.unit}"
            raise ConfigError(
                f"{path}.of = {show(level.of)}: {words} where the rig stands at zero: it would act there"
            )
        self._made.append((made, unit.factor))
        return len(self._made) - 1

    def values(self, values: list[float], *beside: Sequence[float]) -> list[float]:
        """Return the value of each expression, in the unit of its levels.

        From ``values`` of a ``LevelWatch``, followed (``beside``) by commands, targets and channels.
        """
        known = [*values, *(each for row in beside for each in row)]
        for name, quantity, parts in self._remembered:
            try:
                value = float(quantity.step([each.value(known) for each in parts]))
            except Exception as error:  # foreign code may raise anything; the supervision continues
                value = math.nan
                self.failure = self.failure or f"levels.quantities.{name}: {type(error).__name__}: {error}"
            known.append(value)
        return [made.value(known) / factor for made, factor in self._made]


WHOLE_RIG = "whole rig"
"""Replaces an axis for levels of all axes."""
_IN_A_ROW = {
    "bridge_length": " in a row were bridged",
    "bridged_share": " of the samples of a second were bridged",
    "parameter_at_bound": " in a row had an adaptive parameter of the compensator at its bound",
}


class Breach(NamedTuple):
    """A broken level: reason and action (``core/limits.py``)."""

    reason: str
    action: str


_Levels = list[tuple[int, str, str, Level]]


class LevelWatch:
    """Checks the levels of all axes; ``told`` collects first excesses.

    A level is two rows of one value: beyond the first it is reported, beyond the second acted upon.
    """

    def __init__(
        self, levels: _Levels, axes: list[str], dt: float, channels: Sequence[str], tares: Tares, own: OwnLevels
    ) -> None:
        """``levels``: index of the axis, its name, quantity, level; ``own``: expressions; others as of ``of``."""
        self._rate, self._shown, self._tares = 1.0 / dt, shown_forces(channels, axes), tares
        self._second_sensors: list[tuple[int, int, int]] = []
        """Rows of disagreements: 0 for displacements and 1 for forces, axis, channel."""
        self._told: dict[int, Row] = {}
        self._acted: dict[int, Row] = {}
        self._own = own
        self._units: dict[int, str] = {}
        end = PER_AXIS * len(axes)
        behind = end + len(WHOLE)
        of_expressions = behind + sum(isinstance(level, Disagreement) for *_, level in levels)
        for index, axis, quantity, level in levels:
            if isinstance(level, OfExpression):
                place = of_expressions + self._own.add(level_path(axis, quantity), level)
            elif isinstance(level, Disagreement):
                place = behind + len(self._second_sensors)
                second = _second(level_path(axis, quantity), level.channel, QUANTITIES[quantity], channels)
                self._second_sensors.append((int(quantity == "force_disagreement"), index, second))
            else:
                first, of = (end, WHOLE) if axis == WHOLE_RIG else (PER_AXIS * index, QUANTITIES)
                place = first + list(of).index(quantity)
            self._units[place] = unit_of_level(quantity, level)
            low, high = _or(level.minimum, -math.inf), _or(level.maximum, math.inf)
            warn_low, warn_high = _or(level.warn_minimum, low), _or(level.warn_maximum, high)
            persistence = level.persistence if level.acts else NEVER
            if low == -high == -math.inf:  # it only warns, also of nan
                low, high = warn_low, warn_high
            self._told[place] = Row(quantity, axis, place, warn_low, warn_high, action=INDICATE)
            self._acted[place] = Row(quantity, axis, place, low, high, persistence, level.action)
        self._telling, self._acting = table(self._told.values()), table(self._acted.values())
        self._ends = dict.fromkeys(self._told, (math.inf, -math.inf))
        self._beyond: dict[int, tuple[int, int]] = {}
        """Number of reported samples and the first of them, by index."""
        self._calls = 0
        self._before: Lists | None = None
        self._bridged = self._at_bound = self._in_second = 0
        self._second: deque[bool] = deque(maxlen=max(1, round(SHARE_S / dt)))
        """True for each bridged sample of the last second."""
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
        """Return the check of the levels in ``limits``, or None without any.

        ``channels``: auxiliary names with units; ``tares`` as of a ``LimitCheck``; ``whole``: levels of the whole
        rig; ``quantities`` of their expressions. Raises ConfigError for an unknown channel.
        """
        axes = [(index, axis, each.levels) for index, (axis, each) in enumerate(limits.items()) if each.levels]
        levels = [(index, axis, *level) for index, axis, each in axes for level in each.given().items()]
        levels += [(0, WHOLE_RIG, *level) for level in (whole or {}).items()]
        own = OwnLevels(list(limits), channels)
        own.remember(quantities or {}, dt)  # checked even if no level uses them
        if not levels:
            return None
        return cls(levels, list(limits), dt, channels, tares or Tares.none(len(limits)), own)

    def judge(
        self, command: Command | None, measured: Measurement, aims: list[float] | None = None
    ) -> Breach | None:
        """Return the first level broken by Measurement k with Command k; without one the applied command is both.

        ``aims`` ``(n_axes,)`` m: reference of the displacements, by default the targets.
        """
        values, call = self._values(command, measured, aims), self._calls
        self._calls = call + 1
        for place, (low, high) in self._ends.items():
            self._ends[place] = min(low, values[place]), max(high, values[place])
        if acting(self._telling, values, call) < 0:
            return None
        broken = acting(self._acting, values, call)
        for place in (each for each in self._told if self._telling[2][each] == call):
            samples, first = self._beyond.get(place, (0, measured.sample))
            self._beyond[place] = samples + 1, first
            if not samples:
                self.told.append(f"sample {measured.sample}: {self._words(place, values[place], call)}")
        if broken < 0:
            return None
        return Breach(self._words(broken, values[broken], call), self._acted[broken].action)

    def _values(self, command: Command | None, measured: Measurement, aims: list[float] | None) -> list[float]:
        displacements, forces = measured.displacement.tolist(), measured.force.tolist()
        auxiliary, moved = measured.auxiliary.tolist(), (measured.displacement - self._tares.displacement).tolist()
        if self._shown:
            forces = forces_shown(forces, auxiliary, self._shown)
        commands = targets = (measured.command - self._tares.command).tolist()
        if command is not None:
            commands, targets = command.command.tolist(), command.target.tolist()
        if aims is not None and aims is not targets:
            moved = [x - (aim - target) for x, aim, target in zip(moved, aims, targets, strict=True)]
        now = displacements, forces, commands, targets, moved
        values = of_levels(now, self._before or now, self._rate) + self._of_rig(command, measured)
        self._before = now
        own = self._own.values(values, commands, targets, auxiliary) if self._own else []
        second = [now[which][axis] - auxiliary[channel] for which, axis, channel in self._second_sensors]
        return values + second + own

    def _of_rig(self, command: Command | None, measured: Measurement) -> list[float]:
        """Return the values of WHOLE; a bridged Command has no parameters, seconds count from the first."""
        flags = 0 if command is None else command.flags
        bridged, second = bool((flags | measured.flags) & FLAG_BRIDGED), self._second
        self._bridged = self._bridged + 1 if bridged else 0
        if not flags & FLAG_BRIDGED:
            self._at_bound = self._at_bound + 1 if flags & FLAG_AT_BOUND else 0
        self._in_second += bridged - (second[0] if len(second) == second.maxlen else False)
        second.append(bridged)
        return [float(self._bridged), self._in_second / (second.maxlen or 1), float(self._at_bound)]

    def _words(self, place: int, value: float, call: int) -> str:
        _, in_a_row, last = self._acting
        lasted = in_a_row[place] if last[place] == call else 0
        quantity, axis, _, low, high, _, _ = (self._acted if lasted else self._told)[place]
        bound, sign = (low, ">=") if value < low else (high, "<=")
        behind = f" for {lasted} samples" if lasted > 1 else ""
        behind, unit = _IN_A_ROW.get(quantity, behind), self._units[place]
        why = f" ({self._own.failure})" if math.isnan(value) and self._own.failure else ""
        return f"{level_path(axis, quantity)}: {value:.6g} {unit}{behind}: must be {sign} {bound:g} {unit}{why}"

    def take_told(self) -> list[str]:
        """Return texts on excesses since the last call."""
        told, self.told = self.told, []
        return told

    def numbers(self) -> Data:
        """Return extreme, duration and first sample beyond the reported level, by axis and quantity."""
        found: Data = {}
        for place, row in self._told.items():
            (low, high), (samples, first) = self._ends[place], self._beyond.get(place, (0, 0))
            beyond = {"samples": float(samples)} | ({"first": float(first)} if samples else {})
            ends = {"lowest": low, "highest": high} if low <= high else {}
            found.setdefault(row.axis, {})[row.quantity] = ends | beyond
        return found


def _second(path: str, channel: str, unit: str, channels: Sequence[str]) -> int:
    """Return the index of a second sensor's channel. Raises ConfigError unless it measures in ``unit``."""
    names = [name.partition(" [")[0] for name in channels]
    if channel not in names:
        raise unknown(f"{path}.channel", "channel", channel, names)
    found = channels[names.index(channel)].partition(" [")[2].rstrip("]")
    if found != unit:
        found = found or "a number without unit"
        raise ConfigError(f"{path}.channel = {channel!r}: is in {found}: must be in {unit}")
    return names.index(channel)


def level_numbers(watch: LevelWatch | None) -> dict[str, object]:
    return {} if watch is None else {"levels": watch.numbers()}


def level_path(axis: str, quantity: str) -> str:
    whole = "levels" if quantity in WHOLE else "levels.expressions"
    return f"{whole}.{quantity}" if axis == WHOLE_RIG else f"axes.{axis}.limits.levels.{quantity}"


def level_notes(timing: Data) -> list[str]:
    """Return a note for each level exceeded in a test."""
    return [
        f"{level_path(axis, quantity)}: beyond its level in {row['samples']:.0f} samples, from sample "
        f"{row['first']:.0f} on; {_range(row, (WHOLE if axis == WHOLE_RIG else QUANTITIES).get(quantity))}"
        for axis, rows in timing.get("levels", {}).items()
        for quantity, row in rows.items()
        if row.get("samples")
    ]


def _range(row: Mapping[str, float], unit: str | None) -> str:
    if "lowest" not in row:
        return "never a number in the test"
    return f"{row['lowest']:.4g} to {row['highest']:.4g} {unit or 'in its unit'} in the test"


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value
