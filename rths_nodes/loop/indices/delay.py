# SPDX-License-Identifier: Apache-2.0
"""Delay by cross-correlation, in chunks of ``CHUNK`` samples counted from the first sample.

Values are relative to the first sample, because an offset reduces the precision. The cross-spectra of the chunks
(overlap-save) are summed, and one inverse transform then yields the sums of products at all lags. Memory is
bounded, and the result does not depend on arrival times.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from copy import copy
from functools import reduce
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from rths_nodes.core.samples import Array

CHUNK = 4096
BATCH = 8
FAST = 256
"""Divisor of the transform length of a chunk, which makes transforms faster."""
SMOOTH = 2310**40
"""Common multiple of all useful transform lengths without a prime factor above 11."""
ROUNDING = 1e-12
"""Ratio of variance to mean square below which the variance is rounding error."""


class Sums(NamedTuple):
    """Sums of ``samples`` measurements and targets (m), sums of their squares (m^2), and their cross-spectrum."""

    samples: int
    measured: float
    measured_squares: float
    target: float
    target_squares: float
    spectrum: NDArray[np.complex128]

    def plus(self, other: Sums) -> Sums:
        return Sums(*map(operator.add, self, other))

    def products(self, count: int) -> Array:
        """Return the sums of measurement times target (m^2) at ``count`` lags, largest lag first."""
        return np.fft.irfft(self.spectrum)[:count]

    @np.errstate(all="ignore")
    def peak(self, first: Array, last: Array) -> float:
        """Return the index of the largest Pearson coefficient, refined by a parabola; NaN without a peak.

        Index 0 is the largest lag. ``first`` and ``last`` (m) are the targets at both ends of the test. Each has
        one value fewer than there are lags.
        """
        n, before, after = self.samples, np.square(first), np.square(last)
        targets = np.cumsum(np.append(self.target, last - first))
        squares = np.cumsum(np.append(self.target_squares, after - before))
        variances = squares - targets * targets / n, self.measured_squares - self.measured**2 / n
        sizes = self.target_squares + after.sum(), self.measured_squares
        if not all(np.all(variance > ROUNDING * size) for variance, size in zip(variances, sizes, strict=True)):
            return math.nan
        products = self.products(len(targets))
        correlation = (products - targets * (self.measured / n)) / np.sqrt(variances[0] * variances[1])
        best = int(np.argmax(correlation))
        if not 0 < best < len(correlation) - 1:
            return math.nan
        left, top, right = correlation[best - 1 : best + 2].tolist()
        curvature = left - 2.0 * top + right
        offset = 0.5 * (left - right) / curvature if curvature < 0.0 else 0.0
        return float(best + offset)


class Delay:
    """Computes the delay of one axis: the lag with the largest correlation, refined by a parabola.

    The delay is J1 of Wang et al. (TADC), in samples, and positive if the measured displacement is late. Lags up
    to ``longest`` samples of either sign are tried. Pearson's coefficient uses the same samples of the measurement
    at each lag, so that neither drift nor the ends of the record shift the peak. If the correlation still rises at
    the longest lag, there is no peak, and the delay is NaN.

    Complete chunks are processed ``BATCH`` at a time or, with ``spread``, each in two calls of :meth:`work`.
    """

    def __init__(self, longest: int, spread: bool = False) -> None:
        self.longest, self._beside, self._spread = longest, 2 * longest, spread
        self._size = fast_length(-(-(CHUNK + self._beside) // FAST) * FAST, FAST)
        self._sums = self._none = Sums(0, 0.0, 0.0, 0.0, 0.0, np.zeros(self._size // 2 + 1, complex))
        self._total: Sums | None = None
        """Result of :meth:`total`; None if samples have been added since that call."""
        self.kept: list[_Chunks] | None = None
        self._samples = np.empty((2, self._beside + (1 if spread else BATCH) * CHUNK))
        self._start: tuple[float, float] | None = None
        self._first: Array | None = None
        self._count, self._full = 0, (self._beside // CHUNK + 1) * CHUNK
        """Number of stored samples, and number at which they are processed (smaller for the first chunk)."""
        self._chunks: _Chunks | None = None

    @np.errstate(invalid="ignore")
    def extend(self, target: Array, measured: Array) -> None:
        done, self._total = 0, None
        while done < len(target):
            self._start = self._start or (float(target[0]), float(measured[0]))
            part = slice(done, done + self._full - self._count)
            end = self._count + len(target[part])
            for values, row, start in zip((target, measured), self._samples, self._start, strict=True):
                np.subtract(values[part], start, out=row[self._count : end])
            self._count, done = end, part.stop
            if end == self._full:
                self._complete()

    def keep(self) -> None:
        """Store all targets and their transforms from now on, for :meth:`again`."""
        self.kept = []

    def again(self, measured: Array) -> Delay:
        """Return a Delay of ``measured`` ``(n,)`` m for the same targets, which :meth:`keep` has stored."""
        other, first = copy(self), float(measured[0])
        other._sums, other._total, end = self._none, None, self.longest
        for chunks in self.kept or ():
            part = measured[end : end + chunks.measured.size] - first
            other._sums = reduce(Sums.plus, chunks.sums(part.reshape(chunks.measured.shape)), other._sums)
            end += len(part)
        other._samples = self._samples.copy()
        other._samples[1, : self._count] = measured[len(measured) - self._count :] - first
        return other

    @property
    def began(self) -> bool:
        return self._count > 0

    @property
    def waits(self) -> bool:
        return self._chunks is not None

    def work(self) -> None:
        if self._chunks is not None and (sums := self._chunks.work()):
            self._sums, self._chunks = reduce(Sums.plus, sums, self._sums), None

    def samples(self) -> float:
        """Return the delay in samples; NaN without motion, without a peak, or if the test is too short."""
        total = self.total()
        if total is None:
            return math.nan
        first = self._samples[0, : self._beside] if self._first is None else self._first
        return self.longest - total.peak(first, self._samples[0, self._count - self._beside : self._count])

    def total(self) -> Sums | None:
        """Return the sums over all measurements but the first and last ``longest``; None if none remain."""
        self._work_off()
        total, ready = self._sums, self._count - self._beside
        if ready < 0 or not total.samples + ready:
            return None
        if self._total is None:
            complete = ready // CHUNK * CHUNK
            for rest in (self._ready(0, complete), self._ready(complete, ready)):
                if rest is not None:
                    rest.transform()
                    total = reduce(Sums.plus, rest.sums(rest.measured), total)
            self._total = total
        return self._total

    def _work_off(self) -> None:
        while self.waits:
            self.work()

    def _complete(self) -> None:
        self._work_off()  # process the previous chunk
        self._chunks = self._ready(0, self._full - self._beside)
        if self.kept is not None and self._chunks is not None:
            self.kept.append(self._chunks)
        before, self._samples = self._samples, np.empty_like(self._samples)
        if self._first is None:
            self._first = before[0, : self._beside].copy()
        self._samples[:, : self._beside] = before[:, self._full - self._beside : self._full]
        self._count, self._full = self._beside, before.shape[1]
        if not self._spread:
            self._work_off()

    def _ready(self, first: int, last: int) -> _Chunks | None:
        if last == first:
            return None
        n = min(last - first, CHUNK)
        targets = sliding_window_view(self._samples[0, first : last + self._beside], n + self._beside)[::n]
        measured = self._samples[1, first + self.longest : last + self.longest].reshape(-1, n)
        return _Chunks(targets, measured, self._size)


class _Chunks:
    """Computes the :class:`Sums` of chunks of a test, with transforms of the length ``size``.

    Measurements are ``(chunks, n)`` m, and targets ``(chunks, n + lags - 1)`` m for a number ``lags`` of lags.
    """

    def __init__(self, targets: Array, measured: Array, size: int) -> None:
        self._targets, self.measured, self._size = targets, measured, size
        self._transformed = False

    def work(self) -> list[Sums] | None:
        if self._transformed:
            return self.sums(self.measured)
        self.transform()
        return None

    @np.errstate(all="ignore")
    def transform(self) -> None:
        self._spectrum = np.fft.rfft(self._targets, self._size)
        self._of_targets = _of_squares(self._targets[:, : self.measured.shape[1]])
        self._transformed = True

    @np.errstate(all="ignore")
    def sums(self, measured: Array) -> list[Sums]:
        spectrum = np.fft.rfft(measured, self._size)
        np.conjugate(spectrum, out=spectrum)
        np.multiply(self._spectrum, spectrum, out=spectrum)
        rows = zip(*_of_squares(measured), *self._of_targets, spectrum, strict=True)
        return [Sums(measured.shape[1], *row) for row in rows]


def _of_squares(values: Array) -> list[list[float]]:
    return [np.add.reduce(row, axis=1).tolist() for row in (values, values * values)]


def fast_length(length: int, step: int) -> int:
    """Return the first of ``length``, ``length + step``, ... that has no prime factor above 11."""
    while SMOOTH % length:
        length += step
    return length


def delay_samples(target: Array, measured: Array, longest: int) -> Array:
    """Return J1, the :class:`Delay` of each axis, ``(n_axes,)`` samples, positive if the measurement is late.

    ``target`` and ``measured`` are ``(n, n_axes)`` m. The result is NaN if the axis does not move, if the delay
    exceeds ``longest``, or if ``n`` is at most twice ``longest``.
    """
    delays = []
    for values, moved in zip(target.T, measured.T, strict=True):
        delay = Delay(longest)
        delay.extend(values, moved)
        delays.append(delay.samples())
    return np.array(delays)


def delay_notes(axes: Mapping[str, Mapping[str, float]], longest: float) -> list[str]:
    """Return notes about NaN in the indices of moving ``axes``; ``longest`` is the largest possible delay, s."""
    still = [
        f"{name}: the error relative to the target is undefined, because the target has hardly moved"
        for name, row in axes.items()
        if math.isnan(row["error_norm_percent"]) and row["max_error_m"] > 0.0
    ]
    return still + [
        f"{name}: the delay exceeds {1e3 * longest:g} ms (monitor.longest_delay), or the test is shorter than "
        "twice this time"
        for name, row in axes.items()
        if math.isnan(row["delay_s"]) and not math.isnan(row["max_error_percent"])
    ]
