# SPDX-License-Identifier: Apache-2.0
"""A line: one stream from one node to another on the same machine, over a unix socket that keeps messages whole.

The kernel holds no lock between the two, tells each at once when the other is gone, and hands over what was sent
before.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from contextlib import suppress

from rths_nodes.core.wire.layout import HEAD, number_of

LONGEST_MESSAGE = 1 << 16
"""Bytes that are received at most."""
PER_MESSAGE = 1280
"""Bytes that the kernel counts for a message beside its own, at most."""
FORCE = 32
"""SO_SNDBUFFORCE, which the module socket does not name: larger than the system allows to everybody."""

SENT_AT = struct.Struct("<q")
"""Before each message: when it was sent, ns since the epoch."""


class SocketReader:
    """The end of a line that hears. ``ended``: the speaker is gone, and nothing is left.

    ``spoken`` is True once a message has come, ``sent_ns`` tells when that was sent; ``given_back``: what is not
    here yet comes by the topic.
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
        """The next message; None when there is none."""
        if self.ended:
            return None
        try:
            count = self._receive(self._buffer)
        except BlockingIOError:
            return None
        except ConnectionResetError:  # told once; what was sent before is still there
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
        """The number of the last message; -1 before the first."""
        return number_of(self._last) if len(self._last) >= HEAD.size else -1

    def look(self) -> None:
        """See whether the speaker is gone, and nothing is left."""
        if not self.ended:
            with suppress(BlockingIOError, ConnectionResetError):
                self.ended = not self.socket.recv(1, socket.MSG_PEEK)

    def give_back(self) -> None:
        """Let the speaker send by the topic from its next message on; what has come is still to be taken."""
        self.given_back = True
        with suppress(OSError):  # it has left meanwhile
            self.socket.shutdown(socket.SHUT_RD)

    def close(self) -> None:
        self.ended = True
        self.socket.close()


class SocketWriter:
    """The end of a line that speaks. ``open``: the other end still hears.

    What the kernel has no room for is kept, at most ``depth`` messages of it; one that finds no room there either
    is ``lost``: a gap, which the other side sees by the numbers.
    """

    def __init__(self, sock: socket.socket, depth: int) -> None:
        sock.setblocking(False)
        self.socket, self._depth = sock, depth
        self.open = True
        self.spoken = False
        """True once something was sent."""
        self.lost = 0
        self._kept: deque[bytes] = deque()
        self._send = sock.send

    def send(self, packed: bytes) -> bool:
        """A message behind the time at which it was sent; False when the other end hears no more."""
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
        """True while the kernel has no room for what was sent."""
        return bool(self._kept)

    def send_kept(self) -> None:
        """Send what there was no room for."""
        try:
            while self._kept:
                self._send(self._kept[0])
                self._kept.popleft()
        except BlockingIOError:
            return
        except OSError:
            self.close()

    def look(self) -> bool:
        """Send what was kept; False when the other end hears no more, which sending tells from the first on."""
        self.send_kept()
        if self.open and not self.spoken:
            try:
                gone = not self.socket.recv(1)  # after its welcome the other side says nothing
            except BlockingIOError:
                gone = False
            except OSError:
                gone = True
            if gone:
                self.close()
        return self.open

    def close(self) -> None:
        """Speak no more. What was kept is lost."""
        self.open = False
        self.lost += len(self._kept)
        self._kept.clear()
        self.socket.close()


def make_room(sock: socket.socket, messages: int, size: int) -> int:
    """Let ``sock`` hold as many ``messages`` of ``size`` bytes as the system grants; how many it will hold."""
    wanted = min(messages * (size + PER_MESSAGE), 0x3FFFFFFF)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, wanted // 2)  # the kernel doubles it
    if sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) < wanted // 2 * 2:
        with suppress(OSError):  # not for everybody
            sock.setsockopt(socket.SOL_SOCKET, FORCE, wanted // 2)
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // (size + PER_MESSAGE)
