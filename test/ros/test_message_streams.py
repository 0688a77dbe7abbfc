# SPDX-License-Identifier: Apache-2.0
"""Tests of streams: passed on within a process, sent by socket on one machine, published for all others.

Every receiver gets each message once and in order.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from messages import mentions

import rths_nodes
from rths_nodes.app import hosts
from rths_nodes.core.samples import FLAG_BRIDGED
from rths_nodes.core.wire import EMPTY, ENCAPSULATION, RunMark, mark_of
from rths_nodes.ros import names
from rths_nodes.ros.hosting import composed
from rths_nodes.ros.hosting.executor import LoopExecutor
from rths_nodes.ros.hosting.processes import dropped_messages
from rths_nodes.ros.nodes.actuator import ActuatorNode
from rths_nodes.ros.nodes.base import RthsNode
from rths_nodes.ros.nodes.participation import Phase
from rths_nodes.ros.transport import endpoints, topics
from rths_nodes.ros.transport.endpoints import Inbox, StreamPublisher
from rths_nodes.ros.transport.line import SocketReader, SocketWriter, address

NAME = "chen_ricles_2010"
FRAME = EMPTY.to_bytes(8, "little")
"""Empty frame_id of a header."""
RUN, OTHER_RUN = RunMark(mark_of("one", "drawn")), RunMark(mark_of("another"))
PATIENCE_S = 10.0
KEPT = 5


def message(number: int, run: RunMark = RUN) -> bytes:
    return ENCAPSULATION + bytes(8) + FRAME + run.field + number.to_bytes(4, "little") + bytes(64)


def messages(*numbers: int) -> list[bytes]:
    return [message(number) for number in numbers]


def send(outlet: StreamPublisher, *numbers: int, run: RunMark = RUN) -> None:
    for number in numbers:
        outlet.send(message(number, run))


def taken(inbox: Inbox) -> list[bytes]:
    return list(iter(inbox.take, None))


# -- one stream within a process --------------------------------------------------------------------------


@pytest.fixture
def pair(stream: Any) -> Any:
    """The ``stream`` after its first message."""
    send(stream.outlet, 99)
    assert stream.inbox.take() == message(99)
    return stream


def test_message_to_neighbour_bypasses_middleware(pair: Any) -> None:
    pair.outlet.hand_to([pair.inbox], holds=False)
    send(pair.outlet, *range(5))
    assert taken(pair.inbox) == messages(*range(5))
    pair.inbox.by_hand = False  # now the inbox reads from the middleware
    assert taken(pair.inbox) == []


@pytest.mark.parametrize("holds", [False, True])
def test_late_subscriber_receives_rest_and_neighbour_no_duplicate(pair: Any, holds: bool) -> None:
    pair.outlet.hand_to([pair.inbox], holds)
    send(pair.outlet, 0)
    late = pair.eavesdropper()
    send(pair.outlet, 1, 2, 3)
    assert taken(late) == ([] if holds else messages(1, 2, 3)), "a held message waits until the loop has time"
    pair.outlet.publish_held()
    assert taken(late) == (messages(1, 2, 3) if holds else [])
    assert taken(pair.inbox) == messages(0, 1, 2, 3)
    pair.inbox.by_hand = False
    assert taken(pair.inbox) == [], "duplicates were dropped"


def test_foreign_messages_are_dropped_and_counted(pair: Any) -> None:
    stranger = pair.stranger()
    pair.until(lambda: stranger.get_subscription_count() == 1)
    pair.inbox.guard.close()
    stranger.publish(message(7, OTHER_RUN))
    assert pair.inbox.take() is None
    pair.outlet.hand_to([pair.inbox], holds=False)
    for number in (8, 9):
        stranger.publish(message(number, OTHER_RUN))
    send(pair.outlet, 0)
    assert taken(pair.inbox) == messages(0)
    pair.inbox.drop()
    pair.inbox.guard.look()
    assert pair.inbox.guard.foreign() == {"/rths/other": 3}


def test_messages_of_other_run_are_dropped_and_counted(pair: Any) -> None:
    pair.inbox.guard.close()
    send(pair.outlet, 1, run=OTHER_RUN)
    send(pair.outlet, 2)
    assert taken(pair.inbox) == messages(2)
    pair.inbox.guard.look()
    assert sum(pair.inbox.guard.foreign().values()) == 1


def test_closed_neighbour_receives_by_topic(pair: Any) -> None:
    pair.outlet.hand_to([pair.inbox], holds=False)
    assert not pair.outlet.has_topic_subscribers
    pair.inbox.by_hand = False  # as if its node had closed it
    pair.outlet.look()
    assert pair.outlet.has_topic_subscribers
    send(pair.outlet, 1)
    assert taken(pair.inbox) == messages(1)


# -- one stream by socket ---------------------------------------------------------------------------------


@pytest.fixture
def line(stream: Any) -> Iterator[Any]:
    """The ``stream`` connected by sockets."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    stream.outlet.speak_to("/rths/listener", SocketWriter(ends[0], KEPT), holds=False)
    stream.inbox.receive_by(SocketReader(ends[1]))
    yield stream
    stream.outlet.hang_up()
    stream.inbox.hang_up()


