# SPDX-License-Identifier: Apache-2.0
"""Invariants of every motion of a rig, checked by the sent commands and by the true positions.

The checks know the limits of the rig, not the procedure: the commands after a stop, the braking distance, motion
without an act. Arrays are ``(n_axes,)``, m and N; a step is the change of a command from one tick to the next.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rths_nodes.core.samples import MODE_FORCE, Array

MOTION = frozenset(("CHECKING", "POSITIONING", "RUNNING", "STOPPING", "RESUMING", "UNLOADING"))
"""States in which a rig may move."""
SLOW = ("CHECKING", "POSITIONING", "UNLOADING")
"""States of slow motion."""
ROUNDING, LEAST = 1e-6, 1e-9
"""Relative tolerance of a bound, and absolute tolerance, m."""
SHORT_M = 1e-6
"""Shortest braking distance whose line is checked, m."""
STRAIGHT = 0.01
"""Largest deviation of coupled axes from their common line in a stop, as a share of the braking distance."""
LOADED = 0.03
"""Largest relative change of an axial load in a stop."""
STILL_M, JUMP_M = 1e-7, 5e-5
"""Motion per tick below which a rig rests, and largest motion of a resting rig without an act, m."""
SEEN_S = 0.15
"""Time in a slow motion after which the rig must follow, s."""


@dataclass
class Bounds:
    """Deceleration (m/s^2) and largest error of a slow motion (m), of each axis.

    ``coupled`` axes keep to a common line. ``load`` is the index of the axis that carries ``newtons``.
    """

    deceleration: Array
    slow_error: Array
    dt: float
    coupled: bool = False
    load: int | None = None
    newtons: float = 0.0


class Stop:
    """A stop after the command ``start``: one more command may be under way, the following ones brake."""

    def __init__(self, bounds: Bounds, start: Array, step: Array, why: str) -> None:
        self._bounds, self._last, self._step, self._why = bounds, start, step, why
        self._change = bounds.deceleration * bounds.dt**2
        self._begun = False
        self._moved = self._allowed = np.zeros_like(start)

    def sent(self, command: Array, moved: Array) -> str:
        """Return the violation by the next ``command`` of the ``moved`` axes, or nothing."""
        last, self._last = self._last, command
        step = np.where(moved, command - last, 0.0)
        if not self._begun:
            self._begun, self._allowed = True, self._distance(step)
            self._step = self._along = step
            return ""
        distance = self._moved = self._moved + step  # some commands were in N
        if (np.abs(distance) > self._allowed * (1.0 + ROUNDING) + LEAST).any():
            return f"{distance.tolist()} m after {self._why}, whose braking distance is {self._allowed.tolist()} m"
        change = np.abs(step - self._step)
        if (change > self._change * (1.0 + ROUNDING) + LEAST).any():
            rate = (change / self._bounds.dt**2).tolist()
            return f"braked with {rate} m/s^2 after {self._why}"
        self._step = step
        return self._off_line(distance, moved)

    def _distance(self, step: Array) -> Array:
        """Braking distance of a stop from a ``step``, all axes in a common time."""
        samples = max(math.ceil(float(ratio)) for ratio in np.abs(step) / self._change)
        return 0.5 * np.abs(step) * max(samples - 1, 0)

    def _off_line(self, distance: Array, moved: Array) -> str:
        along = self._along * moved
        length = float(np.linalg.norm(self._allowed * moved))
        if not self._bounds.coupled or length < SHORT_M:
            return ""
        off = float(np.linalg.norm(distance - along * float(distance @ along) / float(along @ along)))
        return f"{off} m off the common line after {self._why}" if off > STRAIGHT * length else ""


class MotionWatch:
    """Checks each tick of a rig against ``bounds`` and collects ``violations``.

    The driver of the acts sets ``state`` and ``lost`` (the rig does not follow), begins and ends acts, and reports
    the faults of the sensors.
    """

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._change = bounds.deceleration * bounds.dt**2 * (1.0 + ROUNDING) + LEAST
        self.violations: list[str] = []
        self.state, self.act, self.lost = "IDLE", "", False
        self.lies = False
        """A displacement sensor is wrong: the rest position is unknown."""
        self.force_lies = False
        """A force sensor is or was wrong in this act: a force loop follows it away from its load."""
        self.keeps_still = False
        """No motion is allowed in this act."""
        self.reach: float | None = None
        """Largest distance of the current rung from its zero, m; None if unknown."""
        self.zero_of_sensors: Array | None = None
        self._command: Array | None = None
        self._step: Array | None = None
        self._by_force: Array = np.zeros(1, bool)
        self._stop: Stop | None = None
        self._rests_at: Array | None = None
        self._true: Array | None = None
        self.unmoved = 0
        """Ticks since the last true motion."""
        self._still = self._slow_for = self._loaded_for = 0
        self._missed: Array = np.zeros(1)
        self._beyond = False
        self._keeps_load = False
        self.load_off = 0.0
        """Relative change of the load in the last stop."""
        self._zero: Array | None = None

    # -- events -------------------------------------------------------------------------------------------

    def begin(self, act: str) -> None:
        """Begin an act of the operator: a stopped rig may move again."""
        self.act, self._stop, self._beyond, self._slow_for = act, None, False, 0
        self._zero, self._keeps_load, self.keeps_still, self.load_off = self._command, False, False, 0.0

    def end(self) -> None:
        """End the act: only a stop may still move the rig."""
        self.act = ""

    def stopped(self, why: str) -> None:
        """Expect the rig to brake from now on; the first call counts."""
        if self._stop is not None or self._command is None or self.lost:
            return
        step = self._step if self._step is not None else np.zeros_like(self._command)
        self._stop = Stop(self.bounds, self._command, step, why)
        loaded = self._loaded_for * self.bounds.dt > SEEN_S
        self._keeps_load = loaded and not self.force_lies and "axes.load" not in why

    # -- ticks --------------------------------------------------------------------------------------------

    def sent(self, command: Array, modes: bytes, tick: str) -> None:
        """Check a sent ``command`` with the control ``modes``; ``tick`` describes its time."""
        rests = self._stop is None and self._step is not None and not self._step.any()
        if rests and MODE_FORCE not in modes and not self._by_force.any() and (command == self._command).all():
            return
        by_force = np.array([bool(modes) and modes[axis] == MODE_FORCE for axis in range(len(command))])
        moved = ~(by_force | self._by_force)  # commands in m, before and now
        last, before, self._by_force = self._command, self._step, by_force
        self._command = command.copy()
        load = self.bounds.load
        if load is not None:
            full = by_force[load] and abs(command[load]) >= 0.999 * self.bounds.newtons
            self._loaded_for = self._loaded_for + 1 if full else 0
        if last is None:
            return
        self._step = np.where(moved, command - last, 0.0)
        if self.lost:
            self._stop, self._keeps_load, self._step = None, False, None
            return
        if before is not None and self.state in SLOW:
            change = np.where(moved, np.abs(self._step - before), 0.0)
            if (change > self._change).any():
                rate = (change / self.bounds.dt**2).tolist()
                self.violations.append(f"{tick}: changes its velocity by {rate} m/s^2")
        if self._step.any():
            if not self.act and self._stop is None:
                self.violations.append(f"{tick}: moves without an act")
            if self.keeps_still:
                self.violations.append(f"{tick}: moves in a rung that is only computed")
        if self._stop is not None and (violation := self._stop.sent(command, moved)):
            self.violations.append(f"{tick}: {violation}")
            self._stop = None
        if self.reach is not None and self.state == "RUNNING" and self._zero is not None:
            distance = float(np.abs(np.where(moved, command - self._zero, 0.0)).max())
            if distance > self.reach:
                self.violations.append(f"{tick}: {distance} m from the zero of a rung that goes {self.reach} m")

    def measured(self, shown: Array, true: Array, force: Array, tick: str) -> None:
        """Check the readings of the sensors, the true positions and the true forces."""
        self._at_rest(true, tick)
        self._follows(shown)
        load = self.bounds.load
        if self._keeps_load and load is not None and self._stop is not None:
            off = abs(float(force[load]) / self.bounds.newtons - 1.0)
            self.load_off = max(self.load_off, off)
            if off > LOADED:
                self.violations.append(f"{tick}: the load is off by {100.0 * off:.2f} % in a stop")
                self._keeps_load = False

    def _at_rest(self, true: Array, tick: str) -> None:
        moved = self._true is None or bool((np.abs(true - self._true) > STILL_M).any())
        self._true = true.copy()
        self.unmoved = 0 if moved else self.unmoved + 1
        if self.state in MOTION or self.lies:
            self._still, self._rests_at = 0, None
            return
        if self._rests_at is not None:
            if (np.abs(true - self._rests_at) > JUMP_M).any():
                self.violations.append(f"{tick}: rested at {self._rests_at.tolist()} m, now at {true.tolist()} m")
                self._rests_at = None
            return
        self._still = 0 if moved else self._still + 1
        if self._still * self.bounds.dt > SEEN_S:
            self._rests_at = true.copy()

    def _follows(self, shown: Array) -> None:
        """Expect a stop beyond the error bound of a slow motion, whatever the reason."""
        if self.state not in SLOW or self.lost or self.zero_of_sensors is None or self._command is None:
            self._slow_for = 0
            return
        error = shown - self.zero_of_sensors - self._command
        if self._slow_for == 0:  # it may still lag behind the previous motion
            self._missed = np.abs(error)
        self._slow_for += 1
        bound = self.bounds.slow_error + self._missed
        if self._slow_for * self.bounds.dt < SEEN_S or not (np.abs(error) > bound).any():
            return
        self.stopped(f"the rig missed its command by {error.tolist()} m")
