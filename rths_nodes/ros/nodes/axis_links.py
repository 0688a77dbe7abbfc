# SPDX-License-Identifier: Apache-2.0
"""The way from the actuator node to the nodes of its axes: the links of a :class:`PerAxisPort` over topics."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rths_nodes.core.durations import SECOND
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Command, Measurement
from rths_nodes.core.wire.codec import Codec
from rths_nodes.laboratory.force_control import NODES, ForceLoops
from rths_nodes.laboratory.ports.per_axis import LoadedAxesPort, PerAxisPort, before_axes
from rths_nodes.loop.pacing import SYSTEM_CLOCK, Clock
from rths_nodes.loop.scenario.axis_layout import check_layout
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.ros.names import axis_node
from rths_nodes.ros.transport.topics import NodeTopics

GONE_NS = 20_000_000
"""Time to wait for a Measurement before checking that the axis node is still alive."""

LOST_NS = 250_000_000
"""Time to wait for it once the test has to stop: the axis is probably what has failed."""


class TopicLinks:
    """Commands to the axis nodes, and their answers, on topics below the name of each axis.

    ``stamp`` gives the nominal time of a tick, ns; ``stop_asked`` looks whether a stop was requested.
    An axis that is silent for ``patience`` ns is lost.
    """

    def __init__(
        self,
        topics: NodeTopics,
        stamp: Callable[[int], int],
        stop_asked: Callable[[], bool],
        patience: int,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._topics = topics
        self._stamp, self._stop_asked = stamp, stop_asked
        self._patience = patience
        self._codec = Codec(0, 1, 0, run=topics.run)
        self._now = clock.monotonic_ns
        self._sent_at = 0

    def send_command(self, axis: str, command: Command) -> None:
        data = self._codec.pack_command(command, self._stamp(command.sample))
        self._topics.senders[f"{axis}/command"](data)
        self._sent_at = self._now()

    def measurement_of(self, axis: str) -> Measurement | None:
        found = self._topics.receive(f"{axis}/measurement", self._codec.unpack_measurement)
        return found and found[0]

    def true_state_of(self, axis: str) -> tuple[Measurement, int] | None:
        return self._topics.receive(f"{axis}/true_state", self._codec.unpack_measurement)

    def lost(self, axes: Sequence[str], sample: int) -> str:
        waited = self._now() - self._sent_at
        if waited < GONE_NS:
            return ""
        reason = f"no Measurement {sample} of {', '.join(map(axis_node, axes))}"
        stop_asked = self._stop_asked()
        if any(self._topics.guards[f"{axis}/measurement"].gone for axis in axes):
            return f"{reason}: it has left"
        if waited > self._patience or (stop_asked and waited > LOST_NS):
            return f"{reason} for {waited / SECOND:.2g} s"
        return ""


def port_of_axes(scenario: Scenario, axes: Sequence[str], links: TopicLinks) -> PerAxisPort | LoadedAxesPort:
    """The port of a rig of which ``axes`` have a node each. Raises ConfigError where that cannot be.

    Force loops of the nodes are closed here, where all axes are known.
    """
    if set(axes) != set(scenario.axes):
        known = ", ".join(map(axis_node, scenario.axes))
        raise ConfigError(f"peers: {', '.join(axes)} have axis nodes: must be all or none of {known}")
    check_layout(scenario)
    port = PerAxisPort(tuple(scenario.axes), scenario.port.transport_samples, links)
    return before_axes(port, ForceLoops(scenario.axes, NODES, scenario.dt))