def test_message_by_socket_bypasses_middleware(line: Any) -> None:
    assert not line.outlet.has_topic_subscribers
    send(line.outlet, 0, 1, 2)
    assert taken(line.inbox) == messages(0, 1, 2)
    assert line.inbox.waited() > 0
    line.inbox.hang_up()  # now the inbox reads from the middleware
    assert taken(line.inbox) == []


def test_late_subscriber_receives_rest_and_socket_no_duplicate(line: Any) -> None:
    send(line.outlet, 0)
    late = line.eavesdropper()
    send(line.outlet, 1, 2, 3)
    assert taken(late) == messages(1, 2, 3)
    assert taken(line.inbox) == messages(0, 1, 2, 3)
    line.inbox.drop()
    assert line.inbox.guard.foreign() == {}
    assert taken(line.inbox) == []


@pytest.mark.parametrize("elsewhere", [False, True])
def test_returned_line_loses_and_duplicates_nothing(line: Any, elsewhere: bool) -> None:
    """Sent messages arrive first; all later ones are published."""
    subscribers = [line.eavesdropper()] if elsewhere else []
    send(line.outlet, 0, 1)
    assert line.inbox.take() is not None
    line.inbox.line.give_back()
    send(line.outlet, 2, 3)
    assert line.outlet.has_topic_subscribers
    line.outlet.look()
    assert line.outlet.lines == {}
    send(line.outlet, 4)
    received: list[bytes] = []
    line.until(lambda: received.extend(taken(line.inbox)) or len(received) >= 4)
    assert received == messages(1, 2, 3, 4)
    for subscriber in subscribers:
        assert taken(subscriber) == messages(0, 1, 2, 3, 4)


def test_line_closed_before_first_message_is_replaced_by_topic(line: Any) -> None:
    """As if the sender was configured again, or got no greeting in time."""
    line.outlet.hang_up()
    assert line.outlet.has_topic_subscribers
    send(line.outlet, 0)
    received: list[bytes] = []
    line.until(lambda: received.extend(taken(line.inbox)) or received)
    assert received == messages(0)


def test_published_copies_are_ignored_after_death_of_sender(line: Any) -> None:
    late = line.eavesdropper()
    send(line.outlet, 0, 1)
    line.outlet.hang_up()
    line.until(lambda: len(taken(late)) == 2)
    assert taken(line.inbox) == messages(0, 1)
    assert taken(line.inbox) == []


def test_overrun_of_slow_receiver_is_counted(line: Any) -> None:
    sent = 0
    while not line.outlet.lost:
        send(line.outlet, sent)
        sent += 1
    received = taken(line.inbox)
    line.outlet.publish_held()
    received += taken(line.inbox)
    assert received == messages(*range(sent - 1))
    assert line.outlet.lost == 1


def test_report_names_overruns_and_refused_callers() -> None:
    report = dropped_messages(
        {"overflow.compensator.command": 3, "foreign.monitor.its socket.process 7 of user 8": 2, "foreign.x": 1}
    )
    assert mentions(report, "2", "7", "user 8", "socket")
    assert mentions(report, "messages", "3", "compensator")


