# SPDX-License-Identifier: Apache-2.0
"""The socket of the operators on this machine: requests and answers as JSON, a packet each, of known users.

The kernel says whose process has called. Its name is abstract, as those of the streams between nodes
(``ros/transport/greeting.py``): anybody may call, or take the name first, so both sides ask who the other one is.
Nothing here needs ROS.
"""

from __future__ import annotations

import json
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import asdict, fields
from typing import Any

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.wire.acts import Answer, Request
from rths_nodes.loop.options import NAMESPACE
from rths_nodes.ros.transport.greeting import Credentials, address

LONGEST_PACKET = 1 << 16
RETRY_S = 0.1
WAITING = 16
"""Callers that the kernel keeps until they are heard."""

LOOK_S = 0.05
"""Between two looks whether a caller is still there while its act is under way."""

Answering = Callable[[Request, Credentials], Answer]


class OperatorSocket:
    """Answers processes of the ``users`` (uid) at the abstract ``name``, each in a thread, from start to close.

    ``left`` is called for a process that ends, or hangs up, while its act is under way. Raises ConfigError
    where the name is taken.
    """

    def __init__(
        self, answering: Answering, left: Callable[[Credentials], None], name: bytes, users: Collection[int]
    ) -> None:
        self._answering, self._left, self._users = answering, left, frozenset(users)
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._calls: dict[threading.Thread, socket.socket] = {}
        self._changing, self._closed = threading.Lock(), False
        try:
            self._listening.bind(name)
        except OSError as error:
            self._listening.close()
            shown = name[1:].decode(errors="replace")
            raise ConfigError(f"socket @{shown}: cannot be had ({error.strerror}): one test at a time") from None
        self._thread = threading.Thread(target=self._accept, name="operator socket", daemon=True)

    def start(self) -> None:
        """From now on callers are answered."""
        self._listening.listen(WAITING)
        self._thread.start()

    def close(self) -> None:
        """Hear no more, once what is under way is answered; may be called again."""
        self._closed = True
        with suppress(OSError):  # wakes who waits in accept
            self._listening.shutdown(socket.SHUT_RDWR)
        if self._thread.is_alive():
            self._thread.join()
        self._listening.close()
        with self._changing:
            calls = dict(self._calls)
        for thread, call in calls.items():
            with suppress(OSError):  # it has left meanwhile
                call.shutdown(socket.SHUT_RD)
            thread.join()

    def _accept(self) -> None:
        while not self._closed:
            try:
                call, _ = self._listening.accept()
            except OSError:
                time.sleep(0.0 if self._closed else RETRY_S)  # no more files, say
                continue
            peer = Credentials.of(call)
            if peer.user not in self._users:
                _send(call, Answer(reason=f"{peer} is no operator of this test"))
                call.close()
                continue
            thread = threading.Thread(target=self._serve, args=(call, peer), name=f"operator {peer}", daemon=True)
            with self._changing:
                self._calls[thread] = call
            thread.start()

    def _serve(self, call: socket.socket, peer: Credentials) -> None:
        """Answer one process until it leaves."""
        with call, suppress(OSError):
            while packet := call.recv(LONGEST_PACKET + 1):
                _send(call, self._answer(call, packet, peer))
        with self._changing:
            del self._calls[threading.current_thread()]

    def _answer(self, call: socket.socket, packet: bytes, peer: Credentials) -> Answer:
        try:
            request = unpacked(Request, packet)
        except ValueError as error:
            return Answer(reason=f"this is no request: {error}")
        over = threading.Event()
        watching = threading.Thread(target=self._watch, args=(call, peer, over), daemon=True)
        watching.start()
        try:
            return self._answering(request, peer)
        finally:
            over.set()
            watching.join()

    def _watch(self, call: socket.socket, peer: Credentials, over: threading.Event) -> None:
        """Tell of a caller that leaves before its act is ``over``."""
        looking = select.poll()
        looking.register(call, select.POLLHUP)
        while not over.wait(LOOK_S):
            if any(event & select.POLLHUP for _, event in looking.poll(0)):
                self._left(peer)
                return


def _send(call: socket.socket, told: Request | Answer) -> None:
    with suppress(OSError):  # it has left meanwhile
        call.send(json.dumps(asdict(told)).encode())


def unpacked(kind: type[Any], packet: bytes) -> Any:
    """A Request or Answer out of a packet. Raises ValueError for what is none."""
    if len(packet) > LONGEST_PACKET:
        raise ValueError(f"more than {LONGEST_PACKET} bytes")
    try:
        values = json.loads(packet)  # JSON and encoding errors are ValueErrors
    except RecursionError:
        raise ValueError("lists in lists without an end") from None
    usual = {field.name: field.default for field in fields(kind)}
    if not isinstance(values, dict) or values.keys() - usual.keys():
        raise ValueError(f"other fields than: {', '.join(usual)}")
    for name, value in values.items():
        values[name] = _like(usual[name], value, name)
    return kind(**values)


def _like(usual: object, value: object, name: str) -> object:
    if isinstance(usual, tuple):
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            return tuple(value)
    elif type(value) is type(usual):
        return value
    raise ValueError(f"{name}: has another type")


class SocketOperator:
    """A process that is an operator by the socket of ``rths test --services`` in ``namespace``.

    ``user`` (uid) runs that; he and the ``domain`` are by default those of this process. A stop while an act is
    under way takes a second one. Raises ConfigError where nobody answers, or another user does.
    """

    def __init__(self, namespace: str = NAMESPACE, user: int | None = None, domain: int | None = None) -> None:
        user = os.getuid() if user is None else user
        domain = int(os.environ.get("ROS_DOMAIN_ID") or 0) if domain is None else domain
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._socket.connect(address(f"/{namespace.strip('/')}/operator", domain, user))
        except OSError as error:
            self._socket.close()
            raise ConfigError(
                f"nobody serves operators of {namespace} in domain {domain} ({error.strerror}): is rths test "
                "--services running?"
            ) from None
        if (peer := Credentials.of(self._socket)).user != user:
            self._socket.close()
            raise ConfigError(f"{peer} has taken the name of the operators' socket")

    def ask(self, act: str = "", by: str = "", **arguments: str) -> Answer:
        """Do an act, and wait until it is over; the empty one only tells. Raises ConfigError without an answer."""
        try:
            _send(self._socket, Request(act, tuple(arguments), tuple(arguments.values()), by))
            answer: Answer = unpacked(Answer, self._packet())
        except (OSError, ValueError) as error:
            raise ConfigError(f"{act or 'situation'}: was not answered: the test is over ({error})") from None
        return answer

    def _packet(self) -> bytes:
        try:
            return self._socket.recv(LONGEST_PACKET + 1)
        except ConnectionResetError:  # told once; what was said before is still there
            return self._socket.recv(LONGEST_PACKET + 1)

    def close(self) -> None:
        self._socket.close()


Ask = Callable[..., Answer]
"""Does an act with its arguments, and gives the answer."""


def by_socket(namespace: str) -> Ask:
    """Acts by the socket, each by a connection of its own: a stop does not wait for the act that is under way."""

    def ask(act: str = "", by: str = "", **arguments: str) -> Answer:
        operator = SocketOperator(namespace)
        try:
            return operator.ask(act, by, **arguments)
        finally:
            operator.close()

    return ask
