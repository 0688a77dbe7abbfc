# SPDX-License-Identifier: Apache-2.0
"""Band-limited white noise, for response curves as in Horiuchi et al. (1996)."""

from __future__ import annotations

import math
import zlib
from typing import ClassVar

import numpy as np

from rths_nodes.core.checks import TestContext
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.frequency_response import Complex
from rths_nodes.core.parameters import number, params
from rths_nodes.core.samples import ROUNDING, Array
from rths_nodes.numerical.ground_motions.waves import (
    check_taper,
    excitation_cautions,
    product,
    taper_parameter,
    window,
)

MOST_LINES = 20_000
STREAM = zlib.crc32(b"band_limited_noise")
"""Number that selects the random stream of the phases."""


class BandLimitedNoise:
    """Sum of cosines with equal amplitudes and random phases, at the multiples of 1 / period within the band.

    The function of time depends on the seed, not on the sampling. It is zero before 0 and after ``duration``, and
    stationary between the tapers. Without tapers the rms over a period is exactly ``rms``.
    """

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
                    f"{1.0 / _period(self):g} Hz; use a wider band"
                )
            if last - first >= MOST_LINES:
                raise ConfigError(
                    f"{path}: the band from lower_frequency = {self.lower_frequency:g} Hz to upper_frequency = "
                    f"{self.upper_frequency:g} Hz contains {last - first + 1:.6g} multiples of "
                    f"1 / {_repeated(self)}, which must be <= {MOST_LINES}; use a narrower band"
                )

        def cautions(self, test: TestContext) -> list[str]:
            return excitation_cautions("upper_frequency", self.upper_frequency, self.duration, test)

    def __init__(self, params: Params, seed: int) -> None:
        self._p = params
        self._first, last = _lines(params)
        count = last - self._first + 1
        phases = np.random.default_rng(np.random.SeedSequence([seed, STREAM])).uniform(0.0, 2.0 * np.pi, count)
        self._lines = params.rms * math.sqrt(2.0 / count) * np.exp(1j * phases)
        self._period = _period(params)
        self._frequencies = 2.0 * np.pi / self._period * np.arange(self._first, last + 1)

    def sample(self, times: Array) -> Array:
        t = np.asarray(times, dtype=float)
        return self._sum(t, self._lines) * self._window(t)[0]

    def derivatives(self, times: Array) -> tuple[Array, Array]:
        t = np.asarray(times, dtype=float)
        factor = 1j * self._frequencies
        noise = [self._sum(t, self._lines * factor**order) for order in range(3)]
        _, first, second = product(self._window(t), (noise[0], noise[1], noise[2]))
        return first, second

    def _window(self, times: Array) -> tuple[Array, Array, Array]:
        return window(times, self._p.duration, self._p.taper)

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
