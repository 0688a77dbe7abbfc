# SPDX-License-Identifier: Apache-2.0
"""Course of a test in the actuator node: its timing, supervision, and messages, from arming to completion.

``RigClock`` measures times. ``LockstepWindow`` or ``SignsOfLife`` supervises the observers. ``StopRequests``
receives stop requests. ``TickGate`` decides when a tick may run. ``AfterMeasurement`` publishes the messages after
a Measurement. ``Arming`` begins the test, and ``Completion`` ends it.
"""

from __future__ import annotations

import math
import struct
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from rclpy.node import Node
from std_srvs.srv import Trigger

from rths_nodes.core.data import Data
from rths_nodes.core.durations import SECOND, Durations
from rths_nodes.core.samples import Command
from rths_nodes.core.wire import ENCAPSULATION, RunMark, stamp_of
from rths_nodes.loop.outcomes import ExitCode, of_state
from rths_nodes.loop.pacing import ANSWERED, SYSTEM_CLOCK, Clock, Pacer
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.stages.command import DueCommands
from rths_nodes.loop.stages.rig import RigStage
from rths_nodes.loop.supervision.heartbeat import Heartbeat
from rths_nodes.loop.supervision.states import ENDED, LOCKSTEP_WINDOW, State, StopRequest
from rths_nodes.loop.timing import LateData, timing, too_slow
from rths_nodes.ros import environment, names
from rths_nodes.ros.nodes import participation
from rths_nodes.ros.nodes.participation import Phase
from rths_nodes.ros.nodes.settings import NodeSettings, reported_sections
from rths_nodes.ros.transport.endpoints import ByHand, Inbox, open_inbox, request_in
from rths_nodes.ros.transport.middleware import FOUND_S
from rths_nodes.ros.transport.service_thread import LoopCalls, ServiceThread
from rths_nodes.ros.transport.topics import DeferredSends, NodeTopics

KEPT = 4096


