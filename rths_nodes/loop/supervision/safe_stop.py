# SPDX-License-Identifier: Apache-2.0
"""Safe stop: brings the rig to rest when Commands of the test may no longer drive it.

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
    full_samples,
    samples_within,
    way_left,
)
from rths_nodes.core.limits import Limits
from rths_nodes.core.samples import MODE_FORCE, ROUNDING, Array, Measurement
from rths_nodes.loop.supervision.handover import Tares


def braking_time(limits: Iterable[Limits]) -> float:
    """Return the longest time (s) that axes with ``limits`` need to come to rest together."""
    return max(limit.velocity / limit.deceleration for limit in limits)


def excess_travel(limits: Limits, max_bridge: float, sharpest: float = 1.0, time: float = 0.0) -> float:
    """Return the largest travel (m) of the command of an axis from the last complete sample to rest.

    The command moves for at most ``max_bridge`` s at the velocity limit. Then it decelerates for at least ``time``
    s, because other axes may stop with it. The largest deceleration is ``sharpest`` times the mean. The actuator
    moves further than its command by its lag.
    """
    braking = 0.5 * sharpest * limits.velocity * max(time, braking_time([limits]))
    return min(limits.velocity * max_bridge + braking, 2.0 * limits.stroke)


Floats = list[float] | Array


class SafeStop:
    """Decelerates the axes of each group to rest in a common time, and then holds them.

    A group therefore stays on a straight line (``core/braking.py``). ``groups`` contains the group number of each
    axis; without ``groups``, each axis stops by itself. Commands are relative to the zero of the test (``tares``).

    From a state within the limits, no axis exceeds its deceleration or leaves its stroke. From other states, a
    group decelerates as fast as necessary to end within the stroke, and an axis beyond its stroke moves no further
    outwards.
    """

    def __init__(
        self, limits: dict[str, Limits], dt: float, tares: Tares | None = None, groups: Sequence[int] = ()
    ) -> None:
        axis_limits = limits.values()
        zeros = (tares or Tares.none(len(limits))).command.tolist()
        changes = changes_of_step(axis_limits, dt)
        rows = [
            (axis, zeros[axis], lim.stroke, lim.velocity * dt, changes[axis])
            for axis, lim in enumerate(axis_limits)
        ]
        self.groups = tuple(tuple(rows[axis] for axis in group) for group in braked_together(axis_limits, groups))
        self.state, self.samples = [0.0] * (PER_AXIS * len(rows)), 0
        """Values of the axes, which :func:`begin` writes, and number of samples of the stop."""
        at_zero = np.zeros(len(rows))
        self.begin(at_zero, at_zero)

    def begin(self, before: Array, last: Array) -> None:
        """Begin at the ``last`` sent command ``(n_axes,)`` m. Its change from ``before`` gives the velocity."""
        self.samples, self._done = int(begin(self.groups, self.state, before.tolist(), last.tolist())), 0

    @property
    def at_rest(self) -> bool:
        return self._done >= self.samples

    def step(self) -> Array:
        self._done += 1
        return self._after(self._done)

    @property
    def goal(self) -> Array:
        """Final commands of the stop, ``(n_axes,)`` m."""
        return self._after(self.samples)

    def _after(self, done: int) -> Array:
        axes = range(len(self.state) // PER_AXIS)
        return np.array([command_after(self.state, axis, float(done)) for axis in axes])


PER_AXIS = 5
START, STEP, SAMPLES, LOW, HIGH = range(PER_AXIS)
"""Values of an axis when the stop begins: command (m), step (m), samples to rest, lower and upper bound of
commands (m)."""
StopRow = tuple[int, float, float, float, float]
"""Constants of an axis: index, zero of commands, stroke, largest step, and largest change of the step (m)."""


def begin(
    groups: Sequence[Sequence[StopRow]], state: Floats, before: Sequence[float], last: Sequence[float]
) -> float:
    """Begin the stop of all ``groups`` after the last two commands (m).

    Write ``state``, and return the largest number of samples of a group.
    """
    longest = 0.0
    for group in groups:
        needed = 0.0
        for axis, zero, stroke, most, change in group:
            start, step = last[axis], max(-most, min(most, last[axis] - before[axis]))
            state[PER_AXIS * axis + START], state[PER_AXIS * axis + STEP] = start, step
            state[PER_AXIS * axis + LOW] = min(-stroke - zero, start)
            state[PER_AXIS * axis + HIGH] = max(stroke - zero, start)
            needed = max(needed, abs(step) / change)
        needed = full_samples(needed)
        for axis, zero, stroke, _, _ in group:
            step = state[PER_AXIS * axis + STEP]
            left = way_left(state[PER_AXIS * axis + START] + zero, step, stroke)
            if braking_way(step, needed) > left + ROUNDING * stroke:
                needed = samples_within(step, left)
        for axis, _, _, _, _ in group:
            state[PER_AXIS * axis + SAMPLES] = needed
        longest = max(longest, needed)
    return longest


def command_after(state: Floats, axis: int, done: float) -> float:
    """Return the command of an axis (m) after ``done`` samples of its stop."""
    samples, at = state[PER_AXIS * axis + SAMPLES], PER_AXIS * axis
    m = min(done, samples)
    way = m - 0.5 * m * (m + 1.0) / samples if m > 0.0 else 0.0
    return max(state[at + LOW], min(state[at + HIGH], state[at + START] + state[at + STEP] * way))


def held_places(
    commands: tuple[Array, Array], modes: tuple[bytes, bytes], n_moved: int, measured: Measurement
) -> tuple[Array, Array]:
    """Return the last two ``commands`` ``(n_axes,)`` in m. Axes from index ``n_moved`` may have commands in N.

    ``modes`` are the modes of the two commands. The measured position replaces a command in N, where the axis is
    held without velocity. The force loop of the axis also ends there (``ForceAxis.hold``).
    """
    before, last = commands
    for axis in range(n_moved, len(last)):
        then, now = (bool(mode) and mode[axis] == MODE_FORCE for mode in modes)
        if now:
            position = float(measured.displacement[axis])
            last[axis] = position if math.isfinite(position) else 0.0
        if then or now:
            before[axis] = last[axis]
    return before, last
