"""How well the axes that are controlled by force keep their loads, beside the indices of the others."""

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
        self._n = n_moved
        self._rows = [_Row(name) for name in axes]

    def add(self, target: Sequence[float], force: Sequence[float], modes: bytes) -> None:
        """A sample of all axes: target (m or N), measured force (N), and modes, empty where they are not told."""
        if modes:
            for index, row in enumerate(self._rows, self._n):
                if modes[index] == MODE_FORCE:
                    row.add(target[index], force[index])

    def metrics(self) -> dict[str, dict[str, float]]:
        """By axis and name; nan where an axis was never controlled by force."""
        return {row.name: row.indices() for row in self._rows}


class _Row:
    """One axis, in plain floats."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._count = 0
        self._largest = self._target = self._squares = 0.0

    def add(self, target: float, measured: float) -> None:
        error = abs(target - measured)
        self._count += 1
        self._squares += error * error
        # written so that nan is not passed over
        self._largest = self._largest if error <= self._largest else error
        self._target = max(self._target, abs(target))

    def indices(self) -> dict[str, float]:
        none = not self._count
        rms = math.nan if none else math.sqrt(self._squares / self._count)
        largest = math.nan if none else self._largest
        percent = 100.0 / self._target if self._target else math.nan
        return {
            "max_force_error_n": largest,
            "max_force_error_percent": largest * percent,
            "rms_force_error_n": rms,
            "samples": float(self._count),
        }
