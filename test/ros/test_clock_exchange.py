# SPDX-License-Identifier: Apache-2.0
"""The actuator node asks for the clock of a node elsewhere: known ways, and clocks that are known."""

from __future__ import annotations

from typing import Any

import pytest

from rths_nodes.core.durations import SECOND
from rths_nodes.core.wire.plain import encode
from rths_nodes.ros.nodes.clock_exchange import ANSWER, QUESTION, QUESTIONS, ClockQuestions, answer_questions
from rths_nodes.ros.nodes.phase import NodeContext, PhaseMachine
from rths_nodes.ros.transport.wiring import NodeLocation

AHEAD = 5 * SECOND
THERE, BACK = 200_000, 300_000
"""The ways, ns."""
POLL = 2_000_000
"""How long a message waits in an inbox before it is looked at, ns."""


class Tray:
    """An inbox that knows since when each message is there."""

    def __init__(self, cable: Cable) -> None:
        self._cable, self._came, self.messages = cable, 0, list[tuple[bytes, int]]()

    def take(self) -> bytes | None:
        if not self.messages:
            return None
        data, self._came = self.messages.pop(0)
        return data

    def waited(self) -> int:
        return self._cable.time - self._came


class Cable:
    """The topics of both nodes, and a time that goes on by what a way takes; lost questions come nowhere."""

    def __init__(self) -> None:
        self.time = 1_000 * SECOND
        self.ahead, self.lost = AHEAD, False
        self.inboxes = {QUESTION: Tray(self), ANSWER: Tray(self)}

    def monotonic_ns(self) -> int:
        return self.time

    def time_ns(self) -> int:
        return self.time

    def publish(self, topic: str, values: dict[str, Any]) -> None:
        if self.lost:
            return
        self.time += THERE if topic == QUESTION else BACK
        self.inboxes[topic].messages.append((encode("ClockProbe", {"run": ""} | values), self.time))
        self.time += POLL


class Elsewhere:
    """The clock of the other machine."""

    def __init__(self, cable: Cable) -> None:
        self._cable = cable

    def monotonic_ns(self) -> int:
        return self._cable.time

    def time_ns(self) -> int:
        return self._cable.time + self._cable.ahead

    def sleep(self, seconds: float, /) -> None: ...


@pytest.fixture
def cable() -> Any:
    return Cable()


def of(node: str, topics: Any, clock: Any) -> NodeContext:
    return NodeContext(NodeLocation(node, "/rths"), PhaseMachine(), topics, topics, None, clock)


def exchanged(cable: Any, asked: Any, other: NodeContext) -> None:
    while not asked():
        answer_questions(other)
        cable.time += POLL


def test_offset_and_drift_do_not_depend_on_how_seldom_the_nodes_look(cable: Any) -> None:
    questions = ClockQuestions(of("actuator", cable, cable), ["compensator"])
    other = of("compensator", cable, Elsewhere(cable))
    exchanged(cable, questions.done_before, other)
    assert len(questions.before["compensator"]) == QUESTIONS
    cable.ahead += 40_000
    exchanged(cable, questions.done_after, other)
    found = questions.numbers()["compensator"]
    wrong = 0.5 * (THERE - BACK) / SECOND
    assert found["offset_s"] == pytest.approx(AHEAD / SECOND + wrong, abs=1e-8)
    assert found["bound_s"] == pytest.approx(0.5 * (THERE + BACK) / SECOND, abs=1e-8)
    assert found["drift_s"] == pytest.approx(4e-5, abs=1e-8)


def test_who_does_not_answer_is_named_and_not_waited_for(cable: Any) -> None:
    questions = ClockQuestions(of("actuator", cable, cable), ["compensator"])
    cable.lost = True
    exchanged(cable, questions.done_before, of("compensator", cable, Elsewhere(cable)))
    assert questions.silent == ["compensator"]
    assert cable.time < 1_003 * SECOND


def test_on_one_machine_nothing_is_asked(cable: Any) -> None:
    questions = ClockQuestions(of("actuator", cable, cable), ())
    assert questions.done_before()
    assert questions.done_after()
    assert questions.numbers() == {}
    assert not cable.inboxes[QUESTION].messages
