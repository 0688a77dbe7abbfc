# SPDX-License-Identifier: Apache-2.0
"""Springs and dashpots: in parallel, in series, or with a relief valve; and a computed spring."""

from __future__ import annotations

from operator import attrgetter

from rths_nodes.core.arithmetic import Numbers, copysign, power
from rths_nodes.core.decay import ROUNDED_OFF, Decay, check_increments
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.kernels import no_state
from rths_nodes.core.parameters import TestContext, number, params
from rths_nodes.core.simulators import Specimen, SpecimenKernel, no_rates


def spring_force(k: tuple[float], s: tuple[()], x: float, v: float) -> float:
    (stiffness,) = k
    return stiffness * x


class ComputedSpring(Specimen):
    """Force F = k d for the displacement d. F does not affect the actuator.

    A test with this specimen verifies only the actuator control. d is the true displacement of the simulated
    actuator. In a laboratory, F includes the noise of the displacement sensor. To simulate this noise, set
    ``sensors.force_noise_rms`` to k times ``sensors.displacement_noise_rms``.
    """

    ABOUT = (
        "Computed force: displacement times stiffness, the safest rehearsal of a rig (Horiuchi et al. 1996, "
        "Fig. 6a)."
    )

    @params
    class Params:
        stiffness: float = number("stiffness k", "N/m", 1.0e6, at_least=0.0)

    KERNEL = SpecimenKernel(lambda params: (params.stiffness,), no_state, spring_force, no_rates)
    felt = False


def kelvin_voigt_force(k: Numbers, s: tuple[()], x: float, v: float) -> float:
    """Return the force of spring and dashpot in parallel, N."""
    stiffness, damping, exponent, reference = k
    if exponent != 1.0:
        v = copysign(reference * power(abs(v / reference), exponent), v)
    return stiffness * x + damping * v


class KelvinVoigt(Specimen):
    """Force F = k d + c v for displacement d and velocity v.

    With an exponent a other than 1, F = k d + c v_0 sgn(v) (abs(v) / v_0)^a. An exponent below 1 describes a fluid
    viscous damper. c = 200 kN s/m and k = 1 kN/mm describe the damper of the TADC verification tests.
    """

    ABOUT = "Spring and dashpot in parallel; the defaults are the equivalent damper of Chen & Ricles (2010)."

    @params
    class Params:
        stiffness: float = number("stiffness k", "N/m", 7.6e6, at_least=0.0)
        damping: float = number("damping c at the reference velocity", "N s/m", 0.64e6, at_least=0.0)
        exponent: float = number("exponent a of the velocity", default=1.0, more_than=0.0, at_most=5.0)
        reference_velocity: float = number(
            "reference velocity v_0 of c; has an effect only if the exponent is not 1", "m/s", 1.0, more_than=0.0
        )

    KERNEL = SpecimenKernel(
        attrgetter("stiffness", "damping", "exponent", "reference_velocity"),
        no_state,
        kelvin_voigt_force,
        no_rates,
    )

    def __init__(self, params: Params) -> None:
        super().__init__(params)
        self.linear = (params.stiffness, params.damping) if params.exponent == 1.0 else None


def maxwell_force(k: Numbers, s: tuple[float], x: float, v: float) -> float:
    """Return the force, N. The state is the force f (N) of spring and dashpot in series."""
    _, _, parallel = k
    return s[0] + parallel * x


def maxwell_rate(k: Numbers, s: tuple[float], x: float, v: float) -> tuple[float]:
    damping, series, _ = k
    return (series * (v - s[0] / damping),)


