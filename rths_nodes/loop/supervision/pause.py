# SPDX-License-Identifier: Apache-2.0
"""Pause of the test: the rig slows down to rest, waits for a late message, and joins the motion again.

Ticks continue during a pause, samples do not. A phase follows polynomials of its elapsed fraction s:

- slow down: the speed, relative to the test, falls as 1 - 3 s^2 + 2 s^3
- wait at rest
- return: the distance to the target of the last sample falls as 1 - 10 s^3 + 15 s^4 - 6 s^5
- start: the speed rises as 3 s^2 - 2 s^3; targets are interpolated linearly between samples

The lead (command minus target) compensates the actuator's lag at full speed, and is multiplied by the relative
speed. Displacement and velocity never jump, and phases add no acceleration at their ends. Phases are long enough
to keep the acceleration within the deceleration of each axis. During the start, samples are measured within half a
sample of their targets. This is correct for a rate-independent specimen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from rths_nodes.core.limits import Limits
from rths_nodes.core.samples import FLAG_SLOWED, Array, Command
from rths_nodes.loop.supervision.bridges import SHARE, STEEPEST, BridgeParams

SHARPEST = 1.5
"""Largest slope of 3 s^2 - 2 s^3."""

BENT = 6.0
"""Largest curvature of 3 s^2 - 2 s^3."""

MOST_CURVED = 10.0 / math.sqrt(3.0)
"""Largest curvature of 1 - 10 s^3 + 15 s^4 - 6 s^5."""


class Pause:
    """Drives the rig while a Command is missing, from :meth:`begin` until ``active`` is false.

    ``allowed`` is false if the rig trips instead. ``coming`` is the Command of the next sample, or None.
    ``sampled`` is true if the last tick had a sample. ``known`` is the Command of the last sample, and ``count``
    the number of pauses. While ``held``, an operator keeps the rig at rest. Rows are ``(2, n_moved)`` m: target
    and lead of the displacement axes. The force axes keep the loads of the last sample.
    """

    known: Command

    def __init__(self, params: BridgeParams, limits: dict[str, Limits], dt: float) -> None:
        self.allowed = params.pauses
        self._dt, self._longest = dt, params.max_pause
        moved = [axis for axis in limits.values() if not axis.of_force]
        self._n_moved = len(moved)
        self._braking = np.array([axis.deceleration for axis in moved]) * dt**2
        self._fastest = np.array([axis.velocity for axis in moved]) * dt
        self.active = self.sampled = self.held = False
        self.count = 0
        self.coming: Command | None = None

    def begin(self, before: Command, last: Command) -> None:
        """Begin a pause without the next Command. ``before`` and ``last`` are the last two Commands sent.

        If the pause begins during the start phase of an earlier pause, the rig returns to the last sample of that
        phase.
        """
        if not self.active:
            self.known, self.coming = last, None
        self.active = True
        self._starts = self._rests = False
        self._waited = 0
        self._motion = self._phases(self._rows(before), self._rows(last))
        self.count += 1

    @property
    def rests(self) -> bool:
        return self.active and self.held and self._rests

    @property
    def can_be_held(self) -> bool:
        """False if the rig already slows down, rests or returns."""
        return not self.active or self._starts

    def supply(self, command: Command, apart: Array | float = 0.0) -> None:
        """Receive the next Command. Its target still differs from the real target by ``apart`` (m)."""
        self.coming, self._apart, self._waited = command, apart, 0

    @property
    def needs_command(self) -> bool:
        """True if the next tick requires the next Command and this Command is missing."""
        return self._starts and self.coming is None and self._ahead(self._tick + 1) > self._samples

    @property
    def continues(self) -> bool:
        return self.active and not self.needs_command

    @property
    def breach(self) -> str:
        waited = self._waited * self._dt
        if self.coming is not None or waited <= self._longest:
            return ""
        return f"bridge.max_pause: nothing to follow for {waited:.3g} s: must be <= {self._longest:g} s"

    def command(self, sample: int) -> Command:
        self.sampled = False
        if self.coming is None and not self.held:
            self._waited += 1
        target, lead = next(self._motion)
        command = self.known if self.coming is None else self.coming
        if self.sampled:
            self._passed = self.known
            self.known, self.coming = command, None
        load, n = self.known, self._n_moved
        targets = np.concatenate((target, load.target[n:]))
        commands = np.concatenate((target + lead, load.command[n:]))
        return Command(
            sample, targets, commands, command.auxiliary, command.flags | FLAG_SLOWED, load.control_mode
        )

    def _phases(self, before: Array, last: Array) -> Iterator[Array]:
        """Yield the rows of each tick. ``before`` and ``last`` are the rows of the last two Commands sent."""
        change = last - before
        ticks = math.ceil(self._needed(last[1], change))
        for tick in range(1, ticks + 1):
            yield _travelled(last, change, tick / ticks, ticks)
        last, self._rests = _travelled(last, change, 1.0, ticks), True
        while self.coming is None or self.held:
            yield last
        away, self._rests = last[0] - self._rows(self.known)[0], False
        far = np.abs(away)
        quick, gentle = STEEPEST * far / self._fastest, np.sqrt(MOST_CURVED * far / self._braking)
        ticks = math.ceil(np.maximum(quick, gentle).max())
        for tick in range(1, ticks + 1):
            s, self._rests = tick / ticks, tick == ticks
            left = 1.0 - 10.0 * s**3 + 15.0 * s**4 - 6.0 * s**5
            yield np.array((self._rows(self.known)[0] + left * away, last[1]))
        while self.held:
            yield np.array((self._rows(self.known)[0], last[1]))  # type: ignore[unreachable]  # set during a yield
        assert self.coming is not None
        coming = self._rows(self.coming)
        # an even number, so that the phase ends with a sample
        self._ticks = 2 * math.ceil(0.5 * self._needed(coming[1] + self._apart, coming - self._rows(self.known)))
        self._tick = self._samples = 0
        self._starts, self._rests = True, False
        while self.active:
            self._tick += 1
            ahead, behind = self._ahead(self._tick), self._samples
            if ahead <= behind or self.coming is None:  # just before the last sample, which was taken early
                behind, one, other = behind - 1, self._rows(self._passed), self._rows(self.known)
            else:
                one, other = self._rows(self.known), self._rows(self.coming)
                self.sampled = ahead >= behind + 0.5
                self._samples += self.sampled
            self.active = self._tick < self._ticks
            rows: Array = one + (ahead - behind) * (other - one)
            if self.active:
                rows[1] *= _rate(self._tick / self._ticks)
            yield rows

    def _ahead(self, tick: int) -> float:
        if tick >= self._ticks:
            return max(0.5 * self._ticks, 1.0)
        s = tick / self._ticks
        return self._ticks * (s**3 - 0.5 * s**4)

    def _needed(self, lead: Array, change: Array) -> float:
        """Return the number of ticks in which the motion slows down to rest or starts from rest.

        ``lead`` l is the command minus the target. ``change`` contains the changes of target v and lead w per
        sample. The result is the smallest M for which (SHARPEST v + BENT w) / M + BENT l / M^2 is at most the
        deceleration. The velocity of the lead remains within SHARE of its limit.
        """
        steady = SHARPEST * np.abs(change[0]) + BENT * np.abs(change[1])
        gentle = (steady + np.sqrt(steady**2 + 4.0 * BENT * np.abs(lead) * self._braking)) / (2.0 * self._braking)
        quick = SHARPEST * np.abs(lead) / (SHARE * self._fastest)
        needed = float(np.maximum(gentle, quick).max())
        # the limits trip on NaN, which must not become a length
        return needed if math.isfinite(needed) else 0.0

    def _rows(self, command: Command) -> Array:
        target = command.target[: self._n_moved]
        return np.array((target, command.command[: self._n_moved] - target))


def _travelled(last: Array, change: Array, s: float, ticks: int) -> Array:
    rows: Array = last + ticks * (s - s**3 + 0.5 * s**4) * change
    rows[1] *= 1.0 - _rate(s)
    return rows


def _rate(s: float) -> float:
    return s * s * (3.0 - 2.0 * s)
