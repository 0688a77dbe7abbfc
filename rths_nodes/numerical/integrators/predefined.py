# SPDX-License-Identifier: Apache-2.0
"""Tests without a structure: the targets are a function of time, a loading protocol, or a history from a file.

The file contains a measured motion in columns, or a history from ``rths iterate``. Such a history includes the
structure's response to the force of the last run.
"""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError, join, show, within
from rths_nodes.core.kernels import Kernel, no_state
from rths_nodes.core.parameters import (
    OfParams,
    TestContext,
    check_one_of,
    component,
    flag,
    number,
    params,
    path,
    sections,
    type_of,
)
from rths_nodes.core.protocols import Structure
from rths_nodes.core.samples import ROUNDING, Array
from rths_nodes.core.tables import LENGTHS, TIMES, Placed, Table, column, column_class, even_step
from rths_nodes.core.text_files import read_head, reason, version_of
from rths_nodes.mechanics import history
from rths_nodes.numerical.integrators.dynamics import Moved, Stepped

ARCHIVE = b"PK"
FEWEST = 32
"""Smallest number of samples of a measured motion."""
SAME_RATE = 1e-4
"""Largest relative difference between a motion's sampling rate and the servo rate that are treated as equal."""
ORDER = 5
"""Order of the splines through a measured motion, for smooth accelerations."""
POLES = 4
"""Order of the Butterworth filter, which is applied forwards and backwards."""
KEPT = 0.4
"""Cut-off frequency for motions sampled faster than the test, as a fraction of the servo rate of the test."""
TIME_TITLES = ("time", "t")
OF_EXPORTS = ".displacement (m)"
"""Suffix of column titles of measured displacements in exported tables."""


def step(nothing: Array, s: tuple[()], measured: Array, history: Array, index: int) -> tuple[object, Moved]:
    """Return the next motion in ``history`` ``(steps + 1, 3, n)``."""
    before, now = history[index], history[index + 1]
    return s, (now[0] + nothing, now[1] + nothing, now[2] + nothing, before[2] + nothing, nothing + 0.0)


def _of_formula(displacement: OfParams, samples: int, dt: float) -> Array:
    motion = registry.build("ground_motion", displacement, 0)
    if not hasattr(motion, "derivatives"):
        names = registry.names("ground_motion")
        known = [name for name in names if hasattr(registry.load("ground_motion", name), "derivatives")]
        raise ConfigError(
            f"displacement.type = {type_of(displacement)!r}: must be a motion with velocity and acceleration, one "
            f"of {', '.join(known)}"
        )
    times: Array = dt * np.arange(samples, dtype=np.float64)
    return np.column_stack([motion.sample(times), *motion.derivatives(times)])


@lru_cache(maxsize=1)  # check and integrator of a test use the same targets
def _measured(params: Predefined.Params, samples: int, dt: float, *now: int) -> Array:
    targets = _Measured(params).targets(1.0 / dt, samples)
    targets.flags.writeable = False
    return targets


