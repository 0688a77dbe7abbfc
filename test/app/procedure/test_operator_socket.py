# SPDX-License-Identifier: Apache-2.0
"""Tests of the operator socket, which answers processes of the same user, as the kernel reports them."""

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
from rths_nodes.ros.transport.line import Credentials, address

NOBODY = 65534
NAMESPACE = f"socket_{os.getpid()}"
RUN = """
import json, os
from dataclasses import asdict
from rths_nodes.app.procedure.operator_socket import SocketOperator
os.setgid({user}); os.setuid({user})
print(json.dumps(asdict(SocketOperator("{namespace}", user={owner}, domain={domain}).ask("run"))))
"""
"""Program of another user."""


class Procedure:
    """Stores requests; the act ``run`` waits for ``gate``."""

    def __init__(self) -> None:
        self.requests: list[tuple[Request, int]] = []
        self.left: list[int] = []
        self.gate, self.started = threading.Event(), threading.Event()

    def answer(self, request: Request, peer: Credentials) -> Answer:
        self.requests.append((request, peer.user))
        if request.act == "run":
            self.started.set()
            self.gate.wait(30.0)
        return Answer(done=True, result=request.act, state=3, stops=2, to_sign=["a", "b"])

    def leave(self, peer: Credentials) -> None:
        """End the current act, as a stop would do."""
        self.left.append(peer.process)
        self.gate.set()


class Asking(threading.Thread):
    """Thread of an operator whose act ``run`` has started."""

    def __init__(self, procedure: Procedure) -> None:
        super().__init__()
        self.answers: list[Answer] = []
        self.operator = SocketOperator(NAMESPACE)
        self.start()
        assert procedure.started.wait(30.0)

    def run(self) -> None:
        self.answers.append(self.operator.ask("run"))


def domain() -> int:
    return int(os.environ.get("ROS_DOMAIN_ID") or 0)


@pytest.fixture
def name() -> bytes:
    return address(f"/{NAMESPACE}/operator", domain())


@pytest.fixture
def procedure() -> Procedure:
    return Procedure()


@pytest.fixture
def served(procedure: Procedure, name: bytes) -> Iterator[OperatorSocket]:
    served = OperatorSocket(procedure.answer, procedure.leave, name)
    served.start()
    yield served
    procedure.gate.set()
    served.close()


@pytest.fixture
def connection(served: OperatorSocket, name: bytes) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(name)
        yield connection


def test_process_of_the_same_user_is_answered(served: OperatorSocket, procedure: Procedure) -> None:
    procedure.gate.set()
    operator = SocketOperator(f"/{NAMESPACE}/")
    answer = Answer(done=True, result="arm", state=3, stops=2, to_sign=["a", "b"])
    assert operator.ask("arm", by="Ada", rung="d") == operator.seen == answer
    operator.ask("run")
    assert procedure.requests == [
        (Request("arm", {"rung": "d"}, "Ada"), os.getuid()),
        (Request("run", stops=2, state=3), os.getuid()),
    ], "an act has the stops and the state of the last answer"
    served.close()
    assert procedure.left == []


def test_stop_does_not_wait_for_a_running_act(served: OperatorSocket, procedure: Procedure) -> None:
    asking = Asking(procedure)
    assert asking.operator.ask("stop").result == "stop"
    assert asking.answers == []
    procedure.gate.set()
    asking.join()
    assert asking.answers[0].result == "run"


def test_running_act_is_answered_before_the_socket_closes(served: OperatorSocket, procedure: Procedure) -> None:
    asking = Asking(procedure)
    closing = threading.Thread(target=served.close)
    closing.start()
    procedure.gate.set()
    closing.join(30.0)
    asking.join(30.0)
    assert asking.answers[0].result == "run"
    with pytest.raises(ConfigError, match=naming("Start", "--socket")):
        asking.operator.ask()


def test_end_of_a_program_during_its_act_is_reported(
    served: OperatorSocket, procedure: Procedure, environment: dict[str, str]
) -> None:
    program = "from rths_nodes.app.procedure.operator_socket import SocketOperator\n"
    program += f"SocketOperator({NAMESPACE!r}, domain={domain()}).ask('run')"
    running = subprocess.Popen([sys.executable, "-c", program], env=environment)
    assert procedure.started.wait(30.0)
    running.kill()
    running.wait(timeout=30.0)
    assert procedure.gate.wait(30.0)
    assert procedure.left == [running.pid]


