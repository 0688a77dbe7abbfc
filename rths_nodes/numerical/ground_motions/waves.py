# SPDX-License-Identifier: Apache-2.0
"""Ground motions defined by formulas: sines, sweeps, noise, loading protocols, no motion, a delayed excitation.

Functions of the times ``(n,)`` (s) return values and their exact first and second derivatives, ``(n,)`` each.

A loading protocol is a prescribed displacement: cycles with increasing amplitudes. Each cycle is a sine of
amplitude a, whose velocity at zero displacement is the parameter ``velocity`` v. The period is 2 pi a / v.
Displacement, velocity and acceleration are continuous from one amplitude to the next.
"""

from __future__ import annotations

import math
import zlib
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.frequency_response import Complex
from rths_nodes.core.parameters import (
    AnyParams,
    Field,
    OfParams,
    TestContext,
    component,
    integer,
    number,
    params,
    text,
)
from rths_nodes.core.samples import ROUNDING, Array

Triple = tuple[Array, Array, Array]
LINEAR, LOGARITHMIC = "linear", "logarithmic"
MOST_LINES = 20_000
STREAM = zlib.crc32(b"band_limited_noise")
"""Number that selects the random stream of the phases."""
RATIO = 1.4
"""Ratio of consecutive amplitudes (FEMA 461, section 2.9.1)."""
FURTHER = 0.3
"""Increment of the amplitude beyond the target, as a fraction of the target (FEMA 461, section 2.9.1)."""
CYCLES = 2
"""Number of cycles at each amplitude (FEMA 461, section 2.9.1)."""
BEAM_TO_COLUMN = ((6, 0.00375), (6, 0.005), (6, 0.0075), (4, 0.01), (2, 0.015), (2, 0.02), (2, 0.03), (2, 0.04))
"""Numbers of cycles and story drift angles, rad (AISC 341, K2.4b)."""
INCREMENT = 0.01
"""Increment of the drift angle beyond 0.04 rad (AISC 341, K2.4b)."""


class Smooth(ABC):
    """Base of excitations with exact ``derivatives``, which can also prescribe a displacement (m).

    A subclass defines ``_triple``, which returns the value and both derivatives.
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
    """Return a fifth-degree polynomial that rises from 0 at time 0 to 1 at ``length`` (s), and its derivatives."""
    if length == 0.0:
        return (times >= 0.0).astype(float), np.zeros(times.shape), np.zeros(times.shape)
    x = np.clip(times / length, 0.0, 1.0)
    rest = 1.0 - x
    value = x * x * x * (10.0 - 15.0 * x + 6.0 * x * x)
    return value, 30.0 * x * x * rest * rest / length, 60.0 * x * rest * (rest - x) / length**2


def window(times: Array, duration: float, taper: float) -> Triple:
    """Return a window and its derivatives: 0 outside the times 0 to ``duration`` (s), 1 between the tapers.

    The value rises smoothly in the first ``taper`` seconds and falls in the last ``taper`` seconds.
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


class Sine(Smooth):
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

    def _triple(self, times: Array) -> Triple:
        a, omega = self._p.amplitude, 2.0 * np.pi * self._p.frequency
        angle = omega * np.asarray(times) + self._p.phase
        return a * np.sin(angle), a * omega * np.cos(angle), -a * omega**2 * np.sin(angle)


class Harmonic(Smooth):
    """Sine a sin(2 pi f t) for a number of periods, then rest, as in Horiuchi et al. (1996).

    Without ``ramp_periods`` the motion starts and ends at full velocity, which an actuator cannot follow.
    """

    @params
    class Params:
        proportional_to: ClassVar[str] = "amplitude"
        amplitude: float = number("amplitude a; in m for a prescribed displacement", "m/s^2 or m")
        frequency: float = number("frequency f", "Hz", more_than=0.0)
        periods: int = integer("number of periods", default=10, at_least=1)
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


