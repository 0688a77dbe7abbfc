# SPDX-License-Identifier: Apache-2.0
"""Handshakes and services of the nodes of a process, outside the loop.

A thread answers service requests (``service_thread.py``). The loop executes requests that change a node.
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
from rths_nodes.ros.nodes.base import RthsNode
from rths_nodes.ros.transport.endpoints import ByHand
from rths_nodes.ros.transport.service_thread import Answer, LoopCalls, ServiceThread

OBSERVE_LIMIT = 16
"""Samples per turn of an observer while the loop waits, and ticks that it may lag."""
BEHIND_NS = 20_000_000
"""Longest lag of an observer at a low servo rate, at least one tick."""


class SlackBudget:
    """Recent duration of a task, to judge whether it fits before a tick; ``remembered``: share kept by a decay."""

    def __init__(self, remembered: float = 0.9, clock: Clock = SYSTEM_CLOCK) -> None:
        self._needed = 0.0
        self._remembered = remembered
        self._now = clock.monotonic_ns

    def decay(self) -> None:
        """Reduce the recent duration, so that a task which was slow once is tried again."""
        self._needed *= self._remembered

    def fits(self, pacer: Pacer) -> bool:
        return pacer.slack > self._needed

    def run(self, task: Callable[[], object]) -> bool:
        """Run ``task`` and time it unless it returns False (nothing to do); return True if it worked."""
        started = self._now()
        did = task() is not False
        if did:
            self._needed = max(self._needed, self._now() - started)
        return did


class SlackUser:
    """Runs an observer within the slack of the loop, one sample at a time.

    An observer that lags too far works two samples per tick, even if the tick is late; a longer burst would delay
    many.
    """

    def __init__(self, node: RthsNode, clock: Clock = SYSTEM_CLOCK) -> None:
        self._node = node
        self._budgets = {False: SlackBudget(clock=clock), True: SlackBudget(clock=clock)}
        """Budgets of normal samples, and of longer work, which waits for a slack of its own."""
        self._behind = 0

    def use_slack(self, pacer: Pacer, spare: bool = True) -> None:
        """Work the overdue samples and, if the slack is ``spare``, the samples that fit."""
        node = self._node
        self._budgets[node.works and node.heavy].decay()
        if node.works and node.spares and not node.heavy:
            self._budgets[True].decay()
        self._behind += 1
        must = 2 if self._behind > min(OBSERVE_LIMIT, max(1, BEHIND_NS // pacer.period)) else 0
        while node.works and (must > 0 or (spare and self._budgets[self._heavy].fits(pacer))):
            must -= 1
            if not self._budgets[self._heavy].run(partial(node.safely, node.work, 1)):
                self._behind = 0
                return
            self._behind = max(0, self._behind - 1)

    @property
    def _heavy(self) -> bool:
        """True if the next sample, or the work without a sample, takes longer than most."""
        return self._node.heavy or (self._behind == 0 and self._node.spares)


SERVE_EVERY_NS = 50_000_000
"""Period of rounds over all nodes' handshakes, with at most one request that changes a node."""
SERVE_SLACK_NS = 60_000
"""Slack that one handshake needs."""
SERVE_LATEST_NS = 500_000_000
"""Delay after which a round continues without slack."""


class ServiceDesk:
    """Serves handshakes of ``nodes`` in rounds, calling ``idle`` in each, and executes ``calls``."""

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
        self.calls = LoopCalls()
        """Requests to services that change a node."""
        self._waiting: deque[Callable[[], object]] = deque()
        self._next_round = self._round_ends_by = 0

    def serve(self, pacer: Pacer | None = None) -> None:
        """Continue a round, or begin one when due; with ``pacer`` only within the slack before the tick."""
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
        """Begin a round unless one is under way; return whether it began."""
        if self._waiting:
            return False
        self._waiting.extend(partial(look, node) for node in self._nodes)
        if self.calls.waiting:
            self._waiting.append(self.calls.carry_out)
        return True

    def look(self) -> bool:
        """Do the next step of the round; False if it has ended."""
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
"""Services that change nothing, answered by their thread; the loop executes the others."""


def answers(nodes: Sequence[RthsNode], calls: LoopCalls) -> dict[Service, Answer]:
    """Return the handlers of ``nodes``'s services, except handlers of services that a node serves itself."""

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
    """Answer the services of ``nodes`` in a thread during the ``with`` block."""
    thread = ServiceThread(context, answers(nodes, calls), calls, nodes[0].get_logger().warning)
    with quick_switches():
        thread.start()
        try:
            yield
        finally:
            thread.close()
