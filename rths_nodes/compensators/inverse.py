"""Inverse compensation with a constant delay (Chen 2007; Chen & Ricles 2010, Eq. 5b)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rths_nodes.components import Array, Motion
from rths_nodes.params import number, params


class Inverse:
    """d^p_k = alpha d^c_k - (alpha - 1) d^c_{k-1}: the inverse of the first-order actuator of Eq. (3)."""

    @params
    class Params:
        alpha: float = number("delay constant alpha", "samples", 29.0, at_least=1.0)

    state_names: tuple[str, ...] = ()
    state_units: Mapping[str, str] = {}

    def __init__(self, params: Params, dt: float, n_axes: int) -> None:
        self._alpha = params.alpha
        self._previous = np.zeros(n_axes)

    def reset(self) -> None:
        """The target was zero before the test."""
        self._previous[:] = 0.0

    def step(self, target: Motion, measured: Array) -> Array:
        command = self._alpha * target.displacement - (self._alpha - 1.0) * self._previous
        self._previous[:] = target.displacement
        return command

    def state(self) -> tuple[float, ...]:
        return ()
