# SPDX-License-Identifier: Apache-2.0
"""Sensors of a watcher: *state* datagrams from the watcher's own data acquisition system.

This module sends nothing, so that a watcher cannot move the rig.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator, Sequence

from rths_nodes.core.errors import ConfigError
from rths_nodes.laboratory.calibration import Channel
from rths_nodes.laboratory.ports import datagrams
from rths_nodes.laboratory.ports.datagrams import Unreadable
from rths_nodes.laboratory.ports.session import MOST_AT_ONCE

Shown = tuple[int, tuple[float, ...], tuple[float, ...]]
"""Counter of a sample, and displacements (m) and forces (N) of the axes."""
FOREIGN, GARBAGE = "foreign", "garbage"


class OwnSensors:
    """Receives state datagrams from ``address`` at the local ``port``.

    The first valid datagram determines the session and the sender's port. ``channels`` holds the displacement and
    the force channel of each axis. Raises ConfigError if the host name is unknown or the port cannot be opened.
    """

    def __init__(self, address: str, port: int, channels: Sequence[tuple[Channel, Channel]]) -> None:
        self.counts: Counter[str] = Counter({FOREIGN: 0, GARBAGE: 0})
        self._gains = [(one.gain, other.gain) for one, other in channels]
        self._session, self._far_port = 0, 0
        try:
            self._address = socket.gethostbyname(address)
        except OSError as error:
            raise ConfigError(
                f"watch.sensors.address = {address!r}: unknown host name ({error.strerror})"
            ) from error
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        try:
            self._socket.bind(("", port))
        except OSError as error:
            self._socket.close()
            problem = error.strerror or error
            raise ConfigError(f"watch.sensors.port = {port}: cannot be opened ({problem})") from error

    def fileno(self) -> int:
        return self._socket.fileno()

    def received(self) -> Iterator[Shown]:
        """Yield the received samples, and count invalid datagrams. A call reads at most MOST_AT_ONCE datagrams."""
        for _ in range(MOST_AT_ONCE):
            try:
                data, sender = self._socket.recvfrom(2 * datagrams.LARGEST)
            except BlockingIOError:
                return
            if sender[0] != self._address or sender[1] != (self._far_port or sender[1]):
                self.counts[FOREIGN] += 1
                continue
            try:
                head = datagrams.head_of(data)
                if head.kind != datagrams.STATE or head.axes != len(self._gains) or not head.session:
                    raise Unreadable("the datagram is not a state of these axes")
                state = datagrams.state_of(data, head)
            except Unreadable:
                self.counts[GARBAGE] += 1
                continue
            self._session = self._session or head.session
            if head.session != self._session:
                self.counts[FOREIGN] += 1
                continue
            self._far_port = sender[1]
            pairs = list(zip(self._gains, state.displacement.tolist(), state.force.tolist(), strict=True))
            yield head.counter, tuple(g[0] * x for g, x, _ in pairs), tuple(g[1] * f for g, _, f in pairs)

    def close(self) -> None:
        self._socket.close()


def shown(session: int, counter: int, rows: Sequence[tuple[float, float]]) -> bytes:
    head = datagrams.Head(datagrams.STATE, len(rows), session, counter, state=datagrams.RUNNING)
    return datagrams.packed(head, b"".join(datagrams.STATE_ROW.pack(*row, 0.0, 0, 0) for row in rows))
