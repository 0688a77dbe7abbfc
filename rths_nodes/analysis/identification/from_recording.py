# SPDX-License-Identifier: Apache-2.0
"""Identification from the recording of a test: delay of the loading system, model of the rig, updated model.

**Delay and amplitude** of the loading system, and suggested parameters of compensators (:func:`estimate`).
Histories are ``(n,)``, in the same unit and at the same instants. The delay of a late measurement is positive.

**Simulated rig** that reproduces the recorded rig: actuator and specimen of each axis (:func:`axis_models`). The
actuator is the transfer function

    G(s) = g / ((1 + tau s) (1 + 2 zeta s / w + s^2 / w^2))

with gain g, time constant tau, damping ratio zeta and natural frequency w (rad/s). Orders 1 and 2 omit a factor of
the denominator. The input is the command after the declared transport. The parameters minimise the squared error
of the simulated displacement (output error; L. Ljung, System Identification, 2nd ed. 1999, section 4.2). The order
minimises the information criterion of Schwarz (1978). The specimen is a spring with a dashpot, fitted by least
squares to displacement, velocity and force, after the same zero-phase low-pass filter.

**Updated model** of a specimen, updated sample by sample as in the loop (:func:`follow`). Displacement and force
refer to the same instant, because a lag between them would appear as negative damping.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rths_nodes.analysis.histories import Evaluation, Indices
from rths_nodes.analysis.units import MS
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError, unknown
from rths_nodes.core.samples import FLAG_BRIDGED, FLAG_SLOWED, FLAG_TRIPPED, ROUNDING, Array
from rths_nodes.laboratory.actuators.unloaded import transition
from rths_nodes.laboratory.corrections import low_pass
from rths_nodes.loop.indices.tracking import delay_samples, frequency_evaluation
from rths_nodes.loop.scenario.schema import Axis
from rths_nodes.mechanics import updating
from rths_nodes.mechanics.butterworth import filtered
from rths_nodes.mechanics.updating import Copy, Open
from rths_nodes.recording.run import Run, longest_stretch

MODEL_TAPS = 3
"""Number of parameters of the compensator ``discrete_model``."""
PURE = 0.95
"""Fraction of a command's power in one spectral peak above which the command is treated as a sine."""
LINE = 3
"""Half width of the peak of a sine with a Hann window, in spectral lines."""
STARTING = 10
"""Duration of the start-up at the beginning of a sine, as a multiple of the loading system's delay."""
FEWEST_PERIODS = 3
SPACING_S = 5 / 1024
"""Time between the taps of ``discrete_model``, s: 5 samples at 1024 Hz, as published."""
LEAST = 500
CUTOFF = 30.0
"""Cut-off frequency of the low-pass filter, Hz; at most a fifth of the servo rate."""
DAMPING = 0.7
NOISE = 0.02
"""Default rms noise of the force, relative to the large force (``LARGE``)."""
LARGE = 0.99
"""Quantile of the force's magnitude that defines the large force. Larger forces may be spikes."""
UNCERTAINTY = 0.3
"""Default standard deviation of the initial values of parameters, relative to these values."""
FEWEST = 100


@dataclass(frozen=True)
class Relation:
    """Delay (s) and amplitude ratio of one displacement relative to another.

    ``delay`` is the lag at the peak of the correlation, or NaN above ``monitor.longest_delay``. The ``fei`` fields
    are the frequency evaluation index. The ``sine`` fields belong to a fitted sine, or are None.
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
    window has no missing samples. ``missing`` is the number of missing samples in the recording.
    ``suggested`` holds parameters by compensator and name, ``notes`` the reasons for missing results.
    """

    start: float
    end: float
    samples: int
    missing: int
    sine: float | None
    tracking: Relation
    loading: Relation
    suggested: Mapping[str, Mapping[str, object]]
    notes: tuple[str, ...]


def estimate(
    run: Run, axis: str | None = None, start: float | None = None, end: float | None = None
) -> dict[str, Estimate]:
    """Return the estimate of each axis, or only of ``axis``, from ``start`` to ``end`` (s).

    The soft start and the start-up of a sine are omitted unless ``start`` is given. Raises ConfigError if
    there are too few usable samples, or if an axis is at rest.
    """
    if axis is not None and axis not in run.axes:
        raise unknown("--axis", "axis", axis, run.axes)
    samples = _window(run, start, end)
    names = run.axes if axis is None else (axis,)
    return {name: _axis(run, samples, run.axes.index(name), as_given=start is not None) for name in names}


