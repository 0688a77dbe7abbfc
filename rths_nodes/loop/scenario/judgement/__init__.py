# SPDX-License-Identifier: Apache-2.0
"""Judgements about the numbers of a test and its rig: one table of rules, for all that judges.

A rule relates numbers of scenario and rig file to each other, never to the size of a building: a desktop rig of
10 N and a rig of 5 MN get no false word. What is never right is refused wherever a scenario is loaded or run; what
is hardly right is a caution: ``rths check`` prints it, an operator signs for it where a real rig moves, the report
has it. What a section can tell by itself is refused by its ``validate``; what only a component knows of its test,
by its ``fits`` and ``cautions`` (``core/checks.py``). The next rule is a function in one of the modules of this
folder and a row in its test; ``doc/rig_file.md`` has them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.scenario.judgement.channels import CHANNELS
from rths_nodes.loop.scenario.judgement.limits import LIMITS
from rths_nodes.loop.scenario.judgement.parts import PARTS, of_components
from rths_nodes.loop.scenario.judgement.rule import CAUTION, REFUSED, Found, Judgement, Rule, Seen
from rths_nodes.loop.scenario.judgement.times import TIMES
from rths_nodes.loop.scenario.schema import Scenario

__all__ = ["RULES", "Judgement", "Rule", "cautions", "refuse"]

RULES: tuple[Rule, ...] = (*LIMITS, *CHANNELS, *TIMES, *PARTS)


def refuse(scenario: Scenario, simulated: bool = True) -> None:
    """Raises one ConfigError with every number of ``scenario`` that is never right.

    Where the port is not ``simulated`` the numbers that a real rig must have are among them.
    """
    found = [each.words for each in _found(scenario, simulated, REFUSED, date.today())]
    if found:
        raise ConfigError(*found)


def cautions(scenario: Scenario, simulated: bool = True, today: date | None = None) -> list[Judgement]:
    """Return what is hardly right in ``scenario``, by rules and by its components; ``today`` judges calibrations.

    Raises ConfigError where an input, a record say, cannot be read.
    """
    own = [Judgement(name, words) for name, words in of_components(scenario)]
    return [*own, *_found(scenario, simulated, CAUTION, today or date.today())]


def _found(scenario: Scenario, simulated: bool, weight: str, today: date) -> Iterator[Judgement]:
    seen = Seen(scenario, simulated, today)
    for rule in RULES:
        if rule.weight == weight and not (rule.real and simulated):
            for found in rule.look(seen):
                yield Judgement(f"{rule.name}: {found.place}", _words(rule, found))


def _words(rule: Rule, found: Found) -> str:
    value = f" = {found.value}" if found.value else ""
    return f"{found.place}{value}: {found.words}: {rule.reason}"