class RigClock:
    """Stamps samples and measures durations. ``pacer`` sets the ticks in real time and is None in lockstep.

    ``dt`` is the servo period, s. ``measured_at``, ``began_at`` and ``ended_at`` are the times of the last
    Measurement, of Measurement 0 and of the end (ns of ``clock``, 0: unknown). ``loop`` has durations from
    Measurement to Command. ``work`` has durations from tick to Measurement.
    """

    def __init__(self, dt: float, samples: int, pacer: Pacer | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        self.pacer = pacer
        self.loop, self.work = Durations(samples), Durations(samples)
        self.measured_at = self.began_at = self.ended_at = 0
        self._sent_at = [0] * KEPT
        self._paused = 0
        self._dt = dt
        self._answer_time = round(ANSWERED * dt * SECOND)
        self._started_ns = self._tick_at = 0
        self._now = clock.monotonic_ns
        self._wall_clock = clock.time_ns

    def start(self) -> None:
        self._started_ns = self._wall_clock()

    def begin(self) -> None:
        self.began_at = self._now()

    def end(self) -> None:
        self.ended_at = self._now()

    @property
    def missed(self) -> int:
        return self.pacer.missed if self.pacer else 0

    def stamp_of_tick(self, tick: int) -> int:
        """Return the nominal time of ``tick``, ns since 1970. Ticks of a pause count, but have no samples."""
        return self._started_ns + round((tick + self.missed) * self._dt * SECOND)

    def tick(self) -> None:
        self._tick_at = self._now()

    def pause(self) -> None:
        self._paused += 1

    def measured(self, sample: int) -> int:
        now = self._now()
        if sample:
            self.work.add(now - (self.pacer.began if self.pacer else self._tick_at))
        self.measured_at = self._sent_at[sample % KEPT] = now
        missed = self.pacer.missed if self.pacer else 0
        return self._started_ns + round((sample + missed + self._paused) * self._dt * SECOND)

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
    shutdown: participation.Shutdown
    phase: participation.PhaseMachine
    clock: Clock = SYSTEM_CLOCK


class LockstepWindow:
    """Keeps the rig within LOCKSTEP_WINDOW samples of the observers. Trips it after waiting ``patience`` ns."""

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
        """Return the sample at which a trip takes effect: ``sample``, but at most rig sample + LOCKSTEP_WINDOW."""
        return min(sample, self._rig.sample + LOCKSTEP_WINDOW)

    def follow(self) -> bool:
        rig = self._rig
        # after a stop request little of the run remains, and after a breach the monitor sends no Progress
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
    """Trips the rig if ``heartbeat`` reports a lost observer. For an optional recorder, calls ``warn`` instead."""

    def __init__(
        self, context: RigContext, scenario: Scenario, observers: Sequence[str], warn: Callable[[str], None]
    ) -> None:
        self._rig, self._topics, self._warn = context.rig, context.topics, warn
        self._dt = scenario.dt
        # the monitor also waits for a Target that is bridged or lost
        missing = scenario.bridge.max_bridge + (scenario.samples_per_step + scenario.hops.depth) * scenario.dt
        self._heartbeat = Heartbeat(scenario.heartbeat, observers, scenario.dt, missing)
        self._optional = names.RECORDER if scenario.heartbeat.recorder_lost == "warn" else ""
        self.done: set[str] = set()

    def begin(self, now: int) -> None:
        self._heartbeat.begin(now)

    def look(self, now: int) -> None:
        for message in self._topics.received("progress"):
            behind = (self._rig.sample - message["sample"]) * self._dt
            self._heartbeat.received(message["node"], now, round(behind * SECOND))
            if message["done"]:
                self.done.add(message["node"])
        for peer, warning in self._heartbeat.lost(now):
            if peer == self._optional:
                self._warn(warning)
            else:
                self._rig.trip(warning)

    def effective(self, sample: int) -> int:
        return 0

    def follow(self) -> bool:
        return True


LOOK_EVERY_NS = 4_000_000
Act = Callable[[str], None]


class TickGate:
    """Holds the Command of the next tick, and decides when that tick may run, with or without the Command.

    ``observers`` supervises monitor and recorder. ``stops`` contains stop requests from services, and
    ``receive_stops()`` polls for other stop requests. The rig trips if no Command arrives for ``patience`` ns.
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
        """Poll for the Command of the next tick. Commands for later ticks (``hops.depth`` > 0) are kept.

        In real time, the first tick waits for its Command, which a slow start may delay.
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
        """Deadline of the next Command, monotonic ns. None in lockstep, at sample 0, or if it has arrived."""
        if self.command is not None or not self._rig.sample:
            return None
        return self._times.deadline

    def may_tick(self, interrupted: bool = False) -> bool:
        """Execute stop requests, and return True if the next tick may run.

        A tick needs its Command, and observers that keep up. During a stop or a pause, and after the deadline,
        neither is needed. ``interrupted`` is true if the operator requests a hold.
        """
        rig = self._rig
        if trips := self._topics.received(names.TRIP):
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
        self._heed(self._topics.received(names.TRIP))

    def _heed(self, trips: Sequence[Data]) -> None:
        rig = self._rig
        for trip in trips:
            # after the end only a breach changes the outcome
            if not rig.ended or trip["source"] == names.MONITOR or trip["sample"]:
                sample = self.observers.effective(trip["effective_sample"])
                # an axis limit belongs to the rig, whichever node detected the breach
                ours = trip["source"] == names.COMPENSATOR and trip["sample"]
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

    ``acts`` (hold, trip) stop the rig. The loop executes acts through ``calls`` before a service responds.
    ``former`` is the inbox of ``FORMER_TRIP``. ``warn`` is called if a client uses the former name.
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
        self._requests = [open_inbox(node, row, group, RunMark()) for row in names.TRIP_REQUESTS]

        trips = "trip service", "the rig trips"
        answers = {
            "stop": partial(self._serve, hold, "stop service", "the rig stops and holds"),
            names.TRIP: partial(self._serve, self._trip, *trips),
            names.FORMER_TRIP: partial(self._serve, partial(self._trip_by_former_name, "service"), *trips),
        }
        self._services = {
            node.create_service(Trigger, f"~/{name}", answer, callback_group=group): answer
            for name, answer in answers.items()
        }
        log = node.get_logger().warning
        self._thread = ServiceThread(node.context, self._services, calls, log, first=True)
        self._thread.start()

    def _serve(self, act: Act, reason: str, message: str, *_: object) -> object:
        self._calls.call(partial(act, reason))
        return Trigger.Response(success=True, message=message)

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
        self._warn(names.renamed(kind))

    def close(self) -> None:
        self._thread.close()
        for inbox in self._requests:
            self._node.destroy_subscription(inbox.subscription)
        for service in self._services:
            self._node.destroy_service(service)


PERIOD_S = 0.01
"""Period of ``/clock``, s of test time."""
LOGGED = (State.ARMED, State.RUNNING, *ENDED)
_TIME = struct.Struct("<iI")


class AfterMeasurement:
    """Publishes TestState and, after each Measurement, the messages that are not part of the loop.

    TestState contains the ``constants`` of the test. If ``gathered`` is true, axis nodes send the true states
    later. In lockstep, the time of every ``clock_every``-th sample (0: never) is published on ``/clock``.
    """

    def __init__(
        self,
        context: RigContext,
        deferred: DeferredSends,
        constants: Mapping[str, object],
        gathered: bool = False,
        clock_every: int = 0,
        log: Callable[[str], object] = str,
    ) -> None:
        self._rig, self._topics, self._phase = context.rig, context.topics, context.phase
        self._port: Any = context.rig.port
        self._deferred, self._constants = deferred, dict(constants)
        self._gathered, self._clock_every, self._log = gathered, clock_every, log
        self.announced: State | None = None
        self.due: tuple[int, int] | None = None
        self._of_ticks: deque[tuple[int, int, int]] = deque(maxlen=KEPT)

    def announce(self) -> None:
        machine, sample = self._rig.machine, self._rig.sample
        self.announced = machine.state
        self._phase.follow(participation.StateOfTest(machine.state, sample, machine.reason))
        if machine.state in LOGGED:  # states during motion are not logged, because logging takes time
            self._log(f"{machine.state.name.lower()} at sample {max(sample, 0)}")
        state = {"state": int(machine.state), "sample": sample, "reason": machine.reason}
        self._topics.publish("test_state", self._constants | state)

    def announce_change(self) -> None:
        if self._rig.machine.state != self.announced:
            self.announce()

    def measured(self, sample: int, stamp: int) -> None:
        self.due = sample, stamp
        if self._gathered:
            self._of_ticks.append((self._rig.ticks, sample, stamp))

    def send(self) -> None:
        if self.due is None:
            return
        sample, stamp = self.due
        self.due = None
        if self._gathered:
            self.pass_on()
        else:  # the true state of a real rig is unknown
            self._deferred.put("true_state", self._topics.codec.pack_measurement, self._rig.truth, stamp)
        if self._clock_every and sample % self._clock_every == 0:
            self._topics.senders[names.CLOCK.name](ENCAPSULATION + _TIME.pack(*stamp_of(stamp)))
        if self._rig.machine.state != self.announced:
            self.announce()

    def pass_on(self) -> bool:
        if not self._gathered:
            return True
        pack = self._topics.codec.pack_measurement
        while (true_state := self._port.true_state()) is not None:
            true = true_state[0]
            if self._of_ticks and self._of_ticks[0][0] == true.sample:  # ticks of a pause have no sample
                _, sample, stamp = self._of_ticks.popleft()
                self._deferred.put("true_state", pack, partial(replace, true, sample=sample), stamp)
        return bool(self._port.true_state_complete)


class StartRefused(Exception):
    """Raised to refuse a test. The arguments are the reason and the exit code (default: REFUSED)."""


class Arming:
    """Arms the rig, or refuses the test, after the activation of the actuator node.

    All ``peers`` must report ready within ``peer_timeout``, with the same ``settings``. Then ``questions``
    compares the clocks of other machines. In real time, a round trip to another machine may take at most 1 +
    ``hops.depth`` samples.

    After a refusal, the node waits up to ``farewell`` s for its peers to leave, because a peer accepts a refusal
    only after it has discovered this node. A real rig is armed at the earliest FOUND_S s after the activation. By
    then, clients that can stop the test have discovered the node.
    """

    def __init__(
        self,
        context: RigContext,
        settings: NodeSettings,
        handshake: participation.Handshake,
        announcer: AfterMeasurement,
        questions: participation.ClockQuestions,
    ) -> None:
        self.peers = tuple(peer for peer in settings.peers if peer not in (names.ACTUATOR, names.CONSOLE))
        self.farewell = 0.0
        self._settings, self._handshake, self._announcer = settings, handshake, announcer
        self._questions = questions
        self._rig, self._topics, self._clock = context.rig, context.topics, context.clock
        self._shutdown, self._phase = context.shutdown, context.phase
        self._period = math.inf if settings.lockstep else settings.scenario.dt
        self._depth = settings.scenario.hops.depth
        self._timeout = settings.value("peer_timeout")
        self._statuses: dict[str, Data] = {}
        self._active_since = 0

    def activate(self) -> None:
        self._active_since = self._clock.monotonic_ns()

    @property
    def _open_s(self) -> float:
        return (self._clock.monotonic_ns() - self._active_since) / SECOND

    def work(self) -> bool:
        announcer, machine = self._announcer, self._rig.machine
        if announcer.announced is None:
            announcer.announce()
        interrupted, request = self._shutdown.interrupted, self._rig.stop_request
        if interrupted or request is not None:
            request = request or StopRequest("interrupted")
            machine.to(State.HELD if interrupted else request.end, f"{request.reason} before the test began")
            announcer.announce()
            self.farewell = FOUND_S
            return False
        # The last status of each peer counts. A node is not ready until it knows the run.
        for status in self._topics.received("node_status", lambda status: status["node"] in self._settings.peers):
            self._statuses[status["node"]] = status if status["run"] else {**status, "ready": False}
        try:
            # on a real rig, clients that can stop the test must have discovered this node first
            stoppable = self._rig.port.simulated or self._open_s >= FOUND_S
            if not (self._may_begin() and stoppable and self._questions.done_before()):
                return False
            self._check_ways()
        except StartRefused as refused:
            self.farewell = FOUND_S
            self.refuse(*refused.args)
            return False
        self._topics.close_guards()
        machine.to(State.ARMED)
        announcer.announce()
        return True

    def _may_begin(self) -> bool:
        self._check_hashes()
        missing = [peer for peer in self.peers if not self._statuses.get(peer, {}).get("ready")]
        if missing or self._phase.now < Phase.READY or self._topics.missing():  # a ready peer may have left
            self._check_timeout(missing)
            return False
        self._check_values()
        return not self._handshake.duplicated()

    def _check_hashes(self) -> None:
        mine = self._settings.hash
        for node, status in self._statuses.items():
            if status["scenario_hash"] != mine:
                raise StartRefused(
                    f"{node} and {names.ACTUATOR} have different scenarios or run ids: hash "
                    f"{status['scenario_hash'] or 'none'} instead of {mine} ({self._settings.scenario.name}). "
                    f"If another test is running, choose another namespace or {environment.DOMAIN}"
                )

    def _check_timeout(self, missing: Sequence[str]) -> None:
        if self._open_s <= self._timeout:
            return
        problems = {peer: self._statuses.get(peer, {}).get("problem") for peer in missing}
        absent = ", ".join(f"{peer} ({problem})" if problem else peer for peer, problem in problems.items())
        absent = absent or f"{names.ACTUATOR} (waits for {self._topics.missing()})"
        settings = environment.discovery_settings()
        perhaps = f"; discovery uses {settings}" if settings else ""
        raise StartRefused(f"not ready within {self._timeout:g} s: {absent}{perhaps}", ExitCode.FAILED)

    def _check_values(self) -> None:
        first: dict[str, tuple[str, object]] = {}
        for node, status in sorted(self._statuses.items()):
            for section, values in reported_sections(status).items():
                other, expected = first.setdefault(section, (node, values))
                if values != expected:
                    raise StartRefused(
                        f"{section}: {other} and {node} have different values. Set equal overrides for all nodes"
                    )

    def _check_ways(self) -> None:
        if silent := self._questions.silent:
            raise StartRefused(f"no answer from {', '.join(silent)} on {participation.ANSWER}", ExitCode.FAILED)
        for peer in names.LOOP:
            problem = too_slow(peer, self._questions.before.get(peer, ()), self._period, self._depth)
            if problem:
                raise StartRefused(problem)

    def refuse(self, reason: str, exit_code: int = ExitCode.REFUSED) -> None:
        self._rig.machine.to(State.IDLE, f"refused: {reason}")
        self._announcer.announce()
        self._phase.end(exit_code, reason)


LINGER_NS = 5_000_000_000
"""Timeout for monitor and recorder to complete their work after the test, ns."""
JUDGED_NS = 2_000_000_000
"""Timeout for the monitor to check the last samples, ns."""
TRUTH_NS = 200_000_000
"""Timeout for the true states from axis nodes after the test, ns."""


class Completion:
    """Completes the work of the actuator node between the last sample of the rig and the end of the node.

    The monitor may still trip a finished test through ``gate``. The node publishes its Summary after the monitor's
    verdict, the last true state, and a second comparison of clocks. The node exits when all ``observers`` have
    finished, or after ``LINGER_NS``.
    """

    def __init__(
        self,
        context: RigContext,
        gate: TickGate,
        announcer: AfterMeasurement,
        observers: Sequence[str],
        questions: participation.ClockQuestions,
    ) -> None:
        self._rig, self._times, self._topics = context.rig, context.times, context.topics
        self._shutdown, self._phase, self._now = context.shutdown, context.phase, context.clock.monotonic_ns
        self._gate, self._announcer, self._questions = gate, announcer, questions
        self._waiting = set(observers)

    def work(self) -> None:
        rig, shutdown = self._rig, self._shutdown
        if not self._times.ended_at:
            self._times.end()
            rig.port.disarm_watchdog()
        elapsed = self._now() - self._times.ended_at
        done = (message["node"] for message in self._topics.received("progress") if message["done"])
        self._waiting.difference_update(done, self._gate.observers.done)
        self._settle()
        if not shutdown.reported:
            if self._waits(elapsed):
                return
            shutdown.report()  # the recorder closes the recording after this report
        unneeded = shutdown.patience_over and not self._times.began_at  # observers have received nothing
        if not self._waiting or elapsed > LINGER_NS or shutdown.exit_now or unneeded:
            rig.close()
            self._phase.to(Phase.GONE)

    def _settle(self) -> None:
        self._gate.receive_trips()
        self._rig.settle()
        self._announcer.announce_change()
        machine = self._rig.machine
        code = ExitCode.FAILED if self._rig.failure else of_state(machine.state)
        if code is not ExitCode.FINISHED:
            self._phase.blame(self._phase.exit_code or code, machine.reason)

    def _waits(self, elapsed: int) -> bool:
        over = self._shutdown.exit_now
        finished = self._rig.machine.state == State.FINISHED
        if finished and not over and names.MONITOR in self._waiting and elapsed < JUDGED_NS:
            return True
        if not self._times.began_at:
            return False
        if not self._announcer.pass_on() and elapsed < TRUTH_NS:
            return True
        return not (over or elapsed > JUDGED_NS or self._questions.done_after())
