"""Bouc-Wen hysteresis that loses strength and stiffness with the energy that it has taken.

T. T. Baber, Y.-K. Wen: Random vibration of hysteretic, degrading systems. Journal of the Engineering Mechanics
Division (ASCE) 107, 1981. As BoucWen of OpenSees has it, whose z and energy have other units: z there is x_y z,
its gamma and beta are ours over x_y^q, its deltaNu and deltaEta ours over (1 - eta) k x_y^2, its deltaA is 0.
"""

from __future__ import annotations

import math

import numpy as np

from rths_nodes.core.bouc_wen import SHARPEST, bouc_wen_decay, bouc_wen_slope, check_shape
from rths_nodes.core.decay import LONGEST
from rths_nodes.core.parameters import number, params
from rths_nodes.core.samples import Array
from rths_nodes.numerical.structures.restoring_forces.elastic import elastic_stiffness, refuse_several, stated

LEAST = 10
"""Increments of displacement per integration step, at least, each one RK4 step; as without degradation."""
MOST = 2000
"""Increments of a move beyond which z is taken at its limit all along: the motion has run away."""


class DegradingBoucWen:
    """r = eta k x + (1 - eta) k x_y z; x_y dz/dx = (1 - nu (gamma sgn(dx z) + beta) abs(z)^q) / h.

    For one degree of freedom. With the energy e = integral of z dx / x_y, 1 for (1 - eta) k x_y^2, nu = 1 + d_nu e
    lowers the strength and h = 1 + d_h e the stiffness of the hysteretic part. z and e follow each move by RK4, in
    ten parts or in as many as the slope of z needs.
    """

    @params
    class Params:
        stiffness: float | None = elastic_stiffness()
        yield_displacement: float = number("yield displacement x_y", "m", more_than=0.0)
        post_yield_ratio: float = number(
            "post- to pre-yield stiffness eta", default=0.0, at_least=0.0, less_than=1.0
        )
        strength_degradation: float = number("loss of strength d_nu per energy e", "1", 0.0, at_least=0.0)
        stiffness_degradation: float = number("loss of stiffness d_h per energy e", "1", 0.0, at_least=0.0)
        beta: float = number("shape parameter beta", default=0.5, at_least=0.0)
        gamma: float = number("shape parameter gamma", default=0.5, at_least=0.0)
        exponent: float = number("sharpness q of the transition", default=2.0, at_least=1.0, at_most=SHARPEST)

        def validate(self, path: str) -> None:
            """Refuses shapes without a limit of z, or without hysteresis."""
            check_shape(self.beta, self.gamma, path)

    def __init__(self, params: Params, n_dof: int) -> None:
        refuse_several("degrading_bouc_wen", n_dof)
        p = params
        self.initial_stiffness = stiffness = stated("degrading_bouc_wen", p)
        self.elastic_energy = 0.5 * stiffness * p.yield_displacement**2
        self._elastic = p.post_yield_ratio * stiffness
        self._hysteretic = (1.0 - p.post_yield_ratio) * stiffness * p.yield_displacement
        self._bend = p.yield_displacement
        self._weaker, self._softer = p.strength_degradation, p.stiffness_degradation
        self._beta, self._gamma, self._exponent = p.beta, p.gamma, p.exponent
        self._rate = bouc_wen_decay(p.beta, p.gamma, p.exponent, p.yield_displacement).per_velocity
        self.reset()

    def reset(self) -> None:
        """Back to the virgin state."""
        self.x = self.z = self.e = 0.0

    def force(self, displacement: Array) -> Array:
        """Move to ``displacement`` (1,) m; force (1,) N there."""
        x = float(displacement[0])
        self._follow(x - self.x)
        self.x = x
        return np.array([self._elastic * x + self._hysteretic * self.z])

    def _degraded(self, e: float) -> tuple[float, float]:
        """nu and h at the energy ``e``."""
        return 1.0 + self._weaker * e, 1.0 + self._softer * e

    def _follow(self, move: float) -> None:
        nu, h = self._degraded(self.e)
        needed = abs(move) * self._rate * nu ** (1.0 / self._exponent) / (h * LONGEST)
        if not needed <= MOST:
            self._run_away(move, nu)
            return
        increments = max(LEAST, math.ceil(needed))
        s = move / increments / self._bend
        z, e = self.z, self.e
        for _ in range(increments):
            k1 = self._slope(z, e, move)
            z2 = z + 0.5 * s * k1
            k2 = self._slope(z2, e + 0.5 * s * z, move)
            z3 = z + 0.5 * s * k2
            k3 = self._slope(z3, e + 0.5 * s * z2, move)
            z4 = z + s * k3
            k4 = self._slope(z4, e + s * z3, move)
            e += s / 6.0 * (z + 2.0 * z2 + 2.0 * z3 + z4)
            z += s / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
        self.z, self.e = z, e

    def _slope(self, z: float, e: float, move: float) -> float:
        nu = 1.0 + self._weaker * e
        return bouc_wen_slope(z, move, nu * self._beta, nu * self._gamma, self._exponent) / (
            1.0 + self._softer * e
        )

    def _limit(self, nu: float) -> float:
        return float((nu * (self._beta + self._gamma)) ** (-1.0 / self._exponent))

    def _run_away(self, move: float, nu: float) -> None:
        """A move of a motion that is beyond all reason: finite, and nothing more."""
        self.e += self._limit(nu) * abs(move) / self._bend
        self.z = math.copysign(self._limit(self._degraded(self.e)[0]), move)