# -- nodes ------------------------------------------------------------------------------------------------

LOOP = (names.INTEGRATOR, names.COMPENSATOR, names.ACTUATOR)


@pytest.fixture
def loop() -> Iterator[list[RthsNode]]:
    """The configured nodes of a loop, as if each had its own process."""
    values = {"scenario": NAME, "peers": list(LOOP), "autostart": False}
    with composed.ros_context() as context:
        nodes = [composed.make_node(role, hosts.open_writer, context, values) for role in LOOP]
        for node in nodes:
            node.trigger_configure()
        yield nodes
        for node in nodes:
            node.destroy_node()


def look(nodes: list[RthsNode]) -> None:
    for node in nodes:
        node.look()
    time.sleep(0.002)


def activate(nodes: list[RthsNode], loop: list[RthsNode]) -> None:
    """Activate ``nodes`` until the ``loop`` is ready; the actuator node announces the run but does not begin."""
    for node in nodes:
        node.trigger_activate()
        if isinstance(node, ActuatorNode):
            node._after.announce()
    end = time.monotonic() + PATIENCE_S
    while any(node.phase.now is not Phase.READY for node in loop):
        assert time.monotonic() < end, [node.phase.now for node in loop]
        look(loop)


def transports(nodes: list[RthsNode]) -> set[str]:
    return {node.topics.lines.way for node in nodes}


def test_node_is_ready_once_partners_are_connected(loop: list[RthsNode]) -> None:
    activate(loop, loop)
    assert transports(loop) == {"sockets"}
    receivers = [node.get_fully_qualified_name() for node in loop[:2]]
    assert list(loop[2].topics.outlets["measurement"].lines) == receivers, "the first has to answer first"
    assert not any(
        node.topics.outlets[topic].has_topic_subscribers
        for node, topic in zip(loop, ("target", "command"), strict=False)
    )


