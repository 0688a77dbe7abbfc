"""Waiting for messages of the loop, in a process of one node."""

from __future__ import annotations

import select
from collections.abc import Sequence
from typing import Any

from rclpy.impl.implementation_singleton import rclpy_implementation as _rclpy

from rths_nodes.loop.pacing import SYSTEM_CLOCK, Clock
from rths_nodes.ros.nodes.base import RthsNode

MIXED_S = 0.0005
"""Longest sleep of a node that waits for a socket and a topic at the same time, s."""


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
            node.topics.opened[key]
            for node in self._nodes
            for key in node.awaited_streams
            if key in node.topics.opened
        ]
        if not inboxes:
            self._sleep(timeout)
            return
        lines = [inbox.line for inbox in inboxes if inbox.line is not None]
        if lines:
            heard = [line.socket for line in lines if not line.ended]
            behind = [line.socket for node in self._nodes for line in node.topics.lines.behind]
            # a node that hears only a part by line looks at the rest now and then
            longest = timeout if len(lines) == len(inboxes) else min(timeout, MIXED_S)
            select.select(heard, behind, [], longest)
            return
        waiting = self._sets.get(len(inboxes))
        if waiting is None:
            waiting = self._sets[len(inboxes)] = _rclpy.WaitSet(len(inboxes), 0, 0, 0, 0, 0, self._context.handle)
        waiting.clear_entities()
        for inbox in inboxes:
            waiting.add_subscription(inbox.subscription.handle)
        waiting.wait(round(timeout * 1e9))
