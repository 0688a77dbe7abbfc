# SPDX-License-Identifier: Apache-2.0
"""The clock that everything which needs the time is given, and pacing on absolute times."""

from __future__ import annotations

import time
from typing import Protocol

from rths_nodes.core.durations import Durations


class Clock(Protocol):
    """Clock that tells the time, and waits: the module ``time``, or one that a test sets."""

    def monotonic_ns(self) -> int:
        """Time since some moment, ns; it is never set back."""
        ...

    def time_ns(self) -> int:
        """Time of day, ns since the epoch."""
        ...

    def sleep(self, seconds: float, /) -> None:
        """Wait, s."""
        ...


SYSTEM_CLOCK: Clock = time
"""The clock of this machine: its functions are called directly, so it costs no more than the module itself."""

ANSWERED = 0.8
"""The share of a sample that the loop has for a Command at least, also where a Measurement was late. Less than
one, so that bridging does not make the schedule slip."""

BUSY_WAIT_NS = 150_000
"""The pacer waits actively for the end of a sleep: the scheduler wakes a process up to this late."""


REST_PERCENT = 8
"""Share of its time that a loop sleeps: the kernel suspends a process that takes more than 95 % of a second under
real-time scheduling for the other 50 ms, and other processes need the processor, too."""
CREDIT_NS, DEBT_NS = 10_000_000, 500_000
"""Sleep that counts ahead, and sleep that the loop may owe before it sleeps even when it is late."""


class Pacer:
    """Ticks at absolute times of the monotonic clock; a missed tick slips the schedule by whole periods.

    ``lateness`` keeps how late each tick began; ``ticks`` is how many are expected. ``missed`` counts the periods,
    ``slips`` the ticks before which some were missed; ``began`` is when the last tick began, ns; ``period`` in ns.
    """

    def __init__(self, period: float, ticks: int, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock, self._now = clock, clock.monotonic_ns
        self.period = round(period * 1e9)
        self.due = self.began = 0
        self.missed = self.slips = 0
        self._owed = self._looked = 0
        self.lateness = Durations(ticks)

    def start(self) -> None:
        """The first tick is one period from now."""
        self._looked = self._now()
        self._owed = -CREDIT_NS
        self.due = self._looked + self.period

    @property
    def slack(self) -> int:
        """Time to the next tick, ns; negative when it is over."""
        return self.due - self._now()

    def __call__(self) -> int:
        """Wait for the tick; the number of periods by which it was missed."""
        now = self._now()
        self._owed += (now - self._looked) * REST_PERCENT // 100
        ahead = self.due - now
        # a loop that owes sleep sleeps to the end, and is late by the time that waking up takes
        rest = ahead - BUSY_WAIT_NS if self._owed <= 0 else ahead if self._owed < DEBT_NS else self._owed
        if rest > 0:
            self._clock.sleep(rest * 1e-9)
            self._owed = max(self._owed - (self._now() - now), -CREDIT_NS)
        self._looked = now
        now = self._now()
        while now < self.due:
            now = self._now()
        late = now - self.due
        self.lateness.add(late)
        slipped = late // self.period
        self.missed += slipped
        self.slips += slipped > 0
        self.began = now
        self.due += (1 + slipped) * self.period
        return slipped


SETTLING = 16
"""One part in so many of what a tick comes late is taken over into the expectation: most of it is the way."""


class FollowedTicks(Pacer):
    """Ticks that a rig gives: called once for each, when its Measurement is taken; it never waits.

    ``due`` is when the Command that answers has to be on its way, with ``transport`` samples until it acts.
    """

    def __init__(self, period: float, ticks: int, transport: int, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(period, ticks, clock)
        self._ahead = max(transport - 1, 0) * self.period
        self._expected = 0

    def start(self) -> None:
        self._tick(self._now())

    def __call__(self) -> int:
        now = self._now()
        self.lateness.add(max(now - self._expected, 0))
        self._tick(now)
        return 0

    def _tick(self, now: int) -> None:
        late = now - self._expected
        known = 0 < late < self.period
        self.began, self.due = now, now + self._ahead
        self._expected = (self._expected + late // SETTLING if known else now) + self.period

    @property
    def slack(self) -> int:
        return self._expected - self._now()


def pacer_of(period: float, ticks: int, transport: int | None, clock: Clock = SYSTEM_CLOCK) -> Pacer:
    """Return what sets the ticks in real time: a rig with so many samples of ``transport``, or None: the clock."""
    return Pacer(period, ticks, clock) if transport is None else FollowedTicks(period, ticks, transport, clock)
