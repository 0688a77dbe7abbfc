# SPDX-License-Identifier: Apache-2.0
"""Times of a test in the actuator node, due ticks and durations; the context that its parts share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rths_nodes.core.data import Data
from rths_nodes.core.durations import SECOND, Durations
from rths_nodes.loop.pacing import ANSWERED, SYSTEM_CLOCK, Clock, Pacer
from rths_nodes.loop.stages.rig import RigStage
from rths_nodes.loop.supervision.bridges import LateData
from rths_nodes.loop.timing import timing
from rths_nodes.ros.nodes.phase import PhaseMachine
from rths_nodes.ros.nodes.shutdown import Shutdown
from rths_nodes.ros.transport.topics import NodeTopics

KEPT = 4096
"""Samples whose time of sending is stored."""


class RigClock:
    """Stamps samples and times the loop; ``pacer`` sets the ticks in real time, None in lockstep.

    ``dt`` is the servo period, s, ``samples`` the expected number. Times are ns of ``clock``, 0 while unknown:
    ``measured_at`` of the last Measurement, ``began_at`` of Measurement 0, ``ended_at`` of the end. ``loop`` holds
    durations from Measurement to Command, ``work`` from tick to Measurement.
    """

    def __init__(self, dt: float, samples: int, pacer: Pacer | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        self.pacer = pacer
        self.loop, self.work = Durations(samples), Durations(samples)
        self.measured_at = self.began_at = self.ended_at = 0
        self._sent_at = [0] * KEPT
        self._paused = 0
        self._dt = dt
        self._answer_time = round(ANSWERED * dt * SECOND)
        self._started_ns = self._tick_at = 0
        self._now = clock.monotonic_ns
        self._wall_clock = clock.time_ns

    def start(self) -> None:
        self._started_ns = self._wall_clock()

    def begin(self) -> None:
        self.began_at = self._now()

    def end(self) -> None:
        self.ended_at = self._now()

    @property
    def missed(self) -> int:
        return self.pacer.missed if self.pacer else 0

    def stamp_of_tick(self, tick: int) -> int:
        """Nominal time of a ``tick``, ns since 1970; pauses have ticks without samples."""
        return self._started_ns + round((tick + self.missed) * self._dt * SECOND)

    def tick(self) -> None:
        """Begin a tick, or the wait for it."""
        self._tick_at = self._now()

    def pause(self) -> None:
        self._paused += 1

    def measured(self, sample: int) -> int:
        """Return the stamp of Measurement ``sample``, sent now."""
        now = self._now()
        if sample:
            self.work.add(now - (self.pacer.began if self.pacer else self._tick_at))
        self.measured_at = self._sent_at[sample % KEPT] = now
        missed = self.pacer.missed if self.pacer else 0
        return self._started_ns + round((sample + missed + self._paused) * self._dt * SECOND)

    def answered(self, sample: int, waited: int = 0) -> None:
        """Time Command ``sample``, which has ``waited`` (ns) to be taken."""
        self.loop.add(self._now() - waited - self._sent_at[(sample - 1) % KEPT])

    @property
    def waited(self) -> int:
        """Time since the last Measurement was sent, ns."""
        return int(self._now() - self.measured_at)

    @property
    def deadline(self) -> int | None:
        """Time at which the Command of the next tick is late, ns; None in lockstep."""
        return max(self.pacer.due, self.measured_at + self._answer_time) if self.pacer else None

    def durations(self) -> dict[str, Durations]:
        durations = {"loop": self.loop, "work": self.work}
        return durations | {"lateness": self.pacer.lateness} if self.pacer else durations

    def summary(self, late: LateData, late_commands: int) -> Data:
        """Return the timing of the test, with ``late`` periods and the count of late Commands."""
        lateness = self.pacer.lateness.seconds if self.pacer else np.empty(0)
        running = (self.ended_at - self.began_at) / SECOND if self.began_at else 0.0
        period = self._dt if self.pacer else None
        counts = {"slipped": self.pacer.slips if self.pacer else 0, "late_commands": late_commands}
        return counts | timing(running, self.loop.seconds, lateness, self.missed, late.bridged, period, late.gap)


@dataclass(frozen=True)
class RigContext:
    """Rig, times and common parts of the actuator node, from one configuration on."""

    rig: RigStage
    times: RigClock
    topics: NodeTopics
    shutdown: Shutdown
    phase: PhaseMachine
    clock: Clock = SYSTEM_CLOCK
