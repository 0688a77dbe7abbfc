# SPDX-License-Identifier: Apache-2.0
"""Force controllers: track the force target of one axis with displacement commands for its actuator.

Feedforward of compliance and coupling, and a PI controller for the remaining error:

    u_k = e(x^, F^ / K) + z_k + k_p (F_k - f_{k-1}) / K
    z_k = z_{k-1} + k_i dt (F_k - f_{k-1}) / K

u is the command. F is the desired and f the measured force of the axis. K is the stiffness of specimen and load
frame in series. e(x, c) is the extension that shortens a column by c after a drift x of its head
(``mechanics/axial_load.py``); without a column e is c. x^ is the target of the displacement axis that moves the
head, and F^ the force target. Both are extrapolated linearly by the actuator's delay.

With the correct K, an error decays at the rate k_i (1/s). If the declared K is 1/r of the true K, the loop is r
times faster. For a plant of stiffness K and delay T, the loop with k_p = 0 is stable for k_i T < pi / 2.

Controller of the rig and its servovalve, whose spool is driven by a force loop or a displacement loop:

    u_k = k_f (F_k - f_{k-1}) / K            force control
    u_k = k_d (c_k - x_{k-1})                displacement control (hold)
    q_k = q_{k-1} + (u_k - q_{k-1}) (1 - e^{-dt / T})
    x_k = x_{k-1} + dt (q_k + q_0)

c and x are the desired and measured displacement of the axis. u is the signal to the valve, as a piston velocity.
q is the piston velocity due to the flow of the valve, whose spool has the time constant T. q_0 is the piston
velocity due to leakage at zero signal. K includes the stiffness of the oil. Because the piston integrates, an
error decays at the rate k_f. A ramp of r N/s has the error r / k_f. The static error is q_0 K / k_f.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from rths_nodes.core.control import ForceController
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.kernels import Function
from rths_nodes.core.parameters import AnyParams, Field, TestContext, integer, number, params, section
from rths_nodes.mechanics.axial_load import ColumnGeometry, check_drift, extension_at, lengths_of

TABLE = {
    "feed_forward_pi": ":FeedForwardPi",
    "servo_valve": ":ServoValve",
}
FAST = 0.3
"""Largest product of integral gain and delay for which no caution is reported. The loop would still be stable with
a specimen five times as stiff."""


class ForceKernel(NamedTuple):
    constants: Function
    rest: Function
    begin: Function
    """Function ``begin(constants, state, position, target, drift, drift_before) -> state`` that starts control."""
    step: Function
    """Function ``step(constants, state, target, measured, drift) -> state, command``, called for each sample."""


class ForceControllerOfKernel(ForceController):
    """Runs a force controller defined by a :class:`ForceKernel`.

    Its parameters include ``column``, which may be None, and ``coupled_to``, an axis number from 1.
    """

    def __init__(self, params: AnyParams, dt: float) -> None:
        constants, self._rest, self._begin, self._step = self.kernel_of(params)
        self._constants = constants(params, dt)
        self.coupled_to = None if params.column is None else params.coupled_to - 1
        self.reset()

    def reset(self) -> None:
        self._state = self._rest(self._constants)

    def begin(self, position: float, target: float, drift: float, drift_before: float) -> None:
        self._state = self._begin(self._constants, self._state, position, target, drift, drift_before)

    def step(self, target: float, measured: float, drift: float) -> float:
        self._state, command = self._step(self._constants, self._state, target, measured, drift)
        return float(command)


def coupled_axis() -> Field:
    return integer("number (from 1) of the displacement axis that moves the head of the column", "", 1, at_least=1)


def extension_of(column: ColumnGeometry | None) -> Function:
    return uncoupled if column is None else extension_at


def uncoupled(k: tuple[()], shortening: float, drift: float) -> float:
    return shortening


def check_coupling(column: ColumnGeometry | None, coupled_to: int, test: TestContext) -> None:
    """Raise ConfigError unless axis ``coupled_to`` exists and its stroke is below both lengths of ``column``."""
    if column is None:
        return
    moved = len(test.axes) - len(test.force_axes)
    if coupled_to > moved:
        raise ConfigError(f"coupled_to = {coupled_to}: must be <= {moved}, the number of displacement axes")
    check_drift(column, test.strokes[coupled_to - 1], "column")


PiConstants = tuple[float, float, float, float, tuple[float, ...]]
"""Compliance (m/N), integral gain times dt, proportional gain, delay in samples, and lengths of the column (m)."""
PiState = tuple[float, float, float, float]
"""Integral z (m), the part of z added by feedback since the start (m), last target (N) and last drift (m)."""


def pi_constants(params: FeedForwardPi.Params, dt: float) -> PiConstants:
    p = params
    lengths = () if p.column is None else lengths_of(p.column)
    return 1.0 / p.stiffness, p.integral_gain * dt, p.proportional_gain, p.lead / dt, lengths


def pi_law(extension: Callable[..., float]) -> ForceKernel:
    def fed_forward(k: PiConstants, s: PiState, target: float, drift: float) -> float:
        """Return the extension (m) for ``target`` and ``drift``, both extrapolated by the actuator's delay."""
        compliance, _, _, ahead, column = k
        _, _, target_before, drift_before = s
        force = target + ahead * (target - target_before)
        return extension(column, force * compliance, drift + ahead * (drift - drift_before))

    def begin(
        k: PiConstants, s: PiState, position: float, target: float, drift: float, drift_before: float
    ) -> PiState:
        """Return the state whose first command is the present ``position`` if the force error is zero."""
        before = (0.0, 0.0, target, drift_before)
        return position - fed_forward(k, before, target, drift), 0.0, target, drift

    def step(k: PiConstants, s: PiState, target: float, measured: float, drift: float) -> tuple[PiState, float]:
        """Return the command: feedforward plus integral and proportional feedback of the force error."""
        compliance, integral, proportional, _, _ = k
        total, correction, _, _ = s
        error = (target - measured) * compliance
        more = integral * error
        total += more
        command = fed_forward(k, s, target, drift) + total + proportional * error
        return (total, correction + more, target, drift), command

    return ForceKernel(pi_constants, lambda k: (0.0, 0.0, 0.0, 0.0), begin, step)


