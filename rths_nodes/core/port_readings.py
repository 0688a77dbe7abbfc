# SPDX-License-Identifier: Apache-2.0
"""Values that a port reads from its rig, during a test or outside it, without side effects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from rths_nodes.core.declarations import OfPort
from rths_nodes.core.samples import HYDRAULICS_NOT_TOLD, HYDRAULICS_OFF, INTERLOCK_OPEN, Array, Measurement

OPENED = "rig: its interlock is open: no actuator follows"
WITHOUT_PRESSURE = "rig: its hydraulics are off: no actuator follows"


@dataclass(frozen=True)
class FarEnd:
    """Holds the limits reported by the far end of a port. Arrays have one value per axis.

    Stroke is in m, velocity in m/s, deceleration in m/s^2, and force in N. ``error`` (m) limits the difference
    between command and measured displacement; inf means no limit. Without commands, the far end extrapolates for
    ``bridged`` samples and then brakes. After ``watchdog`` samples without commands the session ends.
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
    """Holds a Measurement of the far end, the number of the newest received command, and the reason for a stop."""

    measured: Measurement
    newest: int
    stopped: str


class Listener(Protocol):
    """Receives the states of an open session; sends no commands.

    ``multiprocessing`` can pickle a listener with its socket, so that it can outlive the driving process.
    """

    def states(self, seconds: float) -> list[ReportedState]:
        """Return the states received since the last call; if there are none, wait up to ``seconds``."""
        ...

    def stop(self) -> None:
        """End the session: the far end brakes and holds."""

    def close(self) -> None: ...


class Readback(Protocol):
    """Declares readings of an open port, with defaults for ports that lack them."""

    @property
    def active_command(self) -> Array | None:
        """Commands ``(n_axes,)`` m that the controllers follow, in controller coordinates; None if not readable.

        The first Command must start at these displacements.
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
        """Heartbeat counter, which the rig monitors. The counter advances only with processed samples."""
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
    """Return the reason why the rig of ``port`` cannot continue or move; empty if it can."""
    if port.failure:
        return f"rig: {port.failure}"
    return WITHOUT_PRESSURE if hydraulics == HYDRAULICS_OFF else ""
