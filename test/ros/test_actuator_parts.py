# SPDX-License-Identifier: Apache-2.0
"""Parts of the actuator node: start and end of a test, and links to axis nodes."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from messages import mentions

from rths_nodes.core.durations import SECOND
from rths_nodes.core.samples import Command, Measurement
from rths_nodes.core.wire import Codec, RunMark, mark_of
from rths_nodes.core.yaml_text import dump
from rths_nodes.loop.supervision.hops import HopsParams
from rths_nodes.loop.supervision.states import State, StopRequest, TestMachine
from rths_nodes.loop.timing import Exchange
from rths_nodes.ros.names import NodeLocation
from rths_nodes.ros.nodes import course
from rths_nodes.ros.nodes.actuator import GONE_NS, LOST_NS, TopicLinks
from rths_nodes.ros.nodes.course import AfterMeasurement, Arming, Completion, RigClock, RigContext
from rths_nodes.ros.nodes.participation import ClockQuestions, NodeContext, Phase, PhaseMachine


def clock_questions(phase: PhaseMachine, parts: Any) -> ClockQuestions:
    return ClockQuestions(NodeContext(NodeLocation("actuator", "/rths"), phase, parts, parts, parts), ())


# Start of a test


class ArmingBench:
    """A rig at its start position with its environment; two peers must be ready within 30 s."""

    def __init__(self, clock: Any) -> None:
        self.clock = clock
        self.port = SimpleNamespace(simulated=True)
        self.rig: Any = SimpleNamespace(machine=TestMachine(), sample=0, stop_request=None, port=self.port)
        for state in (State.CONNECTED, State.REFERENCED, State.POSITIONED):
            self.rig.machine.to(state)
        self.phase = PhaseMachine()
        for phase in (Phase.CONFIGURED, Phase.MATCHING, Phase.READY):
            self.phase.to(phase)
        self.shutdown: Any = SimpleNamespace(interrupted=False)
        self.duplicate, self.left = False, ""
        self.states: list[tuple[int, str]] = []
        self.statuses: list[dict[str, Any]] = []
        self.guards_closed = False
        parts: Any = self
        settings: Any = SimpleNamespace(
            peers=("actuator", "integrator", "monitor", "console"),
            hash="abc",
            scenario=SimpleNamespace(name="frame", dt=0.001, hops=HopsParams()),
            lockstep=False,
            value=lambda name: {"peer_timeout": 30.0}[name],
        )
        context = RigContext(self.rig, parts, parts, self.shutdown, self.phase, clock)
        announcer = AfterMeasurement(context, parts, {"run_id": "one"})
        self.clocks = clock_questions(self.phase, parts)
        self.arming = Arming(context, settings, parts, announcer, self.clocks)
        self.arming.activate()

    def received(self, topic: str, counts: Callable[[dict[str, Any]], bool]) -> list[Any]:
        assert topic == "node_status"
        statuses, self.statuses = self.statuses, []
        return list(filter(counts, statuses))

    def missing(self) -> str:
        return self.left

    def duplicated(self) -> bool:
        return self.duplicate

    def close_guards(self) -> None:
        self.guards_closed = True

    def publish(self, topic: str, values: dict[str, Any]) -> None:
        assert (topic, values["run_id"]) == ("test_state", "one")
        self.states.append((values["state"], values["reason"]))

    def work(self, *statuses: dict[str, Any]) -> bool:
        """Receive ``statuses``; return True if the rig is armed."""
        self.statuses += statuses
        return self.arming.work()

    def refusal(self, *statuses: dict[str, Any]) -> tuple[str, int]:
        """Receive ``statuses``; return the reason of the refusal and the exit code."""
        assert not self.work(*statuses)
        assert self.phase.gone
        assert self.states[-1] == (State.IDLE, f"refused: {self.phase.problem}")
        return self.phase.problem, self.phase.exit_code


@pytest.fixture
def start(still_clock: Any) -> ArmingBench:
    return ArmingBench(still_clock)


def status(node: str, sections: Any = None, **values: Any) -> dict[str, Any]:
    ready = {"node": node, "ready": True, "problem": "", "scenario_hash": "abc"}
    return ready | {"parameters": dump(sections or {}), "run": mark_of("one")} | values


BOTH = status("integrator"), status("monitor")


def test_rig_is_armed_when_node_and_peers_are_ready(start: ArmingBench) -> None:
    assert not start.work()
    assert not start.work(status("integrator"))
    assert not start.work(status("monitor", ready=False))
    start.phase.now = Phase.MATCHING
    assert not start.work(status("monitor"))
    assert (start.states, start.guards_closed) == ([(State.POSITIONED, "")], False)
    start.phase.now = Phase.READY
    assert start.work()
    assert (start.rig.machine.state, start.guards_closed) == (State.ARMED, True)
    assert start.states[-1] == (State.ARMED, "")
    assert (start.phase.now, start.arming.farewell) == (Phase.IN_TEST, 0.0)


def test_different_scenario_is_refused_immediately(start: ArmingBench) -> None:
    reason = "monitor and actuator have different scenarios or run ids: hash none instead of abc (frame)"
    reason += ". If another test is running, choose another namespace or ROS_DOMAIN_ID"
    assert start.refusal(status("monitor", ready=False, scenario_hash="")) == (reason, 2)
    assert start.arming.farewell == course.FOUND_S, "the peers must receive the refusal"


def test_status_of_a_node_that_is_no_peer_is_ignored(start: ArmingBench) -> None:
    assert not start.work(status("camera", scenario_hash="another"))
    assert start.work(*BOTH)


def test_peer_timeout_begins_at_activation(start: ArmingBench) -> None:
    start.clock.now += 100 * SECOND
    start.arming.activate()
    start.clock.now += 30 * SECOND
    assert not start.work(status("monitor", ready=False, problem="no disk"))
    assert not start.phase.gone
    start.clock.now += 1
    assert start.refusal() == ("not ready within 30 s: integrator, monitor (no disk)", 1)


def test_timeout_of_own_node_names_missing_peer(start: ArmingBench) -> None:
    start.phase.now, start.left = Phase.MATCHING, "/rths/monitor on /rths/trip"
    start.clock.now += 31 * SECOND
    reason = "not ready within 30 s: actuator (waits for /rths/monitor on /rths/trip)"
    assert start.refusal(*BOTH) == (reason, 1)


def test_different_parameters_of_two_nodes_are_refused(start: ArmingBench) -> None:
    start.duplicate = True
    assert not start.work(status("monitor", {"bridge": 1}), status("integrator", {"bridge": 1}))
    assert not start.phase.gone
    reason = "bridge: integrator and monitor have different values. Set equal overrides for all nodes"
    assert start.refusal(status("monitor", {"bridge": 2})) == (reason, 2)


@pytest.mark.parametrize(
    ("problem", "value", "cleared"), [("duplicate", True, False), ("left", "/rths/monitor on /rths/trip", "")]
)
def test_duplicate_name_or_absent_peer_delays_arming(
    problem: str, value: object, cleared: object, start: ArmingBench
) -> None:
    """The handshake itself refuses a duplicate after a timeout."""
    setattr(start, problem, value)
    assert not start.work(*BOTH)
    assert not start.phase.gone
    setattr(start, problem, cleared)
    assert start.work()


def test_peer_without_run_is_not_ready(start: ArmingBench) -> None:
    assert not start.work(status("integrator"), status("monitor", run=""))
    assert start.work(status("monitor"))


def test_timeout_names_discovery_server(start: ArmingBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROS_DISCOVERY_SERVER", "10.0.0.1:11811")
    start.clock.now += 31 * SECOND
    reason, code = start.refusal()
    assert "ROS_DISCOVERY_SERVER=10.0.0.1:11811" in reason
    assert code == 1


def test_real_rig_waits_until_trips_can_arrive(start: ArmingBench) -> None:
    """A publisher that the middleware had not matched yet lost its stop in one of 30 tests, up to 2.8 s long."""
    start.port.simulated = False
    began = start.clock.now
    for elapsed in (0.0, 2.8, course.FOUND_S - 0.01):
        start.clock.now = began + round(elapsed * SECOND)
        assert not start.work(*BOTH)
    start.clock.now = began + round(course.FOUND_S * SECOND)
    assert start.work()


def test_duplicate_node_leaves_immediately(start: ArmingBench) -> None:
    start.arming.refuse("2 nodes are called /rths/monitor")
    assert (start.phase.gone, start.phase.exit_code, start.arming.farewell) == (True, 2, 0.0)


@pytest.mark.parametrize(
    ("interrupted", "request_", "state", "reason"),
    [
        (True, None, State.HELD, "interrupted"),
        (True, StopRequest("trip requested"), State.HELD, "trip requested"),
        (False, StopRequest("trip requested"), State.TRIPPED, "trip requested"),
        (False, StopRequest("stop service", end=State.HELD), State.HELD, "stop service"),
    ],
)
def test_stop_before_arming_ends_the_test(
    start: ArmingBench, interrupted: bool, request_: Any, state: State, reason: str
) -> None:
    start.shutdown.interrupted, start.rig.stop_request = interrupted, request_
    assert not start.work()
    assert start.states[-1][0] == state
    assert mentions(start.states[-1][1], reason)
    assert start.arming.farewell == course.FOUND_S


@pytest.mark.parametrize(
    ("latencies", "expected", "parts"),
    [((0.0012, 0.0009, 0.0013), 2, ("1.2 ms", "3", "<= 1 ms")), ((), 1, ("compensator", "clock_answer"))],
    ids=["above one sample", "no answer"],
)
def test_slow_or_silent_machine_is_refused(
    latencies: tuple[float, ...], expected: int, parts: tuple[str, ...], start: ArmingBench
) -> None:
    start.clocks.before["compensator"] = [Exchange(5.0, latency) for latency in latencies]
    reason, code = start.refusal(*BOTH)
    assert start.rig.machine.state is State.IDLE
    assert code == expected
    assert mentions(reason, *parts)


# End of a test: judgement, Summary, exit


class RestingRig:
    """A rig at rest, which trips a finished test when the monitor has reported a breach."""

    def __init__(self, state: State) -> None:
        self.machine = SimpleNamespace(state=state, reason="energy")
        self.tripped = False
        self.failure = ""
        self.actions: list[str] = []
        self.port = SimpleNamespace(disarm_watchdog=lambda: self.actions.append("disarmed"))

    def close(self) -> None:
        self.actions.append("closed")

    def settle(self) -> None:
        if self.tripped:
            self.machine.state = State.TRIPPED


class Shutdown:
    reported = exit_now = patience_over = False

    def report(self) -> None:
        self.reported = True


class CompletionBench:
    """The end of a test in ``state``, with monitor and recorder."""

    def __init__(self, clock: Any, state: State = State.FINISHED) -> None:
        self.clock, self.phase = clock, PhaseMachine()
        self.rig: Any = RestingRig(state)
        self.shutdown: Any = Shutdown()
        self.phase.to(Phase.CONFIGURED)
        self.times = RigClock(0.01, 5, None, clock)
        self.times.begin()
        self.progress: list[dict[str, Any]] = []
        self.trips: list[str] = []
        self.observers: Any = SimpleNamespace(done=set())
        self.truth_complete = True
        parts: Any = self
        context = RigContext(self.rig, self.times, parts, self.shutdown, self.phase, clock)
        clocks = clock_questions(self.phase, parts)
        self.completion = Completion(context, parts, parts, ["monitor", "recorder"], clocks)

    def receive_trips(self) -> None:
        self.rig.tripped = bool(self.trips)

    def pass_on(self) -> bool:
        return self.truth_complete

    def announce_change(self) -> None: ...

    def received(self, topic: str) -> list[dict[str, Any]]:
        assert topic == "progress"
        progress, self.progress = self.progress, []
        return progress

    def work(self, *done: str, wait: int = 0) -> tuple[bool, bool]:
        """Wait, ns, and let the observers ``done`` finish; return whether the node has reported and has left."""
        self.clock.now += wait
        self.progress += [{"node": node, "done": True} for node in done]
        self.completion.work()
        return self.shutdown.reported, self.phase.gone


@pytest.fixture
def end(still_clock: Any) -> CompletionBench:
    return CompletionBench(still_clock)


def test_finished_test_is_judged_then_reported_then_recorded(end: CompletionBench) -> None:
    end.progress = [{"node": "monitor", "done": False}]
    assert end.work() == (False, False)
    assert end.rig.actions == ["disarmed"]
    assert end.work("monitor") == (True, False)
    assert end.work("recorder") == (True, True)
    assert (end.rig.actions, end.phase.exit_code) == (["disarmed", "closed"], 0)


def test_breach_in_last_samples_trips_finished_test(end: CompletionBench) -> None:
    assert end.work("recorder") == (False, False)
    end.trips = ["energy"]
    assert end.work("monitor") == (True, True)
    assert (end.phase.exit_code, end.phase.problem) == (3, "energy")


@pytest.mark.parametrize("state", [State.HELD, State.TRIPPED])
def test_stopped_test_is_reported_without_monitor(state: State, still_clock: Any) -> None:
    assert CompletionBench(still_clock, state).work() == (True, False)


def test_silent_monitor_is_given_up(end: CompletionBench) -> None:
    end.work()
    assert end.work("recorder", wait=course.JUDGED_NS - 1) == (False, False)
    assert end.work(wait=1) == (True, False)
    assert end.work(wait=course.LINGER_NS - course.JUDGED_NS) == (True, False)
    assert end.work(wait=1) == (True, True)


def test_recorder_that_failed_during_test_is_not_waited_for(still_clock: Any) -> None:
    end = CompletionBench(still_clock, State.TRIPPED)
    end.observers.done = {"recorder"}
    assert end.work("monitor") == (True, True)


def test_failed_rig_fails_the_test(end: CompletionBench) -> None:
    end.rig.failure, end.rig.machine.state = "its model was killed", State.TRIPPED
    end.work()
    assert end.phase.exit_code == 1


def test_missing_true_states_are_waited_for(still_clock: Any) -> None:
    end = CompletionBench(still_clock, State.TRIPPED)
    end.truth_complete = False
    assert end.work() == (False, False)
    assert end.work(wait=course.TRUTH_NS - 1) == (False, False)
    assert end.work(wait=1) == (True, False)


def test_exit_request_ends_all_waiting(end: CompletionBench) -> None:
    end.shutdown.exit_now = True
    assert end.work() == (True, True)


def test_test_that_never_began_is_not_judged(end: CompletionBench) -> None:
    end.times.began_at, end.rig.machine.state = 0, State.HELD
    end.truth_complete = False
    assert end.work() == (True, False)
    end.shutdown.patience_over = True
    assert end.work() == (True, True)


# Links to axis nodes

AXES = ("story_1", "story_2")


class Topics:
    """Topics of the actuator node: sent messages, and waiting messages by topic."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes]] = []
        self.waiting: dict[str, deque[bytes]] = defaultdict(deque)
        self.run = RunMark()
        self.guards = {f"{axis}/measurement": SimpleNamespace(gone=False) for axis in AXES}
        self.senders = {topic: partial(self._send, topic) for topic in (f"{axis}/command" for axis in AXES)}

    def _send(self, topic: str, data: bytes) -> None:
        self.sent.append((topic, data))

    def receive(self, topic: str, unpack: Any) -> Any:
        return unpack(self.waiting[topic].popleft()) if self.waiting[topic] else None


