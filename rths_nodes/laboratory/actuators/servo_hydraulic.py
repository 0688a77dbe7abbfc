"""Servo-hydraulic actuator with controller roll-off, servovalve, flow limit and load pressure.

After the equipment of Chen & Ricles (2010): 1700 kN, 760 mm/s, roll-off 39.8 Hz.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rths_nodes.core.decay import HARD_LIMIT, LONGEST, MOST, decay_of
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.frequency_response import Complex, Frequencies, held
from rths_nodes.core.parameters import integer, number, params, text
from rths_nodes.core.protocols import Specimen
from rths_nodes.laboratory.actuators.held_plant import transition

FORCE_ITERATIONS = 2
"""Passes for the velocity that a rate-dependent specimen's force allows; each gains a factor of about
v c / 2 F_max (below 0.15 for the largest damper here), starting from the velocity of the stage before."""


class ServoHydraulic:
    """e = command - x; e passes a first-order roll-off and a second-order servovalve y; the piston moves with

        v = v_max tanh(K y / v_max) sqrt(1 - sgn(y) F / F_max)

    where F is the specimen's force, which depends on v itself, or zero where the actuator does not feel it. RK4
    with ``substeps`` within a sample, which are halved while the specimen's inner states forget too fast for them.
    """

    @params
    class Params:
        gain: float = number("velocity gain K", "1/s", 1024.0 / 28.0, more_than=0.0)
        roll_off_frequency: float = number("roll-off frequency of the controller", "Hz", 39.8, more_than=0.0)
        valve_frequency: float = number("natural frequency of the servovalve", "Hz", 60.0, more_than=0.0)
        valve_damping_ratio: float = number("damping ratio of the servovalve", default=0.7, more_than=0.0)
        max_velocity: float = number("velocity at full flow without load", "m/s", 0.76, more_than=0.0)
        max_force: float = number("stall force", "N", 1.7e6, more_than=0.0)
        substeps: int = integer("integration steps within a sample", default=4, at_least=1, at_most=1000)
        hold: str = text(
            "how the command runs within a sample: staircase (the paper's) or ramp",
            "staircase",
            ("staircase", "ramp"),
        )

    def __init__(self, params: Params, dt: float, specimen: Specimen) -> None:
        if getattr(specimen, "mass", 0.0):
            raise ConfigError(
                "actuator servo_hydraulic: takes no specimen with mass: its flow gives the velocity, which no "
                "inertia "
                "resists; take servo_hydraulic_linear"
            )
        self._p = params
        self._specimen = specimen
        self._load = specimen.force if getattr(specimen, "felt", True) else _no_force
        self._decay = decay_of(specimen)
        self._check_increments(dt)
        self._dt = dt
        self._step = dt / params.substeps
        halvings = max(0, math.ceil(math.log2(HARD_LIMIT / params.substeps)))
        self._fastest = [self._decay.fastest(self._step / 2**count) for count in range(halvings + 1)]
        """m/s: velocities up to which a step is short enough that was halved 0, 1, 2, ... times."""
        self._roll_off = 2.0 * math.pi * params.roll_off_frequency
        valve = 2.0 * math.pi * params.valve_frequency
        self._valve_stiffness = valve**2
        self._valve_damping = 2.0 * params.valve_damping_ratio * valve
        self.reset()

    def _check_increments(self, dt: float) -> None:
        """Refuses a specimen whose states the piston, at its largest velocity, changes too fast for real time."""
        largest = self._p.max_velocity
        needed = self._decay.times(largest, dt) / LONGEST
        if needed > max(MOST, self._p.substeps):
            raise ConfigError(
                f"actuator.max_velocity = {largest:g} m/s: there the specimen's states need {needed:.4g} "
                f"integration steps within a sample, must be <= {MOST}: raise servo_rate or actuator.substeps"
            )

    def reset(self) -> None:
        """At rest at zero."""
        self._filtered = self._spool = self._spool_rate = 0.0
        self._state = list(self._specimen.initial_state)
        self._command = 0.0
        self.displacement = self.velocity = self.force = 0.0

    def frequency_response(self, omega: Frequencies) -> Complex:
        """Displacement over command at ``omega`` (rad/s), at small motion: flow and load far from their limits."""
        p, roll_off = self._p, self._roll_off
        a = np.zeros((4, 4))  # controller, spool, its rate, piston
        a[0, [0, 3]] = -roll_off
        a[1, 2] = 1.0
        a[2, :3] = self._valve_stiffness, -self._valve_stiffness, -self._valve_damping
        a[3, 1] = p.gain
        rows = transition(a, np.array([roll_off, 0.0, 0.0, 0.0]), self._dt, p.hold)
        return held(omega, rows, (0.0, 0.0, 0.0, 1.0, 0.0, 0.0), self._dt)

    def step(self, command: float) -> None:
        substeps = self._p.substeps
        slope = (command - self._command) / substeps if self._p.hold == "ramp" else 0.0
        start = self._command if self._p.hold == "ramp" else command
        for index in range(substeps):
            self._advance(start + index * slope, slope, self._step, 0)
        self._command = command
        self.velocity = self._velocity(self._spool, self.displacement, self._state)
        self.force = self._specimen.force(self._state, self.displacement, self.velocity)

    def _velocity(self, spool: float, x: float, state: list[float]) -> float:
        p = self._p
        free = p.max_velocity * math.tanh(p.gain * spool / p.max_velocity)
        sign = math.copysign(1.0 / p.max_force, spool)
        velocity = self.velocity
        for _ in range(FORCE_ITERATIONS):
            load = 1.0 - sign * self._load(state, x, velocity)
            velocity = free * math.sqrt(load) if load > 0.0 else 0.0
        return velocity

    def _advance(self, command: float, slope: float, h: float, halvings: int) -> None:
        """Go on by ``h`` (s), in halves where that is too long for the specimen at a velocity on the way.

        The command runs by ``slope`` (m) meanwhile. Where the smallest parts are too long, the states become nan.
        """
        before, fastest = self.velocity, self._fastest[halvings]
        if abs(before) <= fastest and self._runge_kutta(command, slope, h, fastest):
            return
        self.velocity = before
        if halvings + 1 < len(self._fastest):
            for half in (0.0, 0.5):
                self._advance(command + half * slope, 0.5 * slope, 0.5 * h, halvings + 1)
        else:
            self._state = [math.nan] * len(self._state)
            self._runge_kutta(command, slope, h, math.inf)

    def _runge_kutta(self, command: float, slope: float, h: float, fastest: float) -> bool:
        """One step; false, and nothing is done, where the piston is faster than ``fastest`` (m/s) on the way."""
        f0, y0, w0, x0, s0 = self._filtered, self._spool, self._spool_rate, self.displacement, self._state
        f, y, w, x, s = f0, y0, w0, x0, s0
        sum_f = sum_y = sum_w = sum_x = 0.0
        sum_s = [0.0] * len(s0)
        roll_off, stiffness, damping, rate = (
            self._roll_off,
            self._valve_stiffness,
            self._valve_damping,
            self._specimen.rate,
        )
        for weight, part in ((1.0, 0.5), (2.0, 0.5), (2.0, 1.0), (1.0, 0.0)):
            stage_command = command + (0.0 if weight == 1.0 and part else slope * (0.5 if weight == 2.0 else 1.0))
            df = roll_off * (stage_command - x - f)
            dw = stiffness * (f - y) - damping * w
            dy = w
            dx = self.velocity = self._velocity(y, x, s)
            if abs(dx) > fastest:
                return False
            if s0:
                ds = rate(s, x, dx)
                sum_s = [a + weight * b for a, b in zip(sum_s, ds, strict=True)]
                s = [a + part * h * b for a, b in zip(s0, ds, strict=True)]
            sum_f += weight * df
            sum_y += weight * dy
            sum_w += weight * dw
            sum_x += weight * dx
            f, y, w, x = f0 + part * h * df, y0 + part * h * dy, w0 + part * h * dw, x0 + part * h * dx
        h /= 6.0
        self._filtered, self._spool, self._spool_rate = f0 + h * sum_f, y0 + h * sum_y, w0 + h * sum_w
        self.displacement = x0 + h * sum_x
        if s0:
            self._state = [a + h * b for a, b in zip(s0, sum_s, strict=True)]
        return True


def _no_force(state: Sequence[float], displacement: float, velocity: float) -> float:
    """Load of a specimen whose force is only computed."""
    return 0.0
