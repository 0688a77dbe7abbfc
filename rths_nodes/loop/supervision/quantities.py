# SPDX-License-Identifier: Apache-2.0
"""Quantities with memory, such as integrals, for use in expressions of levels."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.expressions import Unit, unit_of
from rths_nodes.core.parameters import TestContext, number, params, texts

TABLE = {"integral": ":Integral", "low_pass": ":LowPass", "moving_rms": ":MovingRms"}
SECOND = unit_of("s")


@params
class OfOne:
    """Parameter of a quantity computed from one expression."""

    of: tuple[str, ...] = texts("expression from which the quantity is computed, as a list with one element")

    def validate(self, path: str) -> None:
        if len(self.of) != 1:
            raise ConfigError(f"{path}.of: has {len(self.of)} expressions, but must have exactly 1")


class Integral:
    """Integral over time by the trapezoidal rule, for example energy from power or travel from velocity.

    For values x_k of the expression, I_k = I_{k-1} + dt (x_k + x_{k-1}) / 2, and I = 0 at the first sample.
    """

    @params
    class Params(OfOne):
        pass

    def __init__(self, params: Params, dt: float) -> None:
        self._half = 0.5 * dt
        self._sum = 0.0
        self._before: float | None = None

    def unit(self, units: Sequence[Unit]) -> Unit:
        return units[0].times(SECOND)

    def step(self, values: Sequence[float]) -> float:
        value = values[0]
        if self._before is not None:
            self._sum += self._half * (value + self._before)
        self._before = value
        return self._sum


class LowPass:
    """First-order low-pass filter with the cutoff frequency f, Hz: attenuates noise, with a delay of 1 / (2 pi f).

    For values x_k of the expression, y_k = y_{k-1} + a (x_k - y_{k-1}) with a = 1 - exp(-2 pi f dt). At the first
    sample y = x.
    """

    @params
    class Params(OfOne):
        frequency: float = number("corner frequency f", "Hz", more_than=0.0)

        def fits(self, test: TestContext) -> None:
            if self.frequency >= 0.5 * test.servo_rate:
                raise ConfigError(f"frequency = {self.frequency:g} Hz: must be < {0.5 * test.servo_rate:g} Hz")

    def __init__(self, params: Params, dt: float) -> None:
        self._share = -math.expm1(-2.0 * math.pi * params.frequency * dt)
        self._value: float | None = None

    def unit(self, units: Sequence[Unit]) -> Unit:
        return units[0]

    def step(self, values: Sequence[float]) -> float:
        before = values[0] if self._value is None else self._value
        self._value = before + self._share * (values[0] - before)
        return self._value


class MovingRms:
    """Root mean square of the last samples, e.g. as the intensity of a vibration.

    The result is sqrt(sum x^2 / n) for the last n values x of the expression, which span ``duration`` s. Values
    before the first sample count as 0.
    """

    @params
    class Params(OfOne):
        duration: float = number("duration of the window", "s", more_than=0.0, at_most=60.0)

    def __init__(self, params: Params, dt: float) -> None:
        count = max(1, round(params.duration / dt))
        self._squares = deque([0.0] * count, maxlen=count)
        self._sum = self._coming = 0.0
        """``_sum``: sum of the squares in the window. It is updated, because a new sum would take too long.
        ``_coming``: sum of the latest squares. It replaces ``_sum`` once per window to remove rounding errors."""
        self._left, self._wild = count, 0
        """Number of samples until ``_coming`` replaces ``_sum``, and number of non-finite values in the window."""

    def unit(self, units: Sequence[Unit]) -> Unit:
        return units[0]

    def step(self, values: Sequence[float]) -> float:
        square, gone = values[0] * values[0], self._squares[0]
        self._squares.append(square)
        for value, sign in ((square, 1), (gone, -1)):
            if math.isfinite(value):
                self._sum += sign * value
            else:
                self._wild += sign
        self._coming += square if math.isfinite(square) else 0.0
        self._left -= 1
        if not self._left:
            self._sum, self._coming, self._left = self._coming, 0.0, len(self._squares)
        return math.nan if self._wild else math.sqrt(max(self._sum, 0.0) / len(self._squares))