class LinksBench:
    def __init__(self, clock: Any) -> None:
        self.clock: Any = clock
        self.topics: Any = Topics()
        self.stop_requested = False
        self.polls = 0
        self.links = TopicLinks(self.topics, lambda sample: 10 * sample, self.poll, 5 * SECOND, clock)

    def poll(self) -> bool:
        self.polls += 1
        return self.stop_requested

    def lost_after(self, wait: int) -> str:
        self.links.send_command("story_2", Command(7, np.zeros(1), np.zeros(1)))
        self.clock.now += wait
        return self.links.lost(["story_2"], 7)


@pytest.fixture
def axes(still_clock: Any) -> LinksBench:
    return LinksBench(still_clock)


def test_command_is_sent_to_its_axis_with_stamp(axes: LinksBench) -> None:
    axes.links.send_command("story_2", Command(3, np.array([1.0]), np.array([2.0]), flags=4))
    ((topic, data),) = axes.topics.sent
    command, stamp = Codec(0, 1, 0).unpack_command(data)
    assert (topic, stamp) == ("story_2/command", 30)
    assert (command.sample, command.target, command.command, command.flags) == (3, [1.0], [2.0], 4)


def test_measurements_and_true_states_are_received_in_order(axes: LinksBench) -> None:
    codec, zero = Codec(0, 1, 0), np.zeros(1)
    for sample in (1, 2):
        data = codec.pack_measurement(Measurement(sample, zero, zero, zero), 100 + sample)
        for topic in ("measurement", "true_state"):
            axes.topics.waiting[f"story_1/{topic}"].append(data)
    measurements = [axes.links.measurement_of("story_1") for _ in range(3)]
    assert [measured and measured.sample for measured in measurements] == [1, 2, None]
    true = axes.links.true_state_of("story_1")
    assert true is not None
    assert (true[0].sample, true[1]) == (1, 101)
    assert axes.links.measurement_of("story_2") is None


def test_axis_that_has_left_is_lost(axes: LinksBench) -> None:
    axes.topics.guards["story_2/measurement"].gone = True
    assert axes.lost_after(GONE_NS - 1) == ""
    assert axes.polls == 0
    assert mentions(axes.lost_after(GONE_NS), "Measurement", "7", "story_2/axis")


@pytest.mark.parametrize(
    ("stop", "longest", "wait", "seconds"),
    [(False, 5 * SECOND, 6 * SECOND, "6 s"), (True, LOST_NS, LOST_NS + SECOND // 10, "0.35 s")],
    ids=["running", "stopping"],
)
def test_silent_axis_is_lost_earlier_during_stop(
    stop: bool, longest: int, wait: int, seconds: str, axes: LinksBench
) -> None:
    axes.stop_requested = stop
    assert axes.lost_after(longest) == ""
    assert axes.lost_after(wait) == f"no Measurement 7 from story_2/axis for {seconds}"
