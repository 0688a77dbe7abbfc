# SPDX-License-Identifier: Apache-2.0
"""Delay and amplitude of a loading system from a recording, and suggested compensator parameters.

Histories are ``(n,)``, in the same unit and at the same instants. The delay of a late measurement is positive.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from rths_nodes.analysis.histories import Evaluation, Indices
from rths_nodes.analysis.units import MS
from rths_nodes.core.errors import ConfigError, unknown
from rths_nodes.core.samples import FLAG_TRIPPED, ROUNDING, Array
from rths_nodes.loop.indices.tracking import delay_samples, frequency_evaluation
from rths_nodes.recording.run import Run, longest_stretch

MODEL_TAPS = 3
"""Number of parameters of the compensator ``discrete_model``."""
PURE = 0.95
"""Fraction of a command's power in one spectral peak above which the command is treated as a sine."""
LINE = 3
"""Half width of the peak of a sine with a Hann window, in spectral lines."""
STARTING = 10
"""Duration of the start-up of a sine, as a multiple of the loading system's delay."""
FEWEST_PERIODS = 3
SPACING_S = 5 / 1024
"""Time between the taps of ``discrete_model``, s: 5 samples at 1024 Hz, as published."""


@dataclass(frozen=True)
class Relation:
    """Delay (s) and amplitude ratio of a displacement relative to another displacement.

    ``delay`` is at the peak of the correlation, NaN above ``monitor.longest_delay``. The ``fei`` fields are the
    frequency evaluation index. The ``sine`` fields describe a fitted sine, None if there is none.
    """

    delay: float
    fei_amplitude: float
    fei_delay: float
    fei_frequency: float
    sine_delay: float | None
    sine_amplitude: float | None

    @property
    def best_delay(self) -> float:
        return self.delay if self.sine_delay is None else self.sine_delay


@dataclass(frozen=True)
class Estimate:
    """Estimate for one axis, over a window from ``start`` to ``end`` (s).

    ``tracking`` relates the measurement to the target, after compensation. ``loading`` relates the measurement to
    the command, without compensation. ``sine`` is the frequency (Hz) of a sinusoidal command, otherwise None. The
    window is the longest complete stretch; the recording lacks ``missing`` samples. ``suggested`` holds parameters
    by compensator and name. ``notes`` holds the reasons for missing results.
    """

    start: float
    end: float
    samples: int
    missing: int
    sine: float | None
    tracking: Relation
    loading: Relation
    suggested: Mapping[str, Mapping[str, object]]
    notes: tuple[str, ...] = field(default=())


def estimate(
    run: Run, axis: str | None = None, start: float | None = None, end: float | None = None
) -> dict[str, Estimate]:
    """Return estimates by axis, for ``axis`` or for all axes, from ``start`` to ``end`` (s).

    Unless ``start`` is given, the soft start and the start-up of a sine are omitted. Raises ConfigError if too few
    samples are usable, or if an axis does not move.
    """
    if axis is not None and axis not in run.axes:
        raise unknown("--axis", "axis", axis, run.axes)
    samples = _window(run, start, end)
    as_given = start is not None
    return {name: _axis(run, samples, n, as_given) for n, name in enumerate(run.axes) if axis in (None, name)}


def _window(run: Run, start: float | None, end: float | None) -> Indices:
    usable = np.isfinite(run.target + run.command + run.displacement).all(axis=1)
    usable &= (run.flags & FLAG_TRIPPED) == 0
    evaluation = Evaluation(run)
    first = evaluation.first_sample * run.scenario.dt if start is None else start
    last = float(run.time[-1]) if end is None and len(run.time) else end or 0.0
    inside = longest_stretch(usable & (run.time >= first) & (run.time <= last))
    least = 2 * evaluation.longest_delay + 3
    if len(inside) < least:
        lost = f"; {run.incomplete}" if run.incomplete else ""
        raise ConfigError(
            f"--begin {first:g} s --end {last:g} s: this interval contains {len(inside)} consecutive samples; "
            f"must contain >= {least} (twice monitor.longest_delay){lost}"
        )
    return inside


