# SPDX-License-Identifier: Apache-2.0
"""Safe policies: what drives the rig when no Command may. The safe stop is the first of them.

The software stop is not a safety function: a rig needs its own interlocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

from rths_nodes.core.braking import (
    braked_together,
    braking_way,
    changes_of_step,
    samples_to_rest,
    samples_within,
    way_left,
)
from rths_nodes.core.limits import Limits
from rths_nodes.core.rounding import ROUNDING
from rths_nodes.core.samples import MODE_FORCE, Array, Measurement
from rths_nodes.loop.supervision.handover import Tares


def braking_time(limits: Iterable[Limits]) -> float:
    """Longest time, s, in which axes with ``limits`` that stop together come to rest."""
    return max(each.velocity / each.deceleration for each in limits)


def excess_travel(limits: Limits, max_bridge: float, sharpest: float = 1.0, time: float = 0.0) -> float:
    """Return how far an axis' command goes on, m, from the last sample that has all it needs until it stands.

    At most it moves at the velocity limit for ``max_bridge`` s, then slows down with the deceleration of the safe
    stop, which is ``sharpest`` times that of the mean; with others it takes ``time`` s, where that is longer. The
    actuator goes by as much more as it is behind its command at that sample.
    """
    braking = 0.5 * sharpest * limits.velocity * max(time, braking_time([limits]))
    return min(limits.velocity * max_bridge + braking, 2.0 * limits.stroke)


class SafePolicy(Protocol):
    """Drives the rig from the moment on at which no Command may be sent any more, until it is at rest.

    It has no limits above it: what it commands is sent as it is.
    """

    def begin(self, before: Array, last: Array) -> None:
        """Take over. ``before`` and ``last`` are the last two commands that were sent, ``(n_axes,)`` m."""
        ...

    samples: int
    """Samples of the whole stop, once it has begun."""

    @property
    def goal(self) -> Array:
        """Where the commands come to rest, ``(n_axes,)`` m."""
        ...

    def step(self, measured: Measurement) -> Array:
        """The command of the next sample ``(n_axes,)`` m, after ``measured``; a new array, which may be kept."""
        ...

    @property
    def at_rest(self) -> bool:
        """True when the rig is safe and stays where it is."""
        ...


class SafeStop:
    """Axes go on with their velocities, slow down, those of one group in a common time, and hold.

    The time of a group is the longest that an axis of it needs at its deceleration, so that it stays on the
    straight line on which it moves (``core/braking.py``). ``groups`` has a number by axis; empty: each axis stops
    by itself. Commands count from the zero of the test, which ``tares`` tell.

    From a state that has passed the limits no axis is braked harder than its deceleration, nor leaves its stroke.
    From another one, as a foreign driver may leave it, a group brakes as hard as it must to end at the stroke; an
    axis that is beyond its stroke already goes no further outwards.
    """

    def __init__(
        self, limits: dict[str, Limits], dt: float, tares: Tares | None = None, groups: Sequence[int] = ()
    ) -> None:
        each = limits.values()
        self._zeros = (tares or Tares.none(len(limits))).command.tolist()
        self._strokes = [lim.stroke for lim in each]
        self._fastest = [lim.velocity * dt for lim in each]
        self._changes = changes_of_step(each, dt)
        self._groups = braked_together(each, groups)
        at_zero = np.zeros(len(limits))
        self._samples = [0] * len(limits)
        self.begin(at_zero, at_zero)

    def begin(self, before: Array, last: Array) -> None:
        """The stop begins at the last command, with the velocity of the last two, within the limits."""
        self._start, self._done = last.tolist(), 0
        rows = zip(self._start, self._strokes, self._zeros, strict=True)
        self._ends = [(min(-far - zero, start), max(far - zero, start)) for start, far, zero in rows]
        steps = (last - before).tolist()
        self._steps = [max(-cap, min(cap, step)) for step, cap in zip(steps, self._fastest, strict=True)]
        for group in self._groups:
            samples = self._samples_of(group)
            for axis in group:
                self._samples[axis] = samples
        self.samples = max(self._samples)

    def _samples_of(self, group: Sequence[int]) -> int:
        steps = [self._steps[axis] for axis in group]
        needed = samples_to_rest(steps, [self._changes[axis] for axis in group])
        for axis, step in zip(group, steps, strict=True):
            stroke = self._strokes[axis]
            left = way_left(self._start[axis] + self._zeros[axis], step, stroke)
            if braking_way(step, needed) > left + ROUNDING * stroke:
                needed = samples_within(step, left)
        return needed

    @property
    def at_rest(self) -> bool:
        return self._done >= self.samples

    def step(self, measured: Measurement) -> Array:
        self._done += 1
        return self._after(self._done)

    @property
    def goal(self) -> Array:
        return self._after(self.samples)

    def _after(self, done: int) -> Array:
        rows = zip(self._start, self._steps, self._samples, self._ends, strict=True)
        return np.array(
            [
                max(low, min(high, start + step * _braked(done, samples)))
                for start, step, samples, (low, high) in rows
            ]
        )


def _braked(done: int, samples: int) -> float:
    """Way after ``done`` samples of a stop of ``samples``, in steps of its beginning."""
    m = min(done, samples)
    return m - 0.5 * m * (m + 1) / samples if m else 0.0


def held_places(
    commands: tuple[Array, Array], modes: tuple[bytes, bytes], n_moved: int, measured: Measurement
) -> tuple[Array, Array]:
    """The last two ``commands`` ``(n_axes,)``, in m, where the axes behind ``n_moved`` may have had them in N.

    ``modes`` are those of both. In place of N stands where the axis is: there it is held from now on, without
    velocity. Its force loop ends where it has led the axis to, whatever number says so (``ForceAxis.hold``).
    """
    before, last = commands
    for axis in range(n_moved, len(last)):
        then, now = (bool(each) and each[axis] == MODE_FORCE for each in modes)
        if now:
            place = float(measured.displacement[axis])
            last[axis] = place if math.isfinite(place) else 0.0
        if then or now:
            before[axis] = last[axis]
    return before, last
