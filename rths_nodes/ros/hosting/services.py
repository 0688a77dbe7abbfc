# SPDX-License-Identifier: Apache-2.0
"""Handshakes and services of the nodes of a process, beside the loop.

A thread takes the requests to services (parameters, lifecycle) and answers them (``service_thread.py``). The loop
carries out, now and then, those requests that change a node, and looks at the handshakes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from lifecycle_msgs.srv import GetAvailableStates, GetAvailableTransitions, GetState
from rcl_interfaces.srv import DescribeParameters, GetParameters, GetParameterTypes, ListParameters
from rclpy.context import Context
from rclpy.service import Service

from rths_nodes.loop.pacing import SYSTEM_CLOCK, Clock, Pacer
from rths_nodes.loop.realtime import quick_switches
from rths_nodes.ros.hosting.slack import SlackBudget
from rths_nodes.ros.nodes.base import RthsNode
from rths_nodes.ros.transport.endpoints import ByHand
from rths_nodes.ros.transport.service_thread import Answer, LoopCalls, ServiceThread

SERVE_EVERY_NS = 50_000_000
"""Between two rounds through the handshakes of all nodes, each with at most one request that changes a node."""
SERVE_SLACK_NS = 60_000
"""One of them is looked at while at least this much time is left to the next tick."""
SERVE_LATEST_NS = 500_000_000
"""A round that is late by this much goes on however little time is left."""


class ServiceDesk:
    """Looks at the handshakes of ``nodes`` one after another, round by round, and carries out ``calls``.

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
        self.calls = LoopCalls()
        """Requests to services that change a node."""
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
        self._waiting.extend(partial(look, node) for node in self._nodes)
        if self.calls.waiting:
            self._waiting.append(self.calls.carry_out)
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


READING = (
    GetParameters,
    GetParameterTypes,
    DescribeParameters,
    ListParameters,
    GetState,
    GetAvailableStates,
    GetAvailableTransitions,
)
"""Services that change nothing: their thread answers by itself. The loop carries out the requests to others."""


def answers(nodes: Sequence[RthsNode], calls: LoopCalls) -> dict[Service, Answer]:
    """Return the answers to the services of ``nodes``, without those that a node answers itself."""

    def in_loop(callback: Answer) -> Answer:
        return lambda request, response: calls.call(partial(callback, request, response))

    return {
        service: service.callback if service.srv_type in READING else in_loop(service.callback)
        for node in nodes
        for service in node.services
        if not isinstance(service.callback_group, ByHand)
    }


@contextmanager
def answering(nodes: Sequence[RthsNode], context: Context, calls: LoopCalls) -> Iterator[None]:
    """While inside, a thread answers the services of ``nodes``."""
    thread = ServiceThread(context, answers(nodes, calls), calls, nodes[0].get_logger().warning)
    with quick_switches():
        thread.start()
        try:
            yield
        finally:
            thread.close()
