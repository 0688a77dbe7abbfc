# SPDX-License-Identifier: Apache-2.0
"""Dashpot and spring in series (Maxwell), optionally with a parallel spring: a fluid damper with its brace."""

from __future__ import annotations

from operator import attrgetter

from rths_nodes.core.arithmetic import Numbers
from rths_nodes.core.decay import ROUNDED_OFF, Decay
from rths_nodes.core.parameters import number, params
from rths_nodes.core.specimen import Specimen, SpecimenKernel


def force(k: Numbers, s: tuple[float], x: float, v: float) -> float:
    """Force, N; the state is the force f (N) of spring and dashpot."""
    _, _, parallel = k
    return s[0] + parallel * x


def rate(k: Numbers, s: tuple[float], x: float, v: float) -> tuple[float]:
    """Rate of the force of spring and dashpot in series: f' = k (v - f / c)."""
    damping, series, _ = k
    return (series * (v - s[0] / damping),)


class MaxwellDamper(Specimen):
    """F = f + k_p d with f' = k_s (v - f / c): a dashpot in slow motion, a spring in fast motion."""

    @params
    class Params:
        """The relaxation time is c / k_s."""

        damping: float = number("damping c", "N s/m", 0.2e6, more_than=0.0)
        series_stiffness: float = number("spring k_s in series", "N/m", 20e6, more_than=0.0)
        parallel_stiffness: float = number("spring k_p in parallel with both", "N/m", 0.0, at_least=0.0)

        def decay(self) -> Decay:
            return Decay(self.series_stiffness / self.damping, settling=ROUNDED_OFF)

    KERNEL = SpecimenKernel(
        attrgetter("damping", "series_stiffness", "parallel_stiffness"), lambda k: (0.0,), force, rate
    )
