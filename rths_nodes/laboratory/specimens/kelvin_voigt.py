# SPDX-License-Identifier: Apache-2.0
"""Spring and dashpot in parallel; the defaults are the equivalent damper of Chen & Ricles (2010).

With an exponent below 1 it is a fluid viscous damper as used in structures; 200 kN s/m and 1 kN/mm are the damper
of the TADC verification tests.
"""

from __future__ import annotations

from operator import attrgetter

from rths_nodes.core.arithmetic import Numbers, copysign, power
from rths_nodes.core.kernels import no_state
from rths_nodes.core.parameters import number, params
from rths_nodes.core.specimen import Specimen, SpecimenKernel, no_rates


def force(k: Numbers, s: tuple[()], x: float, v: float) -> float:
    """Spring and dashpot: k x + c v_r |v / v_r|^exponent sign(v)."""
    stiffness, damping, exponent, reference = k
    if exponent != 1.0:
        v = copysign(reference * power(abs(v / reference), exponent), v)
    return stiffness * x + damping * v


class KelvinVoigt(Specimen):
    """F = k d + c v; with an exponent a other than 1, k d + c v_0 sgn(v) (abs(v) / v_0)^a."""

    @params
    class Params:
        """The dashpot force is c v_0 at the reference velocity v_0, for any exponent."""

        stiffness: float = number("stiffness k", "N/m", 7.6e6, at_least=0.0)
        damping: float = number("damping c, at the reference velocity", "N s/m", 0.64e6, at_least=0.0)
        exponent: float = number("a of the velocity", default=1.0, more_than=0.0, at_most=5.0)
        reference_velocity: float = number(
            "velocity v_0 at which c holds; matters only with an exponent", "m/s", 1.0, more_than=0.0
        )

    KERNEL = SpecimenKernel(
        attrgetter("stiffness", "damping", "exponent", "reference_velocity"), no_state, force, no_rates
    )

    def __init__(self, params: Params) -> None:
        super().__init__(params)
        self.linear = (params.stiffness, params.damping) if params.exponent == 1.0 else None
