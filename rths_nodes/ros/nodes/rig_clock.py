# SPDX-License-Identifier: Apache-2.0
"""The times of a test as the actuator node sees them: when ticks are due, and how long everything took."""

from __future__ import annotations

import numpy as np

from rths_nodes.core.data import Data
from rths_nodes.core.durations import SECOND, Durations
from rths_nodes.loop.pacing import ANSWERED, SYSTEM_CLOCK, Clock, Pacer
from rths_nodes.loop.supervision.late import LateData
from rths_nodes.loop.timing import timing

KEPT = 4096
"""Samples back to which it is known when a Measurement was sent."""


class RigClock:
    """Stamps samples and times the loop; ``pacer`` sets the ticks in real time, None in lockstep.

    ``dt`` is the servo period, s, and ``samples`` how many are expected. All times are ns of ``clock``, 0 until
    they are known: ``measured_at`` is when the last Measurement was sent, ``began_at`` when Measurement 0 was
    there, ``ended_at`` when the test was over. ``loop`` keeps how long the loop took from each Measurement to its
    Command, ``work`` how long the rig took from each tick to its Measurement.
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
        """The test begins: stamps count from here."""
        self._started_ns = self._wall_clock()

    def begin(self) -> None:
        """Measurement 0 is there."""
        self.began_at = self._now()

    def end(self) -> None:
        """The rig is at rest."""
        self.ended_at = self._now()

    @property
    def missed(self) -> int:
        """Periods by which the schedule has slipped."""
        return self.pacer.missed if self.pacer else 0

    def stamp_of_tick(self, tick: int) -> int:
        """Nominal time of a ``tick``, ns since 1970; where the rig pauses there are more of them than samples."""
        return self._started_ns + round((tick + self.missed) * self._dt * SECOND)

    def tick(self) -> None:
        """A tick begins, or the wait for it."""
        self._tick_at = self._now()

    def pause(self) -> None:
        """The tick was that of no sample: those that follow come later by it."""
        self._paused += 1

    def measured(self, sample: int) -> int:
        """Measurement ``sample`` is made, and sent now, with the stamp that is returned; it asks for a Command."""
        now = self._now()
        if sample:
            self.work.add(now - (self.pacer.began if self.pacer else self._tick_at))
        self.measured_at = self._sent_at[sample % KEPT] = now
        missed = self.pacer.missed if self.pacer else 0
        return self._started_ns + round((sample + missed + self._paused) * self._dt * SECOND)

    def answered(self, sample: int, waited: int = 0) -> None:
        """Command ``sample`` is there, in time or late, and has ``waited`` (ns) to be taken."""
        self.loop.add(self._now() - waited - self._sent_at[(sample - 1) % KEPT])

    @property
    def waited(self) -> int:
        """Time since the last Measurement was sent, ns."""
        return int(self._now() - self.measured_at)

    @property
    def deadline(self) -> int | None:
        """When the Command of the next tick is late, ns; None in lockstep."""
        return max(self.pacer.due, self.measured_at + self._answer_time) if self.pacer else None

    def durations(self) -> dict[str, Durations]:
        """Return the timed durations, by name: the loop, its work and, with a pacer, its lateness."""
        found = {"loop": self.loop, "work": self.work}
        return found | {"lateness": self.pacer.lateness} if self.pacer else found

    def summary(self, late: LateData, late_commands: int) -> Data:
        """Timing of the test, with its ``late`` periods and the count of late Commands."""
        lateness = self.pacer.lateness.seconds if self.pacer else np.empty(0)
        running = (self.ended_at - self.began_at) / SECOND if self.began_at else 0.0
        period = self._dt if self.pacer else None
        counts = {"slipped": self.pacer.slips if self.pacer else 0, "late_commands": late_commands}
        return counts | timing(running, self.loop.seconds, lateness, self.missed, late.bridged, period, late.gap)
