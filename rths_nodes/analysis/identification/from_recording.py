# SPDX-License-Identifier: Apache-2.0
"""A simulated rig that reproduces a recorded rig: actuator and specimen of each axis, fitted to the recording.

The actuator is the transfer function

    G(s) = g / ((1 + tau s) (1 + 2 zeta s / w + s^2 / w^2))

with gain g, time constant tau, damping ratio zeta and natural frequency w (rad/s). Orders 1 and 2 omit a factor of
the denominator. The input is the command after the declared transport. The parameters minimise the squared error
of the simulated displacement (output error; L. Ljung, System Identification, 2nd ed. 1999, section 4.2). The order
minimises the information criterion of Schwarz (1978). The specimen is a spring with a dashpot, fitted by least
squares to displacement, velocity and force, after the same zero-phase low-pass filter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import FLAG_BRIDGED, FLAG_SLOWED, FLAG_TRIPPED, Array
from rths_nodes.laboratory.actuators.unloaded import transition
from rths_nodes.laboratory.corrections import low_pass
from rths_nodes.loop.scenario.schema import Axis
from rths_nodes.mechanics.butterworth import filtered
from rths_nodes.recording.run import Run

LEAST = 500
CUTOFF = 30.0
"""Cut-off frequency of the low-pass filter, Hz; at most a fifth of the servo rate."""
DAMPING = 0.7


@dataclass(frozen=True)
class AxisModel:
    """Sections ``actuator`` and ``specimen`` of an axis, and their agreement with the recording.

    ``displacement_fit`` and ``force_fit`` are 100 (1 - rms error / rms), %. ``residual`` is the rms error of the
    displacement (m).
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
    """Return the model of each moving axis, from the :func:`usable` samples.

    Raises ConfigError if axes are coupled (except by loads), if the recording is too short, or if an axis does not
    move.
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
    """Return displacement and force at the same instants, from histories ``(n,)`` of the same samples.

    The delay of the load cell is removed, so the last samples are omitted. The displacement is filtered like the
    force; otherwise the lag of the filter would appear as negative damping.
    """
    delay = axis.sensors.force_delay
    return filtered(moved, low_pass(axis, dt))[: len(moved) - delay], force[delay:]


def polynomials(parameters: Array) -> tuple[list[float], list[float]]:
    """Return numerator and denominator of G (see the module), highest power first.

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
    # no delay in C (z I - phi)^-1: the state is one sample ahead, because a command acts within its sample
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
    first = (  # of the orders 1, 2 and 3
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
