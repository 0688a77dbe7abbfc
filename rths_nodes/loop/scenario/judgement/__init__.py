# SPDX-License-Identifier: Apache-2.0
"""Rules that judge the numbers of a test and its rig.

Impossible values are refused when a scenario is loaded or run. Doubtful values are cautions: ``rths check`` prints
them, an operator signs them on a real rig, and the report lists them. A section checks its own values in
``validate``, and a component in ``fits`` and ``cautions`` (``core/parameters.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from rths_nodes.core.errors import Problems
from rths_nodes.core.limits import WholeLevels
from rths_nodes.loop.scenario.judgement import rig as rig_rules
from rths_nodes.loop.scenario.judgement import structure
from rths_nodes.loop.scenario.judgement.rule import CAUTION, REFUSED, RULES, Judgement, Seen
from rths_nodes.loop.scenario.rig_file import RigFile
from rths_nodes.loop.scenario.schema import Scenario

__all__ = ["RULES", "Judgement", "cautions", "refuse", "refuse_weaker"]


def refuse(scenario: Scenario, simulated: bool = True) -> None:
    """Raise one ConfigError for all impossible numbers and, for a real rig, all missing numbers."""
    seen = Seen(scenario, simulated, date.today())
    Problems(judgement.words for judgement in _judgements(seen, REFUSED)).refuse()


def refuse_weaker(scenario: Scenario, rig: RigFile | Scenario, levels: WholeLevels, energy: object) -> None:
    """Raise ConfigError if a level or bound is weaker than in ``rig`` (rig file, or scenario before a change).

    ``levels`` are the levels of ``rig``. ``energy`` is ``monitor.reference_energy`` before the change.
    """
    (rule,) = (rule for rule in RULES if rule.name == rig_rules.WEAKER)
    Problems(map(rule.text, rig_rules.weaker_than_rig(scenario, rig, levels, energy))).refuse()


def cautions(scenario: Scenario, simulated: bool = True, today: date | None = None) -> list[Judgement]:
    """Return the values that are doubtful on ``today``. Raises ConfigError if a component cannot be built."""
    seen = Seen(scenario, simulated, today or date.today())
    return [*structure.of_components(scenario), *_judgements(seen, CAUTION)]


def _judgements(seen: Seen, weight: str) -> Iterator[Judgement]:
    rules = [rule for rule in RULES if rule.weight == weight and not (rule.real and seen.simulated)]
    findings = [finding for look in dict.fromkeys(rule.look for rule in rules) for finding in look(seen)]
    for rule in rules:
        for finding in findings:
            if finding.rule == rule.name:
                yield Judgement(f"{rule.name}: {finding.path}", rule.text(finding))
