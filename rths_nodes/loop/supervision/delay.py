# SPDX-License-Identifier: Apache-2.0
"""Delay by cross-correlation, in chunks of ``CHUNK`` samples counted from the first one.

Each chunk gives means, variances and covariance of target and measurement at every lag, by fast Fourier transforms
(overlap-save) about values of the chunk itself, so that an offset costs no digits. They are combined for the test
(Chan, Golub & LeVeque 1983); one transform back of the summed spectra gives the products at all lags. Memory is
bounded, and the result does not depend on the arrival of samples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import reduce
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from rths_nodes.core.samples import Array

CHUNK = 4096
BATCH = 8
"""Complete chunks that are processed together: their transforms share the preparation."""
FAST = 256
"""Factor of the length of a chunk's transforms: 5120 values take 0.8 of the time of 5000."""
SMOOTH = 2310**40
"""Multiple of all lengths without a prime factor above 11, for which transforms are fast."""
ROUNDING = 1e-12
"""Relative variance of the target below which it is rounding."""


class Moments(NamedTuple):
    """Moments of measurements and lagged targets: means (m), sums of squares about them and of products (m^2).

    Moments of targets are ``(n_lags,)``. ``spectrum`` holds the products, without the part in ``covariance``.
    ``squares`` (m^2) is the scale of rounding in ``target_variance``.
    """

    samples: int
    mean: float
    variance: float
    target_mean: Array
    target_variance: Array
    covariance: Array
    squares: float
    spectrum: NDArray[np.complex128]

    @classmethod
    def none(cls, lags: int, size: int) -> Moments:
        zero = np.zeros(lags)
        return cls(0, 0.0, 0.0, zero, zero, zero, 0.0, np.zeros(size // 2 + 1, complex))

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
            self.spectrum + other.spectrum,
        )

    @np.errstate(all="ignore")
    def peak(self) -> float:
        """Return the lag of the largest Pearson coefficient, by a parabola; nan without one."""
        size = self.variance * self.target_variance
        if not (np.all(self.target_variance > ROUNDING * self.squares) and np.all(size > 0.0)):
            return math.nan
        products = np.fft.irfft(self.spectrum)[: len(size)]
        correlation = (self.covariance + products) / np.sqrt(size)
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

    Complete chunks are processed ``BATCH`` at a time; with ``spread`` each at once, in three parts, one with each
    :meth:`work`.
    """

    def __init__(self, longest: int, spread: bool = False) -> None:
        self._longest, self._beside, self._spread = longest, 2 * longest, spread
        self._size = fast_length(-(-(CHUNK + self._beside) // FAST) * FAST, FAST)
        self._moments = Moments.none(self._beside + 1, self._size)
        self._samples = np.empty((2, self._beside + (1 if spread else BATCH) * CHUNK))
        """Unprocessed targets and measurements, in front of room for further ones."""
        self._count, self._full = 0, (self._beside // CHUNK + 1) * CHUNK
        """Number of samples, and the number at which they are processed, at first the end of a shorter chunk."""
        self._chunks: _Chunks | None = None

    def extend(self, target: Array, measured: Array) -> None:
        """Add samples, both ``(n,)`` m."""
        done = 0
        while done < len(target):
            part = slice(done, done + self._full - self._count)
            end = self._count + len(target[part])
            self._samples[0, self._count : end] = target[part]
            self._samples[1, self._count : end] = measured[part]
            self._count, done = end, part.stop
            if end == self._full:
                self._complete()

    @property
    def began(self) -> bool:
        return self._count > 0

    @property
    def waits(self) -> bool:
        return self._chunks is not None

    def work(self) -> None:
        if self._chunks is not None and (moments := self._chunks.work()):
            self._moments, self._chunks = reduce(Moments.and_of, moments, self._moments), None

    def samples(self) -> float:
        """Return the delay in samples; nan without motion or a peak, or for a short test."""
        self._work_off()
        total, ready = self._moments, max(0, self._count - self._beside)
        complete = ready // CHUNK * CHUNK
        for rest in (self._ready(0, complete), self._ready(complete, ready)):
            while rest is not None:
                if moments := rest.work():
                    total, rest = reduce(Moments.and_of, moments, total), None
        return self._longest - total.peak()

    def _work_off(self) -> None:
        while self.waits:
            self.work()

    def _complete(self) -> None:
        self._work_off()  # of the chunk before
        self._chunks = self._ready(0, self._full - self._beside)
        before, self._samples = self._samples, np.empty_like(self._samples)
        self._samples[:, : self._beside] = before[:, self._full - self._beside : self._full]
        self._count, self._full = self._beside, before.shape[1]
        if not self._spread:
            self._work_off()

    def _ready(self, first: int, last: int) -> _Chunks | None:
        """Return measurements with all their targets: number j + longest is amid targets j to j + 2 longest."""
        if last == first:
            return None
        n = min(last - first, CHUNK)
        targets = sliding_window_view(self._samples[0, first : last + self._beside], n + self._beside)[::n]
        measured = self._samples[1, first + self._longest : last + self._longest].reshape(-1, n)
        return _Chunks(targets, measured, self._size)


class _Chunks:
    """Measurements ``(chunks, n)`` m, targets ``(chunks, n + n_lags - 1)`` m; ``size`` of the transforms."""

    def __init__(self, targets: Array, measured: Array, size: int) -> None:
        self._targets, self._measured, self._size = targets, measured, size
        self._parts = iter((self._transform, self._multiply, self._sum))

    @np.errstate(all="ignore")
    def work(self) -> list[Moments] | None:
        return next(self._parts)()

    def _transform(self) -> None:
        self._targets, self._target = _centred(self._targets)
        self._spectrum = np.fft.rfft(self._targets, self._size)

    def _multiply(self) -> None:
        self._measured, self._middle = _centred(self._measured)
        self._spectrum *= np.fft.rfft(self._measured, self._size).conj()

    def _sum(self) -> list[Moments]:
        c, m, n = self._targets, self._measured, self._measured.shape[1]
        squares = c * c
        sums, sums_of_squares = _windows(c, n), _windows(squares, n)
        rest = np.add.reduce(m, axis=1, keepdims=True)
        rows = (
            (self._middle + rest / n)[:, 0].tolist(),
            (np.add.reduce(m * m, axis=1, keepdims=True) - rest * rest / n)[:, 0].tolist(),
            self._target + sums / n,
            sums_of_squares - sums * sums / n,
            -sums * (rest / n),
            np.add.reduce(squares, axis=1).tolist(),
            self._spectrum,
        )
        return [Moments(n, *row) for row in zip(*rows, strict=True)]


def fast_length(length: int, step: int) -> int:
    """Return the first length from ``length`` on, in steps, without a prime factor above 11."""
    while SMOOTH % length:
        length += step
    return length


def _centred(rows: Array) -> tuple[Array, Array]:
    """Subtract a number near the mean of each row, exact for constant values; return both."""
    first = rows[:, :1].copy()
    shifted = rows - first
    mean = np.add.reduce(shifted, axis=1, keepdims=True) / rows.shape[1]
    shifted -= mean
    return shifted, first + mean


def _windows(rows: Array, n: int) -> Array:
    """Return the sums of ``n`` consecutive values of each row, at each place."""
    shifts = np.empty((len(rows), rows.shape[1] - n + 1))
    shifts[:, 0] = np.add.reduce(rows[:, :n], axis=1)
    np.subtract(rows[:, n:], rows[:, :-n], out=shifts[:, 1:])
    return np.cumsum(shifts, axis=1)


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
    """Return a note for every moving axis without delay, or relative error; ``longest``: ``longest_delay`` (s)."""
    still = [
        f"{name}: no error relative to the target, which has hardly moved"
        for name, row in axes.items()
        if math.isnan(row["error_norm_percent"]) and row["max_error_m"] > 0.0
    ]
    return still + [
        f"{name}: no delay within {1e3 * longest:g} ms (monitor.longest_delay) makes target and measurement most "
        "alike: it is longer, or the test shorter than twice that"
        for name, row in axes.items()
        if math.isnan(row["delay_s"]) and not math.isnan(row["max_error_percent"])
    ]
