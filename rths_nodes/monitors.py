"""Indices of a test and limits on them. All definitions live here, as streaming objects.

Samples are gathered into blocks of a fixed size, counted from sample 0, and worked off with numpy: the result
does not depend on how the samples arrived, and the memory does not grow with the test.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rths_nodes.components import FLAG_SOFT_START, Array, Command, Measurement, Target
from rths_nodes.params import number, params

BLOCK = 32
"""Samples per block: a breach is found at most this many samples after it happened (31 ms at 1024 Hz)."""

PUBLISHED = {"J1": "delay_s", "J2": "error_norm_percent", "J3": "max_error_percent"}
"""Names of the indices in Wang et al. (TADC) -> their names here. They are the same numbers."""

FEI_POWER = 2.0
"""l of the frequency evaluation index: the weight of a frequency is the power of the target there."""


@params
class MonitorParams:
    """Limits on the indices of the whole rig; each is off when left out."""

    longest_delay: float = number(
        "largest delay, of either sign, that is searched for", "s", 0.1, more_than=0.0, at_most=1.0
    )
    energy_error_percent: float | None = number(
        "largest magnitude of the running energy monitor; not limited if left out", "%", None, more_than=0.0
    )
    reference_energy: float | None = number(
        "added to the input energy, which is near zero at first, by the running energy monitor; if left out, the "
        "strain energy of the structure at first yield",
        "J",
        None,
        at_least=0.0,
    )
    tracking_indicator_rate: float | None = number(
        "largest magnitude of the slope of the tracking indicator over a block; not limited if left out",
        "m^2/s",
        None,
        more_than=0.0,
    )


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
        return _ratio(100.0 * self.maximum, self._largest)

    @property
    def norm_percent(self) -> Array:
        """J2 = 100 sqrt(sum (c - m)^2 / sum c^2), Eq. (15)."""
        return 100.0 * np.sqrt(_ratio(self._squares, self._target_squares))


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
    the record pull the peak.
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
        """The delay ``(n_axes,)`` in samples; nan where nothing moved or the test was too short."""
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
        offset = 0.0
        if 0 < best < len(correlation) - 1:
            left, top, right = correlation[best - 1 : best + 2]
            curvature = left - 2.0 * top + right
            offset = 0.5 * (left - right) / curvature if curvature < 0.0 else 0.0
        return self._longest - (best + offset)


def delay_samples(target: Array, measured: Array, longest: int, first: int = 0, last: int | None = None) -> Array:
    """J1 over a window: the :class:`Delay` of the samples ``first`` to ``last``, both counted; by default of all.

    ``target`` and ``measured`` ``(n, n_axes)`` m; ``(n_axes,)`` samples, positive where the measurement comes
    late, nan where nothing moved or the window is not longer than twice ``longest``.
    """
    window = slice(first, None if last is None else last + 1)
    delay = Delay(target.shape[1], longest)
    delay.update(target[window], measured[window])
    return delay.samples()


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
    denominator, because the input energy is near zero when a test begins.
    """

    def __init__(self, n_axes: int, elastic_energy: float) -> None:
        self._elastic = elastic_energy
        self.error = 0.0
        self.input = 0.0
        self._force = np.zeros(n_axes)
        self._difference = np.zeros(n_axes)
        self._displacement: Array | None = None
        self._external: Array | None = None
        self._move: Array | None = None

    def start(self, target: Array, measured: Array, force: Array) -> None:
        """Where the motion stands before the first block, ``(n_axes,)`` m and N; at zero if not called."""
        self._difference, self._force = measured - target, force.copy()
        self.error = 0.0

    def target(self, target: Target) -> None:
        """Target i brings the external force of step i - 1. The input energy begins after a soft start."""
        if target.flags & FLAG_SOFT_START:
            self._displacement, self._external, self._move = target.displacement.copy(), None, None
            return
        before, now = self._displacement, target.displacement.copy()
        if before is not None:
            external = target.external_force
            if self._external is not None and self._move is not None:
                self.input += 0.5 * float((self._external + external) @ self._move)
            self._external = external.copy()
            self._move = now - before
        self._displacement = now

    def update(self, target: Array, measured: Array, force: Array) -> Array:
        """A block, each ``(n, n_axes)`` m and N; the energy error (J) after each of its samples."""
        difference = np.vstack((self._difference, measured - target))
        force = np.vstack((self._force, force))
        work = (0.5 * (force[1:] + force[:-1]) * np.diff(difference, axis=0)).sum(axis=1)
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


