# SPDX-License-Identifier: Apache-2.0
"""Rules about the numbers of a test and its rig: their input, their result and their registration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

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


@dataclass(frozen=True)
class Found:
    """Number at ``place`` that violates a rule, with its ``value`` and unit. ``words`` state the requirement."""

    place: str
    value: str
    words: str


Look = Callable[[Seen], Iterable[Found]]


@dataclass(frozen=True)
class Rule:
    """Rule whose function ``look`` yields the numbers that violate the ``relation``.

    If ``real`` is true, the rule applies only to real rigs.
    """

    name: str
    weight: str
    relation: str
    reason: str
    look: Look
    real: bool = False


def rule(weight: str, relation: str, reason: str, real: bool = False) -> Callable[[Look], Rule]:
    return lambda look: Rule(look.__name__, weight, relation, reason, look, real)


def rules_in(module: Mapping[str, object]) -> tuple[Rule, ...]:
    return tuple(finding for finding in module.values() if isinstance(finding, Rule))


@dataclass(frozen=True)
class Judgement:
    """Result of a rule for one number: the full ``name``, which an operator signs, and the text."""

    name: str
    words: str

    def __str__(self) -> str:
        return f"{self.words} ({self.name})"


def parameter(part: object, name: str) -> Any:
    return getattr(part, name) if is_params(part) and name in declared(type(part)) else None
