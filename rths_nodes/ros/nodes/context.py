# SPDX-License-Identifier: Apache-2.0
"""Context shared by the parts of a node."""

from __future__ import annotations

from dataclasses import dataclass

from rths_nodes.loop.pacing import SYSTEM_CLOCK, Clock
from rths_nodes.ros.nodes.phase import PhaseMachine
from rths_nodes.ros.transport.rclpy_private import Logger
from rths_nodes.ros.transport.topics import DeferredSends, NodeTopics
from rths_nodes.ros.transport.wiring import NodeLocation


@dataclass(frozen=True)
class NodeContext:
    """NodeLocation, phase, topics and log of a node."""

    location: NodeLocation
    phase: PhaseMachine
    topics: NodeTopics
    deferred: DeferredSends
    logger: Logger
    clock: Clock = SYSTEM_CLOCK