class MaxwellDamper(Specimen):
    """Force F = f + k_p d with f' = k_s (d' - f / c), for the displacement d.

    The damper acts as a dashpot in slow motion and as a spring in fast motion.
    """

    ABOUT = (
        "Dashpot and spring in series (Maxwell), optionally with a parallel spring: a fluid damper with its brace."
    )

    @params
    class Params:
        damping: float = number("damping c", "N s/m", 0.2e6, more_than=0.0)
        series_stiffness: float = number("stiffness k_s of the spring in series", "N/m", 20e6, more_than=0.0)
        parallel_stiffness: float = number("stiffness k_p of the spring in parallel", "N/m", 0.0, at_least=0.0)

        def decay(self) -> Decay:
            return Decay(self.series_stiffness / self.damping, settling=ROUNDED_OFF)

    KERNEL = SpecimenKernel(
        attrgetter("damping", "series_stiffness", "parallel_stiffness"),
        lambda k: (0.0,),
        maxwell_force,
        maxwell_rate,
    )


def relief_valve_force(k: Numbers, s: tuple[()], x: float, v: float) -> float:
    """Return the force, N, of a damper without a spring in series."""
    damping, relief_force, relief_damping, relief_velocity, _ = k
    over = abs(v) - relief_velocity
    if over <= 0.0:
        return damping * v
    return copysign(relief_force + relief_damping * over, v)


def force_of_spring(k: Numbers, s: tuple[float], x: float, v: float) -> float:
    return s[0]


def relief_valve_rate(k: Numbers, s: tuple[float], x: float, v: float) -> tuple[float]:
    damping, relief_force, relief_damping, relief_velocity, series = k
    force = s[0]
    over = abs(force) - relief_force
    piston = force / damping if over <= 0.0 else copysign(relief_velocity + over / relief_damping, force)
    return (series * (v - piston),)


def relief_valve_constants(params: ReliefValveDamper.Params) -> Numbers:
    damping, relief_force = params.damping, params.relief_force
    return damping, relief_force, params.relief_damping, relief_force / damping, params.series_stiffness or 0.0


class ReliefValveDamper(Specimen):
    """Force F = c_1 v up to the relief force F_r, then F_r + c_2 (v - F_r / c_1), for the velocity v.

    With a spring k_s in series, F is an inner state: F' = k_s (v - v_d), where v_d is the piston velocity at the
    force F. The first story of the steel building of Horiuchi et al. (1996) had such a damper. The defaults are
    not from the paper.
    """

    ABOUT = "Oil damper with relief valve: a stiff dashpot up to the relief force, a soft dashpot above."

    @params
    class Params:
        damping: float = number("damping c_1 below the relief force", "N s/m", 4.0e6, more_than=0.0)
        relief_force: float = number("force F_r at which the valve opens", "N", 200e3, more_than=0.0)
        relief_damping: float = number("damping c_2 above the relief force", "N s/m", 0.27e6, at_least=0.0)
        series_stiffness: float | None = number(
            "stiffness k_s of oil, mounts and brace in series; default: rigid", "N/m", None, more_than=0.0
        )

        def validate(self, path: str) -> None:
            if self.relief_damping > self.damping:
                raise ConfigError(
                    f"{path}.relief_damping = {self.relief_damping:g} N s/m: "
                    f"must be <= damping = {self.damping:g} N s/m"
                )
            if self.series_stiffness is not None and self.relief_damping == 0.0:
                raise ConfigError(f"{path}.relief_damping = 0 N s/m: must be > 0 with a series_stiffness")

        def decay(self) -> Decay:
            """Return an upper bound on the decay rate, which is high while the valve is open, otherwise low."""
            if self.series_stiffness is None:
                return Decay()
            slower = self.damping / self.relief_damping
            return Decay(self.series_stiffness / self.relief_damping, settling=ROUNDED_OFF * slower)

        def fits(self, test: TestContext) -> None:
            if self.series_stiffness is not None:
                ratio = f"relief_damping / series_stiffness = {self.relief_damping / self.series_stiffness:g} s"
                check_increments(self.decay(), ratio, test)

    @classmethod
    def kernel_of(cls, params: Params) -> SpecimenKernel:
        if params.series_stiffness is None:
            return SpecimenKernel(relief_valve_constants, no_state, relief_valve_force, no_rates)
        return SpecimenKernel(relief_valve_constants, lambda k: (0.0,), force_of_spring, relief_valve_rate)
