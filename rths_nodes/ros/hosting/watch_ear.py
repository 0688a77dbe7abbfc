# SPDX-License-Identifier: Apache-2.0
"""The ear of a watcher: it hears where the operator node says that procedure and rig are, and says nothing."""

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
"""Messages that are kept for a loop that does not take them: it has ended then."""


class WatchEar(ThreadedNode):
    """Hears the test in ``namespace`` from start to close; ``name`` is that of its node.

    ``heard``: when a message came (s, monotonic), its topic, and the message, in their order. A thread of its own
    fills it: a loop that takes from it never waits for the middleware. Raises ConfigError where ROS 2 does not
    start.
    """

    def __init__(self, namespace: str, name: str) -> None:
        super().__init__(name, namespace.strip("/"), 1)
        self.heard: deque[tuple[float, str, Any]] = deque(maxlen=KEPT)
        # what is late is worth nothing: what was lost on the way is not sent again
        for topic in (OPERATOR_TOPICS[PROCEDURE_STATE], replace(OPERATOR_TOPICS[RIG_STATE], best_effort=True)):
            self._listen(topic)

    def _listen(self, topic: Topic) -> None:
        def hear(message: object) -> None:
            self.heard.append((time.monotonic(), topic.name, message))

        self._node.create_subscription(message_class(topic.type), topic.name, hear, quality(topic))
