# SPDX-License-Identifier: Apache-2.0
"""Lines between processes of one machine, over real sockets: access, bounds and reports."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from messages import mentions

from rths_nodes.core.wire import HEAD, number_of
from rths_nodes.ros.transport import line as sockets
from rths_nodes.ros.transport import topics
from rths_nodes.ros.transport.line import Greeting, SocketReader, SocketWriter, address, make_room
from rths_nodes.ros.transport.topics import Acceptor, Connector, Load, NodeLines

HELLO = Greeting("rths_run", "/rths/actuator", "/rths/measurement", "0123")
NOBODY = 65534
"""Id of a user that exists on every machine."""


def message(number: int, size: int = 100) -> bytes:
    """Return a sent message of a stream, with its time of sending."""
    return sockets.SENT_AT.pack(time.time_ns()) + HEAD.pack(0, 0, number).ljust(size, b"\0")


def numbers(line: SocketReader) -> list[int]:
    return [number_of(data) for data in iter(line.take, None)]


@pytest.fixture
def name() -> bytes:
    return address(f"/test_{os.getpid()}_{time.monotonic_ns()}/compensator", 0)


@pytest.fixture
def listener(name: bytes, clock: Any) -> Iterator[Acceptor]:
    acceptor = Acceptor(name, clock)
    assert not acceptor.problem
    yield acceptor
    acceptor.close()


@pytest.fixture
def line() -> Iterator[tuple[SocketWriter, SocketReader]]:
    out, into = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ends = SocketWriter(out, 20), SocketReader(into)
    yield ends
    for end in ends:
        end.close()


def stranger(name: bytes, *packets: bytes) -> socket.socket:
    """Connect without a valid greeting, and send ``packets``."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.settimeout(2.0)
    sock.connect(name)
    for packet in packets:
        sock.send(packet)
    return sock


def accept(greeting: Greeting) -> str:
    return ""


def hesitate(greeting: Greeting) -> None:
    """The caller has not been discovered yet."""


@pytest.fixture
def call(name: bytes, clock: Any) -> Connector:
    return Connector(name, HELLO, clock)


# Names and greetings


