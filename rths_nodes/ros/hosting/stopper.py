# SPDX-License-Identifier: Apache-2.0
"""A node that stops a rig, and does nothing else: it hears nothing, so that nothing keeps it from its one task."""

from __future__ import annotations

import time
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from rclpy.callback_groups import ReentrantCallbackGroup
from std_srvs.srv import Trigger

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.wire.acts import Request
from rths_nodes.ros.names import ACTUATOR, OPERATOR, STOPS
from rths_nodes.ros.transport.threaded_node import ThreadedNode
from rths_nodes.srv import Act

if TYPE_CHECKING:
    from rclpy.task import Future

STOP_S = 2.0
"""The answer to a stop is waited for this time."""
LOOK_S = 5e-3
"""Between two looks for services that are not there yet."""
THREADS = 2


class Stopper(ThreadedNode):
    """Stops the rig in ``namespace``, from start to close; ``name`` is that of its node.

    Raises ConfigError where ROS 2 does not start.
    """

    def __init__(self, namespace: str, name: str) -> None:
        super().__init__(name, namespace.strip("/"), THREADS, start_parameter_services=False)
        group = ReentrantCallbackGroup()
        self._stops = {
            kind: self._node.create_client(Trigger, f"{ACTUATOR}/{kind}", callback_group=group) for kind in STOPS
        }
        self._acts = self._node.create_client(Act, f"{OPERATOR}/act", callback_group=group)

    def reaches(self) -> bool:
        """Return whether a node is there that could stop the rig, and the middleware has found it."""
        return any(each.service_is_ready() for each in (self._acts, *self._stops.values()))

    def stop(self, kind: str, reason: str) -> str:
        """Stop a run (``kind`` of ``STOPS``), and what a procedure moves; the first answer, in words.

        May be called from any thread. Raises ConfigError where nobody has confirmed it within ``STOP_S``: the rig
        may move on.
        """
        act = Act.Request(**Request("stop", ("reason",), (reason,)).fields())
        waiting = {self._stops[kind]: Trigger.Request(), self._acts: act}
        """What is not asked yet: the middleware may find a service a moment after its node has begun."""
        answers: SimpleQueue[Future] = SimpleQueue()
        asked, refused, end = 0, list[str](), time.monotonic() + STOP_S
        while time.monotonic() < end and (waiting or len(refused) < asked):
            for client in [each for each in waiting if each.service_is_ready()]:
                client.call_async(waiting.pop(client)).add_done_callback(answers.put)
                asked += 1
            try:
                answer = answers.get(timeout=LOOK_S).result()
            except Empty:
                continue
            if answer.success if hasattr(answer, "success") else answer.done:
                return _words(answer) or "stopped"
            refused.append(_words(answer) or "refused")
        nobody = "nobody has answered" if asked else "no node is there that could stop the rig"
        raise ConfigError("; ".join(refused) or nobody)


def _words(answer: Any) -> str:
    """Words of an answer: of the actuator node, or of the procedure."""
    return str(answer.message if hasattr(answer, "success") else answer.result or answer.reason)
