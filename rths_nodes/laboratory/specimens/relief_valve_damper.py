# SPDX-License-Identifier: Apache-2.0
"""Oil damper with relief valve: a stiff dashpot up to the relief force, a soft dashpot above.

The first story of the steel building of Horiuchi et al. (1996) had such a damper. The paper gives no numbers; the
defaults are chosen here.
"""

from __future__ import annotations

from rths_nodes.core.arithmetic import Numbers, copysign
from rths_nodes.core.checks import TestContext
from rths_nodes.core.decay import ROUNDED_OFF, Decay, check_increments
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.kernels import no_state
from rths_nodes.core.parameters import number, params
from rths_nodes.core.specimen import Specimen, SpecimenKernel, no_rates


def force(k: Numbers, s: tuple[()], x: float, v: float) -> float:
    """Force without a spring, N."""
    damping, relief_force, relief_damping, relief_velocity, _ = k
    over = abs(v) - relief_velocity
    if over <= 0.0:
        return damping * v
    return copysign(relief_force + relief_damping * over, v)


def force_of_spring(k: Numbers, s: tuple[float], x: float, v: float) -> float:
    return s[0]


def rate(k: Numbers, s: tuple[float], x: float, v: float) -> tuple[float]:
    damping, relief_force, relief_damping, relief_velocity, series = k
    force = s[0]
    over = abs(force) - relief_force
    piston = force / damping if over <= 0.0 else copysign(relief_velocity + over / relief_damping, force)
    return (series * (v - piston),)


def constants(params: ReliefValveDamper.Params) -> Numbers:
    """Return c_1, F_r, c_2, velocity F_r / c_1 (m/s) at which the valve opens, k_s (0 N/m without a spring)."""
    damping, relief_force = params.damping, params.relief_force
    return damping, relief_force, params.relief_damping, relief_force / damping, params.series_stiffness or 0.0


class ReliefValveDamper(Specimen):
    """F = c_1 v up to the relief force F_r, then F_r + c_2 (v - F_r / c_1); optionally with a spring in series.

    With the spring k_s, F is an inner state, F' = k_s (v - v_d), where v_d is the velocity of the piston at F.
    """

    @params
    class Params:
        damping: float = number("damping c_1 below the relief force", "N s/m", 4.0e6, more_than=0.0)
        relief_force: float = number("force F_r at which the valve opens", "N", 200e3, more_than=0.0)
        relief_damping: float = number("damping c_2 above the relief force", "N s/m", 0.27e6, at_least=0.0)
        series_stiffness: float | None = number(
            "spring k_s in series: oil, mounts and brace; rigid if left out", "N/m", None, more_than=0.0
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
            """Return a decay that is fast for an open valve, slow for a closed valve."""
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
            return SpecimenKernel(constants, no_state, force, no_rates)
        return SpecimenKernel(constants, lambda k: (0.0,), force_of_spring, rate)
