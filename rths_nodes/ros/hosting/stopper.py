# SPDX-License-Identifier: Apache-2.0
"""A node that stops a rig, and does nothing else: it hears nothing, so that nothing keeps it from its one task."""

from __future__ import annotations

import asyncio
from contextlib import suppress
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

    async def stop(self, kind: str, reason: str) -> str:
        """Stop a run (``kind`` of ``STOPS``) and every motion of a procedure; return the first answer.

        Stops do not wait for each other. Raises ConfigError if no node confirms within ``STOP_S``: the rig may
        still move.
        """
        act = Act.Request(**Request("stop", ("reason",), (reason,)).fields())
        waiting = {self._stops[kind]: Trigger.Request(), self._acts: act}
        """Requests not sent yet: the middleware may discover a service a moment after its node has started."""
        loop, answers = asyncio.get_running_loop(), asyncio.Queue["Future"]()

        def put(future: Future) -> None:
            with suppress(RuntimeError):  # the loop is closed: no caller waits any more
                loop.call_soon_threadsafe(answers.put_nowait, future)

        asked, refused, end = 0, list[str](), loop.time() + STOP_S
        while loop.time() < end and (waiting or len(refused) < asked):
            for client in [each for each in waiting if each.service_is_ready()]:
                client.call_async(waiting.pop(client)).add_done_callback(put)
                asked += 1
            try:
                answered = await asyncio.wait_for(answers.get(), LOOK_S if waiting else end - loop.time())
            except TimeoutError:
                continue
            answer = answered.result()
            if answer.success if hasattr(answer, "success") else answer.done:
                return _words(answer) or "stopped"
            refused.append(_words(answer) or "refused")
        nobody = "nobody has answered" if asked else "no node is there that could stop the rig"
        raise ConfigError("; ".join(refused) or nobody)


def _words(answer: Any) -> str:
    """Words of an answer: of the actuator node, or of the procedure."""
    return str(answer.message if hasattr(answer, "success") else answer.result or answer.reason)
