# SPDX-License-Identifier: Apache-2.0
"""Restoring forces of the numerical substructure, on a mass or in a story (as a function of the story drift).

A restoring force is defined by a kernel, and an object holds its state:

    force(constants, state, x) -> state, r

The function ``force`` moves to the displacement x (m) and returns the restoring force r (N). x and r are floats
for one degree of freedom, and arrays for several. The function changes nothing in place, so the caller can discard
the new state after a trial displacement.

A bilinear force is an elastic spring in parallel with a yielding spring (Prager), exact for any path. Unloading is
elastic over twice the yield force (Masing). Bouc-Wen hysteresis follows Wen 1980 and Chen & Ricles 2010, Eqs. 13
and 14. With loss of strength and stiffness (Baber & Wen 1981), the force equals BoucWen of OpenSees, whose z and
energy have other units. In OpenSees z is x_y z, gamma and beta are divided by x_y^q, deltaNu and deltaEta are
divided by (1 - eta) k x_y^2, and deltaA is 0.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np

from rths_nodes.core.arithmetic import ceiling, copysign, power
from rths_nodes.core.decay import LONGEST
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.kernels import Kernel, no_state
from rths_nodes.core.parameters import AnyParams, Field, number, params, type_of
from rths_nodes.core.protocols import StructuralForce, Structure
from rths_nodes.core.samples import Array
from rths_nodes.mechanics.bouc_wen import SHARPEST, bouc_wen_decay, bouc_wen_slope, check_shape
from rths_nodes.mechanics.structure import Matrix
from rths_nodes.numerical.vectors import Operand, Vector, vectors_of

TABLE = {
    "linear": ":Linear",
    "bouc_wen": ":BoucWen",
    "bilinear": ":Bilinear",
    "elastic_plastic": ":ElasticPlastic",
    "degrading_bouc_wen": ":DegradingBoucWen",
}

Force = Callable[..., tuple[object, Any]]

Change = Callable[[object, object], tuple[object, object]]


class Law(NamedTuple):
    """A restoring force: kernel function, constants, and state at rest."""

    force: Force
    constants: object
    rest: object


class Lawful:
    law: Law

    def _follow(self, law: Law) -> None:
        self.law = law
        self.reset()

    def reset(self) -> None:
        self.state = self.law.rest

    def renewed(self, name: str, constants: object, memory: object, change: Change) -> tuple[object, object]:
        return change(constants, memory)

    def force(self, displacement: Array) -> Array:
        self.state, r = self._moved(displacement)
        return r

    def trial(self, displacement: Array) -> Array:
        return self._moved(displacement)[1]

    def _moved(self, displacement: Array) -> tuple[object, Array]:
        force, constants, _ = self.law
        if len(displacement) == 1:
            state, r = force(constants, self.state, float(displacement[0]))
            return state, np.array([r])
        return force(constants, self.state, displacement)


def elastic_stiffness() -> Field:
    return number("elastic stiffness k; default: the stiffness of the structure", "N/m", None, more_than=0.0)


class OfComponent(Lawful):
    """Base of restoring forces with a ``KERNEL``, which act on one degree of freedom, or on each independently."""

    Params: ClassVar[type]
    KERNEL: ClassVar[Kernel]
    yields: ClassVar[bool] = True
    """True if the force has a memory and therefore requires a single degree of freedom."""
    initial_stiffness: float
    elastic_energy: float = 0.0
    """Strain energy at first yield, J."""

    def __init__(self, params: AnyParams, n_dof: int) -> None:
        if self.yields and n_dof != 1:
            raise ConfigError(
                f"restoring_force {type_of(params)}: requires 1 degree of freedom, but the structure has {n_dof}"
            )
        if params.stiffness is None:
            raise ConfigError(
                f"restoring_force {type_of(params)}: the elastic stiffness k (N/m) is missing. Set stiffness"
            )
        self.initial_stiffness = float(params.stiffness)
        if self.yields:
            self.elastic_energy = self.energy(params)
        constants, rest, force = self.kernel_of(params)
        made = constants(params)
        self._follow(Law(force, made, rest(made)))

    @classmethod
    def kernel_of(cls, params: AnyParams) -> Kernel:
        return cls.KERNEL

    @staticmethod
    def energy(params: object) -> float:
        return 0.0


def law_of(force: StructuralForce) -> Law:
    if isinstance(force, Lawful):
        return force.law
    virgin = copy.copy(force)
    virgin.reset()
    return Law(_by_copies, None, virgin)


def _by_copies(k: None, s: StructuralForce, x: Vector) -> tuple[StructuralForce, Vector]:
    """Advance a copy of a user-defined force, whose method ``force`` must not modify attributes in place."""
    moved = copy.copy(s)
    r = moved.force(np.array([x]) if isinstance(x, float) else x)
    return moved, float(r[0]) if isinstance(x, float) else r


def trial_force(structure: Structure, displacement: Array) -> Array:
    """Return the restoring force ``(n_dof,)`` N at ``displacement`` (m) without changing the structure's state."""
    force = structure.restoring_force
    return force.trial(displacement) if isinstance(force, Lawful) else copy.copy(force).force(displacement)