def _window(run: Run, start: float | None, end: float | None) -> Indices:
    complete = np.isfinite(run.target + run.command + run.displacement).all(axis=1)
    complete &= (run.flags & FLAG_TRIPPED) == 0
    evaluation = Evaluation(run)
    first = evaluation.first_sample * run.scenario.dt if start is None else start
    last = float(run.time[-1]) if end is None and len(run.time) else end or 0.0
    inside = longest_stretch(complete & (run.time >= first) & (run.time <= last))
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
        raise ConfigError(f"{run.axes[axis]}: there is no motion in the selected interval")
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
    delay = float(delay_samples(x, y, longest)[0]) * dt
    fit = delay_of_sine(wanted, measured, dt, sine) if sine else None
    indices = (float(values[0]) for values in frequency_evaluation(x, y, dt))
    return Relation(delay, *indices, *(fit or (None, None)))


def sine_frequency(history: Array, dt: float) -> float | None:
    """Return the frequency (Hz) of ``history`` ``(n,)`` if it is a single sine, otherwise None."""
    n = len(history)
    power = np.square(np.abs(np.fft.rfft((history - history.mean()) * np.hanning(n))))
    peak = int(np.argmax(power))
    line = slice(max(0, peak - LINE), peak + LINE + 1)
    if peak < 2 or not power[line].sum() > PURE * power.sum():
        return None
    from scipy.optimize import minimize_scalar

    time = dt * np.arange(n)

    def left_over(frequency: float) -> float:
        amplitude = sine_of(history, dt, frequency)
        return float(np.var(history - (amplitude * np.exp(2j * math.pi * frequency * time)).real))

    around = ((peak - 1) / (n * dt), (peak + 1) / (n * dt))  # within one spectral line
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
        notes.append("one sine does not determine the parameters of discrete_model. Use a sweep or an earthquake")
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


def delay_of_sine(target: Array, measured: Array, dt: float, frequency: float) -> tuple[float, float]:
    """Return the delay (s) and amplitude ratio of ``measured`` to a sine of ``frequency`` (Hz) in ``target``.

    The delay is at most half a period, positive or negative. Raises ValueError if the histories differ in length,
    are too short, or do not contain the sine.
    """
    _refuse_unless(
        target.shape == measured.shape,
        f"target, measured: shapes {target.shape} and {measured.shape} must be equal",
    )
    wanted, measured_sine = sine_of(target, dt, frequency), sine_of(measured, dt, frequency)
    least = ROUNDING * float(np.abs(target).max())
    _refuse_unless(abs(wanted) > least, f"target: contains no sine of {frequency:g} Hz")
    answer = measured_sine / wanted
    return -float(np.angle(answer)) / (2.0 * math.pi * frequency), abs(answer)


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

    The parameters are theta in command(j) = theta . [measured(j), measured(j - s), measured(j - 2 s)], where s is
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


@dataclass(frozen=True)
class AxisModel:
    """Sections ``actuator`` and ``specimen`` of an axis in a scenario, and their agreement with the recording.

    ``displacement_fit`` and ``force_fit`` are 100 (1 - rms error / recorded rms), %. ``residual`` is the rms error
    of the displacement (m).
    """

    actuator: Data
    specimen: Data
    displacement_fit: float
    force_fit: float
    residual: float


def usable(run: Run) -> int:
    """Return the number of samples before the first incomplete, bridged, slowed or safe-stop sample."""
    broken = ~np.isfinite(run.command + run.displacement + run.force).all(axis=1)
    bad = np.flatnonzero(broken | ((run.flags & (FLAG_BRIDGED | FLAG_SLOWED | FLAG_TRIPPED)) != 0))
    return int(bad[0]) if len(bad) else len(run.flags)


