# SPDX-License-Identifier: Apache-2.0
"""Voltages of a damper that do not depend on measurements: constant, or switched at random for identification."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rths_nodes.core.control import SemiActiveOfKernel
from rths_nodes.core.kernels import Kernel, no_state
from rths_nodes.core.parameters import integer, number, params
from rths_nodes.core.protocols import Structure
from rths_nodes.core.samples import Array

BLOCK = 4096


def constant(
    k: tuple[float], s: tuple[()], auxiliary: Array, ground_acceleration: float, chance: float
) -> tuple[tuple[()], tuple[float]]:
    return s, k


class Passive(SemiActiveOfKernel):
    """Constant voltage during the test: 0 V is "passive off", the largest voltage is "passive on"."""

    @params
    class Params:
        voltage: float = number("voltage at the current driver", "V", 0.0, at_least=0.0)

    KERNEL = Kernel(lambda params, *_: (params.voltage,), no_state, constant)


def switched(
    k: tuple[float], s: tuple[()], auxiliary: Array, ground_acceleration: float, chance: float
) -> tuple[tuple[()], tuple[float]]:
    (voltage,) = k
    return s, (voltage if chance > 0.0 else 0.0,)


class RandomSwitching(SemiActiveOfKernel):
    """Full or zero voltage, drawn at random for each interval (Phillips & Spencer 2012, section 3.1)."""

    @params
    class Params:
        voltage: float = number(
            "voltage in about half of the intervals; 0 V is applied in the others", "V", 2.25, more_than=0.0
        )
        interval: float = number(
            "interval between two decisions, rounded to whole steps", "s", 0.05, more_than=0.0
        )
        seed: int = integer("seed of the random decisions", default=1, at_least=0)

    KERNEL = Kernel(lambda params, *_: (params.voltage,), no_state, switched)

    def __init__(self, params: Params, structure: Structure | None, dt: float, measured: Sequence[str]) -> None:
        self._seed, self._steps = params.seed, max(1, round(params.interval / dt))
        super().__init__(params, structure, dt, measured)

    def reset(self) -> None:
        super().reset()
        self._generator = np.random.default_rng(self._seed)
        self._index = 0

    def chance(self) -> float:
        interval, within = divmod(self._index, self._steps)
        if within == 0 and interval % BLOCK == 0:
            self._decisions = self._generator.integers(0, 2, BLOCK).tolist()
        self._index += 1
        return float(self._decisions[interval % BLOCK])
