# SPDX-License-Identifier: Apache-2.0
"""Lines between processes of one machine, with real sockets: who may speak, what is bounded, what is told."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from messages import mentions

from rths_nodes.core.wire.layout import HEAD, number_of
from rths_nodes.ros.transport import node_lines
from rths_nodes.ros.transport.greeting import LONGEST_NAME, WELCOME, Credentials, Greeting, address
from rths_nodes.ros.transport.line import SENT_AT, SocketReader, SocketWriter, make_room
from rths_nodes.ros.transport.node_lines import Acceptor, Connector

HELLO = Greeting("rths_run", "/rths/actuator", "/rths/measurement", "0123")
Ends = tuple[SocketWriter, SocketReader]
NOBODY = 65534
"""A user that every machine has."""


def message(number: int, size: int = 100) -> bytes:
    """One of a stream, as it is sent: behind the time of sending."""
    return SENT_AT.pack(time.time_ns()) + HEAD.pack(0, 0, number).ljust(size, b"\0")


def numbers(line: SocketReader) -> list[int]:
    return [number_of(data) for data in iter(line.take, None)]


@pytest.fixture
def name() -> bytes:
    return address(f"/test_{os.getpid()}_{time.monotonic_ns()}/compensator", 0)


@pytest.fixture
def listener(name: bytes, clock: Any) -> Iterator[Acceptor]:
    made = Acceptor(name, clock)
    assert not made.problem
    yield made
    made.close()


@pytest.fixture
def line() -> Iterator[Ends]:
    out, into = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ends = SocketWriter(out, 20), SocketReader(into)
    yield ends
    for end in ends:
        end.close()


def strange(name: bytes, *packets: bytes) -> socket.socket:
    """A caller who says ``packets``."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.settimeout(2.0)
    made.connect(name)
    for packet in packets:
        made.send(packet)
    return made


# -- names and hello --------------------------------------------------------------------------------------


def test_a_name_is_abstract_and_tells_user_domain_and_node_apart() -> None:
    names = {address(node, domain, user) for node in ("/a/x", "/b/x") for domain in (1, 2) for user in (1, 2)}
    assert len(names) == 8
    assert all(name.startswith(b"\0") for name in names)


def test_a_name_that_is_too_long_for_the_kernel_is_hashed() -> None:
    long = [address(f"/{'laboratory/' * 20}{end}", 0) for end in "ab"]
    assert len(set(long)) == 2
    assert max(map(len, long)) <= 1 + LONGEST_NAME


