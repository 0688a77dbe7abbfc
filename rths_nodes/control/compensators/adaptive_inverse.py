# SPDX-License-Identifier: Apache-2.0
"""Adaptive inverse compensation (Chen & Ricles 2010, Eqs. 6-10; 2009).

The inverse compensation of Eq. (5b) with alpha = alpha_es + k_p TI + k_i integral TI, per axis: the case of
:mod:`rths_nodes.control.compensators.adaptive` that the paper tested.
"""

from __future__ import annotations

from typing import ClassVar

from rths_nodes.control.compensators.adaptive import PAPER_GAIN_PER_MM2, PER_MM2, Adaptive, LawParams, in_si
from rths_nodes.control.compensators.inverse import Inverse
from rths_nodes.control.compensators.per_axis import PerAxis
from rths_nodes.core.parameters import number, params


class AdaptiveInverse(Adaptive):
    """Inverse compensation whose delay constant follows the tracking indicator, per axis."""

    @params
    class Params(LawParams):
        alpha_es: float = number("estimated delay constant", "samples", 29.0, at_least=1.0)
        k_p_per_mm2: float = number("proportional gain on TI", "1/mm^2", PAPER_GAIN_PER_MM2, at_least=0.0)
        k_i_per_mm2_s: float | None = number(
            "integral gain on TI; left out it is 0.1/s times k_p, as in the paper",
            "1/(mm^2 s)",
            None,
            at_least=0.0,
        )

        def validate(self, path: str) -> None:
            LawParams.validate(self, path)
            self.refuse_outside(self.alpha_es, f"{path}.alpha_es")

        by_energy: ClassVar[bool] = False

        def si_gains(self) -> tuple[float, float]:
            """k_p (samples/m^2) and k_i (samples/(m^2 s))."""
            return in_si(self.k_p_per_mm2, self.k_i_per_mm2_s, PER_MM2)

    @classmethod
    def adapted(cls, params: Params) -> tuple[type[PerAxis], object]:
        return Inverse, Inverse.Params(alpha=params.alpha_es)
