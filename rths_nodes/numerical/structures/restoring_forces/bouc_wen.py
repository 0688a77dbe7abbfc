"""Bouc-Wen hysteresis, as written by Wen (1980) and in Chen & Ricles (2010), Eqs. (13), (14)."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from rths_nodes.core.bouc_wen import SHARPEST, bouc_wen_decay, bouc_wen_slope, check_shape
from rths_nodes.core.decay import LONGEST
from rths_nodes.core.parameters import number, params
from rths_nodes.core.samples import Array
from rths_nodes.numerical.structures.restoring_forces.elastic import elastic_stiffness, refuse_several, stated

INCREMENTS = 10
"""Increments of displacement per integration step, at least, each one RK4 step (NOTES, set-up CR-1)."""


class BoucWen:
    """r = eta k x + (1 - eta) k x_y z, Eq. (13), for one degree of freedom.

    z follows the displacement (Eq. 14 is rate independent) over each move by RK4, in ``INCREMENTS`` parts or,
    where they would be too long, in as many as z needs to come to its limit (beta + gamma)^(-1/q). It never passes
    that limit.
    """

    @params
    class Params:
        stiffness: float | None = elastic_stiffness()
        yield_displacement: float = number("yield displacement x_y", "m", more_than=0.0)
        post_yield_ratio: float = number(
            "post- to pre-yield stiffness eta", default=0.0, at_least=0.0, at_most=1.0
        )
        beta: float = number("shape parameter beta", default=0.5, at_least=0.0)
        gamma: float = number("shape parameter gamma", default=0.5, at_least=0.0)
        exponent: float = number("sharpness q of the transition", default=2.0, at_least=1.0, at_most=SHARPEST)

        def validate(self, path: str) -> None:
            """Refuses shapes without a limit of z, or without hysteresis."""
            check_shape(self.beta, self.gamma, path)

    state_count: ClassVar[int] = 1

    def __init__(self, params: Params, n_dof: int) -> None:
        refuse_several("bouc_wen", n_dof)
        self._p = params
        self.initial_stiffness = stiffness = stated("bouc_wen", params)
        self.elastic_energy = 0.5 * stiffness * params.yield_displacement**2
        self._elastic = params.post_yield_ratio * stiffness
        self._hysteretic = (1.0 - params.post_yield_ratio) * stiffness * params.yield_displacement
        self._decay = bouc_wen_decay(params.beta, params.gamma, params.exponent, params.yield_displacement)
        self._longest = INCREMENTS * LONGEST / self._decay.per_velocity
        """Longest move (m) for which ``INCREMENTS`` are enough."""
        self.reset()

    def reset(self) -> None:
        """Back to the virgin state."""
        self.x = self.z = 0.0

    def force(self, displacement: Array) -> Array:
        """Move to ``displacement`` (1,) m; force (1,) N there."""
        x = float(displacement[0])
        self._follow(x)
        return np.array([self._elastic * x + self._hysteretic * self.z])

    def _follow(self, x: float) -> None:
        p, z = self._p, self.z
        move = x - self.x
        increments, h = INCREMENTS, move / INCREMENTS / p.yield_displacement
        if abs(move) > self._longest:
            increments, h = self._divided(move)
        for _ in range(increments):
            k1 = bouc_wen_slope(z, move, p.beta, p.gamma, p.exponent)
            k2 = bouc_wen_slope(z + 0.5 * h * k1, move, p.beta, p.gamma, p.exponent)
            k3 = bouc_wen_slope(z + 0.5 * h * k2, move, p.beta, p.gamma, p.exponent)
            k4 = bouc_wen_slope(z + h * k3, move, p.beta, p.gamma, p.exponent)
            z += h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
        self.x, self.z = x, z

    def _divided(self, move: float) -> tuple[int, float]:
        """Increments of a long ``move`` (m), and their length in yield displacements; they end where z stands."""
        longest = min(abs(move), self._decay.settling / self._decay.per_velocity)
        increments = math.ceil(longest * self._decay.per_velocity / LONGEST)
        return increments, math.copysign(longest, move) / increments / self._p.yield_displacement
