# SPDX-License-Identifier: Apache-2.0
"""Bouc-Wen hysteresis that loses strength and stiffness with its dissipated energy.

Baber & Wen 1981. The model equals BoucWen of OpenSees with other units of z and energy. In OpenSees z is x_y z,
gamma and beta are divided by x_y^q, deltaNu and deltaEta are divided by (1 - eta) k x_y^2, and deltaA is 0.
"""

from __future__ import annotations

from typing import NamedTuple

from rths_nodes.core.arithmetic import ceiling, copysign, power
from rths_nodes.core.decay import LONGEST
from rths_nodes.core.declarations import AnyParams
from rths_nodes.core.kernels import Kernel
from rths_nodes.core.parameters import number, params
from rths_nodes.mechanics.bouc_wen import bouc_wen_decay, bouc_wen_slope
from rths_nodes.numerical.structures.laws import OfComponent
from rths_nodes.numerical.structures.restoring_forces.bouc_wen import BoucWen

LEAST = 10.0
"""Smallest number of increments per integration step; each increment is one RK4 step."""
MOST = 2000.0
"""Largest number of increments of a move. A move that needs more increments has diverged; z is then set to its
limit."""


class Constants(NamedTuple):
    elastic: float
    """Stiffness eta k, N/m."""
    hysteretic: float
    """Force (1 - eta) k x_y, N."""
    yield_displacement: float
    weaker: float  # d_nu
    softer: float  # d_h
    beta: float
    gamma: float
    exponent: float
    decay: float  # decay rate of z without degradation, 1/m


State = tuple[float, float, float]
"""Displacement x (m), hysteretic state z, and dissipated energy e."""


def constants(p: AnyParams) -> Constants:
    return Constants(
        p.post_yield_ratio * p.stiffness,
        (1.0 - p.post_yield_ratio) * p.stiffness * p.yield_displacement,
        p.yield_displacement,
        p.strength_degradation,
        p.stiffness_degradation,
        p.beta,
        p.gamma,
        p.exponent,
        bouc_wen_decay(p.beta, p.gamma, p.exponent, p.yield_displacement).per_velocity,
    )


def slope(k: Constants, z: float, e: float, move: float) -> float:
    """Return dz/dx times the yield displacement, with degradation."""
    _, _, _, weaker, softer, beta, gamma, exponent, _ = k
    nu = 1.0 + weaker * e
    return bouc_wen_slope(z, move, nu * beta, nu * gamma, exponent) / (1.0 + softer * e)


def limit(k: Constants, e: float) -> float:
    """Return the largest z for the dissipated energy ``e``."""
    _, _, _, weaker, _, beta, gamma, exponent, _ = k
    return 1.0 / power((1.0 + weaker * e) * (beta + gamma), 1.0 / exponent)


def force(k: Constants, s: State, x: float) -> tuple[State, float]:
    """Compute the degrading Bouc-Wen force after the move to ``x``."""
    elastic, hysteretic, bend, weaker, softer, _, _, exponent, decay = k
    before, z, e = s
    move = x - before
    nu, h = 1.0 + weaker * e, 1.0 + softer * e
    needed = abs(move) * decay * power(nu, 1.0 / exponent) / (h * LONGEST)
    if not needed <= MOST:  # the motion diverged: keep the result finite
        e += limit(k, e) * abs(move) / bend
        z = copysign(limit(k, e), move)
        return (x, z, e), elastic * x + hysteretic * z
    left = ceiling(needed)
    if left < LEAST:
        left = LEAST
    ds = move / left / bend
    half, sixth = 0.5 * ds, ds / 6.0
    while left > 0.0:
        k1 = slope(k, z, e, move)
        z2 = z + half * k1
        k2 = slope(k, z2, e + half * z, move)
        z3 = z + half * k2
        k3 = slope(k, z3, e + half * z2, move)
        z4 = z + ds * k3
        k4 = slope(k, z4, e + ds * z3, move)
        e += sixth * (z + 2.0 * z2 + 2.0 * z3 + z4)
        z += sixth * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
        left -= 1.0
    return (x, z, e), elastic * x + hysteretic * z


class DegradingBoucWen(OfComponent):
    """Force r = eta k x + (1 - eta) k x_y z of one degree of freedom, with the hysteretic state z.

    x_y dz/dx = (1 - nu (gamma sgn(dx z) + beta) abs(z)^q) / h. e = integral of z dx / x_y is the dissipated energy
    divided by (1 - eta) k x_y^2. nu = 1 + d_nu e reduces the strength and h = 1 + d_h e the stiffness of the
    hysteretic part.
    """

    SOURCES = ("baber_wen_1981",)

    @params
    class Params(BoucWen.Params):
        post_yield_ratio: float = number(
            "ratio eta of post-yield to pre-yield stiffness", default=0.0, at_least=0.0, less_than=1.0
        )
        strength_degradation: float = number("loss of strength d_nu per energy e", "1", 0.0, at_least=0.0)
        stiffness_degradation: float = number("loss of stiffness d_h per energy e", "1", 0.0, at_least=0.0)

    KERNEL = Kernel(constants, lambda k: (0.0, 0.0, 0.0), force)
    energy = staticmethod(BoucWen.energy)
