# SPDX-License-Identifier: Apache-2.0
"""Rules about the numbers of a test and its rig: what one is, what it is shown, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from rths_nodes.core.parameters import declared, is_params
from rths_nodes.loop.scenario.axis import Axis
from rths_nodes.loop.scenario.schema import Scenario

REFUSED, CAUTION = "refused", "caution"
"""Consequence: a number that is never right is refused, one that is hardly right is told, and signed for."""


@dataclass(frozen=True)
class Seen:
    """The ``scenario`` that is judged, on its rig; ``simulated``: nothing of steel moves behind its port.

    ``today`` is the date by which calibrations are old.
    """

    scenario: Scenario
    simulated: bool
    today: date

    @property
    def axes(self) -> Iterator[tuple[str, Axis]]:
        """Each axis with its place in the scenario."""
        return ((f"axes.{name}", axis) for name, axis in self.scenario.axes.items())


@dataclass(frozen=True)
class Found:
    """A number that a rule does not let pass: its ``place``, its ``value`` with its unit, what it should be."""

    place: str
    value: str
    words: str


Look = Callable[[Seen], Iterable[Found]]
"""Function that looks for numbers that a rule does not let pass."""


@dataclass(frozen=True)
class Rule:
    """One judgement: its ``name``, the ``relation`` that it asks for, why, and the function that looks.

    With ``real`` it holds only where something of steel moves behind the port.
    """

    name: str
    weight: str
    relation: str
    reason: str
    look: Look
    real: bool = False


def rule(weight: str, relation: str, reason: str, real: bool = False) -> Callable[[Look], Rule]:
    """A decorator that makes a :class:`Rule` of the function that looks, by the name of that."""
    return lambda look: Rule(look.__name__, weight, relation, reason, look, real)


def rules_in(module: Mapping[str, object]) -> tuple[Rule, ...]:
    """The rules among the globals of a ``module``, in the order of their lines."""
    return tuple(each for each in module.values() if isinstance(each, Rule))


@dataclass(frozen=True)
class Judgement:
    """Judgement of a rule on one number: its whole ``name``, by which it is signed for, and the ``words``."""

    name: str
    words: str

    def __str__(self) -> str:
        return f"{self.words} ({self.name})"


def given(part: object, name: str) -> Any:
    """The parameter ``name`` of a component, None where it declares none."""
    return getattr(part, name) if is_params(part) and name in declared(type(part)) else None
