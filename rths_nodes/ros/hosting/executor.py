# SPDX-License-Identifier: Apache-2.0
"""Executor that runs all nodes of a test in one process, or a single node.

Nodes in one process pass messages directly, in the order of the loop. Messages for other processes are published
in the slack, the time left before a tick.
"""

from __future__ import annotations

import itertools
import os
import select
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from operator import attrgetter

from lifecycle_msgs.srv import GetAvailableStates, GetAvailableTransitions, GetState
from rcl_interfaces.srv import DescribeParameters, GetParameters, GetParameterTypes, ListParameters
from rclpy.context import Context
from rclpy.service import Service

from rths_nodes.loop.pacing import SYSTEM_CLOCK, Clock, Pacer
from rths_nodes.loop.realtime import Starving, quick_switches
from rths_nodes.ros.names import AXIS, LOOP
from rths_nodes.ros.nodes.actuator import ActuatorNode
from rths_nodes.ros.nodes.base import RthsNode
from rths_nodes.ros.nodes.participation import Phase
from rths_nodes.ros.transport.endpoints import ByHand, Inbox
from rths_nodes.ros.transport.rclpy_private import WaitSet
from rths_nodes.ros.transport.service_thread import Answer, LoopCalls, ServiceThread

OBSERVE_LIMIT = 16
"""Maximum number of samples that an observer handles per turn. Also the largest lag of an observer, in ticks."""
BEHIND_NS = 20_000_000
"""Longest lag of an observer, ns. A lag of one tick is always allowed."""


class SlackBudget:
    """Estimates the duration of a task, and decides whether the task fits before the tick."""

    def __init__(self, remembered: float = 0.9, clock: Clock = SYSTEM_CLOCK) -> None:
        self._needed, self._remembered, self._now = 0.0, remembered, clock.monotonic_ns

    def decay(self) -> None:
        """Reduce the estimate, so that one slow execution does not block the task permanently."""
        self._needed *= self._remembered

    def fits(self, pacer: Pacer) -> bool:
        return pacer.slack > self._needed

    def run(self, task: Callable[[], object]) -> bool:
        started = self._now()
        did = task() is not False
        if did:
            self._needed = max(self._needed, self._now() - started)
        return did


