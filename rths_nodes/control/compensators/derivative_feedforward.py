# SPDX-License-Identifier: Apache-2.0
"""Derivative feedforward: Taylor series that extrapolates the target by the delay (Mercan; Jung & Shing 2006).

For the delay tau, order 1 is the inverse of a first-order lag. Order 2 is the inverse of a second-order lag with
the natural frequency sqrt(2) / tau (rad/s) and the damping ratio 1 / sqrt(2).
"""

from __future__ import annotations

import numpy as np

from rths_nodes.control.compensators.per_axis import Adaptable, PerAxis
from rths_nodes.control.compensators.taylor_lead import acceleration_cautions, lead_parameter, response
from rths_nodes.core.checks import TestContext
from rths_nodes.core.frequency_response import Complex, Frequencies
from rths_nodes.core.kernels import no_state
from rths_nodes.core.parameters import integer, number, params


def led(k: tuple[bool], s: tuple[()], delay: float, x: float, v: float, a: float) -> tuple[tuple[()], float]:
    """Command for the ``delay``, by a Taylor series of order 1 or 2."""
    (second_order,) = k
    if second_order:
        return s, x + delay * (v + 0.5 * delay * a)
    return s, x + delay * v


class DerivativeFeedforward(PerAxis):
    """Adds delay times velocity to the target and, for order 2, half the squared delay times acceleration."""

    SOURCES = ("jung_shing_2006", "mercan_2007")

    @params
    class Params:
        delay: float = number("delay to compensate, as identified, including the transport", "s", at_least=0.0)
        order: int = integer(
            "order of the highest derivative of the target in the law", default=1, at_least=1, at_most=2
        )
        lead: float = lead_parameter()

        def spans(self) -> dict[str, float]:
            return {"delay": self.delay}

        def cautions(self, test: TestContext) -> list[str]:
            return acceleration_cautions(test) if self.order > 1 else []

    ADAPTABLE = Adaptable("delay", lambda params, dt: (params.order > 1,), no_state, led)

    def frequency_response(self, omega: Frequencies) -> Complex:
        ahead = 1j * omega * self._p.delay
        transfer = 1.0 + ahead + (0.5 * ahead**2 if self._p.order > 1 else 0.0)
        return np.asarray(transfer * response(self._p.lead, omega))