class Monitor:
    """All indices of a test, and the limits on them.

    Feed it every Target, Command and Measurement in order of their numbers (Measurement 0 first); ``metrics``
    at the end. ``breach`` is the first sample and reason found by a limit. What is flagged as soft start is
    followed but does not count: the indices are those of the test alone.
    """

    def __init__(
        self, params: MonitorParams, axes: Sequence[str], n_dof: int, dt: float, elastic_energy: float
    ) -> None:
        self._p = params
        self._names = tuple(axes)
        self._dt = dt
        n_axes = len(self._names)
        self.longest = max(1, math.ceil(params.longest_delay / dt))
        self.tracking = Tracking(n_axes, self.longest)
        self.energy = EnergyMonitor(n_axes, elastic_energy)
        self.breach: tuple[int, str] | None = None
        self.sample = -1
        self._target, self._measured, self._force = (np.zeros((BLOCK, n_axes)) for _ in range(3))
        self._fill = 0
        self._row = 0
        self._preparing = False
        self._highest = np.full(n_dof, -math.inf)
        self._lowest = np.full(n_dof, math.inf)
        self._last = np.zeros(n_dof)

    @property
    def completes_block(self) -> bool:
        """True when the next sample completes a block, which takes much longer than to gather one."""
        return self._fill == BLOCK - 1

    def target(self, target: Target) -> None:
        """The next Target."""
        self.energy.target(target)
        if target.flags & FLAG_SOFT_START:
            self._preparing |= target.step == 0  # Measurement 0 has no command with flags
            return
        self._last[:] = target.displacement
        np.maximum(self._highest, self._last, out=self._highest)
        np.minimum(self._lowest, self._last, out=self._lowest)

    def step(self, command: Command | None, measured: Measurement) -> None:
        """Measurement k with Command k; without a command (sample 0, safe stop) the applied one is the target."""
        if command is not None:
            self._prepare(bool(command.flags & FLAG_SOFT_START))
        row = self._row = self._fill
        self._target[row] = measured.command if command is None else command.target
        self._measured[row] = measured.displacement
        self._force[row] = measured.force
        self.sample = measured.sample
        if self._preparing:
            return
        self._fill = row + 1
        if self._fill == BLOCK:
            self.work_off()

    def _prepare(self, preparing: bool) -> None:
        """Where a soft start begins, what was gathered before is worked off; where it ends, all begins anew."""
        if preparing == self._preparing:
            return
        if preparing:
            self.work_off()
        else:
            row = self._row
            self.tracking = Tracking(len(self._names), self.longest)
            self.tracking.indicator.start(self._target[row], self._measured[row])
            self.energy.start(self._target[row], self._measured[row], self._force[row])
        self._preparing = preparing

    def skip(self, sample: int) -> None:
        """A sample of the safe stop: it does not count in the indices of the test."""
        self.work_off()
        self.sample = sample

    def work_off(self) -> None:
        """Work off what has been gathered: at the end of a test, or of a block."""
        n = self._fill
        if not n:
            return
        self._fill = 0
        target, measured, force = self._target[:n], self._measured[:n], self._force[:n]
        before = self.tracking.indicator.value
        self.tracking.update(target, measured)
        energy = self.energy.update(target, measured, force)
        if self.breach is None:
            self._check(self.sample - n + 1, before, energy)

    def _check(self, first: int, before: Array, energy: Array) -> None:
        limit = self._p.energy_error_percent
        if limit is not None:
            running = self.energy.running_percent(energy)
            over = np.flatnonzero(~(np.abs(running) <= limit) & ~np.isnan(running))
            if len(over):
                value = running[over[0]]
                self._breach(first + int(over[0]), "energy_error_percent", value, limit, "%")
        limit = self._p.tracking_indicator_rate
        if limit is not None:
            rate = (self.tracking.indicator.value - before) / (len(energy) * self._dt)
            worst = int(np.argmax(np.abs(rate)))
            if not abs(rate[worst]) <= limit:
                self._breach(self.sample, "tracking_indicator_rate", float(rate[worst]), limit, "m^2/s")
        if not np.all(np.isfinite(self.tracking.indicator.value)):
            self._breach(self.sample, "tracking_indicator", math.nan, math.inf, "m^2")

    def _breach(self, sample: int, name: str, value: float, limit: float, unit: str) -> None:
        if self.breach is None:
            self.breach = (sample, f"monitor.{name}: {value:.6g} {unit}: must be within +- {limit:g} {unit}")

    def status(self) -> dict[str, Any]:
        """Running indices, as in SyncStatus.msg."""
        last = self._row
        return {
            "sample": max(self.sample, 0),
            "control_error": (self._target[last] - self._measured[last]).tolist(),
            "max_control_error": self.tracking.error.maximum.tolist(),
            "tracking_indicator": self.tracking.indicator.value.tolist(),
            "energy_error_percent": self.energy.running_percent(self.energy.error),
        }

    def metrics(self) -> dict[str, Any]:
        """The indices by name, nested; nan where one is not defined."""
        self.work_off()
        largest = int(np.argmax(np.maximum(np.abs(self._highest), np.abs(self._lowest))))
        return {
            "axes": self.tracking.indices(self._names, self._dt),
            "hsem_percent": self.energy.percent,
            "max_displacement_m": float(self._highest[largest]),
            "min_displacement_m": float(self._lowest[largest]),
            "end_displacement_m": float(self._last[largest]),
        }


def _ratio(a: Array, b: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return a / b