def slack_user(node: RthsNode, clock: Clock = SYSTEM_CLOCK) -> Callable[[Pacer, bool], None]:
    """Return a function that runs an observer in the slack before each tick, one sample at a time.

    The second argument of the returned function is false if other work needs the slack. An observer that lags too
    far handles two samples even if there is no slack.
    """
    budgets = {heavy: SlackBudget(clock=clock) for heavy in (False, True)}
    behind = 0

    def budget() -> SlackBudget:
        return budgets[node.heavy or (behind == 0 and node.spares)]

    def use_slack(pacer: Pacer, spare: bool) -> None:
        nonlocal behind
        budgets[node.works and node.heavy].decay()
        if node.works and node.spares and not node.heavy:
            budgets[True].decay()
        behind += 1
        must = 2 if behind > min(OBSERVE_LIMIT, max(1, BEHIND_NS // pacer.period)) else 0
        while node.works and (must > 0 or (spare and budget().fits(pacer))):
            must -= 1
            if not budget().run(partial(node.safely, node.work, 1)):
                behind = 0
                return
            behind = max(0, behind - 1)

    return use_slack


SERVE_EVERY_NS = 50_000_000
"""Period of rounds, ns. A round polls all handshakes and serves at most one request that changes a node."""
SERVE_SLACK_NS = 60_000
SERVE_LATEST_NS = 500_000_000
"""Delay after which a round of the service desk begins or continues even without slack, ns."""


class ServiceDesk:
    """Polls the handshakes of ``nodes`` in rounds, calls ``idle`` in each round, and executes queued ``calls``."""

    def __init__(
        self, nodes: Sequence[RthsNode], idle: Callable[[], None] | None = None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._nodes, self._idle, self._now = nodes, idle, clock.monotonic_ns
        self._budget = SlackBudget(clock=clock)
        self.calls = LoopCalls()
        self._waiting: deque[Callable[[], object]] = deque()
        self._next_round = self._round_ends_by = 0

    def serve(self, pacer: Pacer | None = None) -> None:
        """Begin or continue a round. With a ``pacer``, work outside the slack only after ``SERVE_LATEST_NS``."""
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
        if self._waiting:
            return False
        self._waiting.extend(partial(look, node) for node in self._nodes)
        if self.calls.waiting:
            self._waiting.append(self.calls.carry_out)
        return True

    def look(self) -> bool:
        if not self._waiting:
            return False
        self._waiting.popleft()()
        return True


def look(node: RthsNode) -> None:
    if not node.phase.gone:
        node.safely(node.look)


GONE = attrgetter("phase.gone")
READING = (
    *(GetParameters, GetParameterTypes, DescribeParameters, ListParameters),
    *(GetState, GetAvailableStates, GetAvailableTransitions),
)
"""Read-only services, which the service thread answers."""


def answers(nodes: Sequence[RthsNode], calls: LoopCalls) -> dict[Service, Answer]:
    def in_loop(callback: Answer) -> Answer:
        return lambda request, response: calls.call(partial(callback, request, response))

    services = (service for node in nodes for service in node.services)
    return {
        service: service.callback if service.srv_type in READING else in_loop(service.callback)
        for service in services
        if not isinstance(service.callback_group, ByHand)
    }


DIAGNOSE_SLACK_NS = 500_000
RECORD_SLACK_NS = 50_000
FOREIGN_AT_A_TIME = 256
DIAGNOSE_EVERY_NS = 20_000_000
OBSERVE_EVERY = 32
IDLE_S = 0.02
SHORT_SLEEP_S = 0.0005
"""Polling interval if the nodes of a process pass messages directly or wait for both sockets and topics, s."""
FOLLOWING_SLEEP_S = 0.002
"""Sleep time of nodes that follow the executive in real time, s. After this time, several rows of the executive's
ring are ready."""
OBSERVER_SLEEP_S = 0.01
YIELDS = 6
"""Number of consecutive yields to the middleware thread that delivers messages by topic. Sockets need only one
yield: with more, two nodes would keep yielding to each other."""
POLLS = 4
"""Number of polls of the inboxes before a sleep, because a wake-up costs 100 us."""
AWAKE_NS = 300_000_000
"""Time without sleep after which a process sleeps instead of yielding, ns. The kernel does not count yielding as
sleep (``realtime.STARVING_S``)."""
SLEPT_NS = 50_000
"""Shortest wait that counts as sleep, ns. A shorter wait shows that a message was pending."""
PATIENT_TURNS = 16
"""Number of turns without work after which a process sleeps for 1 ms, so that other processes can run."""


def give_turn(node: RthsNode, limit: int, paced: bool = False) -> bool:
    """Let ``node`` handle up to ``limit`` samples, unless the node must wait. Return True if the node did work."""
    if node.phase.gone or not (node.phase.active or node.participates):
        return False
    if (node.interposer.holds_up and not node.interposer.may_work()) or (paced and node.rests):
        return False
    try:
        return node.work(limit)
    except Exception as error:
        node.surprise(error)
        return False


class LoopExecutor:
    """Runs ``nodes`` until all have finished. Calls ``idle`` regularly, for progress and signals."""

    def __init__(
        self,
        nodes: Sequence[RthsNode],
        context: Context,
        idle: Callable[[], None] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.nodes = list(nodes)
        self._context = context
        self._now, self._sleep = clock.monotonic_ns, clock.sleep
        ring = {node.role: node for node in nodes if node.role in LOOP}
        # the integrator receives the measurement first, because the compensator needs the new target
        axes = [node for node in nodes if node.role == AXIS]
        self._ring = [*(ring[role] for role in LOOP if role in ring), *axes]
        self._observers = [node for node in nodes if node not in self._ring]
        self._in_slack = [slack_user(node, clock) for node in self._observers]
        self._rig = next((node for node in nodes if isinstance(node, ActuatorNode)), None)
        if self._rig is not None:
            self._rig.when_armed(self.introduce)
        # one sample per turn, so that a waiting node receives each answer immediately
        self._at_a_time = 1 if len(self._ring) > 1 else OBSERVE_LIMIT
        self._desk = ServiceDesk(self.nodes, idle, clock)
        self._awaits_streams = bool(self._ring) and not self._observers
        self._wait_set = cache(lambda count: WaitSet(count, 0, 0, 0, 0, 0, context.handle))
        self._by_hand: Iterator[Inbox] = iter(())
        self._warm_ups = [(node, SlackBudget(0.5, clock)) for node in self._ring]
        self._next_diagnosis = 0
        self._turns = self._idle_turns = self._polls = self._slept_at = 0

    def introduce(self) -> None:
        all_topics = [node.topics for node in self.nodes]
        for node in self.nodes:
            node.topics.hand_to(all_topics, holds=not node.settings.lockstep)
            node.topics.share(all_topics[0].codec)
        self._by_hand = itertools.cycle([inbox for topics in all_topics for inbox in topics.filled_directly])

    def run(self) -> None:
        calls, warn = self._desk.calls, self.nodes[0].get_logger().warning
        thread = ServiceThread(self._context, answers(self.nodes, calls), calls, warn)
        with quick_switches():
            thread.start()
            try:
                self._loop()
            finally:
                thread.close()

    def _loop(self) -> None:
        while not all(map(GONE, self.nodes)):
            try:
                self._turn()
            except Starving as error:  # raised outside a node: the cause is unknown
                for node in self.nodes:
                    node.surprise(error)
            if self._rig is not None and self._rig.phase.gone:
                self._end_with(self._rig)

    def _end_with(self, rig: ActuatorNode) -> None:
        if not rig.phase.ended:  # a dead node sends no Summary; its earlier messages are still recorded
            self._publish_held()
            self._observe(1_000_000)
        problem = "" if rig.phase.ended else rig.phase.problem
        for node in self.nodes:
            node.shutdown.lose_leader(rig.phase.exit_code, problem)
            if not rig.phase.ended or not node.participates:
                node.phase.to(Phase.GONE)

    def _turn(self) -> None:
        busy, rig = False, self._rig
        paced = rig is not None and rig.pacer is not None and self._paced
        for node in self._ring:
            busy |= give_turn(node, self._at_a_time, paced)
        self._turns += 1
        waits = not busy or (rig is not None and paced and self._all_follow(rig))
        slack = rig.safely(lambda: rig.slack) if rig and waits else None
        if slack is not None and slack is not False:
            assert rig is not None
            assert rig.pacer is not None
            self._use_slack(rig, rig.pacer)
            rig.safely(rig.tick)
            self._idle_turns = self._polls = 0
            if self._awaits_streams:
                self._yield_processor()
            return
        if busy:
            self._polls = 0
            if self._awaits_streams:
                self._yield_processor()
        elif self._yields and self._polls_on():
            self._polls += 1
            self._yield_processor()
            return
        if not busy or (self._turns % OBSERVE_EVERY == 0 and not self._paced):
            busy |= self._observe(1_000_000 if self._time_left() is None else OBSERVE_LIMIT)
            self._desk.serve()
            self._diagnose_if_due()
        self._idle_turns = 0 if busy else self._idle_turns + 1
        if not busy:
            self._wait()

    def _yield_processor(self) -> None:
        if self._yields:
            for _ in range(1 if self.nodes[0].topics.lines.direct else YIELDS):
                os.sched_yield()

    def _polls_on(self) -> bool:
        if self._polls >= POLLS or not any(node.awaits_answer for node in self._ring):
            return False
        return self._now() - self._slept_at < AWAKE_NS

    @property
    def _paced(self) -> bool:
        return self._rig is not None and self._rig.pacer is not None and bool(self._rig.running)

    @property
    def _yields(self) -> bool:
        return self._awaits_streams and len(self._ring) == 1 and not self.nodes[0].settings.lockstep

    def _all_follow(self, rig: ActuatorNode) -> bool:
        sample, tick = rig.last_sample, rig.rig.ticks  # axis nodes count ticks, because a pause has no samples
        return all(
            node.rests or node.last_sample == (tick if node.role == AXIS else sample)
            for node in self._ring
            if node.works
        )

    def _use_slack(self, rig: ActuatorNode, pacer: Pacer) -> None:
        self._publish_held()
        for inbox in itertools.islice(self._by_hand, 1):
            inbox.drop(FOREIGN_AT_A_TIME)
        # before a step the warm-up has priority; other work waits for the next tick
        spare = not any(node.works and node.warm_up.due for node in self._ring)
        if spare and pacer.slack > RECORD_SLACK_NS:
            self._publish_for_record()
            for node in self._ring:
                if node.works and node.rests and (behind := rig.last_sample - node.last_sample) > 0:
                    node.safely(node.work, behind)
        for use_slack in self._in_slack:
            use_slack(pacer, spare)
        if spare:
            self._desk.serve(pacer)
            self._diagnose_if_due()
        # warm up the nodes last, so that their data are still in the caches at the tick
        for node, budget in self._warm_ups:
            if node.works and node.warm_up.due:
                budget.decay()
                if budget.fits(pacer):
                    budget.run(partial(node.safely, node.warm_up))

    def _publish_held(self) -> None:
        for node in self._ring:
            node.safely(node.topics.publish_held)

    def _publish_for_record(self) -> None:
        for node in self._ring:
            if not node.settings.lockstep:
                node.safely(node.deferred.send)

    def _observe(self, limit: int) -> bool:
        busy = False
        for node in self._observers:
            busy |= give_turn(node, limit)
        return busy

    def _diagnose_if_due(self) -> None:
        now, rig = self._now(), self._rig
        if now < self._next_diagnosis:
            return
        if rig is None and not all(map(self._unhurried, self.nodes)):
            return
        if rig is not None and rig.pacer is not None and self._paced:
            slack = min(DIAGNOSE_SLACK_NS, round(rig.scenario.dt * 0.5e9))
            if rig.pacer.slack <= slack:
                return
        self._next_diagnosis = now + DIAGNOSE_EVERY_NS
        for node in self.nodes:
            if not node.phase.gone and node.diagnostics and node.safely(node.diagnostics.publish_if_due):
                return  # at most one node per turn, because publishing takes 50 us

    def _unhurried(self, node: RthsNode) -> bool:
        if node.settings.lockstep or node.role not in (*LOOP, AXIS) or not node.under_way:
            return True
        return self._now() - node.answered_at < round(node.scenario.dt * 0.25e9)

    def _time_left(self) -> float | None:
        deadlines = [deadline for node in self._ring if node.works and (deadline := node.deadline) is not None]
        return max(0.0, (min(deadlines) - self._now()) * 1e-9) if deadlines else None

    def _wait(self) -> None:
        self._publish_for_record()
        for node in self._ring:
            if node.works and node.warm_up.due and self._unhurried(node):
                node.safely(node.warm_up)
        left = self._time_left()
        longest = IDLE_S if left is None else min(left, IDLE_S)
        began = self._now()
        unfruitful = self._idle_turns % PATIENT_TURNS == 0
        idle = not any(node.participates for node in self.nodes)
        if idle or unfruitful or (self._rig is not None and not self._rig.running):
            self._sleep(0.001)  # yield even if the wait below returns at once
        elif self._awaits_streams:
            self._wait_for_message(longest)
        elif self._ring:
            settings = self._ring[0].settings
            follows = settings.lockstep and settings.clocked
            self._sleep(min(FOLLOWING_SLEEP_S if follows else SHORT_SLEEP_S, longest))
        else:
            self._sleep(OBSERVER_SLEEP_S if self.nodes[0].settings.lockstep else IDLE_S)
        ended = self._now()
        if ended - began > SLEPT_NS:
            self._slept_at = ended

    def _wait_for_message(self, timeout: float) -> None:
        """Sleep until a stream has a message, at most ``timeout`` s. The caller takes queued messages first."""
        opened = [node.topics.opened.get(key) for node in self._ring for key in node.awaited_streams]
        inboxes = [inbox for inbox in opened if inbox is not None]
        if not inboxes:
            self._sleep(timeout)
            return
        lines = [inbox.line for inbox in inboxes if inbox.line is not None]
        if lines:
            sockets = [line.socket for line in lines if not line.ended]
            behind = [line.socket for node in self._ring for line in node.topics.lines.behind]
            # poll the topics if only some streams arrive by line
            longest = timeout if len(lines) == len(inboxes) else min(timeout, SHORT_SLEEP_S)
            select.select(sockets, behind, [], longest)
            return
        waiting = self._wait_set(len(inboxes))
        waiting.clear_entities()
        for inbox in inboxes:
            waiting.add_subscription(inbox.subscription.handle)
        waiting.wait(round(timeout * 1e9))
