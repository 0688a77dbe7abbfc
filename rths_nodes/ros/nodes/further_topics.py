# SPDX-License-Identifier: Apache-2.0
"""Topics of other programs in a recording, with the type and QoS that their publishers offer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.subscription import Subscription
from rclpy.topic_endpoint_info import TopicEndpointInfo

from rths_nodes.core.durations import SECOND
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.resources import PACKAGE
from rths_nodes.loop.pacing import Clock
from rths_nodes.ros import names
from rths_nodes.ros.nodes.host import Writer
from rths_nodes.ros.transport.endpoints import ByHand, message_class
from rths_nodes.ros.transport.rclpy_private import RCLError, take_bytes

LOOK_NS = SECOND // 2
"""Period of queries for publishers."""
KEPT = 1000
"""Messages of a topic that the middleware keeps."""
A_TURN = 64
"""Recorded messages of a topic per turn."""


def full_names(node: Node, topics: Iterable[str]) -> list[str]:
    """Return the full names of ``topics``, after the topics of every recording.

    Raises ConfigError for an invalid name, and for a recorded topic of the test.
    """
    recorded = {node.resolve_topic_name(row.name) for row in names.TOPICS.values() if row.recorded}
    full = list(names.ALSO_RECORDED)
    for topic in topics:
        try:
            full.append(str(node.resolve_topic_name(topic)))
        except (ValueError, RCLError) as error:
            raise ConfigError(f"record_topics: {topic!r}: {' '.join(str(error).split())}") from error
        if full[-1] in recorded:
            raise ConfigError(f"record_topics: {full[-1]}: is recorded in any case: leave it out")
    return list(dict.fromkeys(full))


class FurtherTopics:
    """Subscribes ``node`` to ``topics`` (full names), once each has a publisher.

    Messages are written with the time of their arrival. Lost ones are no gap of the recording. ``warn`` gets the
    reason if a topic cannot be recorded.
    """

    def __init__(
        self, node: Node, topics: Sequence[str], writer: Writer, warn: Callable[[str], object], clock: Clock
    ) -> None:
        self._node, self._writer, self._warn, self._now = node, writer, warn, clock.monotonic_ns
        self._waiting = list(topics)
        self._subscriptions: dict[str, Subscription] = {}
        self._group = ByHand()
        self._next_look = 0

    def look(self) -> None:
        """Subscribe to topics that have a publisher now; polled."""
        now = self._now()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_NS
        for topic in self._waiting[:]:
            if publishers := self._node.get_publishers_info_by_topic(topic):
                self._waiting.remove(topic)
                self._subscribe(topic, publishers)

    def _subscribe(self, topic: str, publishers: Sequence[TopicEndpointInfo]) -> None:
        kinds = sorted({str(info.topic_type) for info in publishers})
        profiles = [info.qos_profile for info in publishers]
        reliable = all(profile.reliability == ReliabilityPolicy.RELIABLE for profile in profiles)
        latched = all(profile.durability == DurabilityPolicy.TRANSIENT_LOCAL for profile in profiles)
        try:
            if len(kinds) > 1:
                raise ConfigError(f"has publishers of {' and '.join(kinds)}")
            if kinds[0].startswith(f"{PACKAGE}/"):
                raise ConfigError("belongs to another rig, whose recorder records it")
            message = message_class(kinds[0])
            self._writer.add(topic, kinds[0], reliable, latched)
        except (ConfigError, ImportError, AttributeError) as error:
            self._warn(f"record_topics: {topic}: not recorded: {error}")
            return
        qos = QoSProfile(
            depth=KEPT,
            reliability=ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT,
            durability=DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE,
        )
        self._subscriptions[topic] = self._node.create_subscription(
            message, topic, _ignore, qos, callback_group=self._group, raw=True
        )

    def record(self) -> None:
        """Write the received messages, some of each topic."""
        for topic, subscription in self._subscriptions.items():
            take = take_bytes(subscription)
            for _ in range(A_TURN):
                if (received := take(subscription.msg_type, True)) is None:
                    break
                data, information = received
                self._writer.write(topic, data, information["received_timestamp"] or time.time_ns())

    def close(self) -> None:
        """Destroy the subscriptions."""
        for subscription in self._subscriptions.values():
            self._node.destroy_subscription(subscription)
        self._subscriptions.clear()


def _ignore(_: object) -> None:
    """Receive nothing: these subscriptions are polled."""
