"""What the host of a node may put between the node and its parts: faults on purpose, or the hands of a test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rths_nodes.core.wire.codec import Codec
from rths_nodes.ros.nodes.phase import PhaseMachine
from rths_nodes.ros.nodes.sequence import MeasurementSequence
from rths_nodes.ros.nodes.settings import NodeSettings
from rths_nodes.ros.transport import topics
from rths_nodes.ros.transport.wiring import Place


@dataclass(frozen=True)
class Configured:
    """What the host is told of a node that is being configured; ``measurements`` are those that it takes."""

    place: Place
    settings: NodeSettings
    codec: Codec
    phase: PhaseMachine
    measurements: MeasurementSequence


class Interposer(topics.Interposer):
    """Of one node, from when it is configured; this one puts nothing there."""

    def port(self, port: Any) -> Any:
        """What the node drives its rig by, where ``port`` leads there."""
        return port

    def may_work(self) -> bool:
        """False while the node is to have no turn."""
        return True


Interpose = Callable[[Configured], Interposer]
"""Called each time a node is configured. Raises ConfigError for what cannot be done to it."""


def nothing(_: Configured) -> Interposer:
    """Leaves the node alone."""
    return Interposer()
