# SPDX-License-Identifier: Apache-2.0
"""What must hold of every motion of a rig, judged by the commands that were sent, and by where the rig truly is.

It knows the limits of the rig and nothing of who drives it: which command follows a stop, how far it goes, what
moves without an act. Arrays are ``(n_axes,)``, m and N; steps are changes of a command from one tick to the next.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rths_nodes.core.samples import MODE_FORCE, Array

MOTION = frozenset(("CHECKING", "POSITIONING", "RUNNING", "STOPPING", "RESUMING", "UNLOADING"))
"""The states in which a rig may move."""
SLOW = ("CHECKING", "POSITIONING", "UNLOADING")
"""Those in which it moves slowly, on its way to rest."""
ROUNDING, LEAST = 1e-6, 1e-9
"""Share of a bound, and m, by which numbers may be off."""
SHORT_M = 1e-6
"""No line is looked at on a shorter way."""
STRAIGHT = 0.01
"""Share of the way of a stop by which coupled axes may be off their common line."""
LOADED = 0.03
"""Share by which an axial load may change in a stop."""
STILL_M, JUMP_M = 1e-7, 5e-5
"""What moves by less in a tick rests; by more nothing moves that rests, without an act."""
SEEN_S = 0.15
"""After so long in a slow motion the rig is known to follow, or not."""


@dataclass
class Bounds:
    """Of each axis: deceleration (m/s^2), how far a slow motion may miss its command (m).

    ``coupled`` axes keep to a common line. ``load`` is the place of the axis that carries ``newtons``.
    """

    deceleration: Array
    slow_error: Array
    dt: float
    coupled: bool = False
    load: int | None = None
    newtons: float = 0.0


class Stop:
    """A stop that has begun behind the command ``start``: one command may be under way, the next ones brake."""

    def __init__(self, bounds: Bounds, start: Array, step: Array, why: str) -> None:
        self._bounds, self._last, self._step, self._why = bounds, start, step, why
        self._change = bounds.deceleration * bounds.dt**2
        self._begun = False
        self._gone = self._way = np.zeros_like(start)

    def sent(self, command: Array, moved: Array) -> str:
        """What is wrong with the next ``command`` of the axes that are ``moved``, in words."""
        last, self._last = self._last, command
        step = np.where(moved, command - last, 0.0)
        if not self._begun:
            self._begun, self._way = True, self._whole(step)
            self._step = self._along = step
            return ""
        gone = self._gone = self._gone + step  # some numbers have been in N
        if (np.abs(gone) > self._way * (1.0 + ROUNDING) + LEAST).any():
            return f"{gone.tolist()} m after {self._why}, whose own way is {self._way.tolist()} m"
        change = np.abs(step - self._step)
        if (change > self._change * (1.0 + ROUNDING) + LEAST).any():
            rate = (change / self._bounds.dt**2).tolist()
            return f"braked with {rate} m/s^2 after {self._why}"
        self._step = step
        return self._off_line(gone, moved)

    def _whole(self, step: Array) -> Array:
        """The way of a stop from a ``step``, all axes in a common time."""
        samples = max(math.ceil(float(each)) for each in np.abs(step) / self._change)
        return 0.5 * np.abs(step) * max(samples - 1, 0)

    def _off_line(self, gone: Array, moved: Array) -> str:
        along = self._along * moved
        length = float(np.linalg.norm(self._way * moved))
        if not self._bounds.coupled or length < SHORT_M:
            return ""
        off = float(np.linalg.norm(gone - along * float(gone @ along) / float(along @ along)))
        return f"{off} m off the common line after {self._why}" if off > STRAIGHT * length else ""


class MotionWatch:
    """Looks at each tick of a rig within ``bounds``. ``violations`` says in words what was wrong.

    Who drives the acts sets ``state`` and ``lost`` (the rig does not follow), begins and ends acts, and says what
    is known of the sensors.
    """

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._change = bounds.deceleration * bounds.dt**2 * (1.0 + ROUNDING) + LEAST
        self.violations: list[str] = []
        self.state, self.act, self.lost = "IDLE", "", False
        self.lies = False
        """A displacement sensor is wrong: where the rig waits for its return nobody knows."""
        self.force_lies = False
        """A force sensor is wrong, or was in this act: a loop of force follows it away from its load."""
        self.keeps_still = False
        """Nothing is to move in this act."""
        self.reach: float | None = None
        """How far the rung under way goes from its zero, m; None where that is not known."""
        self.zero_of_sensors: Array | None = None
        self._command: Array | None = None
        self._step: Array | None = None
        self._by_force: Array = np.zeros(1, bool)
        self._stop: Stop | None = None
        self._rests_at: Array | None = None
        self._true: Array | None = None
        self.unmoved = 0
        """Ticks since the rig has truly moved."""
        self._still = self._slow_for = self._loaded_for = 0
        self._missed: Array = np.zeros(1)
        self._beyond = False
        self._keeps_load = False
        self.load_off = 0.0
        """Share by which the load has changed in the last stop."""
        self._zero: Array | None = None

    # -- what happens -------------------------------------------------------------------------------------

    def begin(self, act: str) -> None:
        """The operator begins an act: what was stopped before may move again."""
        self.act, self._stop, self._beyond, self._slow_for = act, None, False, 0
        self._zero, self._keeps_load, self.keeps_still, self.load_off = self._command, False, False, 0.0

    def end(self) -> None:
        """It is over: nothing moves any more, but for what is being stopped."""
        self.act = ""

    def stopped(self, why: str) -> None:
        """From here on the rig brakes; the first time counts."""
        if self._stop is not None or self._command is None or self.lost:
            return
        step = self._step if self._step is not None else np.zeros_like(self._command)
        self._stop = Stop(self.bounds, self._command, step, why)
        loaded = self._loaded_for * self.bounds.dt > SEEN_S
        self._keeps_load = loaded and not self.force_lies and "axes.load" not in why

    # -- ticks --------------------------------------------------------------------------------------------

    def sent(self, command: Array, modes: bytes, told: str) -> None:
        """A ``command`` that was sent, with the control ``modes``; ``told`` says when."""
        rests = self._stop is None and self._step is not None and not self._step.any()
        if rests and MODE_FORCE not in modes and not self._by_force.any() and (command == self._command).all():
            return
        by_force = np.array([bool(modes) and modes[axis] == MODE_FORCE for axis in range(len(command))])
        moved = ~(by_force | self._by_force)  # there numbers are in m, before and now
        last, before, self._by_force = self._command, self._step, by_force
        self._command = command.copy()
        load = self.bounds.load
        if load is not None:
            whole = by_force[load] and abs(command[load]) >= 0.999 * self.bounds.newtons
            self._loaded_for = self._loaded_for + 1 if whole else 0
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
                self.violations.append(f"{told}: changes its velocity by {rate} m/s^2")
        if self._step.any():
            if not self.act and self._stop is None:
                self.violations.append(f"{told}: moves without an act")
            if self.keeps_still:
                self.violations.append(f"{told}: moves in a rung that is only computed")
        if self._stop is not None and (wrong := self._stop.sent(command, moved)):
            self.violations.append(f"{told}: {wrong}")
            self._stop = None
        if self.reach is not None and self.state == "RUNNING" and self._zero is not None:
            away = float(np.abs(np.where(moved, command - self._zero, 0.0)).max())
            if away > self.reach:
                self.violations.append(f"{told}: {away} m from the zero of a rung that goes {self.reach} m")

    def measured(self, shown: Array, true: Array, force: Array, told: str) -> None:
        """What the sensors have shown then, and where the rig truly was, with its true forces."""
        self._at_rest(true, told)
        self._follows(shown)
        load = self.bounds.load
        if self._keeps_load and load is not None and self._stop is not None:
            off = abs(float(force[load]) / self.bounds.newtons - 1.0)
            self.load_off = max(self.load_off, off)
            if off > LOADED:
                self.violations.append(f"{told}: the load is off by {100.0 * off:.2f} % in a stop")
                self._keeps_load = False

    def _at_rest(self, true: Array, told: str) -> None:
        moved = self._true is None or bool((np.abs(true - self._true) > STILL_M).any())
        self._true = true.copy()
        self.unmoved = 0 if moved else self.unmoved + 1
        if self.state in MOTION or self.lies:
            self._still, self._rests_at = 0, None
            return
        if self._rests_at is not None:
            if (np.abs(true - self._rests_at) > JUMP_M).any():
                self.violations.append(f"{told}: rested at {self._rests_at.tolist()} m, now at {true.tolist()} m")
                self._rests_at = None
            return
        self._still = 0 if moved else self._still + 1
        if self._still * self.bounds.dt > SEEN_S:
            self._rests_at = true.copy()

    def _follows(self, shown: Array) -> None:
        """Beyond the bound of a slow motion the rig brakes, whatever the reason is."""
        if self.state not in SLOW or self.lost or self.zero_of_sensors is None or self._command is None:
            self._slow_for = 0
            return
        error = shown - self.zero_of_sensors - self._command
        if self._slow_for == 0:  # it may still have to catch up with the motion before
            self._missed = np.abs(error)
        self._slow_for += 1
        bound = self.bounds.slow_error + self._missed
        if self._slow_for * self.bounds.dt < SEEN_S or not (np.abs(error) > bound).any():
            return
        self.stopped(f"the rig missed its command by {error.tolist()} m")
