# SPDX-License-Identifier: Apache-2.0
"""Inverse compensation of a constant delay (Chen 2007; Chen & Ricles 2010, Eq. 5b)."""

from __future__ import annotations

from rths_nodes.control.compensators.per_axis import Adaptable, PerAxis
from rths_nodes.control.compensators.taylor_lead import lead_parameter, response
from rths_nodes.core.frequency_response import Complex, Frequencies, taps
from rths_nodes.core.parameters import number, params


def led(k: tuple[()], s: tuple[float], alpha: float, x: float, v: float, a: float) -> tuple[tuple[float], float]:
    (before,) = s
    return (x,), alpha * x - (alpha - 1.0) * before


class Inverse(PerAxis):
    """Inverse of a first-order actuator: command_k = alpha target_k - (alpha - 1) target_{k-1}."""

    SOURCES = ("chen_2007", "chen_ricles_2010")

    @params
    class Params:
        alpha: float = number("delay constant alpha", "samples", 29.0, at_least=1.0)
        lead: float = lead_parameter()

    ADAPTABLE = Adaptable("alpha", lambda params, dt: (), lambda k: (0.0,), led)

    def frequency_response(self, omega: Frequencies) -> Complex:
        alpha = self._p.alpha
        return taps(omega, (alpha, 1.0 - alpha), (0.0, self._dt)) * response(self._p.lead, omega)