def axis_models(run: Run) -> dict[str, AxisModel]:
    """Return the model of each displacement-controlled axis, from the :func:`usable` samples.

    Raises ConfigError if the rig couples displacement axes, if the recording is too short, or if an axis
    does not move.
    """
    if run.scenario.rig is not None and (run.loads is None or len(run.axes) > 1):
        raise ConfigError("rig: a rig with coupled axes cannot be identified from a recording")
    samples = usable(run)
    if samples < LEAST:
        raise ConfigError(f"{samples} samples before the first bridged or lost sample: must be >= {LEAST}")
    q, dt = int(run.scenario.transport_samples), run.scenario.dt
    models = {}
    for column, axis in enumerate(run.axes):
        command, moved, force = (values[:samples, column] for values in (run.command, run.displacement, run.force))
        if not np.ptp(command) > 0.0 or not np.ptp(moved) > 0.0:
            raise ConfigError(f"{axis}: there is no motion in this recording")
        late = np.concatenate([np.zeros(q), command[: samples - q]])
        parameters, residual = _actuator(late, moved, dt)
        stiffness, damping, force_fit = _specimen(*paired(moved, force, run.scenario.axes[axis], dt), dt)
        numerator, denominator = polynomials(parameters)
        models[axis] = AxisModel(
            {"type": "transfer_function", "numerator": numerator, "denominator": denominator},
            {"type": "kelvin_voigt", "stiffness": stiffness, "damping": damping},
            100.0 * (1.0 - residual / _rms(moved)),
            force_fit,
            residual,
        )
    return models


def paired(moved: Array, force: Array, axis: Axis, dt: float) -> tuple[Array, Array]:
    """Return displacement and force at the same instants, from histories ``(n,)`` recorded in the same samples.

    The delay of the load cell is removed, so the last samples are omitted. The displacement is filtered like the
    force, because the lag of the filter would otherwise appear as negative damping.
    """
    delay = axis.sensors.force_delay
    return filtered(moved, low_pass(axis, dt))[: len(moved) - delay], force[delay:]


def polynomials(parameters: Array) -> tuple[list[float], list[float]]:
    """Return the numerator and denominator of G (see the module), highest power first.

    The ``parameters`` are g, log tau (orders 1 and 3), log w and log zeta (orders 2 and 3).
    """
    gain, logarithms = float(parameters[0]), np.exp(parameters[1:])
    denominator = np.ones(1)
    if len(logarithms) in (1, 3):
        denominator = np.array([logarithms[0], 1.0])
    if len(logarithms) >= 2:
        omega, zeta = logarithms[-2:]
        denominator = np.convolve(denominator, [1.0 / omega**2, 2.0 * zeta / omega, 1.0])
    return [gain], [float(value) for value in denominator]


def simulated(parameters: Array, command: Array, dt: float) -> Array:
    """Return the actuator's displacement, ``(n,)`` m. Each ``command`` (m) is held over the preceding sample."""
    from scipy.signal import lfilter

    (gain,), denominator = polynomials(parameters)
    top = denominator[0]
    n = len(denominator) - 1
    a = np.eye(n, k=-1)
    a[0] = -np.array(denominator[1:]) / top
    b = np.zeros(n)
    b[0] = 1.0
    rows = transition(a, b, dt, "staircase")
    phi, now = rows[:, :n], rows[:, -1]
    poles = np.poly(phi)
    # C (z I - phi)^-1 without delay: the state is one sample ahead, because a command acts within its sample
    output = np.zeros((1, n))
    output[0, -1] = gain / top
    zeros = np.poly(phi - np.outer(now, output)) - poles
    moved: Array = lfilter(zeros[1:], poles, command)
    return moved


def _actuator(command: Array, moved: Array, dt: float) -> tuple[Array, float]:
    from scipy.optimize import least_squares

    # the delay of slow motions, from a fit of m = c - delay c' for displacement m and command c
    slope = np.gradient(command, dt)
    delay = max(float((slope @ (command - moved)) / max(float(slope @ slope), 1e-300)), dt)
    scale = _rms(moved)
    first = (  # initial parameters of the models of order 1, 2 and 3
        [1.0, math.log(delay)],
        [1.0, math.log(2.0 * DAMPING / delay), math.log(DAMPING)],
        [1.0, math.log(0.5 * delay), math.log(4.0 * DAMPING / delay), math.log(DAMPING)],
    )
    best: tuple[float, Array, float] = (math.inf, np.zeros(0), math.inf)
    for begin in first:

        def errors(parameters: Array) -> Array:
            with np.errstate(all="ignore"):
                residual = (simulated(parameters, command, dt) - moved) / scale
            return np.asarray(np.nan_to_num(residual, nan=1e3, posinf=1e3, neginf=-1e3))

        limits = [-np.inf, *(math.log(1e-5) for _ in begin[1:])], [np.inf, *(math.log(1e5) for _ in begin[1:])]
        fitted = least_squares(errors, begin, bounds=limits, x_scale="jac")
        error = float(np.sqrt(2.0 * fitted.cost / len(moved)))
        criterion = len(moved) * math.log(max(error, 1e-12) ** 2) + len(begin) * math.log(len(moved))
        if criterion < best[0]:
            best = criterion, fitted.x, error * scale
    return best[1], best[2]


