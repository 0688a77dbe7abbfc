# SPDX-License-Identifier: Apache-2.0
"""Actuator node of the rig, and axis nodes, which receive Commands from the actuator node.

The actuator node drives the port, generates the ticks, and publishes Measurements and the state of the test. The
namespace of an axis node ends with the axis name (``rths/story_1``). An axis node answers each Command, and stops
its axis if no Commands arrive.
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
from rths_nodes.core.samples import FLAG_TRIPPED, Command, Measurement
from rths_nodes.core.wire import Codec, mark_of
from rths_nodes.laboratory.force_control import NODES, ForceLoops
from rths_nodes.laboratory.ports.per_axis import LoadedAxesPort, PerAxisPort, before_axes
from rths_nodes.loop.faults import STREAMS
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.pacing import SYSTEM_CLOCK, Clock, Pacer, pacer_of
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.stages.rig import AxisStage, check_layout
from rths_nodes.loop.supervision.states import State
from rths_nodes.loop.timing import of_hop, port_numbers
from rths_nodes.ros.names import ACTUATOR, AXIS, FORMER_TRIP, MONITOR, RECORDER, axis_node
from rths_nodes.ros.nodes import course
from rths_nodes.ros.nodes.base import RthsNode
from rths_nodes.ros.nodes.participation import UNDER_WAY, ClockQuestions, Phase
from rths_nodes.ros.transport.endpoints import wait_until_gone
from rths_nodes.ros.transport.service_thread import LoopCalls
from rths_nodes.ros.transport.topics import NodeTopics

MOVING = (State.RUNNING, State.STOPPING)
LOOK_S = 0.01
GONE_NS = 20_000_000
"""Time without a Measurement after which the actuator node checks whether the axis node is alive, ns."""
LOST_NS = 250_000_000
"""Time without a Measurement after which an axis is considered lost if a stop is requested, ns."""


class TopicLinks:
    """Sends Commands to the axis nodes and receives their answers, on topics in the namespace of each axis.

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
    """Return a port that drives axis nodes. Raises ConfigError if any are missing or if axes must share one."""
    if set(axes) != set(scenario.axes):
        axis_nodes = ", ".join(map(axis_node, scenario.axes))
        raise ConfigError(f"peers: axis nodes of {', '.join(axes)}: must be all or none of {axis_nodes}")
    check_layout(scenario)
    port = PerAxisPort(tuple(scenario.axes), scenario.port.transport_samples, links)
    return before_axes(port, ForceLoops(scenario.axes, NODES, scenario.dt))


