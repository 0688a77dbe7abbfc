"""Energy absorber of steel plates that yield: elastic, then plastic with hardening.

After the energy absorber of a piping system tested by Horiuchi et al. (1996). The paper gives no numbers of it:
the defaults are ours.
"""

from __future__ import annotations

from collections.abc import Sequence

from rths_nodes.core.bouc_wen import SHARPEST, bouc_wen_decay, bouc_wen_slope
from rths_nodes.core.checks import TestContext
from rths_nodes.core.decay import Decay, check_increments
from rths_nodes.core.parameters import number, params

STEEL = 0.5
"""Bouc-Wen beta = gamma: unloading is elastic with the first stiffness, as steel does it."""


class ElastoplasticAbsorber:
    """F = eta k d + (1 - eta) F_y z with z' = v k / F_y while unloading; loading, that times 1 - abs(z)^q.

    F_y is the force at which both asymptotes meet; a large q makes the bend sharp (bilinear).
    """

    @params
    class Params:
        """Parameters of an absorber."""

        stiffness: float = number("elastic stiffness k", "N/m", 2.0e6, more_than=0.0)
        yield_force: float = number("yield force F_y", "N", 10e3, more_than=0.0)
        post_yield_ratio: float = number(
            "post- to pre-yield stiffness eta", default=0.05, at_least=0.0, at_most=1.0
        )
        exponent: float = number("sharpness q of yielding", default=2.0, at_least=1.0, at_most=SHARPEST)

        def decay(self) -> Decay:
            """Of the hysteretic part."""
            return bouc_wen_decay(STEEL, STEEL, self.exponent, self.yield_force / self.stiffness)

        def fits(self, test: TestContext) -> None:
            """Refuses a yield displacement that the velocity limit passes too fast for the servo rate."""
            words = f"yield_force / stiffness = {self.yield_force / self.stiffness:g} m"
            check_increments(self.decay(), words, test)

    initial_state: tuple[float, ...] = (0.0,)

    def __init__(self, params: Params) -> None:
        self._elastic = params.post_yield_ratio * params.stiffness
        self._hysteretic = (1.0 - params.post_yield_ratio) * params.yield_force
        self._yield_displacement = params.yield_force / params.stiffness
        self._exponent = params.exponent
        self.decay = params.decay()

    def force(self, state: Sequence[float], displacement: float, velocity: float) -> float:
        return self._elastic * displacement + self._hysteretic * state[0]

    def rate(self, state: Sequence[float], displacement: float, velocity: float) -> tuple[float, ...]:
        slope = bouc_wen_slope(state[0], velocity, STEEL, STEEL, self._exponent)
        return (velocity * slope / self._yield_displacement,)
