"""What nodes look at now and then: the handshake, and what is asked of their services (parameters, lifecycle).

Requests are taken by hand, as the messages of the loop are: a look of rclpy's executor at five nodes takes a
millisecond, a look at one service a microsecond.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rths_nodes.ros.nodes.base import RthsNode
from rths_nodes.ros.transport.endpoints import ByHand


class ServiceDesk:
    """The handshake and the services of ``nodes``, looked at one after another, round by round."""

    def __init__(self, nodes: Sequence[RthsNode]) -> None:
        self._nodes = nodes
        self._waiting: deque[Callable[[], Any]] = deque()

    def open(self) -> bool:
        """Begin a round, unless one is under way; whether it did."""
        if self._waiting:
            return False
        for node in self._nodes:
            self._waiting.append(partial(look, node))
            for service in node.services:
                if not isinstance(service.callback_group, ByHand):  # those their node answers itself, at once
                    self._waiting.append(partial(node.safely, answer, node, service))
        return True

    def look(self) -> bool:
        """The next look of the round; False when it is over."""
        if not self._waiting:
            return False
        self._waiting.popleft()()
        return True


def look(node: RthsNode) -> None:
    """At the handshake."""
    if not node.done:
        node.safely(node.look)


def answer(node: RthsNode, service: Any) -> None:
    """One request to ``service`` of ``node``, if there is any; what rclpy cannot make sense of is told."""
    request, header = service.handle.service_take_request(service.srv_type.Request)
    if header is None:
        return
    response = service.srv_type.Response()
    try:
        response = service.callback(request, response)
    except (TypeError, ValueError) as error:
        node.get_logger().warning(f"{service.srv_name}: request refused: {error}")
    service.send_response(response, header)
