# SPDX-License-Identifier: Apache-2.0
"""The socket of the port ``udp``: datagrams of one session with one rig, and counts of faulty ones."""

from __future__ import annotations

import select
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

from rths_nodes.core.errors import ConfigError
from rths_nodes.laboratory.ports import datagrams
from rths_nodes.laboratory.ports.datagrams import Head, OtherVersion, Unreadable

LOST, REPEATED, REORDERED, FOREIGN, GARBAGE = "lost", "repeated", "reordered", "foreign", "garbage"
"""Kinds of counted datagrams, or missing ones."""

MOST_AT_ONCE = 256
"""Datagrams read in one call: a flood from another sender must not block the caller."""
_REMEMBERED = 1024
"""Lost counters kept to recognise late datagrams."""


Ends = tuple[tuple[str, int], tuple[str, int] | None]
"""Destination address, and address and port of the end that has answered."""


class UdpLink:
    """Datagrams to and from ``address``:``port``, of one ``session``.

    Until :meth:`settle` any port of that computer may answer; then only the address and port that did.
    ``local_port`` is ours, 0 for any: some targets need it declared.
    """

    def __init__(self, address: str, port: int, local_port: int) -> None:
        self.place = f"{address}:{port}"
        self.session = 0
        self.other_version = 0
        """Version of the rig's datagrams, if another one; 0: unknown."""
        self.counts: Counter[str] = Counter(dict.fromkeys((LOST, REPEATED, REORDERED, FOREIGN, GARBAGE), 0))
        self.unsent = self.other_sender = ""
        """Why the network refused the last datagram; another address that sent datagrams of the session."""
        self._address, self._port, self._local = address, port, local_port
        self._socket: socket.socket | None = None
        self._far: tuple[str, int] = ("", 0)
        self._sender: tuple[str, int] | None = None
        self._peer: tuple[str, int] | None = None
        self._missing: dict[int, None] = {}

    def open(self, session: int) -> None:
        """Begin ``session``. Raises ConfigError for an invalid address, and a used local port."""
        self.close()
        self.session, self.other_version = session, 0
        self._sender = self._peer = None
        self.unsent = self.other_sender = ""
        try:
            rows = socket.getaddrinfo(self._address, self._port, type=socket.SOCK_DGRAM)
            # receivers listen on IPv4; hosts may list ::1 first for localhost
            family, kind, _, _, far = min(rows, key=lambda row: row[0] != socket.AF_INET)
            self._far = far  # type: ignore[assignment]  # of IPv6 with flow and scope
            self._socket = socket.socket(family, kind)
            self._socket.setblocking(False)
            self._socket.bind(("", self._local))
        except OSError as error:
            self.close()
            if isinstance(error, socket.gaierror):
                raise ConfigError(f"port.address = {self._address!r}: not known ({error.strerror})") from error
            raise ConfigError(
                f"port.local_port = {self._local}: cannot be used ({error.strerror or error})"
            ) from error

    def adopt(self, opened: socket.socket, session: int, ends: Ends) -> None:
        """Continue the ``session`` of another process, with its ``opened`` socket and the ``ends`` of its link."""
        self.close()
        self.session, self._socket, (self._far, self._peer) = session, opened, ends
        opened.setblocking(False)

    def settle(self) -> None:
        """Accept datagrams only from the sender of the last one."""
        self._peer = self._sender

    @property
    def ends(self) -> Ends:
        return self._far, self._peer

    @property
    def socket(self) -> socket.socket:
        assert self._socket is not None
        return self._socket

    def send(self, head: Head, rows: bytes = b"") -> bytes:
        """Send one datagram of the session and return it. Datagrams refused by the network count as lost."""
        data = datagrams.packed(head, rows)
        self.send_again(data)
        return data

    def send_again(self, data: bytes) -> None:
        try:
            self.socket.sendto(data, self._far)
        except OSError as error:  # as if it were lost on the way: the rig's silence, or its bridge, tells
            self.unsent = error.strerror or str(error)

    def received(self) -> Iterator[tuple[Head, bytes]]:
        """Yield the datagrams of the session received so far; count others."""
        for _ in range(MOST_AT_ONCE):
            try:
                data, sender = self.socket.recvfrom(2 * datagrams.LARGEST)
            except BlockingIOError:
                return
            except OSError:
                continue  # the network's report on a datagram of ours
            try:
                self._sender = sender[:2]
                if self._sender != self._peer and (self._peer or sender[0] != self._far[0]):
                    self.counts[FOREIGN] += 1
                    self._note_sender(data)
                    continue
                head = datagrams.head_of(data)
            except Unreadable as error:
                self.counts[GARBAGE] += 1
                if isinstance(error, OtherVersion) and error.head.session == self.session:
                    self.other_version = error.version
                continue
            if head.session == self.session:
                yield head, data
            else:
                self.counts[FOREIGN] += 1

    def _note_sender(self, data: bytes) -> None:
        """Note the address of an answer of the session from elsewhere: a computer with several addresses."""
        with suppress(Unreadable):
            if datagrams.head_of(data).session == self.session and self._sender and not self._peer:
                self.other_sender = self._sender[0]

    def wait(self, seconds: float) -> bool:
        """Wait for a datagram for at most ``seconds``; return whether one is here."""
        return bool(select.select([self.socket], [], [], max(seconds, 0.0))[0])

    def lose(self, counter: int) -> None:
        self.counts[LOST] += 1
        self._missing[counter] = None
        if len(self._missing) > _REMEMBERED:
            del self._missing[next(iter(self._missing))]

    def too_late(self, counter: int) -> None:
        """Count state ``counter`` as reordered or repeated: it was given up, or has come before."""
        if counter in self._missing:
            del self._missing[counter]
            self.counts[LOST] -= 1
            self.counts[REORDERED] += 1
        else:
            self.counts[REPEATED] += 1

    def close(self) -> None:
        """Give the socket back; may be called again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
