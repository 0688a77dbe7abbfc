# SPDX-License-Identifier: Apache-2.0
"""Fading of the difference that a bridge leaves, within the velocity limits of the axes."""

from __future__ import annotations

import numpy as np

from rths_nodes.core.limits import Limits
from rths_nodes.loop.supervision.bridges import BridgeParams, Fading


def fading_of(bridge: BridgeParams, limits: dict[str, Limits], dt: float) -> Fading:
    """The fading of the difference that a bridge leaves on the axes that follow displacements; ``dt`` s."""
    fastest = np.array([axis.velocity for axis in limits.values() if not axis.of_force])
    return Fading(bridge.rejoin_samples, dt, fastest)