def test_address_is_abstract_and_identifies_user_domain_and_node(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {address(node, domain, user) for node in ("/a/x", "/b/x") for domain in (1, 2) for user in (1, 2)}
    assert len(names) == 8
    assert all(name.startswith(b"\0") for name in names)
    monkeypatch.setenv("ROS_DOMAIN_ID", "01")
    assert sockets.stop_address("a/x") == address("/a/x stop", 1)


def test_long_address_is_hashed() -> None:
    long = [sockets.stop_address("n" * 100), *(address(f"/{'laboratory/' * 20}{end}", 0) for end in "ab")]
    assert len(set(long)) == 3
    assert max(map(len, long)) <= 1 + sockets.LONGEST_NAME


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff\xfe", b"[]", b"{}", b"[" * 4000, HELLO.pack()[:-5], b'[1, "", "", ""]', b'["", "", "", "x"]'],
)
def test_invalid_greetings_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        Greeting.unpack(data)
    assert Greeting.unpack(HELLO.pack()) == HELLO


# Connections


def test_caller_with_greeting_is_accepted(listener: Acceptor, call: Connector) -> None:
    assert not call.look()
    ((hello, sock),) = listener.look(accept)
    assert hello == HELLO
    assert len(sockets.WELCOME) < 100
    assert call.look()
    assert call.socket is not None
    assert not call.problem
    writer, reader = SocketWriter(call.socket, 20), SocketReader(sock)
    for number in range(5):
        assert writer.send(message(number))
    assert numbers(reader) == list(range(5))
    assert 0 < reader.sent_ns <= time.time_ns()
    assert not listener.strangers


def test_undiscovered_caller_is_accepted_after_discovery(listener: Acceptor, call: Connector) -> None:
    call.look()
    for _ in range(3):
        assert listener.look(hesitate) == []
        assert not call.look()
    assert listener.look(accept)
    assert call.look()


def test_undiscovered_caller_waits_longer_than_for_a_first_answer(
    listener: Acceptor, call: Connector, clock: Any
) -> None:
    call.look()
    listener.look(hesitate)
    assert not call.look()
    clock.sleep(19.0)
    assert listener.look(hesitate) == []
    assert not call.look()
    clock.sleep(1.1)
    assert call.look()
    assert mentions(call.problem, "discovered")


def test_caller_receives_the_reason_if_it_is_not_discovered(
    listener: Acceptor, call: Connector, clock: Any
) -> None:
    call.look()
    listener.look(hesitate)
    clock.sleep(20.1)
    listener.look(hesitate)
    assert call.look()
    assert mentions(call.problem, "refused", "discovered")
    assert not listener.strangers


def test_squatter_cannot_hold_a_caller_for_ever(name: bytes, call: Connector) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as squatter:
        squatter.bind(name)
        squatter.listen()
        assert not call.look()
        accepted, _ = squatter.accept()
        for _ in range(2):
            accepted.send(sockets.WAIT)
        assert call.look()
        assert mentions(call.problem, "refused")
        accepted.close()


def test_undiscovered_callers_that_exit_leave_room(
    name: bytes, listener: Acceptor, call: Connector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "MOST_UNKNOWN", 3)
    dead = [stranger(name, HELLO.pack()) for _ in range(3)]
    listener.look(hesitate)
    for caller in dead:
        caller.close()
    listener.look(hesitate)
    call.look()
    assert listener.look(hesitate) == []
    assert not call.look()
    assert not listener.strangers


TOPIC = HELLO.topic


@pytest.fixture
def lines(clock: Any) -> Iterator[NodeLines]:
    """Lines of a node that has not discovered the publisher of ``TOPIC`` yet."""
    queries: list[str] = []
    guard = SimpleNamespace(speakers=(HELLO.node,), known=set(), look=lambda: queries.append(TOPIC), topic=TOPIC)
    inbox = SimpleNamespace(guard=guard, stream=True, line=None, by_line=False, by_hand=False, queries=queries)
    inbox.hang_up = lambda: None
    me = f"/test_{os.getpid()}_{time.monotonic_ns()}/compensator"
    node = SimpleNamespace(
        get_fully_qualified_name=lambda: me, context=SimpleNamespace(get_domain_id=lambda: 0), inbox=inbox
    )
    made = NodeLines(node, lambda: HELLO.run, print, clock)
    made.open(Load(1, 100, False))
    made.connect({}, [inbox])
    yield made
    made.close()


def test_many_undiscovered_callers_cost_one_query_of_the_graph(lines: NodeLines) -> None:
    callers = [stranger(lines._address(lines._me), HELLO.pack()) for _ in range(20)]
    lines.answer()
    lines.answer()
    assert len(lines._node.inbox.queries) == 2
    for caller in callers:
        caller.close()


def test_waiting_caller_calls_again_in_a_new_run(lines: NodeLines, monkeypatch: pytest.MonkeyPatch) -> None:
    outlet = SimpleNamespace(
        sent=0,
        publisher=SimpleNamespace(topic_name=TOPIC),
        partners=(lines._me,),
        speaks_to=lambda partner: False,
        hang_up=lambda: None,
    )
    runs = [HELLO.run]
    caller = NodeLines(lines._node, lambda: runs[0], print, lines._clock)
    caller._load, caller._outlets = Load(1, 100, False), {"measurement": outlet}
    monkeypatch.setattr(caller, "_hello", lambda topic: HELLO._replace(run=runs[0]))
    caller.call()
    lines.answer()
    runs[0] = "rths_next"
    monkeypatch.setattr(lines, "_run", lambda: runs[0])
    caller.call()
    lines.answer()
    assert "answer" in caller.call()
    assert not lines.strangers
    caller.close()


def test_name_without_listener_is_on_another_machine(call: Connector) -> None:
    assert call.look()
    assert (call.socket, call.problem) == (None, "")


CALL = """
import socket
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as made:
    try:
        made.connect({name!r})
    except ConnectionRefusedError:
        print("nobody")
"""


def test_listener_is_invisible_in_another_network_namespace(name: bytes, listener: Acceptor) -> None:
    command = ["unshare", "-rn", sys.executable, "-I", "-S", "-c", CALL.format(name=name)]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("unshare is not available")
    if "unshare" in done.stderr:
        pytest.skip(f"network namespaces are not available: {done.stderr}")
    assert done.stdout == "nobody\n", done.stderr
    listener.look(accept)
    assert not listener.strangers


def test_listener_that_never_answers_is_given_up(name: bytes, call: Connector, clock: Any) -> None:
    """A node that hangs, or a squatter of the same user."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as squatter:
        squatter.bind(name)
        squatter.listen()
        assert not call.look()
        clock.sleep(3.1)
        assert call.look()
        assert call.socket is None
        assert mentions(call.problem, "answered")


def test_owner_of_a_taken_name_is_reported(name: bytes, listener: Acceptor, clock: Any) -> None:
    assert mentions(Acceptor(name, clock).problem, os.getpid(), f"user {os.getuid()}")


def test_taken_name_without_listener_is_reported(name: bytes, call: Connector, clock: Any) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as squatter:
        squatter.bind(name)
        assert "in use" in Acceptor(name, clock).problem
        assert call.look()
        assert call.socket is None


SQUAT = """
import os, socket, sys
os.setuid({user})
made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
{act}
print("up", flush=True)
sys.stdin.read()
"""


def another_user(act: str) -> subprocess.Popen[str]:
    """Start a process of another user that performs ``act`` with the socket ``made``."""
    if os.getuid() != 0:
        pytest.skip("only root can start processes of another user")
    command = [sys.executable, "-I", "-S", "-c", SQUAT.format(user=NOBODY, act=act)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


def test_listener_of_another_user_is_not_used(name: bytes, call: Connector, clock: Any) -> None:
    with another_user(f"made.bind({name!r}); made.listen()") as squatter:
        assert call.look()
        assert call.socket is None
        assert mentions(call.problem, squatter.pid, f"user {NOBODY}")
        assert Acceptor(name, clock).problem == call.problem
        squatter.kill()


def test_caller_of_another_user_is_refused(name: bytes, listener: Acceptor) -> None:
    with another_user(f"made.connect({name!r}); made.send({HELLO.pack()!r})") as caller:
        assert listener.look(accept) == []
        assert listener.strangers == {f"process {caller.pid} of user {NOBODY}": 1}
        caller.kill()


@pytest.mark.parametrize(
    "data",
    [b"x", HELLO.pack()[:20], random.Random(1).randbytes(3000), bytes(20_000)],
    ids=["one letter", "half a hello", "noise", "too much"],
)
def test_caller_with_invalid_greeting_is_refused(name: bytes, listener: Acceptor, data: bytes) -> None:
    with stranger(name, data) as caller:
        assert listener.look(accept) == []
        assert b"invalid greeting" in caller.recv(100)
        assert caller.recv(100) == b""
    assert sum(listener.strangers.values()) == 1


def test_reason_with_unprintable_name_is_sent(name: bytes, listener: Acceptor) -> None:
    with stranger(name, HELLO._replace(node="\ud800").pack()) as caller:
        assert listener.look(lambda hello: hello.node) == []
        assert caller.recv(100) == sockets.WAIT
        assert caller.recv(100) == b"?"


def test_silent_caller_is_refused_after_timeout(name: bytes, listener: Acceptor, clock: Any) -> None:
    with stranger(name) as caller:
        listener.look(accept)
        assert not listener.strangers
        clock.sleep(2.1)
        listener.look(accept)
        assert b"no greeting" in caller.recv(100)
    assert sum(listener.strangers.values()) == 1


def test_peer_is_accepted_during_a_flood_of_callers(name: bytes, listener: Acceptor, call: Connector) -> None:
    flood = []
    for _ in range(8):
        flood += [stranger(name) for _ in range(topics.WAITING // 2)]
        listener.look(accept)
    call.look()
    assert [hello for hello, _ in listener.look(accept)] == [HELLO]
    assert call.look()
    assert call.socket is not None
    assert sum(listener.strangers.values()) == len(flood) - topics.WAITING + 1
    for caller in flood:
        caller.close()


def test_flood_of_messages_is_refused_at_the_first(name: bytes, listener: Acceptor) -> None:
    refused = False
    with stranger(name) as caller:
        caller.setblocking(False)
        while not refused:
            try:
                caller.send(b"x" * 300)
            except BlockingIOError:  # the buffer of the kernel is full
                listener.look(accept)
            except OSError:
                refused = True
    assert sum(listener.strangers.values()) == 1


def test_closed_listener_refuses_callers_and_frees_its_name(
    name: bytes, listener: Acceptor, call: Connector, clock: Any
) -> None:
    call.look()
    listener.look(hesitate)
    listener.close()
    assert call.look()
    assert call.socket is None
    assert mentions(call.problem, "closed")
    assert not listener.strangers, "a partner may be discovered late"
    assert Connector(name, HELLO, clock).look()
    again = Acceptor(name, clock)
    assert not again.problem
    again.close()


# Lines


def test_messages_of_a_killed_process_are_received_before_the_end(line: Any) -> None:
    writer, reader = line
    if not (child := os.fork()):
        for number in range(50):
            writer.send(message(number))
        os.kill(os.getpid(), 9)
    writer.close()
    os.waitpid(child, 0)
    assert numbers(reader) == list(range(50))
    assert reader.ended


@pytest.mark.parametrize("use", [SocketWriter.look, lambda writer: writer.send(message(0))], ids=["look", "send"])
def test_writer_detects_closed_reader(line: Any, use: Any) -> None:
    writer, reader = line
    assert use(writer)
    reader.close()
    assert not use(writer)
    assert not writer.open


def test_messages_beyond_the_buffer_are_queued_then_lost_and_counted(line: Any) -> None:
    writer, reader = line
    room = make_room(writer.socket, 20, 300)
    sent = 0
    while not writer.behind:
        assert writer.send(message(sent, 300))
        sent += 1
    assert sent > room / 2
    for _ in range(29):
        assert writer.send(message(sent, 300))
        sent += 1
    assert writer.lost == 10
    received = numbers(reader)
    writer.send_kept()
    received += numbers(reader)
    assert not writer.behind
    assert received == list(range(sent - 10)), "a gap before the end"
    writer.send(message(sent, 300))
    assert numbers(reader) == [sent], "the number shows the gap"


def test_buffer_holds_the_window_of_lockstep_and_a_second(line: Any) -> None:
    writer, reader = line
    granted = make_room(writer.socket, 4096, 300)
    for number in range(min(granted, 4096)):
        writer.send(message(number, 300))
    assert not writer.behind
    assert len(numbers(reader)) == min(granted, 4096)


def test_returned_line_is_read_to_its_end(line: Any) -> None:
    """The number of the last message shows the sender which message to publish by topic."""
    writer, reader = line
    for number in range(3):
        writer.send(message(number))
    reader.give_back()
    assert not writer.send(message(3)), "this message belongs to the topic"
    assert numbers(reader) == [0, 1, 2]
    assert reader.ended
    assert reader.last_number == 2
