# SPDX-License-Identifier: Apache-2.0
"""Bouc-Wen hysteresis (Wen 1980; Chen & Ricles 2010, Eqs. 13 and 14)."""

from __future__ import annotations

from typing import NamedTuple

from rths_nodes.core.arithmetic import ceiling, copysign
from rths_nodes.core.decay import LONGEST
from rths_nodes.core.declarations import AnyParams
from rths_nodes.core.kernels import Kernel
from rths_nodes.core.parameters import number, params
from rths_nodes.mechanics.bouc_wen import SHARPEST, bouc_wen_decay, bouc_wen_slope, check_shape
from rths_nodes.numerical.structures.laws import OfComponent, elastic_stiffness

INCREMENTS = 10.0
"""Smallest number of increments per integration step; each is one RK4 step (NOTES, set-up CR-1)."""


class Constants(NamedTuple):
    """Constants of the force. ``longest`` is the longest move (m) for which ``INCREMENTS`` suffice."""

    elastic: float
    """Stiffness eta k, N/m."""
    hysteretic: float
    """Force (1 - eta) k x_y, N."""
    yield_displacement: float
    beta: float
    gamma: float
    exponent: float
    longest: float
    decay: float
    """Decay rate of z, 1/m."""
    settling: float
    """Number of decay times within which z reaches its limit."""


State = tuple[float, float]


def constants(p: AnyParams) -> Constants:
    decay = bouc_wen_decay(p.beta, p.gamma, p.exponent, p.yield_displacement)
    return Constants(
        p.post_yield_ratio * p.stiffness,
        (1.0 - p.post_yield_ratio) * p.stiffness * p.yield_displacement,
        p.yield_displacement,
        p.beta,
        p.gamma,
        p.exponent,
        INCREMENTS * LONGEST / decay.per_velocity,
        decay.per_velocity,
        decay.settling,
    )


def force(k: Constants, s: State, x: float) -> tuple[State, float]:
    """Compute the Bouc-Wen force, Eq. (13), after the move to ``x``."""
    elastic, hysteretic, bend, beta, gamma, exponent, longest, decay, settling = k
    before, z = s
    move = x - before
    left, h = INCREMENTS, move / INCREMENTS / bend
    if abs(move) > longest:
        reach = abs(move)
        if reach > settling / decay:  # z has reached its limit
            reach = settling / decay
        left = ceiling(reach * decay / LONGEST)
        h = copysign(reach, move) / left / bend
    if exponent != 2.0:
        z = powered(z, h, left, move, beta, gamma, exponent)
    elif move > 0.0:
        z = squared(z, h, left, beta + gamma, beta - gamma)
    else:
        z = squared(z, h, left, beta - gamma, beta + gamma)
    return (x, z), elastic * x + hysteretic * z


def powered(z: float, h: float, left: float, move: float, beta: float, gamma: float, exponent: float) -> float:
    """Return z after ``left`` increments ``h`` (in yield displacements) in the direction of ``move``, by RK4."""
    half, sixth = 0.5 * h, h / 6.0
    while left > 0.0:
        k1 = bouc_wen_slope(z, move, beta, gamma, exponent)
        k2 = bouc_wen_slope(z + half * k1, move, beta, gamma, exponent)
        k3 = bouc_wen_slope(z + half * k2, move, beta, gamma, exponent)
        k4 = bouc_wen_slope(z + h * k3, move, beta, gamma, exponent)
        z += sixth * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
        left -= 1.0
    return z


def squared(z: float, h: float, left: float, up: float, down: float) -> float:
    """Faster ``powered`` for exponent 2. z^2 has the factor ``up`` for positive z and ``down`` for negative z."""
    half, sixth = 0.5 * h, h / 6.0
    while left > 0.0:
        k1 = 1.0 - (up if z > 0.0 else down) * z * z
        y = z + half * k1
        k2 = 1.0 - (up if y > 0.0 else down) * y * y
        y = z + half * k2
        k3 = 1.0 - (up if y > 0.0 else down) * y * y
        y = z + h * k3
        k4 = 1.0 - (up if y > 0.0 else down) * y * y
        z += sixth * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
        left -= 1.0
    return z


class BoucWen(OfComponent):
    """Bouc-Wen force r = eta k x + (1 - eta) k x_y z, Eq. (13), with the hysteretic state z.

    z is integrated over each move by RK4 in ``INCREMENTS`` parts, or in more parts over a long move. The limit of
    z is (beta + gamma)^(-1/q).
    """

    SOURCES = ("wen_1980",)

    @params
    class Params:
        stiffness: float | None = elastic_stiffness()
        yield_displacement: float = number("yield displacement x_y", "m", more_than=0.0)
        post_yield_ratio: float = number(
            "ratio eta of post-yield to pre-yield stiffness", default=0.0, at_least=0.0, at_most=1.0
        )
        beta: float = number("shape parameter beta", default=0.5, at_least=0.0)
        gamma: float = number("shape parameter gamma", default=0.5, at_least=0.0)
        exponent: float = number(
            "sharpness q of the transition to yielding", default=2.0, at_least=1.0, at_most=SHARPEST
        )

        def validate(self, path: str) -> None:
            check_shape(self.beta, self.gamma, path)

    KERNEL = Kernel(constants, lambda k: (0.0, 0.0), force)

    @staticmethod
    def energy(params: AnyParams) -> float:
        return float(0.5 * params.stiffness * params.yield_displacement**2)
