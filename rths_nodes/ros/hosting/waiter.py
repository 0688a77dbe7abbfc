"""Waiting for messages of the loop, in a process of one node."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from rclpy.impl.implementation_singleton import rclpy_implementation as _rclpy

from rths_nodes.ros.nodes.base import RthsNode


class Waiter:
    """Waits until one of the ``streams`` of a node has a message: take first, wait only when empty."""

    def __init__(
        self,
        nodes: Sequence[RthsNode],
        context: Any,
        streams: Callable[[RthsNode], Sequence[str]] = lambda node: node.awaited_streams,
    ) -> None:
        self._nodes = nodes
        self._context = context
        self._streams = streams
        self._sets: dict[int, Any] = {}

    def wait(self, timeout: float) -> None:
        """Until a message comes or ``timeout`` seconds are over."""
        inboxes = [
            node.inboxes[name] for node in self._nodes for name in self._streams(node) if name in node.inboxes
        ]
        if not inboxes:
            time.sleep(timeout)
            return
        waiting = self._sets.get(len(inboxes))
        if waiting is None:
            waiting = self._sets[len(inboxes)] = _rclpy.WaitSet(len(inboxes), 0, 0, 0, 0, 0, self._context.handle)
        waiting.clear_entities()
        for inbox in inboxes:
            waiting.add_subscription(inbox.subscription.handle)
        waiting.wait(round(timeout * 1e9))
