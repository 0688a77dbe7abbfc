# SPDX-License-Identifier: Apache-2.0
"""Travel of a command one way, and the part of it that a sensor shows: identical readings alone prove nothing.

In each LATE_S the command stays between its lowest l and its highest h. If l exceeds an earlier h by D, an
actuator with a delay below LATE_S has risen since; its sensor has to show STUCK of that, and likewise downwards.
"""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

LATE_S = 0.1
"""Longest delay of an actuator, s, without transport and the delay from the small move."""
BLOCKS = 8
"""Number of blocks in that time; the command is judged per block."""
STUCK = 0.1
"""Share of its travel below which a channel does not move with the rig."""
STEPS, LOUDEST = 20.0, 8.0
"""Travel D in steps of the resolution, and in multiples of the noise. A load cell that shows less is dead if more
than D / STUCK was expected."""
TWICE = 2.0
"""D in multiples of lost motion and static error."""
LEAST_TRAVEL = 5e-4
"""Smallest D, as a share of the stroke."""


class Travel(NamedTuple):
    """Travel of a command one way, and the part that its sensor has shown."""

    gone: float
    shown: float


class OneWay:
    """Check that one measurement shows a travel ``way`` of its command; ``block``: samples of a block.

    STUCK of it, in the same direction; or, with ``least``, anything more than that in any direction.
    The measurement may be ``late`` or ``early`` by that number of blocks; it is judged ``early`` blocks later.
    """

    def __init__(
        self, way: float, block: int, least: float | None = None, late: int = BLOCKS, early: int = 0
    ) -> None:
        self._way, self._block, self._least = way, block, least
        self._lows, self._highs = deque[float](maxlen=late + early), deque[float](maxlen=late + early)
        self._shown: deque[float] = deque(maxlen=1 + early)
        self._marks: list[list[float]] = [[], []]
        """End of an earlier window upwards and downwards, with the sign of the direction.

        Its highest command, the reading then, and the lowest and highest reading since.
        """
        self._silent = [False, False]
        self._span = [0.0, 0.0]
        """Lowest and highest reading since the first of the travels that were not shown."""
        self._empty()

    def _empty(self) -> None:
        self._samples, self._sum, self._low, self._high = 0, 0.0, math.inf, -math.inf

    @property
    def settled(self) -> bool:
        """True once the delay of an earlier motion has passed."""
        return len(self._lows) == self._lows.maxlen

    @property
    def both_ways(self) -> bool:
        """True if no travel was shown upwards and downwards since a missing one."""
        return all(self._silent)

    @property
    def window(self) -> tuple[float, float]:
        """Range of the command in the last LATE_S."""
        return min(self._lows), max(self._highs)

    def stuck(self, command: float, measured: float) -> Travel | None:
        """Add a sample; return the travel that was not shown, if any."""
        self._samples += 1
        self._sum += measured
        self._low, self._high = min(self._low, command), max(self._high, command)
        if self._samples < self._block:
            return None
        low, high, shown = self._low, self._high, self._sum / self._samples
        self._empty()
        return self.block(low, high, shown)

    def block(self, low: float, high: float, shown: float) -> Travel | None:
        """Add a block: range ``low`` to ``high`` of its command, mean measurement ``shown``."""
        self._lows.append(low)
        self._highs.append(high)
        self._shown.append(shown)
        if not self.settled:
            return None
        (low, high), shown = self.window, self._shown[0]
        if any(self._silent):
            self._span = [min(self._span[0], shown), max(self._span[1], shown)]
            if self._least is not None and self._span[1] - self._span[0] > self._least:
                self._silent = [False, False]
        return self._along(0, low, high, shown) or self._along(1, -high, -low, -shown)

    def _along(self, way: int, low: float, high: float, shown: float) -> Travel | None:
        mark = self._marks[way]
        if not mark or high < mark[0]:
            self._marks[way] = [high, shown, shown, shown]
            return None
        mark[2:] = min(mark[2], shown), max(mark[3], shown)
        gone = low - mark[0]
        if gone < self._way or not gone:
            return None
        moved = shown - mark[1]
        self._marks[way] = [high, shown, shown, shown]
        if moved >= STUCK * gone if self._least is None else mark[3] - mark[2] > self._least:
            self._silent = [False, False]
            return None
        if not any(self._silent):
            sign = -1.0 if way else 1.0
            self._span = sorted([sign * mark[2], sign * mark[3]])
        self._silent[way] = True
        return Travel(gone, moved)
