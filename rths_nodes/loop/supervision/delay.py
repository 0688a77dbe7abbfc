# SPDX-License-Identifier: Apache-2.0
"""Delay by cross-correlation, in chunks of ``CHUNK`` samples counted from the first one.

Each chunk gives means, variances and covariance of target and measurement at every lag, by fast Fourier transforms
(overlap-save) about values of the chunk itself, so that an offset costs no digits. They are combined for the test
(Chan, Golub & LeVeque 1983). Memory is bounded, and the result does not depend on the arrival of samples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from rths_nodes.core.samples import Array

CHUNK = 4096
ROUNDING = 1e-12
"""Relative variance of the target below which it is rounding."""


class Moments(NamedTuple):
    """Moments of measurements and lagged targets: means (m), sums of squares about them and of products (m^2).

    Moments of targets are ``(n_lags,)``. ``squares`` (m^2) is the scale of rounding in ``target_variance``.
    """

    samples: int
    mean: float
    variance: float
    target_mean: Array
    target_variance: Array
    covariance: Array
    squares: float

    @classmethod
    def none(cls, lags: int) -> Moments:
        return cls(0, 0.0, 0.0, np.zeros(lags), np.zeros(lags), np.zeros(lags), 0.0)

    @np.errstate(all="ignore")
    def and_of(self, other: Moments) -> Moments:
        samples = self.samples + other.samples
        share, weight = other.samples / samples, self.samples * other.samples / samples
        apart, targets_apart = other.mean - self.mean, other.target_mean - self.target_mean
        return Moments(
            samples,
            self.mean + share * apart,
            self.variance + other.variance + weight * apart * apart,
            self.target_mean + share * targets_apart,
            self.target_variance + other.target_variance + weight * np.square(targets_apart),
            self.covariance + other.covariance + (weight * apart) * targets_apart,
            self.squares + other.squares,
        )

    @np.errstate(all="ignore")
    def peak(self) -> float:
        """Return the lag of the largest Pearson coefficient, by a parabola; nan without one."""
        size = self.variance * self.target_variance
        if not (np.all(self.target_variance > ROUNDING * self.squares) and np.all(size > 0.0)):
            return math.nan
        correlation = self.covariance / np.sqrt(size)
        best = int(np.argmax(correlation))
        if not 0 < best < len(correlation) - 1:
            return math.nan
        left, top, right = correlation[best - 1 : best + 2].tolist()
        curvature = left - 2.0 * top + right
        offset = 0.5 * (left - right) / curvature if curvature < 0.0 else 0.0
        return float(best + offset)


class Delay:
    """Delay of one axis: lag that maximises the correlation, with a parabola through the peak.

    J1 of Wang et al. (TADC), in samples; positive: the measured displacement is late. Lags up to ``longest``
    samples of either sign. Pearson's coefficient at each lag uses the same samples of the measurement, so that
    neither drift nor the ends of the record shift the peak. A correlation that still rises at the longest lag has
    no peak and gives no delay.

    A chunk is processed when complete; with ``spread`` in four parts, one with each :meth:`work`.
    """

    def __init__(self, longest: int, spread: bool = False) -> None:
        self._longest, self._spread = longest, spread
        self._size = _smooth(CHUNK + 2 * longest)
        self._moments = Moments.none(2 * longest + 1)
        self._targets = self._measured = np.zeros(0)
        self._left = CHUNK
        self._chunk: _Chunk | None = None

    def extend(self, target: Array, measured: Array) -> None:
        """Add samples, both ``(n,)`` m."""
        done = 0
        while done < len(target):
            part = slice(done, done + self._left)
            self._targets = np.concatenate((self._targets, target[part]))
            self._measured = np.concatenate((self._measured, measured[part]))
            self._left -= len(target[part])
            done = part.stop
            if not self._left:
                self._complete()

    @property
    def began(self) -> bool:
        return len(self._targets) > 0

    @property
    def waits(self) -> bool:
        return self._chunk is not None

    def work(self) -> None:
        if self._chunk is not None and (found := self._chunk.work()):
            self._moments, self._chunk = self._moments.and_of(found), None

    def samples(self) -> float:
        """Return the delay in samples; nan without motion or a peak, or for a short test."""
        self._work_off()
        found, rest = self._moments, self._last()
        while rest is not None:
            if moments := rest.work():
                found, rest = found.and_of(moments), None
        return self._longest - found.peak()

    def _work_off(self) -> None:
        while self.waits:
            self.work()

    def _complete(self) -> None:
        self._work_off()  # of the chunk before
        self._left = CHUNK
        self._chunk = self._last()
        if self._chunk is not None:
            self._targets, self._measured = (v[-2 * self._longest :] for v in (self._targets, self._measured))
            if not self._spread:
                self._work_off()

    def _last(self) -> _Chunk | None:
        """Return the unprocessed rest: measurement j + longest is in the middle of targets j to j + 2 longest."""
        ready = len(self._targets) - 2 * self._longest
        if ready <= 0:
            return None
        return _Chunk(self._targets, self._measured[self._longest : self._longest + ready], self._size)


class _Chunk:
    """Measurements ``(n,)`` m, and targets ``(n + n_lags - 1,)`` m; ``size`` of the transforms."""

    def __init__(self, targets: Array, measured: Array, size: int) -> None:
        self._targets, self._measured, self._size = targets, measured, size
        self._parts = iter((self._transform, self._multiply, self._transform_back, self._sum))

    @np.errstate(all="ignore")
    def work(self) -> Moments | None:
        return next(self._parts)()

    def _transform(self) -> None:
        self._targets, self._target = _centred(self._targets)
        self._spectrum = np.fft.rfft(self._targets, self._size)

    def _multiply(self) -> None:
        self._measured, self._middle = _centred(self._measured)
        self._spectrum *= np.fft.rfft(self._measured, self._size).conj()

    def _transform_back(self) -> None:
        self._products = np.fft.irfft(self._spectrum, self._size)[: len(self._targets) - len(self._measured) + 1]

    def _sum(self) -> Moments:
        c, m, n = self._targets, self._measured, len(self._measured)
        squares = c * c
        sums, sums_of_squares = _windows(c, n), _windows(squares, n)
        rest = float(np.add.reduce(m))
        return Moments(
            n,
            self._middle + rest / n,
            float(np.add.reduce(m * m)) - rest * rest / n,
            self._target + sums / n,
            sums_of_squares - sums * sums / n,
            self._products - sums * (rest / n),
            float(np.add.reduce(squares)),
        )


def _smooth(least: int) -> int:
    """Return the smallest number from ``least`` on with factors 2, 3 and 5 only, for fast transforms."""
    found = least
    while True:
        left = found
        for factor in (2, 3, 5):
            while left % factor == 0:
                left //= factor
        if left == 1:
            return found
        found += 1


def _centred(values: Array) -> tuple[Array, float]:
    """Subtract a number near the mean, exact for constant values; return both."""
    first = float(values[0])
    shifted = values - first
    mean = float(np.add.reduce(shifted)) / len(values)
    shifted -= mean
    return shifted, first + mean


def _windows(values: Array, n: int) -> Array:
    shifts = np.empty(len(values) - n + 1)
    shifts[0] = np.add.reduce(values[:n])
    shifts[1:] = values[n:] - values[: len(values) - n]
    return np.cumsum(shifts)


def delay_samples(target: Array, measured: Array, longest: int, first: int = 0, last: int | None = None) -> Array:
    """Return J1: the :class:`Delay` of the samples ``first`` to ``last``, inclusive; by default of all.

    ``target`` and ``measured`` ``(n, n_axes)`` m; ``(n_axes,)`` samples, positive for a late measurement; nan
    without motion, for a window up to twice ``longest``, or a longer delay.
    """
    window = slice(first, None if last is None else last + 1)
    found = []
    for axis in range(target.shape[1]):
        delay = Delay(longest)
        delay.extend(target[window, axis], measured[window, axis])
        found.append(delay.samples())
    return np.array(found)


def delay_notes(axes: Mapping[str, Mapping[str, float]], longest: float) -> list[str]:
    """Return a note for every moving axis without a known delay; ``longest``: ``monitor.longest_delay`` (s)."""
    return [
        f"{name}: no delay within {1e3 * longest:g} ms (monitor.longest_delay) makes target and measurement most "
        "alike: it is longer, or the test shorter than twice that"
        for name, row in axes.items()
        if math.isnan(row["delay_s"]) and not math.isnan(row["max_error_percent"])
    ]
