# SPDX-License-Identifier: Apache-2.0
"""Tracking indices for monitor and analysis: control error, tracking indicator, work and delay.

The equations are from Chen & Ricles (2010). c (m) is the target, m (m) the measured displacement, and f (N) the
measured force. A prime denotes the previous sample:

    Eq. (15)          sums of (c - m)^2 and c^2, m^2
    Eqs. (8) to (9b)  TI = (A - TA) / 2, m^2. A increases by (c + c') (m - m') / 2, TA by (m + m') (c - c') / 2
    Fig. 11           W, in J, increases by (f + f') / 2 ((m - m') - (c - c')), times the ratio of structure energy
                      to specimen energy

Maxima and sums remain NaN after a NaN. The largest values are stored as squares, because the root of a square is
exactly the absolute value. A test computes the indices sample by sample in plain floats, so results do not
depend on arrival times or host.

The delay follows from the cross-correlation, in chunks of ``CHUNK`` samples counted from the first sample. Values
are relative to the first sample, because an offset reduces the precision. The cross-spectra of the chunks
(overlap-save) are summed, and one inverse transform then yields the sums of products at all lags.
"""

from __future__ import annotations

import math
import operator
from array import array
from collections.abc import Callable, Mapping, Sequence
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
"""The transform length of a chunk is a multiple of this number."""
SMOOTH = 2310**40
"""Number that is divisible by every transform length in use that has no prime factor above 11."""
ROUNDING = 1e-12
"""Ratio of variance to mean square below which the variance is rounding error."""
MOST = 10.0
"""Ratio of error to target above which a relative error has no meaning, because the target has hardly moved."""


@np.errstate(divide="ignore", invalid="ignore")
def frequency_evaluation(target: Array, measured: Array, dt: float) -> tuple[Array, Array, Array]:
    """Return the frequency evaluation of histories ``(n, n_axes)`` (Guo, Chen, Xu & Sanchez 2014).

        FEI = sum_j (Y_j / X_j) |X_j|^2 / sum_j |X_j|^2,    f_eq = sum_j f_j |X_j|^2 / sum_j |X_j|^2
        A = |FEI|,    d = -arg(FEI) / (2 pi f_eq)

    The results are the amplitude ratio A, the delay d (s) and the equivalent frequency f_eq (Hz), each
    ``(n_axes,)``. They are NaN if the target does not move. d is positive if the measurement is late. X and Y are
    the one-sided spectra of target and measurement at the frequencies f, without means. Histories are cut to a
    :func:`fast_length`. If the delay is constant over a wide band, A is slightly below the gain (0.4 % for 10 ms
    on 0.1 to 5 Hz).
    """
    length = fast_length(len(target), -1)
    x, y = (np.fft.rfft(values[:length].T)[:, 1:] for values in (target, measured))
    shares = np.square(x.real) + np.square(x.imag)
    frequencies = np.arange(1, x.shape[1] + 1) / (length * dt)
    total = shares.sum(axis=1)
    moved = np.where(total > 0.0, total, math.nan)
    index = (y * x.conj()).sum(axis=1) / moved  # not BLAS, because its rounding depends on the number of threads
    equivalent = (shares * frequencies).sum(axis=1) / moved
    return np.abs(index), -np.angle(index) / (2.0 * math.pi * equivalent), equivalent


class Constants(NamedTuple):
    """Constants of the indices. ``weight`` is half the ratio of structure energy to specimen energy."""

    weight: float


class State(NamedTuple):
    """State of the indices of one axis.

    ``largest_error`` and ``largest_target`` are largest squares, ``errors`` and ``targets`` sums of squares (m^2).
    ``indicator`` is TI (m^2), and ``energy`` is W (J). ``target``, ``measured`` (m) and ``force`` (N) are values
    of the last sample.
    """

    largest_error: float
    largest_target: float
    errors: float
    targets: float
    indicator: float
    energy: float
    target: float
    measured: float
    force: float


def anew(target: float, measured: float, force: float) -> tuple[float, ...]:
    """Return the values of a :class:`State` at the first sample."""
    return 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, target, measured, force


def step(
    constants: Constants, state: State, target: float, measured: float, force: float
) -> tuple[State, tuple[float, float]]:
    """Advance by a sample. Return the state, and the pair of tracking indicator TI (m^2) and work W (J)."""
    (weight,) = constants
    largest, reach, errors, targets, indicator, energy, c, m, f = state
    error = target - measured
    square = error * error
    errors += square
    if not square <= largest and largest == largest:
        largest = square
    square = target * target
    targets += square
    if not square <= reach and reach == reach:
        reach = square
    wanted, moved = target - c, measured - m
    indicator += 0.25 * ((target + c) * moved - (measured + m) * wanted)
    energy += weight * (force + f) * (moved - wanted)
    now = (largest, reach, errors, targets, indicator, energy, target, measured, force)
    return now, (indicator, energy)  # type: ignore[return-value]