@pytest.mark.parametrize(
    "words", [b"", b"\xff\xfe", b"[]", b"{}", HELLO.pack()[:-5], b'{"run": 1, "node": "", "topic": "", "gid": ""}']
)
def test_what_is_no_hello_is_refused(words: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        Greeting.unpack(words)
    assert Greeting.unpack(HELLO.pack()) == HELLO


# -- calls ------------------------------------------------------------------------------------------------


def test_who_says_hello_is_welcomed_and_speaks(name: bytes, listener: Acceptor, clock: Any) -> None:
    call = Connector(name, HELLO, clock)
    assert not call.look()
    ((hello, sock),) = listener.look(lambda hello: "")
    assert hello == HELLO
    assert call.look()
    assert call.socket is not None
    assert not call.problem
    out, into = SocketWriter(call.socket, 20), SocketReader(sock)
    for number in range(5):
        assert out.send(message(number))
    assert numbers(into) == list(range(5))
    assert 0 < into.sent_ns <= time.time_ns()
    assert not listener.strangers


def test_a_caller_who_is_not_known_yet_is_welcomed_once_he_is(name: bytes, listener: Acceptor, clock: Any) -> None:
    call = Connector(name, HELLO, clock)
    call.look()
    for _ in range(3):
        assert listener.look(lambda hello: None) == []
        assert not call.look()
    assert listener.look(lambda hello: "")
    assert call.look()


def test_a_caller_who_never_is_known_is_refused_and_counted(name: bytes, listener: Acceptor, clock: Any) -> None:
    call = Connector(name, HELLO, clock)
    call.look()
    listener.look(lambda hello: None)
    clock.sleep(2.1)
    assert listener.look(lambda hello: None) == []
    assert call.look()
    assert call.socket is None
    assert mentions(call.problem, "refused", "discovered")
    assert listener.strangers == {str(Credentials(os.getpid(), os.getuid())): 1}


def test_a_caller_that_is_discovered_late_may_call_again(name: bytes, listener: Acceptor, clock: Any) -> None:
    first = Connector(name, HELLO, clock)
    first.look()
    listener.look(lambda hello: None)
    clock.sleep(2.1)
    listener.look(lambda hello: None)
    assert first.look()
    assert (first.socket, first.early) == (None, True)
    (caller,) = listener.strangers
    assert listener.early == {caller: HELLO}
    again = Connector(name, HELLO, clock)
    again.look()
    assert listener.look(lambda hello: "")
    assert again.look()
    assert not again.early


def test_nobody_there_means_elsewhere(name: bytes, clock: Any) -> None:
    call = Connector(name, HELLO, clock)
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


def test_another_network_namespace_is_elsewhere(name: bytes, listener: Acceptor) -> None:
    words = ["unshare", "-rn", sys.executable, "-I", "-S", "-c", CALL.format(name=name)]
    try:
        done = subprocess.run(words, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("no unshare here")
    if "unshare" in done.stderr:
        pytest.skip(f"no network namespaces here: {done.stderr}")
    assert done.stdout == "nobody\n", done.stderr
    listener.look(lambda hello: "")
    assert not listener.strangers


def test_who_listens_and_never_answers_is_given_up(name: bytes, clock: Any) -> None:
    """As a node that stands still, or a squatter of the same user."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as squatter:
        squatter.bind(name)
        squatter.listen()
        call = Connector(name, HELLO, clock)
        assert not call.look()
        clock.sleep(3.1)
        assert call.look()
        assert call.socket is None
        assert mentions(call.problem, "answered")


def test_who_has_taken_the_name_of_a_node_is_named(name: bytes, listener: Acceptor, clock: Any) -> None:
    assert mentions(Acceptor(name, clock).problem, os.getpid(), f"user {os.getuid()}")


def test_a_name_that_is_taken_and_not_listened_at_is_told(name: bytes, clock: Any) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as squatter:
        squatter.bind(name)
        assert "in use" in Acceptor(name, clock).problem
        call = Connector(name, HELLO, clock)
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
    if os.getuid() != 0:
        pytest.skip("only root may act as another user")
    words = [sys.executable, "-I", "-S", "-c", SQUAT.format(user=NOBODY, act=act)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


def test_a_squatter_of_another_user_is_spoken_to_by_nobody(name: bytes, clock: Any) -> None:
    with another_user(f"made.bind({name!r}); made.listen()") as squatter:
        call = Connector(name, HELLO, clock)
        assert call.look()
        assert call.socket is None
        assert mentions(call.problem, squatter.pid, f"user {NOBODY}")
        assert Acceptor(name, clock).problem == call.problem
        squatter.kill()


def test_a_caller_of_another_user_is_turned_away(name: bytes, listener: Acceptor) -> None:
    act = f"made.connect({name!r}); made.send({HELLO.pack()!r})"
    with another_user(act) as caller:
        assert listener.look(lambda hello: "") == []
        assert listener.strangers == {f"process {caller.pid} of user {NOBODY}": 1}
        caller.kill()


@pytest.mark.parametrize(
    "words",
    [b"x", HELLO.pack()[:20], random.Random(1).randbytes(3000), bytes(20_000)],
    ids=["one letter", "half a hello", "noise", "too much"],
)
def test_who_says_something_else_is_turned_away_and_counted(name: bytes, listener: Acceptor, words: bytes) -> None:
    with strange(name, words) as caller:
        assert listener.look(lambda hello: "") == []
        assert b"invalid greeting" in caller.recv(100)
        assert caller.recv(100) == b""
    assert sum(listener.strangers.values()) == 1


def test_who_says_nothing_is_turned_away_in_the_end(name: bytes, listener: Acceptor, clock: Any) -> None:
    with strange(name) as caller:
        listener.look(lambda hello: "")
        assert not listener.strangers
        clock.sleep(2.1)
        listener.look(lambda hello: "")
        assert b"no greeting" in caller.recv(100)
    assert sum(listener.strangers.values()) == 1


def test_a_flood_of_callers_takes_no_more_than_its_share_and_the_peer_comes_through(
    name: bytes, listener: Acceptor, clock: Any
) -> None:
    flood = []
    for _ in range(8):
        flood += [strange(name) for _ in range(node_lines.WAITING // 2)]
        listener.look(lambda hello: "")
    call = Connector(name, HELLO, clock)
    call.look()
    assert [hello for hello, _ in listener.look(lambda hello: "")] == [HELLO]
    assert call.look()
    assert call.socket is not None
    assert sum(listener.strangers.values()) == len(flood) - node_lines.WAITING + 1
    for caller in flood:
        caller.close()


def test_a_flood_of_messages_ends_with_the_first(name: bytes, listener: Acceptor) -> None:
    gone = False
    with strange(name) as caller:
        caller.setblocking(False)
        while not gone:
            try:
                caller.send(b"x" * 300)
            except BlockingIOError:  # the kernel has no room for more
                listener.look(lambda hello: "")
            except OSError:
                gone = True
    assert sum(listener.strangers.values()) == 1


def test_once_closed_nobody_gets_in_and_the_name_is_free(name: bytes, listener: Acceptor, clock: Any) -> None:
    waiting = Connector(name, HELLO, clock)
    waiting.look()
    listener.look(lambda hello: None)
    listener.close()
    assert waiting.look()
    assert waiting.socket is None
    assert Connector(name, HELLO, clock).look()
    again = Acceptor(name, clock)
    assert not again.problem
    again.close()


# -- lines ------------------------------------------------------------------------------------------------


def test_what_was_sent_before_the_death_of_a_process_comes_and_then_the_end(
    line: Ends,
) -> None:
    out, into = line
    if not (child := os.fork()):
        for number in range(50):
            out.send(message(number))
        os.kill(os.getpid(), 9)
    out.close()
    os.waitpid(child, 0)
    assert numbers(into) == list(range(50))
    assert into.ended


def test_a_speaker_learns_at_once_that_nobody_hears(line: Ends) -> None:
    out, into = line
    assert out.look()
    into.close()
    assert not out.look()
    assert not out.open


def test_a_speaker_learns_with_the_next_message_that_nobody_hears_any_more(
    line: Ends,
) -> None:
    out, into = line
    assert out.send(message(0))
    into.close()
    assert not out.send(message(1))


def test_what_the_kernel_has_no_room_for_is_kept_in_order_and_then_lost_and_counted(
    line: Ends,
) -> None:
    out, into = line
    room = make_room(out.socket, 20, 300)
    sent = 0
    while not out.behind:
        assert out.send(message(sent, 300))
        sent += 1
    assert sent > room / 2
    for _ in range(29):
        assert out.send(message(sent, 300))
        sent += 1
    assert out.lost == 10
    found = numbers(into)
    out.send_kept()
    found += numbers(into)
    assert not out.behind
    assert found == list(range(sent - 10)), "a gap at the end, and none before"
    out.send(message(sent, 300))
    assert numbers(into) == [sent], "which the numbers tell"


def test_there_is_room_for_the_window_of_lockstep_and_a_second(line: Ends) -> None:
    out, into = line
    granted = make_room(out.socket, 4096, 300)
    for number in range(min(granted, 4096)):
        out.send(message(number, 300))
    assert not out.behind
    assert len(numbers(into)) == min(granted, 4096)


def test_what_is_given_back_is_heard_to_its_end_and_the_speaker_knows_the_first_that_was_not(
    line: Ends,
) -> None:
    out, into = line
    for number in range(3):
        out.send(message(number))
    into.give_back()
    assert not out.send(message(3)), "this one is for the topic"
    assert numbers(into) == [0, 1, 2]
    assert into.ended
    assert into.last_number == 2


def test_the_answer_is_one_word() -> None:
    assert len(WELCOME) < 100
