"""Drives nodes: all of them in one process, or one alone.

In one process the nodes hand each other the messages of the loop: right after it was sent a message can be taken.
So the ring is run in its order, without any executor of rclpy; services (parameters, lifecycle) are served, and
others get the messages from the middleware, in the slack only.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from rths_nodes.loop.pacing import Pacer
from rths_nodes.loop.realtime import Starving
from rths_nodes.ros.hosting.services import ServiceDesk, look
from rths_nodes.ros.hosting.slack import OBSERVE_LIMIT, SlackBudget, SlackUser
from rths_nodes.ros.hosting.waiter import Waiter
from rths_nodes.ros.names import AXIS, LOOP
from rths_nodes.ros.nodes.actuator import ActuatorNode
from rths_nodes.ros.nodes.base import RthsNode
from rths_nodes.ros.transport.endpoints import Inbox
from rths_nodes.ros.transport.peers import PublisherGuard

SERVE_EVERY_NS = 50_000_000
"""Between two looks at the services."""
SERVE_SLACK_NS = 60_000
"""Nodes look at the handshake, and at their services, while this much is left to the next tick."""
SERVE_LATEST_NS = 500_000_000
"""They look even if less is left when they are late by as much."""
DIAGNOSE_SLACK_NS = 500_000
"""A node says how it is while this much is left, or half a sample."""
RECORD_SLACK_NS = 50_000
"""What only the recorder wants is sent, and what a node that rests has got is taken, when this much is left to the
next tick, or when it has piled up."""
STRANGERS_AT_A_TIME = 256
"""Messages of strangers that are dropped before a tick from one inbox, of those that neighbours fill."""
DIAGNOSE_EVERY_NS = 20_000_000
"""Between two looks whether a node has something to say on its health."""
OBSERVE_EVERY = 32
"""Turns between two looks of monitor and recorder in lockstep."""
IDLE_S = 0.02
TURNS_GIVEN = 6
"""More than it takes (a thread of the middleware takes the message, and wakes the node, which answers): a turn
that nobody wants costs less than a microsecond."""
GIVEN_AGAIN = 4
"""How often, with a look into the inboxes between, before a process sleeps: that and being woken costs 100 us."""
AWAKE_NS = 300_000_000
"""A process that has not slept for so long does not give way again: turns given are no rest to the kernel's limit
(``pacing.STARVING_S``)."""
SLEPT_NS = 50_000
"""A wait that was no sleep, because a message was there, is shorter."""
PATIENT_TURNS = 16
"""Turns without work after which a real-time process sleeps in any case: it must never starve its processor."""


class LoopExecutor:
    """Runs ``nodes`` until all of them are done. ``idle`` is called now and then, for progress and signals."""

    def __init__(self, nodes: Sequence[RthsNode], context: Any, idle: Callable[[], None] | None = None) -> None:
        self.nodes = list(nodes)
        self._idle = idle
        ring = {node.role: node for node in nodes if node.role in LOOP}
        # the measurement goes to the integrator first: its target is needed by the compensator
        self._axes = [node for node in nodes if node.role == AXIS]
        self._ring = [*(ring[role] for role in LOOP if role in ring), *self._axes]
        self._observers = [node for node in nodes if node not in self._ring]
        self._in_slack = [SlackUser(node) for node in self._observers]
        self._rig = next((node for node in nodes if isinstance(node, ActuatorNode)), None)
        # in one process an answer goes at once to the node that waits for it
        self._at_a_time = 1 if len(self._ring) > 1 else OBSERVE_LIMIT
        self._desk = ServiceDesk(self.nodes)
        self._waiter = Waiter(self._ring, context) if self._ring and not self._observers else None
        if self._rig is not None:
            self._rig.wait_for_axes = self._work_for_axes if self._axes else self._axis_waiter(self._rig, context)
            self._rig.before_test = self._introduce
        self._by_hand: Iterator[Inbox] = iter(())
        self._idling = SlackBudget()
        self._rehearsals = [(node, SlackBudget(0.5)) for node in self._ring]  # one for many ticks
        self._next_service = self._next_diagnosis = self._served_by = 0
        self._turns = self._idle_turns = self._given = self._rested_at = 0

    def _axis_waiter(self, rig: ActuatorNode, context: Any) -> Callable[[], None]:
        """How the actuator node, in a process of its own, waits for the nodes of its axes."""
        waiter = Waiter([rig], context, lambda _: rig.axis_inboxes)
        return lambda: waiter.wait(IDLE_S)

    def _work_for_axes(self) -> None:
        """In one process the axes answer while the actuator node waits for them."""
        busy = False
        for node in self._axes:
            if node.works:
                busy |= bool(node.safely(node.work))
        if not busy:
            time.sleep(0.0005)

    def _introduce(self) -> None:
        """From now on the nodes of this process hand each other their messages.

        Not where a message does not tell its publisher: one that comes through the middleware as well, because
        others listen, too, would count twice.
        """
        if not PublisherGuard.by_gid:
            return
        codec = self.nodes[0].codec  # unpacks a message once for all who have it
        for node in self.nodes:
            node.hand_to(self.nodes)
            if node.codec.sizes == codec.sizes:
                node.codec = codec
        self._by_hand = itertools.cycle([inbox for node in self.nodes for inbox in node.filled_by_hand])

    def run(self) -> None:
        """Until every node is done."""
        while not all(node.done for node in self.nodes):
            try:
                self._turn()
            except Starving as error:  # outside of a node: nobody knows whose fault it is
                for node in self.nodes:
                    node.surprise(error)
            if self._rig is not None and self._rig.done:
                self._leave_with(self._rig)

    def _leave_with(self, rig: ActuatorNode) -> None:
        """In one process nobody sees the actuator node leave: the others say their last words when it is done."""
        if not rig.ended:  # it has died: there are no last words, but what was sent before is recorded
            self._publish_held()
            self._observe(1_000_000)
        for node in self.nodes:
            node.left_alone = True
            node.done = node.done or not rig.ended or not node.participates

    def _turn(self) -> None:
        busy, rig, paced = False, self._rig, self._paced
        for node in self._ring:
            if node.works and not (paced and node.rests):
                busy |= bool(node.safely(node.work, self._at_a_time))
        self._turns += 1
        waits = not busy or (rig is not None and paced and self._all_follow(rig))
        slack = rig.safely(lambda: rig.slack) if rig and waits else None
        if slack is not None and slack is not False:
            assert rig is not None
            assert rig.pacer is not None
            self._use_slack(rig, rig.pacer)
            rig.safely(rig.tick)
            self._idle_turns = self._given = 0
            self._give_way()
            return
        if busy:
            self._given = 0
            self._give_way()
        elif self._gives_way and self._stays_awake():
            self._given += 1
            self._give_way()
            return
        if not busy or (self._turns % OBSERVE_EVERY == 0 and not self._paced):
            busy |= self._observe(1_000_000 if self._left() is None else OBSERVE_LIMIT)
            self._serve_if_due()
            self._diagnose_if_due()
        self._idle_turns = 0 if busy else self._idle_turns + 1
        if not busy:
            self._rest()

    def _give_way(self) -> None:
        """In processes in real time, who has answered lets those who wait for it go first on their processor."""
        if self._gives_way:
            for _ in range(TURNS_GIVEN):
                os.sched_yield()

    def _stays_awake(self) -> bool:
        """True while it is sooner to look again than to sleep, and there is something to look for."""
        if self._given >= GIVEN_AGAIN or not any(node.awaits_answer for node in self._ring):
            return False
        return time.monotonic_ns() - self._rested_at < AWAKE_NS

    @property
    def _paced(self) -> bool:
        """True while the slack before the ticks is there for everything else."""
        rig = self._rig
        return rig is not None and rig.pacer is not None and bool(rig.running)

    @property
    def _gives_way(self) -> bool:
        return self._waiter is not None and len(self._ring) == 1 and not self.nodes[0].lockstep

    def _all_follow(self, rig: ActuatorNode) -> bool:
        """True when the whole ring has answered ``rig``: another look would find nothing to answer."""
        last = rig.last_sample
        return all(node.rests or node.last_sample == last for node in self._ring if node.works)

    def _use_slack(self, rig: ActuatorNode, pacer: Pacer) -> None:
        self._publish_held()
        for inbox in itertools.islice(self._by_hand, 1):
            inbox.drop(STRANGERS_AT_A_TIME)
        # before a step there is time for the rehearsal: the rest may be done a tick later
        spare = not any(node.works and node.rehearsal_due for node in self._ring)
        if spare and pacer.slack > RECORD_SLACK_NS:
            self._publish_for_record()
            for node in self._ring:
                if node.works and node.rests and (behind := rig.last_sample - node.last_sample) > 0:
                    node.safely(node.work, behind)
        for observer in self._in_slack:
            observer.use_slack(pacer, spare)
        if spare:
            self._serve_if_due(pacer)
            self._diagnose_if_due()
        self._rehearse(pacer)

    def _rehearse(self, pacer: Pacer) -> None:
        """Last, so that it is fresh."""
        for node, fit in self._rehearsals:
            if node.works and node.rehearsal_due:
                fit.forget()
                if fit.into(pacer):
                    fit.timed(partial(node.safely, node.rehearse))

    def _publish_held(self) -> None:
        for node in self._ring:
            node.safely(node.publish_held)

    def _publish_for_record(self) -> None:
        for node in self._ring:
            node.safely(node.publish_in_slack)

    def _observe(self, limit: int) -> bool:
        busy = False
        for node in self._observers:
            if node.works:
                busy |= bool(node.safely(node.work, limit))
        return busy

    def _serve_if_due(self, pacer: Pacer | None = None) -> None:
        """Look at handshake and services now and then; with ``pacer`` as far as there is time before the tick."""
        now = time.monotonic_ns()
        if pacer is None:
            for node in self.nodes:
                look(node)
        if now >= self._next_service:
            self._idling.forget()
            late = now > self._next_service + SERVE_LATEST_NS
            if pacer is None or late or self._idling.into(pacer):
                self._next_service = now + SERVE_EVERY_NS
                if self._desk.open():
                    self._served_by = now + SERVE_LATEST_NS
                if self._idle:
                    self._idling.timed(self._idle)
        while (pacer is None or pacer.slack > SERVE_SLACK_NS or now > self._served_by) and self._desk.look():
            pass

    def _diagnose_if_due(self) -> None:
        """At most one node at a time says how it is: a message takes 50 us."""
        now = time.monotonic_ns()
        if now < self._next_diagnosis or not self._may_diagnose():
            return
        self._next_diagnosis = now + DIAGNOSE_EVERY_NS
        for node in self.nodes:
            if not node.done and node.safely(node.diagnose):
                return

    def _may_diagnose(self) -> bool:
        """True when the loop waits for its tick, and long enough; always where it has none."""
        rig = self._rig
        if rig is None:
            return all(node.unhurried for node in self.nodes)
        if not self._paced:
            return True
        return rig.pacer.slack > min(DIAGNOSE_SLACK_NS, round(rig.scenario.dt * 0.5e9))  # type: ignore[union-attr]

    def _left(self) -> float | None:
        """Time to the next deadline of a node in the loop, s; None when nothing is late."""
        deadlines = [found for node in self._ring if node.works and (found := node.deadline) is not None]
        return max(0.0, (min(deadlines) - time.monotonic_ns()) * 1e-9) if deadlines else None

    def _rest(self) -> None:
        """Nothing to do: wait for a message or a deadline, or a little."""
        self._publish_for_record()
        for node in self._ring:
            if node.works and node.rehearsal_due and node.unhurried:
                node.safely(node.rehearse)
        left = self._left()
        longest = IDLE_S if left is None else min(left, IDLE_S)
        began = time.monotonic_ns()
        unfruitful = self._idle_turns % PATIENT_TURNS == 0
        idle = not any(node.participates for node in self.nodes)
        if idle or unfruitful or (self._rig is not None and not self._rig.running):
            time.sleep(0.001)  # also lets others run if the wait should return at once for whatever reason
        elif self._waiter is not None:
            self._waiter.wait(longest)
        else:
            time.sleep(min(0.0005, longest) if self._ring else 0.01 if self.nodes[0].lockstep else IDLE_S)
        ended = time.monotonic_ns()
        if ended - began > SLEPT_NS:
            self._rested_at = ended
