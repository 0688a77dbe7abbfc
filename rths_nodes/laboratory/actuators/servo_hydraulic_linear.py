"""Servo-hydraulic plant by named constants, with the specimen's mass in it (Silva et al. 2020, section 3).

    valve      q'' + b1 q' + b2 q = a1b0 (gain u - x)       the displacement x fed back to the valve
    actuator   f' + a3 f = q - a2 x'                         natural velocity feedback, a2
    specimen   m x'' + r(x, x', z) = f                       f is also what the load cell shows

With r = k x + c x' it is B0 / (A5 s^5 + ... + A0) from command to displacement, with the coefficients of
:func:`closed_form`. The defaults are those of the benchmark's code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rths_nodes.core.decay import HARD_LIMIT, decay_of
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.frequency_response import Complex, Frequencies, held
from rths_nodes.core.parameters import integer, number, params
from rths_nodes.core.protocols import Specimen
from rths_nodes.core.rounding import ROUNDING
from rths_nodes.core.samples import Array
from rths_nodes.laboratory.actuators.held_plant import hold_parameter, transition

STATES = 5
"""Valve and its rate, force, displacement, velocity; behind them the specimen's own."""

LONGEST_ANGLE = 0.5
"""rad: of the fastest pole in a Runge-Kutta step."""

SMALL = 1e-7
"""Displacement (m) and velocity (m/s) at which a nonlinear specimen is taken as linear for the response."""


