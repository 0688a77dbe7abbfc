# SPDX-License-Identifier: Apache-2.0
"""Extrapolation of the measured force over its delay (``force_lead``).

    f^ = f_k + p b_k,     b_k the slope of a straight line fitted to the last n + 1 forces

with p the delay of the force in samples and n the samples of an integration step: the difference of two samples
alone multiplies the noise of the force by sqrt((1 + p)^2 + p^2), 2.9 for p = 1.5. An integrator that holds the
force over its step sees it half a step late on average; p includes that for such integrators only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from operator import add

import numpy as np

from rths_nodes.core.arithmetic import dot
from rths_nodes.core.samples import FLAG_BRIDGED, FLAG_SLOWED, Array, Measurement


class ForceLead:
    """Extrapolates the forces of the axes by ``samples``, along their slope over the last ``span`` samples.

    After a bridged or slowed sample the slope is kept until a whole span has been measured again.
    """

    def __init__(self, samples: float, span: int, n_axes: int) -> None:
        self._samples, self._span = samples, span
        ages = np.arange(span, -1, -1.0)
        middle = ages - ages.mean()
        # slope of a fitted line, oldest first, times the extrapolation
        self._weights: list[float] = (-samples * middle / (middle @ middle)).tolist()
        self._n_axes = n_axes
        self.reset()

    @property
    def slope(self) -> list[float]:
        """Weights of the last forces ``(span + 1,)``, oldest first, in the correction of the last one."""
        return self._weights

    def reset(self) -> None:
        rest = [0.0] * self._n_axes
        # plain floats: one value per sample, few axes
        self._forces = deque([rest] * (self._span + 1), maxlen=self._span + 1)
        self._resting = 0
        self._change = rest

    @property
    def weights(self) -> Array:
        """Weights of the forces now, one sample ago, and so on, ``(span + 1,)``."""
        found: Array = np.array(self._weights[::-1]) + np.eye(self._span + 1)[0]
        return found

    def extend(self, forces: Iterable[Sequence[float]]) -> None:
        """Take earlier forces ``(n_axes,)`` N of samples that were neither bridged nor slowed."""
        self._forces.extend(map(list, forces))

    def add(self, measured: Measurement) -> None:
        """Take the next Measurement; none may be missing."""
        self._forces.append(measured.force.tolist())
        if measured.flags & (FLAG_BRIDGED | FLAG_SLOWED):
            self._resting = self._span + 1
        elif self._resting:
            self._resting -= 1

    def now(self) -> Sequence[float]:
        """Return the forces ``(n_axes,)`` N extrapolated to the time of the last Measurement."""
        if not self._resting:
            weights = self._weights
            self._change = [dot(weights, axis) for axis in zip(*self._forces, strict=True)]
        return list(map(add, self._forces[-1], self._change))
