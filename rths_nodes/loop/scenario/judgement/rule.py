# SPDX-License-Identifier: Apache-2.0
"""Base of the rules about a test and its rig: input of a rule, results, and the list of all rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any, NamedTuple

from rths_nodes.core.parameters import declared, is_params
from rths_nodes.laboratory.calibration import RigAxis
from rths_nodes.loop.scenario.schema import Axis, Scenario

REFUSED, CAUTION = "refused", "caution"


@dataclass(frozen=True)
class Seen:
    """Input of a rule. ``simulated`` is true without real actuators. Calibrations are checked for ``today``."""

    scenario: Scenario
    simulated: bool
    today: date

    @property
    def axes(self) -> Iterator[tuple[str, Axis]]:
        return ((f"axes.{name}", axis) for name, axis in self.scenario.axes.items())

    @property
    def rig_axes(self) -> Iterator[tuple[str, Axis, RigAxis]]:
        return ((path, axis, axis.rig_axis) for path, axis in self.axes if axis.rig_axis is not None)


class Found(NamedTuple):
    """Violation of the named ``rule`` by the number at ``path``. ``value`` is the number, with its unit."""

    rule: str
    path: str
    value: str
    requirement: str


Look = Callable[[Seen], Iterable[Found]]


class Rule(NamedTuple):
    """Required relation between numbers, and its reason. The rule applies only to real rigs if ``real`` is true.

    ``look`` yields the violations of this rule, and of the other rules that share this function.
    """

    weight: str
    relation: str
    reason: str
    real: bool = False
    name: str = ""
    look: Look = lambda seen: ()

    def text(self, finding: Found) -> str:
        value = f" = {finding.value}" if finding.value else ""
        return f"{finding.path}{value}: {finding.requirement}. {self.reason}"


refused, caution = partial(Rule, REFUSED), partial(Rule, CAUTION)


RULES: list[Rule] = []


def rules(**named: Rule) -> Callable[[Look], Look]:
    """Return a decorator that adds rules to RULES, with the decorated function as their ``look``."""

    def added(look: Look) -> Look:
        RULES.extend(rule._replace(name=name, look=look) for name, rule in named.items())
        return look

    return added


@dataclass(frozen=True)
class Judgement:
    """Result of a rule for one number. ``name`` is the full name that an operator signs. ``words`` is the text."""

    name: str
    words: str

    def __str__(self) -> str:
        return f"{self.words} ({self.name})"


def parameter(part: object, name: str) -> Any:
    return getattr(part, name) if is_params(part) and name in declared(type(part)) else None
