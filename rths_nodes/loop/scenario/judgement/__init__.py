# SPDX-License-Identifier: Apache-2.0
"""Judgements about the numbers of a test and its rig, as rules.

Impossible values are refused when a scenario is loaded or run. Doubtful values are cautions: ``rths check`` prints
them, an operator signs them on a real rig, and the report lists them. ``validate`` of a section checks values
within the section; ``fits`` and ``cautions`` (``core/checks.py``) check a component.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.limits import WholeLevels
from rths_nodes.loop.scenario.judgement.channels import CHANNELS
from rths_nodes.loop.scenario.judgement.limits import LIMITS, weaker_than_rig
from rths_nodes.loop.scenario.judgement.parts import PARTS, of_components
from rths_nodes.loop.scenario.judgement.rule import CAUTION, REFUSED, Found, Judgement, Rule, Seen
from rths_nodes.loop.scenario.rig_file import RigFile
from rths_nodes.loop.scenario.schema import Scenario, simulation

__all__ = ["RULES", "Judgement", "Rule", "cautions", "refuse", "refuse_weaker"]

RULES: tuple[Rule, ...] = (*LIMITS, *CHANNELS, *PARTS)


def refuse(scenario: Scenario, simulated: bool = True) -> None:
    """Raise one ConfigError for all impossible numbers and, unless ``simulated``, all missing numbers."""
    finding = [judgement.words for judgement in _judgements(scenario, simulated, REFUSED, date.today())]
    if finding:
        raise ConfigError(*finding)


def refuse_weaker(scenario: Scenario, rig: RigFile, levels: WholeLevels | None) -> None:
    """Raise ConfigError if the scenario is weaker than a real ``rig``."""
    if not simulation(scenario):
        by_name = {rule.name: rule for rule in LIMITS}
        weaker = [_text(by_name[finding.rule], finding) for finding in weaker_than_rig(scenario, rig, levels)]
        if weaker:
            raise ConfigError(*weaker)


def cautions(scenario: Scenario, simulated: bool = True, today: date | None = None) -> list[Judgement]:
    """Return the doubtful values that rules and components report. Calibrations are judged on the date ``today``.

    Raises ConfigError if a component cannot be built.
    """
    component = [Judgement(name, text) for name, text in of_components(scenario)]
    return [*component, *_judgements(scenario, simulated, CAUTION, today or date.today())]


def _judgements(scenario: Scenario, simulated: bool, weight: str, today: date) -> Iterator[Judgement]:
    seen = Seen(scenario, simulated, today)
    rules = [rule for rule in RULES if rule.weight == weight and not (rule.real and simulated)]
    findings = [finding for look in dict.fromkeys(rule.look for rule in rules) for finding in look(seen)]
    for rule in rules:
        for finding in findings:
            if finding.rule == rule.name:
                yield Judgement(f"{rule.name}: {finding.place}", _text(rule, finding))


def _text(rule: Rule, finding: Found) -> str:
    value = f" = {finding.value}" if finding.value else ""
    return f"{finding.place}{value}: {finding.words}. {rule.reason}"
