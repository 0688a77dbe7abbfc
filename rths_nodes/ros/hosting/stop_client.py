# SPDX-License-Identifier: Apache-2.0
"""Node with which a page stops a rig. The node has no subscriptions that could delay a stop."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from rclpy.callback_groups import ReentrantCallbackGroup
from std_srvs.srv import Trigger

from rths_nodes.core.errors import ConfigError
from rths_nodes.ros.environment import DOMAIN
from rths_nodes.ros.names import ACTUATOR, OPERATOR, PAGE_STOP, STOPS, TRIP
from rths_nodes.ros.transport.threaded_node import ThreadedNode

if TYPE_CHECKING:
    from rclpy.task import Future

STOP_S = 2.0
LOOK_S = 5e-3
THREADS = 2


def stop_address(namespace: str) -> bytes:
    """Return the socket address at which the executive in ``namespace`` receives stop requests.

    The datagram ``S`` stops the test, and ``T`` trips it.
    """
    return f"\0rths {os.getuid()} {os.environ.get(DOMAIN, '0')} {namespace.strip('/')} stop".encode()


def stop_executive(namespace: str, kind: str) -> bool:
    """Send a stop directly to the executive in ``namespace``. Return True if there is an executive."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender, suppress(OSError):
        sender.setblocking(False)
        return sender.sendto(b"T" if kind == TRIP else b"S", stop_address(namespace)) > 0
    return False


class StopClient(ThreadedNode):
    def __init__(self, namespace: str, name: str) -> None:
        super().__init__(name, namespace.strip("/"), THREADS)
        self._namespace = namespace
        group = ReentrantCallbackGroup()
        self._stops = {
            kind: self._node.create_client(Trigger, f"{ACTUATOR}/{kind}", callback_group=group) for kind in STOPS
        }
        self._procedure = self._node.create_client(Trigger, f"{OPERATOR}/{PAGE_STOP}", callback_group=group)

    def reaches(self) -> bool:
        return any(client.service_is_ready() for client in (self._procedure, *self._stops.values()))

    async def stop(self, kind: str) -> str:
        """Stop a run (``kind`` of ``STOPS``) and every motion of a procedure. Return the first confirmation.

        Raises ConfigError if there is no executive and no node confirms within ``STOP_S``; then the rig may still
        move.
        """
        brakes = stop_executive(self._namespace, kind)
        waiting = [self._stops[kind], self._procedure]
        loop, answers = asyncio.get_running_loop(), asyncio.Queue["Future"]()

        def put(future: Future) -> None:
            with suppress(RuntimeError):  # the event loop is closed: no caller waits
                loop.call_soon_threadsafe(answers.put_nowait, future)

        asked, refused, end = 0, list[str](), loop.time() + STOP_S
        while loop.time() < end and (waiting or len(refused) < asked):
            for client in [waiting_client for waiting_client in waiting if waiting_client.service_is_ready()]:
                waiting.remove(client)
                client.call_async(Trigger.Request()).add_done_callback(put)
                asked += 1
            try:
                answered = await asyncio.wait_for(answers.get(), LOOK_S if waiting else end - loop.time())
            except TimeoutError:
                continue
            answer = answered.result()
            if answer.success:
                return str(answer.message or "stopped")
            refused.append(str(answer.message or "refused"))
        if brakes:
            return "the executive brakes the rig, but the nodes have not answered"
        nobody = "no answer" if asked else "no node that can stop the rig is running"
        raise ConfigError("; ".join(refused) or nobody)
