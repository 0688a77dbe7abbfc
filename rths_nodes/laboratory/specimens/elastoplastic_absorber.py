# SPDX-License-Identifier: Apache-2.0
"""Energy absorber of yielding steel plates: elastic, then plastic with hardening.

It models the energy absorber of a piping system tested by Horiuchi et al. (1996). The paper gives no numbers; the
defaults are chosen here.
"""

from __future__ import annotations

from rths_nodes.core.arithmetic import Numbers
from rths_nodes.core.checks import TestContext
from rths_nodes.core.decay import Decay, check_increments
from rths_nodes.core.parameters import number, params
from rths_nodes.core.specimen import Specimen, SpecimenKernel
from rths_nodes.mechanics.bouc_wen import SHARPEST, bouc_wen_decay, bouc_wen_slope

STEEL = 0.5
"""Bouc-Wen beta = gamma: unloading is elastic with the initial stiffness, as for steel."""


def force(k: Numbers, s: tuple[float], x: float, v: float) -> float:
    """Bouc-Wen force: k_e x + k_h z."""
    elastic, hysteretic, _, _ = k
    return elastic * x + hysteretic * s[0]


def rate(k: Numbers, s: tuple[float], x: float, v: float) -> tuple[float]:
    """Bouc-Wen rate: z' = v (1 - |z|^n (1 + sign(v z)) / 2) / x_y."""
    _, _, yield_displacement, exponent = k
    return (v * bouc_wen_slope(s[0], v, STEEL, STEEL, exponent) / yield_displacement,)


def constants(params: ElastoplasticAbsorber.Params) -> Numbers:
    """Return factors of d (N/m) and z (N), yield displacement (m) and q; the asymptotes meet at F_y."""
    eta, stiffness, yield_force = params.post_yield_ratio, params.stiffness, params.yield_force
    return eta * stiffness, (1.0 - eta) * yield_force, yield_force / stiffness, params.exponent


class ElastoplasticAbsorber(Specimen):
    """F = eta k d + (1 - eta) F_y z. Unloading: z' = v k / F_y; loading: z' = v k / F_y (1 - abs(z)^q).

    F_y is the force at which both asymptotes meet; a large q makes the transition sharp (bilinear).
    """

    @params
    class Params:
        stiffness: float = number("elastic stiffness k", "N/m", 2.0e6, more_than=0.0)
        yield_force: float = number("yield force F_y", "N", 10e3, more_than=0.0)
        post_yield_ratio: float = number(
            "post- to pre-yield stiffness eta", default=0.05, at_least=0.0, at_most=1.0
        )
        exponent: float = number("sharpness q of yielding", default=2.0, at_least=1.0, at_most=SHARPEST)

        def decay(self) -> Decay:
            return bouc_wen_decay(STEEL, STEEL, self.exponent, self.yield_force / self.stiffness)

        def fits(self, test: TestContext) -> None:
            ratio = f"yield_force / stiffness = {self.yield_force / self.stiffness:g} m"
            check_increments(self.decay(), ratio, test)

    KERNEL = SpecimenKernel(constants, lambda k: (0.0,), force, rate)
