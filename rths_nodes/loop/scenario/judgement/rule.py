# SPDX-License-Identifier: Apache-2.0
"""Rules about the numbers of a test and its rig: their input, their result and their registration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any, NamedTuple

from rths_nodes.core.parameters import declared, is_params
from rths_nodes.loop.scenario.schema import Axis, Scenario

REFUSED, CAUTION = "refused", "caution"


@dataclass(frozen=True)
class Seen:
    """Input of a rule. ``simulated`` is true if no actuator is real.

    Calibrations are judged on the date ``today``.
    """

    scenario: Scenario
    simulated: bool
    today: date

    @property
    def axes(self) -> Iterator[tuple[str, Axis]]:
        return ((f"axes.{name}", axis) for name, axis in self.scenario.axes.items())


class Found(NamedTuple):
    """Number at ``place`` that violates the named ``rule``, with its ``value`` and unit.

    ``words`` state the requirement.
    """

    rule: str
    place: str
    value: str
    words: str


Look = Callable[[Seen], Iterable[Found]]


class Text(NamedTuple):
    """Text of a rule: its ``relation`` and the reason. If ``real`` is true, it applies only to real rigs."""

    weight: str
    relation: str
    reason: str
    real: bool = False


class Rule(NamedTuple):
    """Rule whose function ``look`` yields the numbers that violate this rule, and numbers that violate others."""

    name: str
    look: Look
    weight: str
    relation: str
    reason: str
    real: bool


refused, caution = partial(Text, REFUSED), partial(Text, CAUTION)


def rules(look: Look, **texts: Text) -> list[Rule]:
    return [Rule(name, look, *text) for name, text in texts.items()]


@dataclass(frozen=True)
class Judgement:
    """Result of a rule for one number: the full ``name``, which an operator signs, and the text."""

    name: str
    words: str

    def __str__(self) -> str:
        return f"{self.words} ({self.name})"


def parameter(part: object, name: str) -> Any:
    return getattr(part, name) if is_params(part) and name in declared(type(part)) else None
