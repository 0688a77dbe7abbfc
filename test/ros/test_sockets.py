# SPDX-License-Identifier: Apache-2.0
"""Streams between processes of one machine go over sockets, to everybody else over topics; each message once."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from messages import mentions

from rths_nodes.app import hosts
from rths_nodes.core.wire.layout import EMPTY, ENCAPSULATION, RunMark, mark_of, number_of
from rths_nodes.ros import names
from rths_nodes.ros.hosting import composed
from rths_nodes.ros.hosting.results import dropped_messages
from rths_nodes.ros.nodes.actuator import ActuatorNode
from rths_nodes.ros.nodes.base import RthsNode
from rths_nodes.ros.nodes.phase import Phase
from rths_nodes.ros.transport import node_lines, peers
from rths_nodes.ros.transport.endpoints import Inbox, StreamPublisher
from rths_nodes.ros.transport.greeting import address
from rths_nodes.ros.transport.line import SocketReader, SocketWriter

NAME = "chen_ricles_2010"
FRAME = EMPTY.to_bytes(8, "little")
"""Empty frame_id of a header."""
RUN = RunMark(mark_of("one", "drawn"))
PATIENCE_S = 10.0
KEPT = 5


def message(number: int) -> bytes:
    return ENCAPSULATION + bytes(8) + FRAME + RUN.field + number.to_bytes(4, "little") + bytes(64)


def taken(inbox: Inbox) -> list[int]:
    return [number_of(data) for data in iter(inbox.take, None)]


@pytest.fixture
def pair(stream: Any) -> Iterator[Any]:
    """The ``stream`` on a line."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    stream.outlet.speak_to("/rths/listener", SocketWriter(ends[0], KEPT), holds=False)
    stream.inbox.receive_by(SocketReader(ends[1]))
    yield stream
    stream.outlet.hang_up()
    stream.inbox.hang_up()


def send(outlet: StreamPublisher, *numbers: int) -> None:
    for number in numbers:
        outlet.send(message(number))


# -- one stream -------------------------------------------------------------------------------------------


def test_the_middleware_gets_nothing_where_all_hear_by_socket(pair: Any) -> None:
    assert not pair.outlet.has_topic_subscribers
    send(pair.outlet, 0, 1, 2)
    assert taken(pair.inbox) == [0, 1, 2]
    assert pair.inbox.waited() > 0
    pair.inbox.hang_up()  # now the inbox looks into the middleware
    assert taken(pair.inbox) == []


def test_who_comes_later_hears_the_rest_and_nobody_hears_anything_twice(pair: Any) -> None:
    send(pair.outlet, 0)
    late = pair.eavesdropper()
    send(pair.outlet, 1, 2, 3)
    assert taken(late) == [1, 2, 3]
    assert taken(pair.inbox) == [0, 1, 2, 3]
    pair.inbox.drop()
    assert pair.inbox.guard.foreign() == {}
    assert taken(pair.inbox) == []


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_line_that_is_given_back_loses_nothing_and_doubles_nothing(pair: Any, elsewhere: bool) -> None:
    """What is on its way comes first; from the next message on all go by the topic."""
    others = [pair.eavesdropper()] if elsewhere else []
    send(pair.outlet, 0, 1)
    assert pair.inbox.take() is not None
    pair.inbox.give_back()
    send(pair.outlet, 2, 3)
    assert pair.outlet.has_topic_subscribers
    pair.outlet.look()
    assert pair.outlet.lines == {}
    send(pair.outlet, 4)
    found: list[int] = []
    pair.until(lambda: found.extend(taken(pair.inbox)) or len(found) >= 4)
    assert found == [1, 2, 3, 4]
    for other in others:
        assert taken(other) == [0, 1, 2, 3, 4]


def test_a_line_that_ends_before_its_first_message_is_none(pair: Any) -> None:
    """As where the speaker was configured anew, or has given up waiting for its welcome."""
    pair.outlet.hang_up()
    assert pair.outlet.has_topic_subscribers
    send(pair.outlet, 0)
    found: list[int] = []
    pair.until(lambda: found.extend(taken(pair.inbox)) or found)
    assert found == [0]


def test_after_the_death_of_the_speaker_its_copies_in_the_middleware_do_not_count(pair: Any) -> None:
    late = pair.eavesdropper()
    send(pair.outlet, 0, 1)
    pair.outlet.hang_up()
    pair.until(lambda: len(taken(late)) == 2)
    assert taken(pair.inbox) == [0, 1]
    assert taken(pair.inbox) == []


def test_who_does_not_take_in_time_has_a_gap_that_is_counted(pair: Any) -> None:
    sent = 0
    while not pair.outlet.lost:
        send(pair.outlet, sent)
        sent += 1
    found = taken(pair.inbox)
    pair.outlet.publish_held()
    found += taken(pair.inbox)
    assert found == list(range(sent - 1))
    assert pair.outlet.lost == 1


def test_what_was_lost_so_and_who_was_turned_away_is_told() -> None:
    told = dropped_messages(
        {"overflow.compensator.command": 3, "foreign.monitor.its socket.process 7 of user 8": 2}
    )
    assert mentions(told, "2", "7", "user 8", "socket")
    assert mentions(told, "messages", "3", "compensator")


# -- nodes ------------------------------------------------------------------------------------------------

