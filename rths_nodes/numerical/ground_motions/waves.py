# SPDX-License-Identifier: Apache-2.0
"""Ground motions defined by formulas: sines, sweeps, no motion, and a delayed excitation.

Functions of the times ``(n,)`` (s) return values and their exact first and second derivatives, ``(n,)`` each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.checks import TestContext
from rths_nodes.core.declarations import AnyParams, OfParams
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import Field, component, integer, number, params, text
from rths_nodes.core.samples import Array

Triple = tuple[Array, Array, Array]
LINEAR, LOGARITHMIC = "linear", "logarithmic"


@runtime_checkable
class Formula(Protocol):
    """A ground motion with exact derivatives; it can be a prescribed displacement (m)."""

    def sample(self, times: Array) -> Array: ...

    def derivatives(self, times: Array) -> tuple[Array, Array]: ...


class Finite(ABC):
    """Base of excitations that end.

    ``_triple`` of a subclass returns the value and both derivatives. ``seed`` is not used.
    """

    def __init__(self, params: AnyParams, seed: int) -> None:
        self._p = params

    def sample(self, times: Array) -> Array:
        return self._triple(times)[0]

    def derivatives(self, times: Array) -> tuple[Array, Array]:
        return self._triple(times)[1:]

    @abstractmethod
    def _triple(self, times: Array) -> Triple: ...


def product(a: Triple, b: Triple) -> Triple:
    return a[0] * b[0], a[1] * b[0] + a[0] * b[1], a[2] * b[0] + 2.0 * a[1] * b[1] + a[0] * b[2]


def wave(angle: Triple) -> Triple:
    sine, cosine = np.sin(angle[0]), np.cos(angle[0])
    return sine, angle[1] * cosine, angle[2] * cosine - angle[1] * angle[1] * sine


def rise(times: Array, length: float) -> Triple:
    """Return a rise from 0 at time 0 to 1 at time ``length`` (s), with its derivatives.

    The rise is a fifth-order polynomial with continuous acceleration.
    """
    if length == 0.0:
        return (times >= 0.0).astype(float), np.zeros(times.shape), np.zeros(times.shape)
    x = np.clip(times / length, 0.0, 1.0)
    rest = 1.0 - x
    value = x * x * x * (10.0 - 15.0 * x + 6.0 * x * x)
    return value, 30.0 * x * x * rest * rest / length, 60.0 * x * rest * (rest - x) / length**2


def window(times: Array, duration: float, taper: float) -> Triple:
    """Return 1 from time 0 to ``duration`` (s), exactly 0 outside, with its derivatives.

    Both ends have a smooth ``taper`` (s).
    """
    up, down = rise(times, taper), rise(duration - times, taper)
    return product(up, (down[0], -down[1], down[2]))


def taper_parameter(default: float) -> Field:
    return number(
        "duration of the smooth rise at the beginning, and of the smooth fall at the end",
        "s",
        default,
        at_least=0.0,
    )


def check_taper(taper: float, duration: float, path: str, unit: str = "s") -> None:
    if 2.0 * taper > duration:
        raise ConfigError(f"{path} = {taper:g} {unit}: must be <= {duration / 2.0:g} {unit}, half the duration")


def excitation_cautions(name: str, frequency: float, duration: float, test: TestContext) -> list[str]:
    cautions = []
    if duration > test.duration:
        cautions.append(f"the excitation lasts {duration:g} s, but the test ends after {test.duration:g} s")
    highest = 0.5 / test.step
    if frequency >= highest:
        cautions.append(
            f"{name} = {frequency:g} Hz: the integration step resolves only frequencies below {highest:g} Hz"
        )
    return cautions


class Sine:
    """An endless sine, a sin(2 pi f t + phase), as ground acceleration or as prescribed displacement.

    A prescribed displacement with phase 0 starts abruptly, at its full velocity 2 pi f a.
    """

    @params
    class Params:
        proportional_to: ClassVar[str] = "amplitude"
        amplitude: float = number("amplitude a; in m for a prescribed displacement", "m/s^2 or m")
        frequency: float = number("frequency f", "Hz", more_than=0.0)
        phase: float = number("phase at t = 0", "rad", default=0.0)

        def cautions(self, test: TestContext) -> list[str]:
            return excitation_cautions("frequency", self.frequency, 0.0, test)

    def __init__(self, params: Params, seed: int) -> None:
        self._amplitude = params.amplitude
        self._phase = params.phase
        self._omega = 2.0 * np.pi * params.frequency

    def sample(self, times: Array) -> Array:
        return self._amplitude * np.sin(self._omega * np.asarray(times) + self._phase)

    def derivatives(self, times: Array) -> tuple[Array, Array]:
        angle = self._omega * np.asarray(times) + self._phase
        first: Array = self._amplitude * self._omega * np.cos(angle)
        second: Array = -self._amplitude * self._omega**2 * np.sin(angle)
        return first, second


class Harmonic(Finite):
    """Sine a sin(2 pi f t) for a number of periods, then rest, as in Horiuchi et al. (1996).

    Without ``ramp_periods`` the motion starts and ends at full velocity, which an actuator cannot follow.
    """

    @params
    class Params:
        proportional_to: ClassVar[str] = "amplitude"
        amplitude: float = number("amplitude a; in m for a prescribed displacement", "m/s^2 or m")
        frequency: float = number("frequency f", "Hz", more_than=0.0)
        periods: int = integer("length in periods", default=10, at_least=1)
        ramp_periods: int = integer(
            "number of periods of the smooth rise at the beginning, and of the smooth fall at the end",
            default=0,
            at_least=0,
        )

        def validate(self, path: str) -> None:
            check_taper(self.ramp_periods, self.periods, f"{path}.ramp_periods", "periods")

        def cautions(self, test: TestContext) -> list[str]:
            return excitation_cautions("frequency", self.frequency, self.periods / self.frequency, test)

    def _triple(self, times: Array) -> Triple:
        p, t = self._p, np.asarray(times, dtype=float)
        omega = 2.0 * np.pi * p.frequency
        angle = (omega * t, np.full(t.shape, omega), np.zeros(t.shape))
        shape = window(t, p.periods / p.frequency, p.ramp_periods / p.frequency)
        value, first, second = product(shape, wave(angle))
        return p.amplitude * value, p.amplitude * first, p.amplitude * second


class Sweep(Finite):
    """Sweep: a sin(phi(t)) until T, then rest; the frequency phi' / (2 pi) changes from f_0 to f_1.

    ``linear``: phi = 2 pi (f_0 t + (f_1 - f_0) t^2 / (2 T)). ``logarithmic``: phi = 2 pi f_0 T / L (e^(L t / T) -
    1), L = ln(f_1 / f_0), with equal times per octave (Farina 2000). Above the ``crossover`` frequency f_c the
    amplitude is a f_c / f, so that the velocity remains 2 pi f_c a. The defaults are the sweep of the TADC
    verification, sin(2 pi (0.1 t + 9.9 t^2 / 100)) mm.
    """

    @params
    class Params:
        proportional_to: ClassVar[str] = "amplitude"
        amplitude: float = number("amplitude a; in m for a prescribed displacement", "m/s^2 or m", default=0.001)
        start_frequency: float = number("frequency f_0 at the beginning", "Hz", default=0.1, at_least=0.0)
        end_frequency: float = number("frequency f_1 at the end", "Hz", default=10.0, at_least=0.0)
        duration: float = number("duration T", "s", default=50.0, more_than=0.0)
        spacing: str = text("change of the frequency with time", LINEAR, (LINEAR, LOGARITHMIC))
        crossover: float | None = number(
            "frequency f_c above which the velocity amplitude is constant; default: constant amplitude",
            "Hz",
            None,
            more_than=0.0,
        )
        taper: float = taper_parameter(0.0)

        def validate(self, path: str) -> None:
            check_taper(self.taper, self.duration, f"{path}.taper")
            for name in ("start_frequency", "end_frequency"):
                if self.spacing == LOGARITHMIC and (value := getattr(self, name)) == 0.0:
                    raise ConfigError(f"{path}.{name} = {value:g} Hz: must be > 0 Hz for a logarithmic sweep")

        def cautions(self, test: TestContext) -> list[str]:
            name = "end_frequency" if self.end_frequency >= self.start_frequency else "start_frequency"
            return excitation_cautions(name, getattr(self, name), self.duration, test)

    def _triple(self, times: Array) -> Triple:
        p, t = self._p, np.asarray(times, dtype=float)
        shape = window(t, p.duration, p.taper)
        t = np.minimum(t, p.duration)  # later the exponential would overflow
        start = 2.0 * np.pi * p.start_frequency
        if p.spacing == LOGARITHMIC and p.end_frequency != p.start_frequency:
            rate = np.log(p.end_frequency / p.start_frequency) / p.duration
            omega = start * np.exp(rate * t)
            angle, jerk = ((omega - start) / rate, omega, rate * omega), rate**2 * omega
        else:
            growth = 2.0 * np.pi * (p.end_frequency - p.start_frequency) / p.duration
            angle = ((start + 0.5 * growth * t) * t, start + growth * t, np.full(t.shape, growth))
            jerk = np.zeros(t.shape)
        if p.crossover is not None:
            shape = product(shape, _falling(2.0 * np.pi * p.crossover, *angle[1:], jerk))
        value, first, second = product(shape, wave(angle))
        return p.amplitude * value, p.amplitude * first, p.amplitude * second


def _falling(crossover: float, omega: Array, first: Array, second: Array) -> Triple:
    above = omega > crossover
    share = np.where(above, crossover / np.where(above, omega, 1.0), 1.0)
    ratio, curve = np.where(above, first, 0.0) / np.maximum(omega, crossover), np.where(above, second, 0.0)
    return share, -share * ratio, share * (2.0 * ratio**2 - curve / np.maximum(omega, crossover))


class NoMotion:
    """Rest: zero at all times."""

    @params
    class Params:
        pass

    def __init__(self, params: Params, seed: int) -> None:
        pass

    def sample(self, times: Array) -> Array:
        return np.zeros(np.shape(times))

    def derivatives(self, times: Array) -> tuple[Array, Array]:
        return self.sample(times), self.sample(times)


class Delayed:
    """An excitation ``motion`` that starts after ``delay`` seconds of rest and is multiplied by ``scale``."""

    @params
    class Params:
        proportional_to: ClassVar[str] = "scale"
        delay: float = number("time of rest before the excitation", "s", more_than=0.0, at_most=3600.0)
        motion: OfParams = component("ground_motion", "excitation after the rest")
        scale: float = number("factor on the values of the excitation; -1 reverses the motion", default=1.0)

        def cautions(self, test: TestContext) -> list[str]:
            if self.delay < test.duration:
                return []
            return [
                f"delay = {self.delay:g} s: the motion does not begin, because the test ends after "
                f"{test.duration:g} s"
            ]

    def __init__(self, params: Params, seed: int) -> None:
        self._delay, self._scale = params.delay, params.scale
        self._motion: Any = registry.build("ground_motion", params.motion, seed)
        if isinstance(self._motion, Formula):
            self.derivatives = self._derivatives

    def sample(self, times: Array) -> Array:
        late = np.asarray(times, dtype=float) - self._delay
        return np.where(late >= 0.0, self._scale * self._motion.sample(np.maximum(late, 0.0)), 0.0)

    def _derivatives(self, times: Array) -> tuple[Array, Array]:
        late = np.asarray(times, dtype=float) - self._delay
        first, second = self._motion.derivatives(np.maximum(late, 0.0))
        there = np.where(late >= 0.0, self._scale, 0.0)
        return there * first, there * second
