# SPDX-License-Identifier: Apache-2.0
"""Interface of a node and its host: Host at construction, Configured at each configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rths_nodes.core.protocols import Port
from rths_nodes.core.wire.codec import Codec
from rths_nodes.loop.pacing import SYSTEM_CLOCK, Clock
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.ros.nodes.phase import PhaseMachine
from rths_nodes.ros.nodes.sequence import MeasurementSequence
from rths_nodes.ros.nodes.settings import NodeSettings
from rths_nodes.ros.transport.topics import Interposer
from rths_nodes.ros.transport.wiring import Place


@dataclass(frozen=True)
class Configured:
    """Parts of a node under configuration; ``measurements`` are its input."""

    place: Place
    settings: NodeSettings
    codec: Codec
    phase: PhaseMachine
    measurements: MeasurementSequence


Interpose = Callable[[Configured], Interposer]
"""Called at each configuration of a node. Raises ConfigError for impossible faults."""


@dataclass(frozen=True)
class Host:
    """Functions and options that a host passes to a node."""

    interpose: Interpose
    """Makes the interposer between the node and its parts."""
    clock: Clock = SYSTEM_CLOCK
    own_process: bool = False
    """True if no other node shares the process."""
    prepare: Callable[[], None] = lambda: None
    """Called when all peers are discovered, before the node reports ready."""
    on_ended: Callable[[], None] = lambda: None
    """Called when the node receives the end of the test."""
    scenario: Scenario | None = None
    """Scenario to run; None to build it from parameters."""
    handed: Port | None = None
    """Open port of a procedure, in place of the scenario's."""