LOOP = (names.INTEGRATOR, names.COMPENSATOR, names.ACTUATOR)


@pytest.fixture
def loop() -> Iterator[list[RthsNode]]:
    """The nodes of a loop, configured; as if each had a process of its own."""
    values = {"scenario": NAME, "peers": list(LOOP), "autostart": False}
    with composed.ros_context() as context:
        nodes = [composed.make_node(role, hosts.open_writer, context, values) for role in LOOP]
        for node in nodes:
            node.trigger_configure()
        yield nodes
        for node in nodes:
            node.destroy_node()


def look(nodes: list[RthsNode], seconds: float = PATIENCE_S) -> None:
    """Until all are ready."""
    end = time.monotonic() + seconds
    while any(node.phase.now is not Phase.READY for node in nodes):
        assert time.monotonic() < end, [node.phase.now for node in nodes]
        for node in nodes:
            node.look()
        time.sleep(0.002)


def ways(nodes: list[RthsNode]) -> set[str]:
    return {node.topics.lines.way for node in nodes}


def activate(nodes: list[RthsNode]) -> None:
    """The actuator node also says which run it is, and does not begin."""
    for node in nodes:
        node.trigger_activate()
        if isinstance(node, ActuatorNode):
            node._after.announce()


def test_a_node_is_ready_once_its_partners_hear_it_by_socket(loop: list[RthsNode]) -> None:
    activate(loop)
    look(loop)
    assert ways(loop) == {"sockets"}
    listeners = [node.get_fully_qualified_name() for node in loop[:2]]
    assert list(loop[2].topics.outlets["measurement"].lines) == listeners, "the first has to answer first"
    assert not any(
        node.topics.outlets[topic].has_topic_subscribers
        for node, topic in zip(loop, ("target", "command"), strict=False)
    )


def test_a_partner_that_is_discovered_late_is_called_again(
    loop: list[RthsNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine discovery takes longer than an answer; the partner is not foreign."""
    compensator, until = loop[1], time.monotonic() + 0.5
    publishers = peers.publishers

    def undiscovered(node: Any, topic: str) -> list[tuple[str, bytes]]:
        early = node is compensator and topic == "/rths/target" and time.monotonic() < until
        return [] if early else publishers(node, topic)

    warnings: list[str] = []
    monkeypatch.setattr(peers, "publishers", undiscovered)
    monkeypatch.setattr(node_lines, "ANSWER_NS", 50_000_000)
    monkeypatch.setattr(loop[0].topics.lines, "_warn", warnings.append)
    activate(loop)
    look(loop)
    assert time.monotonic() > until
    assert (ways(loop), warnings) == ({"sockets"}, [])
    assert not any(key.startswith("foreign") for node in loop for key in node.topics.dropped(node.identity))


def test_in_one_process_nodes_hand_on_what_they_would_send_by_socket(loop: list[RthsNode]) -> None:
    """From the beginning of the test on, and for good, also where a node has not heard of that yet."""
    activate(loop)
    look(loop)
    for node in loop:
        node.topics.hand_to([other.topics for other in loop], holds=False)
    for _ in range(50):
        for node in loop:
            node.look()
        time.sleep(0.002)
    assert ways(loop) == {"process"}
    assert all(not outlet.lines for node in loop for outlet in node.topics.outlets.values())
    assert not any(node.topics.lines.strangers for node in loop)


def test_nodes_that_are_configured_anew_find_each_other_by_socket_again(loop: list[RthsNode]) -> None:
    """All of them, and one of them while the others are ready."""
    activate(loop)
    look(loop)
    for again in (loop, loop[1:2]):
        for node in again:
            node.trigger_deactivate()
            node.trigger_cleanup()
        assert {node.topics.lines.way for node in again} == {"topics"}
        for node in again:
            node.trigger_configure()
        activate(again)
        look(loop)
        end = time.monotonic() + PATIENCE_S
        while ways(loop) != {"sockets"} and time.monotonic() < end:  # who is ready calls again now and then
            for node in loop:
                node.look()
            time.sleep(0.002)
        assert ways(loop) == {"sockets"}


def test_a_node_that_cannot_have_all_its_inputs_by_socket_has_none(loop: list[RthsNode]) -> None:
    """Its name is free for others once the test begins."""
    integrator, compensator, _ = loop
    activate(loop)
    look(loop)
    compensator.topics.lines._by_topic["/rths/target"].hang_up()  # as if the integrator were elsewhere
    for node in loop:
        node.topics.close_guards()
    assert ways([compensator]) == {"topics"} or compensator.topics.inboxes["measurement"].take() is None
    assert ways([compensator]) == {"topics"}
    assert ways([integrator]) == {"sockets"}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
        other.bind(address("/rths/compensator", int(os.environ["ROS_DOMAIN_ID"])))


def test_a_node_that_is_destroyed_in_any_state_gives_its_name_back() -> None:
    free = address("/rths/compensator", int(os.environ["ROS_DOMAIN_ID"]))
    with composed.ros_context() as context:
        node = composed.make_node("compensator", hosts.open_writer, context, {"scenario": NAME})
        node.trigger_configure()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
            with pytest.raises(OSError, match="in use"):
                other.bind(free)
            node.destroy_node()
            other.bind(free)
