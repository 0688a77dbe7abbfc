# SPDX-License-Identifier: Apache-2.0
"""Tests of the parts of a node: phases, sequence, deferred sends, handshake, shutdown, warm-up and slack."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from messages import each_mentions, mentions, naming
from sensor_msgs.msg import Temperature

from rths_nodes.core.samples import EMPTY, Measurement
from rths_nodes.core.wire import Codec, RunMark, mark_of
from rths_nodes.loop.supervision.states import State
from rths_nodes.ros.hosting.executor import SlackBudget
from rths_nodes.ros.hosting.node_processes import LEAVING_S
from rths_nodes.ros.names import NodeLocation
from rths_nodes.ros.nodes import base, participation
from rths_nodes.ros.nodes.course import LINGER_NS
from rths_nodes.ros.nodes.participation import (
    Handshake,
    MeasurementSequence,
    NodeContext,
    Phase,
    PhaseMachine,
    Shutdown,
    StateOfTest,
    WarmUp,
)
from rths_nodes.ros.transport.topics import BURST, DeferredSends

RUN = mark_of("one", "drawn")


class Topics:
    """Stand-in for NodeTopics that keeps what is published."""

    def __init__(self) -> None:
        self.published: list[tuple[str, dict[str, Any]]] = []
        self.sent: list[tuple[str, bytes]] = []
        self.waiting: deque[tuple[Any, int]] = deque()
        self.states: list[dict[str, Any]] = []
        self.inboxes = {"test_state": None, "measurement": SimpleNamespace(by_hand=False)}
        self.opened = self.inboxes
        self.senders = {"true_state": lambda data: self.sent.append(("true_state", data))}
        self.speakers = 1
        subscription = SimpleNamespace(get_publisher_count=lambda: self.speakers)
        self.run = RunMark()
        guard = SimpleNamespace(subscription=subscription, gone=False, certain=True, doubtful=0, count=1)
        self.guards = {"test_state": guard}
        guard.run = self.run
        self.codec = SimpleNamespace(unpack_measurement=None)
        self.absent = self.duplicates = self.other = self.uncalled = ""
        self.lines = SimpleNamespace(call=lambda: self.uncalled, answer=lambda: None, way="topics")
        self.heard_of_another_run = 0
        self.guarded = False
        self.stream_counts = {"command": 4}
        self.join = self.run.become
        self.missing = lambda: self.absent
        self.duplicate_names = lambda _: self.duplicates
        self.other_versions = lambda: self.other
        self.dropped = lambda _: {}
        self.look = self.name_publishers = self.publish_held = lambda: None

    def publish(self, topic: str, values: dict[str, Any]) -> None:
        self.published.append((topic, values))

    def receive(self, topic: str, unpack: Any) -> tuple[Any, int] | None:
        return self.waiting.popleft() if self.waiting else None

    def received(self, topic: str, counts: Any) -> list[dict[str, Any]]:
        states = [state for state in self.states if counts(state)]
        self.heard_of_another_run += len(self.states) - len(states)
        self.states = []
        return states

    def close_guards(self) -> None:
        self.guarded = True


@pytest.fixture
def topics() -> Any:
    return Topics()


@pytest.fixture
def phase() -> PhaseMachine:
    machine = PhaseMachine()
    machine.to(Phase.CONFIGURED)
    machine.activate(True)
    return machine


# -- phases -----------------------------------------------------------------------------------------------


def reached(*phases: Phase) -> PhaseMachine:
    machine = PhaseMachine()
    for phase in phases:
        machine.to(phase)
    return machine


TO_MATCHING = (Phase.CONFIGURED, Phase.MATCHING)


def test_node_passes_all_phases_in_order() -> None:
    assert reached(*list(Phase)[1:]).gone


@pytest.mark.parametrize(
    ("before", "phase"),
    [
        ((), Phase.MATCHING),
        (TO_MATCHING, Phase.CONFIGURED),
        ((*TO_MATCHING, Phase.ENDED), Phase.IN_TEST),
        ((*TO_MATCHING, Phase.GONE), Phase.UNCONFIGURED),
    ],
)
def test_invalid_transition_is_refused(before: tuple[Phase, ...], phase: Phase) -> None:
    with pytest.raises(RuntimeError, match=naming(phase.name, "transition")):
        reached(*before).to(phase)


@pytest.mark.parametrize(
    ("state", "phase", "ended"),
    [
        (State.IDLE, Phase.MATCHING, False),
        (State.ARMED, Phase.IN_TEST, False),
        (State.STOPPING, Phase.IN_TEST, False),
        (State.HELD, Phase.ENDED, True),
    ],
)
def test_active_node_follows_test(state: State, phase: Phase, ended: bool) -> None:
    machine = reached(*TO_MATCHING)
    machine.follow(StateOfTest(state))
    assert (machine.now, machine.ended, machine.under_way) == (phase, ended, phase is Phase.IN_TEST)


def test_trip_after_finish_keeps_phase() -> None:
    machine = reached(*TO_MATCHING, Phase.ENDED, Phase.REPORTED)
    machine.follow(StateOfTest(State.TRIPPED, 7, "energy"))
    assert (machine.now, machine.ended, machine.test.reason) == (Phase.REPORTED, True, "energy")


def test_gone_node_keeps_end_of_test() -> None:
    machine = reached(*TO_MATCHING)
    machine.follow(StateOfTest(State.FINISHED, 9))
    machine.to(Phase.GONE)
    assert (machine.gone, machine.ended, machine.test.sample) == (True, True, 9)


def test_deactivated_node_keeps_phase() -> None:
    machine = reached(Phase.CONFIGURED)
    machine.activate(True)
    machine.to(Phase.READY)
    for active in (False, True):
        machine.activate(active)
        assert (machine.active, machine.now) == (active, Phase.READY)


def test_cleanup_forgets_test_and_configure_forgets_cause() -> None:
    machine = reached(*TO_MATCHING)
    machine.follow(StateOfTest(State.TRIPPED, 3, "too far"))
    machine.blame(3, "too far")
    machine.clean_up()
    machine.configure()
    assert (machine.now, machine.ended, machine.exit_code, machine.problem) == (Phase.UNCONFIGURED, False, 0, "")


@pytest.mark.parametrize(
    ("samples", "taken", "reasons"),
    [
        ((0, 1, 2), [0, 1, 2], []),
        ((0, 0, 1, 0, 2), [0, 1, 2], []),
        ((0, 2, 1, 3), [0], ["received Measurement 2, expected Measurement 1"]),
    ],
    ids=["in order", "twice", "a gap"],
)
def test_measurements_are_taken_once_and_in_order(
    samples: tuple[int, ...], taken: list[int], reasons: list[str], topics: Any, shutdown: Shutdown
) -> None:
    gaps: list[str] = []
    sequence = MeasurementSequence(topics, shutdown, gaps.append)
    topics.waiting.extend((Measurement(sample, EMPTY, EMPTY, EMPTY), 0) for sample in samples)
    assert [measured[0].sample for measured in iter(sequence.next, None)] == taken
    assert (gaps, sequence.broken) == (reasons, bool(reasons))


def test_deferred_sends_go_in_bursts_and_in_order(topics: Any) -> None:
    deferred = DeferredSends(topics)
    state = [0]
    for number in range(BURST + 1):
        deferred.put("true_state", lambda n: b"%d" % n, lambda: state[0])
        deferred.collect()
        state[0] = number + 1
    assert [data for _, data in topics.sent] == [b"%d" % n for n in range(BURST)]
    deferred.send()
    assert topics.sent[-1] == ("true_state", b"%d" % BURST)


# -- handshake --------------------------------------------------------------------------------------------


@pytest.fixture
def handshake(topics: Any, phase: PhaseMachine, clock: Any) -> Any:
    calls: dict[str, list[str]] = {"prepare": [], "warn": [], "refuse": []}

    def keep(name: str) -> Callable[..., None]:
        return lambda *texts: calls[name].append(*texts or [""])

    logger = SimpleNamespace(info=keep("warn"), debug=lambda text: None)
    context = NodeContext(NodeLocation("monitor", "/rths"), phase, topics, topics, logger, clock)
    facts = {"node": "monitor", "scenario_hash": "abc"}
    settings: Any = SimpleNamespace(peers=["monitor"], hash="abc", patience=None, facts=lambda: facts)
    shake = Handshake(context, settings, ("gain",), keep("prepare"), keep("refuse"))
    shake.begin()

    def receive(*states: dict[str, Any]) -> None:
        topics.states = list(states)
        shake.look()

    return SimpleNamespace(look=shake.look, receive=receive, calls=calls)


def test_waiting_node_names_missing_peers_periodically(handshake: Any, topics: Any, clock: Any) -> None:
    topics.absent = "/rths/actuator on /rths/trip"
    for _ in range(3):
        handshake.look()
        clock.now += participation.COMPLAINT_NS
    warnings = ["waits for /rths/actuator on /rths/trip"] * 2
    assert handshake.calls["warn"] == warnings
    assert [values["problem"] for _, values in topics.published] == warnings
    assert not any(values["ready"] for _, values in topics.published)


def test_node_prepares_and_reports_ready_once_peers_are_discovered(
    handshake: Any, topics: Any, phase: PhaseMachine
) -> None:
    topics.join(RUN)
    topics.uncalled = "/rths/recorder to answer a call on /rths/command"
    handshake.look()
    assert phase.now is Phase.MATCHING
    topics.uncalled = ""
    for _ in range(2):
        handshake.look()
    assert phase.now is Phase.READY
    assert handshake.calls["prepare"] == [""]
    status = {"node": "monitor", "scenario_hash": "abc", "state_names": ("gain",), "ready": True, "problem": ""}
    assert topics.published == [("node_status", status)]


def state(state: int, mark: str = "", stamp: int = 2_000_000_000, **values: Any) -> dict[str, Any]:
    """Return a TestState of the actuator node, by default of ``RUN``."""
    message = {"state": int(state), "sample": 0, "reason": "", "scenario_hash": "abc", "stamp": stamp}
    return message | {"run": mark or RUN} | values


def test_node_is_ready_only_once_run_is_known(
    handshake: Any, topics: Any, phase: PhaseMachine, clock: Any
) -> None:
    clock.now += participation.COMPLAINT_NS
    handshake.look()
    assert phase.now is Phase.MATCHING
    assert each_mentions(handshake.calls["warn"], ("test_state", "node"))
    handshake.receive(state(State.POSITIONED))
    handshake.look()
    assert (phase.now, topics.run.mark) == (Phase.READY, RUN)


def test_newest_actuator_node_defines_run_until_test_begins(
    handshake: Any, topics: Any, phase: PhaseMachine
) -> None:
    """A replayed recording, whose run has the same name, has older stamps."""
    again, replayed = mark_of("one", "configured again"), mark_of("one", "replayed")
    for message, joined in (
        (state(State.POSITIONED, stamp=3_000_000_000), RUN),
        (state(State.POSITIONED, replayed, stamp=2_000_000_000), RUN),
        (state(State.FINISHED, replayed, stamp=2_000_000_000), RUN),
        (state(State.POSITIONED, again, stamp=4_000_000_000, scenario_hash="of another"), RUN),
        (state(State.POSITIONED, again, stamp=4_000_000_000), again),
        (state(State.ARMED, again, stamp=5_000_000_000), again),
        (state(State.POSITIONED, RUN, stamp=6_000_000_000), again),
        (state(State.FINISHED, RUN, stamp=7_000_000_000), again),
    ):
        handshake.receive(message)
        assert topics.run.mark == joined, message
    assert phase.test.state is State.ARMED
    assert topics.heard_of_another_run == 5


def test_node_does_not_join_old_test(handshake: Any, topics: Any, phase: PhaseMachine, clock: Any) -> None:
    handshake.receive(state(State.FINISHED, stamp=clock.now - participation.OLD_NS - 1_000_000_000))
    assert (topics.run.mark, phase.ended) == ("", False)
    handshake.receive(state(State.HELD, stamp=clock.now - 1_000_000))
    assert phase.ended, "stopped before this node was there: it need not wait"


@pytest.mark.parametrize("now", [State.IDLE, State.RUNNING, State.FINISHED, State.HELD])
def test_uncertain_publisher_cannot_begin_or_end_test(
    now: State, handshake: Any, topics: Any, phase: PhaseMachine, clock: Any
) -> None:
    topics.guards["test_state"].certain = False
    handshake.receive(state(now, reason="a lie"))
    assert (topics.run.mark, phase.gone, phase.ended) == ("", False, False)
    handshake.receive(state(State.POSITIONED))
    assert topics.run.mark == RUN
    handshake.receive(state(State.ARMED, stamp=clock.now - 2 * participation.LIVE_NS))
    assert not phase.under_way, "replayed"
    handshake.receive(state(State.ARMED, stamp=clock.now))
    assert phase.under_way


def test_state_counts_once_publisher_is_identified(handshake: Any, topics: Any, phase: PhaseMachine) -> None:
    """A refused test is published once; a node that missed it would wait for ever."""
    guard = topics.guards["test_state"]
    guard.certain, guard.doubtful = False, 1
    handshake.receive(state(State.IDLE, reason="refused"))
    assert not phase.gone
    handshake.look()
    assert not phase.gone
    guard.certain, guard.doubtful = True, 0
    handshake.look()
    assert phase.gone


def test_states_of_publisher_that_left_unidentified_are_ignored(
    handshake: Any, topics: Any, phase: PhaseMachine
) -> None:
    guard = topics.guards["test_state"]
    guard.certain, guard.doubtful = False, 2
    handshake.receive(state(State.FINISHED), state(State.IDLE, reason="a lie"))
    guard.certain, guard.doubtful, guard.count = True, 0, 1
    handshake.look()
    guard.count = 2
    handshake.look()
    assert (topics.run.mark, phase.gone, phase.ended) == ("", False, False)


def test_invalid_run_mark_refuses_test(handshake: Any) -> None:
    handshake.receive(state(State.POSITIONED, "map"))
    assert mentions(handshake.calls["refuse"][0], "run", "map", "23", "ASCII")


def test_peer_with_other_message_version_is_refused(handshake: Any, topics: Any, phase: PhaseMachine) -> None:
    topics.join(RUN)
    topics.other = "/rths/actuator has another version of rths_nodes/msg/Command"
    handshake.look()
    assert handshake.calls["refuse"] == [topics.other]
    assert phase.now is Phase.MATCHING


@pytest.mark.parametrize("absent", ["", "/rths/actuator on /rths/trip"])
def test_duplicate_names_are_tolerated_briefly(absent: str, handshake: Any, topics: Any, clock: Any) -> None:
    topics.absent = absent
    topics.duplicates = "2 nodes are called /rths/monitor"
    handshake.look()
    assert handshake.calls["refuse"] == []
    clock.now += participation.DUPLICATE_NS
    handshake.look()
    assert mentions(handshake.calls["refuse"][0], "2", "/rths/monitor", "namespace")
    assert handshake.calls["prepare"] == []


def test_guards_close_when_test_begins(handshake: Any, topics: Any, phase: PhaseMachine) -> None:
    handshake.receive(state(State.ARMED))
    assert (phase.now, topics.guarded) == (Phase.IN_TEST, True)


def test_refused_test_ends_node(handshake: Any, phase: PhaseMachine) -> None:
    handshake.receive(
        state(200, reason="nonsense"), state(State.IDLE, reason="refused: no", scenario_hash="of another")
    )
    assert (phase.gone, phase.exit_code) == (True, 2)


def test_states_of_other_run_are_ignored(handshake: Any, topics: Any, phase: PhaseMachine) -> None:
    """Before the test another node may use the name of the actuator node, and leave."""
    topics.run.become(RUN)
    values = {"reason": "interrupted before the test began", "scenario_hash": "another"}
    handshake.receive(*(state(now, mark_of("another"), **values) for now in (State.ARMED, State.HELD)))
    assert (phase.now, phase.test.state, topics.guarded) == (Phase.READY, State.IDLE, False)
    assert (topics.run.mark, topics.heard_of_another_run) == (RUN, 2)


# -- shutdown ---------------------------------------------------------------------------------------------


@pytest.fixture
def shutdown(topics: Any, phase: PhaseMachine, clock: Any) -> Shutdown:
    context = NodeContext(NodeLocation("compensator", "/rths"), phase, topics, DeferredSends(topics), None, clock)
    return Shutdown(context, lambda: (7, {"compensator.gain": 2.0}))


def test_later_signal_means_exit_now(shutdown: Shutdown, clock: Any) -> None:
    shutdown.interrupt()
    shutdown.interrupt()
    assert (shutdown.interrupted, shutdown.exit_now) == (True, False), "two signals at once are one request"
    clock.now += participation.SAME_REQUEST_NS
    shutdown.interrupt()
    assert shutdown.exit_now


def test_interrupted_node_stays_while_measurements_arrive(shutdown: Shutdown, clock: Any) -> None:
    shutdown.interrupt()
    clock.now += participation.PATIENCE_NS
    shutdown.be_patient()
    assert not shutdown.patience_over
    clock.now += participation.PATIENCE_NS
    assert shutdown.patience_over


def test_lost_leader_is_an_error_only_during_test(
    shutdown: Shutdown, phase: PhaseMachine, topics: Any, clock: Any
) -> None:
    for now, lost in ((State.IDLE, False), (State.RUNNING, True)):
        phase.follow(StateOfTest(now))
        topics.speakers = 1
        shutdown.look_for_leader()
        topics.speakers = 0
        clock.now += participation.LEADER_LOST_NS
        shutdown.look_for_leader()
        assert shutdown.leader_lost == lost
    assert phase.exit_code == 1
    assert mentions(phase.problem, "actuator", "left")


def test_node_leaves_after_test_without_notice_of_leader(
    shutdown: Shutdown, phase: PhaseMachine, topics: Any, clock: Any
) -> None:
    """The datagram by which a participant leaves may be lost: it seems to be there for 20 s more."""
    assert LINGER_NS < participation.OVERDUE_NS < LEAVING_S * 1e9
    topics.speakers = 1
    phase.follow(StateOfTest(State.TRIPPED, 7, "too far"))
    for elapsed, left in ((0, False), (participation.OVERDUE_NS // 2, False), (participation.OVERDUE_NS, True)):
        clock.now += elapsed
        shutdown.look_for_leader()
        shutdown.leave(lambda: None)
        assert phase.gone == left
    assert (phase.exit_code, phase.problem) == (0, "")


def test_summary_has_results_and_counts(shutdown: Shutdown, phase: PhaseMachine, topics: Any) -> None:
    phase.follow(StateOfTest(State.FINISHED, 7))
    shutdown.report()
    names, values = ["compensator.gain", "sent.command"], [2.0, 4.0]
    summary = {"node": "compensator", "sample": 7, "names": names, "values": values}
    assert topics.published == [("summary", summary)]
    assert (phase.now, shutdown.reported) == (Phase.REPORTED, True)
    topics.stream_counts = {"command": 5}
    assert not shutdown.reported, "messages sent since need another summary"


def test_streams_of_axis_are_counted_below_rig(topics: Any, phase: PhaseMachine) -> None:
    context = NodeContext(NodeLocation("axis", "/rths/story_2"), phase, topics, DeferredSends(topics), None)
    shutdown = Shutdown(context, lambda: (0, {}))
    shutdown.report()
    assert shutdown.summary == {"sent.story_2/command": 4}


def test_node_leaves_after_test_once_leader_has_left(shutdown: Shutdown, phase: PhaseMachine, topics: Any) -> None:
    looks: list[str] = []
    phase.follow(StateOfTest(State.FINISHED, 7))
    shutdown.leave(lambda: looks.append("state"))
    assert not phase.gone
    topics.guards["test_state"].gone = True
    shutdown.leave(lambda: looks.append("state"))
    assert (phase.gone, shutdown.reported, looks) == (True, True, ["state"])


def test_node_leaves_at_once_if_test_never_began(shutdown: Shutdown, phase: PhaseMachine) -> None:
    """The actuator node waits for its peers then, so they must not wait for it."""
    phase.follow(StateOfTest(State.HELD, 0, "interrupted before the test began"))
    shutdown.leave(lambda: None)
    assert (phase.gone, phase.begun) == (True, False)


# -- warm-up and slack ------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["integrator", "compensator"])
def test_node_warms_up_once_before_a_step(role: str, by_hand: Any) -> None:
    with by_hand.node(role, pace="realtime", overrides=["substeps=10"]) as node:
        sent = {key: outlet.sent for key, outlet in node.topics.outlets.items()}
        due = []
        for node.measurements.expected in (0, 9, 10, 10, 11, 20):
            due.append(node.warm_up.due)
            if node.warm_up.due:
                node.warm_up()
        assert due == [False, False, True, False, False, True]
        assert {key: outlet.sent for key, outlet in node.topics.outlets.items()} == sent
        assert node.phase.note == ""
        assert inspect.getclosurevars(node.warm_up.twin).nonlocals["stage"] is not node.stage


@pytest.mark.parametrize(("pace", "substeps"), [("lockstep", 10), ("realtime", 1)])
def test_no_warm_up_in_lockstep_or_without_substeps(pace: str, substeps: int, by_hand: Any) -> None:
    with by_hand.node("integrator", pace=pace, overrides=[f"substeps={substeps}"]) as node:
        node.measurements.expected = 10
        assert not node.warm_up.due


def test_failed_warm_up_is_reported_and_not_repeated(topics: Any) -> None:
    def fails(_: Any) -> None:
        raise ZeroDivisionError("by nothing")

    measurements: Any = SimpleNamespace(expected=10)
    phase = PhaseMachine()
    context = NodeContext(NodeLocation("integrator", "/rths"), phase, topics, topics, topics)
    warm_up = WarmUp(context, measurements, fails, 10)
    warm_up()
    assert not phase.gone
    assert mentions(phase.note, "integrator", "ZeroDivisionError")
    measurements.expected = 20
    assert not warm_up.due


def test_work_that_exceeds_slack_waits(still_clock: Any) -> None:
    budget: Any = SlackBudget(clock=still_clock)
    pacer = SimpleNamespace(slack=100_000)

    def work() -> bool:
        still_clock.now += 150_000
        return True

    assert budget.fits(pacer)
    assert budget.run(work)
    assert not budget.fits(pacer)
    assert not budget.run(lambda: False), "no work was done, so its duration does not count"
    for _ in range(4):
        budget.decay()
    assert budget.fits(pacer)


def test_installed_message_without_a_field_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "msg", SimpleNamespace(Target=Temperature))
    with pytest.raises(RuntimeError, match=naming("Target", "Build")):
        base.check_serialization(Codec(1, 1, 0))
