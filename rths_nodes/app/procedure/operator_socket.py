# SPDX-License-Identifier: Apache-2.0
"""Operator socket of a test: requests and responses of processes of one user, each as one JSON packet.

The kernel reports the process and user of the peer. The socket has an abstract name
(``ros/transport/line.py``). Any user may connect, or take the name first, so server and client both check
their peer.
"""

from __future__ import annotations

import json
import os
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TypeVar

from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.interrupts import begun
from rths_nodes.loop.options import NAMESPACE
from rths_nodes.recording.plain import built
from rths_nodes.ros.transport.line import Credentials, address

LONGEST_PACKET = 1 << 16
CONNECTIONS = 64
"""Maximum number of connections. An additional connection closes an idle connection of the process with
the most connections, so that another process can send a stop."""
LOOK_S = 0.05
"""Polling interval during an act, s."""
UNSEEN = -1
"""``stops`` and ``state`` of a request whose sender has received no answer yet."""

T = TypeVar("T")


@dataclass(frozen=True)
class Request:
    """Request for an act, with ``arguments`` as text, or for the situation only if ``act`` is empty.

    ``by`` is the name of the operator. The act is refused if ``stops``, ``state`` or ``test_id`` has changed since
    the last answer. The acts ``stop``, ``hold`` and ``note`` do not need these fields.
    """

    act: str = ""
    arguments: dict[str, str] = field(default_factory=dict)
    by: str = ""
    stops: int = UNSEEN
    state: int = UNSEEN
    test_id: str = ""


@dataclass(frozen=True)
class Answer:
    """Result of a request, and the situation after the request.

    ``stops`` is the number of stops so far. ``possible`` maps each act to the reason why it is not possible, or to
    an empty string. ``motions`` maps each act to its motion as text, empty if the act is not possible or moves
    nothing. ``scenario_hash`` and ``engine`` belong to ``next_rung``; ``offsets_hash`` belongs to the offsets that
    can be confirmed, otherwise to the confirmed offsets. The act ``sign_for`` accepts the names in ``to_sign``.
    ``checklist`` lists the items to answer. ``warning`` is the text of an active warning output, with the seconds
    until the motion. ``verdicts`` maps each planned rung to its verdict, which is empty until the rung has run.
    """

    done: bool = False
    reason: str = ""
    result: str = ""
    state: int = UNSEEN
    stops: int = UNSEEN
    possible: dict[str, str] = field(default_factory=dict)
    next_rung: str = ""
    scenario_hash: str = ""
    engine: str = ""
    offsets_hash: str = ""
    test_id: str = ""
    to_sign: list[str] = field(default_factory=list)
    motions: dict[str, str] = field(default_factory=dict)
    checklist: list[str] = field(default_factory=list)
    warning: str = ""
    next_act: str = ""
    verdicts: dict[str, str] = field(default_factory=dict)


