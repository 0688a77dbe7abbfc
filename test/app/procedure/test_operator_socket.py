# SPDX-License-Identifier: Apache-2.0
"""The operator socket: the kernel reports the process that asks, and no other user is answered."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
from messages import mentions, naming

from rths_nodes.app.procedure.operator_socket import (
    CONNECTIONS,
    LONGEST_PACKET,
    Answer,
    OperatorSocket,
    Request,
    SocketOperator,
)
from rths_nodes.core.errors import ConfigError
from rths_nodes.ros.transport.greeting import Credentials, address

NOBODY = 65534
AS_NOBODY = """
import json, os, pwd
from dataclasses import asdict
from rths_nodes.app.procedure.operator_socket import SocketOperator
os.setgid({user}); os.setuid({user})
print(json.dumps(asdict(SocketOperator("{namespace}", user={owner}, domain={domain}).ask("run"))))
"""


class Desk:
    """Keeps who has asked for what; ``act`` waits for ``gate``."""

    def __init__(self) -> None:
        self.asked: list[tuple[Request, int]] = []
        self.left: list[int] = []
        self.gate, self.begun = threading.Event(), threading.Event()

    def answer(self, request: Request, peer: Credentials) -> Answer:
        self.asked.append((request, peer.user))
        if request.act == "run":
            self.begun.set()
            self.gate.wait(30.0)
        return Answer(done=True, result=request.act, state=3, stops=2, to_sign=("a", "b"))

    def leave(self, peer: Credentials) -> None:
        """What is under way is over, as a stop would do."""
        self.left.append(peer.process)
        self.gate.set()


def domain() -> int:
    return int(os.environ.get("ROS_DOMAIN_ID") or 0)


@pytest.fixture
def namespace() -> str:
    return f"socket_{os.getpid()}"


@pytest.fixture
def name(namespace: str) -> bytes:
    return address(f"/{namespace}/operator", domain())


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def served(desk: Desk, name: bytes) -> Iterator[OperatorSocket]:
    served = OperatorSocket(desk.answer, desk.leave, name)
    served.start()
    yield served
    desk.gate.set()
    served.close()


def test_a_process_of_the_same_user_is_answered(served: OperatorSocket, desk: Desk, namespace: str) -> None:
    desk.gate.set()
    operator = SocketOperator(f"/{namespace}/")
    told = Answer(done=True, result="arm", state=3, stops=2, to_sign=("a", "b"))
    assert operator.ask("arm", by="Ada", rung="d") == operator.seen == told
    operator.ask("run")
    assert desk.asked == [
        (Request("arm", ("rung",), ("d",), "Ada"), os.getuid()),
        (Request("run", (), (), "", stops=2, state=3), os.getuid()),
    ], "an act is for what the last answer has shown"


def test_a_stop_does_not_wait_for_what_is_under_way(served: OperatorSocket, desk: Desk, namespace: str) -> None:
    running = SocketOperator(namespace)
    told: list[Answer] = []
    thread = threading.Thread(target=lambda: told.append(running.ask("run")))
    thread.start()
    assert desk.begun.wait(30.0)
    assert running.ask("stop").result == "stop"
    assert told == []
    desk.gate.set()
    thread.join()
    assert told[0].result == "run"


def test_what_is_under_way_is_answered_before_the_socket_closes(
    served: OperatorSocket, desk: Desk, namespace: str
) -> None:
    operator = SocketOperator(namespace)
    told: list[Answer] = []
    asking = threading.Thread(target=lambda: told.append(operator.ask("run")))
    asking.start()
    assert desk.begun.wait(30.0)
    closing = threading.Thread(target=served.close)
    closing.start()
    desk.gate.set()
    closing.join(30.0)
    asking.join(30.0)
    assert told[0].result == "run"
    with pytest.raises(ConfigError, match=naming("Start", "--socket")):
        operator.ask()


def test_a_program_that_ends_while_its_act_is_under_way_is_told_of(
    served: OperatorSocket, desk: Desk, namespace: str, environment: dict[str, str]
) -> None:
    program = "from rths_nodes.app.procedure.operator_socket import SocketOperator\n"
    program += f"SocketOperator({namespace!r}, domain={domain()}).ask('run')"
    running = subprocess.Popen([sys.executable, "-c", program], env=environment)
    assert desk.begun.wait(30.0)
    running.kill()
    running.wait(timeout=30.0)
    assert desk.gate.wait(30.0)
    assert desk.left == [running.pid]


def test_a_program_that_leaves_once_it_is_answered_stops_nothing(
    served: OperatorSocket, desk: Desk, namespace: str
) -> None:
    desk.gate.set()
    SocketOperator(namespace).ask("run")
    served.close()
    assert desk.left == []


def as_another(namespace: str, environment: dict[str, str]) -> Answer:
    """What a process of another user is told."""
    program = AS_NOBODY.format(user=NOBODY, owner=os.getuid(), namespace=namespace, domain=domain())
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60
    )
    assert not done.stderr
    return Answer(**json.loads(done.stdout))


@pytest.mark.skipif(os.getuid() != 0, reason="only root may act as another user")
def test_another_user_of_the_machine_is_refused(
    served: OperatorSocket, desk: Desk, namespace: str, environment: dict[str, str]
) -> None:
    assert mentions(as_another(namespace, environment).reason, f"user {NOBODY}", "operator")
    assert desk.asked == []
    assert SocketOperator(namespace).ask("arm").done


@pytest.mark.skipif(os.getuid() != 0, reason="only root may act as another user")
def test_a_client_is_not_led_astray_by_who_has_taken_the_name(name: bytes, namespace: str) -> None:
    program = (
        f"import os, socket\nos.setuid({NOBODY})\n"
        "listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        f"listening.bind(bytes.fromhex('{name.hex()}'))\nlistening.listen()\nprint('here', flush=True)\ninput()"
    )
    squatter = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert squatter.stdout is not None
    assert squatter.stdout.readline() == "here\n"
    with pytest.raises(ConfigError, match=naming(f"user {NOBODY}", "name")):
        SocketOperator(namespace).ask("arm")
    with pytest.raises(ConfigError, match=naming("cannot be opened")):
        OperatorSocket(Desk().answer, Desk().leave, name)
    squatter.communicate("\n", timeout=60)


@pytest.mark.parametrize(
    "packet",
    [
        b"{",
        b"\xff",
        b"[]",
        b'{"act": 1}',
        b'{"names": "rung"}',
        b'{"names": [1]}',
        b'{"acts": ""}',
        b" " * (LONGEST_PACKET + 1),
        b"[" * LONGEST_PACKET,
    ],
    ids=["no JSON", "no text", "a list", "a number", "a text", "numbers", "a typo", "too long", "too deep"],
)
def test_what_is_no_request_is_told_so(served: OperatorSocket, desk: Desk, name: bytes, packet: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as call:
        call.connect(name)
        call.send(packet)
        assert mentions(json.loads(call.recv(65536))["reason"], "request")
        call.send(b'{"act": "arm"}')
        assert json.loads(call.recv(65536))["done"]
    assert [request.act for request, _ in desk.asked] == ["arm"]


def test_connections_that_send_nothing_keep_no_stop_out(
    served: OperatorSocket, desk: Desk, name: bytes, namespace: str
) -> None:
    """The oldest one is closed for the next; an act under way keeps its connection."""
    running: list[Answer] = []
    thread = threading.Thread(target=lambda: running.append(SocketOperator(namespace).ask("run")))
    thread.start()
    assert desk.begun.wait(30.0)
    with ExitStack() as stack:
        for _ in range(3 * CONNECTIONS):
            call = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            call.connect(name)
        assert SocketOperator(namespace).ask("stop").done
        assert len(served._calls) <= CONNECTIONS
        desk.gate.set()
        thread.join(30.0)
    assert running[0].result == "run"
    assert desk.left == []


FLOOD = """
import socket, sys
kept = []
for _ in range(int(sys.argv[2])):
    kept.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    kept[-1].connect(bytes.fromhex(sys.argv[1]))
print("open", flush=True)
sys.stdin.read()
"""


def test_a_flood_of_connections_closes_none_of_another_process(served: OperatorSocket, name: bytes) -> None:
    """A stop that has connected is accepted, whatever its process is delayed by before it sends."""
    words = [sys.executable, "-c", FLOOD, name.hex(), str(3 * CONNECTIONS)]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stopping:
        stopping.connect(name)
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as flooding:
            assert flooding.stdout is not None
            assert flooding.stdout.readline() == "open\n"
            stopping.send(b'{"act": "stop"}')
            assert json.loads(stopping.recv(65536))["done"]
            flooding.communicate("")
    assert len(served._calls) <= CONNECTIONS


def test_a_process_that_reads_no_answer_is_disconnected(
    served: OperatorSocket, desk: Desk, name: bytes, namespace: str
) -> None:
    """It would keep its thread, and the end of the test, waiting for ever."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as call:
        call.connect(name)
        with suppress(OSError):  # a broken pipe, or a connection that was reset
            for _ in range(100_000):
                call.send(b"{}")
            pytest.fail("it is still connected")
        assert SocketOperator(namespace).ask("stop").done
    served.close()
