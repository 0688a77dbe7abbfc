# SPDX-License-Identifier: Apache-2.0
"""Linear actuators: pure delay, first order, and state-space models with exact steps."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from rths_nodes.core.arithmetic import times
from rths_nodes.core.checks import TestContext
from rths_nodes.core.declarations import AnyParams
from rths_nodes.core.errors import ConfigError, show
from rths_nodes.core.frequency_response import Complex, Frequencies, held, taps
from rths_nodes.core.kernels import Kernel
from rths_nodes.core.parameters import Field, number, params, text, vector
from rths_nodes.core.samples import Array
from rths_nodes.core.simulators import Specimen
from rths_nodes.laboratory.actuators.unloaded import Unloaded
from rths_nodes.mechanics import structure as exact_steps

HOLDS = ("staircase", "ramp")
LONGEST = 1_000_000
"""Largest permitted delay, samples. A longer delay indicates a wrong unit."""
HIGHEST_ORDER = 12
"""Highest order of a transfer function. At higher orders the rounding of coefficients alone moves the poles."""
GAIN_TOLERANCE = 0.01


def hold_parameter(default: str = "staircase") -> Field:
    return text("command within a sample: staircase (constant) or ramp (linear)", default, HOLDS)


def transition(a: Array, b: Array, dt: float, hold: str) -> Array:
    """Return [Phi, g_0, g_1], ``(n, n + 2)``, of the exact step x_k = Phi x_{k-1} + g_0 c_{k-1} + g_1 c_k.

    The state x follows x' = ``a`` x + ``b`` c for the command c; ``a`` is ``(n, n)`` and ``b`` is ``(n,)``. During
    the sample of ``dt`` (s) that ends at k, the command is c_k (staircase), or linear from c_{k-1} to c_k (ramp).
    """
    phi, before, now = exact_steps.transition(a, b[:, None], dt)
    if hold == "staircase":
        before, now = np.zeros_like(before), before + now
    return np.hstack([phi, before, now])


class Plant(NamedTuple):
    """Linear plant with the state x: x' = ``a`` x + ``b`` command, displacement = ``c`` x + ``d`` command.

    With the hold ``staircase`` ``d`` is zero.
    """

    a: Array
    b: Array
    c: Array
    d: float
    hold: str


Rows = tuple[tuple[float, ...], ...]
Constants = tuple[Rows, Rows]
"""Two matrices. The first maps ``(*state, last command, command)`` to the next state. The second maps the next
state and both commands to displacement (m) and velocity (m/s)."""


def go(k: Constants, s: tuple[tuple[float, ...], float], command: float) -> tuple[object, float, float]:
    """Advance the plant exactly by one sample.

    The kernel's state holds the plant's state and the last command (m).
    """
    rows, shown = k
    x, before = s
    x = times(rows, x + (before, command))
    displacement, velocity = times(shown, x + (before, command))
    return (x, command), displacement, velocity


def constants(plant: Plant, dt: float) -> Constants:
    a, b, c, d, hold = plant
    slope = d / dt if hold == "ramp" else 0.0
    shown = [[*c.tolist(), 0.0, d], [*(c @ a).tolist(), -slope, float(c @ b) + slope]]
    return tuple(map(tuple, transition(a, b, dt, hold).tolist())), tuple(map(tuple, shown))


def rest(k: Constants) -> tuple[tuple[float, ...], float]:
    return (0.0,) * len(k[0]), 0.0


class HeldPlant(Unloaded):
    """Base of actuators with a linear plant. Displacement and velocity are exact at each sample."""

    @classmethod
    def plant_of(cls, params: AnyParams) -> Plant:
        raise NotImplementedError

    @classmethod
    def motion_of(cls, params: object) -> Kernel:
        return Kernel(lambda plant_params, dt: constants(cls.plant_of(plant_params), dt), rest, go)

    def __init__(self, params: object, dt: float, specimen: Specimen) -> None:
        self._dt = dt
        super().__init__(params, dt, specimen)

    def frequency_response(self, omega: Frequencies) -> Complex:
        rows, (displacement, _) = self.constants[0]
        return held(omega, rows, displacement, self._dt)


class SecondOrder(HeldPlant):
    """Solves d'' + 2 zeta w d' + w^2 d = w^2 c exactly for the displacement d and the command c.

    If the command is held (1024 samples per second), the default plant lags by 13.7 ms at 2 Hz and by 15.6 ms at
    10 Hz. These delays begin at the start of the sample in which the command takes effect.
    """

    ABOUT = "Second-order actuator; the defaults model the loading system of the TADC tests (plant P2)."

    @params
    class Params:
        natural_frequency: float = number(
            "natural frequency w / 2 pi, at which the phase lag is 90 degrees",
            "Hz",
            15.571359045,
            more_than=0.0,
            at_most=1e5,
        )
        damping_ratio: float = number("damping ratio zeta", default=0.6415455449, more_than=0.0, at_most=1e3)
        hold: str = hold_parameter()

    @classmethod
    def plant_of(cls, params: Params) -> Plant:
        """Return the plant with the states d and d' / w (m), which have similar magnitudes."""
        omega = 2.0 * math.pi * params.natural_frequency
        a = omega * np.array([[0.0, 1.0], [-1.0, -2.0 * params.damping_ratio]])
        return Plant(a, np.array([0.0, omega]), np.array([1.0, 0.0]), 0.0, params.hold)


