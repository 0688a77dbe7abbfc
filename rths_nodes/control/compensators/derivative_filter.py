"""A low-pass filter whose inner states are the derivatives of its output.

Butterworth, fourth order, in the phase-variable form z' = w (A z + b u), where z holds the output y and its first
three derivatives over powers of w, solved exactly for an input that runs straight from sample to sample.
"""

from __future__ import annotations

import numpy as np

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Array


class DerivativeFilter:
    """Butterworth filter of fourth order that gives its output and the derivatives of it, exact for ramps.

    ``step(values)`` takes ``(n,)`` and gives ``(4, n)``: y, y'/w, y''/w^2, y'''/w^3 with w the cut-off
    ``frequency`` in rad/s.
    """

    ORDER = 4

    def __init__(self, cutoff_frequency: float, dt: float, n: int) -> None:
        highest = 0.5 / dt
        if cutoff_frequency >= highest:
            raise ConfigError(
                f"compensator.cutoff_frequency = {cutoff_frequency:g} Hz: must be < {highest:g} Hz, "
                "half the servo rate"
            )
        self.frequency = 2.0 * np.pi * cutoff_frequency
        self._transition = self._held(self.frequency * dt)
        self._all = np.zeros((self.ORDER + 2, n))
        self._state, self._before, self._now = self._all[: self.ORDER], self._all[-2], self._all[-1]

    @classmethod
    def _held(cls, phase: float) -> Array:
        """Matrix ``(4, 6)`` from states, last and new input to the new states, the input running straight."""
        from scipy.linalg import expm

        order = cls.ORDER
        denominator = np.ones(1)
        for angle in (np.pi / 8.0, 3.0 * np.pi / 8.0):
            denominator = np.polymul(denominator, [1.0, 2.0 * np.cos(angle), 1.0])
        system = np.zeros((order + 2, order + 2))
        system[: order - 1, 1:order] = phase * np.eye(order - 1)
        system[order - 1, :order] = -phase * denominator[:0:-1]
        system[order - 1, order] = phase
        system[order, order + 1] = 1.0  # the input's slope, per sample
        solved = expm(system)[:order]
        solved[:, order] -= solved[:, order + 1]
        held: Array = np.ascontiguousarray(solved)
        return held

    def block(self, samples: int) -> Array:
        """Matrix ``(4, 4 + 1 + samples)`` from states, last and ``samples`` new inputs to the states after them.

        The same as so many steps, for inputs that are worked off together.
        """
        order, now = self.ORDER, self._transition
        whole = np.zeros((order, order + 1 + samples))
        whole[:, :order] = np.eye(order)
        for index in range(samples):
            whole = now[:, :order] @ whole
            whole[:, order + index : order + index + 2] += now[:, order:]
        return whole

    def reset(self) -> None:
        """The input was zero before."""
        self._all[:] = 0.0

    def step(self, values: Array) -> Array:
        self._now[:] = values
        self._state[:] = self._transition.dot(self._all)
        self._before[:] = values
        return self._state
