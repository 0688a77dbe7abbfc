# SPDX-License-Identifier: Apache-2.0
"""Cautions of ``rths check``."""

from __future__ import annotations

from rths_nodes.loop.scenario import judgement
from rths_nodes.loop.scenario.schema import Scenario


def doubts(scenario: Scenario) -> list[str]:
    """Texts of all cautions for a scenario on a simulator."""
    return [caution.words for caution in judgement.cautions(scenario)]
