# SPDX-License-Identifier: Apache-2.0
"""First-order actuator of Chen & Ricles (2010), Eq. (3)."""

from __future__ import annotations

from rths_nodes.core.frequency_response import Complex, Frequencies, taps
from rths_nodes.core.kernels import Kernel
from rths_nodes.core.parameters import number, params
from rths_nodes.laboratory.actuators.specimen_path import Unloaded


def go(k: tuple[float, float], s: tuple[float], command: float) -> tuple[tuple[float], float, float]:
    """Eq. (3): d = d' + (c - d') / alpha, v = (d - d') / dt."""
    alpha, dt = k
    (before,) = s
    displacement = before + (command - before) / alpha
    return (displacement,), displacement, (displacement - before) / dt


class FirstOrder(Unloaded):
    """d_k = d_{k-1} + (c_k - d_{k-1}) / alpha; velocity by backward difference.

    alpha = 1 gives no delay; a ramp lags by alpha - 1 samples.
    """

    SOURCES = ("chen_ricles_2010",)

    @params
    class Params:
        alpha: float = number("delay constant alpha", "samples", 29.0, at_least=1.0)

    MOTION = Kernel(lambda params, dt: (params.alpha, dt), lambda k: (0.0,), go)

    def frequency_response(self, omega: Frequencies) -> Complex:
        (alpha, dt), _ = self.constants
        return 1.0 / taps(omega, (alpha, 1.0 - alpha), (0.0, dt))