class OperatorSocket:
    """Handles requests from processes of this user at the abstract socket ``name``. Each connection has a thread.

    ``left`` is called if a process disconnects during its act. Raises ConfigError if ``name`` is taken.
    """

    def __init__(
        self, answering: Callable[[Request, Credentials], Answer], left: Callable[[Credentials], None], name: bytes
    ) -> None:
        self._answering, self._left = answering, left
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._calls: dict[threading.Thread, tuple[socket.socket, Credentials]] = {}
        self._busy: set[threading.Thread] = set()
        self._changing, self._closed = threading.Lock(), False
        try:
            self._listening.bind(name)
        except OSError as error:
            self._listening.close()
            raise ConfigError(
                f"socket @{name[1:].decode(errors='replace')}: cannot be opened ({error.strerror}). Only one test "
                "can run at a time"
            ) from None
        self._thread = threading.Thread(target=self._accept, name="operator socket", daemon=True)

    def start(self) -> None:
        self._listening.listen(16)
        self._thread.start()

    def close(self) -> None:
        """Stop accepting connections, and wait until the acts in progress have ended. May be called repeatedly."""
        self._closed = True
        with suppress(OSError):  # wake the thread that waits in accept
            self._listening.shutdown(socket.SHUT_RDWR)
        if self._thread.is_alive():
            self._thread.join()
        self._listening.close()
        with self._changing:
            calls = dict(self._calls)
        for thread, (connection, _) in calls.items():
            with suppress(OSError):  # the client may have disconnected
                connection.shutdown(socket.SHUT_RD)
            thread.join()

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                time.sleep(0.0 if self._closed else 0.1)  # e.g. no file descriptor is free
                continue
            peer = Credentials.of(connection)
            if not peer.trusted:
                with connection, suppress(OSError):
                    _send(connection, Answer(reason=f"{peer} is not an operator of this test"))
                continue
            call = connection, peer
            thread = threading.Thread(target=self._serve, args=call, name=f"operator {peer}", daemon=True)
            with self._changing:
                self._make_room()
                self._calls[thread] = call
            thread.start()

    def _make_room(self) -> None:
        processes = {thread: peer.process for thread, (_, peer) in self._calls.items()}
        counts, idle = Counter(processes.values()), [thread for thread in processes if thread not in self._busy]
        if len(self._calls) >= CONNECTIONS and idle:
            oldest = max(idle, key=lambda thread: counts[processes[thread]])
            with suppress(OSError):  # the client may have disconnected
                self._calls.pop(oldest)[0].shutdown(socket.SHUT_RDWR)

    def _serve(self, connection: socket.socket, peer: Credentials) -> None:
        thread, left = threading.current_thread(), select.poll()
        left.register(connection, select.POLLHUP)
        with connection, suppress(OSError):
            while packet := connection.recv(LONGEST_PACKET + 1):
                self._busy.add(thread)
                answer = begun(partial(self._answer, packet, peer), f"act of {peer}")
                while wait([answer], LOOK_S).not_done:
                    if left.poll(0):
                        self._left(peer)
                        break
                _send(connection, answer.result())
                self._busy.discard(thread)
        with self._changing:
            self._calls.pop(thread, None)
            self._busy.discard(thread)

    def _answer(self, packet: bytes, peer: Credentials) -> Answer:
        try:
            request = unpacked(Request, packet)
        except ValueError as error:
            return Answer(reason=f"invalid request: {error}")
        return self._answering(request, peer)


def _send(connection: socket.socket, message: Request | Answer) -> None:
    connection.send(json.dumps(asdict(message)).encode(), socket.MSG_DONTWAIT)


def unpacked(kind: type[T], packet: bytes) -> T:
    if len(packet) > LONGEST_PACKET:
        raise ValueError(f"the packet is longer than {LONGEST_PACKET} bytes")
    try:
        return built(kind, json.loads(packet), "")  # all other errors are ValueErrors
    except RecursionError:
        raise ValueError("the packet has too many nested lists") from None


class SocketOperator:
    """Sends requests to the operator socket of ``rths test --socket`` in ``namespace``.

    ``user`` is the uid of the user who runs the test. ``user`` and ``domain`` default to the values of this
    process. The test refuses an act if the situation has changed since the last answer, ``seen``. Each request has
    its own connection, so that a stop never waits for an act.
    """

    def __init__(self, namespace: str = NAMESPACE, user: int | None = None, domain: int | None = None) -> None:
        self._user = os.getuid() if user is None else user
        self._domain = int(os.environ.get("ROS_DOMAIN_ID") or 0) if domain is None else domain
        self._namespace = namespace.strip("/")
        self.seen = Answer()

    def ask(self, act: str = "", by: str = "", **arguments: str) -> Answer:
        """Request an act (empty: query the situation) and wait for its end. Raises the errors of :meth:`send`."""
        seen = self.seen
        self.seen = self.send(Request(act, arguments, by, seen.stops, seen.state, seen.test_id))
        return self.seen

    def send(self, request: Request) -> Answer:
        """Send a request, and return the answer. Raises ConfigError if no process of the user answers."""
        name = address(f"/{self._namespace}/operator", self._domain, self._user)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            try:
                connection.connect(name)
            except OSError as error:
                raise ConfigError(
                    f"no test in namespace {self._namespace} of domain {self._domain} accepts operators "
                    f"({error.strerror}). Start rths test --socket"
                ) from None
            if (peer := Credentials.of(connection)).user != self._user:
                raise ConfigError(f"{peer} has taken the name of the operator socket. End that process")
            try:
                with suppress(OSError):  # the peer may refuse and close before it reads the request
                    _send(connection, request)
                return unpacked(Answer, _packet(connection))
            except (OSError, ValueError) as error:
                act = request.act or "situation"
                raise ConfigError(f"{act}: received no answer, because the test has ended ({error})") from None


def _packet(connection: socket.socket) -> bytes:
    try:
        return connection.recv(LONGEST_PACKET + 1)
    except ConnectionResetError:  # the second read returns an answer that was sent before the reset
        return connection.recv(LONGEST_PACKET + 1)
