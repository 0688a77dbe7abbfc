# SPDX-License-Identifier: Apache-2.0
"""Handover of a port from a procedure to a run, with sensor tares and requests of the operator."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from rths_nodes.core.samples import Array, Command, Measurement


@dataclass(frozen=True)
class Tares:
    """Zero of the test in the coordinates of sensors and controller, ``(n_axes,)`` m and N.

    ``reach`` (m; inf: no bound) is the largest permitted displacement from this zero.
    """

    displacement: Array
    force: Array
    command: Array
    reach: Array

    @classmethod
    def none(cls, n_axes: int) -> Tares:
        zero = np.zeros(n_axes)
        return cls(zero, zero, zero, np.full(n_axes, np.inf))

    def rows(self) -> list[tuple[float, float, float, float]]:
        columns = (self.displacement, self.force, self.command, self.reach)
        return list(zip(*(column.tolist() for column in columns), strict=True))


@dataclass
class Relaxation:
    """Hold after ``sample``, with forces (N) and times (s, monotonic clock) at its beginning and end."""

    sample: int
    before: list[float]
    after: list[float]
    since: float
    until: float


class OperatorRequests:
    """Passes an operator's requests from another thread to the current run. The rig stage polls them."""

    def __init__(self) -> None:
        self.stop_reason = ""
        self.held = False
        self._changed = threading.Event()

    def stop(self, reason: str) -> None:
        """Request a safe stop, after which the run is held. Later reasons are ignored."""
        self.stop_reason = self.stop_reason or reason
        self._changed.set()

    def hold(self) -> None:
        """Request that the rig slow down and rest, which also stops structure time."""
        self._changed.clear()
        self.held = True

    def resume(self) -> None:
        self.held = False
        self._changed.set()

    def wait(self) -> None:
        """Wait at most 0.05 s for a request, because a run held in lockstep must also poll other sources."""
        self._changed.wait(0.05)


@dataclass
class Handover:
    """Data and callbacks that a procedure gives to the rig stage together with the port.

    ``presented`` makes an untared Measurement relative to the zero of the test. ``at_rest`` is called when a held
    rig comes to rest, and ``under_way`` when it follows the test again. ``stopping`` receives the reason for a
    stop. ``lost`` returns the reason why the rig no longer follows the test, and ``following`` the reason to stop.
    Both may be empty. ``following`` receives a Command (relative to the zero of the test), an untared Measurement,
    and True during pauses.
    """

    tares: Tares
    presented: Callable[[Measurement], Measurement]
    requests: OperatorRequests = field(default_factory=OperatorRequests)
    at_rest: Callable[[], None] = lambda: None
    under_way: Callable[[], None] = lambda: None
    stopping: Callable[[str], None] = lambda reason: None
    lost: Callable[[], str] = lambda: ""
    following: Callable[[Command, Measurement, bool], str] = lambda command, shown, paused: ""
    holds: list[Relaxation] = field(default_factory=list)

    def rest(self, sample: int, forces: Sequence[float]) -> None:
        """Record the measured ``forces`` (N) of a tick at rest after ``sample``."""
        if not self.holds or self.holds[-1].sample != sample:
            self.holds.append(Relaxation(sample, list(forces), list(forces), now := time.monotonic(), now))
            self.at_rest()
        self.holds[-1].after, self.holds[-1].until = list(forces), time.monotonic()
