"""A rig without a specimen: the axes of a scenario move freely."""

from __future__ import annotations

from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.scenario.overrides import override
from rths_nodes.loop.scenario.schema import Scenario

FREE = "{type: kelvin_voigt, stiffness: 1.0, damping: 0.0}"
"""1 N/m: a specimen has to have a stiffness, and this one no load cell can see."""


def free(scenario: Scenario) -> Scenario:
    """``scenario`` with nothing mounted. Raises ConfigError for axes that one model of a rig couples."""
    if scenario.rig is not None:
        raise ConfigError("rig: couples its axes in one model, so that none can be free; leave it out")
    return override(scenario, [f"axes.{name}.specimen={FREE}" for name in scenario.axes])
