# SPDX-License-Identifier: Apache-2.0
"""Second-order actuator that is slower in fast motions, like a valve with limited flow.

The TADC paper attributes the growth of the delay (13.7 ms at 2 Hz, 15.6 ms at the end of the sweep) to the flow.
Use this actuator to test adaptive compensation; use ``servo_hydraulic`` if pressure, stall or the valve matter.
"""

from __future__ import annotations

import math

import numpy as np

from rths_nodes.core.arithmetic import Numbers, cos, exp, sin, sqrt
from rths_nodes.core.frequency_response import Complex, Frequencies, held
from rths_nodes.core.kernels import Kernel
from rths_nodes.core.parameters import number, params
from rths_nodes.laboratory.actuators.held_plant import hold_parameter, transition
from rths_nodes.laboratory.actuators.unloaded import Unloaded

SLOWEST = 1e-9
"""Smallest natural frequency, rad/s. It keeps the formulas finite in a diverging test."""

Constants = tuple[float, float, float, float, float, float, bool]


def go(k: Constants, s: Numbers, command: float) -> tuple[Numbers, float, float]:
    """Advance by one sample: steady motion under a linear command, plus free vibration.

    The state holds displacement (m), velocity (m/s), last command (m) and velocity amplitude (m/s).
    """
    omega, zeta, share, saturation, forgetting, dt, ramp = k
    displacement, velocity, before, amplitude = s
    if not ramp:
        before = command
    ratio = amplitude / saturation
    omega = omega / sqrt(1.0 + ratio * ratio)
    if omega < SLOWEST:
        omega = SLOWEST
    slope = (command - before) / dt
    lag = 2.0 * zeta / omega * slope
    x, v = displacement - before + lag, velocity - slope
    decay, damped = zeta * omega, omega * share
    fading = exp(-decay * dt)
    cosine, sine = fading * cos(damped * dt), fading * sin(damped * dt) / damped
    displacement = command - lag + x * cosine + (v + decay * x) * sine
    velocity = slope + v * cosine - (omega * omega * x + decay * v) * sine
    amplitude *= forgetting
    if amplitude < abs(velocity):
        amplitude = abs(velocity)
    return (displacement, velocity, command, amplitude), displacement, velocity


def constants(params: AmplitudeDependent.Params, dt: float) -> Constants:
    zeta = params.damping_ratio
    return (
        2.0 * math.pi * params.natural_frequency,
        zeta,
        math.sqrt(1.0 - zeta**2),
        params.saturation_velocity,
        math.exp(-dt / params.memory),
        dt,
        params.hold == "ramp",
    )


class AmplitudeDependent(Unloaded):
    """Second-order actuator whose natural frequency falls with the velocity amplitude.

    The displacement d follows the command c:

        d'' + 2 zeta w d' + w^2 d = w^2 c,  w = w_0 / sqrt(1 + (V / v_s)^2)

    The velocity amplitude V is the largest past abs(d'), which decays with the time constant ``memory``. w is
    about w_0 in small motions, and proportional to 1 / V far above v_s, like the loop gain of a saturating valve.
    During a sample w is constant and the solution is exact.
    """

    @params
    class Params:
        """The default actuator equals the default ``second_order`` in small motions."""

        natural_frequency: float = number(
            "natural frequency w_0 / 2 pi in small motions", "Hz", 15.571359045, more_than=0.0, at_most=1e5
        )
        damping_ratio: float = number("damping ratio zeta", default=0.6415455449, more_than=0.0, less_than=1.0)
        saturation_velocity: float = number(
            "velocity amplitude v_s at which the natural frequency is 0.71 times its value in small motions",
            "m/s",
            0.3,
            more_than=0.0,
        )
        memory: float = number("time constant with which the velocity amplitude decays", "s", 0.5, more_than=0.0)
        hold: str = hold_parameter()

    MOTION = Kernel(constants, lambda k: (0.0, 0.0, 0.0, 0.0), go)

    def frequency_response(self, omega: Frequencies) -> Complex:
        natural, zeta, _, _, _, dt, ramp = self.constants[0]
        a = natural * np.array([[0.0, 1.0], [-1.0, -2.0 * zeta]])
        rows = transition(a, np.array([0.0, natural]), dt, "ramp" if ramp else "staircase")
        return held(omega, rows, (1.0, 0.0, 0.0, 0.0), dt)
