# SPDX-License-Identifier: Apache-2.0
"""Safe stop: brings the rig to rest once the Commands of the test must no longer drive it.

The software stop is not a safety function: a rig needs its own interlocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from rths_nodes.core.limits import (
    Limits,
    braked_together,
    braking_way,
    changes_of_step,
    full_samples,
    samples_within,
    way_left,
)
from rths_nodes.core.samples import (
    INTERLOCK_OPEN,
    MODE_DISPLACEMENT,
    MODE_FORCE,
    ROUNDING,
    Array,
    Command,
    Measurement,
)
from rths_nodes.loop.supervision.handover import Tares


def braking_time(limits: Iterable[Limits]) -> float:
    """Return the longest time (s) that axes with ``limits`` need to come to rest together."""
    return max(limit.velocity / limit.deceleration for limit in limits)


def excess_travel(limits: Limits, max_bridge: float, time: float = 0.0) -> float:
    """Return the largest travel (m) of the command of an axis from the last complete sample to rest.

    The command moves for at most ``max_bridge`` s at the velocity limit. Then it decelerates, for at least
    ``time`` s if other axes stop with it. The actuator moves further than its command, by its lag. In a pause the
    travel also depends on the compensator, and is bounded only by the stroke.
    """
    braking = 0.5 * limits.velocity * max(time, braking_time([limits]))
    return min(limits.velocity * max_bridge + braking, 2.0 * limits.stroke)


class SafeStop:
    """Decelerates the axes of each group to rest in a common time, and then holds them.

    A group therefore moves along a straight line (``core/limits.py``). ``groups`` contains the group number of
    each axis. Without it, each axis stops by itself. Commands are relative to the zero of the test (``tares``).

    If a stop begins within the limits, no axis exceeds its deceleration or its stroke. Otherwise, a group
    decelerates as fast as necessary to end within the stroke, and an axis beyond its stroke moves no further out.
    """

    def __init__(
        self, limits: dict[str, Limits], dt: float, tares: Tares | None = None, groups: Sequence[int] = ()
    ) -> None:
        axis_limits, zeros = limits.values(), (tares or Tares.none(len(limits))).command.tolist()
        changes = changes_of_step(axis_limits, dt)
        rows = [(i, zeros[i], lim.stroke, lim.velocity * dt, changes[i]) for i, lim in enumerate(axis_limits)]
        self.groups = tuple(tuple(rows[axis] for axis in group) for group in braked_together(axis_limits, groups))
        self.state, self.samples = [0.0] * (PER_AXIS * len(rows)), 0
        """``state``: values of the axes, written by :func:`begin`. ``samples``: number of samples of the stop."""
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
        return self.after(self._done)

    def after(self, done: int) -> Array:
        """Return the commands ``(n_axes,)`` m after ``done`` samples of the stop."""
        axes = range(len(self.state) // PER_AXIS)
        return np.array([command_after(self.state, axis, float(done)) for axis in axes])


PER_AXIS = 5
START, STEP, SAMPLES, LOW, HIGH = range(PER_AXIS)
"""Indices of the values of an axis when the stop begins: command (m), step (m), samples to rest, lower and upper
bound of commands (m)."""
StopRow = tuple[int, float, float, float, float]
"""Constants of an axis: index, zero of commands, stroke, largest step, and largest change of the step (m)."""


def begin(
    groups: Sequence[Sequence[StopRow]], state: list[float] | Array, before: Sequence[float], last: Sequence[float]
) -> float:
    """Write ``state`` from the last two commands (m), and return the samples until the slowest group rests."""
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


def command_after(state: list[float] | Array, axis: int, done: float) -> float:
    """Return the command of an axis (m) after ``done`` samples of its stop."""
    samples, at = state[PER_AXIS * axis + SAMPLES], PER_AXIS * axis
    m = min(done, samples)
    way = m - 0.5 * m * (m + 1.0) / samples if m > 0.0 else 0.0
    return max(state[at + LOW], min(state[at + HIGH], state[at + START] + state[at + STEP] * way))


class LastPositions:
    """Stores the ``last`` displacement (m) measured within the stroke, by axis, in case a sensor fails."""

    def __init__(self, limits: Iterable[Limits]) -> None:
        self._strokes = np.array([limit.stroke for limit in limits])
        self.last = np.zeros(len(self._strokes))

    def receive(self, measured: Measurement, shown: Measurement) -> None:
        """Receive a tared Measurement, and its untared form ``shown``. Ignore displacements outside the stroke."""
        self.last = np.where(np.abs(shown.displacement) < self._strokes, measured.displacement, self.last)


def held_places(
    commands: tuple[Array, Array], modes: tuple[bytes, bytes], n_moved: int, places: Array
) -> tuple[Array, Array]:
    """Return the last two ``commands`` ``(n_axes,)``, with positions (m) in place of commands in N.

    Only axes from index ``n_moved`` on have commands in N. ``modes`` are the modes of the two commands. ``places``
    are the positions at which these axes are held, and at which their force loops end (``ForceAxis.hold``).
    """
    before, last = commands
    for axis in range(n_moved, len(last)):
        then, now = (bool(mode) and mode[axis] == MODE_FORCE for mode in modes)
        if now:
            last[axis] = places[axis]
        if then or now:
            before[axis] = last[axis]
    return before, last


class LoadStop:
    """Inserts the commands of force axes ("loads") into the commands of a stop.

    Loads are the ``axes`` from index ``n_moved`` on. Each load maintains its force until the other axes rest, and
    then holds its position. Holding the position earlier would unload a specimen whose top still drifts. A load
    that caused the trip holds its position immediately.

    A force loop uses the target of the neighbouring axis. The command of that axis leads this target by the delay
    of the actuator, and stops first. The target moves to the same end along a cubic that begins with its last
    velocity. The target takes longer than the command by twice the lead divided by this velocity. For a pure
    delay, its velocity thus decreases linearly.

    ``dt`` is in s. ``breach`` returns the reason to stop for a Measurement, the sent targets and their modes.
    """

    def __init__(
        self, axes: dict[str, Limits], n_moved: int, dt: float, breach: Callable[[Measurement, Array, bytes], str]
    ) -> None:
        self._names, self._n, self._breach = tuple(axes), n_moved, breach
        self.places = LastPositions(axes.values())
        self._longest = 0.1 / dt  # longest delay of an actuator: 0.1 s
        self._loads: dict[int, tuple[float, int]] = {}
        """Maintained force (N) or held position (m) of each load, and its mode, by index of the axis."""
        self._done = 0

    @property
    def at_rest(self) -> bool:
        return not any(mode == MODE_FORCE for _, mode in self._loads.values())

    def begin(self, before: Command | None, last: Command | None, stop: SafeStop, reason: str) -> None:
        if last is None or not last.control_mode:
            return
        before, n = before or last, self._n
        self._loads = {
            axis: (float(last.command[axis]), MODE_FORCE)
            for axis in range(n, len(self._names))
            if last.control_mode[axis] == MODE_FORCE and not self._caused(reason, axis)
        }
        self._start, self._end = last.target[:n], stop.after(stop.samples)[:n]
        self._step = last.target[:n] - before.target[:n]
        lead, speed = np.abs(last.command[:n] - last.target[:n]), np.abs(self._step)
        later = np.minimum(np.divide(lead, speed, out=np.zeros(n), where=speed > 0.0), self._longest)
        self._samples, self._done = stop.samples + 2 * math.ceil(later.max()), 0

    def command(self, command: Command, shown: Measurement) -> Command:
        """Insert the loads into the ``command`` of the stop. The Measurement ``shown`` is untared."""
        if not self.at_rest:
            self._release(shown)
        if not self._loads:
            return command
        commands, targets = command.command.copy(), command.target.copy()
        modes = bytearray([MODE_DISPLACEMENT] * len(self._names))
        self._done += 1
        s, m = min(self._done / self._samples, 1.0) if self._samples else 1.0, self._samples
        to_end = s * s * (3.0 - 2.0 * s)
        targets[: self._n] = self._start + m * s * (1.0 - s) ** 2 * self._step + to_end * (self._end - self._start)
        for axis, (value, mode) in self._loads.items():
            commands[axis] = targets[axis] = value
            modes[axis] = mode
        self._sent = targets, bytes(modes)
        mode_of_rest = b"" if self.at_rest else bytes(modes)
        return Command(command.sample, targets, commands, command.auxiliary, command.flags, mode_of_rest)

    def _release(self, shown: Measurement) -> None:
        over = self._done >= self._samples or shown.interlock == INTERLOCK_OPEN
        reason = self._breach(shown, *self._sent) if self._done else ""
        for axis, (_, kept) in self._loads.items():
            mode = shown.control_mode[axis] if shown.control_mode else 0
            if kept == MODE_FORCE and (over or mode != MODE_FORCE or self._caused(reason, axis)):
                self._loads[axis] = float(self.places.last[axis]), MODE_DISPLACEMENT

    def _caused(self, reason: str, axis: int) -> bool:
        return reason.startswith((f"axes.{self._names[axis]}.", f"axes.{self._names[axis]}:"))
