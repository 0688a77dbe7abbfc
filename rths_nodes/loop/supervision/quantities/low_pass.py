# SPDX-License-Identifier: Apache-2.0
"""Low-pass of first order: what a quantity is without its noise, late by 1 / (2 pi f)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rths_nodes.core.checks import TestContext
from rths_nodes.core.dimensions import Unit
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import number, params
from rths_nodes.loop.supervision.quantities.integral import OfOne


class LowPass:
    """y_k = y_{k-1} + a (x_k - y_{k-1}), a = 1 - exp(-2 pi f dt), from the first sample on."""

    @params
    class Params(OfOne):
        frequency: float = number("corner frequency f", "Hz", more_than=0.0)

        def fits(self, test: TestContext) -> None:
            """Raise ConfigError for a frequency above half the servo rate."""
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
