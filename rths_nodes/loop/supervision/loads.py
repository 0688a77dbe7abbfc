# SPDX-License-Identifier: Apache-2.0
"""Force axes ("loads") in a safe stop.

Each load keeps its force until the other axes rest, and then holds its position. Holding the position earlier
would unload a specimen whose top still drifts. A load that caused the trip holds its position immediately.

A force loop uses the target of the neighbouring axis. The command of that axis leads this target by the delay of
the actuator, and stops first. The target moves to the same end along a cubic that begins with its last velocity.
It takes longer than the command by twice the lead divided by this velocity, so that with a pure delay the velocity
decreases linearly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from rths_nodes.core.samples import INTERLOCK_OPEN, MODE_DISPLACEMENT, MODE_FORCE, Array, Command, Measurement

LONGEST_LEAD_S = 0.1
"""Longest delay of an actuator, s."""


class LoadStop:
    """Generates the commands of the loads in a safe stop. The loads are the ``axes`` after the first ``n_moved``.

    ``dt`` is in s. ``breach`` returns the reason to stop after a Measurement, given the sent targets and their
    modes.
    """

    def __init__(
        self, axes: Sequence[str], n_moved: int, dt: float, breach: Callable[[Measurement, Array, bytes], str]
    ) -> None:
        self._names, self._n = tuple(axes), n_moved
        self._longest, self._breach = LONGEST_LEAD_S / dt, breach
        self._kept: dict[int, float] = {}
        """Force (N) of each axis that keeps its force, by index."""
        self._held: dict[int, float] = {}
        """Held position (m) of each axis that no longer keeps its force, by index."""
        self._done = 0

    @property
    def at_rest(self) -> bool:
        return not self._kept

    def begin(self, before: Command | None, last: Command | None, goal: Array, samples: int, reason: str) -> None:
        """Begin after Commands ``before`` and ``last``. The other axes stop at ``goal`` (m) after ``samples``."""
        if last is None or not last.control_mode:
            return
        before, n = before or last, self._n
        self._kept = {
            index: float(last.command[index])
            for index in range(n, len(self._names))
            if last.control_mode[index] == MODE_FORCE and not _own(reason, self._names[index])
        }
        self._start, self._end = last.target[:n], goal[:n]
        self._step = last.target[:n] - before.target[:n]
        lead, speed = np.abs(last.command[:n] - last.target[:n]), np.abs(self._step)
        later = np.minimum(np.divide(lead, speed, out=np.zeros(n), where=speed > 0.0), self._longest)
        self._samples, self._done = samples + 2 * math.ceil(later.max()), 0

    def command(self, command: Command, measured: Measurement, shown: Measurement) -> Command:
        """Insert the loads into the ``command`` of the stop. ``measured`` is tared, ``shown`` is untared."""
        self._release(measured, shown)
        if not (self._kept or self._held):
            return command
        commands, targets = command.command.copy(), command.target.copy()
        modes = bytearray([MODE_DISPLACEMENT] * len(self._names))
        targets[: self._n] = self._target()
        for index, newtons in self._kept.items():
            commands[index] = targets[index] = newtons
            modes[index] = MODE_FORCE
        for index, position in self._held.items():
            commands[index] = targets[index] = position
        self._sent = targets, bytes(modes)
        mode = bytes(modes) if self._kept else b""
        return Command(command.sample, targets, commands, command.auxiliary, command.flags, mode)

    def _target(self) -> Array:
        self._done += 1
        s, m = min(self._done / self._samples, 1.0) if self._samples else 1.0, self._samples
        to_end = s * s * (3.0 - 2.0 * s)
        target: Array = self._start + m * s * (1.0 - s) ** 2 * self._step + to_end * (self._end - self._start)
        return target

    def _release(self, measured: Measurement, shown: Measurement) -> None:
        if not self._kept:
            return
        over = self._done >= self._samples or shown.interlock == INTERLOCK_OPEN
        reason = self._breach(shown, *self._sent) if self._done else ""
        for index in list(self._kept):
            mode = shown.control_mode[index] if shown.control_mode else 0
            if over or mode != MODE_FORCE or _own(reason, self._names[index]):
                position = float(measured.displacement[index])
                self._held[index] = position if math.isfinite(position) else 0.0
                del self._kept[index]


def _own(reason: str, axis: str) -> bool:
    return reason.startswith((f"axes.{axis}.", f"axes.{axis}:"))
