# SPDX-License-Identifier: Apache-2.0
"""Bridges within the limits of the axes: the fading of the difference that one leaves, and that over Commands."""

from __future__ import annotations

import numpy as np

from rths_nodes.core.limits import Limits
from rths_nodes.core.samples import Array
from rths_nodes.loop.supervision.bridges import BridgeParams, CommandBridge, Fading
from rths_nodes.loop.supervision.loads import LoadBridge


def fading_of(bridge: BridgeParams, limits: dict[str, Limits], dt: float) -> Fading:
    """The fading of the difference that a bridge leaves on the axes that follow displacements; ``dt`` s."""
    fastest = np.array([axis.velocity for axis in limits.values() if not axis.of_force])
    return Fading(bridge.rejoin_samples, dt, fastest)


def bridge_of(
    bridge: BridgeParams, limits: dict[str, Limits], dt: float, passive: Array
) -> CommandBridge | LoadBridge:
    """Return the bridge over Commands that are late: loads are held; ``passive`` are the auxiliary inputs."""
    rates = [each.force_rate for each in limits.values() if each.force_rate is not None]
    n_moved = len(limits) - len(rates)
    of_moved = CommandBridge(fading_of(bridge, limits, dt), dt, np.zeros(n_moved), passive)
    return LoadBridge(of_moved, n_moved, rates, dt) if rates else of_moved
