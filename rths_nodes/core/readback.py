# SPDX-License-Identifier: Apache-2.0
"""Values that a port reads back from its rig, whether the test runs or not; reading changes nothing there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from rths_nodes.core.declarations import OfPort
from rths_nodes.core.samples import HYDRAULICS_NOT_TOLD, HYDRAULICS_OFF, INTERLOCK_OPEN, Array, Measurement

OPENED = "rig: its interlock is open: no actuator follows"
"""Why a rig with an open interlock stops, where its port has no better words."""
WITHOUT_PRESSURE = "rig: its hydraulics are off: no actuator follows"


@dataclass(frozen=True)
class FarEnd:
    """Statement of the far end of a port on itself: limits of each axis ``(n_axes,)``, m, m/s, m/s^2, N and m.

    ``error`` is of command less measured displacement; inf where there is no limit. It goes on along the slope for
    ``bridged`` samples without a command, then it brakes; after ``watchdog`` samples the session is over.
    """

    stroke: Array
    velocity: Array
    deceleration: Array
    force: Array
    error: Array
    bridged: int
    watchdog: int


class Readback(Protocol):
    """From :meth:`Port.open` on. A port that has not all of it has these values in their place.

    A class that inherits from this one needs no line for what it cannot read.
    """

    @property
    def active_command(self) -> Array | None:
        """Commands that the controllers follow, ``(n_axes,)`` m, in their own coordinates; None: not readable.

        From there the first Command has to set out.
        """
        return None

    @property
    def hydraulics(self) -> int:
        """HYDRAULICS_OFF, _LOW or _HIGH."""
        return HYDRAULICS_NOT_TOLD

    @property
    def control_mode(self) -> bytes:
        """MODE_..., a byte per axis; empty where it is not told."""
        return b""

    @property
    def heartbeat(self) -> int | None:
        """The counter by which the rig sees that we live; it goes on with processed samples only."""
        return None

    @property
    def build(self) -> str:
        """The code that runs at the far end, as it reports it; empty where it does not tell, or there is none."""
        return ""

    @property
    def stated(self) -> FarEnd | None:
        """Limits that the far end states of itself, once it is open; None where it does not tell."""
        return None

    @property
    def ear(self) -> Any:
        """Hears the open session beside the port (``laboratory/ports/udp_ear.py``); None where nobody can."""
        return None


def why_opened(port: Any, measured: Measurement) -> str:
    """Why the rig behind ``port`` does not follow, by its interlock, in words; empty where that is closed."""
    return port.interlock or (OPENED if measured.interlock == INTERLOCK_OPEN else "")


def why_failed(port: OfPort, hydraulics: int) -> str:
    """Why the rig behind ``port`` cannot go on, or cannot move, in words; empty where it can."""
    if port.failure:
        return f"rig: {port.failure}"
    return WITHOUT_PRESSURE if hydraulics == HYDRAULICS_OFF else ""
