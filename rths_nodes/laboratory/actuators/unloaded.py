# SPDX-License-Identifier: Apache-2.0
"""Actuators whose motion does not depend on the specimen: pure delay, linear and amplitude-dependent plants.

The kernel of such an actuator is

    step(constants, state, command) -> state, displacement, velocity

and the kernel of the specimen is

    step(constants, state, displacement, velocity) -> state, force

The second kernel advances the inner states of the specimen at constant velocity. A mass adds its inertia force and
starts at rest. A sample has at least ``INCREMENTS`` increments, and more if the states decay fast. The states
become NaN if more than ``HARD_LIMIT`` increments are needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np

from rths_nodes.core.arithmetic import Numbers, all_nan, ceiling, cos, exp, sin, sqrt, times
from rths_nodes.core.decay import HARD_LIMIT, LONGEST, decay_of
from rths_nodes.core.errors import ConfigError, show
from rths_nodes.core.frequency_response import Complex, Frequencies, held, taps
from rths_nodes.core.kernels import Function, Kernel, ToNumber, advance_of, no_state
from rths_nodes.core.parameters import AnyParams, Field, TestContext, number, params, text, vector
from rths_nodes.core.samples import Array
from rths_nodes.core.simulators import Actuator, Specimen
from rths_nodes.mechanics import structure as exact_steps

INCREMENTS = 4.0
"""Smallest number of RK4 steps per sample."""
LONGEST_WAY = HARD_LIMIT * LONGEST
"""Largest length of a sample, in decay times. The states become NaN in a longer sample."""
Both = tuple[object, object]
Going = Callable[..., tuple[object, float, float]]
PathConstants = tuple[float, float, tuple[float, float, float], object]
"""Period (s), velocity (m/s) up to which ``INCREMENTS`` suffice, fields of ``Decay``, and specimen constants."""


def without_states(force: Callable[..., float]) -> ToNumber:
    def step(k: object, s: tuple[()], displacement: float, velocity: float) -> tuple[tuple[()], float]:
        return s, force(k, s, displacement, velocity)

    return step


def with_states(force: Callable[..., float], rate: Callable[..., tuple[float, ...]]) -> ToNumber:
    advance = advance_of(rate)

    def step(
        k: PathConstants, s: tuple[tuple[float, ...], float], displacement: float, velocity: float
    ) -> tuple[object, float]:
        """Advance the inner states by Runge-Kutta increments at constant velocity, then compute the force."""
        dt, fastest, decay, specimen = k
        inner, x = s
        v = (displacement - x) / dt
        left, h = INCREMENTS, dt / INCREMENTS
        if abs(v) > fastest:
            left, h = divided(decay, v, dt)
            if left == 0.0:
                left, h, inner = 1.0, dt, all_nan(inner)
        while left > 0.0:
            middle, end = x + 0.5 * h * v, x + h * v
            inner = advance(specimen, inner, h, x, v, middle, v, end, v)
            x = end
            left -= 1.0
        return (inner, displacement), force(specimen, inner, displacement, velocity)

    return step


def divided(decay: tuple[float, float, float], velocity: float, dt: float) -> tuple[float, float]:
    """Return the number of increments of a sample at ``velocity`` (m/s), and their length (s).

    The increments cover the sample only until the states have settled. The number is 0 if too many are needed.
    """
    at_rest, per_velocity, settling = decay
    times = (at_rest + per_velocity * abs(velocity)) * dt
    moving = settling if times > settling else times
    if not moving <= LONGEST_WAY:
        return 0.0, dt
    increments = ceiling(moving / LONGEST)
    return increments, dt * (moving / times) / increments


def with_inertia(move: ToNumber) -> ToNumber:
    def step(
        k: tuple[float, float, object], s: tuple[float, object], displacement: float, velocity: float
    ) -> tuple[object, float]:
        """Add the inertia force (mass times change of velocity, divided by the period) to the specimen's force."""
        mass, dt, specimen = k
        before, inner = s
        inner, force = move(specimen, inner, displacement, velocity)
        return (velocity, inner), force + mass * (velocity - before) / dt

    return step


def path_of(specimen: Specimen) -> Kernel:
    """Return the kernel that moves ``specimen``. The kernel's ``constants`` function takes the period (s)."""
    (_, _, force, rate, _), of_specimen = specimen.bound()
    initial: tuple[float, ...] = tuple(specimen.initial_state)
    decay, mass = decay_of(specimen), specimen.mass
    if initial:
        light = Kernel(
            lambda dt: (dt, decay.fastest(dt / INCREMENTS), decay.numbers, of_specimen),
            lambda k: (initial, 0.0),
            with_states(force, rate),
        )
    else:
        light = Kernel(lambda dt: of_specimen, no_state, without_states(force))
    if not mass:
        return light
    return Kernel(
        lambda dt: (mass, dt, light.constants(dt)), lambda k: (0.0, light.rest(k[2])), with_inertia(light.step)
    )


