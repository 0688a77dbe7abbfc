"""A damper whose voltage is switched at random: for the identification of a rig under semi-active conditions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rths_nodes.core import channels
from rths_nodes.core.parameters import integer, number, params
from rths_nodes.core.protocols import Structure
from rths_nodes.core.samples import Array, Measurement

BLOCK = 4096
"""Decisions drawn at a time."""


class RandomSwitching:
    """Full voltage or none, drawn anew after each interval (Phillips & Spencer 2012, section 3.1)."""

    @params
    class Params:
        """Parameters of the switching."""

        voltage: float = number("put on in half of the intervals", "V", 2.25, more_than=0.0)
        interval: float = number("between two decisions, rounded to whole steps", "s", 0.05, more_than=0.0)
        seed: int = integer("seed of the random decisions", default=1, at_least=0)

    inputs: tuple[str, ...] = (channels.DAMPER_VOLTAGE,)

    def __init__(self, params: Params, structure: Structure | None, dt: float, measured: Sequence[str]) -> None:
        self._seed = params.seed
        self._voltages = np.zeros(1), np.array([params.voltage])
        self._steps = max(1, round(params.interval / dt))
        self.reset()

    def reset(self) -> None:
        """To the first decision."""
        self._generator = np.random.default_rng(self._seed)
        self._index = 0

    def step(self, measured: Measurement, ground_acceleration: float) -> Array:
        """Voltage ``(1,)`` V."""
        interval, within = divmod(self._index, self._steps)
        if within == 0 and interval % BLOCK == 0:
            self._decisions = self._generator.integers(0, 2, BLOCK).tolist()
        self._index += 1
        return self._voltages[self._decisions[interval % BLOCK]]