@pytest.mark.skipif(os.getuid() != 0, reason="only root may act as another user")
def test_other_users_are_refused(
    served: OperatorSocket, procedure: Procedure, environment: dict[str, str]
) -> None:
    program = RUN.format(user=NOBODY, owner=os.getuid(), namespace=NAMESPACE, domain=domain())
    process = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60
    )
    assert not process.stderr
    assert mentions(json.loads(process.stdout)["reason"], f"user {NOBODY}", "operator")
    assert procedure.requests == []
    assert SocketOperator(NAMESPACE).ask("arm").done


@pytest.mark.skipif(os.getuid() != 0, reason="only root may act as another user")
def test_socket_owned_by_another_user_is_refused(name: bytes, procedure: Procedure) -> None:
    program = (
        f"import os, socket\nos.setuid({NOBODY})\n"
        "listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        f"listening.bind(bytes.fromhex('{name.hex()}'))\nlistening.listen()\nprint('here', flush=True)\ninput()"
    )
    squatter = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert squatter.stdout.readline() == "here\n"
    with pytest.raises(ConfigError, match=naming(f"user {NOBODY}", "name")):
        SocketOperator(NAMESPACE).ask("arm")
    with pytest.raises(ConfigError, match=naming("cannot be opened")):
        OperatorSocket(procedure.answer, procedure.leave, name)
    squatter.communicate("\n", timeout=60)


@pytest.mark.parametrize(
    "packet",
    [
        b"{",
        b"\xff",
        b"[]",
        b'{"act": 1}',
        b'{"arguments": "rung"}',
        b'{"arguments": {"rung": 1}}',
        b'{"acts": ""}',
        b" " * (LONGEST_PACKET + 1),
        b"[" * LONGEST_PACKET,
    ],
    ids=["no JSON", "no text", "a list", "a number", "a text", "numbers", "a typo", "too long", "too deep"],
)
def test_invalid_request_is_answered_with_the_reason(
    connection: socket.socket, procedure: Procedure, packet: bytes
) -> None:
    connection.send(packet)
    assert mentions(json.loads(connection.recv(65536))["reason"], "request")
    connection.send(b'{"act": "arm"}')
    assert json.loads(connection.recv(65536))["done"]
    assert [request.act for request, _ in procedure.requests] == ["arm"]


def test_idle_connections_do_not_block_a_stop(served: OperatorSocket, procedure: Procedure, name: bytes) -> None:
    """The oldest one is closed for the next; an act keeps its connection."""
    asking = Asking(procedure)
    with ExitStack() as stack:
        for _ in range(3 * CONNECTIONS):
            idle = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            idle.connect(name)
        assert SocketOperator(NAMESPACE).ask("stop").done
        assert len(served._calls) <= CONNECTIONS
        procedure.gate.set()
        asking.join(30.0)
    assert asking.answers[0].result == "run"
    assert procedure.left == []


FLOOD = """
import socket, sys
connections = []
for _ in range(int(sys.argv[2])):
    connections.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    connections[-1].connect(bytes.fromhex(sys.argv[1]))
print("open", flush=True)
sys.stdin.read()
"""


def test_flood_of_connections_closes_none_of_other_processes(
    served: OperatorSocket, connection: socket.socket, name: bytes
) -> None:
    """A stop whose process has connected is accepted, even if it is sent late."""
    command = [sys.executable, "-c", FLOOD, name.hex(), str(3 * CONNECTIONS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as flooding:
        assert flooding.stdout.readline() == "open\n"
        connection.send(b'{"act": "stop"}')
        assert json.loads(connection.recv(65536))["done"]
        flooding.communicate("")
    assert len(served._calls) <= CONNECTIONS


def test_process_that_reads_no_answer_is_disconnected(served: OperatorSocket, connection: socket.socket) -> None:
    """Otherwise its thread, and the end of the test, would wait forever."""
    with suppress(OSError):  # a broken pipe, or a connection that was reset
        for _ in range(100_000):
            connection.send(b"{}")
        pytest.fail("it is still connected")
    assert SocketOperator(NAMESPACE).ask("stop").done
    served.close()
