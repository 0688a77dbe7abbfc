# SPDX-License-Identifier: Apache-2.0
"""Link to a rig over UDP: the socket, the datagrams of one session, and a listener for another process."""

from __future__ import annotations

import select
import socket
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from rths_nodes.core.declarations import Listener, ReportedState
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import INTERLOCK_OPEN, Array, Measurement
from rths_nodes.laboratory.ports import datagrams
from rths_nodes.laboratory.ports.datagrams import Head, OtherVersion, RigState, Unreadable

LOST, REPEATED, REORDERED, FOREIGN, GARBAGE = "lost", "repeated", "reordered", "foreign", "garbage"
MOST_AT_ONCE = 256
"""Largest number of datagrams read in one call. Excess datagrams from another sender must not block the caller."""
_REMEMBERED = 1024
GOODBYES = 3
"""Number of copies of the datagram that ends a session. The receiver does not acknowledge these datagrams."""


class UdpTransport:
    """Carries complete datagrams to and from ``address``:``port``.

    Before :meth:`settle`, any port at ``address`` may answer; afterwards only the port that answered is accepted.
    ``unsent`` is the reason why the last datagram could not be sent; empty if it was sent. ``multiprocessing`` can
    pickle an open transport, so that another process receives the same session.
    """

    def __init__(self, address: str, port: int, local_port: int = 0) -> None:
        self.address, self.unsent = f"{address}:{port}", ""
        self._host, self._port, self._local = address, port, local_port
        self._socket: socket.socket | None = None
        self._far: tuple[str, int] = ("", 0)
        self._sender: tuple[str, int] | None = None
        self._peer: tuple[str, int] | None = None

    def open(self) -> None:
        self.close()
        self._sender = self._peer = None
        self.unsent = ""
        try:
            rows = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_DGRAM)
            # receivers listen on IPv4; hosts may list ::1 first for localhost
            family, kind, _, _, far = min(rows, key=lambda row: row[0] != socket.AF_INET)
            self._far = far  # type: ignore[assignment]  # IPv6 adds flow and scope
            self._socket = socket.socket(family, kind)
            self._socket.setblocking(False)
            self._socket.bind(("", self._local))
        except OSError as error:
            self.close()
            if isinstance(error, socket.gaierror):
                raise ConfigError(
                    f"port.address = {self._host!r}: unknown host name ({error.strerror})"
                ) from error
            raise unusable(self._local, error.strerror or str(error)) from error

    def settle(self) -> None:
        self._peer = self._sender

    @property
    def socket(self) -> socket.socket:
        assert self._socket is not None
        return self._socket

    def send(self, data: bytes) -> None:
        """Send one datagram without waiting. A datagram that cannot be sent is lost."""
        try:
            self.socket.sendto(data, self._far)
        except OSError as error:
            self.unsent = error.strerror or str(error)

    def received(self) -> Iterator[tuple[bytes, str]]:
        """Yield at most MOST_AT_ONCE received datagrams, each with the address of its sender.

        The address is empty if the sender is the rig.
        """
        for _ in range(MOST_AT_ONCE):
            try:
                data, sender = self.socket.recvfrom(2 * datagrams.LARGEST)
            except BlockingIOError:
                return
            except OSError:
                continue  # the network reports an error for a sent datagram
            self._sender = sender[:2]
            stranger = self._sender != self._peer and (self._peer is not None or sender[0] != self._far[0])
            yield data, sender[0] if stranger else ""

    def wait(self, seconds: float) -> bool:
        """Wait at most ``seconds`` for a datagram. Return True if one has arrived."""
        return bool(select.select([self.socket], [], [], max(seconds, 0.0))[0])

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def unusable(local_port: int, reason: str) -> ConfigError:
    return ConfigError(f"port.local_port = {local_port}: cannot be used ({reason})")


class Link:
    """Sends and receives the datagrams of one session over a ``transport``, and counts faulty datagrams.

    ``label`` names the type of the port and the address of the rig.
    """

    def __init__(self, transport: UdpTransport, kind: str) -> None:
        self.label = f"port {kind!r} at {transport.address}"
        self.transport = transport
        self._begin(0)

    def _begin(self, session: int) -> None:
        self.session, self.other_version = session, 0
        self.counts: Counter[str] = Counter(dict.fromkeys((LOST, REPEATED, REORDERED, FOREIGN, GARBAGE), 0))
        self.other_sender = ""
        """Unexpected sender of datagrams of the session, e.g. another address of the rig's computer."""
        self._missing: dict[int, None] = {}

    def open(self, session: int) -> None:
        self._begin(session)
        self.transport.open()

    def send(self, head: Head, rows: bytes = b"") -> bytes:
        data = datagrams.packed(head, rows)
        self.transport.send(data)
        return data

    def received(self) -> Iterator[tuple[Head, bytes]]:
        for data, stranger in self.transport.received():
            try:
                head = datagrams.head_of(data)
            except Unreadable as error:
                self.counts[FOREIGN if stranger else GARBAGE] += 1
                if not stranger and isinstance(error, OtherVersion) and error.head.session == self.session:
                    self.other_version = error.version
                continue
            if not stranger and head.session == self.session:
                yield head, data
                continue
            self.counts[FOREIGN] += 1
            if stranger and head.session == self.session:
                self.other_sender = stranger

    def lose(self, counter: int) -> None:
        self.counts[LOST] += 1
        self._missing[counter] = None
        if len(self._missing) > _REMEMBERED:
            del self._missing[next(iter(self._missing))]

    def too_late(self, counter: int) -> None:
        """Count state ``counter`` as reordered if it had been counted as lost, otherwise as repeated."""
        if counter in self._missing:
            del self._missing[counter]
            self.counts[LOST] -= 1
            self.counts[REORDERED] += 1
        else:
            self.counts[REPEATED] += 1


class SessionListener(Listener):
    """Receives states of the session of ``link``. The listener may be passed to another process.

    The datagrams that :meth:`stop` sends have the header ``head``.
    """

    def __init__(self, link: Link, head: Head) -> None:
        self._link, self._head = link, replace(head)

    def states(self, seconds: float) -> list[ReportedState]:
        end = time.monotonic() + seconds
        while True:
            read = [_state(head, data) for head, data in self._link.received()]
            states = [state for state in read if state is not None]
            if states or (left := end - time.monotonic()) <= 0.0:
                return states
            self._link.transport.wait(left)

    def stop(self) -> None:
        for _ in range(GOODBYES):
            self._link.send(replace(self._head, kind=datagrams.CLOSE, counter=0, flags=0))

    def close(self) -> None:
        self._link.transport.close()


def _state(head: Head, data: bytes) -> ReportedState | None:
    if head.kind != datagrams.STATE:
        return None
    try:
        state = datagrams.state_of(data, head)
    except Unreadable:
        return None
    stopped = datagrams.reason_of(head.reason) if head.state >= datagrams.BRAKING else ""
    if head.interlock == INTERLOCK_OPEN:
        stopped = stopped or datagrams.REASONS[3]
    return ReportedState(measurement_of(state, state.command, state.auxiliary), head.heard, stopped)


def measurement_of(state: RigState, command: Array, auxiliary: Array, flags: int = 0) -> Measurement:
    head, moved, force = state.head, state.displacement, state.force
    return Measurement(
        head.counter, moved, force, command, auxiliary, flags, state.modes, head.hydraulics, head.interlock
    )
