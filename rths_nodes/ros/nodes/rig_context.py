# SPDX-License-Identifier: Apache-2.0
"""Context shared by the parts of the actuator node."""

from __future__ import annotations

from dataclasses import dataclass

from rths_nodes.loop.pacing import SYSTEM_CLOCK, Clock
from rths_nodes.loop.stages.rig import RigStage
from rths_nodes.ros.nodes.phase import PhaseMachine
from rths_nodes.ros.nodes.rig_clock import RigClock
from rths_nodes.ros.nodes.shutdown import Shutdown
from rths_nodes.ros.transport.topics import NodeTopics


@dataclass(frozen=True)
class RigContext:
    """Rig, times and common parts of the actuator node, from one configuration on."""

    rig: RigStage
    times: RigClock
    topics: NodeTopics
    shutdown: Shutdown
    phase: PhaseMachine
    clock: Clock = SYSTEM_CLOCK
