"""PI tracking control behind a phase lead: the sample controller of the RTHS benchmark (Silva et al. 2020).

    u = (K_p + K_i / s) (w - m),    w = (1 + T_1 s) / (1 + T_2 s) y

with target y and measured displacement m, both parts by Tustin's rule. Both are those of one sample, the last: the
newest measurement belongs to it. Without transport that is the benchmark's own simulation, in which the
measurement of an instant acts on the command from the same instant on.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rths_nodes.control.compensators.ahead import Ahead, lead_parameter
from rths_nodes.core.parameters import number, params
from rths_nodes.core.samples import Array, Motion


class ProportionalIntegralLead:
    """PI control of the tracking error, the target led in phase; per axis, in plain floats.

    It has no response from target to command alone: that depends on the rig, whose measurement it feeds back.
    """

    @params
    class Params:
        """Parameters; the defaults are those of the benchmark."""

        proportional: float = number("gain K_p on the tracking error", "1", 2.0, at_least=0.0)
        integral: float = number("gain K_i on its integral", "1/s", 95.0, at_least=0.0)
        lead_time: float = number(
            "T_1 of the phase lead", "s", 50.83163360273612 / 8570.397339444286, at_least=0.0
        )
        lag_time: float = number("T_2 of the phase lead", "s", 1.0 / 8570.397339444286, more_than=0.0)
        lead: float = lead_parameter()

    state_units: Mapping[str, str] = {"u_integral": "m"}

    def __init__(self, params: Params, dt: float, n_axes: int) -> None:
        self._ahead = Ahead(params.lead, dt, n_axes)
        self._k_p, self._half = params.proportional, 0.5 * dt * params.integral
        one, first, second = dt, 2.0 * params.lead_time, 2.0 * params.lag_time
        below = one + second
        self._now, self._before, self._kept = (one + first) / below, (one - first) / below, (second - one) / below
        self._axes = [[0.0] * 4 for _ in range(n_axes)]
        self._command = np.zeros(n_axes)
        self.state_names = tuple(f"u_integral[{axis}]" for axis in range(n_axes))

    def reset(self) -> None:
        """The target was at rest at zero, and the rig at the target."""
        self._ahead.reset()
        self._axes = [[0.0] * 4 for _ in self._axes]

    def step(self, target: Motion, measured: Array) -> Array:
        goals = self._ahead.of(target).displacement.tolist()
        for index, (axis, y, m) in enumerate(zip(self._axes, goals, measured.tolist(), strict=True)):
            y_before, led, error_before, integral = axis
            error = led - m  # of the last sample
            integral += self._half * (error + error_before)
            led = self._now * y + self._before * y_before + self._kept * led
            axis[:] = y, led, error, integral
            self._command[index] = self._k_p * error + integral
        return self._command

    def state(self) -> list[float]:
        return [axis[3] for axis in self._axes]
