# SPDX-License-Identifier: Apache-2.0
"""Servo-hydraulic actuator with controller roll-off, servovalve, flow limit and load pressure.

The defaults model the equipment of Chen & Ricles (2010): 1700 kN, 760 mm/s, roll-off 39.8 Hz.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rths_nodes.core.arithmetic import Numbers, all_nan, along, along_mean, root, tanh
from rths_nodes.core.decay import HARD_LIMIT, LONGEST, MOST, decay_of
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.frequency_response import Complex, Frequencies, held
from rths_nodes.core.kernels import Function, Kernel, advance_of
from rths_nodes.core.parameters import integer, number, params, text
from rths_nodes.core.simulators import Actuator, Specimen, no_force
from rths_nodes.laboratory.actuators.unloaded import transition

Whole = tuple[float, float, float, float, float, float, Numbers]
PASSES = (1, 2)
"""Passes of the fixed-point iteration for the piston velocity v. For a specimen with damping c, each pass
multiplies the error by about v c / (2 F_max). This factor is below 0.15 for the defaults of this package."""


class Constants(NamedTuple):
    gain: float
    max_velocity: float
    max_force: float
    roll_off: float
    """Corner frequency of the controller, rad/s."""
    stiffness: float
    """Squared natural frequency of the valve, (rad/s)^2."""
    damping: float
    """Twice the product of damping ratio and natural frequency of the valve, rad/s."""
    substeps: int
    h: float
    """Length of a substep, s."""
    ramp: bool
    fastest: tuple[float, ...]
    """Velocities (m/s) up to which substeps are short enough after 0, 1, 2, ... halvings."""
    specimen: object


State = tuple[float, float, float, float, float, Numbers, float]
"""Filtered error (m), spool position (m), spool rate (m/s), displacement (m), velocity (m/s), inner states of the
specimen, and last command (m)."""


# state within a substep: (filtered error, spool, spool rate, x, v, fastest v in the substep, inner states);
# v and the fastest v are passed from stage to stage and not integrated


def moved(s: Whole, h: float, rates: Whole) -> Whole:
    """Return the state after ``h`` s at constant ``rates``; v and the fastest v are copied from ``rates``."""
    f, y, w, x, _, _, inner = s
    df, dy, dw, dx, v, fastest, changes = rates
    return f + h * df, y + h * dy, w + h * dw, x + h * dx, v, fastest, along(inner, h, changes)


def moved_mean(s: Whole, h: float, one: Whole, two: Whole, three: Whole, four: Whole) -> Whole:
    """Return the state after ``h`` s at the Runge-Kutta mean of four rates."""
    f, y, w, x, _, _, inner = s
    af, ay, aw, ax, _, _, a = one
    bf, by, bw, bx, _, _, b = two
    cf, cy, cw, cx, _, _, c = three
    df, dy, dw, dx, v, fastest, d = four
    sixth = h / 6.0
    return (
        f + sixth * (af + 2.0 * (bf + cf) + df),
        y + sixth * (ay + 2.0 * (by + cy) + dy),
        w + sixth * (aw + 2.0 * (bw + cw) + dw),
        x + sixth * (ax + 2.0 * (bx + cx) + dx),
        v,
        fastest,
        along_mean(inner, h, a, b, c, d),
    )


def velocity_of(load: Callable[..., float]) -> Callable[..., float]:
    def velocity(k: Constants, spool: float, x: float, inner: tuple[float, ...], last: float) -> float:
        """Compute the piston velocity (m/s), with flow limit and load pressure, by fixed-point iteration."""
        gain, fastest, most, _, _, _, _, _, _, _, specimen = k
        free = fastest * tanh(gain * spool / fastest)
        share = -1.0 / most if spool < 0.0 else 1.0 / most
        for _ in PASSES:
            left = 1.0 - share * load(specimen, inner, x, last)
            last = free * root(left) if left > 0.0 else 0.0
        return last

    return velocity


def rates_of(velocity: Callable[..., float], rate: Callable[..., Numbers]) -> Callable[..., Whole]:
    def rates(k: Constants, s: Whole, command: float, _: float) -> Whole:
        """Return the time derivatives of the states of error filter, servovalve, piston and specimen."""
        f, y, w, x, v, fastest, inner = s
        v = velocity(k, y, x, inner, v)
        if abs(v) > fastest:
            fastest = abs(v)
        return k[3] * (command - x - f), w, k[4] * (f - y) - k[5] * w, v, v, fastest, rate(k[10], inner, x, v)

    return rates


def halving(advance: Callable[..., Whole]) -> Callable[..., Whole]:
    def through(k: Constants, s: Whole, command: float, slope: float) -> Whole:
        """Advance by one substep, which is halved until its parts are short enough for the piston velocity.

        The command changes by ``slope`` (m) during the substep. The states become NaN if even the smallest parts
        are too long.
        """
        fastest, h = k[9], k[7]
        count = 1 << (len(fastest) - 1)
        at, size, halved = 0, count, 0
        while at < count:
            begins, share = command + slope * (at / count), size / count
            f, y, w, x, v, _, inner = s
            if abs(v) <= fastest[halved]:
                runs = slope * share
                middle, ends = begins + 0.5 * runs, begins + runs
                state = advance(k, (f, y, w, x, v, 0.0, inner), h * share, begins, 0.0, middle, 0.0, ends, 0.0)
                short_enough = not state[5] > fastest[halved]
            else:
                state, short_enough = s, False
            if not short_enough:
                if halved + 1 < len(fastest):
                    size, halved = size >> 1, halved + 1
                    continue
                runs = slope * share
                middle, ends = begins + 0.5 * runs, begins + runs
                state = advance(
                    k, (f, y, w, x, v, 0.0, all_nan(inner)), h * share, begins, 0.0, middle, 0.0, ends, 0.0
                )
            s = state
            at += size
            while halved > 0 and not at & size:  # both halves are done: continue with the next part
                size, halved = size << 1, halved - 1
        return s

    return through


def servo_hydraulic(
    force: Callable[..., float], load: Callable[..., float], rate: Callable[..., Numbers]
) -> Function:
    velocity = velocity_of(load)
    through = halving(advance_of(rates_of(velocity, rate), moved, moved_mean))

    def step(k: Constants, s: State, command: float) -> tuple[tuple[object, ...], tuple[float, float, float]]:
        """Advance by one sample in substeps. The command is constant or linear within the sample."""
        f, y, w, x, v, inner, before = s
        substeps, specimen = k[6], k[10]
        start, slope = command, 0.0
        if k[8]:
            start, slope = before, (command - before) / substeps
        state = (f, y, w, x, v, 0.0, inner)
        for index in range(substeps):
            state = through(k, state, start + index * slope, slope)
        f, y, w, x, v, _, inner = state
        v = velocity(k, y, x, inner, v)
        return (f, y, w, x, v, inner, command), (x, v, force(specimen, inner, x, v))

    return step


class ServoHydraulic(Actuator):
    """Servo-hydraulic actuator that integrates controller, servovalve, piston and specimen together.

    The error, command minus piston displacement x, passes through a first-order roll-off and a second-order
    servovalve with the output y. The piston velocity is

        x' = v_max tanh(K y / v_max) sqrt(1 - sgn(y) F / F_max)

    F_max is the stall force. F is the specimen's force, which depends on x'; it is zero if the specimen does not
    affect the actuator. The integration method is RK4 with ``substeps`` steps per sample. Steps are halved if the
    inner states of the specimen decay fast.
    """

    @params
    class Params:
        gain: float = number("velocity gain K", "1/s", 1024.0 / 28.0, more_than=0.0)
        roll_off_frequency: float = number("roll-off frequency of the controller", "Hz", 39.8, more_than=0.0)
        valve_frequency: float = number("natural frequency of the servovalve", "Hz", 60.0, more_than=0.0)
        valve_damping_ratio: float = number("damping ratio of the servovalve", default=0.7, more_than=0.0)
        max_velocity: float = number("velocity at full flow without load", "m/s", 0.76, more_than=0.0)
        max_force: float = number("stall force", "N", 1.7e6, more_than=0.0)
        substeps: int = integer("number of integration steps per sample", default=4, at_least=1, at_most=1000)
        hold: str = text(
            "command within a sample: staircase (constant) or ramp (linear)", "staircase", ("staircase", "ramp")
        )

    def __init__(self, params: Params, dt: float, specimen: Specimen) -> None:
        if specimen.mass:
            raise ConfigError(
                "actuator servo_hydraulic: the specimen must have no mass, because the flow sets the velocity. "
                "Use servo_hydraulic_linear"
            )
        self._dt = dt
        super().__init__(params, dt, specimen)

    @classmethod
    def kernel_of(cls, params: Params, specimen: Specimen) -> Kernel:
        kernel, of_specimen = specimen.bound()
        decay, inner = decay_of(specimen), specimen.initial_state

        def constants(p: ServoHydraulic.Params, dt: float) -> Constants:
            check_increments(p, decay.times(p.max_velocity, dt))
            h, valve = dt / p.substeps, 2.0 * math.pi * p.valve_frequency
            halvings = max(0, math.ceil(math.log2(HARD_LIMIT / p.substeps)))
            return Constants(
                p.gain,
                p.max_velocity,
                p.max_force,
                2.0 * math.pi * p.roll_off_frequency,
                valve**2,
                2.0 * p.valve_damping_ratio * valve,
                p.substeps,
                h,
                p.hold == "ramp",
                tuple([decay.fastest(h / 2**count) for count in range(halvings + 1)]),
                of_specimen,
            )

        load = kernel.force if specimen.felt else no_force
        return Kernel(
            constants,
            lambda k: (0.0, 0.0, 0.0, 0.0, 0.0, tuple(inner), 0.0),
            servo_hydraulic(kernel.force, load, kernel.rate),
        )

    def frequency_response(self, omega: Frequencies) -> Complex:
        """Return the complex ratio of displacement to command, far below the flow limit and the stall force."""
        k: Constants = self.constants
        a = np.zeros((4, 4))  # states: controller, spool, spool rate, piston
        a[0, [0, 3]] = -k.roll_off
        a[1, 2] = 1.0
        a[2, :3] = k.stiffness, -k.stiffness, -k.damping
        a[3, 1] = k.gain
        hold = "ramp" if k.ramp else "staircase"
        rows = transition(a, np.array([k.roll_off, 0.0, 0.0, 0.0]), self._dt, hold)
        return held(omega, rows, (0.0, 0.0, 0.0, 1.0, 0.0, 0.0), self._dt)


def check_increments(params: ServoHydraulic.Params, times: float) -> None:
    needed = times / LONGEST
    if needed > max(MOST, params.substeps):
        raise ConfigError(
            f"actuator.max_velocity = {params.max_velocity:g} m/s: at this velocity the specimen's states need "
            f"{needed:.4g} integration steps per sample; must be <= {MOST}. Raise servo_rate or "
            "actuator.substeps"
        )
