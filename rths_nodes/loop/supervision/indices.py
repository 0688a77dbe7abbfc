"""Indices of a test, all defined here, as streaming objects: for the monitor and for the analysis.

Samples are gathered into blocks of a fixed size, counted from sample 0, and processed with numpy: the result
does not depend on how the samples arrived, and the memory does not grow with the test.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rths_nodes.core.samples import FLAG_SOFT_START, Array, Target

BLOCK = 32
"""Samples per block: a breach is found at most this many samples after it happened (31 ms at 1024 Hz)."""

PUBLISHED = {"J1": "delay_s", "J2": "error_norm_percent", "J3": "max_error_percent"}
"""Names of the indices in Wang et al. (TADC) -> their names here. They are the same numbers."""

FEI_POWER = 2.0
"""l of the frequency evaluation index: the weight of a frequency is the power of the target there."""


class ControlError:
    """Maximum, maximum relative to the largest target, and RMS norm (Chen & Ricles 2010, Eq. 15) of c - m.

    The relative ones are J3 and J2 of Wang et al. (TADC).
    """

    def __init__(self, n_axes: int) -> None:
        self.maximum = np.zeros(n_axes)
        self._largest = np.zeros(n_axes)
        self._squares = np.zeros(n_axes)
        self._target_squares = np.zeros(n_axes)

    def update(self, target: Array, measured: Array) -> None:
        """A block: both ``(n, n_axes)`` m."""
        error = target - measured
        np.maximum(self.maximum, np.abs(error).max(axis=0), out=self.maximum)
        np.maximum(self._largest, np.abs(target).max(axis=0), out=self._largest)
        self._squares += np.square(error).sum(axis=0)
        self._target_squares += np.square(target).sum(axis=0)

    @property
    def percent(self) -> Array:
        """J3 = 100 max|c - m| / max|c|; nan where the target never moved."""
        return ratio(100.0 * self.maximum, self._largest)

    @property
    def norm_percent(self) -> Array:
        """J2 = 100 sqrt(sum (c - m)^2 / sum c^2), Eq. (15)."""
        return 100.0 * np.sqrt(ratio(self._squares, self._target_squares))


class TrackingIndicator:
    """TI = (A - TA) / 2 of the synchronisation plot (Mercan 2007; Chen & Ricles 2010, Eqs. 8-9b), m^2.

    Positive slope: the actuator lags. For a sine of amplitude X and lag phi it grows by pi X^2 sin(phi) a period.
    """

    def __init__(self, n_axes: int) -> None:
        self.value = np.zeros(n_axes)
        self.history = np.zeros((0, n_axes))
        self._target = np.zeros(n_axes)
        self._measured = np.zeros(n_axes)

    def start(self, target: Array, measured: Array) -> None:
        """Where the motion stands before the first block, ``(n_axes,)`` m; at zero if not called."""
        self._target, self._measured = target.copy(), measured.copy()

    def update(self, target: Array, measured: Array) -> None:
        """A block: both ``(n, n_axes)`` m; ``history`` then holds TI after each of its samples."""
        c = np.vstack((self._target, target))
        m = np.vstack((self._measured, measured))
        area = 0.5 * (c[1:] + c[:-1]) * np.diff(m, axis=0)
        complement = 0.5 * (m[1:] + m[:-1]) * np.diff(c, axis=0)
        self.history = self.value + 0.5 * np.cumsum(area - complement, axis=0)
        self.value = self.history[-1].copy()
        self._target, self._measured = target[-1].copy(), measured[-1].copy()


class Delay:
    """Delay by cross-correlation: the lag, with a parabola through the peak, that maximises the correlation.

    J1 of Wang et al. (TADC), in samples.

    Positive: the measured displacement comes late. Lags up to ``longest`` samples of either sign. Pearson's
    coefficient at each lag over the same samples of the measurement, so that neither drift nor the ends of
    the record pull the peak. A correlation that still rises at the longest lag has no peak: no delay is known.
    """

    def __init__(self, n_axes: int, longest: int) -> None:
        self._longest = longest
        self._targets = np.zeros((0, n_axes))
        self._measured = np.zeros((0, n_axes))
        lags = 2 * longest + 1
        self._count = 0
        self._sum_m = np.zeros(n_axes)
        self._sum_mm = np.zeros(n_axes)
        self._sum_c = np.zeros((n_axes, lags))
        self._sum_cc = np.zeros((n_axes, lags))
        self._sum_mc = np.zeros((n_axes, lags))

    def update(self, target: Array, measured: Array) -> None:
        """A block: both ``(n, n_axes)`` m."""
        self._targets = np.vstack((self._targets, target))
        self._measured = np.vstack((self._measured, measured))
        ready = len(self._targets) - 2 * self._longest
        if ready <= 0:
            return
        # measurement j + longest stands in the middle of targets j .. j + 2 longest
        middle = self._measured[self._longest : self._longest + ready]
        ones = np.ones(ready)
        for axis in range(middle.shape[1]):
            c, m = self._targets[:, axis], middle[:, axis]
            self._sum_mc[axis] += np.correlate(c, m, "valid")
            self._sum_c[axis] += np.correlate(c, ones, "valid")
            self._sum_cc[axis] += np.correlate(c * c, ones, "valid")
        self._sum_m += middle.sum(axis=0)
        self._sum_mm += np.square(middle).sum(axis=0)
        self._count += ready
        self._targets, self._measured = self._targets[ready:], self._measured[ready:]

    def samples(self) -> Array:
        """The delay ``(n_axes,)`` in samples; nan where nothing moved, the test was too short or has no peak."""
        return np.array([self._peak(axis) for axis in range(len(self._sum_m))])

    def _peak(self, axis: int) -> float:
        count = self._count
        if count < 2:
            return math.nan
        sum_c, sum_m = self._sum_c[axis], self._sum_m[axis]
        covariance = self._sum_mc[axis] - sum_c * sum_m / count
        variance = (self._sum_cc[axis] - sum_c**2 / count) * (self._sum_mm[axis] - sum_m**2 / count)
        if not np.all(variance > 0.0):
            return math.nan
        correlation = covariance / np.sqrt(variance)
        best = int(np.argmax(correlation))
        if not 0 < best < len(correlation) - 1:
            return math.nan
        left, top, right = correlation[best - 1 : best + 2]
        curvature = left - 2.0 * top + right
        offset = 0.5 * (left - right) / curvature if curvature < 0.0 else 0.0
        return self._longest - (best + offset)


def delay_samples(target: Array, measured: Array, longest: int, first: int = 0, last: int | None = None) -> Array:
    """J1 over a window: the :class:`Delay` of the samples ``first`` to ``last``, both counted; by default of all.

    ``target`` and ``measured`` ``(n, n_axes)`` m; ``(n_axes,)`` samples, positive where the measurement comes
    late, nan where nothing moved, the window is not longer than twice ``longest``, or the delay is.
    """
    window = slice(first, None if last is None else last + 1)
    delay = Delay(target.shape[1], longest)
    delay.update(target[window], measured[window])
    return delay.samples()


def delay_notes(axes: Mapping[str, Mapping[str, float]], longest: float) -> list[str]:
    """Words for every axis that moved and whose delay is not known; ``longest``: ``monitor.longest_delay`` (s)."""
    return [
        f"{name}: no delay within {1e3 * longest:g} ms (monitor.longest_delay) makes target and measurement most "
        "alike: it is longer, or the test shorter than twice that"
        for name, row in axes.items()
        if math.isnan(row["delay_s"]) and not math.isnan(row["max_error_percent"])
    ]


class FrequencyEvaluation(NamedTuple):
    """Amplitude ratio, delay (s; positive: late) and equivalent frequency (Hz), each ``(n_axes,)``."""

    amplitude: Array
    delay: Array
    frequency: Array


def frequency_evaluation(
    target: Array, measured: Array, dt: float, power: float = FEI_POWER
) -> FrequencyEvaluation:
    """Frequency evaluation index of whole histories ``(n, n_axes)`` (Guo, Chen, Xu & Sanchez 2014).

    FEI = sum_j (Y_j / X_j) |X_j|^l / sum_j |X_j|^l,     f_eq = sum_j f_j |X_j|^l / sum_j |X_j|^l
    A = |FEI|,     d = -arg(FEI) / (2 pi f_eq)

    X and Y are the one-sided spectra of target and measurement, without their means (an offset is neither
    amplitude nor delay). nan where the target did not move. A constant delay over a wide band turns the terms of
    the sum apart, so that A comes out a little below the gain (0.4 % for 10 ms on 0.1 to 5 Hz).
    """
    x, y = (np.fft.rfft(values, axis=0)[1:] for values in (target, measured))
    size = np.abs(x)
    weight = size**power
    turned = np.zeros_like(x)
    np.divide(y * weight, x, out=turned, where=size > 0.0)
    frequencies = np.arange(1, len(x) + 1)[:, None] / (len(target) * dt)
    total = weight.sum(axis=0)
    moved = np.where(total > 0.0, total, math.nan)
    with np.errstate(invalid="ignore"):
        index = turned.sum(axis=0) / moved
    equivalent = (frequencies * weight).sum(axis=0) / moved
    return FrequencyEvaluation(np.abs(index), -np.angle(index) / (2.0 * math.pi * equivalent), equivalent)


class Tracking:
    """How well the axes follow their targets: control error, tracking indicator and delay, side by side."""

    def __init__(self, n_axes: int, longest: int) -> None:
        self.error = ControlError(n_axes)
        self.indicator = TrackingIndicator(n_axes)
        self.delay = Delay(n_axes, longest)

    def update(self, target: Array, measured: Array) -> None:
        """A block: both ``(n, n_axes)`` m."""
        self.error.update(target, measured)
        self.indicator.update(target, measured)
        self.delay.update(target, measured)

    def indices(self, axes: Sequence[str], dt: float) -> dict[str, dict[str, float]]:
        """The indices by axis and name; nan where one is not defined."""
        columns = {
            "max_error_m": self.error.maximum,
            "max_error_percent": self.error.percent,
            "error_norm_percent": self.error.norm_percent,
            "delay_s": self.delay.samples() * dt,
            "tracking_indicator_m2": self.indicator.value,
        }
        return {
            name: {column: float(values[axis]) for column, values in columns.items()}
            for axis, name in enumerate(axes)
        }


class EnergyMonitor:
    """Hybrid simulation energy monitor (Mosqueda et al. 2007; Chen & Ricles 2010, Fig. 11).

    HSEM = (integral r_e d(d_m) - integral r_e d(d_c)) / integral F dx by trapezoids; positive: the actuator lags
    and feeds energy into the structure. The running form adds the strain energy at first yield to the
    denominator, because the input energy is near zero when a test begins. ``scale`` ``(n_axes,)``: energy of the
    structure over that of a specimen to scale; 1 if left out.
    """

    def __init__(self, n_axes: int, elastic_energy: float, scale: Array | None = None) -> None:
        self._elastic = elastic_energy
        self._scale = scale
        self.error = 0.0
        self._input = 0.0
        self._force = np.zeros(n_axes)
        self._difference = np.zeros(n_axes)
        self._path: list[Array] = []
        """Displacements whose work is not counted yet, the last counted one first."""
        self._external: list[Array] = []
        """External force at each of them, as far as it is known."""

    def start(self, target: Array, measured: Array, force: Array) -> None:
        """Where the motion stands before the first block, ``(n_axes,)`` m and N; at zero if not called."""
        self._difference, self._force = measured - target, force.copy()
        self.error = 0.0

    def target(self, target: Target) -> None:
        """Target i brings the external force of step i - 1, or the input energy up to it, from a soft start on."""
        if target.flags & FLAG_SOFT_START:
            self._count()
            self._path, self._external = [target.displacement.copy()], []
        elif not math.isnan(told := target.energies[0]):  # the arrays have a part of the model only
            self._input = float(told)
        else:
            if self._path:
                self._external.append(target.external_force.copy())
            self._path.append(target.displacement.copy())

    @property
    def input(self) -> float:
        """Work of the external forces, J."""
        self._count()
        return self._input

    def _count(self) -> None:
        """The work up to the last displacement whose external force is known."""
        known = len(self._external)
        if known < 2:
            return
        external, path = np.array(self._external), np.array(self._path[:known])
        for work in ((external[1:] + external[:-1]) * np.diff(path, axis=0)).sum(axis=1).tolist():
            self._input += 0.5 * work  # one after another: the same bits, however often it is asked for
        del self._external[: known - 1], self._path[: known - 1]

    def update(self, target: Array, measured: Array, force: Array) -> Array:
        """A block, each ``(n, n_axes)`` m and N; the energy error (J) after each of its samples."""
        self._count()  # of the Targets no more than those of a block wait
        difference = np.vstack((self._difference, measured - target))
        force = np.vstack((self._force, force))
        works = 0.5 * (force[1:] + force[:-1]) * np.diff(difference, axis=0)
        work = (works if self._scale is None else works * self._scale).sum(axis=1)
        history = self.error + np.cumsum(work)
        self.error = float(history[-1])
        self._difference, self._force = difference[-1].copy(), force[-1].copy()
        return history

    @property
    def percent(self) -> float:
        """HSEM at the end of the test; nan without input energy."""
        return 100.0 * self.error / self.input if self.input else math.nan

    def running_percent(self, error: Any) -> Any:
        """The running form for an energy error in J."""
        scale = abs(self.input) + self._elastic
        return 100.0 * error / scale if scale else math.nan * error


def ratio(a: Array, b: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return a / b
