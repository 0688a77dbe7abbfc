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
from rths_nodes.loop.scenario.judgement.limits import LIMITS, level_of_rig_is_weaker, weaker_than_rig
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
        weaker = [_text(level_of_rig_is_weaker, one) for one in weaker_than_rig(scenario, rig, levels)]
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
    for rule in RULES:
        if rule.weight == weight and not (rule.real and simulated):
            for finding in rule.look(seen):
                yield Judgement(f"{rule.name}: {finding.place}", _text(rule, finding))


def _text(rule: Rule, finding: Found) -> str:
    value = f" = {finding.value}" if finding.value else ""
    return f"{finding.place}{value}: {finding.words}. {rule.reason}"
