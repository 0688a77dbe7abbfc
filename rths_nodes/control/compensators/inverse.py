"""Inverse compensation with a constant delay (Chen 2007; Chen & Ricles 2010, Eq. 5b)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rths_nodes.control.compensators.ahead import Ahead, lead_parameter
from rths_nodes.core.frequency_response import Complex, Frequencies, taps
from rths_nodes.core.parameters import number, params
from rths_nodes.core.samples import Array, Motion


class Inverse:
    """d^p_k = alpha d^c_k - (alpha - 1) d^c_{k-1}: the inverse of the first-order actuator of Eq. (3).

    ``alpha`` (n_axes,) samples may be changed between two steps, by an adaptive law.
    """

    @params
    class Params:
        alpha: float = number("delay constant alpha", "samples", 29.0, at_least=1.0)
        lead: float = lead_parameter()

    state_names: tuple[str, ...] = ()
    state_units: Mapping[str, str] = {}

    def __init__(self, params: Params, dt: float, n_axes: int) -> None:
        self._p = params
        self._dt = dt
        self.alpha = np.full(n_axes, params.alpha)
        self._previous = np.zeros(n_axes)
        self._ahead = Ahead(params.lead, dt, n_axes)

    def reset(self) -> None:
        """The target was zero before the test; the alpha of the parameters."""
        self.alpha[:] = self._p.alpha
        self._previous[:] = 0.0
        self._ahead.reset()

    def step(self, target: Motion, measured: Array) -> Array:
        wanted = self._ahead.of(target).displacement
        command = self.alpha * wanted - (self.alpha - 1.0) * self._previous
        self._previous[:] = wanted
        return command

    def frequency_response(self, omega: Frequencies) -> Complex:
        """Command over target at ``omega`` (rad/s), for the alpha of the parameters."""
        alpha = self._p.alpha
        return taps(omega, (alpha, 1.0 - alpha), (0.0, self._dt)) * self._ahead.response(omega)

    def state(self) -> tuple[float, ...]:
        return ()
