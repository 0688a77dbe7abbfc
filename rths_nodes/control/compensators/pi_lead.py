# SPDX-License-Identifier: Apache-2.0
"""PI tracking control with a phase lead: the example controller of the RTHS benchmark (Silva et al. 2020).

    u = (K_p + K_i / s) (w - m),    w = (1 + T_1 s) / (1 + T_2 s) y

u is the command, y the target and m the measured displacement; y and m are values of the last sample. Both
transfer functions are discretised by Tustin's rule. Without a transport delay this law reproduces the benchmark's
simulation, in which a measurement affects the command of the same instant.
"""

from __future__ import annotations

from collections.abc import Mapping

from rths_nodes.control.compensators.per_axis import PerAxis, lead_parameter
from rths_nodes.core.kernels import Kernel
from rths_nodes.core.parameters import number, params

Constants = tuple[float, float, float, float, float]
"""K_p and K_i dt / 2; weights of this target, the last target and the last output of the phase lead."""
State = tuple[float, float, float, float]
"""Target, target with phase lead, error and integral (m) of the last sample."""


def constants(params: ProportionalIntegralLead.Params, dt: float) -> Constants:
    first, second = 2.0 * params.lead_time, 2.0 * params.lag_time
    below = dt + second
    taps = (dt + first) / below, (dt - first) / below, (second - dt) / below
    return params.proportional, 0.5 * dt * params.integral, *taps


def step(
    k: Constants, s: State, x: float, v: float, a: float, m: float, f: float, rests: bool, preparing: bool
) -> tuple[State, float]:
    """PI control of the tracking error of the last sample."""
    proportional, half, now, before, kept = k
    x_before, led, error_before, integral = s
    error = led - m
    integral += half * (error + error_before)
    led = now * x + before * x_before + kept * led
    return (x, led, error, integral), proportional * error + integral


def shown(k: Constants, s: State) -> tuple[float]:
    _, _, _, integral = s
    return (integral,)


class ProportionalIntegralLead(PerAxis):
    """PI control of the tracking error, with a phase lead of the target.

    The frequency response depends on the rig.
    """

    SOURCES = ("silva_2020",)

    @params
    class Params:
        proportional: float = number("gain K_p on the tracking error", "1", 2.0, at_least=0.0)
        integral: float = number("gain K_i on the integral of the tracking error", "1/s", 95.0, at_least=0.0)
        lead_time: float = number(
            "time constant T_1 of the phase lead", "s", 50.83163360273612 / 8570.397339444286, at_least=0.0
        )
        lag_time: float = number(
            "time constant T_2 of the phase lead", "s", 1.0 / 8570.397339444286, more_than=0.0
        )
        lead: float = lead_parameter()

    state_units: Mapping[str, str] = {"u_integral": "m"}

    KERNEL = Kernel(constants, lambda k: (0.0, 0.0, 0.0, 0.0), step)
    SHOWN = staticmethod(shown)
