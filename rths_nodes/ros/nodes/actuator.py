"""The actuator node: Commands in, Measurements out. It owns the rig, the tick and the state of the test.

When the axes have a node each (``axis_node.py``), it gathers them: there is still one node that leads the test.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rclpy.lifecycle import TransitionCallbackReturn

from rths_nodes.core.durations import SECOND, Durations
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.flat_names import flatten
from rths_nodes.core.samples import Command, Measurement
from rths_nodes.core.wire.codec import Codec
from rths_nodes.laboratory.ports.per_axis import PerAxisPort
from rths_nodes.loop.pacing import Pacer
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.axis_layout import check_layout
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.stages.rig import RigStage
from rths_nodes.loop.supervision.heartbeat import Heartbeat
from rths_nodes.loop.supervision.states import LOCKSTEP_WINDOW, State
from rths_nodes.loop.supervision.stop_request import StopRequest
from rths_nodes.loop.timing import timing
from rths_nodes.ros import names
from rths_nodes.ros.names import ACTUATOR, AXIS_TOPICS, CONSOLE, MONITOR, RECORDER
from rths_nodes.ros.nodes import parameters
from rths_nodes.ros.nodes.base import RthsNode
from rths_nodes.ros.nodes.stop_requests import StopRequests
from rths_nodes.ros.transport import peers

FAREWELL_S = 4.0
"""How long the node waits, where no test has begun, for its peers to leave. They may only just have found it,
and do not listen to a node whose name they do not know yet: the middleware repeats it every 3 s."""

LINGER_NS = 5_000_000_000
"""How long the node waits, after the test, for the monitor and the recorder to say that they have everything."""


LOST_NS = 250_000_000
"""A trip is known, and an axis still silent after this time: it is the one that has died."""

GONE_NS = 20_000_000
"""So long a Measurement is waited for before it is asked whether the node of the axis is still there."""

JUDGED_NS = 2_000_000_000
"""How long the node waits, after the test, for the monitor to judge its last samples."""

PULSE_NS = 4_000_000

ANSWER = 0.8
"""In real time: the share of a sample that the loop has for a Command at least, also where a Measurement was late.
Less than one, so that bridging does not make the schedule slip."""

TRUTH_NS = 200_000_000
"""How long the node waits, after the test, for the true states of the axes."""


class ActuatorNode(RthsNode):
    """Hosts the rig, or gathers its axes; the authority on the state of the test.

    ``before_test`` is called when all peers are ready, before anything is sent to them on the streams;
    ``wait_for_axes`` while a Measurement of an axis is missing: it waits a little, or works for it.
    """

    role = ACTUATOR
    reads = ("bridge", "heartbeat")
    rig: Any = None  # until the node is configured
    axes: tuple[str, ...] = ()
    """The axes that have nodes of their own; none when this node has them all."""
    pacer: Pacer | None = None
    _stops: StopRequests | None = None
    _farewell = 0.0
    before_test: Callable[[], None] = staticmethod(lambda: None)
    wait_for_axes: Callable[[], None] = staticmethod(lambda: time.sleep(0.0002))

    @property
    def sections(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("rig", "port") if self.axes else ("axes", "rig", "port")

    @property
    def axis_inboxes(self) -> list[str]:
        """The inboxes of the axes' Measurements."""
        return [f"{axis}/measurement" for axis in self.axes]

    def own_parameters(self) -> dict[str, tuple[Any, str]]:
        return {"peer_timeout": (30.0, "time in which all peers must be ready, s")}

    def build(self, assembly: Assembly) -> None:
        scenario = assembly.scenario
        self.rig = RigStage.of(scenario, self._axes_port(scenario) if self.axes else assembly.port)
        self.pacer = None if self.lockstep else Pacer(scenario.dt, scenario.samples)
        self.rig.connect(self.pacer)
        if self.pacer:
            self.rig.port.arm_watchdog()
        # Now, not when a state is told: that is in real time, where a library's threads may wait for each other.
        self._constants = assembly.test_constants()
        self._loop, self._hop = Durations(scenario.samples), Durations(scenario.samples)
        self._command: Command | None = None
        self._statuses: dict[str, dict[str, Any]] = {}
        self._progress = {peer: -1 for peer in (MONITOR, RECORDER) if peer in self.peers}
        self._finished: set[str] = set()
        # the monitor waits for a Target: bridged, or with best effort lost for a step
        missing = scenario.bridge.max_bridge + scenario.samples_per_step * scenario.dt
        self._heartbeat = Heartbeat(scenario.heartbeat, self._progress, scenario.dt, missing)
        self._next_pulse = 0
        self._free_until = LOCKSTEP_WINDOW - 1
        self._told: State | None = None
        self._asked_at = self._began_at = self._ended_at = 0
        self._active_from = 0
        self._started_ns = 0
        self._patience = round(scenario.port.longest_wait * 1e9)
        self._answer_time = round(ANSWER * scenario.dt * 1e9)
        self._axis_codec = Codec(0, 1, 0)
        self._sent_at = 0

    def _axes_port(self, scenario: Scenario) -> PerAxisPort:
        check_layout(scenario)
        return PerAxisPort(tuple(scenario.axes), scenario.port.transport_samples, self)

    def _check_scenario(self, loaded: Scenario) -> None:
        self.axes = tuple(filter(None, map(names.axis_of, self.peers)))
        if self.axes and set(self.axes) != set(loaded.axes):
            known = ", ".join(map(names.axis_node, loaded.axes))
            raise ConfigError(f"peers: {', '.join(self.axes)} have axis nodes: must be all or none of {known}")

    def _open_endpoints(self) -> None:
        super()._open_endpoints()
        for axis in self.axes:
            node = self.full_names([names.axis_node(axis)])
            for topic in names.published_by(self.role, AXIS_TOPICS):
                self._publish_on(f"{axis}/{topic.name}", topic, f"{axis}/{topic.name}", node)
            for topic in names.heard_by(self.role, AXIS_TOPICS):
                awaited = topic.name != "true_state"  # a real axis has none
                self._listen_to(f"{axis}/{topic.name}", topic, f"{axis}/{topic.name}", node, awaited)
        inbox = self.inboxes["emergency_stop"]
        self._stops = StopRequests(self, self._group, inbox, self.rig.hold, self.rig.trip)

    def look(self) -> None:
        """Requests to stop are heard also when nothing moves."""
        if self._stops is not None:
            self._stops.hear()
        super().look()

    def _close_endpoints(self) -> None:
        super()._close_endpoints()
        if self._stops is not None:
            self._stops.close()
            self._stops = None

    def on_activate(self, state: Any) -> Any:
        """From now on the peers are waited for."""
        self._active_from = time.monotonic_ns()
        return super().on_activate(state)

    def on_deactivate(self, state: Any) -> Any:
        """The rig goes safe."""
        self.stop("the actuator node was deactivated")
        return super().on_deactivate(state)

    def on_cleanup(self, state: Any) -> Any:
        """Not while the rig moves: the topics are needed until it is at rest."""
        if self.running:
            self.get_logger().error("cleanup: refused, the rig is not at rest yet")
            return TransitionCallbackReturn.FAILURE
        return super().on_cleanup(state)

    def stop(self, reason: str) -> None:
        """The rig is at hand: no topic is needed."""
        if self.running:
            self.rig.hold(reason)

    # -- before the test ----------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Arm and start once every peer is ready and runs the same scenario."""
        if self._told is None:
            self._tell_state()
        for status in self.heard("node_status"):
            self._statuses[status["node"]] = status
        if self.interrupted or self.rig.stop_request:
            request = self.rig.stop_request or StopRequest("interrupted")
            end = State.HELD if self.interrupted else request.end
            self.rig.machine.to(end, f"{request.reason} before the test began")
            self._tell_state()
            self._farewell = FAREWELL_S
            return
        for name, status in self._statuses.items():
            if status["scenario_hash"] != self.hash:
                self._give_up(
                    f"{name} runs another scenario, or another run, than {self.role}: hash "
                    f"{status['scenario_hash'] or 'none'}, here {self.hash} ({self.scenario.name})",
                    2,
                )
                return
        others = (peer for peer in self.peers if peer not in (self.role, CONSOLE))
        missing = [peer for peer in others if not self._statuses.get(peer, {}).get("ready")]
        if missing or not self._ready_told:
            if time.monotonic_ns() - self._active_from > self.value("peer_timeout") * 1e9:
                who = ", ".join(map(self._unready, missing)) or f"{self.role} (waits for {self.waits_for()})"
                self._give_up(f"not ready within {self.value('peer_timeout'):g} s: {who}", 1)
            return
        if conflict := self._conflict():
            self._give_up(conflict, 2)
            return
        if not self.alone():
            return
        for door in self._doors.values():
            if intruders := door.intruders():
                self._give_up(f"foreign publisher on {door.topic}: {', '.join(intruders)}", 2)
                return
        self.close_doors()
        self.rig.machine.to(State.ARMED)
        self._tell_state()
        self._begin()

    def _unready(self, peer: str) -> str:
        problem = self._statuses.get(peer, {}).get("problem")
        return f"{peer} ({problem})" if problem else peer

    def _conflict(self) -> str:
        """Where two nodes run with different values of a section, by parameters of their own; empty: nowhere."""
        first: dict[str, tuple[str, Any]] = {}
        for node, status in sorted(self._statuses.items()):
            for section, values in parameters.told(status).items():
                other, known = first.setdefault(section, (node, values))
                if values != known:
                    return f"{section}: {other} and {node} run with different values; use overrides, for all nodes"
        return ""

    def refuse(self, reason: str) -> None:
        self._give_up(reason, 2, farewell=0.0)  # the peers may be those of the twin

    def lose(self, reason: str) -> None:
        """Before the test nothing is lost: what must not be there is refused, see ``_prepare``."""
        if self.running:
            super().lose(reason)

    def trip(self, reason: str) -> None:
        """The rig itself: no topic is needed."""
        self.rig.trip(reason)

    def _give_up(self, reason: str, exit_code: int, farewell: float = FAREWELL_S) -> None:
        self.rig.machine.to(State.IDLE, f"refused: {reason}")
        self._tell_state()
        self.problem, self.exit_code = reason, exit_code
        self._farewell = farewell
        self.done = True

    def flush_publishers(self) -> None:
        """Where no test has begun, first wait until the peers who are here have heard of it, and left."""
        end = time.monotonic() + self._farewell
        while self.own_process and time.monotonic() < end and self._peers_here():
            time.sleep(0.01)
        super().flush_publishers()

    def _peers_here(self) -> bool:
        others = self.full_names([peer for peer in self.peers if peer != self.role])
        return not peers.nodes(self).isdisjoint(others)

    def _begin(self) -> None:
        self.before_test()
        self._started_ns = time.time_ns()
        measured = self.rig.first()
        self._began_at = time.monotonic_ns()
        self._heartbeat.begin(self._began_at)
        self._tell_state()
        if self.pacer:
            self.pacer.start()
        self._publish(measured)

    # -- the loop -----------------------------------------------------------------------------------------

    @property
    def participates(self) -> bool:
        """A deactivated actuator node still brings its rig to rest, and says so."""
        return self.active or self.running or (self.rig is not None and self.rig.ended)

    @property
    def ended(self) -> bool:
        return self.rig is not None and bool(self.rig.ended)

    @property
    def state_of_test(self) -> State:
        return self.rig.machine.state if self.rig is not None else State.IDLE

    @property
    def reason(self) -> str:
        return str(self.rig.machine.reason)

    @property
    def last_sample(self) -> int:
        return int(self.rig.sample)

    def counters(self) -> dict[str, int]:
        missed = self.pacer.missed if self.pacer else 0
        return super().counters() | {"missed": missed, "bridged": self.rig.bridged, "late": self.rig.late_commands}

    def clocks(self) -> dict[str, Durations]:
        clocks = {"loop": self._loop, "work": self._hop}
        return clocks | {"lateness": self.pacer.lateness} if self.pacer else clocks

    @property
    def under_way(self) -> bool:
        return self.running or (self.active and not self.ended)

    @property
    def running(self) -> bool:
        """True from Measurement 0 to the last one."""
        return self.rig is not None and self.rig.machine.state in (State.RUNNING, State.STOPPING)

    @property
    def slack(self) -> int | None:
        """Time to the tick that can be run now, ns; None when there is nothing to wait for but messages."""
        if self.pacer is None or not self.running or not self._may_tick():
            return None
        return self.pacer.slack

    def work(self, limit: int = 1_000_000) -> bool:
        if not self.running:
            if self.rig.ended:
                self._finish()
            else:
                self._prepare()
            return False
        if self._command is None and not self.rig.stopping:
            self._take_command()
        if self.pacer is not None or not self._may_tick():
            return False
        self.tick()
        return True

    def _take_command(self) -> None:
        expected = self.rig.sample + 1
        while (found := self.receive("command", self.codec.unpack_command)) is not None:
            command, _ = found
            if command.sample == expected:
                self._command = command
                self._loop.add(time.monotonic_ns() - self._asked_at)
                return
            if command.sample > expected:
                self.rig.trip(f"Command {command.sample} came where {expected} was expected")
                return
            self.rig.late_command(command)

    @property
    def awaits_answer(self) -> bool:
        return self._command is None and self.running

    @property
    def deadline(self) -> int | None:
        """When the Command of the next tick is late, ns; the first is waited for: nothing moves yet."""
        if self.pacer is None or not self.running or self._command is not None or not self.rig.sample:
            return None
        return max(self.pacer.due, self._asked_at + self._answer_time)

    def _overdue(self) -> bool:
        deadline = self.deadline
        if deadline is None or time.monotonic_ns() < deadline:
            return False
        self._take_command()  # it may have come while this process did not run
        return True

    def _may_tick(self) -> bool:
        """True when there is a command, or none is needed or waited for any more, and nobody is too far behind."""
        self._hear_trips()
        self._pulse()
        if self.interrupted:
            self.rig.hold("interrupted")
        if self.rig.stopping or self.rig.stop_due:
            return True
        if self._overdue():
            return True
        if self._command is None:
            waited = time.monotonic_ns() - self._asked_at
            if waited > self._patience:
                self.rig.trip(f"no Command {self.rig.sample + 1} for {waited * 1e-9:.2g} s")
            return False
        return not self.lockstep or self._observers_follow()

    def _hear_trips(self) -> None:
        if "trip" in self.inboxes:
            for trip in self.heard("trip"):
                # what happens to other nodes after the end does not change the test
                if not self.rig.ended or trip["source"] == MONITOR:
                    latest = self.rig.sample + LOCKSTEP_WINDOW if self.lockstep else 0
                    self.rig.trip(f"{trip['source']}: {trip['reason']}", min(trip["effective_sample"], latest))

    def _pulse(self) -> None:
        """What is looked at a few times in the time of a bridge: who wants to stop, and who is still there."""
        now = time.monotonic_ns()
        if now < self._next_pulse:
            return
        self._next_pulse = now + PULSE_NS
        if self._stops is not None:
            self._stops.hear()
        if self.lockstep:
            return
        for progress in self.heard("progress"):
            behind = (self.rig.sample - progress["sample"]) * self.scenario.dt
            self._heartbeat.heard(progress["node"], now, round(behind * SECOND))
        for peer, words in self._heartbeat.lost(now):
            if peer == RECORDER and self.scenario.heartbeat.recorder_lost == "warn":
                self.note = words
                self.get_logger().warning(words)
            else:
                self.rig.trip(words)

    def _observers_follow(self) -> bool:
        # a known trip bounds the run by itself, and the monitor says nothing beyond the breach
        if self.rig.sample < self._free_until or not self._progress or self.rig.stop_request:
            return True
        for progress in self.heard("progress"):
            if progress["node"] in self._progress:
                self._progress[progress["node"]] = progress["sample"]
        self._free_until = min(self._progress.values()) + LOCKSTEP_WINDOW
        if self.rig.sample >= self._free_until and time.monotonic_ns() - self._asked_at > self._patience:
            slowest = min(self._progress, key=self._progress.__getitem__)
            self.rig.trip(f"no Progress of the {slowest} node for {self._patience * 1e-9:.2g} s")
        return self.rig.sample < self._free_until

    def tick(self) -> None:
        """One sample; in real time this waits for the tick, and a Command that is not here is late."""
        self.collect_for_record()
        began = time.monotonic_ns()
        measured = self.rig.tick(self._command, late=self._command is None and not self.rig.stop_due)
        self._hop.add(time.monotonic_ns() - (self.pacer.began if self.pacer else began))
        self._command = None
        self._publish(measured)

    def _publish(self, measured: Measurement) -> None:
        stamp = self._stamp(measured.sample)
        self._asked_at = time.monotonic_ns()
        self.send("measurement", self.codec.pack_measurement(measured, stamp))
        if self.axes:
            self._publish_gathered_truth()
        else:
            self.publish_for_record(
                "true_state", self.codec.pack_measurement, lambda: (self.rig.port.truth(), stamp)
            )
        if self.rig.machine.state != self._told:
            self._tell_state()

    def _stamp(self, sample: int) -> int:
        """Nominal time of a sample, ns."""
        late = self.pacer.missed if self.pacer else 0
        return self._started_ns + round((sample + late) * self.scenario.dt * 1e9)

    # -- axes with a node each (the Links of a PerAxisPort) ------------------------------------------------

    def send_command(self, axis: str, command: Command) -> None:
        """Hand a Command to the node of ``axis``."""
        self.send(f"{axis}/command", self._axis_codec.pack_command(command, self._stamp(command.sample)))
        self._sent_at = time.monotonic_ns()

    def measurement_of(self, axis: str) -> Measurement | None:
        """The next Measurement of ``axis``."""
        found = self.receive(f"{axis}/measurement", self._axis_codec.unpack_measurement)
        return found and found[0]

    def true_state_of(self, axis: str) -> tuple[Measurement, int] | None:
        """The next true state of ``axis``, and its stamp."""
        return self.receive(f"{axis}/true_state", self._axis_codec.unpack_measurement)

    def wait_for(self, axes: Sequence[str], sample: int) -> str:
        """Wait a little for Measurement ``sample`` of ``axes``; why they are lost, empty when they are not."""
        self.wait_for_axes()
        waited = time.monotonic_ns() - self._sent_at
        if waited < GONE_NS:
            return ""
        self._hear_trips()
        who = f"no Measurement {sample} of {', '.join(map(names.axis_node, axes))}"
        if any(self._doors[f"{axis}/measurement"].gone for axis in axes):
            return f"{who}: it has left"
        if waited > self._patience or (self.rig.stop_request and waited > LOST_NS):
            return f"{who} for {waited * 1e-9:.2g} s"
        return ""

    def _publish_gathered_truth(self) -> None:
        while (found := self.rig.port.true_state()) is not None:
            self.publish_for_record("true_state", self.codec.pack_measurement, partial(tuple, found))

    def _tell_state(self) -> None:
        machine = self.rig.machine
        self._told = machine.state
        self.tell(
            "test_state",
            self._constants
            | {
                "state": int(machine.state),
                "sample": self.rig.sample,
                "reason": machine.reason,
                "scenario_hash": self.hash,
                "run_id": self.value("run_id"),
            },
        )

    # -- after the test -----------------------------------------------------------------------------------

    def _finish(self) -> None:
        if not self._ended_at:
            self._ended_at = time.monotonic_ns()
            self.rig.port.disarm_watchdog()
        for progress in self.heard("progress"):
            if progress["done"]:
                self._finished.add(progress["node"])
        self._settle()
        if not self.spoken:
            if self._unjudged() or self._truth_missing():
                return
            self.last_words()
        late = time.monotonic_ns() - self._ended_at > LINGER_NS
        unneeded = self.patience_over and not self._began_at  # there is nothing to be heard of such a test
        if self._finished >= set(self._progress) or late or self.hurried or unneeded:
            self.rig.port.close()
            self.done = True

    def _settle(self) -> None:
        """What the monitor has found in the last samples makes a finished test a tripped one."""
        self._hear_trips()
        self.rig.settle()
        machine = self.rig.machine
        if machine.state != self._told:
            self._tell_state()
        if machine.state == State.TRIPPED:
            self.exit_code, self.problem = self.exit_code or 3, machine.reason

    def _unjudged(self) -> bool:
        """True while the monitor may still find something; the recorder does not close before our last words."""
        if self.rig.machine.state != State.FINISHED or self.hurried:
            return False
        waiting = MONITOR in self._progress and MONITOR not in self._finished
        return waiting and time.monotonic_ns() - self._ended_at < JUDGED_NS

    def _truth_missing(self) -> bool:
        """True while true states of the axes are still under way."""
        if not self.axes or not self._began_at:
            return False
        self._publish_gathered_truth()
        return not self.rig.port.true_state_complete and time.monotonic_ns() - self._ended_at < TRUTH_NS

    def final_numbers(self) -> tuple[int, dict[str, float]]:
        return self.rig.sample, flatten(self._timing() | self.hop_of(self._hop), "timing")

    def _timing(self) -> dict[str, Any]:
        lateness = self.pacer.lateness.seconds if self.pacer else Durations(0).seconds
        running = (self._ended_at - self._began_at) * 1e-9 if self._began_at else 0.0
        missed, slipped = (self.pacer.missed, self.pacer.slips) if self.pacer else (0, 0)
        period = self.scenario.dt if self.pacer else None
        counts = {"slipped": slipped, "late_commands": self.rig.late_commands}
        return counts | timing(running, self._loop.seconds, lateness, missed, self.rig.bridged, period)

    def go_safe(self, reason: str) -> None:
        """The rig itself: no topic is needed."""
        rig = self.rig
        if rig is None:
            return
        rig.port.safe()
        if self.running:
            if rig.machine.state == State.RUNNING:
                rig.machine.to(State.STOPPING, reason)
            rig.machine.to(State.TRIPPED, reason)
            self._tell_state()
