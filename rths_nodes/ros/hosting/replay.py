# SPDX-License-Identifier: Apache-2.0
"""Publish a recording again, on its topics and at its times, with ``/clock``, and its axes as joints."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import JointState

from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.wire.layout import HEAD, number_of, stamp_of
from rths_nodes.core.wire.plain import decode
from rths_nodes.ros.hosting.composed import ros_context
from rths_nodes.ros.names import JOINTS
from rths_nodes.ros.nodes.joints import RATE, Joints
from rths_nodes.ros.transport.endpoints import message_class

CLOCK_NS = 10_000_000
"""Between two messages on /clock, in the time of the recording."""


class JointsAgain:
    """Publishes the axes as joints, as the monitor did, from the Commands and Measurements of a recording.

    ``definitions`` of the messages by topic; ``axes`` and ``dt`` (s) as of :class:`Joints`.
    """

    def __init__(self, node: Node, definitions: Mapping[str, str], axes: Mapping[str, bool], dt: float) -> None:
        rigs = [topic.rpartition("/")[0] for topic in definitions if topic.endswith("/measurement")]
        rig = rigs[0] if rigs else ""
        made = {name: node.create_publisher(JointState, f"{rig}/{name}", 10) for name in JOINTS}
        self._joints = Joints(axes, dt, rig.strip("/"), lambda name, message: made[name].publish(message))
        self._command, self._measurement = f"{rig}/command", f"{rig}/measurement"
        self._definitions, self._every = definitions, max(1, round(1.0 / (RATE * dt)))
        self._commands: dict[int, bytes] = {}

    def hear(self, topic: str, data: bytes) -> None:
        """Publish the joints where this is a Measurement of which the monitor told them."""
        if topic not in (self._command, self._measurement) or len(data) < HEAD.size:
            return
        number = number_of(data)
        if number % self._every:
            return
        if topic == self._command:
            self._commands = {number: data}
            return
        with suppress(ValueError, KeyError, struct.error):  # what is damaged stands in no table either
            measured = self._decoded(self._measurement, data)
            applied = measured["command"]
            given = {"target": applied, "command": applied}
            if number in self._commands:
                given |= self._decoded(self._command, self._commands[number])
            aims = given["target"], given["command"]
            self._joints.tell(number, measured["stamp"], *aims, measured["displacement"], measured["force"])

    def _decoded(self, topic: str, data: bytes) -> Data:
        return decode(topic.rpartition("/")[2].capitalize(), data, self._definitions[topic])


def replay(
    types: Mapping[str, str],
    qos: Mapping[str, Mapping[str, object]],
    messages: Iterator[tuple[str, bytes, int]],
    rate: float,
    interrupted: Callable[[], bool],
    joints: Callable[[Node], JointsAgain] | None = None,
) -> int:
    """Publish ``messages`` (topic, bytes, stamp in ns); the number published. Raises ConfigError.

    ``joints`` makes what tells of the axes as joints beside them.
    """
    if not rate > 0.0:
        raise ConfigError(f"--rate {rate:g}: must be > 0")
    with ros_context() as context:
        node = Node("replay", context=context, start_parameter_services=False)
        try:
            publishers = {
                name: node.create_publisher(message_class(types[name]), name, _qos(qos[name])) for name in types
            }
            clock = node.create_publisher(Clock, "/clock", 10)
            beside = joints(node) if joints else None
            count = _publish(publishers, clock, _heard(messages, beside), rate, interrupted)
            for publisher in publishers.values():
                publisher.wait_for_all_acked(Duration(seconds=1.0))
            return count
        finally:
            node.destroy_node()


def _heard(messages: Iterator[tuple[str, bytes, int]], beside: JointsAgain | None) -> Iterator[Any]:
    """The messages; of each one, once it was published, the one ``beside`` hears."""
    for message in messages:
        yield message
        if beside is not None:
            topic, data, _ = message
            beside.hear(topic, data)


def _qos(offered: Mapping[str, Any]) -> QoSProfile:
    latched = offered.get("durability") == "transient_local"
    return QoSProfile(
        depth=int(offered.get("depth") or 10),
        reliability=ReliabilityPolicy.RELIABLE,
        durability=DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE,
    )


def _publish(
    publishers: Mapping[str, Publisher],
    clock: Publisher,
    messages: Iterator[tuple[str, bytes, int]],
    rate: float,
    interrupted: Callable[[], bool],
) -> int:
    count = 0
    start = first = next_clock = 0
    for topic, data, stamp in messages:
        if not count:
            # discovery is asynchronous: who listens already gets the first message, too
            time.sleep(0.5)
            start, first, next_clock = time.monotonic_ns(), stamp, stamp
        if interrupted():
            break
        ahead = (stamp - first) / rate - (time.monotonic_ns() - start)
        if ahead > 0:
            time.sleep(ahead * 1e-9)
        if stamp >= next_clock:
            now = Clock()
            now.clock.sec, now.clock.nanosec = stamp_of(stamp)
            clock.publish(now)
            next_clock = stamp + CLOCK_NS
        publishers[topic].publish(data)
        count += 1
    return count