def _check_limits(test: TestContext, path: str, targets: Array) -> None:
    """Refuse ``targets`` that exceed the stroke or velocity of an axis.

    A history from a file must also begin at 0, because an offset of a sensor would move the rig. For a formula,
    the rig starts at the first target.
    """
    motion = targets[:, :2] if targets.ndim == 3 else targets[:, :2, None]
    motion = np.broadcast_to(motion, (*motion.shape[:2], len(test.axes)))
    ratio = test.samples_per_step / test.substeps
    displacements, velocities = test.to_axes(motion[:, 0], motion[:, 1])
    for axis, name in enumerate(test.axes):
        x, v = displacements[:, axis], velocities[:, axis] / ratio
        stroke, velocity = test.strokes[axis], test.velocity_limits[axis]
        first = velocity * test.dt
        if path == "history" and not abs(x[0]) <= first:
            raise ConfigError(
                f"{path}: axes.{name} would begin at {x[0]:.4g} m, but must begin within {first:.4g} m of 0, "
                "where the axis is at rest. Begin at 0, or set relative = true for a measured motion"
            )
        row = int(np.abs(x).argmax())
        if not abs(x[row]) <= stroke:
            raise ConfigError(
                f"{path}: axes.{name} would move to {x[row]:.4g} m at {row * test.step:.4g} s, but must not "
                f"exceed axes.{name}.limits.stroke = {stroke:g} m. Reduce the displacement, or correct its unit"
            )
        between = np.diff(x, prepend=x[:1]) / (test.step * ratio)  # a displacement that jumps has no derivative
        v = np.where(np.abs(between) > np.abs(v), between, v)
        row = int(np.abs(v).argmax())
        if not abs(v[row]) <= velocity * (1.0 + ROUNDING):
            raise ConfigError(
                f"{path}: axes.{name} would reach {v[row]:.4g} m/s at {row * test.step:.4g} s, but must not "
                f"exceed axes.{name}.limits.velocity = {velocity:g} m/s. Reduce the motion, or set low_pass if a "
                "measured motion is noisy"
            )


def _samples(test: TestContext) -> int:
    return max(1, math.ceil(test.duration / test.step - ROUNDING)) + 1


class Prescribed(Stepped):
    """Every degree of freedom follows the same displacement history, with its exact derivatives."""

    excitation: Array

    @params
    class Params:
        displacement: OfParams = component("ground_motion", "displacement as a function of time, in m")

        def targets(self, samples: int, dt: float) -> Array:
            """Return the displacement, velocity and acceleration in structure time.

            The shape is ``(samples, 3)`` for a formula, and ``(samples, 3, n_axes)`` for a history from a file.
            """
            return _of_formula(self.displacement, samples, dt)

        def fits(self, test: TestContext) -> None:
            _check_limits(test, "displacement", self.targets(_samples(test), test.step))

    def __init__(
        self, params: Params | Predefined.Params, structure: Structure | None, external_force: Array, dt: float
    ) -> None:
        if structure is not None:
            raise ConfigError(f"structure: must be left out with the integrator {type_of(params)!r}")
        samples, n_dof = external_force.shape
        try:
            targets = params.targets(samples, dt)
        except ConfigError as error:
            raise ConfigError(*(f"integrator.{problem}" for problem in error.problems)) from None
        if targets.ndim == 2:
            targets = np.repeat(targets[:, :, None], n_dof, axis=2)
        if targets.shape[2] != n_dof:
            raise ConfigError(f"integrator.history: the number of axes is {targets.shape[2]}, but must be {n_dof}")
        self._follow(self.kernel_of(params), np.zeros(n_dof), targets, targets[0, 2] + 0.0, False)

    def reset(self) -> None:
        super().reset()
        self.displacement, self.velocity, self.acceleration = self.excitation[0] + 0.0  # turns -0.0 into 0.0
        self.exact_acceleration = self.acceleration

    @classmethod
    def kernel_of(cls, params: object, structure: Structure | None = None) -> Kernel:
        return Kernel(lambda nothing: nothing, no_state, step)


