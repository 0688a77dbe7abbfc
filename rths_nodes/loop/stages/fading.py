"""How fast the difference that a bridge leaves may fade: within the velocity limits of the axes."""

from __future__ import annotations

import numpy as np

from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.bridges import Fading


def fading_of(scenario: Scenario) -> Fading:
    """Of the difference that a bridge leaves, within the velocity limits of the axes."""
    fastest = np.array([limits.velocity for limits in scenario.limits.values()])
    return Fading(scenario.bridge.rejoin_samples, scenario.dt, fastest)
