# SPDX-License-Identifier: Apache-2.0
"""Decision whether the next tick may run, and stop requests to the actuator node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from rclpy.node import Node
from std_srvs.srv import Trigger

from rths_nodes.core.data import Data
from rths_nodes.core.durations import SECOND
from rths_nodes.core.samples import Command
from rths_nodes.core.wire import RunMark
from rths_nodes.loop.stages.command import DueCommands
from rths_nodes.ros.names import COMPENSATOR, FORMER_TRIP, MONITOR, TRIP, TRIP_REQUESTS
from rths_nodes.ros.nodes.observers import LockstepWindow, RigContext, SignsOfLife
from rths_nodes.ros.transport.endpoints import ByHand, Inbox, open_inbox
from rths_nodes.ros.transport.peers import request_in
from rths_nodes.ros.transport.service_thread import Answer, LoopCalls, ServiceThread

LOOK_EVERY_NS = 4_000_000


Act = Callable[[str], None]


class TickGate:
    """Holds the Command of the next tick, and decides when that tick may run, with or without the Command.

    ``observers`` watches monitor and recorder. ``stops`` contains calls that are executed before the next tick.
    ``receive_stops()`` polls for other stop requests. If no Command arrives for ``patience`` ns, the rig trips.
    """

    def __init__(
        self,
        context: RigContext,
        observers: LockstepWindow | SignsOfLife,
        stops: LoopCalls,
        receive_stops: Callable[[], None],
        patience: int,
    ) -> None:
        self.command: Command | None = None
        self._rig, self._times, self._topics = context.rig, context.times, context.topics
        self._due = DueCommands(context.rig)
        self.observers, self._stops, self._receive_stops = observers, stops, receive_stops
        self._patience = patience
        self._now = context.clock.monotonic_ns
        self._next_look = 0

    def take_command(self) -> None:
        """Poll for the Command of the next tick.

        If ``hops.depth`` > 0, Commands for later ticks arrive early and are kept. In real time the first tick
        waits for its Command, because a slow start could delay this Command.
        """
        topics, due = self._topics, self._due
        waits = self._times.pacer is not None and not self._rig.sample and not due.early
        self.command = due.kept() if (self._rig.under_way.depth or due.early) and not waits else None
        while (
            self.command is None
            and (received := topics.receive("command", topics.codec.unpack_command)) is not None
        ):
            command: Command = received[0]
            waited = self._topics.inboxes["command"].waited() if self._rig.under_way.depth else 0
            self._times.answered(command.sample, waited)
            self.command = due.arrived(command)
        if waits and self.command is None and due.early:
            self.command = due.kept()

    def hand_over(self) -> Command | None:
        rig = self._rig
        if self.command is None and rig.pause.continues and not rig.stopping:
            self.take_command()
        command, self.command = self.command, None
        return command

    @property
    def deadline(self) -> int | None:
        """Time after which the missing Command is late, monotonic ns.

        None if the Command has arrived, if the rig is still at sample 0, or in lockstep.
        """
        if self.command is not None or not self._rig.sample:
            return None
        return self._times.deadline

    def may_tick(self, interrupted: bool = False) -> bool:
        """Execute stop requests, and return True if the next tick may run.

        A tick needs its Command and observers that keep up. A tick of a stop or of a pause, or after the deadline,
        needs neither. ``interrupted`` is true if the operator requests a hold.
        """
        rig = self._rig
        if trips := self._topics.received(TRIP):
            self._heed(trips)
        if self._stops.waiting:
            self._stops.carry_out()
        if (now := self._now()) >= self._next_look:
            self._look(now)
        if interrupted:
            rig.hold("interrupted")
        if rig.stopping or (rig.stop_request and rig.stop_due) or (rig.pause.active and rig.pause.continues):
            return True
        if self._times.pacer and self._overdue():
            return True
        if self.command is None:
            waited = self._times.waited
            if waited > self._patience:
                rig.trip(f"no Command {max(self._due.number, 1)} for {waited / SECOND:.2g} s")
            return False
        return self.observers.follow()

    def receive_trips(self) -> None:
        self._heed(self._topics.received(TRIP))

    def _heed(self, trips: Sequence[Data]) -> None:
        rig = self._rig
        for trip in trips:
            # after the end only a breach changes the outcome
            if not rig.ended or trip["source"] == MONITOR or trip["sample"]:
                sample = self.observers.effective(trip["effective_sample"])
                # an axis limit belongs to the rig, whichever node detected the breach
                ours = trip["source"] == COMPENSATOR and trip["sample"]
                rig.trip(trip["reason"] if ours else f"{trip['source']}: {trip['reason']}", sample)

    def stop_asked(self) -> bool:
        self.receive_trips()
        return self._rig.stop_request is not None

    def _look(self, now: int) -> None:
        self._next_look = now + LOOK_EVERY_NS
        self._receive_stops()
        self.observers.look(now)

    def _overdue(self) -> bool:
        deadline = self.deadline
        if deadline is None or self._now() < deadline:
            return False
        self.take_command()  # the Command may have arrived while this process was suspended
        return True


class StopRequests:
    """Receives stop requests to ``node``: its services ``stop`` and ``trip``, and messages on the topic ``trip``.

    A thread answers the services. ``acts`` is a pair of functions that hold and trip the rig, respectively, for
    the given reason. The loop executes these functions through ``calls`` before a service responds. ``former`` is
    the inbox of ``FORMER_TRIP``; ``warn`` is called if a client uses this name.
    """

    def __init__(
        self,
        node: Node,
        group: ByHand,
        former: Inbox,
        acts: tuple[Act, Act],
        calls: LoopCalls,
        warn: Callable[[str], None],
    ) -> None:
        hold, self._trip = acts
        self._node, self._former, self._calls, self._warn = node, former, calls, warn
        self._requests = [open_inbox(node, row, group, RunMark()) for row in TRIP_REQUESTS]

        def answer(act: Act, reason: str, message: str) -> Answer:
            def carry_out(*_: object) -> object:
                calls.call(partial(act, reason))
                return Trigger.Response(success=True, message=message)

            return carry_out

        trips = "trip service", "the rig trips"
        self._services = {
            node.create_service(Trigger, f"~/{name}", _by_hand, callback_group=group): answer(*of_act)
            for name, of_act in (
                ("stop", (hold, "stop service", "the rig stops and holds")),
                (TRIP, (self._trip, *trips)),
                (FORMER_TRIP, (partial(self._trip_by_former_name, "service"), *trips)),
            )
        }
        log = node.get_logger().warning
        self._thread = ServiceThread(node.context, self._services, calls, log, first=True)
        self._thread.start()

    def receive(self) -> None:
        if self._calls.closed:
            return
        for inbox in self._requests:
            if (data := inbox.take()) is not None:
                self._trip(request_in(data) or "trip requested")
        if self._former.take() is not None:
            self._trip_by_former_name("topic", "trip requested")
        while self._calls.carry_out():
            pass

    def _trip_by_former_name(self, kind: str, reason: str) -> None:
        self._trip(reason)
        self._warn(f"the {kind} {FORMER_TRIP} is now called {TRIP}; the next version does not accept the old name")

    def close(self) -> None:
        self._thread.close()
        for inbox in self._requests:
            self._node.destroy_subscription(inbox.subscription)
        for service in self._services:
            self._node.destroy_service(service)


def _by_hand(request: object, response: object) -> object:
    return response
