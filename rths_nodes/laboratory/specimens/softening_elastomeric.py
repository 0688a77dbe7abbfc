# SPDX-License-Identifier: Apache-2.0
"""Elastomeric damper whose stiffness falls and whose loss factor grows with the amplitude."""

from __future__ import annotations

from operator import attrgetter

from rths_nodes.core.arithmetic import Numbers
from rths_nodes.core.checks import TestContext
from rths_nodes.core.decay import Decay, check_increments
from rths_nodes.core.parameters import number, params
from rths_nodes.core.specimen import Specimen, SpecimenKernel
from rths_nodes.mechanics.bouc_wen import SHARPEST, bouc_wen_decay, bouc_wen_slope, check_shape


def force(k: Numbers, s: tuple[float], x: float, v: float) -> float:
    """Force: k x + c v + f z."""
    stiffness, damping, friction_force, _, _, _, _ = k
    return stiffness * x + damping * v + friction_force * s[0]


def rate(k: Numbers, s: tuple[float], x: float, v: float) -> tuple[float]:
    """Bouc-Wen rate of the friction: z' = v (1 - (gamma sign(v z) + beta) |z|^n) / x_slip."""
    _, _, _, slip_displacement, beta, gamma, exponent = k
    return (v * bouc_wen_slope(s[0], v, beta, gamma, exponent) / slip_displacement,)


class SofteningElastomeric(Specimen):
    """F = k d + c v + f z, z Bouc-Wen: friction dominates at small, stiffness at large displacements."""

    @params
    class Params:
        stiffness: float = number("stiffness k that remains", "N/m", 2.0e6, at_least=0.0)
        damping: float = number("damping c", "N s/m", 0.20e6, at_least=0.0)
        friction_force: float = number("force f of the hysteretic part", "N", 60e3, at_least=0.0)
        slip_displacement: float = number("displacement x_f at which it slips", "m", 60e-3 / 5.6, more_than=0.0)
        beta: float = number("Bouc-Wen beta", default=0.5, at_least=0.0)
        gamma: float = number("Bouc-Wen gamma", default=0.5, at_least=0.0)
        exponent: float = number("Bouc-Wen q", default=1.0, at_least=1.0, at_most=SHARPEST)

        def validate(self, path: str) -> None:
            if self.beta + self.gamma > 0.0:
                check_shape(self.beta, self.gamma, path)

        def decay(self) -> Decay:
            return bouc_wen_decay(self.beta, self.gamma, self.exponent, self.slip_displacement)

        def fits(self, test: TestContext) -> None:
            check_increments(self.decay(), f"slip_displacement = {self.slip_displacement:g} m", test)

    KERNEL = SpecimenKernel(
        attrgetter("stiffness", "damping", "friction_force", "slip_displacement", "beta", "gamma", "exponent"),
        lambda k: (0.0,),
        force,
        rate,
    )
