# SPDX-License-Identifier: Apache-2.0
"""Integral over time, by trapezoids from the first sample on: energy from power, way from velocity."""

from __future__ import annotations

from collections.abc import Sequence

from rths_nodes.core.dimensions import Unit, unit_of
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import params, texts

SECOND = unit_of("s")


@params
class OfOne:
    """Parameters of a quantity that is made from one expression."""

    of: tuple[str, ...] = texts("the expression that it is made from, in a list")

    def validate(self, path: str) -> None:
        """Refuse none and several."""
        if len(self.of) != 1:
            raise ConfigError(f"{path}.of: has {len(self.of)} expressions: must have one")


class Integral:
    """I_k = I_{k-1} + dt (x_k + x_{k-1}) / 2, from 0 at the first sample."""

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