class FeedForwardPi(ForceControllerOfKernel):
    """Force controller of one axis: feedforward and PI feedback, in the sign convention of the axis."""

    @params
    class Params:
        stiffness: float = number("stiffness of specimen and load frame in series", "N/m", more_than=0.0)
        integral_gain: float = number(
            "rate k_i at which force errors decay", "1/s", 5.0, more_than=0.0, at_most=1e4
        )
        proportional_gain: float = number(
            "fraction k_p of a force error to correct immediately", "1", 0.0, at_least=0.0, less_than=1.0
        )
        lead: float = number(
            "delay of the actuator, compensated by the feedforward", "s", 0.0, at_least=0.0, at_most=0.2
        )
        column: ColumnGeometry | None = section(
            ColumnGeometry, "column whose head a displacement axis moves; default: no coupling", None
        )
        coupled_to: int = coupled_axis()

        def fits(self, test: TestContext) -> None:
            delay = self.lead + test.transport + test.dt
            if self.integral_gain * delay >= 0.5 * math.pi:
                raise ConfigError(
                    f"integral_gain = {self.integral_gain:g} 1/s: must be < {0.5 * math.pi / delay:.3g} 1/s, "
                    f"because the force loop is otherwise unstable with {1e3 * delay:.3g} ms of lead, transport "
                    "and sampling"
                )
            check_coupling(self.column, self.coupled_to, test)

        def cautions(self, test: TestContext) -> list[str]:
            delay = self.lead + test.transport + test.dt
            if self.integral_gain * delay <= FAST:
                return []
            return [
                f"integral_gain = {self.integral_gain:g} 1/s: with {1e3 * delay:.3g} ms of lead, transport and "
                "sampling, the force loop is stable only if the specimen is at most "
                f"{0.5 * math.pi / (self.integral_gain * delay):.2g} times as stiff as declared"
            ]

    @classmethod
    def kernel_of(cls, params: Params) -> ForceKernel:
        return pi_law(extension_of(params.column))

    @property
    def correction(self) -> float:
        return float(self._state[1])