def test_late_discovered_partner_is_waited_for(loop: list[RthsNode], monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine discovery takes longer than an answer; the partner is not foreign."""
    compensator, until = loop[1], time.monotonic() + 0.5
    publishers = endpoints.publishers

    def undiscovered(node: Any, topic: str) -> list[tuple[str, bytes]]:
        early = node is compensator and topic == "/rths/target" and time.monotonic() < until
        return [] if early else publishers(node, topic)

    warnings: list[str] = []
    monkeypatch.setattr(endpoints, "publishers", undiscovered)
    monkeypatch.setattr(topics, "PATIENCE_NS", 50_000_000)
    monkeypatch.setattr(loop[0].topics.lines, "_warn", warnings.append)
    activate(loop, loop)
    assert time.monotonic() > until
    assert (transports(loop), warnings) == ({"sockets"}, [])
    assert not any(key.startswith("foreign") for node in loop for key in node.topics.dropped(node.identity))


def test_nodes_of_one_process_replace_sockets(loop: list[RthsNode]) -> None:
    """From the beginning of the test on, also if a node has not received that yet."""
    activate(loop, loop)
    for node in loop:
        node.topics.hand_to([other.topics for other in loop], holds=False)
    for _ in range(50):
        look(loop)
    assert transports(loop) == {"process"}
    assert all(not outlet.lines for node in loop for outlet in node.topics.outlets.values())
    assert not any(node.topics.lines.strangers for node in loop)


def test_reconfigured_nodes_reconnect_by_socket(loop: list[RthsNode]) -> None:
    activate(loop, loop)
    for again in (loop, loop[1:2]):  # all nodes; one node while the others are ready
        for node in again:
            node.trigger_deactivate()
            node.trigger_cleanup()
        assert transports(again) == {"topics"}
        for node in again:
            node.trigger_configure()
        activate(again, loop)
        end = time.monotonic() + PATIENCE_S
        while transports(loop) != {"sockets"} and time.monotonic() < end:  # a ready node calls again at times
            look(loop)
        assert transports(loop) == {"sockets"}


def test_node_without_all_inputs_by_socket_uses_topics(loop: list[RthsNode]) -> None:
    """Its address is free for others once the test begins."""
    integrator, compensator, _ = loop
    activate(loop, loop)
    compensator.topics.lines._by_topic["/rths/target"].hang_up()  # as if the integrator were elsewhere
    for node in loop:
        node.topics.close_guards()
    assert transports([compensator]) == {"topics"} or compensator.topics.inboxes["measurement"].take() is None
    assert transports([compensator]) == {"topics"}
    assert transports([integrator]) == {"sockets"}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
        other.bind(address("/rths/compensator", int(os.environ["ROS_DOMAIN_ID"])))


def test_destroyed_node_releases_address() -> None:
    free = address("/rths/compensator", int(os.environ["ROS_DOMAIN_ID"]))
    with composed.ros_context() as context:
        node = composed.make_node("compensator", hosts.open_writer, context, {"scenario": NAME})
        node.trigger_configure()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
            with pytest.raises(OSError, match="in use"):
                other.bind(free)
            node.destroy_node()
            other.bind(free)


def test_messages_are_held_only_for_neighbours() -> None:
    """An actuator node in its own process sends each Measurement at once."""
    values = {"scenario": NAME, "pace": "realtime"}
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


DEPTH = 12_000
"""Messages that the subscriber may be behind: in lockstep no node waits for it."""
SUBSCRIBE = f"""
import sys, time, rclpy
from rclpy.qos import QoSProfile
from rths_nodes.msg import Measurement
rclpy.init()
node = rclpy.create_node("subscriber")
print("up", flush=True)
sys.stdin.readline()
samples = []
receive = lambda message: samples.append(message.sample)
node.create_subscription(Measurement, "/rths/measurement", receive, QoSProfile(depth={DEPTH}))
while node.count_publishers("/rths/measurement") < int(sys.argv[1]):
    time.sleep(0.01)
print("joined", flush=True)
before = 0
while before < len(samples) or not samples or node.count_publishers("/rths/measurement"):
    before = len(samples)  # the publisher may be gone while its last messages are still in the queue
    rclpy.spin_once(node, timeout_sec=0.2)
print(*samples, flush=True)
"""


class Subscriber:
    """Typed subscriber in its own process, started before the test because its start takes longer.

    ``join`` subscribes and waits for the given number of ``publishers``.
    """

    def __init__(self, publishers: int) -> None:
        command = [sys.executable, "-c", SUBSCRIBE, str(publishers)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout.readline() == "up\n"

    def join(self) -> None:
        self._process.stdin.write("join\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "joined\n"

    def samples(self) -> list[int]:
        """Return the samples received until the publisher was gone."""
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
def test_subscriber_receives_each_sample_and_changes_no_bit(
    pace: str, joins: int, host: str, tmp_path: Path, patience: list[str]
) -> None:
    """In real time a publisher keeps 2000 messages for a late subscriber: at this rate, all of them.

    Lockstep sends as many in half a second, for which a busy machine may well delay a subscriber.
    """
    subscriber, joined = Subscriber(1 if joins else 0), not joins
    if joined:
        subscriber.join()

    def join(sample: int, _: int) -> None:
        nonlocal joined
        if sample >= joins and not joined:
            joined = True
            subscriber.join()

    sets = ["servo_rate=204.8", "substeps=2", f"duration={8 if joins else 3}", *patience]
    report = hosts.run(NAME, sets, host=host, pace=pace, record=tmp_path / "run", progress=join)
    assert (report.outcome, report.reason) == ("finished", "")
    samples = subscriber.samples()
    assert samples == list(range(samples[0], report.samples + 1)), "each once, in order, to the last"
    assert samples[0] >= joins
    reference = rths_nodes.run(NAME, sets).arrays()
    run = rths_nodes.read(tmp_path / "run")
    bridged = run.flags & np.uint32(FLAG_BRIDGED) != 0  # because a busy machine delayed a process
    first = int(np.argmax(bridged)) if bridged.any() else len(bridged)
    assert first == len(bridged) or (host, pace) == ("processes", "realtime")
    assert (run.command[:first] == reference["command"][:first]).all()
