"""Publish a recording again, on its topics and at its times, with ``/clock``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rosgraph_msgs.msg import Clock

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.wire.layout import stamp_of
from rths_nodes.ros.hosting.composed import ros_context
from rths_nodes.ros.transport.endpoints import message_class

CLOCK_NS = 10_000_000
"""Between two messages on /clock, in the time of the recording."""


def replay(
    types: Mapping[str, str],
    qos: Mapping[str, Mapping[str, Any]],
    messages: Iterator[tuple[str, bytes, int]],
    rate: float,
    interrupted: Callable[[], bool],
) -> int:
    """Publish ``messages`` (topic, bytes, stamp in ns); the number published. Raises ConfigError."""
    if not rate > 0.0:
        raise ConfigError(f"--rate {rate:g}: must be > 0")
    with ros_context() as context:
        node = Node("replay", context=context, start_parameter_services=False)
        try:
            publishers = {
                name: node.create_publisher(message_class(types[name]), name, _qos(qos[name])) for name in types
            }
            clock = node.create_publisher(Clock, "/clock", 10)
            count = _publish(publishers, clock, messages, rate, interrupted)
            for publisher in publishers.values():
                publisher.wait_for_all_acked(Duration(seconds=1.0))
            return count
        finally:
            node.destroy_node()


def _qos(offered: Mapping[str, Any]) -> QoSProfile:
    latched = offered.get("durability") == "transient_local"
    return QoSProfile(
        depth=int(offered.get("depth") or 10),
        reliability=ReliabilityPolicy.RELIABLE,
        durability=DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE,
    )


def _publish(
    publishers: Mapping[str, Any],
    clock: Any,
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
