# SPDX-License-Identifier: Apache-2.0
"""A listener that keeps every message of a topic, whenever it is asked."""

from __future__ import annotations

from typing import Any

from rclpy.node import Node
from rclpy.qos import QoSProfile
from rclpy.serialization import deserialize_message

from rths_nodes.ros.transport.endpoints import ByHand


class Ear:
    """Keeps every message of a topic in ``heard``; no executor touches it. ``qos``: a depth, or all of it."""

    def __init__(self, node: Node, kind: Any, topic: str, qos: QoSProfile | int = 2000) -> None:
        self._kind, self.heard = kind, []
        self._subscription = node.create_subscription(kind, topic, print, qos, raw=True, callback_group=ByHand())

    def listen(self) -> None:
        while (found := self._subscription.handle.take_message(self._kind, True)) is not None:
            self.heard.append(deserialize_message(found[0], self._kind))