class SpecimenPath:
    """Moves ``specimen`` every ``dt`` s. :meth:`move` maps displacement (m) and velocity (m/s) to force (N)."""

    def __init__(self, specimen: Specimen, dt: float) -> None:
        path = path_of(specimen)
        self._constants, self._rest, self._step = path.constants(dt), path.rest, path.step
        self.reset()

    def reset(self) -> None:
        self.state = self._rest(self._constants)

    def move(self, displacement: float, velocity: float) -> float:
        self.state, force = self._step(self._constants, self.state, displacement, velocity)
        return float(force)


def with_specimen(go: Going, move: ToNumber) -> Function:
    def step(k: Both, s: Both, command: float) -> tuple[Both, tuple[float, float, float]]:
        """Advance an actuator, then its specimen, which does not affect the actuator."""
        of_actuator, of_specimen = k
        state, inner = s
        state, displacement, velocity = go(of_actuator, state, command)
        inner, force = move(of_specimen, inner, displacement, velocity)
        return (state, inner), (displacement, velocity, force)

    return step


def with_force(go: Going, force: Callable[..., float]) -> Function:
    def step(k: Both, s: Both, command: float) -> tuple[Both, tuple[float, float, float]]:
        """Advance an actuator, then compute the force of a specimen without states."""
        of_actuator, of_specimen = k
        state, none = s
        state, displacement, velocity = go(of_actuator, state, command)
        return (state, none), (displacement, velocity, force(of_specimen, (), displacement, velocity))

    return step


class Unloaded(Actuator):
    """Base of actuators whose motion does not depend on the specimen. ``MOTION`` is the kernel of the motion."""

    MOTION: ClassVar[Kernel]

    @classmethod
    def kernel_of(cls, params: AnyParams, specimen: Specimen) -> Kernel:
        motion, path = cls.MOTION, path_of(specimen)
        step = with_specimen(motion.step, path.step)
        if not (specimen.initial_state or specimen.mass):
            step = with_force(motion.step, specimen.bound()[0].force)
        return Kernel(
            lambda plant, dt: (motion.constants(plant, dt), path.constants(dt)),
            lambda k: (motion.rest(k[0]), path.rest(k[1])),
            step,
        )


HOLDS = ("staircase", "ramp")
LONGEST_DELAY = 1_000_000
"""Largest permitted delay, samples. A longer delay is probably given in the wrong unit."""
HIGHEST_ORDER = 12
"""Highest order of a transfer function. At higher orders, rounding the coefficients alone moves the poles."""
GAIN_TOLERANCE = 0.01


def hold_parameter(default: str = "staircase") -> Field:
    return text("command within a sample: staircase (constant) or ramp (linear)", default, HOLDS)


def transition(a: Array, b: Array, dt: float, hold: str) -> Array:
    """Return [Phi, g_0, g_1], ``(n, n + 2)``, of the exact step x_k = Phi x_{k-1} + g_0 c_{k-1} + g_1 c_k.

    The state x follows x' = ``a`` x + ``b`` c for the command c, with ``a`` ``(n, n)`` and ``b`` ``(n,)``. In the
    sample of ``dt`` s that ends at k, the command is c_k (staircase), or linear from c_{k-1} to c_k (ramp).
    """
    phi, before, now = exact_steps.transition(a, b[:, None], dt)
    if hold == "staircase":
        before, now = np.zeros_like(before), before + now
    return np.hstack([phi, before, now])


class Plant(NamedTuple):
    """Linear plant with the state x: x' = ``a`` x + ``b`` command, displacement = ``c`` x + ``d`` command.

    With the hold ``staircase``, ``d`` is zero.
    """

    a: Array
    b: Array
    c: Array
    d: float
    hold: str


Rows = tuple[tuple[float, ...], ...]
PlantConstants = tuple[Rows, Rows]
"""Two matrices. The first maps ``(*state, last command, command)`` to the next state. The second maps the next
state and both commands to displacement (m) and velocity (m/s)."""
PlantState = tuple[tuple[float, ...], float]
"""State of the plant, and last command (m)."""


def move_plant(k: PlantConstants, s: PlantState, command: float) -> tuple[object, float, float]:
    """Advance the plant exactly by one sample."""
    rows, shown = k
    x, before = s
    x = times(rows, x + (before, command))
    displacement, velocity = times(shown, x + (before, command))
    return (x, command), displacement, velocity


def plant_constants(plant: Plant, dt: float) -> PlantConstants:
    a, b, c, d, hold = plant
    slope = d / dt if hold == "ramp" else 0.0
    shown = [[*c.tolist(), 0.0, d], [*(c @ a).tolist(), -slope, float(c @ b) + slope]]
    return tuple(map(tuple, transition(a, b, dt, hold).tolist())), tuple(map(tuple, shown))


