# SPDX-License-Identifier: Apache-2.0
"""Clock comparison between machines by the actuator node, with known latencies and clocks."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from rths_nodes.core.durations import SECOND
from rths_nodes.core.wire import encode
from rths_nodes.ros.names import NodeLocation
from rths_nodes.ros.nodes import participation
from rths_nodes.ros.nodes.participation import ClockQuestions, NodeContext, PhaseMachine, answer_questions

AHEAD = 5 * SECOND
THERE, BACK = 200_000, 300_000
"""Latencies of question and answer, ns."""
POLL = 2_000_000
"""Time that a message waits in an inbox, ns."""


class Tray:
    """Inbox that knows since when each message has waited."""

    def __init__(self, cable: Cable) -> None:
        self._cable, self._received, self.messages = cable, 0, list[tuple[bytes, int]]()

    def take(self) -> bytes | None:
        if not self.messages:
            return None
        data, self._received = self.messages.pop(0)
        return data

    def waited(self) -> int:
        return self._cable.time - self._received


class Cable:
    """The topics of both nodes, and their clocks, which advance by the latency of each message."""

    def __init__(self) -> None:
        self.time = 1_000 * SECOND
        self.ahead, self.lost = AHEAD, False
        self.set_by: dict[int, int] = {}
        """Changes of the clock of the actuator node during an exchange, ns, by number of the exchange."""
        self.set = 0
        self.inboxes = {participation.QUESTION: Tray(self), participation.ANSWER: Tray(self)}
        self.questions = self.questions_to("compensator")
        self.remote = self.node("compensator", lambda: self.time + self.ahead)

    def node(self, name: str, time_ns: Any) -> NodeContext:
        topics: Any = self
        clock: Any = SimpleNamespace(monotonic_ns=lambda: self.time, time_ns=time_ns)
        return NodeContext(NodeLocation(name, "/rths"), PhaseMachine(), topics, topics, None, clock)

    def questions_to(self, *peers: str) -> ClockQuestions:
        return ClockQuestions(self.node("actuator", lambda: self.time + self.set), peers)

    def publish(self, topic: str, values: dict[str, Any]) -> None:
        if self.lost:
            return
        self.time += THERE if topic == participation.QUESTION else BACK
        self.set += self.set_by.get(values["number"], 0) if topic == participation.QUESTION else 0
        self.inboxes[topic].messages.append((encode("ClockProbe", {"run": ""} | values), self.time))
        self.time += POLL

    def exchange(self, done: Any) -> None:
        while not done():
            answer_questions(self.remote)
            self.time += POLL


@pytest.fixture
def cable() -> Cable:
    return Cable()


def test_offset_and_drift_do_not_depend_on_polling(cable: Cable) -> None:
    cable.exchange(cable.questions.done_before)
    assert len(cable.questions.before["compensator"]) == participation.QUESTIONS
    cable.ahead += 40_000
    cable.exchange(cable.questions.done_after)
    numbers = cable.questions.numbers()["compensator"]
    error = 0.5 * (THERE - BACK) / SECOND
    assert numbers["offset_s"] == pytest.approx(AHEAD / SECOND + error, abs=1e-8)
    assert numbers["bound_s"] == pytest.approx(0.5 * (THERE + BACK) / SECOND, abs=1e-8)
    assert numbers["drift_s"] == pytest.approx(4e-5, abs=1e-8)


@pytest.mark.parametrize("set_by", [-SECOND, SECOND])
def test_clock_that_is_set_during_an_exchange_changes_no_round_trip(cable: Cable, set_by: int) -> None:
    cable.set_by = {participation.QUESTIONS: set_by}
    cable.exchange(cable.questions.done_before)
    numbers = cable.questions.numbers()["compensator"]
    assert numbers["offset_s"] == pytest.approx((AHEAD + 0.5 * (THERE - BACK)) / SECOND, abs=1e-8)
    for name, share in (("bound_s", 0.5), ("round_trip_median_s", 1.0), ("round_trip_max_s", 1.0)):
        assert numbers[name] == pytest.approx(share * (THERE + BACK) / SECOND, abs=1e-8)


def test_answer_with_negative_round_trip_is_ignored(cable: Cable) -> None:
    """The clock of the other machine was set while the question waited."""
    cable.exchange(cable.questions.done_before)
    answer = {"node": "compensator", "number": participation.QUESTIONS + 1, "ahead": 0.0, "held": 1.0}
    assert not cable.questions.done_after()
    cable.publish(participation.ANSWER, answer)
    assert not cable.questions.done_after()
    cable.inboxes[participation.QUESTION].messages.clear()
    assert math.isnan(cable.questions.numbers()["compensator"]["drift_s"])


def test_silent_peer_is_named_after_timeout(cable: Cable) -> None:
    cable.lost = True
    cable.exchange(cable.questions.done_before)
    assert cable.questions.silent == ["compensator"]
    assert cable.time < 1_003 * SECOND


def test_nothing_is_asked_on_one_machine(cable: Cable) -> None:
    questions = cable.questions_to()
    assert questions.done_before()
    assert questions.done_after()
    assert questions.numbers() == {}
    assert not cable.inboxes[participation.QUESTION].messages
