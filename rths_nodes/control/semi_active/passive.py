# SPDX-License-Identifier: Apache-2.0
"""A constant voltage at the inputs of the rig."""

from __future__ import annotations

from rths_nodes.core.control import SemiActiveOfKernel
from rths_nodes.core.kernels import Kernel, no_state
from rths_nodes.core.parameters import number, params
from rths_nodes.core.samples import Array


def step(
    k: tuple[float], s: tuple[()], auxiliary: Array, ground_acceleration: float, chance: float
) -> tuple[tuple[()], tuple[float]]:
    return s, k


class Passive(SemiActiveOfKernel):
    """Constant voltage during the test: 0 V is "passive off", the largest voltage is "passive on"."""

    @params
    class Params:
        voltage: float = number("voltage at the current driver", "V", 0.0, at_least=0.0)

    KERNEL = Kernel(lambda params, *_: (params.voltage,), no_state, step)
