# SPDX-License-Identifier: Apache-2.0
"""Listens to the session of a port ``udp``, also from a process that outlives the driving one."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass, replace

import numpy as np

from rths_nodes.core.samples import INTERLOCK_OPEN, Measurement
from rths_nodes.laboratory.ports import datagrams
from rths_nodes.laboratory.ports.datagrams import Head, Unreadable
from rths_nodes.laboratory.ports.udp_link import Ends, UdpLink

STOPS = 3
"""Datagrams sent for a stop, which is not acknowledged."""


@dataclass(frozen=True)
class HeardState:
    """A state of the far end in numbers of the port; ``heard``: its newest command, ``stopped``: why it ended."""

    measured: Measurement
    heard: int
    stopped: str


class UdpEar:
    """Receives states of the session of ``link`` and can stop it; sends no commands. ``head``: its datagrams'."""

    def __init__(self, link: UdpLink, head: Head) -> None:
        self._link, self._head = link, head

    def fileno(self) -> int:
        return self._link.socket.fileno()

    def told(self) -> tuple[Head, Ends]:
        """State for another process: see :meth:`adopted`."""
        return replace(self._head), self._link.ends

    @classmethod
    def adopted(cls, opened: socket.socket, head: Head, ends: Ends) -> UdpEar:
        """Continue a session opened by another process, with its ``opened`` socket."""
        link = UdpLink("", 0, 0)
        link.adopt(opened, head.session, ends)
        return cls(link, head)

    def states(self, seconds: float) -> list[HeardState]:
        """Return the states received so far, or else the next ones within ``seconds``."""
        end = time.monotonic() + seconds
        while True:
            found = [each for head, data in self._link.received() if (each := _heard(head, data)) is not None]
            if found or (left := end - time.monotonic()) <= 0.0:
                return found
            self._link.wait(left)

    def stop(self) -> None:
        """End the session: the far end brakes and holds."""
        for _ in range(STOPS):
            self._link.send(replace(self._head, kind=datagrams.CLOSE, counter=0, flags=0))

    def close(self) -> None:
        self._link.close()


def _heard(head: Head, data: bytes) -> HeardState | None:
    if head.kind != datagrams.STATE:
        return None
    try:
        state = datagrams.state_of(data, head)
    except Unreadable:
        return None
    stopped = (
        datagrams.REASONS.get(head.reason, f"reason {head.reason}") if head.state >= datagrams.BRAKING else ""
    )
    if head.interlock == INTERLOCK_OPEN:
        stopped = stopped or datagrams.REASONS[3]
    measured = Measurement(
        head.counter,
        state.displacement,
        state.force,
        np.array(state.command),
        state.auxiliary,
        0,
        state.modes,
        head.hydraulics,
        head.interlock,
    )
    return HeardState(measured, head.heard, stopped)
