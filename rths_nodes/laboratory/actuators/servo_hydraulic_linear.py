# SPDX-License-Identifier: Apache-2.0
"""Servo-hydraulic plant that includes the mass of the specimen (Silva et al. 2020, section 3).

    valve      q'' + b1 q' + b2 q = a1b0 (gain u - x)       the displacement x is fed back to the valve
    actuator   f' + a3 f = q - a2 x'                         natural velocity feedback, a2
    specimen   m x'' + r(x, x', z) = f                       f is also the force of the load cell

u is the command and q the state of the valve. The specimen has the mass m, the force r and the inner states z.
With r = k x + c x', the plant is of fifth order from command to displacement. The defaults are the constants in
the benchmark's code.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rths_nodes.core.arithmetic import Numbers, all_nan, along, along_mean, ceiling, copysign, times
from rths_nodes.core.decay import HARD_LIMIT, LONGEST, decay_of
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.frequency_response import Complex, Frequencies, held
from rths_nodes.core.kernels import Function, Kernel, advance_of
from rths_nodes.core.parameters import integer, number, params
from rths_nodes.core.samples import ROUNDING, Array
from rths_nodes.core.simulators import Actuator, Specimen
from rths_nodes.laboratory.actuators.unloaded import hold_parameter, transition
from rths_nodes.mechanics.small_specimen import SMALL, slopes_of

Parts = tuple[Numbers, Numbers]
STATES = 5
"""Number of states before the specimen's states: valve, valve rate, force, displacement, velocity."""

LONGEST_ANGLE = 0.5
"""Largest product of Runge-Kutta step and magnitude of the fastest pole, rad."""


class OfRate(NamedTuple):
    a1_b0: float
    a2: float
    a3: float
    b1: float
    b2: float
    gain: float
    most: float
    """Largest force of the actuator, N."""
    dead_band: float
    valve_limit: float
    mass: float
    specimen: object


class Constants(NamedTuple):
    """Constants of the exact solution and of the Runge-Kutta solution.

    ``rows`` contains the matrix that maps ``(*scaled states, last command, command)`` to the next scaled states.
    ``units`` are the factors from scaled states to SI units.
    """

    rows: tuple[Numbers, ...]
    units: Numbers
    parts: float
    """Smallest number of Runge-Kutta steps per sample."""
    most_parts: float
    dt: float
    decay: tuple[float, float, float]
    ramp: bool
    of_rate: OfRate


State = tuple[Numbers, Numbers, float]
"""Scaled valve position, valve rate, force, displacement and velocity; specimen states; last command (m)."""


# within a sample, the state consists of the five plant states in SI units, and the specimen states


def moved(s: Parts, h: float, rates: Parts) -> Parts:
    return along(s[0], h, rates[0]), along(s[1], h, rates[1])


def moved_mean(s: Parts, h: float, one: Parts, two: Parts, three: Parts, four: Parts) -> Parts:
    """Return the state after ``h`` s at the Runge-Kutta mean of four rates."""
    return (
        along_mean(s[0], h, one[0], two[0], three[0], four[0]),
        along_mean(s[1], h, one[1], two[1], three[1], four[1]),
    )


def rates_of(force: Callable[..., float], rate: Callable[..., Numbers]) -> Callable[..., Parts]:
    def rates(k: OfRate, s: Parts, command: float, _: float) -> Parts:
        """Return the time derivatives of the states, with the limits of valve and force."""
        a1_b0, a2, a3, b1, b2, gain, most, dead_band, valve_limit, mass, specimen = k
        (q, dq, f, x, v), inner = s
        error = gain * command - x
        if dead_band:
            beyond = abs(error) - dead_band
            error = copysign(0.0 if beyond < 0.0 else beyond, error)
        error = within(error, valve_limit)
        push = within(f, most) - force(specimen, inner, x, v)
        valve = a1_b0 * error - b1 * dq - b2 * q
        return (dq, valve, q - a2 * v - a3 * f, v, push / mass), rate(specimen, inner, x, v)

    return rates


