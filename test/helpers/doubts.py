# SPDX-License-Identifier: Apache-2.0
"""What is hardly right in a scenario, in words, as ``rths check`` has it."""

from __future__ import annotations

from rths_nodes.loop.scenario import judgement
from rths_nodes.loop.scenario.schema import Scenario


def doubts(scenario: Scenario) -> list[str]:
    """The words of all cautions, where nothing of steel moves."""
    return [each.words for each in judgement.cautions(scenario)]
