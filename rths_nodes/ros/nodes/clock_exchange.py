# SPDX-License-Identifier: Apache-2.0
"""Clock comparison between machines, requested by the actuator node before and after the test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rths_nodes.core.data import Data
from rths_nodes.core.durations import SECOND
from rths_nodes.core.wire import decode
from rths_nodes.loop.timing import Exchange, clock_numbers
from rths_nodes.ros import names
from rths_nodes.ros.nodes.phase import NodeContext
from rths_nodes.ros.transport.topics import NodeTopics

QUESTION, ANSWER = "clock_question", "clock_answer"
QUESTIONS = 16
"""Number of requests before the test, and again after the test. The fastest answer gives the offset."""
UNANSWERED_NS = 100_000_000


def _received_with_age(topics: NodeTopics, topic: str) -> Iterator[tuple[Data, int]]:
    inbox = topics.inboxes[topic]
    while (data := inbox.take()) is not None:
        waited = inbox.waited()
        try:
            yield decode(names.TOPICS[topic].message, data), waited
        except ValueError:
            topics.drop_malformed()


def answer_questions(context: NodeContext) -> None:
    topics, now_ns = context.topics, context.clock.time_ns
    for question, waited in _received_with_age(topics, QUESTION) if QUESTION in topics.inboxes else ():
        came = now_ns() - waited
        ahead = (came - question["stamp"]) / SECOND
        now = now_ns()
        answer = {"node": context.location.peer, "number": question["number"], "ahead": ahead}
        topics.publish(ANSWER, answer | {"stamp": now, "held": (now - came) / SECOND})


class ClockQuestions:
    """Requests the time from ``peers`` on other machines. Each request addresses all peers."""

    def __init__(self, context: NodeContext, peers: Sequence[str]) -> None:
        self._node, self._peers, self._topics = context.location.peer, tuple(peers), context.topics
        self._now, self._elapsed = context.clock.time_ns, context.clock.monotonic_ns
        self.before: dict[str, list[Exchange]] = {peer: [] for peer in peers}
        self._after: dict[str, list[Exchange]] = {peer: [] for peer in peers}
        self._asked = self._asked_at = 0
        self._silent: set[str] = set()

    def done_before(self) -> bool:
        return self._ask(self.before, QUESTIONS)

    def done_after(self) -> bool:
        return self._ask(self._after, 2 * QUESTIONS)

    def _ask(self, exchanges: dict[str, list[Exchange]], last: int) -> bool:
        if not self._peers:
            return True
        self._receive(exchanges)
        if self._silent and self._elapsed() - self._asked_at < UNANSWERED_NS:
            return False
        if self._asked >= last:
            return True
        self._asked += 1
        self._silent = set(self._peers)
        self._asked_at = self._elapsed()
        self._topics.publish(QUESTION, {"node": self._node, "number": self._asked, "stamp": self._now()})
        return False

    def _receive(self, exchanges: dict[str, list[Exchange]]) -> None:
        for answer, waited in _received_with_age(self._topics, ANSWER):
            peer = answer["node"]
            if answer["number"] == self._asked and peer in self._silent:
                self._silent.discard(peer)
                round_trip = (self._elapsed() - waited - self._asked_at) / SECOND - answer["held"]
                if round_trip > 0.0:  # otherwise a clock was set while a message waited
                    exchanges[peer].append(Exchange(answer["ahead"], round_trip))

    @property
    def silent(self) -> list[str]:
        return [peer for peer, exchanges in self.before.items() if not exchanges]

    def numbers(self) -> dict[str, dict[str, float]]:
        return {peer: clock_numbers(self.before[peer], self._after[peer]) for peer in self._peers}
