# SPDX-License-Identifier: Apache-2.0
"""Overruns of a test in real time: how much may be late before the machine counts as too slow for the rig.

A period is late where the tick was missed, because the actuator node was not there in time, or where the Target or
the Command of its sample was not, so that it was bridged. Ticks that the rig gives are never missed. In lockstep
nothing is late.
"""

from __future__ import annotations

from collections import deque

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import integer, number, params
from rths_nodes.core.rounding import ROUNDING


@params
class OverrunParams:
    """Periods that may be late; the rig trips at the next one."""

    in_a_row: int = integer("late periods one after another that are allowed", at_least=0, at_most=1_000_000)
    in_window: int = integer("late periods within the window that are allowed", at_least=0, at_most=1_000_000)
    window: float = number("length of the window, up to now", "s", more_than=0.0, at_most=86_400.0)
    ignored: float = number("time from the start of the test in which none counts", "s", 0.0, at_least=0.0)

    def validate(self, path: str) -> None:
        """Refuses more in a row than in the window, which would mean nothing."""
        if self.in_a_row > self.in_window:
            raise ConfigError(f"{path}.in_a_row = {self.in_a_row}: must be <= {path}.in_window = {self.in_window}")


class Overruns:
    """Count of the late periods of a test, with samples of ``dt`` s; ``breach`` says why it must end, or is empty.

    Once there is a breach it stays.
    """

    def __init__(self, params: OverrunParams, dt: float) -> None:
        self._params = params
        self._ignored, self._window = (int(each / dt + ROUNDING) for each in (params.ignored, params.window))
        self._row = self._in_window = 0
        self._late: deque[tuple[int, int]] = deque()
        """Samples in the window of which periods were late, and how many."""
        self.breach = ""

    def sampled(self, sample: int, late: int) -> None:
        """Judge the ``sample`` that is over, in order, with so many ``late`` periods."""
        while self._late and self._late[0][0] <= sample - self._window:
            self._in_window -= self._late.popleft()[1]
        if not late or sample <= self._ignored:
            self._row = 0
            return
        self._row += late
        self._in_window += late
        self._late.append((sample, late))
        given = self._params
        if self._row > given.in_a_row:
            self.breach = self._told("in_a_row", self._row, "in a row", given.in_a_row)
        elif self._in_window > given.in_window:
            self.breach = self._told("in_window", self._in_window, f"in {given.window:g} s", given.in_window)

    @staticmethod
    def _told(name: str, count: int, where: str, bound: int) -> str:
        periods = "period was" if count == 1 else "periods were"
        return f"bridge.overruns.{name}: {count} {periods} late {where}: must be <= {bound}"
