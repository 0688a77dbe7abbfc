# SPDX-License-Identifier: Apache-2.0
"""In one process messages go from node to node by hand; everybody else has them from the middleware, in order."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")


import rths_nodes
from rths_nodes.app import hosts
from rths_nodes.core.samples import FLAG_BRIDGED
from rths_nodes.core.wire.layout import EMPTY, ENCAPSULATION, RunMark, mark_of
from rths_nodes.ros import names
from rths_nodes.ros.hosting import composed
from rths_nodes.ros.hosting.executor import LoopExecutor
from rths_nodes.ros.transport.endpoints import Inbox

FRAME = EMPTY.to_bytes(8, "little")
"""Empty frame_id of a header."""
RUN = RunMark(mark_of("one", "drawn"))
PATIENCE_S = 10.0


@pytest.fixture
def pair(stream: Any) -> Any:
    """The ``stream``, which has brought a message."""
    stream.outlet.send(message(99))
    assert stream.inbox.take() == message(99)
    return stream


def taken(inbox: Inbox) -> list[bytes]:
    return list(iter(inbox.take, None))


def message(number: int) -> bytes:
    return ENCAPSULATION + number.to_bytes(4, "little") + bytes(4) + FRAME + RUN.field + bytes(64)


def of_another_run(number: int) -> bytes:
    return (
        ENCAPSULATION
        + number.to_bytes(4, "little")
        + bytes(4)
        + FRAME
        + RunMark(mark_of("another")).field
        + bytes(64)
    )


def test_neighbours_get_every_message_once_and_the_middleware_none(pair: Any) -> None:
    sent = [message(k) for k in range(5)]
    pair.outlet.hand_to([pair.inbox], holds=False)
    for data in sent:
        pair.outlet.send(data)
    assert taken(pair.inbox) == sent
    pair.inbox.by_hand = False  # now the inbox looks into the middleware
    assert taken(pair.inbox) == []


@pytest.mark.parametrize("holds", [False, True])
def test_who_comes_later_hears_the_rest_and_neighbours_hear_nothing_twice(pair: Any, holds: bool) -> None:
    pair.outlet.hand_to([pair.inbox], holds)
    pair.outlet.send(message(0))
    late = pair.eavesdropper()
    rest = [message(k) for k in (1, 2, 3)]
    for data in rest:
        pair.outlet.send(data)
    assert taken(late) == ([] if holds else rest), "what is held waits until the loop has time"
    pair.outlet.publish_held()
    assert taken(late) == (rest if holds else [])
    assert taken(pair.inbox) == [message(0), *rest]
    pair.inbox.by_hand = False
    assert taken(pair.inbox) == [], "what came a second time was dropped"


def test_strangers_are_dropped_and_counted_as_ever(pair: Any) -> None:
    stranger = pair.stranger()
    pair.until(lambda: stranger.get_subscription_count() == 1)
    pair.inbox.guard.close()
    stranger.publish(of_another_run(7))
    assert pair.inbox.take() is None
    pair.outlet.hand_to([pair.inbox], holds=False)
    for number in (8, 9):
        stranger.publish(of_another_run(number))
    pair.outlet.send(message(0))
    assert taken(pair.inbox) == [message(0)]
    pair.inbox.drop()
    pair.inbox.guard.look()
    assert pair.inbox.guard.foreign() == {"/rths/other": 3}


def test_what_a_peer_sends_of_another_run_is_dropped_and_counted(pair: Any) -> None:
    pair.inbox.guard.close()
    pair.outlet.send(of_another_run(1))
    pair.outlet.send(message(2))
    assert taken(pair.inbox) == [message(2)]
    pair.inbox.guard.look()
    assert sum(pair.inbox.guard.foreign().values()) == 1


def test_who_is_closed_is_no_neighbour_any_more(pair: Any) -> None:
    pair.outlet.hand_to([pair.inbox], holds=False)
    assert not pair.outlet.has_topic_subscribers
    pair.inbox.by_hand = False  # as when its node closes it
    pair.outlet.look()
    assert pair.outlet.has_topic_subscribers
    pair.outlet.send(message(1))
    assert taken(pair.inbox) == [message(1)]


def test_without_neighbours_nothing_is_held_back() -> None:
    """In a process of its own the actuator node sends a Measurement at once."""
    values = {"scenario": "chen_ricles_2010", "pace": "realtime"}
    with composed.ros_context() as context:
        nodes = [
            composed.make_node(role, hosts.open_writer, context, values)
            for role in (names.ACTUATOR, names.COMPENSATOR)
        ]
        for node in nodes:
            node.start()
        outlet = nodes[0].topics.outlets["measurement"]
        for together, held in ((nodes[:1], False), (nodes, True)):
            LoopExecutor(together, context).introduce()
            assert outlet.holds == held
        for node in nodes:
            node.destroy_node()


LISTEN = """
import sys, time, rclpy
from rclpy.qos import QoSProfile
from rths_nodes.msg import Measurement
rclpy.init()
node = rclpy.create_node("listener")
print("up", flush=True)
sys.stdin.readline()
found = []
hear = lambda message: found.append(message.sample)
node.create_subscription(Measurement, "/rths/measurement", hear, QoSProfile(depth={depth}))
while node.count_publishers("/rths/measurement") < int(sys.argv[1]):
    time.sleep(0.01)