class ServoHydraulicLinear:
    """Linear valve, actuator and specimen of fifth order, solved exactly between the samples of its command.

    Runge-Kutta with ``substeps`` in a sample where something is not linear: a nonlinear specimen, a force at its
    limit, a dead band or a limit of the valve. Raises ConfigError for a specimen without mass, which this force
    could not move.
    """

    @params
    class Params:
        """Parameters of the plant; force, dead band and limit of the valve are left out unless given."""

        a1_b0: float = number("valve and pressure gain a1 beta0", "N/(m s^3)", 2.1283e13, more_than=0.0)
        a2: float = number("natural velocity feedback a2", "N/m", 4.2297e6, at_least=0.0)
        a3: float = number("pole a3 of the actuator", "1/s", 3.3, at_least=0.0)
        b1: float = number("beta1 of the valve", "1/s", 425.0, more_than=0.0)
        b2: float = number("beta2 of the valve", "1/s^2", 9.9976e4, more_than=0.0)
        gain: float = number("factor on the command", "1", 1.0261, more_than=0.0)
        max_force: float | None = number(
            "the force stays within +- this; no limit if left out", "N", None, more_than=0.0
        )
        dead_band: float = number(
            "error of the valve, either way, to which it does not answer", "m", 0.0, at_least=0.0
        )
        valve_limit: float | None = number(
            "error of the valve at which it is fully open; no limit if left out", "m", None, more_than=0.0
        )
        substeps: int = integer(
            "Runge-Kutta steps in a sample where something is not linear, at least",
            default=4,
            at_least=1,
            at_most=1000,
        )
        hold: str = hold_parameter()

    def __init__(self, params: Params, dt: float, specimen: Specimen) -> None:
        self._p, self._dt, self._specimen = params, dt, specimen
        self._mass: float = getattr(specimen, "mass", 0.0)
        if not self._mass > 0.0:
            raise ConfigError(
                "actuator servo_hydraulic_linear: its force accelerates the specimen, which therefore needs a "
                "mass: take specimen.type = with_mass"
            )
        if not getattr(specimen, "felt", True):
            raise ConfigError("actuator servo_hydraulic_linear: needs a specimen whose force is felt")
        self._most = math.inf if params.max_force is None else params.max_force
        self._ramp = params.hold == "ramp"
        self._decay = decay_of(specimen)
        linear: tuple[float, float] | None = getattr(specimen, "linear", None)
        self._exact = linear is not None and not params.dead_band and params.valve_limit is None
        self._scale = np.ones(STATES)
        a, b = self._small(linear)
        self._parts = max(params.substeps, math.ceil(_fastest(a) * dt / LONGEST_ANGLE))
        rows = transition(a, b, dt, params.hold)
        self._frequency_rows = rows
        self._rows: list[list[float]] = rows.tolist()
        self._units: list[float] = self._scale.tolist()
        self.reset()

    def _small(self, linear: tuple[float, float] | None) -> tuple[Array, Array]:
        """A and b about the rest, in states of comparable size, whose units are put into ``_scale``."""
        p, rate = self._p, math.sqrt(self._p.b2)
        n = STATES + len(self._specimen.initial_state)
        a = np.zeros((n, n))
        a[0, 1] = 1.0
        a[1, [0, 1, 3]] = -p.b2, -p.b1, -p.a1_b0
        a[2, [0, 2, 4]] = 1.0, -p.a3, -p.a2
        a[3, 4] = 1.0
        a[4, 2] = 1.0 / self._mass
        if linear is not None:
            a[4, [3, 4]] = -linear[0] / self._mass, -linear[1] / self._mass
        else:
            slopes = self._specimen_slopes()
            a[4, 3:] -= slopes[0] / self._mass
            a[STATES:, 3:] = slopes[1:]
        b = np.zeros(n)
        b[1] = p.a1_b0 * p.gain
        force = p.a1_b0 / (p.b2 * rate)  # what the valve makes of 1 m within its own time
        units = np.array([rate * force, rate**2 * force, force, 1.0, rate])
        self._scale = np.concatenate([units, np.ones(n - STATES)])
        return a / self._scale[:, None] * self._scale, b / self._scale

    def _specimen_slopes(self) -> Array:
        """Force and rates of the specimen by displacement, velocity and its states, at rest."""
        specimen, rest = self._specimen, [0.0, 0.0, *self._specimen.initial_state]

        def seen(point: Sequence[float]) -> Array:
            x, v, *state = point
            return np.array([specimen.force(state, x, v), *specimen.rate(state, x, v)])

        columns = []
        for index in range(len(rest)):
            ends = [[x + sign * SMALL * (k == index) for k, x in enumerate(rest)] for sign in (1.0, -1.0)]
            columns.append((seen(ends[0]) - seen(ends[1])) / (2.0 * SMALL))
        return np.column_stack(columns)

    def reset(self) -> None:
        """At rest at zero, and commanded to be there."""
        self._state = [0.0] * STATES
        self._inner = list(self._specimen.initial_state)
        self._command = 0.0
        self.displacement = self.velocity = self.force = 0.0

    def frequency_response(self, omega: Frequencies) -> Complex:
        """Displacement over command at ``omega`` (rad/s), at small motion."""
        output = np.zeros(len(self._frequency_rows) + 2)
        output[3] = 1.0
        return held(omega, self._frequency_rows, output, self._dt)

    def step(self, command: float) -> None:
        before = self._command if self._ramp else command
        self._command = command
        if self._exact:
            self._step_exactly(before, command)
        else:
            self._step_in_parts(before, command)
        _, _, force, displacement, velocity = self._state
        _, _, of_force, of_displacement, of_velocity, *_ = self._units
        self.force, self.displacement, self.velocity = (
            force * of_force,
            displacement * of_displacement,
            velocity * of_velocity,
        )

    def _step_exactly(self, before: float, command: float) -> None:
        q, p, f, x, v = self._state
        after = [
            a * q + b * p + c * f + d * x + e * v + g * before + h * command for a, b, c, d, e, g, h in self._rows
        ]
        if abs(after[2] * self._units[2]) > self._most:
            self._step_in_parts(before, command)
        else:
            self._state = after

    def _step_in_parts(self, before: float, command: float) -> None:
        """Runge-Kutta, in as many parts as the specimen's states need; nan where they would be too many."""
        y = [value * unit for value, unit in zip(self._state, self._units, strict=False)]
        parts: float = max(self._parts, self._decay.increments(y[4], self._dt))
        if not parts <= max(HARD_LIMIT, self._parts):
            parts, self._inner = 1, [math.nan] * len(self._inner)
        parts = int(parts)
        h, slope = self._dt / parts, (command - before) / parts
        for index in range(parts):
            u = before + index * slope
            y = self._part(y, u, u + 0.5 * slope, u + slope, h)
            y[2] = min(max(y[2], -self._most), self._most)
        self._state = [value / unit for value, unit in zip(y, self._units, strict=False)]

    def _part(self, y: list[float], start: float, middle: float, end: float, h: float) -> list[float]:
        n = STATES
        whole = y + self._inner
        k1 = self._rate(whole, start)
        k2 = self._rate([a + 0.5 * h * b for a, b in zip(whole, k1, strict=True)], middle)
        k3 = self._rate([a + 0.5 * h * b for a, b in zip(whole, k2, strict=True)], middle)
        k4 = self._rate([a + h * b for a, b in zip(whole, k3, strict=True)], end)
        slopes = zip(whole, k1, k2, k3, k4, strict=True)
        whole = [s + h / 6.0 * (a + 2.0 * (b + c) + d) for s, a, b, c, d in slopes]
        self._inner = whole[n:]
        return whole[:n]

    def _rate(self, y: list[float], command: float) -> list[float]:
        p = self._p
        q, dq, f, x, v, *state = y
        error = p.gain * command - x
        if p.dead_band:
            error = math.copysign(max(abs(error) - p.dead_band, 0.0), error)
        if p.valve_limit is not None:
            error = min(max(error, -p.valve_limit), p.valve_limit)
        held_back = min(max(f, -self._most), self._most)
        return [
            dq,
            p.a1_b0 * error - p.b1 * dq - p.b2 * q,
            q - p.a2 * v - p.a3 * f,
            v,
            (held_back - self._specimen.force(state, x, v)) / self._mass,
            *self._specimen.rate(state, x, v),
        ]


def closed_form(params: Any, mass: float, damping: float, stiffness: float) -> tuple[Array, float]:
    """A5 to A0 ``(6,)``, highest power first, and B0 of the plant on a linear specimen, in SI.

    ``mass`` kg, ``damping`` N s/m and ``stiffness`` N/m of the specimen.
    """
    m, c, k, p = mass, damping, stiffness, params
    sum_1, sum_2 = k + c * p.a3 + p.a2, c + m * p.a3
    denominator = [
        m,
        sum_2 + m * p.b1,
        sum_1 + sum_2 * p.b1 + m * p.b2,
        k * p.a3 + sum_1 * p.b1 + sum_2 * p.b2,
        k * p.a3 * p.b1 + sum_1 * p.b2,
        k * p.a3 * p.b2 + p.a1_b0,
    ]
    return np.array(denominator), p.a1_b0 * p.gain


def _fastest(a: Array) -> float:
    """Magnitude of the fastest pole, rad/s. Raises ConfigError for a plant that is not stable."""
    poles = np.linalg.eigvals(a)
    worst = max(poles, key=lambda pole: float(pole.real))
    if worst.real > ROUNDING * np.abs(poles).max():
        raise ConfigError(
            f"actuator servo_hydraulic_linear: has, with its specimen, a pole at {worst:.4g} rad/s: its real part "
            "must be <= 0 (stable)"
        )
    return float(np.abs(poles).max())