def within(value: float, most: float) -> float:
    """Limit ``value`` to the range +-``most``."""
    if value > most:
        return most
    return -most if value < -most else value


def in_parts(force: Callable[..., float], rate: Callable[..., Numbers]) -> Callable[..., Parts]:
    advance = advance_of(rates_of(force, rate), moved, moved_mean)

    def go(k: Constants, small: Numbers, inner: Numbers, before: float, command: float) -> Parts:
        """Advance by one sample in Runge-Kutta steps, with more steps if the specimen's states decay fast.

        The states become NaN if too many steps are needed.
        """
        _, units, parts, most_parts, dt, decay, _, of_rate = k
        a, b, c, d, e = units
        q, dq, f, x, v = small
        y = (a * q, b * dq, c * f, d * x, e * v)
        at_rest, per_velocity, _ = decay
        needed = ceiling((at_rest + per_velocity * abs(y[4])) * dt / LONGEST)
        if needed > parts:
            parts = needed
        if not needed <= most_parts:
            parts, inner = 1.0, all_nan(inner)
        h, slope, index = dt / parts, (command - before) / parts, 0.0
        while index < parts:
            u = before + index * slope
            y, inner = advance(of_rate, (y, inner), h, u, 0.0, u + 0.5 * slope, 0.0, u + slope, 0.0)
            q, dq, f, x, v = y
            y = (q, dq, within(f, of_rate[6]), x, v)
            index += 1.0
        q, dq, f, x, v = y
        return (q / a, dq / b, f / c, x / d, v / e), inner

    return go


def not_linear(force: Callable[..., float], rate: Callable[..., Numbers]) -> Function:
    go = in_parts(force, rate)

    def step(k: Constants, s: State, command: float) -> tuple[tuple[object, ...], tuple[float, float, float]]:
        """Advance by one sample. The plant has limits or a nonlinear specimen."""
        small, inner, before = s
        small, inner = go(k, small, inner, before if k[6] else command, command)
        return (small, inner, command), shown(k[1], small)

    return step


def linear(force: Callable[..., float], rate: Callable[..., Numbers]) -> Function:
    go = in_parts(force, rate)

    def step(k: Constants, s: State, command: float) -> tuple[tuple[object, ...], tuple[float, float, float]]:
        """Advance the linear plant exactly, or in Runge-Kutta steps if the force exceeds its limit."""
        small, inner, before = s
        if not k[6]:
            before = command
        after = times(k[0], small + (before, command))
        if abs(after[2] * k[1][2]) > k[7][6]:
            after, inner = go(k, small, inner, before, command)
        return (after, inner, command), shown(k[1], after)

    return step


def shown(units: Numbers, small: Numbers) -> tuple[float, float, float]:
    return units[3] * small[3], units[4] * small[4], units[2] * small[2]