def _specimen(moved: Array, force: Array, dt: float) -> tuple[float, float, float]:
    from scipy.optimize import nnls
    from scipy.signal import butter, sosfiltfilt

    sections = butter(4, min(CUTOFF, 0.2 / dt), fs=1.0 / dt, output="sos")
    x, f = sosfiltfilt(sections, moved), sosfiltfilt(sections, force)
    velocity = np.gradient(x, dt)
    scales = np.array([_rms(x), _rms(velocity)])
    if not _rms(f) > 0.0:
        return 0.0, 0.0, 100.0
    columns = np.column_stack((x, velocity)) / scales
    shares, error = nnls(columns, f)
    stiffness, damping = (float(value) for value in shares / scales)
    return stiffness, damping, 100.0 * (1.0 - error / math.sqrt(len(f)) / _rms(f))


def _rms(values: Array) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


@dataclass(frozen=True, eq=False)
class Followed:
    """History of the model ``copy``, updated by ``law``: ``m`` parameters at ``n`` samples, in SI units.

    ``estimate``, ``deviation`` (one standard deviation) and ``released`` (values for use in a loop) are ``(n,
    m)``. ``force`` is the measured force, ``expected`` the predicted force, and ``spread`` the standard deviation
    of their difference, ``(n,)`` N. ``mean_square`` of the innovation and ``use`` of each sample (``WORDS`` of
    ``mechanics/updating.py``) are ``(n,)``.
    """

    axis: str
    copy: Copy
    law: str
    uncertainty: float
    noise: float
    time: Array
    estimate: Array
    deviation: Array
    released: Array
    force: Array
    expected: Array
    spread: Array
    mean_square: Array
    use: NDArray[np.int8]

    @property
    def left(self) -> Array:
        """Smallest ratio of current to initial deviation in the history of each parameter, ``(m,)``."""
        return np.asarray((self.deviation / (self.uncertainty * self.copy.initial)).min(axis=0))

    @property
    def unexplained(self) -> NDArray[np.bool_]:
        return self.mean_square > updating.UNEXPLAINED

    @property
    def identified(self) -> tuple[bool, ...]:
        """True for each identified parameter, ``(m,)``; all false if the model does not explain the force."""
        explained = not self.unexplained.any()
        return tuple(bool(explained and left <= updating.IDENTIFIED) for left in self.left)

    @property
    def at_bound(self) -> tuple[str, ...]:
        copy = self.copy
        stood = (self.estimate <= copy.initial * copy.lower) | (self.estimate >= copy.initial * copy.upper)
        return tuple(name for name, ever in zip(copy.names, stood.T, strict=True) if ever.any())

    @property
    def counts(self) -> dict[str, int]:
        return {
            text: int((self.use == use).sum()) for use, text in updating.WORDS.items() if (self.use == use).any()
        }


def copy_for(run: Run, axis: str, model: str, stated: Data, opened: Sequence[Open] = ()) -> Copy:
    """Return an updatable model of type ``model`` with the parameters of the scenario.

    ``stated`` overrides values; ``opened`` lists parameters to estimate. Raises ConfigError for an invalid value.
    """
    data = run.scenario.data()
    sections = [data["structure"].get("restoring_force") if data.get("structure") else None]
    sections += [data["axes"].get(axis, {}).get("specimen")]
    values: Data = {}
    for section in sections:
        if isinstance(section, dict) and section.get("type") == model:
            values = {name: value for name, value in section.items() if name != "type" and value is not None}
    return Copy(model, values | stated, opened)


