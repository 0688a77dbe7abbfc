# SPDX-License-Identifier: Apache-2.0
"""Feed-forward of compliance and coupling, and a PI controller for the remaining error.

    u_k = e(x^, F^ / K) + z_k + k_p (F_k - f_{k-1}) / K
    z_k = z_{k-1} + k_i dt (F_k - f_{k-1}) / K

u is the command. F is the desired and f the measured force of the axis, K the stiffness of specimen and load frame
in series. e(x, c) is the extension that shortens a column by c after a drift x of its head
(``mechanics/axial_load.py``); without a column e is c. x^ is the target of the displacement axis that moves the
head, F^ the force target. Both are extrapolated linearly by the actuator's delay.

With the correct K, an error decays at the rate k_i (1/s). If the declared K is r times too small, the loop is r
times faster. For a plant of stiffness K and delay T, the loop with k_p = 0 is stable for k_i T < pi / 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from rths_nodes.control.force_controllers import of_kernel
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.kernels import Function
from rths_nodes.core.parameters import TestContext, integer, number, params, section
from rths_nodes.mechanics.axial_load import ColumnGeometry, lengths_of

FAST = 0.3
"""Largest product of integral gain and delay that causes no caution. The loop would still be stable with a
specimen five times as stiff."""
Constants = tuple[float, float, float, float, tuple[float, ...]]
"""Compliance (m/N), integral gain times dt, proportional gain, delay in samples, and lengths of the column (m)."""
State = tuple[float, float, float, float]
"""Integral z (m), the part of z added by feedback since the start (m), last target (N) and last drift (m)."""


def constants(params: FeedForwardPi.Params, dt: float) -> Constants:
    p = params
    lengths = () if p.column is None else lengths_of(p.column)
    return 1.0 / p.stiffness, p.integral_gain * dt, p.proportional_gain, p.lead / dt, lengths


def law(extension: Callable[..., float]) -> tuple[Function, Function]:
    def fed_forward(k: Constants, s: State, target: float, drift: float) -> float:
        """Extension for the force target and the drift, both extrapolated by the actuator's delay."""
        compliance, _, _, ahead, column = k
        _, _, target_before, drift_before = s
        force = target + ahead * (target - target_before)
        return extension(column, force * compliance, drift + ahead * (drift - drift_before))

    def begin(k: Constants, s: State, position: float, target: float, drift: float, drift_before: float) -> State:
        """State whose first command, without a force error, is the present extension ``position``."""
        before = (0.0, 0.0, target, drift_before)
        return position - fed_forward(k, before, target, drift), 0.0, target, drift

    def step(k: Constants, s: State, target: float, measured: float, drift: float) -> tuple[State, float]:
        """PI law: feed-forward, integral, and proportional feedback of the force error."""
        compliance, integral, proportional, _, _ = k
        total, correction, _, _ = s
        error = (target - measured) * compliance
        more = integral * error
        total += more
        command = fed_forward(k, s, target, drift) + total + proportional * error
        return (total, correction + more, target, drift), command

    return begin, step


class FeedForwardPi(of_kernel.ForceControllerOfKernel):
    """Force controller of one axis: feed-forward and PI feedback, in the sign convention of the axis."""

    @params
    class Params:
        stiffness: float = number("stiffness of specimen and load frame in series", "N/m", more_than=0.0)
        integral_gain: float = number(
            "rate k_i at which the remaining error decays", "1/s", 5.0, more_than=0.0, at_most=1e4
        )
        proportional_gain: float = number(
            "fraction k_p of an error that is corrected immediately", "1", 0.0, at_least=0.0, less_than=1.0
        )
        lead: float = number(
            "delay of the actuator, compensated by the feed-forward", "s", 0.0, at_least=0.0, at_most=0.2
        )
        column: ColumnGeometry | None = section(
            ColumnGeometry, "column whose head a displacement axis moves; default: no coupling", None
        )
        coupled_to: int = integer(
            "number of the displacement axis that moves the head of the column, from 1", "", 1, at_least=1
        )

        def fits(self, test: TestContext) -> None:
            delay = self.lead + test.transport + test.dt
            if self.integral_gain * delay >= 0.5 * math.pi:
                raise ConfigError(
                    f"integral_gain = {self.integral_gain:g} 1/s: must be < {0.5 * math.pi / delay:.3g} 1/s, "
                    f"because the force loop is otherwise unstable with {1e3 * delay:.3g} ms of lead, transport "
                    "and sampling"
                )
            of_kernel.check_coupling(self.column, self.coupled_to, test)

        def cautions(self, test: TestContext) -> list[str]:
            delay = self.lead + test.transport + test.dt
            if self.integral_gain * delay <= FAST:
                return []
            return [
                f"integral_gain = {self.integral_gain:g} 1/s: with {1e3 * delay:.3g} ms of lead, transport and "
                "sampling the force loop is stable only if the specimen is at most "
                f"{0.5 * math.pi / (self.integral_gain * delay):.2g} times as stiff as declared"
            ]

    @classmethod
    def kernel_of(cls, params: Params) -> of_kernel.ForceKernel:
        return of_kernel.ForceKernel(
            constants, lambda k: (0.0, 0.0, 0.0, 0.0), *law(of_kernel.extension_of(params.column))
        )

    @property
    def correction(self) -> float:
        return float(self._state[1])