class ServoHydraulicLinear(Actuator):
    """Servo-hydraulic actuator with valve and specimen. A linear plant is solved exactly between commands.

    The method is Runge-Kutta if the specimen is nonlinear, if the force exceeds its limit, or if the valve has a
    dead band or a limit. Each sample then has at least ``substeps`` steps. Raises ConfigError if the specimen has
    no mass, or if its force does not act on the actuator.
    """

    SOURCES = ("silva_2020",)

    @params
    class Params:
        a1_b0: float = number("valve and pressure gain a1 beta0", "N/(m s^3)", 2.1283e13, more_than=0.0)
        a2: float = number("natural velocity feedback a2", "N/m", 4.2297e6, at_least=0.0)
        a3: float = number("pole a3 of the actuator", "1/s", 3.3, at_least=0.0)
        b1: float = number("coefficient beta1 of the valve", "1/s", 425.0, more_than=0.0)
        b2: float = number("coefficient beta2 of the valve", "1/s^2", 9.9976e4, more_than=0.0)
        gain: float = number("factor by which the command is multiplied", "1", 1.0261, more_than=0.0)
        max_force: float | None = number(
            "largest magnitude of the force; default: unlimited", "N", None, more_than=0.0
        )
        dead_band: float = number(
            "magnitude of the error up to which the valve does not respond", "m", 0.0, at_least=0.0
        )
        valve_limit: float | None = number(
            "magnitude of the error at which the valve is fully open; default: unlimited", "m", None, more_than=0.0
        )
        substeps: int = integer(
            "smallest number of Runge-Kutta steps per sample if the plant is not linear",
            default=4,
            at_least=1,
            at_most=1000,
        )
        hold: str = hold_parameter()

    def __init__(self, params: Params, dt: float, specimen: Specimen) -> None:
        if not specimen.mass > 0.0:
            raise ConfigError(
                "actuator servo_hydraulic_linear: the specimen must have a mass that the force accelerates. "
                "Use specimen.type = with_mass"
            )
        if not specimen.felt:
            raise ConfigError("actuator servo_hydraulic_linear: the specimen's force must act on the actuator")
        super().__init__(params, dt, specimen)

    @classmethod
    def kernel_of(cls, params: Params, specimen: Specimen) -> Kernel:
        kernel, of_specimen = specimen.bound()
        inner = tuple(specimen.initial_state)
        exact = specimen.linear is not None and not params.dead_band and params.valve_limit is None

        def constants(p: ServoHydraulicLinear.Params, dt: float) -> Constants:
            most = math.inf if p.max_force is None else p.max_force
            limit = math.inf if p.valve_limit is None else p.valve_limit
            of_rate = OfRate(
                p.a1_b0, p.a2, p.a3, p.b1, p.b2, p.gain, most, p.dead_band, limit, specimen.mass, of_specimen
            )
            a, b, scale = _small(p, specimen)
            parts = float(max(p.substeps, math.ceil(_fastest(a) * dt / LONGEST_ANGLE)))
            return Constants(
                tuple([tuple(row) for row in transition(a, b, dt, p.hold).tolist()]),
                tuple(scale[:STATES].tolist()),
                parts,
                max(float(HARD_LIMIT), parts),
                dt,
                decay_of(specimen).numbers,
                p.hold == "ramp",
                of_rate,
            )

        make = linear if exact else not_linear
        return Kernel(constants, lambda k: ((0.0,) * STATES, inner, 0.0), make(kernel.force, kernel.rate))

    def frequency_response(self, omega: Frequencies) -> Complex:
        k: Constants = self.constants
        output = np.zeros(len(k.rows) + 2)
        output[3] = 1.0
        return held(omega, k.rows, output, k.dt)


def _small(p: ServoHydraulicLinear.Params, specimen: Specimen) -> tuple[Array, Array, Array]:
    mass, rate = specimen.mass, math.sqrt(p.b2)
    n = STATES + len(specimen.initial_state)
    a = np.zeros((n, n))
    a[0, 1] = 1.0
    a[1, [0, 1, 3]] = -p.b2, -p.b1, -p.a1_b0
    a[2, [0, 2, 4]] = 1.0, -p.a3, -p.a2
    a[3, 4] = 1.0
    a[4, 2] = 1.0 / mass
    if specimen.linear is not None:
        a[4, [3, 4]] = -specimen.linear[0] / mass, -specimen.linear[1] / mass
    else:
        slopes = slopes_of(specimen, SMALL)
        a[4, 3:] -= slopes[0] / mass
        a[STATES:, 3:] = slopes[1:]
    b = np.zeros(n)
    b[1] = p.a1_b0 * p.gain
    force = p.a1_b0 / (p.b2 * rate)  # force that an error of 1 m builds up in the time 1 / rate
    scale = np.concatenate([[rate * force, rate**2 * force, force, 1.0, rate], np.ones(n - STATES)])
    return a / scale[:, None] * scale, b / scale, scale


def _fastest(a: Array) -> float:
    poles = np.linalg.eigvals(a)
    worst = max(poles, key=lambda pole: float(pole.real))
    if worst.real > ROUNDING * np.abs(poles).max():
        raise ConfigError(
            f"actuator servo_hydraulic_linear: actuator and specimen have a pole at {worst:.4g} rad/s; the real "
            "part must be <= 0 for stability"
        )
    return float(np.abs(poles).max())
