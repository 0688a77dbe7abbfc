"""Restoring forces that yield sharply: bilinear with kinematic hardening, and elastic-plastic.

A spring beside one that yields (Prager). Exact for any path and any length of a move: between two displacements
the way is straight. Unloading is elastic over twice the yield force (Masing).
"""

from __future__ import annotations

import numpy as np

from rths_nodes.core.parameters import number, params
from rths_nodes.core.samples import Array
from rths_nodes.numerical.structures.restoring_forces.elastic import elastic_stiffness, refuse_several, stated


class _Yielding:
    """r = eta k x + s, s' = s + (1 - eta) k dx within +-(1 - eta) F_y, for one degree of freedom."""

    def __init__(self, stiffness: float, yield_force: float, ratio: float) -> None:
        self.initial_stiffness = stiffness
        self.elastic_energy = 0.5 * yield_force**2 / stiffness
        self._elastic, self._plastic = ratio * stiffness, (1.0 - ratio) * stiffness
        self._limit = (1.0 - ratio) * yield_force
        self.reset()

    def reset(self) -> None:
        """Back to the virgin state."""
        self._x = self._s = 0.0

    def force(self, displacement: Array) -> Array:
        """Move to ``displacement`` (1,) m; force (1,) N there."""
        x = float(displacement[0])
        s = self._s + self._plastic * (x - self._x)
        self._x, self._s = x, min(max(s, -self._limit), self._limit)
        return np.array([self._elastic * x + self._s])


class Bilinear(_Yielding):
    """r = eta k x + s, s' = s + (1 - eta) k dx within +-(1 - eta) F_y: kinematic hardening.

    Loaded for the first time it yields at F_y; k, F_y, eta are E_0, F_y, b of Steel01 in OpenSees.
    """

    @params
    class Params:
        stiffness: float | None = elastic_stiffness()
        yield_force: float = number("yield force F_y", "N", more_than=0.0)
        post_yield_ratio: float = number(
            "post- to pre-yield stiffness eta", default=0.0, at_least=0.0, less_than=1.0
        )

    def __init__(self, params: Params, n_dof: int) -> None:
        refuse_several("bilinear", n_dof)
        super().__init__(stated("bilinear", params), params.yield_force, params.post_yield_ratio)


class ElasticPlastic(_Yielding):
    """r' = r + k dx within +-F_y: elastic, then perfectly plastic."""

    @params
    class Params:
        stiffness: float | None = elastic_stiffness()
        yield_force: float = number("yield force F_y", "N", more_than=0.0)

    def __init__(self, params: Params, n_dof: int) -> None:
        refuse_several("elastic_plastic", n_dof)
        super().__init__(stated("elastic_plastic", params), params.yield_force, 0.0)
