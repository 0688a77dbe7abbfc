# SPDX-License-Identifier: Apache-2.0
"""Tracking of loads by the axes that are controlled by force, beside the indices of the others."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rths_nodes.core.samples import MODE_FORCE


class LoadTracking:
    """Largest and rms error of the force on the axes behind the first ``n_moved``, while the mode is force.

    Errors are target minus measured force; percentages are of the largest target. Samples of a soft start count,
    too: a load is not part of it.
    """

    def __init__(self, axes: Sequence[str], n_moved: int) -> None:
        self._axes, self._n = axes, n_moved
        self._sums = [(0, 0.0, 0.0, 0.0)] * len(axes)
        """Samples, largest error and target (N), sum of squared errors (N^2) of each."""

    def add(self, target: Sequence[float], force: Sequence[float], modes: bytes) -> None:
        """A sample of all axes: target (m or N), measured force (N), and modes, empty where they are not told."""
        if not modes:
            return
        n = self._n
        for index, (samples, largest, most, squares) in enumerate(self._sums):
            if modes[n + index] == MODE_FORCE:
                wanted = target[n + index]
                error = abs(wanted - force[n + index])
                largest = largest if error <= largest else error  # nan is not passed over
                self._sums[index] = samples + 1, largest, max(most, abs(wanted)), squares + error * error

    def metrics(self) -> dict[str, dict[str, float]]:
        """By axis and name; nan where an axis was never controlled by force."""
        return {
            axis: {
                "max_force_error_n": largest if samples else math.nan,
                "max_force_error_percent": largest * (100.0 / most) if most else math.nan,
                "rms_force_error_n": math.sqrt(squares / samples) if samples else math.nan,
                "samples": float(samples),
            }
            for axis, (samples, largest, most, squares) in zip(self._axes, self._sums, strict=True)
        }
