# SPDX-License-Identifier: Apache-2.0
"""No compensation: the target is the command."""

from __future__ import annotations

from rths_nodes.control.compensators.per_axis import PerAxis, lead_parameter
from rths_nodes.core.frequency_response import Complex, Frequencies
from rths_nodes.core.kernels import Kernel, no_state
from rths_nodes.core.parameters import params


def step(
    k: tuple[()], s: tuple[()], x: float, v: float, a: float, m: float, f: float, rests: bool, preparing: bool
) -> tuple[tuple[()], float]:
    return s, x


class NoCompensation(PerAxis):
    """No compensation: the command is the target."""

    @params
    class Params:
        lead: float = lead_parameter()

    KERNEL = Kernel(lambda params, dt: (), no_state, step)

    def frequency_response(self, omega: Frequencies) -> Complex:
        return self.lead_response(omega)