class HeldPlant(Unloaded):
    """Base of actuators whose motion is the exact solution of a linear plant, ``Params.plant``."""

    MOTION = Kernel(
        lambda params, dt: plant_constants(params.plant(), dt), lambda k: ((0.0,) * len(k[0]), 0.0), move_plant
    )

    def __init__(self, params: object, dt: float, specimen: Specimen) -> None:
        self._dt = dt
        super().__init__(params, dt, specimen)

    def frequency_response(self, omega: Frequencies) -> Complex:
        rows, (displacement, _) = self.constants[0]
        return held(omega, rows, displacement, self._dt)


class SecondOrder(HeldPlant):
    """Solves d'' + 2 zeta w d' + w^2 d = w^2 c exactly for the displacement d and the command c.

    With commands held at 1024 samples per second, the default plant lags by 13.7 ms at 2 Hz and 15.6 ms at 10 Hz.
    The lag is measured from the start of the sample in which the command takes effect.
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

        def plant(self) -> Plant:
            """Return the plant with the states d and d' / w (m), which have similar magnitudes."""
            omega = 2.0 * math.pi * self.natural_frequency
            a = omega * np.array([[0.0, 1.0], [-1.0, -2.0 * self.damping_ratio]])
            return Plant(a, np.array([0.0, omega]), np.array([1.0, 0.0]), 0.0, self.hold)


class TransferFunction(HeldPlant):
    """Solves a stable, proper transfer function G(s) = numerator / denominator exactly."""

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
                    "would otherwise jump. Lower the order, or use hold: ramp"
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

        def plant(self) -> Plant:
            numerator, denominator, rate = _scaled(self)
            n = len(denominator) - 1
            a = np.eye(n, k=-1)
            a[0] = -denominator[1:]
            b = np.zeros(n)
            b[0] = 1.0
            c, d = numerator[1:] - numerator[0] * denominator[1:], float(numerator[0])
            return Plant(rate * a, rate * b, c, d, self.hold)


def _trimmed(coefficients: tuple[float, ...]) -> Array:
    return np.trim_zeros(np.array(coefficients), "f")


def _scaled(params: TransferFunction.Params) -> tuple[Array, Array, float]:
    # divide s by the geometric mean of the pole magnitudes, to scale the companion matrix well
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
    if samples > LONGEST_DELAY:
        raise ConfigError(f"actuator.delay = {params.delay:g} s: must be <= {LONGEST_DELAY * dt:g} s")
    integral = math.floor(samples)
    return integral, samples - integral, dt


class PureDelay(Unloaded):
    """Delays the command, which is linear between samples. The delay need not be a whole number of samples."""

    ABOUT = "Actuator that follows its command exactly, with a delay."

    @params
    class Params:
        delay: float = number("time by which the actuator lags its command", "s", 0.0, at_least=0.0)

    MOTION = Kernel(delay_constants, lambda k: (np.zeros(k[0] + 2), 0), pure_delay)

    def frequency_response(self, omega: Frequencies) -> Complex:
        integral, fraction, dt = self.constants[0]
        return taps(omega, (1.0 - fraction, fraction), (integral * dt, (integral + 1) * dt))


SLOWEST = 1e-9
"""Smallest natural frequency, rad/s, which keeps the formulas finite in a diverging test."""
SlowedConstants = tuple[float, float, float, float, float, float, bool]


def move_slowed(k: SlowedConstants, s: Numbers, command: float) -> tuple[Numbers, float, float]:
    """Advance by one sample: steady response to a linear command, plus free vibration.

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


def slowed_constants(params: AmplitudeDependent.Params, dt: float) -> SlowedConstants:
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

    The delay grows from 13.7 ms at 2 Hz to 15.6 ms at the end of the sweep, which the TADC paper attributes to the
    flow. Use this actuator to test adaptive compensation; use ``servo_hydraulic`` if pressure, stall or valve
    dynamics matter.

    The displacement d follows the command c:

        d'' + 2 zeta w d' + w^2 d = w^2 c,  w = w_0 / sqrt(1 + (V / v_s)^2)

    The velocity amplitude V is the largest past abs(d'), which decays with the time constant ``memory``. w is
    about w_0 in small motions, and proportional to 1 / V far above v_s, like the loop gain of a saturating valve.
    Within a sample, w is constant and the solution is exact.
    """

    ABOUT = "Second-order actuator that is slower in fast motions, like a valve with limited flow."

    @params
    class Params:
        """The default actuator behaves like the default ``second_order`` actuator in small motions."""

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
        memory: float = number("time constant of the decay of the velocity amplitude", "s", 0.5, more_than=0.0)
        hold: str = hold_parameter()

    MOTION = Kernel(slowed_constants, lambda k: (0.0, 0.0, 0.0, 0.0), move_slowed)

    def frequency_response(self, omega: Frequencies) -> Complex:
        natural, zeta, _, _, _, dt, ramp = self.constants[0]
        a = natural * np.array([[0.0, 1.0], [-1.0, -2.0 * zeta]])
        rows = transition(a, np.array([0.0, natural]), dt, "ramp" if ramp else "staircase")
        return held(omega, rows, (1.0, 0.0, 0.0, 0.0), dt)
