# SPDX-License-Identifier: Apache-2.0
"""Safe stop, which drives the rig when no Command may.

The software stop is not a safety function: a rig needs its own interlocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

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
    """Return how far an axis' command moves on, m, from the last sample with all its data to rest.

    At most ``max_bridge`` s at the velocity limit, then deceleration of the safe stop, ``sharpest`` times its
    mean; with other axes it takes ``time`` s if that is longer. The actuator moves further by its lag at that
    sample.
    """
    braking = 0.5 * sharpest * limits.velocity * max(time, braking_time([limits]))
    return min(limits.velocity * max_bridge + braking, 2.0 * limits.stroke)


class SafeStop:
    """Slows axes down from their velocities, each group in a common time, and holds.

    The time of a group is the longest that one of its axes needs, so that it stays on its straight line
    (``core/braking.py``). ``groups`` has a number by axis; empty: each axis stops by itself. Commands count from
    the zero of the test (``tares``).

    From a state within the limits no axis exceeds its deceleration or leaves its stroke. From another one, e.g.
    after a foreign driver, a group brakes as hard as necessary to end at the stroke; an axis beyond its stroke
    moves no further outwards. No limits apply to its commands.
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
        """Begin the stop at the ``last`` sent command ``(n_axes,)`` m, with the velocity of the last two."""
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

    def step(self) -> Array:
        """Return the command of the next sample ``(n_axes,)`` m, as a new array."""
        self._done += 1
        return self._after(self._done)

    @property
    def goal(self) -> Array:
        """Final commands, ``(n_axes,)`` m."""
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
    """Return the travel after ``done`` samples of a stop of ``samples``, in initial steps."""
    m = min(done, samples)
    return m - 0.5 * m * (m + 1) / samples if m else 0.0


def held_places(
    commands: tuple[Array, Array], modes: tuple[bytes, bytes], n_moved: int, measured: Measurement
) -> tuple[Array, Array]:
    """Return the last two ``commands`` ``(n_axes,)`` in m, where axes after ``n_moved`` may have had N.

    ``modes`` of both. N are replaced by the position of the axis, where it is held, without velocity. Its force
    loop ends where it has led the axis, whatever number says so (``ForceAxis.hold``).
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
