# SPDX-License-Identifier: Apache-2.0
"""Elastomeric damper that slips: rubber at small amplitudes, friction at large ones.

The defaults are fitted to the data of Chen & Ricles (2010; 2009) on their damper (Fig. 6): the loss factor is 0.4
to 0.5 at small amplitudes, depending on frequency, and rises to 1.2 at large ones through friction; the secant
stiffness falls with amplitude; the equivalent viscous damping of frame and damper is 0.18; the damper carries 44
to 55 % of the story shear.
"""

from __future__ import annotations

from operator import attrgetter

from rths_nodes.core.arithmetic import Numbers, power
from rths_nodes.core.checks import TestContext
from rths_nodes.core.decay import Decay, check_increments
from rths_nodes.core.parameters import number, params
from rths_nodes.core.specimen import Specimen, SpecimenKernel
from rths_nodes.mechanics.bouc_wen import SHARPEST


def force(k: Numbers, s: tuple[float, float], x: float, v: float) -> float:
    """Force, N; the states are the deformation u of the rubber (m) and the relaxing force q (N)."""
    return k[0] * s[0] + s[1]


def rate(k: Numbers, s: tuple[float, float], x: float, v: float) -> tuple[float, float]:
    """Rates of rubber deformation, v (1 - |f / f_slip|^n), and of its relaxing force, k_q u' - q / tau."""
    stiffness, relaxing, time, slip_force, exponent = k
    u, q = s
    ratio = (stiffness * u + q) / slip_force
    sticking = 1.0
    if ratio * v > 0.0:
        # never negative: a long step that overshoots the slip force must not reverse the rubber
        sticking = 1.0 - power(abs(ratio), exponent) if abs(ratio) < 1.0 else 0.0
    deformation = v * sticking
    return deformation, relaxing * deformation - q / time


class SlippingElastomeric(Specimen):
    """A standard linear solid in series with a friction slider.

        F = k_1 u + q,  q' = k_m u' - q / tau,  u' = v (1 - (abs(F) / F_s)^n) while loading, u' = v while unloading

    u is the deformation of the rubber, d - u the slip. At small amplitudes u = d: a spring k_1 and a Maxwell
    element of spring k_m and relaxation time tau in parallel. At large amplitudes F stays at the slip force F_s.
    """

    @params
    class Params:
        stiffness: float = number("stiffness k_1 of the rubber, moved slowly", "N/m", 17.0e6, more_than=0.0)
        relaxing_stiffness: float = number("stiffness k_m that relaxes", "N/m", 27.0e6, at_least=0.0)
        relaxation_time: float = number("time tau in which it relaxes", "s", 0.085, more_than=0.0)
        slip_force: float = number("force F_s at which it slips", "N", 108e3, more_than=0.0)
        exponent: float = number("sharpness n of slipping", default=2.0, at_least=1.0, at_most=SHARPEST)

        def decay(self) -> Decay:
            """Return the combined decay of both modes: the rubber relaxes, and slip returns the force to F_s."""
            stiffness = self.stiffness + self.relaxing_stiffness
            return Decay(1.0 / self.relaxation_time, stiffness * self.exponent / self.slip_force)

        def fits(self, test: TestContext) -> None:
            ratio = f"relaxation_time = {self.relaxation_time:g} s, slip_force = {self.slip_force:g} N"
            check_increments(self.decay(), ratio, test)

    KERNEL = SpecimenKernel(
        attrgetter("stiffness", "relaxing_stiffness", "relaxation_time", "slip_force", "exponent"),
        lambda k: (0.0, 0.0),
        force,
        rate,
    )
