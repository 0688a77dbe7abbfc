# SPDX-License-Identifier: Apache-2.0
"""Specimens with hysteresis or damage: steel, rubber, a degrading column."""

from __future__ import annotations

from operator import attrgetter

from rths_nodes.core.arithmetic import Numbers, power
from rths_nodes.core.decay import Decay, check_increments
from rths_nodes.core.parameters import TestContext, number, params
from rths_nodes.core.simulators import Specimen, SpecimenKernel
from rths_nodes.mechanics.bouc_wen import SHARPEST, bouc_wen_decay, bouc_wen_slope, check_shape

STEEL = 0.5
"""Bouc-Wen beta and gamma. Equal values make unloading elastic with the initial stiffness, as for steel."""


def absorber_force(k: Numbers, s: tuple[float], x: float, v: float) -> float:
    elastic, hysteretic, _, _ = k
    return elastic * x + hysteretic * s[0]


def absorber_rate(k: Numbers, s: tuple[float], x: float, v: float) -> tuple[float]:
    _, _, yield_displacement, exponent = k
    return (v * bouc_wen_slope(s[0], v, STEEL, STEEL, exponent) / yield_displacement,)


def absorber_constants(params: ElastoplasticAbsorber.Params) -> Numbers:
    eta, stiffness, yield_force = params.post_yield_ratio, params.stiffness, params.yield_force
    return eta * stiffness, (1.0 - eta) * yield_force, yield_force / stiffness, params.exponent


class ElastoplasticAbsorber(Specimen):
    """Force F = eta k d + (1 - eta) F_y z for the displacement d, with a Bouc-Wen state z.

    During loading z' = d' k / F_y (1 - abs(z)^q); during unloading z' = d' k / F_y. F_y is the force at which both
    asymptotes meet. A large q makes the transition sharp (bilinear). The model describes the absorber of a piping
    system in Horiuchi et al. (1996). The defaults are not from the paper.
    """

    ABOUT = "Energy absorber of yielding steel plates: elastic, then plastic with hardening."

    @params
    class Params:
        stiffness: float = number("elastic stiffness k", "N/m", 2.0e6, more_than=0.0)
        yield_force: float = number("yield force F_y", "N", 10e3, more_than=0.0)
        post_yield_ratio: float = number(
            "ratio eta of post-yield to pre-yield stiffness", default=0.05, at_least=0.0, at_most=1.0
        )
        exponent: float = number("sharpness q of yielding", default=2.0, at_least=1.0, at_most=SHARPEST)

        def decay(self) -> Decay:
            return bouc_wen_decay(STEEL, STEEL, self.exponent, self.yield_force / self.stiffness)

        def fits(self, test: TestContext) -> None:
            ratio = f"yield_force / stiffness = {self.yield_force / self.stiffness:g} m"
            check_increments(self.decay(), ratio, test)

    KERNEL = SpecimenKernel(absorber_constants, lambda k: (0.0,), absorber_force, absorber_rate)


def softening_force(k: Numbers, s: tuple[float], x: float, v: float) -> float:
    stiffness, damping, friction_force, _, _, _, _ = k
    return stiffness * x + damping * v + friction_force * s[0]


def softening_rate(k: Numbers, s: tuple[float], x: float, v: float) -> tuple[float]:
    _, _, _, slip_displacement, beta, gamma, exponent = k
    return (v * bouc_wen_slope(s[0], v, beta, gamma, exponent) / slip_displacement,)


class SofteningElastomeric(Specimen):
    """Force F = k d + c d' + f z for the displacement d, with a Bouc-Wen state z.

    Friction dominates at small displacements, and stiffness at large displacements.
    """

    ABOUT = "Elastomeric damper whose stiffness falls and whose loss factor grows with the amplitude."

    @params
    class Params:
        stiffness: float = number("stiffness k that remains after slip", "N/m", 2.0e6, at_least=0.0)
        damping: float = number("damping c", "N s/m", 0.20e6, at_least=0.0)
        friction_force: float = number("force f of the hysteretic part", "N", 60e3, at_least=0.0)
        slip_displacement: float = number(
            "displacement x_f at which the hysteretic part slips", "m", 60e-3 / 5.6, more_than=0.0
        )
        beta: float = number("Bouc-Wen beta", default=0.5, at_least=0.0)
        gamma: float = number("Bouc-Wen gamma", default=0.5, at_least=0.0)
        exponent: float = number("Bouc-Wen q", default=1.0, at_least=1.0, at_most=SHARPEST)

        def validate(self, path: str) -> None:
            if self.beta + self.gamma > 0.0:
                check_shape(self.beta, self.gamma, path)

        def decay(self) -> Decay:
            return bouc_wen_decay(self.beta, self.gamma, self.exponent, self.slip_displacement)

        def fits(self, test: TestContext) -> None:
            check_increments(self.decay(), f"slip_displacement = {self.slip_displacement:g} m", test)

    KERNEL = SpecimenKernel(
        attrgetter("stiffness", "damping", "friction_force", "slip_displacement", "beta", "gamma", "exponent"),
        lambda k: (0.0,),
        softening_force,
        softening_rate,
    )


def slipping_force(k: Numbers, s: tuple[float, float], x: float, v: float) -> float:
    """Return the force, N. The states are the rubber's deformation u (m) and the relaxing force q (N)."""
    return k[0] * s[0] + s[1]


