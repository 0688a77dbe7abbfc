# SPDX-License-Identifier: Apache-2.0
"""Root mean square over the last samples: how much something shakes."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

from rths_nodes.core.dimensions import Unit
from rths_nodes.core.parameters import number, params
from rths_nodes.loop.supervision.quantities.integral import OfOne


class MovingRms:
    """sqrt(sum x^2 / n) over the n samples of a ``duration``, those before the first being 0."""

    @params
    class Params(OfOne):
        duration: float = number("length of the window", "s", more_than=0.0, at_most=60.0)

    def __init__(self, params: Params, dt: float) -> None:
        count = max(1, round(params.duration / dt))
        self._squares = deque([0.0] * count, maxlen=count)
        self._sum = 0.0
        self._left = count
        """Samples until the sum is made anew: what was added and taken away again leaves its rounding."""

    def unit(self, units: Sequence[Unit]) -> Unit:
        return units[0]

    def step(self, values: Sequence[float]) -> float:
        square = values[0] * values[0]
        self._sum += square - self._squares[0]
        self._squares.append(square)
        self._left -= 1
        if not self._left or not math.isfinite(self._sum):
            self._sum, self._left = math.fsum(self._squares), len(self._squares)
        return math.sqrt(max(self._sum, 0.0) / len(self._squares))
