"""Adaptive inverse compensation (Chen & Ricles 2010, Eqs. 6-10; 2009).

The inverse compensation of Eq. (5b) with alpha = alpha_es + k_p TI + k_i integral TI, per axis: the case of
:mod:`rths_nodes.control.compensators.adaptive` that the paper tested. The equations stand there.
"""

from __future__ import annotations

from rths_nodes.control.compensators.adaptive import PAPER_GAIN_PER_MM2, Adaptive, LawParams
from rths_nodes.core.parameters import number, params
from rths_nodes.core.strict import as_data, build


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
            """Refuses limits that leave no room, or not for the estimate."""
            LawParams.validate(self, path)
            self.refuse_outside(self.alpha_es, f"{path}.alpha_es")

    def __init__(self, params: Params, dt: float, n_axes: int) -> None:
        data = as_data(params)
        data.pop("type", None)
        inverse = {"type": "inverse", "alpha": data.pop("alpha_es")}
        super().__init__(build(Adaptive.Params, data | {"compensator": inverse}, "compensator"), dt, n_axes)
