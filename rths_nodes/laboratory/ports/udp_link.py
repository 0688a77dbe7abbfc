# SPDX-License-Identifier: Apache-2.0
"""The socket of the port ``udp``: datagrams of one session with one rig, and a count of what went wrong."""

from __future__ import annotations

import ipaddress
import select
import socket
from collections import Counter
from collections.abc import Iterator
from typing import Any

from rths_nodes.core.errors import ConfigError, show
from rths_nodes.laboratory.ports import datagrams
from rths_nodes.laboratory.ports.datagrams import Head, OtherVersion, Unreadable

LOST, REPEATED, REORDERED, FOREIGN, GARBAGE = "lost", "repeated", "reordered", "foreign", "garbage"
"""Kinds under which a datagram from the rig, or the lack of one, is counted."""

_REMEMBERED = 1024
"""Lost counters that are remembered, to know one that comes after all."""


def check_address(address: str, path: str) -> None:
    """Raises ConfigError for an ``address`` that no single computer has; names are looked up by ``open``."""
    try:
        known = ipaddress.ip_address(address)
    except ValueError:  # a name
        return
    if known.is_unspecified or known.is_multicast or str(known) == "255.255.255.255":
        raise ConfigError(f"{path} = {show(address)}: must be that of one computer, the rig's")


class UdpLink:
    """Datagrams to and from ``address``:``port``, of one ``session``; from any port of that computer.

    ``local_port`` is ours, 0 for any: a target that is set up to send to one needs it declared.
    """

    def __init__(self, address: str, port: int, local_port: int) -> None:
        self.place = f"{address}:{port}"
        self.session = 0
        self.other_version = 0
        """Version of the datagrams that the rig speaks, where that is another one than ours; 0: not known."""
        self.counts: Counter[str] = Counter(dict.fromkeys((LOST, REPEATED, REORDERED, FOREIGN, GARBAGE), 0))
        self._address, self._port, self._local = address, port, local_port
        self._socket: socket.socket | None = None
        self._far: Any = ("", 0)
        self._missing: dict[int, None] = {}

    def open(self, session: int) -> None:
        """Begin ``session``. Raises ConfigError for an address that is none, and a local port that is taken."""
        self.close()
        self.session, self.other_version = session, 0
        try:
            found = socket.getaddrinfo(self._address, self._port, type=socket.SOCK_DGRAM)
            family, kind, _, _, self._far = found[0]
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

    def adopt(self, opened: socket.socket, session: int, far: object) -> None:
        """Go on with the ``session`` that another process has opened, with its socket, towards address ``far``."""
        self.close()
        self.session, self._socket, self._far = session, opened, far
        opened.setblocking(False)

    @property
    def far(self) -> object:
        """Address of the rig, while it is open."""
        return self._far

    @property
    def socket(self) -> socket.socket:
        """While it is open."""
        assert self._socket is not None
        return self._socket

    def send(self, head: Head, rows: bytes = b"") -> bytes:
        """Send one datagram of the session; what was sent. What the network does not take is lost on the way."""
        data = datagrams.packed(head, rows)
        self.send_again(data)
        return data

    def send_again(self, data: bytes) -> None:
        """Send what was sent before."""
        try:
            self.socket.sendto(data, self._far)
        except OSError:
            return  # as if it were lost on the way: the rig's silence, or its bridge, tells

    def received(self) -> Iterator[tuple[Head, bytes]]:
        """All datagrams of the session that are here, without waiting; others are counted."""
        while True:
            try:
                data, sender = self.socket.recvfrom(2 * datagrams.LARGEST)
            except BlockingIOError:
                return
            except OSError:
                continue  # what the network tells of a datagram of ours
            try:
                if sender[0] != self._far[0]:
                    self.counts[FOREIGN] += 1
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

    def wait(self, seconds: float) -> bool:
        """Until a datagram is here, or ``seconds`` are over; whether one is."""
        return bool(select.select([self.socket], [], [], max(seconds, 0.0))[0])

    def lose(self, counter: int) -> None:
        """State ``counter`` is given up."""
        self.counts[LOST] += 1
        self._missing[counter] = None
        if len(self._missing) > _REMEMBERED:
            del self._missing[next(iter(self._missing))]

    def too_late(self, counter: int) -> None:
        """State ``counter`` came when its turn was over: it was given up, or has come before."""
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