def _axis(run: Run, samples: Indices, axis: int, as_given: bool) -> Estimate:
    target, command, measured = (values[samples, axis] for values in (run.target, run.command, run.displacement))
    dt, longest = run.scenario.dt, Evaluation(run).longest_delay
    if not np.ptp(command) > 0.0 or not np.ptp(measured) > 0.0:
        raise ConfigError(f"{run.axes[axis]}: there is no motion between these times")
    sine = sine_frequency(command, dt)
    loading = _relation(command, measured, dt, longest, sine)
    if sine and not as_given:
        begin = math.ceil(max(1.0 / sine, STARTING * abs(loading.best_delay)) / dt)
        if len(samples) - begin >= max(2 * longest + 3, FEWEST_PERIODS / (sine * dt)):
            return _axis(run, samples[begin:], axis, as_given=True)
    suggested, notes = _suggested(loading, command, measured, dt, sine, longest * dt)
    if sine and not as_given:
        notes = (*notes, "the start-up of the sine is included, because the test is too short to omit it")
    tracking = _relation(target, measured, dt, longest, sine)
    start, end = (float(run.time[samples[n]]) for n in (0, -1))
    missing = int(run.missing.sum())
    return Estimate(start, end, len(samples), missing, sine, tracking, loading, suggested, notes)


def _relation(wanted: Array, measured: Array, dt: float, longest: int, sine: float | None) -> Relation:
    x, y = wanted[:, None], measured[:, None]
    evaluation = frequency_evaluation(x, y, dt)
    delay = float(delay_samples(x, y, longest)[0]) * dt
    fit = delay_of_sine(wanted, measured, dt, sine) if sine else None
    indices = (float(values[0]) for values in (evaluation.amplitude, evaluation.delay, evaluation.frequency))
    return Relation(delay, *indices, *(fit or (None, None)))


def sine_frequency(history: Array, dt: float) -> float | None:
    """Return the frequency (Hz) of ``history`` ``(n,)`` if it is a single sine, otherwise None."""
    n = len(history)
    power = np.square(np.abs(np.fft.rfft((history - history.mean()) * np.hanning(n))))
    peak = int(np.argmax(power))
    line = slice(max(0, peak - LINE), peak + LINE + 1)
    if peak < 2 or not power[line].sum() > PURE * power.sum():
        return None
    time = dt * np.arange(n)

    def left_over(frequency: float) -> float:
        amplitude = sine_of(history, dt, frequency)
        return float(np.var(history - (amplitude * np.exp(2j * math.pi * frequency * time)).real))

    around = ((peak - 1) / (n * dt), (peak + 1) / (n * dt))  # frequency resolution of the spectrum
    return float(minimize_scalar(left_over, bounds=around, method="bounded").x)


def _suggested(
    loading: Relation, command: Array, measured: Array, dt: float, sine: float | None, longest: float
) -> tuple[dict[str, dict[str, object]], tuple[str, ...]]:
    suggestions: dict[str, dict[str, object]] = {}
    notes: list[str] = []
    delay = loading.best_delay
    if math.isnan(delay):
        notes.append(f"the delay from command to measurement exceeds {MS * longest:g} ms (monitor.longest_delay)")
    elif delay >= 0.0:
        alpha = first_order_alpha(delay, dt)
        suggestions["polynomial"] = {"delay": delay}
        suggestions["inverse"] = {"alpha": alpha}
        suggestions["adaptive_inverse"] = {"alpha_es": alpha}
    else:
        notes.append("the measurement leads the command, so there is no delay to compensate")
    if sine is not None:
        notes.append("one sine cannot separate the three parameters of discrete_model. Use a sweep or a test")
        return suggestions, tuple(notes)
    try:
        spacing = discrete_model_spacing(dt)
        theta = discrete_model(command, measured, spacing)
        suggestions["discrete_model"] = {"spacing": spacing, "initial": theta.tolist()}
    except ValueError as error:
        notes.append(f"discrete_model: {error}")
    return suggestions, tuple(notes)


