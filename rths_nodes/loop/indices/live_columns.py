# SPDX-License-Identifier: Apache-2.0
"""Curves of a test for displays. A column covers 10 ms and has the first, lowest, highest and last value."""

from __future__ import annotations

import math
import threading
from array import array
from collections import deque
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from rths_nodes.core.limits import Limits
from rths_nodes.core.samples import MODE_FORCE, Array, Measurement

COLUMN_S = 0.01
"""Duration of a column, in s of the servo clock."""
OF_AXIS = ("target", "command", "measured", "force", "error", "tracking_indicator")
FIRST, LOWEST, HIGHEST, LAST = range(4)
PER_CURVE = 4


def units(of_force: bool) -> tuple[str, ...]:
    """Return the units of the curves :data:`OF_AXIS`. Targets, commands and errors are in N if ``of_force``."""
    aim = "N" if of_force else "m"
    return aim, aim, "m", "N", aim, "" if of_force else "m^2"


def curve_names(axes: Sequence[str]) -> list[str]:
    return [f"{axis}/{name}" for name in OF_AXIS for axis in axes]


def curve_units(axes: Mapping[str, Limits]) -> list[str]:
    return [units(limits.of_force)[index] for index in range(len(OF_AXIS)) for limits in axes.values()]


def curve_limits(axes: Mapping[str, Limits]) -> Iterator[tuple[str, str, float]]:
    """Yield (curve, limit, bound) for each limit on the values of a curve. Rate limits and levels are omitted."""
    for name, limits in axes.items():
        yield f"{name}/measured", "stroke", limits.stroke
        yield f"{name}/force", "force", limits.force
        for kind in ("tracking_error", "force_error"):  # an axis has only one of these limits
            if (bound := getattr(limits, kind)) is not None:
                yield f"{name}/error", kind, bound


def per_column(servo_rate: float) -> int:
    return max(1, round(COLUMN_S * servo_rate))


class LiveColumns:
    """Collects the samples of a test, from sample 0 on, in columns of curves. Missing samples are NaN."""

    def __init__(self, n_axes: int, servo_rate: float) -> None:
        self.samples_per_column = per_column(servo_rate)
        self._width = n_axes * len(OF_AXIS)
        self._rows = array("d")
        self._append = self._rows.fromlist
        self._nothing = [np.nan] * n_axes
        self._next = 0
        self._first = 0

    def add(
        self,
        sample: int,
        target: Sequence[float],
        command: Sequence[float],
        measured: Sequence[float],
        force: Sequence[float],
        aimed: Sequence[float],
        indicator: Sequence[float],
    ) -> None:
        """Add a sample. ``aimed`` is the measured force or displacement that each axis controls, or NaN."""
        while self._next < sample:
            self._append(self._nothing * len(OF_AXIS))
            self._next += 1
        errors = [wanted - now for wanted, now in zip(target, aimed, strict=True)]
        self._append([*target, *command, *measured, *force, *errors, *indicator])
        self._next = sample + 1

    def newest(self) -> list[list[float]]:
        row, n = self._rows[-self._width :].tolist() or self._nothing * len(OF_AXIS), len(self._nothing)
        return [row[start : start + n] for start in range(0, self._width, n)]

    def take(self, rest: bool = False) -> tuple[int, Array]:
        """Return the first new sample and new columns ``(columns, curves, 4)``. ``rest`` adds a partial column."""
        per, first = self.samples_per_column, self._first
        rows = np.array(self._rows).reshape(-1, self._width)
        complete = len(rows) if rest else len(rows) // per * per
        columns = columns_of(rows[:complete], per)
        self._rows = array("d", rows[complete:].ravel().tolist())
        self._append = self._rows.fromlist
        self._first = first + len(columns) * per
        return first, columns


def columns_of(rows: Array, per: int) -> Array:
    """Return columns ``(columns, curves, 4)`` of ``per`` rows each from ``rows`` ``(n, curves)``.

    Each column has the first, lowest, highest and last value other than NaN. The last column may cover fewer rows.
    """
    padded = np.concatenate((rows, np.full((-len(rows) % per, rows.shape[1]), np.nan)))
    samples = padded.reshape(-1, per, rows.shape[1])
    curves = np.empty((len(samples), rows.shape[1], PER_CURVE))
    if len(samples):
        finite = np.isfinite(samples)
        first, last = finite.argmax(axis=1), per - 1 - finite[:, ::-1].argmax(axis=1)
        curves[:, :, LOWEST] = np.fmin.reduce(samples, axis=1)
        curves[:, :, HIGHEST] = np.fmax.reduce(samples, axis=1)
        curves[:, :, FIRST] = np.take_along_axis(samples, first[:, None], axis=1)[:, 0]
        curves[:, :, LAST] = np.take_along_axis(samples, last[:, None], axis=1)[:, 0]
    return curves


LONGEST_S, MOST = 60.0, 20
"""``LONGEST_S``: longest duration of a stored motion, s. ``MOST``: maximum number of stored motions."""
Drawn = tuple[int, int, int, Array]
"""Curves of a motion: its number (from 1), samples per column, first sample, columns ``(columns, curves, 4)``."""


class MotionCurves:
    """Collects curves of successive motions. Thread-safe. ``loaded`` marks the force axes with True."""

    def __init__(self, loaded: Sequence[bool], servo_rate: float) -> None:
        self._loaded, self._rate = list(loaded), servo_rate
        self._lock = threading.Lock()
        self._motions: deque[tuple[int, LiveColumns]] = deque(maxlen=MOST)
        self._number = 0
        self._first = self._next = 0
        """``_first``: first sample of the last motion. ``_next``: next sample of this motion."""
        self._seen = -1
        """``_next`` at the last call of :meth:`take`; -1 if the last motion began after that call."""

    def add(self, measured: Measurement, command: Array) -> None:
        number, modes = measured.sample, measured.control_mode
        moved, force = measured.displacement.tolist(), measured.force.tolist()
        in_force = [len(modes) > axis and modes[axis] == MODE_FORCE for axis in range(len(moved))]
        rows = zip(command.tolist(), self._loaded, in_force, strict=True)
        values = [value if loaded == now else math.nan for value, loaded, now in rows]
        aimed = [f if loaded else x for x, f, loaded in zip(moved, force, self._loaded, strict=True)]
        with self._lock:
            too_long = number - max(self._seen, self._first) > LONGEST_S * self._rate
            if not self._motions or number != self._next or too_long:
                self._number += 1
                self._first, self._seen = number, -1
                self._motions.append((self._number, LiveColumns(len(self._loaded), self._rate)))
            nothing = [math.nan] * len(moved)
            _, columns = self._motions[-1]
            columns.add(number - self._first, values, values, moved, force, aimed, nothing)
            self._next = number + 1

    def take(self) -> list[Drawn]:
        """Return the new columns of all motions. A motion ends if no sample was added since the last call."""
        drawn = []
        with self._lock:
            ended, self._seen = self._seen == self._next, self._next
            for number, columns in list(self._motions):
                over = ended or number != self._number
                first, values = columns.take(rest=over)
                if over:
                    self._motions.popleft()
                if len(values):
                    drawn.append((number, columns.samples_per_column, first, values))
        return drawn