class Tracking:
    """Computes the tracking indices of all axes: control error, tracking indicator, delay and energy error.

    J3 is the largest error relative to the largest target, and J2 the relative rms error (Wang et al., TADC). The
    tracking indicator (m^2) is derived from the synchronisation plot (Mercan 2007), and rises if the actuator
    lags. See :class:`Delay` for ``longest`` and ``spread``.

    ``scale`` ``(n_axes,)`` is the energy of the structure divided by the energy of a scale specimen (default: 1).
    ``judge(measured, force, total)`` is called if the energy error exceeds ``within`` (J) or is not finite, or if
    ``total`` is not finite. ``total`` (m^2) is the sum of the tracking indicators. ``measured`` (m) and ``force``
    (N) are lists by axis. ``on_chunk`` is called after the last sample of each chunk.
    """

    def __init__(
        self,
        n_axes: int,
        longest: int,
        scale: Array | None = None,
        spread: bool = False,
        within: float = math.inf,
        judge: Callable[[list[float], list[float], float], None] = lambda measured, force, total: None,
        on_chunk: Callable[[], None] = lambda: None,
    ) -> None:
        self._n, self._longest, self._spread = n_axes, longest, spread
        self._within, self._judge, self._on_chunk = within, judge, on_chunk
        self.sample = -1
        scales = [1.0] * n_axes if scale is None else scale.tolist()
        self._constants = tuple(enumerate(Constants(0.5 * ratio_of_axis) for ratio_of_axis in scales))
        self._new_delays()
        self.start(*([0.0] * n_axes for _ in range(3)))

    def start(self, target: list[float], measured: list[float], force: list[float]) -> None:
        """Reset all indices. The motion begins at ``target``, ``measured`` (m) and ``force`` (N) of each axis."""
        self._states = [State(*anew(*row)) for row in zip(target, measured, force, strict=True)]
        self.energy_error = 0.0
        """Sum of W over the axes, J. It is positive if the actuator lags."""
        if self._left < CHUNK or any(delay.began for delay in self.delays):
            self._new_delays()

    def _new_delays(self) -> None:
        self.delays = [Delay(self._longest, self._spread) for _ in range(self._n)]
        self._left = CHUNK
        self._new_samples()

    def _new_samples(self) -> None:
        self._targets, self._measured = array("d"), array("d")
        self._add_target, self._add_measured = self._targets.fromlist, self._measured.fromlist

    def step(self, sample: int, target: list[float], measured: list[float], force: list[float]) -> None:
        self.sample = sample
        self._add_target(target)
        self._add_measured(measured)
        states, total, error = self._states, 0.0, 0.0
        for n, constants in self._constants:
            states[n], (indicator, energy) = step(constants, states[n], target[n], measured[n], force[n])
            total += indicator
            error += energy
        self.energy_error = error
        self._left = left = self._left - 1
        if not left:
            self._hand_on()
            self._left = CHUNK
            self._on_chunk()
        if total - total != 0.0 or not abs(error) <= self._within:
            self._judge(measured, force, total)

    def resume(self, sample: int, states: Sequence[State], target: Array, measured: Array) -> None:
        """Continue after ``sample`` with ``states`` and the last ``target`` and ``measured`` ``(n, n_axes)`` m."""
        self._take(sample, states)
        self._follow(target, measured)

    def _take(self, sample: int, states: Sequence[State]) -> None:
        self.sample, self._states = sample, list(states)
        self.energy_error = 0.0
        for state in self.states:
            self.energy_error += state.energy

    def _follow(self, target: Array, measured: Array) -> None:
        self._hand_on()
        self._extend(target, measured)
        self._left = CHUNK - (CHUNK - self._left + len(target)) % CHUNK

    def _extend(self, target: Array, measured: Array) -> None:
        for delay, *columns in zip(self.delays, target.T, measured.T, strict=True):
            delay.extend(*columns)

    @property
    def constants(self) -> list[Constants]:
        return [constants for _, constants in self._constants]

    @np.errstate(invalid="ignore", over="ignore")
    def over(self, target: Array, measured: Array, force: Array | None = None) -> tuple[Array, Array]:
        """Advance by n samples. Return tracking indicators ``(n, n_axes)`` m^2 and energy errors ``(n,)`` J."""
        before, energy = self.indicator, self.energy_error
        indicators, works = self.count(target, measured, force)
        self._follow(target, measured)
        return before + np.cumsum(indicators, axis=0), energy + np.cumsum(works)

    @np.errstate(invalid="ignore", over="ignore")
    def count(self, target: Array, measured: Array, force: Array | None = None) -> tuple[Array, Array]:
        """Advance all indices except the delays by n samples ``(n, n_axes)``, in m and N.

        Return the changes of indicators ``(n, n_axes)`` m^2 and energy error ``(n,)`` J at each sample. Rounding
        differs from :meth:`step`.
        """
        states, indicators, works = [], np.empty(target.shape), np.zeros(len(target))
        for n, (weight,) in self._constants:
            largest, reach, errors, targets, indicator, energy, c0, m0, f0 = self._states[n]
            c, m = np.append(c0, target[:, n]), np.append(m0, measured[:, n])
            wanted, moved, error = c[1:] - c[:-1], m[1:] - m[:-1], c[1:] - m[1:]
            indicators[:, n] = 0.25 * ((c[1:] + c[:-1]) * moved - (m[1:] + m[:-1]) * wanted)
            if force is not None:
                f = np.append(f0, force[:, n])
                work = weight * (f[1:] + f[:-1]) * (moved - wanted)
                works += work
                energy, f0 = energy + work.sum(), f[-1]
            squares, of_targets = error * error, c[1:] * c[1:]
            farthest = max_of(largest, squares), max_of(reach, of_targets)
            sums = errors + squares.sum(), targets + of_targets.sum(), indicator + indicators[:, n].sum()
            states.append(State(*map(float, (*farthest, *sums, energy, c[-1], m[-1], f0))))
        self._take(self.sample + len(target), states)
        return indicators, works

    def _hand_on(self) -> None:
        if self._targets:
            self._extend(*(np.frombuffer(row).reshape(-1, self._n) for row in (self._targets, self._measured)))
            self._new_samples()

    @property
    def states(self) -> list[State]:
        return [State(*state) for state in self._states]

    @property
    def control_error(self) -> list[float]:
        """Target minus measured displacement, m."""
        return [state.target - state.measured for state in self.states]

    @property
    def maximum(self) -> list[float]:
        return [math.sqrt(state.largest_error) for state in self.states]

    @property
    def reach(self) -> list[float]:
        return [math.sqrt(state.largest_target) for state in self.states]

    @property
    def indicator(self) -> list[float]:
        """Tracking indicator of each axis, m^2."""
        return [state.indicator for state in self.states]

    @property
    def percent(self) -> list[float]:
        """J3 of each axis: largest error in % of the largest target, or NaN above 1000 % or if the target is 0."""
        return [100.0 * ratio(*pair, MOST) for pair in zip(self.maximum, self.reach, strict=True)]

    @property
    def norm_percent(self) -> list[float]:
        """J2 of each axis: rms error in % of the rms target, or NaN above 1000 % or if the target is 0."""
        return [100.0 * math.sqrt(ratio(state.errors, state.targets, MOST**2)) for state in self.states]

    def indices(self, axes: Sequence[str], dt: float) -> dict[str, dict[str, float]]:
        self._hand_on()
        columns = {
            "max_error_m": self.maximum,
            "max_error_percent": self.percent,
            "error_norm_percent": self.norm_percent,
            "delay_s": [delay.samples() * dt for delay in self.delays],
            "tracking_indicator_m2": self.indicator,
        }
        rows = zip(*columns.values(), strict=True)
        return {name: dict(zip(columns, row, strict=True)) for name, row in zip(axes, rows, strict=True)}