def discrete_model_spacing(dt: float) -> int:
    return max(1, round(SPACING_S / dt))


class SineFit(NamedTuple):
    delay: float
    amplitude_ratio: float


def sine_of(history: Array, dt: float, frequency: float) -> complex:
    """Return the complex amplitude a of ``history`` ~ Re(a exp(2 pi j frequency t)) + mean, by least squares.

    Partial periods and an offset cause no error. Raises ValueError if ``history`` has too few samples.
    """
    _refuse_unless(frequency > 0.0 and dt > 0.0, f"frequency = {frequency:g} Hz, dt = {dt:g} s: both must be > 0")
    _refuse_unless(
        history.ndim == 1 and len(history) >= MODEL_TAPS,
        f"history: has the shape {history.shape}; must have one dimension, with at least three samples",
    )
    phase = 2.0 * math.pi * frequency * dt * np.arange(len(history))
    waves = np.column_stack((np.cos(phase), np.sin(phase), np.ones_like(phase)))
    cosine, sine, _ = np.linalg.lstsq(waves, history, rcond=None)[0]
    return complex(cosine, -sine)


def delay_of_sine(target: Array, measured: Array, dt: float, frequency: float) -> SineFit:
    """Return delay (s) and amplitude ratio of ``measured`` relative to a sine of ``frequency`` (Hz) in ``target``.

    The delay is within half a period. Raises ValueError if the histories differ in length, are too short, or do
    not contain the sine.
    """
    _refuse_unless(
        target.shape == measured.shape,
        f"target, measured: shapes {target.shape} and {measured.shape} must be equal",
    )
    wanted, measured_sine = sine_of(target, dt, frequency), sine_of(measured, dt, frequency)
    least = ROUNDING * float(np.abs(target).max())
    _refuse_unless(abs(wanted) > least, f"target: contains no sine of {frequency:g} Hz")
    answer = measured_sine / wanted
    return SineFit(-float(np.angle(answer)) / (2.0 * math.pi * frequency), abs(answer))


def first_order_alpha(delay: float, dt: float) -> float:
    """Return the constant alpha (samples) of the inverse compensation for a ``delay`` (s).

    Reference: Chen & Ricles 2010, Eq. (3). Raises ValueError for a negative delay.
    """
    _refuse_unless(
        delay >= 0.0 and dt > 0.0, f"delay = {delay:g} s, dt = {dt:g} s: delay must be >= 0, and dt must be > 0"
    )
    return 1.0 + delay / dt


def discrete_model(command: Array, measured: Array, spacing: int) -> Array:
    """Return the parameters of the compensator ``discrete_model``, ``(3,)``, by least squares.

    They are theta in command(j) = theta . [measured(j), measured(j - s), measured(j - 2 s)], where s is
    ``spacing`` (Wang et al., TADC, Eq. (3)). The compensator names them ``initial``. Raises ValueError if the
    histories differ in length, are too short, or do not determine the parameters.
    """
    _refuse_unless(
        command.shape == measured.shape,
        f"command, measured: shapes {command.shape} and {measured.shape} must be equal",
    )
    _refuse_unless(spacing >= 1, f"spacing = {spacing}: must be >= 1 sample")
    first = (MODEL_TAPS - 1) * spacing
    rows = len(measured) - first
    _refuse_unless(rows >= MODEL_TAPS, f"measured: has {len(measured)} samples; must have >= {first + MODEL_TAPS}")
    taps = np.column_stack([measured[first - tap * spacing :][:rows] for tap in range(MODEL_TAPS)])
    theta, _, rank, _ = np.linalg.lstsq(taps, command[first:], rcond=None)
    _refuse_unless(int(rank) == MODEL_TAPS, "measured: this motion does not determine the three parameters")
    return np.asarray(theta, dtype=np.float64)


def _refuse_unless(fine: bool, message: str) -> None:
    if not fine:
        raise ValueError(message)
