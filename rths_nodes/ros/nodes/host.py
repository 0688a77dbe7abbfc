# SPDX-License-Identifier: Apache-2.0
"""Exchange of a node and its host: a Host when the node is made, a Configured each time it is configured."""

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
    """Parts of a node that is being configured, given to its host; ``measurements`` are those that it takes."""

    place: Place
    settings: NodeSettings
    codec: Codec
    phase: PhaseMachine
    measurements: MeasurementSequence


Interpose = Callable[[Configured], Interposer]
"""Called each time a node is configured. Raises ConfigError for what cannot be done to it."""


@dataclass(frozen=True)
class Host:
    """Functions and options that the host of a node hands in when it makes the node."""

    interpose: Interpose
    """Makes the interposer between the node and its parts."""
    clock: Clock = SYSTEM_CLOCK
    own_process: bool = False
    """True when the process has no other node."""
    prepare: Callable[[], None] = lambda: None
    """Called when all peers are found, before the node says that it is ready."""
    on_ended: Callable[[], None] = lambda: None
    """Called when the node hears that the test is over."""
    scenario: Scenario | None = None
    """The scenario as it is run; None where the node builds it from its parameters."""
    handed: Port | None = None
    """A port in place of the scenario's: a procedure has opened it, and closes it."""