def max_of(start: float, values: Array) -> float:
    return float(np.maximum.reduce(values, initial=start))


def ratio(a: float, b: float, most: float) -> float:
    """Return ``a`` / ``b``, both non-negative, or NaN if ``b`` is 0 or the ratio exceeds ``most``."""
    return a / b if b > 0.0 and a <= most * b else math.nan


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
        """Return the index of the largest Pearson coefficient, refined by a parabola, or NaN without a peak.

        Index 0 is the largest lag. For n lags, ``first`` contains the first n - 1 targets of the test (m), and
        ``last`` the last n - 1 targets.
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
    at each lag, so neither drift nor the ends of the record shift the peak. If the correlation still rises at the
    longest lag, there is no peak and the delay is NaN.

    ``BATCH`` chunks are processed together. If ``spread`` is true, two calls of :meth:`work` process each chunk.
    """

    def __init__(self, longest: int, spread: bool = False) -> None:
        self.longest, self._beside, self._spread = longest, 2 * longest, spread
        self._size = fast_length(-(-(CHUNK + self._beside) // FAST) * FAST, FAST)
        self._sums = self._none = Sums(0, 0.0, 0.0, 0.0, 0.0, np.zeros(self._size // 2 + 1, complex))
        self._total: Sums | None = None
        self.kept: list[_Chunks] | None = None
        self._samples = np.empty((2, self._beside + (1 if spread else BATCH) * CHUNK))
        self._start: tuple[float, float] | None = None
        self._first: Array | None = None
        self._count, self._full = 0, (self._beside // CHUNK + 1) * CHUNK
        """``_count``: number of stored samples. ``_full``: number of stored samples at which they are processed.
        The first chunk has a smaller ``_full``."""
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
        """Return the Delay of other measurements ``(n,)`` m, for the targets stored since :meth:`keep`."""
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
        """Return the delay in samples. It is NaN without motion, without a peak, or if the test is too short."""
        total = self.total()
        if total is None:
            return math.nan
        first = self._samples[0, : self._beside] if self._first is None else self._first
        return self.longest - total.peak(first, self._samples[0, self._count - self._beside : self._count])

    def total(self) -> Sums | None:
        """Return the sums without the first and last ``longest`` measurements, or None if no sample remains."""
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

    Measurements are ``(chunks, n)`` m, and targets ``(chunks, n + lags - 1)`` m for ``lags`` lags.
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
    """Return explanations of NaN indices of moving ``axes``. ``longest`` (s) is the longest lag tried."""
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
