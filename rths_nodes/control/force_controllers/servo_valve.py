# SPDX-License-Identifier: Apache-2.0
"""Force controller of the rig and its servo-valve; a force loop or a displacement loop drives the spool.

    u_k = k_f (F_k - f_{k-1}) / K            force control
    u_k = k_d (c_k - x_{k-1})                displacement control (hold)
    q_k = q_{k-1} + (u_k - q_{k-1}) (1 - e^{-dt / T})
    x_k = x_{k-1} + dt (q_k + q_0)

F and f are the desired and measured force of the axis, c and x its desired and measured displacement. u is the
signal to the valve, as a piston velocity. q is the piston velocity due to the flow of the valve, whose spool has
the time constant T. q_0 is the piston velocity due to leakage at zero signal. K is the stiffness of specimen, load
frame and oil in series. Because the piston integrates, an error decays at the rate k_f, a ramp of r N/s has the
error r / k_f, and the static error is q_0 K / k_f.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from rths_nodes.control.force_controllers import of_kernel
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.kernels import Function
from rths_nodes.core.parameters import TestContext, integer, number, params, section
from rths_nodes.mechanics.axial_load import ColumnGeometry, lengths_of


class Constants(NamedTuple):
    """Constants of both loops, in SI units.

    ``by_force`` and ``by_displacement`` are the gains k_f and k_d. ``share`` is 1 - e^{-dt / T}. ``fastest`` and
    ``leaks`` are the piston velocities at full signal and due to leakage.
    """

    compliance: float
    by_force: float
    by_displacement: float
    share: float
    fastest: float
    leaks: float
    dt: float
    column: tuple[float, ...]


class State(NamedTuple):
    """Position (m) and flow (m/s) of the piston.

    ``base`` (m) is the position at the start minus its part due to stiffness and drift. ``correction`` (m) is the
    later change of this difference.
    """

    position: float = 0.0
    flow: float = 0.0
    base: float = 0.0
    correction: float = 0.0


def constants(params: ServoValve.Params, dt: float) -> Constants:
    p, share = params, 1.0 - math.exp(-dt / params.valve_time_constant)
    rows = 1.0 / p.stiffness, p.gain, p.displacement_gain, share, p.largest_velocity, p.leakage, dt
    return Constants(*rows, () if p.column is None else lengths_of(p.column))


def opened(k: Constants, position: float, flow: float, signal: float) -> tuple[float, float]:
    """Return position (m) and flow (m/s) after a sample with a ``signal`` (m/s) to the valve."""
    fastest = k[4]
    wanted = fastest if signal > fastest else -fastest if signal < -fastest else signal
    flow += k[3] * (wanted - flow)
    return position + k[6] * (flow + k[5]), flow


def hold(k: Constants, s: State, command: float, shown: float) -> tuple[tuple[float, ...], float]:
    position, flow, _, _ = s
    position, flow = opened(k, position, flow, k[2] * (command - shown))
    return (position, flow, 0.0, 0.0), position


def law(extension: Function) -> of_kernel.ForceKernel:
    def begin(
        k: Constants, s: State, position: float, target: float, drift: float, drift_before: float
    ) -> tuple[float, ...]:
        """State of the force loop at the present extension ``position``. The flow of the valve is kept."""
        return position, s[1], position - extension(k[7], target * k[0], drift), 0.0

    def step(
        k: Constants, s: State, target: float, measured: float, drift: float
    ) -> tuple[tuple[float, ...], float]:
        """Force loop: the force error, multiplied by gain and compliance, drives the valve."""
        position, flow, base, _ = s
        position, flow = opened(k, position, flow, k[1] * (target - measured) * k[0])
        correction = position - base - extension(k[7], measured * k[0], drift)
        return (position, flow, base, correction), position

    return of_kernel.ForceKernel(constants, lambda k: State(), begin, step)


class ServoValve(of_kernel.ForceControllerOfKernel):
    """Controller of one axis and its valve, in the sign convention of the axis. It commands a piston position."""

    @params
    class Params:
        stiffness: float = number("stiffness of specimen, load frame and oil in series", "N/m", more_than=0.0)
        gain: float = number(
            "rate k_f at which an error of the force decays", "1/s", 60.0, more_than=0.0, at_most=1e4
        )
        displacement_gain: float = number(
            "rate k_d at which an error of a held displacement decays", "1/s", 60.0, more_than=0.0, at_most=1e4
        )
        valve_time_constant: float = number(
            "time constant T of the spool of the valve", "s", 0.003, more_than=0.0, at_most=0.1
        )
        largest_velocity: float = number(
            "velocity of the piston if the valve is fully open", "m/s", 0.02, more_than=0.0, at_most=10.0
        )
        leakage: float = number(
            "velocity q_0 of the piston if the valve has no signal", "m/s", 0.0, at_least=-1e-2, at_most=1e-2
        )
        column: ColumnGeometry | None = section(
            ColumnGeometry,
            "column whose head a displacement axis moves, used to judge the loop; default: none",
            None,
        )
        coupled_to: int = integer(
            "number of the displacement axis that moves the head of the column, from 1", "", 1, at_least=1
        )

        def fits(self, test: TestContext) -> None:
            delay = self.valve_time_constant + 1.5 * test.dt
            for name in ("gain", "displacement_gain"):
                if getattr(self, name) * delay >= 0.5 * math.pi:
                    raise ConfigError(
                        f"{name} = {getattr(self, name):g} 1/s: must be < {0.5 * math.pi / delay:.3g} 1/s, "
                        f"because the loop is otherwise unstable with {1e3 * delay:.3g} ms of valve and sampling"
                    )
            of_kernel.check_coupling(self.column, self.coupled_to, test)

    @classmethod
    def kernel_of(cls, params: Params) -> of_kernel.ForceKernel:
        return law(of_kernel.extension_of(params.column))

    @property
    def correction(self) -> float:
        return float(self._state[3])

    def stand(self, position: float) -> None:
        self._state = State(position)

    def hold(self, command: float, shown: float) -> float:
        """Return the position (m) of the piston held at ``command`` (m); the sensor measures ``shown`` (m)."""
        self._state, position = hold(self._constants, self._state, command, shown)
        return float(position)
