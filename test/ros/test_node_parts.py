# SPDX-License-Identifier: Apache-2.0
"""The parts of a node, each alone: no ROS, topics that keep what they are told, a clock that is set."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from messages import each_mentions, mentions

from rths_nodes.core.samples import EMPTY, Measurement
from rths_nodes.core.wire.layout import RunMark, mark_of
from rths_nodes.loop.supervision.states import State
from rths_nodes.ros.hosting.node_processes import LEAVING_S
from rths_nodes.ros.nodes.actuator import LINGER_NS
from rths_nodes.ros.nodes.handshake import COMPLAINT_NS, DUPLICATE_NS, LIVE_NS, OLD_NS, Handshake
from rths_nodes.ros.nodes.phase import NodeContext, Phase, PhaseMachine, StateOfTest
from rths_nodes.ros.nodes.sequence import MeasurementSequence
from rths_nodes.ros.nodes.shutdown import LEADER_LOST_NS, OVERDUE_NS, PATIENCE_NS, SAME_REQUEST_NS, Shutdown
from rths_nodes.ros.transport.topics import BURST, DeferredSends
from rths_nodes.ros.transport.wiring import NodeLocation

RUN = mark_of("one", "drawn")


class Topics:
    """Stands for NodeTopics."""

    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []
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

    def publish(self, topic: str, values: dict[str, Any]) -> None:
        self.told.append((topic, values))

    def receive(self, topic: str, unpack: Any) -> tuple[Any, int] | None:
        return self.waiting.popleft() if self.waiting else None

    def received(self, topic: str, counts: Any) -> list[dict[str, Any]]:
        heard = [state for state in self.states if counts(state)]
        self.heard_of_another_run += len(self.states) - len(heard)
        self.states = []
        return heard

    def join(self, mark: str) -> None:
        self.run.become(mark)

    def missing(self) -> str:
        return self.absent

    def duplicate_names(self, _: Any) -> str:
        return self.duplicates

    def other_versions(self) -> str:
        return self.other

    def close_guards(self) -> None:
        self.guarded = True

    def dropped(self, _: str) -> dict[str, float]:
        return {}

    def look(self) -> None: ...

    def name_publishers(self) -> None: ...

    def publish_held(self) -> None: ...


@pytest.fixture
def topics() -> Any:
    return Topics()


@pytest.fixture
def phase() -> PhaseMachine:
    machine = PhaseMachine()
    machine.to(Phase.CONFIGURED)
    machine.activate(True)
    return machine


# -- Measurements -----------------------------------------------------------------------------------------


def measured(sample: int) -> tuple[Measurement, int]:
    return Measurement(sample, EMPTY, EMPTY, EMPTY), 0


@pytest.mark.parametrize(
    ("numbers", "taken", "lost"),
    [
        ((0, 1, 2), [0, 1, 2], []),
        ((0, 0, 1, 0, 2), [0, 1, 2], []),
        ((0, 2, 1, 3), [0], ["received Measurement 2, expected Measurement 1"]),
    ],
    ids=["in order", "twice", "a gap"],
)
def test_measurements_come_once_and_in_order(
    numbers: tuple[int, ...], taken: list[int], lost: list[str], topics: Any, shutdown: Shutdown
) -> None:
    reasons: list[str] = []
    sequence = MeasurementSequence(topics, shutdown, reasons.append)
    topics.waiting.extend(map(measured, numbers))
    assert [found[0].sample for found in iter(sequence.next, None)] == taken
    assert (reasons, sequence.broken) == (lost, bool(lost))


# -- deferred sends ---------------------------------------------------------------------------------------


def test_what_only_the_recorder_wants_goes_in_bursts_and_in_order(topics: Any) -> None:
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
        return lambda *words: calls[name].append(*words or [""])

    logger = SimpleNamespace(info=keep("warn"), debug=lambda words: None)
    context = NodeContext(NodeLocation("monitor", "/rths"), phase, topics, topics, logger, clock)
    facts = {"node": "monitor", "scenario_hash": "abc"}
    settings: Any = SimpleNamespace(peers=["monitor"], hash="abc", patience=None, facts=lambda: facts)
    made = Handshake(context, settings, ("gain",), keep("prepare"), keep("refuse"))
    made.begin()
    return SimpleNamespace(look=made.look, calls=calls)


def test_a_node_that_waits_says_for_whom_every_few_seconds(handshake: Any, topics: Any, clock: Any) -> None:
    topics.absent = "/rths/actuator on /rths/trip"
    for _ in range(3):
        handshake.look()
        clock.now += COMPLAINT_NS
    words = ["waits for /rths/actuator on /rths/trip"] * 2
    assert handshake.calls["warn"] == words
    assert [values["problem"] for _, values in topics.told] == words
    assert not any(values["ready"] for _, values in topics.told)


def test_once_all_are_found_the_node_prepares_and_says_that_it_is_ready(
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
    assert topics.told == [("node_status", status)]


def state(state: int, mark: str = "", stamp: int = 2_000_000_000, **values: Any) -> dict[str, Any]:
    """A TestState of the actuator node, by default of ``RUN``."""
    told = {"state": int(state), "sample": 0, "reason": "", "scenario_hash": "abc", "stamp": stamp}
    return told | {"run": mark or RUN} | values


def test_no_node_is_ready_before_it_knows_the_run(
    handshake: Any, topics: Any, phase: PhaseMachine, clock: Any
) -> None:
    clock.now += COMPLAINT_NS
    handshake.look()
    assert phase.now is Phase.MATCHING
    assert each_mentions(handshake.calls["warn"], ("test_state", "node"))
    topics.states = [state(State.POSITIONED)]
    handshake.look()  # it is known
    handshake.look()
    assert (phase.now, topics.run.mark) == (Phase.READY, RUN)


def test_the_newest_actuator_node_says_which_run_it_is_until_the_test_begins(
    handshake: Any, topics: Any, phase: PhaseMachine
) -> None:
    """A recording that is replayed, whose run has the same name, has older stamps."""
    again = mark_of("one", "configured again")
    for told, joined in (
        (state(State.POSITIONED, stamp=3_000_000_000), RUN),
        (state(State.POSITIONED, mark_of("one", "replayed"), stamp=2_000_000_000), RUN),
        (state(State.FINISHED, mark_of("one", "replayed"), stamp=2_000_000_000), RUN),
        (state(State.POSITIONED, again, stamp=4_000_000_000, scenario_hash="of another"), RUN),
        (state(State.POSITIONED, again, stamp=4_000_000_000), again),
        (state(State.ARMED, again, stamp=5_000_000_000), again),
        (state(State.POSITIONED, RUN, stamp=6_000_000_000), again),
        (state(State.FINISHED, RUN, stamp=7_000_000_000), again),
    ):
        topics.states = [told]
        handshake.look()
        assert topics.run.mark == joined, told
    assert phase.test.state is State.ARMED
    assert topics.heard_of_another_run == 5


def test_a_test_that_was_over_long_before_the_node_came_is_not_joined(
    handshake: Any, topics: Any, phase: PhaseMachine, clock: Any
) -> None:
    topics.states = [state(State.FINISHED, stamp=clock.now - OLD_NS - 1_000_000_000)]
    handshake.look()
    assert (topics.run.mark, phase.ended) == ("", False)
    topics.states = [state(State.HELD, stamp=clock.now - 1_000_000)]
    handshake.look()
    assert phase.ended, "stopped before this node was there: it need not wait"


@pytest.mark.parametrize("told", [State.IDLE, State.RUNNING, State.FINISHED, State.HELD])
def test_where_somebody_else_may_have_said_so_no_test_is_joined_that_is_under_way_or_over(
    told: State, handshake: Any, topics: Any, phase: PhaseMachine, clock: Any
) -> None:
    topics.guards["test_state"].certain = False
    topics.states = [state(told, reason="a lie")]
    handshake.look()
    assert (topics.run.mark, phase.gone, phase.ended) == ("", False, False)
    topics.states = [state(State.POSITIONED)]
    handshake.look()
    assert topics.run.mark == RUN
    topics.states = [state(State.ARMED, stamp=clock.now - 2 * LIVE_NS)]
    handshake.look()
    assert not phase.under_way, "replayed"
    topics.states = [state(State.ARMED, stamp=clock.now)]
    handshake.look()
    assert phase.under_way


def test_what_the_actuator_node_said_before_the_graph_named_it_is_heard(
    handshake: Any, topics: Any, phase: PhaseMachine
) -> None:
    """A test that is refused is told once; who does not hear it waits for ever."""
    guard = topics.guards["test_state"]
    guard.certain, guard.doubtful = False, 1
    topics.states = [state(State.IDLE, reason="refused")]
    for _ in range(2):
        handshake.look()
        assert not phase.gone
    guard.certain, guard.doubtful = True, 0
    handshake.look()
    assert phase.gone


def test_what_somebody_said_who_left_before_the_graph_named_him_is_not_believed(
    handshake: Any, topics: Any, phase: PhaseMachine
) -> None:
    guard = topics.guards["test_state"]
    guard.certain, guard.doubtful = False, 2
    topics.states = [state(State.FINISHED), state(State.IDLE, reason="a lie")]
    handshake.look()
    guard.certain, guard.doubtful, guard.count = True, 0, 1
    handshake.look()
    guard.count = 2
    handshake.look()
    assert (topics.run.mark, phase.gone, phase.ended) == ("", False, False)


def test_a_mark_that_no_run_can_have_refuses_the_test(handshake: Any, topics: Any) -> None:
    topics.states = [state(State.POSITIONED, "map")]
    handshake.look()
    assert mentions(handshake.calls["refuse"][0], "run", "map", "23", "ASCII")


def test_a_peer_with_other_messages_is_refused_by_its_name(
    handshake: Any, topics: Any, phase: PhaseMachine
) -> None:
    topics.join(RUN)
    topics.other = "/rths/actuator has another version of rths_nodes/msg/Command"
    handshake.look()
    assert handshake.calls["refuse"] == [topics.other]
    assert phase.now is Phase.MATCHING


@pytest.mark.parametrize("absent", ["", "/rths/actuator on /rths/trip"])
def test_duplicate_names_are_tolerated_for_a_while(absent: str, handshake: Any, topics: Any, clock: Any) -> None:
    topics.absent = absent
    topics.duplicates = "2 nodes are called /rths/monitor"
    handshake.look()
    assert handshake.calls["refuse"] == []
    clock.now += DUPLICATE_NS
    handshake.look()
    assert mentions(handshake.calls["refuse"][0], "2", "/rths/monitor", "namespace")
    assert handshake.calls["prepare"] == []


def test_when_the_test_begins_nobody_else_is_listened_to(handshake: Any, topics: Any, phase: PhaseMachine) -> None:
    topics.states = [state(State.ARMED)]
    handshake.look()
    assert (phase.now, topics.guarded) == (Phase.IN_TEST, True)


def test_a_test_that_is_refused_ends_the_node(handshake: Any, topics: Any, phase: PhaseMachine) -> None:
    topics.states = [
        state(200, reason="nonsense"),
        state(State.IDLE, reason="refused: no", scenario_hash="of another"),
    ]
    handshake.look()
    assert (phase.gone, phase.exit_code) == (True, 2)


def test_the_state_of_another_run_is_not_followed(handshake: Any, topics: Any, phase: PhaseMachine) -> None:
    """Before the test another node may be there under the name of the actuator, and leave."""
    topics.run.become(RUN)
    why = "interrupted before the test began"
    topics.states = [
        state(now, mark_of("another"), reason=why, scenario_hash="another") for now in (State.ARMED, State.HELD)
    ]
    handshake.look()
    assert (phase.now, phase.test.state, topics.guarded) == (Phase.READY, State.IDLE, False)
    assert (topics.run.mark, topics.heard_of_another_run) == (RUN, 2)


# -- shutdown ---------------------------------------------------------------------------------------------


@pytest.fixture
def shutdown(topics: Any, phase: PhaseMachine, clock: Any) -> Shutdown:
    context = NodeContext(NodeLocation("compensator", "/rths"), phase, topics, DeferredSends(topics), None, clock)
    return Shutdown(context, lambda: (7, {"compensator.gain": 2.0}))


def test_two_signals_at_once_are_one_request_and_a_later_one_means_now(shutdown: Shutdown, clock: Any) -> None:
    shutdown.interrupt()
    shutdown.interrupt()
    assert (shutdown.interrupted, shutdown.exit_now) == (True, False)
    clock.now += SAME_REQUEST_NS
    shutdown.interrupt()
    assert shutdown.exit_now


def test_an_interrupted_node_is_patient_while_measurements_come(shutdown: Shutdown, clock: Any) -> None:
    shutdown.interrupt()
    clock.now += PATIENCE_NS
    shutdown.be_patient()
    assert not shutdown.patience_over
    clock.now += PATIENCE_NS
    assert shutdown.patience_over


def test_a_leader_that_has_left_is_missed_only_in_a_test(
    shutdown: Shutdown, phase: PhaseMachine, topics: Any, clock: Any
) -> None:
    for state, lost in ((State.IDLE, False), (State.RUNNING, True)):
        phase.follow(StateOfTest(state))
        topics.speakers = 1
        shutdown.look_for_leader()
        topics.speakers = 0
        clock.now += LEADER_LOST_NS
        shutdown.look_for_leader()
        assert shutdown.leader_lost == lost
    assert phase.exit_code == 1
    assert mentions(phase.problem, "actuator", "left")


def test_a_leader_whose_leave_is_not_told_is_not_waited_for_after_the_test(
    shutdown: Shutdown, phase: PhaseMachine, topics: Any, clock: Any
) -> None:
    """The datagram by which a participant takes its leave may be lost: it seems to be there for 20 s more."""
    assert LINGER_NS < OVERDUE_NS < LEAVING_S * 1e9
    topics.speakers = 1
    phase.follow(StateOfTest(State.TRIPPED, 7, "too far"))
    for elapsed, left in ((0, False), (OVERDUE_NS // 2, False), (OVERDUE_NS, True)):
        clock.now += elapsed
        shutdown.look_for_leader()
        shutdown.leave(lambda: None)
        assert phase.gone == left
    assert (phase.exit_code, phase.problem) == (0, "")


def test_a_summary_tells_final_numbers_and_what_was_sent(
    shutdown: Shutdown, phase: PhaseMachine, topics: Any
) -> None:
    phase.follow(StateOfTest(State.FINISHED, 7))
    shutdown.report()
    told = {
        "node": "compensator",
        "sample": 7,
        "names": ["compensator.gain", "sent.command"],
        "values": [2.0, 4.0],
    }
    assert topics.told == [("summary", told)]
    assert (phase.now, shutdown.reported) == (Phase.REPORTED, True)
    topics.stream_counts = {"command": 5}
    assert not shutdown.reported, "what was sent since is told again"


def test_streams_of_an_axis_are_counted_below_the_rig(topics: Any, phase: PhaseMachine) -> None:
    context = NodeContext(NodeLocation("axis", "/rths/story_2"), phase, topics, DeferredSends(topics), None)
    shutdown = Shutdown(context, lambda: (0, {}))
    shutdown.report()
    assert shutdown.summary == {"sent.story_2/command": 4}


def test_a_node_leaves_when_the_test_is_over_and_the_leader_gone(
    shutdown: Shutdown, phase: PhaseMachine, topics: Any
) -> None:
    looks: list[str] = []
    phase.follow(StateOfTest(State.FINISHED, 7))
    shutdown.leave(lambda: looks.append("state"))
    assert not phase.gone
    topics.guards["test_state"].gone = True
    shutdown.leave(lambda: looks.append("state"))
    assert (phase.gone, shutdown.reported, looks) == (True, True, ["state"])


def test_a_node_leaves_at_once_where_no_test_has_begun(shutdown: Shutdown, phase: PhaseMachine) -> None:
    """The actuator node waits for its peers then: they must not wait for it."""
    phase.follow(StateOfTest(State.HELD, 0, "interrupted before the test began"))
    shutdown.leave(lambda: None)
    assert (phase.gone, phase.begun) == (True, False)