Pair = tuple[float, float]
"""Displacement x (m), and the force (N) of the yielding spring or the hysteretic state z."""


def linear_force(k: float, s: tuple[()], x: Vector) -> tuple[tuple[()], Vector]:
    return s, k * x


class Linear(OfComponent):
    """Linear elastic restoring force k x of each degree of freedom."""

    ABOUT = "Linear elastic restoring force."

    @params
    class Params:
        stiffness: float | None = elastic_stiffness()

    yields = False
    KERNEL = Kernel(lambda p: float(p.stiffness), no_state, linear_force)


def linear(product: Callable[..., Vector]) -> Force:
    def force(k: Operand, s: tuple[()], x: Vector) -> tuple[tuple[()], Vector]:
        return s, product(k, x)

    return force


class LinearRestoringForce(Lawful):
    def __init__(self, stiffness: Matrix) -> None:
        vectors = vectors_of(stiffness)
        self._follow(Law(linear(vectors.product), vectors.operand(stiffness), ()))


def is_linear(structure: Structure) -> bool:
    return isinstance(structure.restoring_force, (Linear, LinearRestoringForce))


def refuse_yielding(integrator: str, structure: Structure) -> None:
    if not is_linear(structure):
        raise ConfigError(
            f"integrator {integrator}: requires a linear restoring force, because the step matrices are "
            "computed before the test. Use another integrator"
        )


Prager = tuple[float, float, float]
"""Stiffness of the elastic spring (N/m); stiffness (N/m) and yield force (N) of the yielding spring."""


def bilinear_force(k: Prager, state: Pair, x: float) -> tuple[Pair, float]:
    """Return the new state and the bilinear force (N) at ``x`` (m)."""
    elastic, plastic, limit = k
    before, s = state
    s += plastic * (x - before)
    if s < -limit:
        s = -limit
    if s > limit:
        s = limit
    return (x, s), elastic * x + s


def bilinear_constants(p: AnyParams, ratio: float) -> Prager:
    return ratio * p.stiffness, (1.0 - ratio) * p.stiffness, (1.0 - ratio) * p.yield_force


class Bilinear(OfComponent):
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

    KERNEL = Kernel(lambda p: bilinear_constants(p, p.post_yield_ratio), lambda k: (0.0, 0.0), bilinear_force)

    @staticmethod
    def energy(params: AnyParams) -> float:
        return float(0.5 * params.yield_force**2 / params.stiffness)


class ElasticPlastic(Bilinear):
    """Elastic, then perfectly plastic force. A move dx changes the force by k dx within +-F_y."""

    @params
    class Params:
        stiffness: float | None = elastic_stiffness()
        yield_force: float = number("yield force F_y", "N", more_than=0.0)

    KERNEL = Kernel(lambda p: bilinear_constants(p, 0.0), lambda k: (0.0, 0.0), bilinear_force)


INCREMENTS = 10.0
"""Smallest number of increments per integration step. Each is one RK4 step."""


class Hysteresis(NamedTuple):
    """Constants of the Bouc-Wen force. ``longest`` is the longest move (m) for which ``INCREMENTS`` suffice."""

    elastic: float  # stiffness eta k, N/m
    hysteretic: float  # force (1 - eta) k x_y, N
    yield_displacement: float
    beta: float
    gamma: float
    exponent: float
    longest: float
    decay: float  # decay rate of z, 1/m
    settling: float  # number of decay times within which z reaches its limit