def slipping_rate(k: Numbers, s: tuple[float, float], x: float, v: float) -> tuple[float, float]:
    """Return the rates of the rubber's deformation and of its relaxing force."""
    stiffness, relaxing, time, slip_force, exponent = k
    u, q = s
    ratio = (stiffness * u + q) / slip_force
    sticking = 1.0
    if ratio * v > 0.0:
        # never negative: a long step that overshoots the slip force must not reverse the deformation
        sticking = 1.0 - power(abs(ratio), exponent) if abs(ratio) < 1.0 else 0.0
    deformation = v * sticking
    return deformation, relaxing * deformation - q / time


class SlippingElastomeric(Specimen):
    """A standard linear solid in series with a friction slider.

        F = k_1 u + q,  q' = k_m u' - q / tau
        u' = d' (1 - (abs(F) / F_s)^n) while loading, u' = d' while unloading

    u is the deformation of the rubber, q its relaxing force, d the displacement, and d - u the slip. At small
    amplitudes, u = d, and the specimen is a spring k_1 in parallel with a Maxwell element (spring k_m, relaxation
    time tau). At large amplitudes, F remains at the slip force F_s.

    The defaults are fitted to the data of Chen & Ricles (2010; 2009) on their damper (Fig. 6). The loss factor is
    0.4 to 0.5 at small amplitudes, depending on frequency, and rises to 1.2 at large amplitudes through friction.
    The equivalent viscous damping ratio of frame and damper is 0.18, and the damper carries 44 to 55 % of the
    story shear.
    """

    ABOUT = "Elastomeric damper that slips: rubber at small amplitudes, friction at large ones."

    @params
    class Params:
        stiffness: float = number("stiffness k_1 of the rubber at low velocity", "N/m", 17.0e6, more_than=0.0)
        relaxing_stiffness: float = number("stiffness k_m of the rubber that relaxes", "N/m", 27.0e6, at_least=0.0)
        relaxation_time: float = number("relaxation time tau", "s", 0.085, more_than=0.0)
        slip_force: float = number("force F_s at which the damper slips", "N", 108e3, more_than=0.0)
        exponent: float = number("sharpness n of slipping", default=2.0, at_least=1.0, at_most=SHARPEST)

        def decay(self) -> Decay:
            """Return upper bounds on the decay rates of relaxation and slip. Slip makes the force decay to F_s."""
            stiffness = self.stiffness + self.relaxing_stiffness
            return Decay(1.0 / self.relaxation_time, stiffness * self.exponent / self.slip_force)

        def fits(self, test: TestContext) -> None:
            ratio = f"relaxation_time = {self.relaxation_time:g} s, slip_force = {self.slip_force:g} N"
            check_increments(self.decay(), ratio, test)

    KERNEL = SpecimenKernel(
        attrgetter("stiffness", "relaxing_stiffness", "relaxation_time", "slip_force", "exponent"),
        lambda k: (0.0, 0.0),
        slipping_force,
        slipping_rate,
    )


CATCH_UP = 0.01
"""Time constant with which the largest excursion (a state) follows the current excursion, s."""


def column_force(k: Numbers, s: tuple[float], x: float, v: float) -> float:
    """Return the force, N. The state is the largest excursion (m), initially ``damage_displacement``."""
    stiffness, level, after, damping = k
    # use the current excursion, so that the force lies on the envelope at any step length
    largest = abs(x) if abs(x) > s[0] else s[0]
    ratio = level / largest
    return stiffness * (ratio + after * (1.0 - ratio)) * x + damping * v


def column_rate(k: Numbers, s: tuple[float], x: float, v: float) -> tuple[float]:
    """Return the rate of the largest excursion, m/s.

    The error of the integrated excursion is at most a sixth of the last step before the excursion decreases.
    """
    excess = abs(x) - s[0]
    if excess < 0.0:
        return (0.0,)
    outward = abs(v) if x * v > 0.0 else 0.0
    return (outward + excess / CATCH_UP,)


class DegradingColumn(Specimen):
    """Force F = k_s(m) d + c d' for the displacement d, where m is the largest past excursion.

    The specimen softens without permanent set. At first loading, the force is k d up to the level d_0, and then
    k d_0 + r k (d - d_0). Below the largest excursion, the force follows a straight line through the origin. Both
    directions behave alike. The model describes the column of fibre-reinforced plastic in Horiuchi et al. (1996),
    whose end flanges were damaged beyond the design level. The defaults are not from the paper.
    """

    ABOUT = "Column that permanently loses stiffness when bent beyond a level."

    @params
    class Params:
        stiffness: float = number("stiffness k of the undamaged column", "N/m", 1.0e6, more_than=0.0)
        damage_displacement: float = number("level d_0 at which damage begins", "m", 0.020, more_than=0.0)
        post_damage_ratio: float = number(
            "ratio r of the slope beyond the level to the slope below the level",
            default=0.3,
            at_least=0.0,
            at_most=1.0,
        )
        damping: float = number("damping c", "N s/m", 0.0, at_least=0.0)

        def decay(self) -> Decay:
            return Decay(at_rest=1.0 / CATCH_UP)

    KERNEL = SpecimenKernel(
        attrgetter("stiffness", "damage_displacement", "post_damage_ratio", "damping"),
        lambda k: (k[1],),
        column_force,
        column_rate,
    )