class Predefined(Prescribed):
    """Each axis follows its own history from a file, or all axes follow the same loading protocol."""

    @params
    class Params:
        """Exactly one of ``history`` and ``displacement`` must be set. Other keys are for a measured motion."""

        history: str | None = path(
            "file of a measured motion (columns of text, MATLAB, HDF5 or netCDF), or of a history from rths "
            "iterate (.npz)",
            None,
            columns=True,
        )
        displacement: OfParams | None = component(
            "ground_motion",
            "displacement of all axes as a function of time, in m, e.g. fema_461, aisc_341 or sweep",
            None,
        )
        columns: dict[str, Placed] = sections(
            column_class(LENGTHS),
            "column of each axis, in the order of the axes; default for one axis: the only column other than "
            "the times",
            optional=True,
        )
        time: Placed | None = column(
            TIMES, "column of the times, in uniform steps; default: the column time or t", optional=True
        )
        rate: float | None = number("sampling rate of a file without times", "Hz", None, more_than=0.0)
        resample: bool = flag(
            "true: resample a motion whose rate differs from the servo rate; false: refuse the motion", False
        )
        relative: bool = flag("true: subtract the first displacement of each column", False)
        low_pass: float | None = number(
            "cut-off frequency of a zero-phase filter, which reduces noise in velocity and acceleration",
            "Hz",
            None,
            more_than=0.0,
        )
        scale: float = number("factor on the displacements of a measured motion", default=1.0)

        def __hash__(self) -> int:  # the dict ``columns`` has no hash
            return hash(self.history)

        def _refuse_keys(self, path: str, key: str, source: str = "") -> None:
            names = ("columns", "time", "rate", "resample", "relative", "low_pass")
            keys = [name for name in names if getattr(self, name)] + ["scale"] * (self.scale != 1.0)
            if keys:
                raise ConfigError(
                    f"{join(path, keys[0])}: applies only to a measured motion and must be left out with "
                    f"{join(path, key)}{source}. Remove {', '.join(keys)}"
                )

        def validate(self, path: str) -> None:
            check_one_of(path, self, "history", "displacement")
            if self.displacement is not None:
                self._refuse_keys(path, "displacement")
            if self.time is not None and self.rate is not None:
                raise ConfigError(f"{path}.rate = {self.rate:g} Hz: must be left out if {path}.time is set")

        @property
        def _is_measured(self) -> bool:
            return self.history is not None and not _is_archive(self.history)

        @property
        def proportional_to(self) -> str:
            return "scale" if self._is_measured else ""

        def targets(self, samples: int, dt: float) -> Array:
            if self.displacement is not None:
                return _of_formula(self.displacement, samples, dt)
            assert self.history is not None
            if self._is_measured:
                return _measured(self, samples, dt, *version_of(Path(self.history).expanduser()))
            loaded = history.load(self.history)
            loaded.check_length(samples, f"history = {show(self.history)}")
            return loaded.target[:samples]

        def fits(self, test: TestContext) -> None:
            measured = self._is_measured
            if self.history is not None:
                if test.samples_per_step != 1:
                    raise ConfigError(
                        f"history: holds all samples, so substeps * time_ratio = {test.samples_per_step} must be 1"
                    )
                if not measured:
                    self._refuse_keys("", "history", " of rths iterate")
                    history.load(self.history).check(test.axes, test.servo_rate, f"history = {show(self.history)}")
            targets = self.targets(_samples(test), test.step)
            if measured and (tuple(self.columns) or test.axes[:1]) != test.axes:
                names = ", ".join(self.columns) or "none"
                raise ConfigError(f"columns: the names are {names}, but must be the axes {', '.join(test.axes)}")
            _check_limits(test, "displacement" if self.history is None else "history", targets)

        def contents(self) -> list[str]:
            if not self._is_measured:
                return []
            measured = _Measured(self)
            return [str(measured), *measured.notes]


def _is_archive(file: str) -> bool:
    try:
        return read_head(Path(file).expanduser(), len(ARCHIVE)) == ARCHIVE
    except (OSError, ValueError) as error:
        raise ConfigError(f"history = {show(file)}: cannot be read ({reason(error)})") from None


@lru_cache(maxsize=2)
def _table(path: Path, *now: int) -> Table:
    return Table(path)


