# SPDX-License-Identifier: Apache-2.0
"""A subscription that keeps every message of a topic."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.node import Node
from rclpy.qos import QoSProfile
from rclpy.serialization import deserialize_message

from rths_nodes.ros.hosting import composed
from rths_nodes.ros.transport.endpoints import ByHand


class Ear:
    """Keeps every message of a topic in ``heard``, without an executor. ``qos`` is a depth or a profile."""

    def __init__(self, node: Node, kind: Any, topic: str, qos: QoSProfile | int = 2000) -> None:
        self._kind, self.heard = kind, []
        self._subscription = node.create_subscription(kind, topic, print, qos, raw=True, callback_group=ByHand())

    def listen(self) -> None:
        while (taken := self._subscription.handle.take_message(self._kind, True)) is not None:
            self.heard.append(deserialize_message(taken[0], self._kind))


@contextmanager
def node_inputs() -> Iterator[tuple[Node, dict[str, str]]]:
    """Yield a listening node, and the inputs of each node by its last diagnostics, filled in at the end."""
    inputs: dict[str, str] = {}
    with composed.ros_context() as context:
        node = Node("listener", context=context, start_parameter_services=False)
        diagnostics = Ear(node, DiagnosticArray, "/diagnostics")
        yield node, inputs
        diagnostics.listen()
        for status in (status for message in diagnostics.heard for status in message.status):
            inputs[status.name] = next(pair.value for pair in status.values if pair.key == "inputs")
        node.destroy_node()
