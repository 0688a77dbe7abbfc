# SPDX-License-Identifier: Apache-2.0
"""Surroundings of the parts of a node."""

from __future__ import annotations

from dataclasses import dataclass

from rclpy.impl.rcutils_logger import RcutilsLogger

from rths_nodes.loop.pacing import SYSTEM_CLOCK, Clock
from rths_nodes.ros.nodes.phase import PhaseMachine
from rths_nodes.ros.transport.deferred import DeferredSends
from rths_nodes.ros.transport.topics import NodeTopics
from rths_nodes.ros.transport.wiring import Place


@dataclass(frozen=True)
class NodeContext:
    """Where a node is, how far it has come, what it sends by and writes its log to; one for all of its parts."""

    place: Place
    phase: PhaseMachine
    topics: NodeTopics
    deferred: DeferredSends
    logger: RcutilsLogger
    clock: Clock = SYSTEM_CLOCK
