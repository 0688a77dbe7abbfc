"""Waiting for messages of the loop, in a process of one node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rclpy.impl.implementation_singleton import rclpy_implementation as _rclpy

from rths_nodes.loop.pacing import SYSTEM_CLOCK, Clock
from rths_nodes.ros.nodes.base import RthsNode


class Waiter:
    """Sleeps until one of the streams that ``nodes`` wait for has a message.

    The caller takes what is there first, and waits only when nothing is.
    """

    def __init__(self, nodes: Sequence[RthsNode], context: Any, clock: Clock = SYSTEM_CLOCK) -> None:
        self._nodes = nodes
        self._context = context
        self._sleep = clock.sleep
        self._sets: dict[int, Any] = {}
        """Wait sets by how many subscriptions they take: making one takes longer than filling it."""

    def wait(self, timeout: float) -> None:
        """Until a message comes or ``timeout`` seconds are over."""
        inboxes = [
            node.topics.inboxes[name]
            for node in self._nodes
            for name in node.awaited_streams
            if name in node.topics.inboxes
        ]
        if not inboxes:
            self._sleep(timeout)
            return
        waiting = self._sets.get(len(inboxes))
        if waiting is None:
            waiting = self._sets[len(inboxes)] = _rclpy.WaitSet(len(inboxes), 0, 0, 0, 0, 0, self._context.handle)
        waiting.clear_entities()
        for inbox in inboxes:
            waiting.add_subscription(inbox.subscription.handle)
        waiting.wait(round(timeout * 1e9))
