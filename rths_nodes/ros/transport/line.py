# SPDX-License-Identifier: Apache-2.0
"""Line: one stream between two nodes of a machine, over a unix socket that preserves message boundaries.

The nodes share no lock. The kernel reports the exit of a node immediately, and still delivers earlier messages.
Any local process can bind an abstract socket name, or connect to it. Both sides therefore query the
kernel for the user of the other process.
"""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import socket
import struct
from collections import deque
from contextlib import suppress
from typing import NamedTuple

from rths_nodes.core.wire import HEAD, number_of
from rths_nodes.ros.environment import DOMAIN
from rths_nodes.ros.names import TRIP

LONGEST_NAME = 107
LONGEST_GREETING = 4096
WAIT, WELCOME = b"wait", b"welcome"
"""Answers to a valid greeting: ``WAIT`` at once, ``WELCOME`` after the called node has discovered the caller."""

_CREDENTIALS = struct.Struct("3i")


def address(node: str, domain: int, user: int | None = None) -> bytes:
    """Return the abstract socket name of ``node`` (full name). The default ``user`` is the current user."""
    name = f"rths/{os.getuid() if user is None else user}/{domain}{node}".encode()
    if len(name) > LONGEST_NAME:
        name = b"rths/" + hashlib.sha256(name).hexdigest().encode()
    return b"\0" + name


def stop_address(namespace: str) -> bytes:
    """Return the socket address of the executive. The datagram ``S`` stops the test, and ``T`` trips it."""
    return address(f"/{namespace.strip('/')} stop", int(os.environ.get(DOMAIN) or 0))


def stop_executive(namespace: str, kind: str) -> bool:
    """Send a stop of ``kind`` (see ``STOPS``) to the executive in ``namespace``. Return False if there is none."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender, suppress(OSError):
        sender.setblocking(False)
        return sender.sendto(b"T" if kind == TRIP else b"S", stop_address(namespace)) > 0
    return False


class Credentials(NamedTuple):
    process: int
    user: int

    @classmethod
    def of(cls, sock: socket.socket) -> Credentials:
        process, user, _ = _CREDENTIALS.unpack(
            sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        return cls(process, user)

    @property
    def trusted(self) -> bool:
        return self.user == os.getuid()

    @property
    def name(self) -> str:
        try:
            return pwd.getpwuid(self.user).pw_name
        except KeyError:
            return str(self.user)

    def __str__(self) -> str:
        return f"process {self.process} of user {self.user}"


class Greeting(NamedTuple):
    """First message of a caller: its ``run``, full name, topic, and the gid of its publisher."""

    run: str
    node: str
    topic: str
    gid: str

    def pack(self) -> bytes:
        return json.dumps(self).encode()

    @classmethod
    def unpack(cls, data: bytes) -> Greeting:
        """Unpack a greeting. Raises ValueError if ``data`` is not a greeting."""
        try:
            values = json.loads(data)  # JSON and encoding errors are ValueErrors
        except RecursionError as error:
            raise ValueError("too many brackets") from error
        if not isinstance(values, list) or [type(value) for value in values] != [str] * len(cls._fields):
            raise ValueError("expected a list of four strings")
        bytes.fromhex(values[-1])
        return cls(*values)


LONGEST_MESSAGE = 1 << 16
"""Longest message that can be received, bytes."""
PER_MESSAGE = 1280
"""Largest overhead of a message in the kernel, bytes."""
FORCE = 32
"""SO_SNDBUFFORCE, which the module ``socket`` lacks. A privileged process can exceed the limit of SO_SNDBUF."""

SENT_AT = struct.Struct("<q")
"""Prefix of each message: sending time, ns since the epoch."""


class SocketReader:
    """Receives messages on a line.

    ``ended`` is true if the sender has closed the line and all messages are read. ``sent_ns`` is the sending time
    of the last message. ``given_back`` is true if later messages arrive on the topic.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.socket = sock
        self.ended = self.spoken = self.given_back = False
        self.sent_ns = 0
        self._last = b""
        self._buffer = bytearray(LONGEST_MESSAGE)
        self._view = memoryview(self._buffer)
        self._receive = sock.recv_into

    def take(self) -> bytes | None:
        if self.ended:
            return None
        try:
            count = self._receive(self._buffer)
        except BlockingIOError:
            return None
        except ConnectionResetError:  # reported only once; earlier messages can still be read
            return self.take()
        if count <= SENT_AT.size:
            self.close()
            return None
        self.spoken = True
        (self.sent_ns,) = SENT_AT.unpack_from(self._buffer)
        self._last = data = bytes(self._view[SENT_AT.size : count])
        return data

    @property
    def last_number(self) -> int:
        """Number of the last message, or -1 before the first message."""
        return number_of(self._last) if len(self._last) >= HEAD.size else -1

    def look(self) -> None:
        if not self.ended:
            with suppress(BlockingIOError, ConnectionResetError):
                self.ended = not self.socket.recv(1, socket.MSG_PEEK)

    def give_back(self) -> None:
        """Make the sender use the topic from its next message on. Received messages can still be read."""
        self.given_back = True
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RD)

    def close(self) -> None:
        self.ended = True
        self.socket.close()


class SocketWriter:
    """Sends messages on a line. ``open`` is true until the line is closed.

    At most ``depth`` messages are queued while the kernel's buffer is full. ``lost`` counts discarded messages.
    The receiver detects missing messages by their numbers.
    """

    def __init__(self, sock: socket.socket, depth: int) -> None:
        sock.setblocking(False)
        self.socket, self._depth = sock, depth
        self.open = True
        self.spoken = False
        self.lost = 0
        self._kept: deque[bytes] = deque()
        self._send = sock.send

    def send(self, packed: bytes) -> bool:
        """Send or queue a message with its time of sending. Return False if the receiver has closed the line."""
        self.spoken = True
        if self._kept:
            self.send_kept()
            if self._kept:
                self._keep(packed)
                return True
        try:
            self._send(packed)
        except BlockingIOError:
            self._keep(packed)
        except OSError:
            self.close()
        return self.open

    def _keep(self, packed: bytes) -> None:
        if len(self._kept) < self._depth:
            self._kept.append(packed)
        else:
            self.lost += 1

    @property
    def behind(self) -> bool:
        return bool(self._kept)

    def send_kept(self) -> None:
        try:
            while self._kept:
                self._send(self._kept[0])
                self._kept.popleft()
        except BlockingIOError:
            return
        except OSError:
            self.close()

    def look(self) -> bool:
        """Send queued messages. Return False if the receiver has closed the line."""
        self.send_kept()
        if self.open and not self.spoken:  # before the first message, no failed send shows that the line is closed
            try:
                gone = not self.socket.recv(1)  # after it has accepted, a receiver sends nothing
            except BlockingIOError:
                gone = False
            except OSError:
                gone = True
            if gone:
                self.close()
        return self.open

    def close(self) -> None:
        self.open = False
        self.lost += len(self._kept)
        self._kept.clear()
        self.socket.close()


def make_room(sock: socket.socket, messages: int, size: int) -> int:
    """Enlarge the send buffer of ``sock`` for ``messages`` of ``size`` bytes. Return how many messages fit."""
    wanted = min(messages * (size + PER_MESSAGE), 0x3FFFFFFF)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, wanted // 2)  # the kernel doubles this value
    if sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) < wanted // 2 * 2:
        with suppress(OSError):  # permitted only to privileged processes
            sock.setsockopt(socket.SOL_SOCKET, FORCE, wanted // 2)
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // (size + PER_MESSAGE)
