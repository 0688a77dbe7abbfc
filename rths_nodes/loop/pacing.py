# SPDX-License-Identifier: Apache-2.0
"""Pacing of a test: clock interface, and ticks at absolute times."""

from __future__ import annotations

import time
from typing import Protocol

from rths_nodes.core.durations import Durations


class Clock(Protocol):
    def monotonic_ns(self) -> int: ...

    def time_ns(self) -> int: ...

    def sleep(self, seconds: float, /) -> None: ...


SYSTEM_CLOCK: Clock = time

ANSWERED = 0.8
"""Shortest wait for a Command after a Measurement, as a fraction of a sample. It applies even if the Measurement
is late. It is below 1, so that bridging does not delay the schedule."""

BUSY_WAIT_NS = 150_000
"""Duration of the busy wait before a tick, ns. The scheduler can delay a wake-up by this time."""


REST_PERCENT = 8
"""Smallest percentage of time for which a loop sleeps. The kernel suspends a real-time process that uses more than
95 % of a second."""
CREDIT_NS, DEBT_NS = 10_000_000, 500_000
"""``CREDIT_NS``: largest excess of sleep that counts towards REST_PERCENT, ns. ``DEBT_NS``: deficit of sleep at
which the loop sleeps even if this delays the next tick, ns."""


class Pacer:
    """Waits for ticks at absolute times of the monotonic clock.

    A missed tick delays the schedule by whole periods. ``missed`` counts the missed periods, and
    ``slips`` counts the ticks that came after missed periods. ``began`` (ns) is the time of the last tick.
    """

    def __init__(self, period: float, ticks: int, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock, self._now = clock, clock.monotonic_ns
        self.period = round(period * 1e9)
        self.due = self.began = 0
        self.missed = self.slips = 0
        self._owed = self._looked = 0
        self.lateness = Durations(ticks)

    def start(self) -> None:
        self._looked = self._now()
        self._owed = -CREDIT_NS
        self.due = self._looked + self.period

    @property
    def slack(self) -> int:
        """Time to the next tick, ns (negative if the tick has passed)."""
        return self.due - self._now()

    def __call__(self) -> int:
        """Wait for the next tick. Return the number of missed periods."""
        now = self._now()
        self._owed += (now - self._looked) * REST_PERCENT // 100
        ahead = self.due - now
        # after too little sleep, do not wake early for a busy wait, even if this delays the tick
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
"""Filter constant: a late tick delays the next expected tick by 1/SETTLING of its lateness, because most of the
lateness is transport delay."""


class FollowedTicks(Pacer):
    """Records ticks that a rig generates. A call after each received Measurement records a tick and never waits.

    ``due`` is the deadline of the Command that takes effect ``transport`` samples after the Measurement.
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
        is_late = 0 < late < self.period
        self.began, self.due = now, now + self._ahead
        self._expected = (self._expected + late // SETTLING if is_late else now) + self.period

    @property
    def slack(self) -> int:
        return self._expected - self._now()


def pacer_of(period: float, ticks: int, transport: int | None, clock: Clock = SYSTEM_CLOCK) -> Pacer:
    return Pacer(period, ticks, clock) if transport is None else FollowedTicks(period, ticks, transport, clock)
