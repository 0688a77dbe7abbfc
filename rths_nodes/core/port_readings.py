# SPDX-License-Identifier: Apache-2.0
"""Values that a port reads from its rig, during a test or outside it, without side effects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from rths_nodes.core.declarations import OfPort
from rths_nodes.core.samples import HYDRAULICS_NOT_TOLD, HYDRAULICS_OFF, INTERLOCK_OPEN, Array, Measurement

OPENED = "rig: its interlock is open: no actuator follows"
"""Reason for a stop due to an open interlock if the port reports none."""
WITHOUT_PRESSURE = "rig: its hydraulics are off: no actuator follows"


@dataclass(frozen=True)
class FarEnd:
    """Limits reported by the far end of a port, by axis ``(n_axes,)``, in m, m/s, m/s^2, N and m.

    ``error`` limits the difference between command and measured displacement; inf means no limit. Without
    commands, the far end extrapolates linearly for ``bridged`` samples and then brakes. After ``watchdog`` samples
    the session ends.
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
    """State of the far end: Measurement, number of the newest received command, and reason for a stop."""

    measured: Measurement
    newest: int
    stopped: str


class Listener(Protocol):
    """Receives the states of an open session; sends no commands.

    ``multiprocessing`` can pickle a listener, with its socket. The listener can thus outlive the driving process.
    """

    def states(self, seconds: float) -> list[ReportedState]:
        """Return the states received so far; if there are none, the next states within ``seconds``."""
        ...

    def stop(self) -> None:
        """End the session: the far end brakes and holds."""

    def close(self) -> None: ...


class Readback(Protocol):
    """Readings available after :meth:`Port.open`, with defaults for ports that lack them."""

    @property
    def active_command(self) -> Array | None:
        """Commands that the controllers follow, ``(n_axes,)`` m, in their coordinates; None if not readable.

        The first Command has to start at this position.
        """
        return None

    @property
    def hydraulics(self) -> int:
        """Pressure: HYDRAULICS_OFF, _LOW, _HIGH, or HYDRAULICS_NOT_TOLD."""
        return HYDRAULICS_NOT_TOLD

    @property
    def control_mode(self) -> bytes:
        """Control modes MODE_..., one byte per axis; empty if unknown."""
        return b""

    @property
    def heartbeat(self) -> int | None:
        """Counter that the rig monitors as a sign of life. It advances only with processed samples."""
        return None

    @property
    def build(self) -> str:
        """Identifier of the far end's build; empty if not reported."""
        return ""

    @property
    def stated(self) -> FarEnd | None:
        """Limits reported by the far end of an open port; None if not reported."""
        return None

    @property
    def ear(self) -> Listener | None:
        """Listener to the open session; None if not supported."""
        return None


def why_opened(port: Any, measured: Measurement) -> str:
    """Return the reason why the interlock of ``port`` stops the rig; empty if it does not."""
    return port.interlock or (OPENED if measured.interlock == INTERLOCK_OPEN else "")


def why_failed(port: OfPort, hydraulics: int) -> str:
    """Return the reason why the rig of ``port`` cannot continue or move, or an empty string."""
    if port.failure:
        return f"rig: {port.failure}"
    return WITHOUT_PRESSURE if hydraulics == HYDRAULICS_OFF else ""
