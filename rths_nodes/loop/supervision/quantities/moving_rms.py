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
        self._sum = self._coming = 0.0
        """Sums of the window, and of samples since its last recomputation: adding and subtracting leaves rounding,
        and a recomputation at once would take longer than a sample."""
        self._left, self._wild = count, 0
        """Samples until the sum is recomputed; number of non-finite values in the window."""

    def unit(self, units: Sequence[Unit]) -> Unit:
        return units[0]

    def step(self, values: Sequence[float]) -> float:
        square, squares = values[0] * values[0], self._squares
        gone = squares[0]
        squares.append(square)
        for value, sign in ((square, 1), (gone, -1)):
            if math.isfinite(value):
                self._sum += sign * value
            else:
                self._wild += sign
        self._coming += square if math.isfinite(square) else 0.0
        self._left -= 1
        if not self._left:
            self._sum, self._coming, self._left = self._coming, 0.0, len(squares)
        return math.nan if self._wild else math.sqrt(max(self._sum, 0.0) / len(squares))