def follow(
    run: Run,
    axis: str,
    copy: Copy,
    law: str = "ukf",
    noise: float | None = None,
    uncertainty: float = UNCERTAINTY,
    start: float | None = None,
    end: float | None = None,
) -> Followed:
    """Return the history of ``copy``, updated with the samples from ``start`` to ``end`` (s).

    ``noise`` is the rms noise of the force, N. Raises ConfigError if an argument is invalid, or if the motion or
    the force is zero or missing.
    """
    if axis not in run.axes:
        raise unknown("--axis", "axis", axis, run.axes)
    if law not in updating.LAWS:
        raise unknown("--law", "law", law, updating.LAWS)
    if law == "rls" and not copy.linear:
        raise ConfigError(
            f"--law rls: the force of {copy.model} must be known to be linear in {', '.join(copy.names)}. Use "
            "--law ukf"
        )
    for name, value in (("--noise", noise), ("--uncertainty", uncertainty)):
        if value is not None and not 0.0 < value < np.inf:
            raise ConfigError(f"{name} = {value:g}: must be > 0")
    time, x, force, flagged, period = _samples(run, axis, start, end)
    good = np.isfinite(x) & np.isfinite(force) & ~flagged
    large = float(np.quantile(np.abs(force[good]), LARGE)) if good.any() else 0.0
    if not (large > 0.0 and np.ptp(x[good]) > 0.0):
        raise ConfigError(f"{axis}: there is no motion or no force in the selected interval")
    noise = NOISE * large if noise is None else noise
    prior = np.full(len(copy.names), uncertainty)
    settings = updating.Settings(period, noise, prior, run.scenario.axes[axis].limits.velocity)
    rows = _followed(copy, law, settings, (x, np.gradient(x, period), force, flagged), int(time[0] / period))
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    estimate, deviation, released = (copy.initial * column for column in columns[:3])
    expected, spread, mean_square, use = columns[3:]
    return Followed(
        axis,
        copy,
        law,
        uncertainty,
        noise,
        time,
        estimate,
        deviation,
        released,
        force,
        expected,
        spread,
        mean_square,
        use.astype(np.int8),
    )


def _samples(
    run: Run, axis: str, start: float | None, end: float | None
) -> tuple[Array, Array, Array, NDArray[np.bool_], float]:
    column, dt, section = run.axes.index(axis), run.scenario.dt, run.scenario.axes[axis]
    moved, bad = run.displacement[:, column], (run.flags & updating.UNUSABLE) != 0
    broken = ~np.isfinite(moved)
    if broken.all():
        raise ConfigError(f"{axis}: there is no displacement in this recording")
    if low_pass(section, dt) is not None and broken.any():
        last = np.maximum.accumulate(np.where(broken, np.argmin(broken), np.arange(len(moved))))
        moved, bad = moved[last], bad | broken  # non-finite values would remain in the filter
    x, force = paired(moved, run.force[:, column], section, dt)
    delay = len(moved) - len(x)
    bad = bad[: len(x)] | bad[delay:]
    every = max(1, round(updating.PERIOD / dt))
    taken = np.arange(0, len(x), every)
    time = run.time[taken]
    inside = (time >= (start or 0.0)) & (time <= (np.inf if end is None else end))
    if inside.sum() < FEWEST:
        raise ConfigError(
            f"{axis}: has {inside.sum()} samples (one per {every * dt:.3g} s) in the selected interval; must "
            f"have >= {FEWEST}"
        )
    taken = taken[inside]
    return time[inside], x[taken], force[taken], bad[taken], every * dt


def _followed(
    copy: Copy,
    law: str,
    settings: updating.Settings,
    columns: tuple[Array, Array, Array, NDArray[np.bool_]],
    before: int,
) -> list[tuple[Array, Array, Array, float, float, float, int]]:
    estimator, x = updating.LAWS[law](copy, settings), columns[0]
    state = updating.at_rest(estimator, copy, float(x[np.isfinite(x)][0]))._replace(lost=before)
    m, rows = len(copy.names), []
    for row in zip(*(column.tolist() for column in columns), strict=True):
        state, result = updating.step(estimator, copy, settings, state, updating.Sample(*row))
        belief = state.belief
        parameters = belief.mean[:m], belief.deviation[:m], state.released
        rows.append((*parameters, result.expected, result.spread, state.mean_square, result.use))
    return rows
