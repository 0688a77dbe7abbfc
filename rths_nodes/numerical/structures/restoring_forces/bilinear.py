# SPDX-License-Identifier: Apache-2.0
"""Restoring forces with a sharp yield point: bilinear with kinematic hardening, and elastic-plastic.

The model is a spring in parallel with a yielding spring (Prager), and is exact for any path. Unloading is elastic
over twice the yield force (Masing).
"""

from __future__ import annotations

from rths_nodes.core.declarations import AnyParams
from rths_nodes.core.kernels import Kernel
from rths_nodes.core.parameters import number, params
from rths_nodes.numerical.structures.laws import OfComponent, elastic_stiffness

Constants = tuple[float, float, float]
"""Stiffness of the elastic spring (N/m); stiffness (N/m) and yield force (N) of the yielding spring."""
State = tuple[float, float]
"""Displacement x (m) and force s (N) of the yielding spring."""


def force(k: Constants, state: State, x: float) -> tuple[State, float]:
    """Compute the bilinear force after the move to ``x``."""
    elastic, plastic, limit = k
    before, s = state
    s += plastic * (x - before)
    if s < -limit:
        s = -limit
    if s > limit:
        s = limit
    return (x, s), elastic * x + s


def constants(p: AnyParams, ratio: float) -> Constants:
    return ratio * p.stiffness, (1.0 - ratio) * p.stiffness, (1.0 - ratio) * p.yield_force


class _Yielding(OfComponent):
    @staticmethod
    def energy(params: AnyParams) -> float:
        return float(0.5 * params.yield_force**2 / params.stiffness)


class Bilinear(_Yielding):
    """Kinematic hardening: r = eta k x + s, where s is the force of a yielding spring.

    A move dx changes s by (1 - eta) k dx within +-(1 - eta) F_y. The force first yields at F_y. In Steel01 of
    OpenSees, k, F_y and eta are E_0, F_y and b.
    """

    @params
    class Params:
        stiffness: float | None = elastic_stiffness()
        yield_force: float = number("yield force F_y", "N", more_than=0.0)
        post_yield_ratio: float = number(
            "ratio eta of post-yield to pre-yield stiffness", default=0.0, at_least=0.0, less_than=1.0
        )

    KERNEL = Kernel(lambda p: constants(p, p.post_yield_ratio), lambda k: (0.0, 0.0), force)


class ElasticPlastic(_Yielding):
    """Elastic, then perfectly plastic force, which a move dx changes by k dx within +-F_y."""

    @params
    class Params:
        stiffness: float | None = elastic_stiffness()
        yield_force: float = number("yield force F_y", "N", more_than=0.0)

    KERNEL = Kernel(lambda p: constants(p, 0.0), lambda k: (0.0, 0.0), force)