class _Measured:
    """Reads a measured motion: displacements ``(n, n_axes)`` m at ``rate`` (Hz).

    Raises ConfigError if the file is unreadable, a column is unknown, times are uneven or samples are too few.
    """

    def __init__(self, params: Predefined.Params) -> None:
        assert params.history is not None
        file = Path(params.history).expanduser()
        table, self._p = _table(file, *version_of(file)), params
        self.notes = table.notes
        time, self.rate = self._times(table, params)
        moved = params.columns or {"": self._only(table, time)}
        columns = [placed.read(table, f"columns.{name}" if name else "history") for name, placed in moved.items()]
        if len(sizes := {len(values) for values in columns}) > 1 or min(sizes) < FEWEST:
            counts = ", ".join(str(len(values)) for values in columns)
            raise ConfigError(
                f"columns: the numbers of samples are {counts}, but must be equal and at least {FEWEST}"
            )
        values = np.column_stack(columns)
        self.displacement = params.scale * (values - values[0] if params.relative else values)
        if not np.isfinite(self.displacement).all():
            raise ConfigError(f"scale = {params.scale:g}: the scaled displacements must be finite")

    @staticmethod
    def _times(table: Table, params: Predefined.Params) -> tuple[str, float]:
        if params.rate is not None:
            return "", params.rate
        placed = params.time
        if placed is None:
            titles = {name: name.partition("(")[0].partition("[")[0].strip().lower() for name in table.names}
            names = [name for name, title in titles.items() if title in TIME_TITLES]
            if len(names) != 1:
                raise ConfigError(
                    f"time: missing. Set time to one of the columns {', '.join(table.names)}, or set rate"
                )
            placed = column_class(TIMES)(column=names[0], unit=table.unit(names[0]) or "s")
        times = placed.read(table, "time")
        if len(times) < FEWEST:
            raise ConfigError(f"time: the number of samples is {len(times)}, but must be >= {FEWEST}")
        with within("time"):
            step, _ = even_step(times)
        return placed.column, 1.0 / step

    @staticmethod
    def _only(table: Table, time: str) -> Placed:
        names = [name for name in table.names if name != time]
        if len(names) > 1:
            names = [name for name in names if name.endswith(OF_EXPORTS)]
        if len(names) != 1:
            raise ConfigError(f"columns: missing. Name the column of each axis, one of {', '.join(table.names)}")
        only: Placed = column_class(LENGTHS)(column=names[0], unit=table.unit(names[0]) or "m")
        return only

    def __str__(self) -> str:
        peaks = ", ".join(f"{1e3 * peak:.4g}" for peak in np.abs(self.displacement).max(axis=0))
        count = len(self.displacement)
        return f"{count} samples at {self.rate:.6g} Hz, duration {(count - 1) / self.rate:.4g} s, peak {peaks} mm"

    def targets(self, servo_rate: float, samples: int) -> Array:
        """Return the displacement, velocity and acceleration at ``servo_rate`` (Hz), ``(samples, 3, n_axes)``."""
        from scipy.interpolate import make_interp_spline

        p, x, rate = self._p, self.displacement, self.rate
        same = abs(rate - servo_rate) <= SAME_RATE * servo_rate
        if not (same or p.resample):
            raise ConfigError(
                f"history: the sampling rate is {rate:.6g} Hz, but must be servo_rate = {servo_rate:g} Hz. Set "
                "resample = true to change the rate"
            )
        rate = servo_rate if same else rate
        length, needed = (len(x) - 1) / rate, (samples - 1) / servo_rate
        if length < needed - ROUNDING:
            raise ConfigError(
                f"history: lasts {length:.6g} s, but the test lasts {needed:.6g} s. Set duration = {length:.6g}"
            )
        cutoffs = [p.low_pass] if p.low_pass is not None else []
        cutoffs += [KEPT * servo_rate] if rate > servo_rate else []
        if cutoffs:
            x = _filtered(x, min(cutoffs), rate)
        spline = make_interp_spline(np.arange(len(x)) / rate, x, k=ORDER)
        times = np.arange(samples) / servo_rate
        motion = [x[:samples] if same else spline(times), spline(times, 1), spline(times, 2)]
        return np.stack(motion, axis=1)


def _filtered(x: Array, cutoff: float, rate: float) -> Array:
    from scipy.signal import butter, sosfiltfilt

    if cutoff >= 0.5 * rate:
        raise ConfigError(
            f"low_pass = {cutoff:g} Hz: must be < {0.5 * rate:g} Hz, half the sampling rate of the history"
        )
    filtered: Array = sosfiltfilt(butter(POLES, cutoff, fs=rate, output="sos"), x, axis=0)
    return filtered
