# SPDX-License-Identifier: Apache-2.0
"""User-defined levels: expressions over measurements of the rig, sample by sample."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rths_nodes.core import registry
from rths_nodes.core.dimensions import Unit, unit_of
from rths_nodes.core.errors import ComponentError, ConfigError, show
from rths_nodes.core.expressions import Expression
from rths_nodes.core.limits import QUANTITIES, WHOLE, OfExpression
from rths_nodes.core.protocols import Quantity
from rths_nodes.loop.supervision.limit_rows import PER_AXIS

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