class ActuatorNode(RthsNode):
    role = ACTUATOR
    stops_rig = True
    rig: Any = None
    pacer: Pacer | None = None
    _on_armed: Callable[[], None] = staticmethod(lambda: None)
    _stops: course.StopRequests | None = None
    _start: Any = None
    _gate: course.TickGate

    def build(self, assembly: Assembly) -> None:
        scenario, topics, clock = assembly.scenario, self.topics, self.clock
        # a new id distinguishes this run from others of the same name, and from their replayed recordings
        topics.join(mark_of(self.settings.value("run_id"), secrets.token_hex()))
        axes = self.settings.axes
        self._follows = not axes and assembly.port.follows_rig
        transport = scenario.port.transport_samples if self._follows else None
        paced = not self.settings.lockstep
        self.pacer = pacer_of(scenario.dt, scenario.samples, transport, clock) if paced else None
        self._times = course.RigClock(scenario.dt, scenario.samples, self.pacer, clock)
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

        observers = [peer for peer in (MONITOR, RECORDER) if peer in self.settings.peers]
        self._rig_context = context = course.RigContext(rig, self._times, topics, self.shutdown, self.phase, clock)
        self._watch = (
            course.SignsOfLife(context, scenario, observers, self._warn)
            if self.settings.clocked
            else course.LockstepWindow(context, observers, patience)
        )
        self._stop_calls = LoopCalls()
        self._gate = course.TickGate(context, self._watch, self._stop_calls, self._receive_stops, patience)
        # compute the hash now: under real-time scheduling, threads of a library may deadlock
        run = {"scenario_hash": self.settings.hash, "run_id": self.settings.value("run_id")}
        self._after = course.AfterMeasurement(
            context,
            self.deferred,
            assembly.names.test_constants(assembly.scenario) | run,
            gathered=bool(axes),
            clock_every=max(1, round(course.PERIOD_S / scenario.dt)) if self.settings.publishes_clock else 0,
            log=self.get_logger().info,
        )
        self._questions = ClockQuestions(self.shared, self.settings.elsewhere)
        self._end = course.Completion(context, self._gate, self._after, observers, self._questions)
        self.clocks = self._times.durations()

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        done = super().on_configure(state)
        if done == TransitionCallbackReturn.SUCCESS:
            former, acts = self.topics.inboxes[FORMER_TRIP], (self.rig.hold, self.rig.trip)
            self._stops = course.StopRequests(self, self.topics.group, former, acts, self._stop_calls, self._warn)
            self.outside.callback(self._stops.close)
            self._start = course.Arming(
                self._rig_context, self.settings, self.handshake, self._after, self._questions
            )
        return done

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        done = super().on_activate(state)
        if done == TransitionCallbackReturn.SUCCESS:
            self._start.activate()
        return done

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        self.stop("the actuator node was deactivated")
        return super().on_deactivate(state)

    def _warn(self, message: str) -> None:
        self.phase.remark(message)
        self.get_logger().warning(message)

    def _receive_stops(self) -> None:
        if self._stops is not None:
            self._stops.receive()

    def refuse(self, reason: str) -> None:
        self._start.refuse(reason)

    def flush(self) -> None:
        """Flush the topics. If the test did not begin, first wait up to ``farewell`` s for the peers to leave."""
        if self.own_process and self._start and self._start.farewell:
            peer_names = self.location.full_names(self._start.peers)
            wait_until_gone(self, peer_names, self._start.farewell, self.clock)
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
    def awaits_answer(self) -> bool:  # type: ignore[override]
        return self.running and (self._measuring or self._gate.command is None)

    @property
    def deadline(self) -> int | None:  # type: ignore[override]
        return self._gate.deadline if self.running and not self._measuring else None

    @property
    def slack(self) -> int | None:
        """Time until the next tick, ns. None in lockstep, with the rig at rest, or while awaiting messages."""
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
        """Begin a tick, or continue the current tick. Complete the tick once its Measurement is ready."""
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
            if self.shutdown.interrupted:  # the next Measurement may be late, or never arrive
                rig.hold("interrupted")
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


ALONE_NS = 200_000_000
"""Time that an interrupted or deactivated axis waits for the next Command before the axis stops by itself, ns."""
LATER_NS = 1_000_000_000
"""Additional time to wait for a Command in real time, ns, because the actuator node must stop all axes first."""


