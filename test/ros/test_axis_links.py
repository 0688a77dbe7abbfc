# SPDX-License-Identifier: Apache-2.0
"""Commands to the nodes of the axes, their answers, and when an axis is lost."""

from __future__ import annotations

from collections import defaultdict, deque
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from messages import mentions

from rths_nodes.core.samples import Command, Measurement
from rths_nodes.core.wire.codec import Codec
from rths_nodes.core.wire.layout import RunMark
from rths_nodes.ros.nodes.actuator import GONE_NS, LOST_NS, TopicLinks

SECOND = 1_000_000_000
AXES = ("story_1", "story_2")


class Topics:
    """Those of the actuator node: what was sent, and what waits, by topic."""

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


class Bench:
    """The links, and what their surroundings say."""

    def __init__(self, clock: Any) -> None:
        self.clock: Any = clock
        self.topics: Any = Topics()
        self.stop_asked = False
        self.looks = 0
        self.links = TopicLinks(self.topics, lambda sample: 10 * sample, self.ask, 5 * SECOND, clock)

    def ask(self) -> bool:
        self.looks += 1
        return self.stop_asked

    def lost_after(self, wait: int) -> str:
        self.links.send_command("story_2", Command(7, np.zeros(1), np.zeros(1)))
        self.clock.now += wait
        return self.links.lost(["story_2"], 7)


@pytest.fixture
def bench(still_clock: Any) -> Bench:
    return Bench(still_clock)


def test_a_command_goes_to_the_topic_of_its_axis_with_its_stamp(bench: Bench) -> None:
    bench.links.send_command("story_2", Command(3, np.array([1.0]), np.array([2.0]), flags=4))
    ((topic, data),) = bench.topics.sent
    command, stamp = Codec(0, 1, 0).unpack_command(data)
    assert (topic, stamp) == ("story_2/command", 30)
    assert (command.sample, command.target, command.command, command.flags) == (3, [1.0], [2.0], 4)


def test_measurements_and_true_states_come_in_their_order(bench: Bench) -> None:
    codec, at = Codec(0, 1, 0), np.zeros(1)
    for sample in (1, 2):
        data = codec.pack_measurement(Measurement(sample, at, at, at), 100 + sample)
        for topic in ("measurement", "true_state"):
            bench.topics.waiting[f"story_1/{topic}"].append(data)
    found = [bench.links.measurement_of("story_1") for _ in range(3)]
    assert [measured and measured.sample for measured in found] == [1, 2, None]
    true = bench.links.true_state_of("story_1")
    assert true is not None
    assert (true[0].sample, true[1]) == (1, 101)
    assert bench.links.measurement_of("story_2") is None


def test_an_axis_has_some_time_before_anybody_asks_where_it_is(bench: Bench) -> None:
    bench.topics.guards["story_2/measurement"].gone = True
    assert bench.lost_after(GONE_NS - 1) == ""
    assert bench.looks == 0
    assert mentions(bench.lost_after(GONE_NS), "Measurement", "7", "story_2/axis")


def test_a_silent_axis_is_lost_in_the_end(bench: Bench) -> None:
    assert bench.lost_after(5 * SECOND) == ""
    assert bench.lost_after(6 * SECOND) == "no Measurement 7 from story_2/axis for 6 s"


def test_a_silent_axis_is_lost_soon_when_the_test_has_to_stop(bench: Bench) -> None:
    bench.stop_asked = True
    assert bench.lost_after(LOST_NS) == ""
    assert bench.lost_after(LOST_NS + SECOND // 10) == "no Measurement 7 from story_2/axis for 0.35 s"
