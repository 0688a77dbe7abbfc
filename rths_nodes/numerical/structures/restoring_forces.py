"""Restoring forces of the numerical substructure, with memory.

Bouc-Wen as written by Wen (1980) and in Chen & Ricles (2010), Eqs. (13), (14).
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from rths_nodes.core.bouc_wen import bouc_wen_slope
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import number, params
from rths_nodes.core.samples import Array

TABLE = {
    "linear": ":Linear",
    "bouc_wen": ":BoucWen",
}

INCREMENTS = 10
"""Increments of displacement per integration step, each one RK4 step (NOTES, set-up CR-1)."""


class Linear:
    """Linear elastic restoring force k x, per degree of freedom."""

    @params
    class Params:
        stiffness: float = number("elastic stiffness", "N/m", more_than=0.0)

    def __init__(self, params: Params, n_dof: int) -> None:
        self.initial_stiffness = params.stiffness
        self.elastic_energy = 0.0

    def force(self, displacement: Array) -> Array:
        return self.initial_stiffness * displacement

    def reset(self) -> None:
        """Nothing to forget."""


class BoucWen:
    """r = eta k x + (1 - eta) k x_y z, Eq. (13), for one degree of freedom.

    z follows the displacement (Eq. 14 is rate independent) over each move by RK4 in ``INCREMENTS`` parts.
    """

    @params
    class Params:
        stiffness: float = number("elastic stiffness k", "N/m", more_than=0.0)
        yield_displacement: float = number("yield displacement x_y", "m", more_than=0.0)
        post_yield_ratio: float = number(
            "post- to pre-yield stiffness eta", default=0.0, at_least=0.0, at_most=1.0
        )
        beta: float = number("shape parameter beta", default=0.5, at_least=0.0)
        gamma: float = number("shape parameter gamma", default=0.5, at_least=0.0)
        exponent: float = number("sharpness q of the transition", default=2.0, at_least=1.0)

        def validate(self, path: str) -> None:
            if self.beta + self.gamma <= 0.0:
                raise ConfigError(
                    f"{path}.beta + gamma = {self.beta + self.gamma:g}: must be > 0, or it never yields"
                )

    state_count: ClassVar[int] = 1

    def __init__(self, params: Params, n_dof: int) -> None:
        if n_dof != 1:
            raise ConfigError(f"restoring_force bouc_wen: has 1 degree of freedom, the structure has {n_dof}")
        self._p = params
        self.initial_stiffness = params.stiffness
        self.elastic_energy = 0.5 * params.stiffness * params.yield_displacement**2
        self._elastic = params.post_yield_ratio * params.stiffness
        self._hysteretic = (1.0 - params.post_yield_ratio) * params.stiffness * params.yield_displacement
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
        h = move / INCREMENTS / p.yield_displacement
        for _ in range(INCREMENTS):
            k1 = bouc_wen_slope(z, move, p.beta, p.gamma, p.exponent)
            k2 = bouc_wen_slope(z + 0.5 * h * k1, move, p.beta, p.gamma, p.exponent)
            k3 = bouc_wen_slope(z + 0.5 * h * k2, move, p.beta, p.gamma, p.exponent)
            k4 = bouc_wen_slope(z + h * k3, move, p.beta, p.gamma, p.exponent)
            z += h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
        self.x, self.z = x, z