class AxisNode(RthsNode):
    role = AXIS
    stops_rig = True
    stage: Any = None

    def build(self, assembly: Assembly) -> None:
        scenario = assembly.scenario
        axis = self.location.axis
        if axis not in scenario.axes:
            axes = ", ".join(scenario.axes)
            raise ConfigError(f"namespace = {self.location.namespace}: must end with the name of an axis ({axes})")
        self.stage = AxisStage(scenario, axis, self.interposer.port)
        self.stage.connect()
        self._pacer = None if self.settings.lockstep else Pacer(scenario.dt, 0, self.clock)
        self._patience = round(scenario.port.longest_wait * 1e9) + LATER_NS
        self._last_command = 0
        self._stops_alone = False
        self._trip_sent = False

    def work(self, limit: int = 1_000_000) -> bool:
        busy = False
        while limit > 0 and not self._stops_alone:
            command = self.topics.receive("command", self.topics.codec.unpack_command)
            if command is None:
                break
            self._last_command = self.answered_at = self._now()
            measured = self.stage.follow(command[0])
            if measured is not None:
                self._answer(measured, command[1])
            limit -= 1
            busy = True
        if not busy:
            busy = self._stop_alone() if self._led_no_more() else False
        if not busy:
            self._finish()
        return busy

    def _answer(self, measured: Measurement, stamp: int) -> None:
        if self.stage.trip and not self._trip_sent:  # the Measurement does not contain the reason
            self._trip_sent = True
            self.go_safe(self.stage.trip)
        self._stamp = stamp
        self.topics.senders["measurement"](self.topics.codec.pack_measurement(measured, stamp))
        if (true := self.stage.port.truth()) is not None:
            self.deferred.put("true_state", self.topics.codec.pack_measurement, lambda: true, stamp)
        if measured.flags & FLAG_TRIPPED or measured.sample >= self.scenario.samples:
            self.deferred.send()

    def _led_no_more(self) -> bool:
        if self._stops_alone or self.stage is None or self.stage.sample < 0:
            return self._stops_alone and not self.stage.at_rest
        if self.stage.at_rest:
            return False
        reason = self._why_alone(self._now() - self._last_command)
        if not reason:
            return False
        self._stops_alone = True
        self.stage.stop(reason)
        self.phase.blame(ExitCode.TRIPPED, f"sample {self.stage.sample}: {reason}")
        self.trip(reason)
        if self._pacer:
            self._pacer.start()
        return not self.stage.at_rest

    def _why_alone(self, waited: int) -> str:
        number = self.stage.sample + 1
        if self.stage.out_of_sequence:
            return str(self.stage.trip)
        if self.phase.ended:
            return "" if self.phase.test.state == State.FINISHED else "the test ended while this axis was moving"
        if self.shutdown.leader_lost:
            return f"no Command {number}, because the actuator node has left"
        if self.shutdown.interrupted and waited > ALONE_NS:
            return f"no Command {number} for {waited * 1e-9:.2g} s after an interrupt"
        if not self.phase.active and waited > ALONE_NS:
            return f"no Command {number} for {waited * 1e-9:.2g} s after deactivation"
        if self._pacer and waited > self._patience:
            return f"no Command {number} for {waited * 1e-9:.2g} s"
        return ""

    def _stop_alone(self) -> bool:
        if self._pacer:
            self._pacer()
        self._answer(self.stage.stop_alone(), self._stamp + round(self.scenario.dt * 1e9))
        return True

    @property
    def under_way(self) -> bool:
        return super().under_way or (self.stage is not None and not self.phase.ended and not self.stage.at_rest)

    @property
    def participates(self) -> bool:
        return self.phase.active or (
            self.stage is not None and self.stage.sample >= 0 and not self.shutdown.reported
        )

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        if self.under_way:
            self.stop(f"the {self.identity} node was deactivated")
        return super().on_deactivate(state)

    def stop(self, reason: str) -> None:
        if self.stage is not None:
            self._trip_sent = True
            self.stage.stop(reason)
        super().go_safe(reason)

    def go_safe(self, reason: str) -> None:
        if self.stage is not None:
            with suppress(Exception):  # the connection to the axis may have failed
                self.stage.port.safe()
        super().go_safe(reason)

    def _finish(self) -> None:
        phase, shutdown = self.phase, self.shutdown
        if self._stops_alone and self.stage.at_rest and not phase.ended:
            if not shutdown.reported:
                shutdown.report()
            if shutdown.interrupted or shutdown.leader_lost:
                phase.to(Phase.GONE)
        if phase.ended and not shutdown.reported and self.stage.sample >= phase.test.sample:
            shutdown.report()
        shutdown.leave(self.handshake.receive_state)

    @property
    def last_sample(self) -> int:
        return int(self.stage.sample)

    def final_numbers(self) -> tuple[int, dict[str, float]]:
        return self.stage.sample, {}
