# SPDX-License-Identifier: Apache-2.0
"""Subscriber of a watcher: receives the state of procedure and rig."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import replace
from typing import Any

from rths_nodes.ros.names import OPERATOR_TOPICS, Topic
from rths_nodes.ros.transport.endpoints import message_class, quality
from rths_nodes.ros.transport.threaded_node import ThreadedNode

PROCEDURE_STATE, RIG_STATE = "procedure_state", "rig_state"
KEPT = 1000
"""Stored messages; the oldest are dropped if the loop has ended."""


class WatchEar(ThreadedNode):
    """Observes the test in ``namespace`` from start to close; ``name`` is the name of its node.

    A thread of its own fills ``heard`` with time (s, monotonic), topic and message. Raises ConfigError if ROS 2
    does not start.
    """

    def __init__(self, namespace: str, name: str) -> None:
        super().__init__(name, namespace.strip("/"), 1)
        self.heard: deque[tuple[float, str, Any]] = deque(maxlen=KEPT)
        # late messages are worthless: no retransmission
        for topic in (OPERATOR_TOPICS[PROCEDURE_STATE], replace(OPERATOR_TOPICS[RIG_STATE], best_effort=True)):
            self._listen(topic)

    def _listen(self, topic: Topic) -> None:
        def hear(message: object) -> None:
            self.heard.append((time.monotonic(), topic.name, message))

        self._node.create_subscription(message_class(topic.type), topic.name, hear, quality(topic))
