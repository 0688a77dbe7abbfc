# SPDX-License-Identifier: Apache-2.0
"""Curves of motions of the procedure, for onlookers: outside of runs there is no monitor for them."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from rths_nodes.core.samples import MODE_FORCE, Array, Measurement
from rths_nodes.loop.supervision.live import LiveColumns

LONGEST_S, MOST = 60.0, 20
"""Time of a motion, and number of motions, that are stored if not taken."""
Drawn = tuple[int, int, int, Array]
"""Number of a motion, from 1 on, samples per column, first sample and columns ``(columns, curves, 4)``."""


@dataclass
class _Motion:
    """A motion from the sample ``first`` to before ``next``."""

    number: int
    first: int
    next: int
    columns: LiveColumns
    seen: int = -1
    """``next`` at the last look."""


class MotionCurves:
    """Curves of successive motions at ``servo_rate`` Hz, thread-safe; ``loaded``: axes with a force mode."""

    def __init__(self, loaded: Sequence[bool], servo_rate: float) -> None:
        self._loaded, self._rate = list(loaded), servo_rate
        self._lock = threading.Lock()
        self._motions: deque[_Motion] = deque(maxlen=MOST)
        self._number = 0

    def add(self, measured: Measurement, command: Array) -> None:
        """Add a sample, with the ``command`` ``(n_axes,)`` m or N that led to it."""
        with self._lock:
            motion = self._motion_of(measured.sample)
            moved, force, modes = measured.displacement.tolist(), measured.force.tolist(), measured.control_mode
            in_force = [len(modes) > axis and modes[axis] == MODE_FORCE for axis in range(len(moved))]
            given = [
                each if loaded == now else math.nan
                for each, loaded, now in zip(command.tolist(), self._loaded, in_force, strict=True)
            ]
            aimed = [f if loaded else x for x, f, loaded in zip(moved, force, self._loaded, strict=True)]
            nothing = [math.nan] * len(moved)
            sample = measured.sample - motion.first
            motion.columns.add(sample, given, given, moved, force, aimed, nothing)
            motion.next = measured.sample + 1

    def _motion_of(self, sample: int) -> _Motion:
        last = self._motions[-1] if self._motions else None
        if last is None or sample != last.next or sample - max(last.seen, last.first) > LONGEST_S * self._rate:
            self._number += 1
            last = _Motion(self._number, sample, sample, LiveColumns(len(self._loaded), self._rate))
            self._motions.append(last)
        return last

    def take(self) -> list[Drawn]:
        """Return the columns since the last call; a motion without new samples has ended."""
        found = []
        with self._lock:
            for motion in list(self._motions):
                over = motion is not self._motions[-1] or motion.seen == motion.next
                motion.seen = motion.next
                first, values = motion.columns.take(rest=over)
                if over:
                    self._motions.remove(motion)
                if len(values):
                    found.append((motion.number, motion.columns.samples_per_column, first, values))
        return found