def bouc_wen_constants(p: AnyParams) -> Hysteresis:
    decay = bouc_wen_decay(p.beta, p.gamma, p.exponent, p.yield_displacement)
    return Hysteresis(
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


def bouc_wen_force(k: Hysteresis, s: Pair, x: float) -> tuple[Pair, float]:
    """Return the new state and the Bouc-Wen force (N), Eq. (13), at ``x`` (m)."""
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
    """Integrate z by RK4 over ``left`` increments ``h`` (in yield displacements) with the sign of ``move``."""
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
    """Integrate z like ``powered``, for exponent 2. The factor of z^2 is ``up`` if z > 0 and ``down`` if z < 0."""
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

    RK4 integrates z over each move in ``INCREMENTS`` parts, or in more parts over a long move. The limit of z is
    (beta + gamma)^(-1/q).
    """

    ABOUT = "Bouc-Wen hysteresis (Wen 1980; Chen & Ricles 2010, Eqs. 13 and 14)."
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

    KERNEL = Kernel(bouc_wen_constants, lambda k: (0.0, 0.0), bouc_wen_force)

    @staticmethod
    def energy(params: AnyParams) -> float:
        return float(0.5 * params.stiffness * params.yield_displacement**2)


MOST = 2000.0
"""Largest number of increments of a move. A move that requires more has diverged: z is set to its
limit."""


class Degradation(NamedTuple):
    elastic: float  # stiffness eta k, N/m
    hysteretic: float  # force (1 - eta) k x_y, N
    yield_displacement: float
    weaker: float  # d_nu
    softer: float  # d_h
    beta: float
    gamma: float
    exponent: float
    decay: float  # decay rate of z without degradation, 1/m


Triple = tuple[float, float, float]
"""Displacement x (m), hysteretic state z, and dissipated energy e."""


def degrading_constants(p: AnyParams) -> Degradation:
    return Degradation(
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


def degraded_slope(k: Degradation, z: float, e: float, move: float) -> float:
    """Return the slope dz/dx of the degrading force, multiplied by the yield displacement."""
    _, _, _, weaker, softer, beta, gamma, exponent, _ = k
    nu = 1.0 + weaker * e
    return bouc_wen_slope(z, move, nu * beta, nu * gamma, exponent) / (1.0 + softer * e)


def degraded_limit(k: Degradation, e: float) -> float:
    """Return the largest z for the dissipated energy ``e``."""
    _, _, _, weaker, _, beta, gamma, exponent, _ = k
    return 1.0 / power((1.0 + weaker * e) * (beta + gamma), 1.0 / exponent)


def degrading_force(k: Degradation, s: Triple, x: float) -> tuple[Triple, float]:
    """Return the new state and the degrading Bouc-Wen force (N) at ``x`` (m)."""
    elastic, hysteretic, bend, weaker, softer, _, _, exponent, decay = k
    before, z, e = s
    move = x - before
    nu, h = 1.0 + weaker * e, 1.0 + softer * e
    needed = abs(move) * decay * power(nu, 1.0 / exponent) / (h * LONGEST)
    if not needed <= MOST:  # the motion diverged: keep the result finite
        e += degraded_limit(k, e) * abs(move) / bend
        z = copysign(degraded_limit(k, e), move)
        return (x, z, e), elastic * x + hysteretic * z
    left = ceiling(needed)
    if left < INCREMENTS:
        left = INCREMENTS
    ds = move / left / bend
    half, sixth = 0.5 * ds, ds / 6.0
    while left > 0.0:
        k1 = degraded_slope(k, z, e, move)
        z2 = z + half * k1
        k2 = degraded_slope(k, z2, e + half * z, move)
        z3 = z + half * k2
        k3 = degraded_slope(k, z3, e + half * z2, move)
        z4 = z + ds * k3
        k4 = degraded_slope(k, z4, e + ds * z3, move)
        e += sixth * (z + 2.0 * z2 + 2.0 * z3 + z4)
        z += sixth * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
        left -= 1.0
    return (x, z, e), elastic * x + hysteretic * z


class DegradingBoucWen(OfComponent):
    """Force r = eta k x + (1 - eta) k x_y z of one degree of freedom, with the hysteretic state z.

    x_y dz/dx = (1 - nu (gamma sgn(dx z) + beta) abs(z)^q) / h. The integral e of z dx / x_y is the dissipated
    energy divided by (1 - eta) k x_y^2. nu = 1 + d_nu e reduces the strength of the hysteretic part, and
    h = 1 + d_h e its stiffness.
    """

    ABOUT = "Bouc-Wen hysteresis that loses strength and stiffness with its dissipated energy."
    SOURCES = ("baber_wen_1981",)

    @params
    class Params(BoucWen.Params):
        post_yield_ratio: float = number(
            "ratio eta of post-yield to pre-yield stiffness", default=0.0, at_least=0.0, less_than=1.0
        )
        strength_degradation: float = number("loss of strength d_nu per energy e", "1", 0.0, at_least=0.0)
        stiffness_degradation: float = number("loss of stiffness d_h per energy e", "1", 0.0, at_least=0.0)

    KERNEL = Kernel(degrading_constants, lambda k: (0.0, 0.0, 0.0), degrading_force)
    energy = staticmethod(BoucWen.energy)
