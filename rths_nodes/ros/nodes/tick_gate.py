# SPDX-License-Identifier: Apache-2.0
"""Timing of a test in the actuator node: supervision of observers, stop requests, and release of the next tick."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from rclpy.node import Node
from std_srvs.srv import Trigger

from rths_nodes.core.data import Data
from rths_nodes.core.durations import SECOND, Durations
from rths_nodes.core.samples import Command
from rths_nodes.core.wire.layout import RunMark
from rths_nodes.loop.indices.late_periods import LateData
from rths_nodes.loop.pacing import ANSWERED, SYSTEM_CLOCK, Clock, Pacer
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.stages.command import DueCommands
from rths_nodes.loop.stages.rig import RigStage
from rths_nodes.loop.supervision.heartbeat import Heartbeat
from rths_nodes.loop.supervision.states import LOCKSTEP_WINDOW
from rths_nodes.loop.timing import timing
from rths_nodes.ros.names import COMPENSATOR, FORMER_TRIP, MONITOR, RECORDER, TRIP, TRIP_REQUESTS, renamed
from rths_nodes.ros.nodes.participation import PhaseMachine, Shutdown
from rths_nodes.ros.transport.endpoints import ByHand, Inbox, open_inbox
from rths_nodes.ros.transport.peers import request_in
from rths_nodes.ros.transport.service_thread import Answer, LoopCalls, ServiceThread
from rths_nodes.ros.transport.topics import NodeTopics

KEPT = 4096


class RigClock:
    """Stamps samples and measures durations. ``pacer`` sets the ticks in real time and is None in lockstep.

    ``dt`` is the servo period, s. ``measured_at``, ``began_at`` and ``ended_at`` are the times of the last
    Measurement, of Measurement 0 and of the end (ns of ``clock``); 0 means unknown. ``loop`` has durations from
    Measurement to Command; ``work`` has durations from tick to Measurement.
    """

    def __init__(self, dt: float, samples: int, pacer: Pacer | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        self.pacer = pacer
        self.loop, self.work = Durations(samples), Durations(samples)
        self.measured_at = self.began_at = self.ended_at = 0
        self._sent_at = [0] * KEPT
        self.paused = 0
        """Number of ticks during pauses, which have no samples."""
        self._dt = dt
        self._answer_time = round(ANSWERED * dt * SECOND)
        self._started_ns = self._tick_at = 0
        self._now = clock.monotonic_ns
        self._wall_clock = clock.time_ns

    def start(self) -> None:
        self._started_ns = self._wall_clock()

    def begin(self) -> None:
        self.began_at = self._now()

    @property
    def missed(self) -> int:
        return self.pacer.missed if self.pacer else 0

    def stamp_of_tick(self, tick: int) -> int:
        """Return the nominal time of ``tick``, ns since 1970. Ticks of a pause count, but have no samples."""
        return self._started_ns + round((tick + self.missed) * self._dt * SECOND)

    def tick(self) -> None:
        self._tick_at = self._now()

    def measured(self, sample: int) -> int:
        now = self._now()
        if sample:
            self.work.add(now - (self.pacer.began if self.pacer else self._tick_at))
        self.measured_at = self._sent_at[sample % KEPT] = now
        missed = self.pacer.missed if self.pacer else 0
        return self._started_ns + round((sample + missed + self.paused) * self._dt * SECOND)

    def answered(self, sample: int, waited: int = 0) -> None:
        self.loop.add(self._now() - waited - self._sent_at[(sample - 1) % KEPT])

    @property
    def waited(self) -> int:
        """Time since the last Measurement was sent, ns."""
        return int(self._now() - self.measured_at)

    @property
    def deadline(self) -> int | None:
        return max(self.pacer.due, self.measured_at + self._answer_time) if self.pacer else None

    def durations(self) -> dict[str, Durations]:
        durations = {"loop": self.loop, "work": self.work}
        return durations | {"lateness": self.pacer.lateness} if self.pacer else durations

    def summary(self, late: LateData, late_commands: int) -> Data:
        lateness = self.pacer.lateness.seconds if self.pacer else np.empty(0)
        running = (self.ended_at - self.began_at) / SECOND if self.began_at else 0.0
        period = self._dt if self.pacer else None
        counts = {"slipped": self.pacer.slips if self.pacer else 0, "late_commands": late_commands}
        return counts | timing(running, self.loop.seconds, lateness, self.missed, late.bridged, period, late.gap)


@dataclass(frozen=True)
class RigContext:
    rig: RigStage
    times: RigClock
    topics: NodeTopics
    shutdown: Shutdown
    phase: PhaseMachine
    clock: Clock = SYSTEM_CLOCK


class LockstepWindow:
    """Lets the rig run ``LOCKSTEP_WINDOW`` samples ahead of the slowest observer. Waits up to ``patience`` ns."""

    def __init__(self, context: RigContext, observers: Sequence[str], patience: int) -> None:
        self._rig, self._times, self._topics = context.rig, context.times, context.topics
        self._patience = patience
        self.done: set[str] = set()
        self._seen = dict.fromkeys(observers, -1)
        self._window = LOCKSTEP_WINDOW - context.rig.ahead
        self._open_until = self._window - 1

    def begin(self, now: int) -> None: ...

    def look(self, now: int) -> None:
        """Do nothing, because ``follow`` polls when necessary."""

    def effective(self, sample: int) -> int:
        """Return the sample at which a trip takes effect: ``sample``, limited to the window ahead of the rig."""
        return min(sample, self._rig.sample + LOCKSTEP_WINDOW)

    def follow(self) -> bool:
        rig = self._rig
        # after a stop request the run is short, and after a breach the monitor sends nothing
        if rig.sample < self._open_until or not self._seen or rig.stop_request:
            return True
        for message in self._topics.received("progress"):
            if message["node"] in self._seen:
                self._seen[message["node"]] = message["sample"]
            if message["done"]:
                self.done.add(message["node"])
        self._open_until = min(self._seen.values()) + self._window
        within = rig.sample < self._open_until
        if not within and self._times.waited > self._patience:
            slowest = min(self._seen, key=self._seen.__getitem__)
            rig.trip(f"no Progress from the {slowest} node for {self._patience / SECOND:.2g} s")
        return within


class SignsOfLife:
    """Trips the rig if ``heartbeat`` reports a lost observer; calls ``warn`` instead for one in ``optional``."""

    def __init__(
        self,
        context: RigContext,
        heartbeat: Heartbeat,
        dt: float,
        optional: Sequence[str] = (),
        warn: Callable[[str], None] = lambda message: None,
    ) -> None:
        self._rig, self._topics, self._heartbeat = context.rig, context.topics, heartbeat
        self._dt = dt
        self._optional = frozenset(optional)
        self.done: set[str] = set()
        self._warn = warn

    def begin(self, now: int) -> None:
        self._heartbeat.begin(now)

    def look(self, now: int) -> None:
        for message in self._topics.received("progress"):
            behind = (self._rig.sample - message["sample"]) * self._dt
            self._heartbeat.received(message["node"], now, round(behind * SECOND))
            if message["done"]:
                self.done.add(message["node"])
        for peer, warning in self._heartbeat.lost(now):
            if peer in self._optional:
                self._warn(warning)
            else:
                self._rig.trip(warning)

    def effective(self, sample: int) -> int:
        return 0

    def follow(self) -> bool:
        return True


def watch_observers(
    context: RigContext,
    scenario: Scenario,
    observers: Sequence[str],
    warn: Callable[[str], None],
    clocked: bool,
) -> LockstepWindow | SignsOfLife:
    if not clocked:
        return LockstepWindow(context, observers, round(scenario.port.longest_wait * SECOND))
    # the monitor also waits for a Target that is bridged or lost
    missing = scenario.bridge.max_bridge + (scenario.samples_per_step + scenario.hops.depth) * scenario.dt
    heartbeat = Heartbeat(scenario.heartbeat, observers, scenario.dt, missing)
    optional = [RECORDER] if scenario.heartbeat.recorder_lost == "warn" else []
    return SignsOfLife(context, heartbeat, scenario.dt, optional, warn)


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
        """Poll for the Command of the next tick; Commands for later ticks (``hops.depth`` > 0) are kept.

        In real time the first tick waits for its Command, because a slow start could delay this Command.
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
        """Time after which the missing Command is late, monotonic ns; None at sample 0 and in lockstep."""
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

    The loop executes ``acts``, which hold and trip the rig, through ``calls`` before a service responds.
    ``former`` is the inbox of ``FORMER_TRIP``; ``warn`` is called if a client uses this name.
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
        self._warn(renamed(kind))

    def close(self) -> None:
        self._thread.close()
        for inbox in self._requests:
            self._node.destroy_subscription(inbox.subscription)
        for service in self._services:
            self._node.destroy_service(service)


def _by_hand(request: object, response: object) -> object:
    return response
