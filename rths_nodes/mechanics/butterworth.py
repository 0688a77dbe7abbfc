# SPDX-License-Identifier: Apache-2.0
"""Sampled low-pass filter of Butterworth (1930): maximally flat, half the power at its cut-off frequency.

    |H(omega)|^2 = 1 / (1 + (omega / omega_c)^(2 n))

for the order n and the cut-off frequency omega_c. The bilinear transform gives sections of first and second order,
with the cut-off preserved (Oppenheim, Schafer, Discrete-Time Signal Processing, section 7.1.2). The sections use
floats and the transposed direct form II.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from rths_nodes.core.frequency_response import Complex, Frequencies
from rths_nodes.core.kernels import ToNumber
from rths_nodes.core.samples import Array

Both = tuple[object, object]
_Section = tuple[float, float, float, float, float]
"""Coefficients b_0, b_1, b_2, a_1, a_2 of one section, with a_0 = 1."""


def section(k: _Section, s: tuple[float, float], value: float) -> tuple[tuple[float, float], float]:
    b0, b1, b2, a1, a2 = k
    one, two = s
    out = b0 * value + one
    return (b1 * value - a1 * out + two, b2 * value - a2 * out), out


def settled(k: _Section, value: float) -> tuple[float, float]:
    return (1.0 - k[0]) * value, (k[2] - k[4]) * value


def behind(first: ToNumber, second: ToNumber) -> ToNumber:
    def step(k: Both, s: Both, value: float) -> tuple[Both, float]:
        one, value = first(k[0], s[0], value)
        other, value = second(k[1], s[1], value)
        return (one, other), value

    return step


def both_settled(first: Callable[..., object], second: Callable[..., object]) -> Callable[..., Both]:
    def start(k: Both, value: float) -> Both:
        return first(k[0], value), second(k[1], value)

    return start


class Butterworth:
    """Low-pass filter of ``order`` and ``cutoff`` (Hz), sampled every ``dt`` (s). ``delay`` (s) applies at 0 Hz.

    Raises ValueError if a value is out of range.
    """

    def __init__(self, order: int, cutoff: float, dt: float) -> None:
        if order < 1 or not 0.0 < 2.0 * cutoff * dt < 1.0:
            raise ValueError(
                f"order = {order} must be >= 1, and cutoff = {cutoff:g} Hz must be > 0 and < {0.5 / dt:g} Hz"
            )
        c = math.tan(math.pi * cutoff * dt)
        damping = [2.0 * math.sin((2 * k - 1) * math.pi / (2 * order)) for k in range(1, order // 2 + 1)]
        self._sections = [_second(c, d) for d in damping] + ([_first(c)] if order % 2 else [])
        self.constants: object = self._sections[0]
        self.settled: Callable[..., object] = settled
        """``settled(constants, value) -> state``: the steady state for a constant ``value``."""
        self.kernel: ToNumber = section
        """``kernel(constants, state, value) -> state, filtered``"""
        for later in self._sections[1:]:
            self.constants = self.constants, later
            self.settled, self.kernel = both_settled(self.settled, settled), behind(self.kernel, section)
        self._dt = dt
        self.delay = 0.5 * dt * (sum(damping) + order % 2) / c
        self.start(0.0)

    def start(self, value: float) -> None:
        self._state = self.settled(self.constants, value)

    def step(self, value: float) -> float:
        self._state, output = self.kernel(self.constants, self._state, value)
        return float(output)

    def frequency_response(self, omega: Frequencies) -> Complex:
        z = np.exp(-1j * np.asarray(omega) * self._dt)
        response = np.ones_like(z)
        for b0, b1, b2, a1, a2 in self._sections:
            response = response * (b0 + b1 * z + b2 * z**2) / (1.0 + a1 * z + a2 * z**2)
        return response


def filtered(values: Array, low_pass: Butterworth | None) -> Array:
    """Return ``values`` filtered from the steady state of the first value; unchanged if ``low_pass`` is None."""
    if low_pass is None or not len(values):
        return values
    low_pass.start(float(values[0]))
    return np.array([low_pass.step(value) for value in values.tolist()])


def _second(c: float, d: float) -> _Section:
    """Return the coefficients of c^2 / (s^2 + d c s + c^2) after the bilinear transform."""
    a0 = 1.0 + d * c + c * c
    b = c * c / a0
    return b, 2.0 * b, b, 2.0 * (c * c - 1.0) / a0, (1.0 - d * c + c * c) / a0


def _first(c: float) -> _Section:
    b = c / (1.0 + c)
    return b, b, 0.0, (c - 1.0) / (1.0 + c), 0.0
