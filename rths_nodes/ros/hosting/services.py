# SPDX-License-Identifier: Apache-2.0
"""Work that is done for the nodes of a process now and then: their handshake and their services.

Requests to services (parameters, lifecycle) are taken by hand, as the messages of the loop are: a look of rclpy's
executor at five nodes takes a millisecond, a look at one service a microsecond.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from rclpy.service import Service

from rths_nodes.loop.pacing import SYSTEM_CLOCK, Clock, Pacer
from rths_nodes.loop.realtime import Starving
from rths_nodes.ros.hosting.slack import SlackBudget
from rths_nodes.ros.nodes.base import RthsNode
from rths_nodes.ros.transport.endpoints import ByHand

SERVE_EVERY_NS = 50_000_000
"""Between two rounds through the handshakes and services of all nodes."""
SERVE_SLACK_NS = 60_000
"""One of them is looked at while at least this much time is left to the next tick."""
SERVE_LATEST_NS = 500_000_000
"""A round that is late by this much goes on however little time is left."""


class ServiceDesk:
    """The handshakes and the services of ``nodes``, looked at one after another, round by round.

    ``idle`` is called with each round: for progress, and for requests to stop.
    """

    def __init__(
        self,
        nodes: Sequence[RthsNode],
        idle: Callable[[], None] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._nodes = nodes
        self._idle = idle
        self._now = clock.monotonic_ns
        self._budget = SlackBudget(clock=clock)
        """Slack budget of ``idle``."""
        self._waiting: deque[Callable[[], object]] = deque()
        self._next_round = self._round_ends_by = 0

    def serve(self, pacer: Pacer | None = None) -> None:
        """Go on with a round, or begin one when it is due; with ``pacer`` as far as it fits in before the tick."""
        now = self._now()
        if pacer is None:
            for node in self._nodes:
                look(node)
        if now >= self._next_round:
            self._budget.decay()
            late = now > self._next_round + SERVE_LATEST_NS
            if pacer is None or late or self._budget.fits(pacer):
                self._next_round = now + SERVE_EVERY_NS
                if self.open():
                    self._round_ends_by = now + SERVE_LATEST_NS
                if self._idle:
                    self._budget.run(self._idle)
        while pacer is None or pacer.slack > SERVE_SLACK_NS or now > self._round_ends_by:
            if not self.look():
                return

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
    if not node.phase.gone:
        node.safely(node.look)


def answer(node: RthsNode, service: Service) -> None:
    """Answer one request to ``service`` of ``node``, if there is any.

    A request that rclpy cannot serve (a lifecycle transition that the state does not have, a parameter of no type)
    is refused by the empty response, in which nothing is successful, and logged.
    """
    request, header = service.handle.service_take_request(service.srv_type.Request)
    if header is None:
        return
    response = service.srv_type.Response()
    try:
        response = service.callback(request, response)
    except Starving:
        raise
    except Exception as error:
        node.get_logger().warning(f"{service.srv_name}: request refused: {error}")
        response = service.srv_type.Response()
    service.send_response(response, header)