class TransferFunction(HeldPlant):
    """Solves a stable and proper transfer function G(s) = numerator / denominator exactly."""

    ABOUT = "Actuator defined by an identified transfer function from command to displacement."

    @params
    class Params:
        """Coefficients of polynomials in s (rad/s), as in scipy.signal: ``[1.0, 2.0]`` is s + 2."""

        numerator: tuple[float, ...] = vector("coefficients of the numerator, highest power first", "1")
        denominator: tuple[float, ...] = vector("coefficients of the denominator, highest power first", "1")
        hold: str = hold_parameter()

        def validate(self, path: str) -> None:
            key, order = f"{path}.denominator", len(self.denominator) - 1
            if not 1 <= order <= HIGHEST_ORDER:
                raise ConfigError(f"{key}: the order is {order}; must be 1 to {HIGHEST_ORDER}")
            if self.denominator[0] == 0.0 or self.denominator[-1] == 0.0:
                raise ConfigError(
                    f"{key} = {show(list(self.denominator))}: the first and the last coefficient must not be 0"
                )
            degree = len(_trimmed(self.numerator)) - 1
            if degree < 0:
                raise ConfigError(f"{path}.numerator: must not be 0")
            if degree > order:
                raise ConfigError(
                    f"{path}.numerator: the order is {degree}; must be <= {order}, the order of the denominator"
                )
            if degree == order and self.hold != "ramp":
                raise ConfigError(
                    f"{path}.numerator: must have a lower order than the denominator, because the actuator "
                    "would otherwise jump; or use hold: ramp"
                )
            _, scaled, rate = _scaled(self)
            poles = rate * np.roots(scaled)
            worst = poles[np.argmax(poles.real)]
            if worst.real >= 0.0:
                raise ConfigError(
                    f"{key}: has a pole at {worst:.4g} rad/s; the real part must be < 0 for stability"
                )

        def cautions(self, test: TestContext) -> list[str]:
            gain = self.numerator[-1] / self.denominator[-1]
            if abs(gain - 1.0) <= GAIN_TOLERANCE:
                return []
            return [
                f"numerator[-1] / denominator[-1] = {gain:.4g}: the actuator settles at this multiple of its "
                "command"
            ]

    @classmethod
    def plant_of(cls, params: Params) -> Plant:
        numerator, denominator, rate = _scaled(params)
        n = len(denominator) - 1
        a = np.eye(n, k=-1)
        a[0] = -denominator[1:]
        b = np.zeros(n)
        b[0] = 1.0
        c, d = numerator[1:] - numerator[0] * denominator[1:], float(numerator[0])
        return Plant(rate * a, rate * b, c, d, params.hold)


def _trimmed(coefficients: tuple[float, ...]) -> Array:
    return np.trim_zeros(np.array(coefficients), "f")


def _scaled(params: TransferFunction.Params) -> tuple[Array, Array, float]:
    # coefficients in s would scale the companion matrix badly; the rate is the geometric mean of the poles
    denominator = np.array(params.denominator)
    order = len(denominator) - 1
    rate = float(np.exp((np.log(abs(denominator[-1])) - np.log(abs(denominator[0]))) / order))
    numerator = _trimmed(params.numerator)
    numerator = np.concatenate([np.zeros(order + 1 - len(numerator)), numerator])
    scale = denominator[0] * rate ** np.arange(order + 1)
    return numerator / scale, denominator / scale, rate


def first_order(k: tuple[float, float], s: tuple[float], command: float) -> tuple[tuple[float], float, float]:
    """Advance a first-order actuator by one sample."""
    alpha, dt = k
    (before,) = s
    displacement = before + (command - before) / alpha
    return (displacement,), displacement, (displacement - before) / dt


class FirstOrder(Unloaded):
    """Follows the command c with the displacement d_k = d_{k-1} + (c_k - d_{k-1}) / alpha.

    The displacement lags a ramp by alpha - 1 samples. The velocity is a backward difference.
    """

    ABOUT = "First-order actuator of Chen & Ricles (2010), Eq. (3)."
    SOURCES = ("chen_ricles_2010",)

    @params
    class Params:
        alpha: float = number("delay constant alpha", "samples", 29.0, at_least=1.0)

    MOTION = Kernel(lambda params, dt: (params.alpha, dt), lambda k: (0.0,), first_order)

    def frequency_response(self, omega: Frequencies) -> Complex:
        (alpha, dt), _ = self.constants
        return 1.0 / taps(omega, (alpha, 1.0 - alpha), (0.0, dt))


def pure_delay(
    k: tuple[int, float, float], s: tuple[Array, int], command: float
) -> tuple[tuple[Array, int], float, float]:
    """Interpolate the command between two past samples.

    The state holds a ring buffer of past commands (m) and the index of the oldest command. The buffer's length is
    the delay in whole samples plus two.
    """
    integral, fraction, dt = k
    ring, oldest = s
    ring[oldest] = command
    oldest = 0 if oldest > integral else oldest + 1
    before = float(ring[oldest])
    after = float(ring[0 if oldest > integral else oldest + 1])
    return (ring, oldest), after + fraction * (before - after), (after - before) / dt


def delay_constants(params: PureDelay.Params, dt: float) -> tuple[int, float, float]:
    samples = params.delay / dt
    if samples > LONGEST:
        raise ConfigError(f"actuator.delay = {params.delay:g} s: must be <= {LONGEST * dt:g} s")
    integral = math.floor(samples)
    return integral, samples - integral, dt


class PureDelay(Unloaded):
    """Delays the command, which is linear between samples. Any delay is exact."""

    ABOUT = "Actuator that follows its command exactly, with a delay."

    @params
    class Params:
        delay: float = number("time by which the actuator lags its command", "s", 0.0, at_least=0.0)

    MOTION = Kernel(delay_constants, lambda k: (np.zeros(k[0] + 2), 0), pure_delay)

    def frequency_response(self, omega: Frequencies) -> Complex:
        integral, fraction, dt = self.constants[0]
        return taps(omega, (1.0 - fraction, fraction), (integral * dt, (integral + 1) * dt))
