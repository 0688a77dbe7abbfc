"""Second-order actuator that gets slower the faster it has to move, as valves with a limited flow are.

The TADC tests put the growth of their delay (13.7 ms at 2 Hz, 15.6 ms at the end of the sweep) down to the flow.
A small actuator for tests of adaptive compensation: where pressure, stall and the valve itself matter, take
``servo_hydraulic``.
"""

from __future__ import annotations

import math

import numpy as np

from rths_nodes.core.frequency_response import Complex, Frequencies, held
from rths_nodes.core.parameters import number, params
from rths_nodes.core.protocols import Specimen
from rths_nodes.laboratory.actuators.held_plant import hold_parameter, transition
from rths_nodes.laboratory.actuators.specimen_path import SpecimenPath

SLOWEST = 1e-9
"""rad/s: keeps the formulas finite when a diverging test moves at any velocity."""


class AmplitudeDependent:
    """d'' + 2 zeta w d' + w^2 d = w^2 c with w = w_0 / sqrt(1 + (V / v_s)^2).

    V is the velocity amplitude: the largest abs(d') so far, forgotten with the time constant ``memory``. Small
    motions see w_0; with V well above v_s, w falls like v_s / V, as the loop gain of a valve that saturates does
    (the velocity itself is not limited). w is kept over a sample, over which the solution is exact.
    """

    @params
    class Params:
        """Parameters; at small motions the defaults are those of second_order."""

        natural_frequency: float = number(
            "natural frequency w_0 / 2 pi of small motions", "Hz", 15.571359045, more_than=0.0, at_most=1e5
        )
        damping_ratio: float = number("damping ratio zeta", default=0.6415455449, more_than=0.0, less_than=1.0)
        saturation_velocity: float = number(
            "velocity amplitude v_s at which the natural frequency has fallen to 0.71", "m/s", 0.3, more_than=0.0
        )
        memory: float = number("time constant in which the amplitude is forgotten", "s", 0.5, more_than=0.0)
        hold: str = hold_parameter()

    def __init__(self, params: Params, dt: float, specimen: Specimen) -> None:
        self._dt = dt
        self._omega = 2.0 * math.pi * params.natural_frequency
        self._zeta = params.damping_ratio
        self._saturation = params.saturation_velocity
        self._forget = math.exp(-dt / params.memory)
        self._ramp = params.hold == "ramp"
        self._path = SpecimenPath(specimen, dt)
        self.reset()

    def reset(self) -> None:
        """At rest at zero, and commanded to be there."""
        self._command = self._amplitude = 0.0
        self._path.reset()
        self.displacement = self.velocity = self.force = 0.0

    def frequency_response(self, omega: Frequencies) -> Complex:
        """Displacement over command at ``omega`` (rad/s), at small motion."""
        a = self._omega * np.array([[0.0, 1.0], [-1.0, -2.0 * self._zeta]])
        rows = transition(a, np.array([0.0, self._omega]), self._dt, "ramp" if self._ramp else "staircase")
        return held(omega, rows, (1.0, 0.0, 0.0, 0.0), self._dt)

    def step(self, command: float) -> None:
        before = self._command if self._ramp else command
        self._command = command
        omega = max(self._omega / math.hypot(1.0, self._amplitude / self._saturation), SLOWEST)
        self._move(before, command, omega)
        self._amplitude = max(abs(self.velocity), self._forget * self._amplitude)
        self.force = self._path.move(self.displacement, self.velocity)

    def _move(self, before: float, after: float, omega: float) -> None:
        """Free vibration about the motion that the command, straight from before to after, leaves in the end."""
        slope = (after - before) / self._dt
        lag = 2.0 * self._zeta / omega * slope
        x, v = self.displacement - before + lag, self.velocity - slope
        decay, damped = self._zeta * omega, omega * math.sqrt(1.0 - self._zeta**2)
        fading = math.exp(-decay * self._dt)
        cosine, sine = fading * math.cos(damped * self._dt), fading * math.sin(damped * self._dt) / damped
        self.displacement = after - lag + x * cosine + (v + decay * x) * sine
        self.velocity = slope + v * cosine - (omega * omega * x + decay * v) * sine
