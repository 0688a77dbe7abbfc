# SPDX-License-Identifier: Apache-2.0
"""Values that a port reads from its rig, in a test or not, without side effects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from rths_nodes.core.declarations import OfPort
from rths_nodes.core.samples import HYDRAULICS_NOT_TOLD, HYDRAULICS_OFF, INTERLOCK_OPEN, Array, Measurement

OPENED = "rig: its interlock is open: no actuator follows"
"""Reason of a stop with an open interlock, if the port gives none."""
WITHOUT_PRESSURE = "rig: its hydraulics are off: no actuator follows"


@dataclass(frozen=True)
class FarEnd:
    """Limits stated by the far end of a port, by axis ``(n_axes,)``, m, m/s, m/s^2, N and m.

    ``error`` is command minus measured displacement; inf without a limit. It continues along the slope for
    ``bridged`` samples without a command, then brakes; after ``watchdog`` samples the session ends.
    """

    stroke: Array
    velocity: Array
    deceleration: Array
    force: Array
    error: Array
    bridged: int
    watchdog: int


@dataclass(frozen=True)
class ReportedState:
    """A state of the far end in numbers of the port, its newest received command, and the reason of a stop."""

    measured: Measurement
    newest: int
    stopped: str


class Listener(Protocol):
    """Receives the states of an open session; sends no commands.

    ``multiprocessing`` can pickle it, with its socket, so that it outlives the driving process.
    """

    def states(self, seconds: float) -> list[ReportedState]:
        """Return the states received so far, or else the next ones within ``seconds``."""
        ...

    def stop(self) -> None:
        """End the session: the far end brakes and holds."""

    def close(self) -> None: ...


class Readback(Protocol):
    """Readings from :meth:`Port.open` on, with defaults for ports that lack them."""

    @property
    def active_command(self) -> Array | None:
        """Commands that the controllers follow, ``(n_axes,)`` m, in their own coordinates; None: not readable.

        The first Command has to start there.
        """
        return None

    @property
    def hydraulics(self) -> int:
        """HYDRAULICS_OFF, _LOW or _HIGH."""
        return HYDRAULICS_NOT_TOLD

    @property
    def control_mode(self) -> bytes:
        """MODE_..., a byte per axis; empty if unknown."""
        return b""

    @property
    def heartbeat(self) -> int | None:
        """Counter that shows the rig that we are alive; it advances with processed samples only."""
        return None

    @property
    def build(self) -> str:
        """Code at the far end, as reported, or empty."""
        return ""

    @property
    def stated(self) -> FarEnd | None:
        """Limits stated by the far end, once open, or None."""
        return None

    @property
    def ear(self) -> Listener | None:
        """Listener to the open session, or None."""
        return None


def why_opened(port: Any, measured: Measurement) -> str:
    """Return why the rig of ``port`` does not follow, by its interlock, or empty."""
    return port.interlock or (OPENED if measured.interlock == INTERLOCK_OPEN else "")


def why_failed(port: OfPort, hydraulics: int) -> str:
    """Return why the rig of ``port`` cannot continue, or cannot move, or empty."""
    if port.failure:
        return f"rig: {port.failure}"
    return WITHOUT_PRESSURE if hydraulics == HYDRAULICS_OFF else ""