class Sweep(Smooth):
    """Sweep: a sin(phi(t)) until T, then rest; the frequency phi' / (2 pi) changes from f_0 to f_1.

    ``linear``: phi = 2 pi (f_0 t + (f_1 - f_0) t^2 / (2 T)). ``logarithmic``: phi = 2 pi f_0 T / L (e^(L t / T) -
    1), L = ln(f_1 / f_0), with equal times per octave (Farina 2000). Above the ``crossover`` frequency f_c the
    amplitude is a f_c / f, so the velocity amplitude remains 2 pi f_c a. The defaults are the sweep of the TADC
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
        t = np.minimum(t, p.duration)  # at later times the exponential would overflow
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


class NoMotion(Smooth):
    """Rest: zero at all times."""

    @params
    class Params:
        pass

    def _triple(self, times: Array) -> Triple:
        return np.zeros(np.shape(times)), np.zeros(np.shape(times)), np.zeros(np.shape(times))


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
        if hasattr(self._motion, "derivatives"):
            self.derivatives = self._derivatives

    def sample(self, times: Array) -> Array:
        late = np.asarray(times, dtype=float) - self._delay
        return np.where(late >= 0.0, self._scale * self._motion.sample(np.maximum(late, 0.0)), 0.0)

    def _derivatives(self, times: Array) -> tuple[Array, Array]:
        late = np.asarray(times, dtype=float) - self._delay
        first, second = self._motion.derivatives(np.maximum(late, 0.0))
        there = np.where(late >= 0.0, self._scale, 0.0)
        return there * first, there * second


class BandLimitedNoise(Smooth):
    """Sum of cosines with equal amplitudes and random phases, at the multiples of 1 / period within the band.

    The function of time depends on the seed, not on the sampling. It is zero before 0 and after ``duration``, and
    stationary between the tapers. Without tapers the rms over a period is exactly ``rms``.
    """

    ABOUT = "Band-limited white noise, for response curves as in Horiuchi et al. (1996)."

    @params
    class Params:
        proportional_to: ClassVar[str] = "rms"
        rms: float = number("root mean square; in m for a prescribed displacement", "m/s^2 or m", at_least=0.0)
        lower_frequency: float = number("lower end of the band", "Hz", default=0.1, more_than=0.0)
        upper_frequency: float = number("upper end of the band", "Hz", default=20.0, more_than=0.0)
        duration: float = number("duration", "s", default=60.0, more_than=0.0)
        taper: float = taper_parameter(1.0)
        period: float | None = number("period of the noise; default: the duration", "s", None, more_than=0.0)

        def validate(self, path: str) -> None:
            check_taper(self.taper, self.duration, f"{path}.taper")
            first, last = _lines(self)
            if last < first:
                raise ConfigError(
                    f"{path}: the band from lower_frequency = {self.lower_frequency:g} Hz to upper_frequency = "
                    f"{self.upper_frequency:g} Hz contains no multiple of 1 / {_repeated(self)} = "
                    f"{1.0 / _period(self):g} Hz. Use a wider band"
                )
            if last - first >= MOST_LINES:
                raise ConfigError(
                    f"{path}: the band from lower_frequency = {self.lower_frequency:g} Hz to upper_frequency = "
                    f"{self.upper_frequency:g} Hz contains {last - first + 1:.6g} multiples of "
                    f"1 / {_repeated(self)}, which must be <= {MOST_LINES}. Use a narrower band"
                )

        def cautions(self, test: TestContext) -> list[str]:
            return excitation_cautions("upper_frequency", self.upper_frequency, self.duration, test)

    def __init__(self, params: Params, seed: int) -> None:
        super().__init__(params, seed)
        self._first, last = _lines(params)
        count = last - self._first + 1
        phases = np.random.default_rng(np.random.SeedSequence([seed, STREAM])).uniform(0.0, 2.0 * np.pi, count)
        self._lines = params.rms * math.sqrt(2.0 / count) * np.exp(1j * phases)
        self._period = _period(params)
        self._frequencies = 2.0 * np.pi / self._period * np.arange(self._first, last + 1)

    def sample(self, times: Array) -> Array:  # without derivatives, which take three times as long
        t = np.asarray(times, dtype=float)
        return self._sum(t, self._lines) * window(t, self._p.duration, self._p.taper)[0]

    def _triple(self, times: Array) -> Triple:
        t = np.asarray(times, dtype=float)
        factor = 1j * self._frequencies
        value, first, second = (self._sum(t, self._lines * factor**order) for order in range(3))
        return product(window(t, self._p.duration, self._p.taper), (value, first, second))

    def _sum(self, times: Array, lines: Complex) -> Array:
        """Return the real part of the Fourier series with the coefficients ``lines``, by Horner's method.

        Real arithmetic is used so that each value is independent of the other ``times``.
        """
        angle = 2.0 * np.pi / self._period * times
        cosine, sine = np.cos(angle), np.sin(angle)
        real, imaginary = np.zeros(times.shape), np.zeros(times.shape)
        for line in lines[::-1].tolist():
            next_real = real * cosine
            next_real -= imaginary * sine
            imaginary *= cosine
            imaginary += real * sine
            real = next_real
            real += line.real
            imaginary += line.imag
        return real * np.cos(self._first * angle) - imaginary * np.sin(self._first * angle)


def _lines(params: BandLimitedNoise.Params) -> tuple[int, int]:
    first = math.ceil(params.lower_frequency * _period(params) * (1.0 - ROUNDING))
    return first, math.floor(params.upper_frequency * _period(params) * (1.0 + ROUNDING))


def _period(params: BandLimitedNoise.Params) -> float:
    return params.duration if params.period is None else params.period


def _repeated(params: BandLimitedNoise.Params) -> str:
    return "duration" if params.period is None else "period"


@params
class CyclesParams:
    proportional_to: ClassVar[str] = "scale"
    velocity: float = number("largest velocity, reached in each cycle at zero displacement", "m/s", more_than=0.0)
    ease: float = number(
        "duration of the rise of the speed at the beginning, and of the fall at the end", "s", 0.5, at_least=0.0
    )
    scale: float = number("factor on amplitudes and velocity", default=1.0, more_than=0.0)

    def amplitudes(self) -> Array:
        """Return the amplitude of each cycle, m."""
        raise TypeError("a subclass of CyclesParams must define amplitudes()")

    def validate(self, path: str) -> None:
        longest = float(periods(self.amplitudes(), self.velocity).sum())
        if self.ease > longest:
            raise ConfigError(
                f"{path}.ease = {self.ease:g} s: must be <= {longest:.4g} s, the duration of all cycles"
            )

    def fits(self, test: TestContext) -> None:
        if test.has_structure:
            raise ConfigError(
                "type: a loading protocol is a displacement and not a ground acceleration. Set "
                "integrator.type = predefined, and integrator.displacement to the protocol"
            )

    def cautions(self, test: TestContext) -> list[str]:
        lengths = periods(self.amplitudes(), self.velocity)
        return excitation_cautions("frequency", 1.0 / float(lengths.min()), float(lengths.sum()) + self.ease, test)


class Cycles(Smooth):
    """Base of loading protocols, with one cycle of displacement for each of ``params.amplitudes()`` (m).

    ``scale`` multiplies displacement, velocity and acceleration, but not the periods.
    """

    def __init__(self, params: AnyParams, seed: int) -> None:
        super().__init__(params, seed)
        self._amplitudes = params.amplitudes()
        self._ends = np.cumsum(periods(self._amplitudes, params.velocity))

    def _triple(self, times: Array) -> Triple:
        t, ends, amplitudes = np.asarray(times, dtype=float), self._ends, self._amplitudes
        along, speed, change = self._path(t)
        index = np.searchsorted(ends, along, side="right").clip(max=len(ends) - 1)
        a, velocity = amplitudes[index], self._p.velocity
        angle = (along - np.concatenate([[0.0], ends])[index]) * velocity / a
        moving = (t > 0.0) & (t < ends[-1] + self._p.ease)
        sine, cosine = np.where(moving, np.sin(angle), 0.0), np.where(moving, np.cos(angle), 0.0)
        scale = self._p.scale
        largest = scale * velocity
        return (
            scale * a * sine,
            largest * cosine * speed,
            largest * (cosine * change - velocity / a * sine * speed**2),
        )

    def _path(self, times: Array) -> Triple:
        """Return the time within the cycles, s, which passes slowly at both ends, and its two derivatives."""
        ease, length = self._p.ease, self._ends[-1]
        if not ease:
            return times.clip(0.0, length), np.ones(times.shape), np.zeros(times.shape)
        left = length + ease - times
        up, down = rise(times, ease), rise(left, ease)
        first, last = _integral(times, ease), length - _integral(left, ease)
        begins = 2.0 * times < length + ease
        return (
            np.where(begins, first, last),
            np.where(begins, up[0], down[0]),
            np.where(begins, up[1], -down[1]),
        )


def _integral(times: Array, length: float) -> Array:
    x = np.clip(times / length, 0.0, 1.0)
    return length * x**4 * (2.5 - 3.0 * x + x * x) + np.maximum(times - length, 0.0)


def periods(amplitudes: Array, velocity: float) -> Array:
    """Return the periods (s) of sines with ``amplitudes`` (m) and the velocity amplitude ``velocity`` (m/s)."""
    return 2.0 * np.pi * amplitudes / velocity


class Fema461(Cycles):
    """Quasi-static protocol of FEMA 461: two cycles at each amplitude 1.4^(i - n) times the target, i = 1 to n.

    n is ``steps`` (section 2.9.1). Each of the ``further_steps`` adds 0.3 times the target ``amplitude``.
    """

    SOURCES = ("fema_461_2007",)

    @params
    class Params(CyclesParams):
        amplitude: float = number("targeted largest amplitude of deformation", "m", more_than=0.0)
        steps: int = integer(
            "number n of amplitudes up to the targeted amplitude", default=10, at_least=1, at_most=30
        )
        further_steps: int = integer(
            "number of amplitudes beyond the targeted amplitude", default=0, at_least=0, at_most=30
        )

        def amplitudes(self) -> Array:
            rising = RATIO ** (np.arange(self.steps) - self.steps + 1.0)
            beyond = 1.0 + FURTHER * np.arange(1.0, self.further_steps + 1.0)
            return self.amplitude * np.repeat(np.concatenate([rising, beyond]), CYCLES)


class Aisc341(Cycles):
    """Loading sequence of AISC 341, K2.4b, for beam-to-column moment connections, in story drift angles.

    Six cycles each at 0.00375, 0.005 and 0.0075 rad, four at 0.01 rad, two each at 0.015, 0.02, 0.03 and 0.04 rad,
    and two at each further increment of 0.01 rad. The displacement is the drift angle times ``length``.
    """

    SOURCES = ("aisc_341_2016",)

    @params
    class Params(CyclesParams):
        length: float = number("height of the story: displacement divided by drift angle", "m", more_than=0.0)
        largest_angle: float = number(
            "largest story drift angle", "rad", 0.04, at_least=BEAM_TO_COLUMN[0][1], at_most=0.2
        )

        def amplitudes(self) -> Array:
            beyond = np.arange(BEAM_TO_COLUMN[-1][1], self.largest_angle, INCREMENT) + INCREMENT
            sequence = [*BEAM_TO_COLUMN, *((CYCLES, round(angle, 9)) for angle in beyond.tolist())]
            cycles = [angle for count, angle in sequence for _ in range(count)]
            return self.length * np.array([angle for angle in cycles if angle <= self.largest_angle])

        def validate(self, path: str) -> None:
            last = float(self.amplitudes()[-1]) / self.length
            if abs(last - self.largest_angle) > 1e-9:
                raise ConfigError(
                    f"{path}.largest_angle = {self.largest_angle:g} rad: must be an angle of the sequence; the "
                    f"next smaller angle is {last:g} rad"
                )
            CyclesParams.validate(self, path)