print("joined", flush=True)
before = 0
while before < len(found) or not found or node.count_publishers("/rths/measurement"):
    before = len(found)  # the publisher may be gone while its last messages are still in the queue
    rclpy.spin_once(node, timeout_sec=0.2)
print(*found, flush=True)
"""


DEPTH = 12_000
"""Messages that the subscriber may be behind: in lockstep nobody waits for it."""


class Listener:
    """An ordinary typed subscriber, in a process of its own, started before the test, as that takes longer."""

    def __init__(self, publishers: int) -> None:
        """Once it has joined, it is there when it has found as many ``publishers``."""
        command = [sys.executable, "-c", LISTEN.format(depth=DEPTH), str(publishers)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._expect("up\n")

    def join(self) -> None:
        """Subscribe, and wait until it is there."""
        assert self._process.stdin is not None
        self._process.stdin.write("join\n")
        self._process.stdin.flush()
        self._expect("joined\n")

    def _expect(self, words: str) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == words

    def heard(self) -> list[int]:
        """The samples that it has heard until the publisher was gone."""
        try:
            return [int(word) for word in self._process.communicate(timeout=PATIENCE_S)[0].split()]
        finally:
            self._process.kill()


@pytest.mark.parametrize(
    ("pace", "joins", "host"),
    [
        ("realtime", 500, "processes"),
        ("realtime", 0, "composed"),
        pytest.param("lockstep", 500, "composed", marks=pytest.mark.soak),
        pytest.param("lockstep", 500, "processes", marks=pytest.mark.soak),
    ],
)
def test_an_ordinary_subscriber_hears_all_that_is_sent_once_it_is_there(
    pace: str, joins: int, host: str, tmp_path: Path, patience: list[str]
) -> None:
    """And the run has the bits that it has alone.

    A publisher keeps 2000 messages for who is behind: in real time, at this rate, all of them. Lockstep has as
    many in half a second, for which a busy machine may well keep a listener waiting.
    """
    listener, joined = Listener(1 if joins else 0), not joins
    if joined:
        listener.join()

    def join(sample: int, _: int) -> None:
        nonlocal joined
        if sample >= joins and not joined:
            joined = True
            listener.join()

    sets = ["servo_rate=204.8", "substeps=2", f"duration={8 if joins else 3}", *patience]
    run = tmp_path / "run"
    report = hosts.run("chen_ricles_2010", sets, host=host, pace=pace, record=run, progress=join)
    assert (report.outcome, report.reason) == ("finished", "")
    heard = listener.heard()
    assert heard == list(range(heard[0], report.samples + 1)), "each once, in order, to the last"
    assert heard[0] >= joins
    alone = rths_nodes.run("chen_ricles_2010", sets).arrays()
    found = rths_nodes.read(run)
    bridged = found.flags & np.uint32(FLAG_BRIDGED) != 0  # by processes that a busy machine keeps waiting
    first = int(np.argmax(bridged)) if bridged.any() else len(bridged)
    assert first == len(bridged) or (host, pace) == ("processes", "realtime")
    assert (found.command[:first] == alone["command"][:first]).all()
