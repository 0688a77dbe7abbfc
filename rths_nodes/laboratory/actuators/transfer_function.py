# SPDX-License-Identifier: Apache-2.0
"""Actuator defined by an identified transfer function from command to displacement."""

from __future__ import annotations

import numpy as np

from rths_nodes.core.checks import TestContext
from rths_nodes.core.errors import ConfigError, show
from rths_nodes.core.parameters import params, vector
from rths_nodes.core.samples import Array
from rths_nodes.core.specimen import Specimen
from rths_nodes.laboratory.actuators.held_plant import HeldPlant, Plant, hold_parameter

HIGHEST_ORDER = 12
"""Highest order; beyond it the rounding of coefficients alone moves the poles."""
GAIN_TOLERANCE = 0.01


class TransferFunction(HeldPlant):
    """G(s) = numerator / denominator, stable and proper, solved exactly; highest power of s (rad/s) first.

    ``dc_gain`` is G(0), the ratio of final displacement to a constant command.
    """

    @params
    class Params:
        """Coefficients as in scipy.signal: ``[1.0, 2.0]`` is s + 2."""

        numerator: tuple[float, ...] = vector("coefficients of the numerator, highest power first", "1")
        denominator: tuple[float, ...] = vector("coefficients of the denominator, highest power first", "1")
        hold: str = hold_parameter()

        def validate(self, path: str) -> None:
            key, order = f"{path}.denominator", len(self.denominator) - 1
            if not 1 <= order <= HIGHEST_ORDER:
                raise ConfigError(f"{key}: the order is {order}: must be 1 to {HIGHEST_ORDER}")
            if self.denominator[0] == 0.0 or self.denominator[-1] == 0.0:
                raise ConfigError(
                    f"{key} = {show(list(self.denominator))}: the first and the last coefficient must not be 0"
                )
            degree = len(_trimmed(self.numerator)) - 1
            if degree < 0:
                raise ConfigError(f"{path}.numerator: must not be 0")
            if degree > order:
                raise ConfigError(f"{path}.numerator: the order is {degree}: must be <= {order} (proper)")
            if degree == order and self.hold != "ramp":
                raise ConfigError(
                    f"{path}.numerator: has the order of the denominator: the actuator would jump; use hold: ramp"
                )
            _, scaled, rate = _scaled(self)
            poles = rate * np.roots(scaled)
            worst = poles[np.argmax(poles.real)]
            if worst.real >= 0.0:
                raise ConfigError(f"{key}: has a pole at {worst:.4g} rad/s: the real part must be < 0 (stable)")

        def cautions(self, test: TestContext) -> list[str]:
            gain = self.numerator[-1] / self.denominator[-1]
            if abs(gain - 1.0) <= GAIN_TOLERANCE:
                return []
            return [f"numerator[-1] / denominator[-1] = {gain:.4g}: it settles at this multiple of its command"]

    def __init__(self, params: Params, dt: float, specimen: Specimen) -> None:
        super().__init__(params, dt, specimen)
        self.dc_gain = params.numerator[-1] / params.denominator[-1]

    @classmethod
    def plant_of(cls, params: Params) -> Plant:
        numerator, denominator, rate = _scaled(params)
        n = len(denominator) - 1
        a = np.eye(n, k=-1)
        a[0] = -denominator[1:]
        b = np.zeros(n)
        b[0] = 1.0
        c, d = numerator[1:] - numerator[0] * denominator[1:], float(numerator[0])
        return Plant(rate * a, rate * b, c, d, params.hold)


def _trimmed(coefficients: tuple[float, ...]) -> Array:
    return np.trim_zeros(np.array(coefficients), "f")


def _scaled(params: TransferFunction.Params) -> tuple[Array, Array, float]:
    """Return both polynomials in s / rate, of equal length and with a monic denominator, and rate (rad/s).

    The rate is the geometric mean of the poles; coefficients in s would scale the companion matrix badly.
    """
    denominator = np.array(params.denominator)
    order = len(denominator) - 1
    rate = float(np.exp((np.log(abs(denominator[-1])) - np.log(abs(denominator[0]))) / order))
    numerator = _trimmed(params.numerator)
    numerator = np.concatenate([np.zeros(order + 1 - len(numerator)), numerator])
    scale = denominator[0] * rate ** np.arange(order + 1)
    return numerator / scale, denominator / scale, rate
