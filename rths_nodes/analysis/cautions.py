# SPDX-License-Identifier: Apache-2.0
"""Cautions about a test, based on the rules of ``loop/scenario/judgement`` and on the stability margin."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.scenario import judgement
from rths_nodes.loop.scenario.judgement import Judgement
from rths_nodes.loop.scenario.schema import Scenario

if TYPE_CHECKING:
    from rths_nodes.analysis.stability.judgement import DelayMargin


def cautions(scenario: Scenario, simulated: bool = True, today: date | None = None) -> list[Judgement]:
    return [*judgement.cautions(scenario, simulated, today), *of_margin(judged_margin(scenario)[0])]


def judged_margin(scenario: Scenario) -> tuple[DelayMargin | None, str]:
    from rths_nodes.analysis.stability.judgement import delay_margin

    try:
        return delay_margin(scenario), ""
    except ConfigError as error:
        return None, str(error)


def of_margin(margin: DelayMargin | None) -> list[Judgement]:
    if margin is None or not margin.small:
        return []
    return [Judgement("delay_margin: stability", f"stability: {margin}: {margin.required}")]
