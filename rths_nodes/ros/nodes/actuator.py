# SPDX-License-Identifier: Apache-2.0
"""Actuator node: drives the rig, sets the ticks, and publishes Measurements and the state of the test.

If each axis has its own node (``axis.py``), the actuator node sends the Commands to the axis nodes.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from rclpy.lifecycle import LifecycleState, TransitionCallbackReturn

from rths_nodes.core.data import flatten
from rths_nodes.core.durations import SECOND
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Command, Measurement
from rths_nodes.core.wire import Codec, mark_of
from rths_nodes.laboratory.force_control import NODES, ForceLoops
from rths_nodes.laboratory.ports.per_axis import LoadedAxesPort, PerAxisPort, before_axes
from rths_nodes.loop.faults.kinds import STREAMS
from rths_nodes.loop.outcomes import ExitCode, of_state
from rths_nodes.loop.pacing import SYSTEM_CLOCK, Clock, Pacer, pacer_of
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.stages.axis import check_layout
from rths_nodes.loop.supervision.states import State
from rths_nodes.loop.timing import of_hop, port_numbers
from rths_nodes.ros.names import ACTUATOR, FORMER_TRIP, MONITOR, RECORDER, axis_node
from rths_nodes.ros.nodes.after_measurement import PERIOD_S, AfterMeasurement
from rths_nodes.ros.nodes.arming import Arming
from rths_nodes.ros.nodes.base import RthsNode
from rths_nodes.ros.nodes.clock_exchange import ClockQuestions
from rths_nodes.ros.nodes.observers import RigClock, RigContext, watch_observers
from rths_nodes.ros.nodes.phase import UNDER_WAY, Phase
from rths_nodes.ros.nodes.tick_gate import StopRequests, TickGate
from rths_nodes.ros.transport import peers
from rths_nodes.ros.transport.service_thread import LoopCalls
from rths_nodes.ros.transport.topics import NodeTopics

LINGER_NS = 5_000_000_000
"""Timeout for monitor and recorder to complete their work after the test, ns."""

JUDGED_NS = 2_000_000_000
"""Timeout for the monitor to check the last samples, ns."""

TRUTH_NS = 200_000_000
"""Timeout for the true states from axis nodes after the test, ns."""

MOVING = (State.RUNNING, State.STOPPING)
LOOK_S = 0.01


GONE_NS = 20_000_000
"""Time without a Measurement after which the node checks that the axis node is alive, ns."""

LOST_NS = 250_000_000
"""Time without a Measurement after which an axis is considered lost if a stop is requested, ns."""


class TopicLinks:
    """Sends Commands to the axis nodes and receives their answers, on topics below the name of each axis.

    ``stamp(tick)`` returns the nominal time of a tick, ns. ``stop_asked()`` returns True if a stop is requested.
    An axis without an answer for ``patience`` ns is considered lost.
    """

    def __init__(
        self,
        topics: NodeTopics,
        stamp: Callable[[int], int],
        stop_asked: Callable[[], bool],
        patience: int,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._topics = topics
        self._stamp, self._stop_asked = stamp, stop_asked
        self._patience = patience
        self._codec = Codec(0, 1, 0, run=topics.run)
        self._now = clock.monotonic_ns
        self._sent_at = 0

    def send_command(self, axis: str, command: Command) -> None:
        data = self._codec.pack_command(command, self._stamp(command.sample))
        self._topics.senders[f"{axis}/command"](data)
        self._sent_at = self._now()

    def measurement_of(self, axis: str) -> Measurement | None:
        measurement = self._topics.receive(f"{axis}/measurement", self._codec.unpack_measurement)
        return measurement and measurement[0]

    def true_state_of(self, axis: str) -> tuple[Measurement, int] | None:
        return self._topics.receive(f"{axis}/true_state", self._codec.unpack_measurement)

    def lost(self, axes: Sequence[str], sample: int) -> str:
        waited = self._now() - self._sent_at
        if waited < GONE_NS:
            return ""
        reason = f"no Measurement {sample} from {', '.join(map(axis_node, axes))}"
        stop_asked = self._stop_asked()
        if any(self._topics.guards[f"{axis}/measurement"].gone for axis in axes):
            return f"{reason}, because a node has left"
        if waited > self._patience or (stop_asked and waited > LOST_NS):
            return f"{reason} for {waited / SECOND:.2g} s"
        return ""


def port_of_axes(scenario: Scenario, axes: Sequence[str], links: TopicLinks) -> PerAxisPort | LoadedAxesPort:
    """Return the port that drives the nodes of all ``axes`` and closes their force loops.

    Raises ConfigError if ``axes`` are not the axes of the scenario, or if the axes must share a node.
    """
    if set(axes) != set(scenario.axes):
        axis_nodes = ", ".join(map(axis_node, scenario.axes))
        raise ConfigError(f"peers: has axis nodes of {', '.join(axes)}, but must have all or none of {axis_nodes}")
    check_layout(scenario)
    port = PerAxisPort(tuple(scenario.axes), scenario.port.transport_samples, links)
    return before_axes(port, ForceLoops(scenario.axes, NODES, scenario.dt))


class ActuatorNode(RthsNode):
    role = ACTUATOR
    stops_rig = True
    rig: Any = None
    pacer: Pacer | None = None
    _on_armed: Callable[[], None] = staticmethod(lambda: None)
    _stops: StopRequests | None = None
    _start: Any = None
    _gate: TickGate

    def build(self, assembly: Assembly) -> None:
        scenario, topics, clock = assembly.scenario, self.topics, self.clock
        # a new id distinguishes this run from others of the same name, and from their replayed recordings
        topics.join(mark_of(self.settings.value("run_id"), secrets.token_hex()))
        axes = self.settings.axes
        self._follows = not axes and assembly.port.follows_rig
        transport = scenario.port.transport_samples if self._follows else None
        paced = not self.settings.lockstep
        self.pacer = pacer_of(scenario.dt, scenario.samples, transport, clock) if paced else None
        self._times = RigClock(scenario.dt, scenario.samples, self.pacer, clock)
        patience = round(scenario.port.longest_wait * SECOND)
        if axes:  # the gate does not exist yet: it needs the rig, and the rig needs the port
            links = TopicLinks(topics, self._times.stamp_of_tick, lambda: self._gate.stop_asked(), patience, clock)
        port = port_of_axes(scenario, axes, links) if axes else assembly.port
        self.awaited_streams = (*STREAMS, *(f"{axis}/measurement" for axis in axes))
        self.rig = rig = self._host.rig(scenario, self.interposer.port(port))
        self.outside.callback(rig.close)
        rig.connect(self.pacer)
        if self._follows and self.settings.lockstep and not rig.port.in_lockstep:
            rig.port.close()
            raise ConfigError("pace = 'lockstep': must be realtime, because the rig has its own clock")
        if self.pacer:
            rig.port.arm_watchdog()
        self._measuring = False

        def warn(message: str) -> None:
            self.phase.remark(message)
            self.get_logger().warning(message)

        self._warn = warn
        observers = [peer for peer in (MONITOR, RECORDER) if peer in self.settings.peers]
        self._rig_context = context = RigContext(rig, self._times, topics, self.shutdown, self.phase, clock)
        self._watch = watch_observers(context, scenario, observers, self._warn, self.settings.clocked)
        self._stop_calls = LoopCalls()
        self._gate = TickGate(context, self._watch, self._stop_calls, self._receive_stops, patience)
        # compute the hash now: under real-time scheduling, threads of a library may deadlock
        run = {"scenario_hash": self.settings.hash, "run_id": self.settings.value("run_id")}
        self._after = AfterMeasurement(
            context,
            self.deferred,
            assembly.names.test_constants(assembly.scenario) | run,
            gathered=bool(axes),
            clock_every=max(1, round(PERIOD_S / scenario.dt)) if self.settings.publishes_clock else 0,
            log=self.get_logger().info,
        )
        self._questions = ClockQuestions(self.shared, self.settings.elsewhere)
        self._end = Completion(context, self._gate, self._after, observers, self._questions)
        self.clocks = self._times.durations()

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        done = super().on_configure(state)
        if done == TransitionCallbackReturn.SUCCESS:
            former, acts = self.topics.inboxes[FORMER_TRIP], (self.rig.hold, self.rig.trip)
            self._stops = StopRequests(self, self.topics.group, former, acts, self._stop_calls, self._warn)
            self.outside.callback(self._stops.close)
            self._start = Arming(self._rig_context, self.settings, self.handshake, self._after, self._questions)
        return done

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        done = super().on_activate(state)
        if done == TransitionCallbackReturn.SUCCESS:
            self._start.activate()
        return done

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        self.stop("the actuator node was deactivated")
        return super().on_deactivate(state)

    def _receive_stops(self) -> None:
        if self._stops is not None:
            self._stops.receive()

    def refuse(self, reason: str) -> None:
        self._start.refuse(reason)

    def flush(self) -> None:
        """Flush the topics. If the test did not begin, first wait up to ``farewell`` s for the peers to leave."""
        if self.own_process and self._start and self._start.farewell:
            peer_names = self.location.full_names(self._start.peers)
            peers.wait_until_gone(self, peer_names, self._start.farewell, self.clock)
        super().flush()

    @property
    def participates(self) -> bool:
        return self.phase.active or (self.rig is not None and self.rig.machine.state >= State.ARMED)

    @property
    def under_way(self) -> bool:
        return self.running or (self.phase.active and not self.phase.ended)

    @property
    def running(self) -> bool:
        return self.rig is not None and self.rig.machine.state in MOVING

    @property
    def last_sample(self) -> int:
        return int(self.rig.sample)

    @property
    def last_tick(self) -> int:
        """Number of the last tick. Axis nodes count ticks, because samples do not continue during a pause."""
        return int(self.rig.ticks)

    @property
    def awaits_answer(self) -> bool:  # type: ignore[override]
        return self.running and (self._measuring or self._gate.command is None)

    @property
    def deadline(self) -> int | None:  # type: ignore[override]
        return self._gate.deadline if self.running and not self._measuring else None

    @property
    def slack(self) -> int | None:
        """Time until the next tick, ns; None in lockstep, without motion, or if the node waits for messages."""
        if self.pacer is None or not self.running:
            return None
        if self._follows:
            return self.pacer.slack if self._measuring else None
        if self._measuring:
            return None
        return self.pacer.slack if self._gate.may_tick(self.shutdown.interrupted) else None

    def look(self) -> bool:
        self._receive_stops()
        if self.rig is not None and self.rig.levels is not None:
            for warning in self.rig.levels.take_warnings():
                self.get_logger().warning(warning)
        return super().look()

    def when_armed(self, call: Callable[[], None]) -> None:
        self._on_armed = call

    def work(self, limit: int = 1_000_000) -> bool:
        gate = self._gate
        if self.rig.machine.state not in MOVING:
            if self.rig.ended:
                self._after.send()
                self._end.work()
                return False
            if self.rig.machine.state is not State.ARMED:
                return self._start.work()
            self._on_armed()
            self._times.start()
            self.rig.begin()
            self._measuring = True
        if self._measuring:
            if self._follows and self.pacer is None:
                self.rig.port.wait(LOOK_S)
            return self._complete()
        if gate.command is None and not self.rig.stopping:
            gate.take_command()
        self._after.send()
        if (self.pacer is not None and not self._follows) or not gate.may_tick(self.shutdown.interrupted):
            return False
        self.tick()
        return True

    def tick(self) -> None:
        """Run the next tick, with or without a Command. In real time, first wait for the time of the tick.

        If the Measurement is not available immediately, a later call completes the sample.
        """
        if self._measuring:
            self.rig.port.wait(LOOK_S)
            self._complete()
            return
        if self._after.due is not None:
            self._after.send()
        self.deferred.collect()
        self._times.tick()
        command = self._gate.hand_over()
        self.rig.begin_tick(command, late=command is None and not self.rig.stop_due)
        self._measuring = True
        self._complete()

    def _complete(self) -> bool:
        rig, times, topics = self.rig, self._times, self.topics
        if not rig.port.ready():
            return False
        self._measuring = False
        measured = rig.complete()
        if measured is None:
            times.pause()
            self._after.pass_on()
            return True
        if measured.sample == 0:
            times.begin()
            self._watch.begin(times.began_at)
            self._after.announce()
            if self.pacer:
                self.pacer.start()
        stamp = times.measured(measured.sample)
        topics.senders["measurement"](topics.codec.pack_measurement(measured, stamp))
        self._after.measured(measured.sample, stamp)
        return True

    def counters(self) -> dict[str, int]:
        rig = self.rig
        counts = {"bridged": rig.bridged, "slowed": rig.slowed, "late": rig.late_commands}
        return super().counters() | {"missed": self._times.missed} | counts

    def final_numbers(self) -> tuple[int, dict[str, float]]:
        timing = self.rig.timing or self._times.summary(self.rig.late(self.rig.bridged), self.rig.late_commands)
        timing |= self.rig.counts
        timing["hops"] = {self.role: of_hop(self._times.work)}
        timing |= {"clocks": clocks} if (clocks := self._questions.numbers()) else {}
        return self.rig.sample, flatten(timing | port_numbers(self.rig.port), "timing")

    def stop(self, reason: str) -> None:
        if self.rig is not None and self.rig.machine.state in UNDER_WAY:
            self.rig.hold(reason)

    def trip(self, reason: str, sample: int = 0, effective: int = 0) -> None:
        self.rig.trip(reason)

    def go_safe(self, reason: str) -> None:
        rig = self.rig
        if rig is None:
            return
        with suppress(Exception):  # the connection to the rig may have failed
            rig.port.safe()
        if self.running:
            if rig.machine.state == State.RUNNING:
                rig.machine.to(State.STOPPING, reason)
            rig.machine.to(State.TRIPPED, reason)
            self._after.announce()


class Completion:
    """Completes the work of the actuator node between the last sample of the rig and the end of the node.

    The monitor may still trip a finished test through ``gate``. After the monitor's verdict and the last true
    state, ``questions`` compares the clocks again, and the node publishes its Summary. The node leaves when all
    ``observers`` have finished.
    """

    def __init__(
        self,
        context: RigContext,
        gate: TickGate,
        announcer: AfterMeasurement,
        observers: Sequence[str],
        questions: ClockQuestions,
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
            if self._unjudged(elapsed) or self._truth_missing(elapsed) or self._asks(elapsed):
                return
            shutdown.report()  # The recorder closes after this report.
        unneeded = shutdown.patience_over and not self._times.began_at  # The observers have received nothing.
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

    def _unjudged(self, elapsed: int) -> bool:
        if self._rig.machine.state != State.FINISHED or self._shutdown.exit_now:
            return False
        return MONITOR in self._waiting and elapsed < JUDGED_NS

    def _asks(self, elapsed: int) -> bool:
        if not self._times.began_at or self._shutdown.exit_now or elapsed > JUDGED_NS:
            return False
        return not self._questions.done_after()

    def _truth_missing(self, elapsed: int) -> bool:
        if not self._times.began_at:
            return False
        return not self._announcer.pass_on() and elapsed < TRUTH_NS