class ValveConstants(NamedTuple):
    """Constants of the force loop and the displacement loop, in SI units.

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


ValveState = tuple[float, float, float, float]
"""Position (m) and flow (m/s) of the piston; position at the start minus its part due to stiffness and drift (m);
later change of this difference (m)."""


def valve_constants(params: ServoValve.Params, dt: float) -> ValveConstants:
    p, share = params, 1.0 - math.exp(-dt / params.valve_time_constant)
    rows = 1.0 / p.stiffness, p.gain, p.displacement_gain, share, p.largest_velocity, p.leakage, dt
    return ValveConstants(*rows, () if p.column is None else lengths_of(p.column))


def opened(k: ValveConstants, position: float, flow: float, signal: float) -> tuple[float, float]:
    """Return the position (m) and flow (m/s) after a sample with a ``signal`` (m/s) to the valve."""
    fastest = k[4]
    wanted = fastest if signal > fastest else -fastest if signal < -fastest else signal
    flow += k[3] * (wanted - flow)
    return position + k[6] * (flow + k[5]), flow


def hold(k: ValveConstants, s: ValveState, command: float, shown: float) -> tuple[ValveState, float]:
    position, flow, _, _ = s
    position, flow = opened(k, position, flow, k[2] * (command - shown))
    return (position, flow, 0.0, 0.0), position


def valve_law(extension: Function) -> ForceKernel:
    def begin(
        k: ValveConstants, s: ValveState, position: float, target: float, drift: float, drift_before: float
    ) -> ValveState:
        """Return the first state of the force loop, with the present ``position`` (m) and the present flow."""
        return position, s[1], position - extension(k[7], target * k[0], drift), 0.0

    def step(
        k: ValveConstants, s: ValveState, target: float, measured: float, drift: float
    ) -> tuple[ValveState, float]:
        """Return the piston position (m) after a sample with a valve signal proportional to the force error."""
        position, flow, base, _ = s
        position, flow = opened(k, position, flow, k[1] * (target - measured) * k[0])
        correction = position - base - extension(k[7], measured * k[0], drift)
        return (position, flow, base, correction), position

    return ForceKernel(valve_constants, lambda k: (0.0, 0.0, 0.0, 0.0), begin, step)


class ServoValve(ForceControllerOfKernel):
    """Controller and servovalve of the rig, in the sign convention of the axis. Commands are piston positions."""

    @params
    class Params:
        stiffness: float = number("stiffness of specimen, load frame and oil in series", "N/m", more_than=0.0)
        gain: float = number("rate k_f at which force errors decay", "1/s", 60.0, more_than=0.0, at_most=1e4)
        displacement_gain: float = number(
            "rate k_d at which errors of a held displacement decay", "1/s", 60.0, more_than=0.0, at_most=1e4
        )
        valve_time_constant: float = number(
            "time constant T of the spool of the valve", "s", 0.003, more_than=0.0, at_most=0.1
        )
        largest_velocity: float = number(
            "velocity of the piston with the valve fully open", "m/s", 0.02, more_than=0.0, at_most=10.0
        )
        leakage: float = number(
            "velocity q_0 of the piston without a valve signal", "m/s", 0.0, at_least=-1e-2, at_most=1e-2
        )
        column: ColumnGeometry | None = section(
            ColumnGeometry,
            "column whose head a displacement axis moves, used to check largest_correction; default: none",
            None,
        )
        coupled_to: int = coupled_axis()

        def fits(self, test: TestContext) -> None:
            delay = self.valve_time_constant + 1.5 * test.dt
            for name in ("gain", "displacement_gain"):
                if getattr(self, name) * delay >= 0.5 * math.pi:
                    raise ConfigError(
                        f"{name} = {getattr(self, name):g} 1/s: must be < {0.5 * math.pi / delay:.3g} 1/s, "
                        f"because the loop is otherwise unstable with {1e3 * delay:.3g} ms of valve and sampling"
                    )
            check_coupling(self.column, self.coupled_to, test)

    @classmethod
    def kernel_of(cls, params: Params) -> ForceKernel:
        return valve_law(extension_of(params.column))

    @property
    def correction(self) -> float:
        return float(self._state[3])

    def stand(self, position: float) -> None:
        self._state = (position, 0.0, 0.0, 0.0)

    def hold(self, command: float, shown: float) -> float:
        """Return the next piston position (m) if ``command`` (m) is held and the sensor measures ``shown`` (m)."""
        self._state, position = hold(self._constants, self._state, command, shown)
        return float(position)
