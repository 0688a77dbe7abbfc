# SPDX-License-Identifier: Apache-2.0
"""Curves of a test for whoever looks on: columns of 10 ms, each with first, lowest, highest and last value.

Nobody who draws a curve misses a peak, and nothing is sent sample by sample.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from rths_nodes.core.limits import Limits
from rths_nodes.core.samples import Array

COLUMN_S = 0.01
"""Time that a column covers, s of the servo clock; it has one sample at least."""
OF_AXIS = ("target", "command", "measured", "force", "error", "tracking_indicator")
"""Curves of an axis."""
FIRST, LOWEST, HIGHEST, LAST = range(4)
PER_CURVE = 4


def units(of_force: bool) -> tuple[str, ...]:
    """Units of :data:`OF_AXIS`; an axis that is controlled ``of_force`` has targets and errors in N."""
    aim = "N" if of_force else "m"
    return aim, aim, "m", "N", aim, "" if of_force else "m^2"


def curve_names(axes: Sequence[str]) -> list[str]:
    """Names of the curves, ``story_1/target``, in the order in which columns have them."""
    return [f"{axis}/{name}" for name in OF_AXIS for axis in axes]


def curve_units(axes: Mapping[str, Limits]) -> list[str]:
    """Units of the curves of axes with these limits, in that order."""
    return [units(each.of_force)[place] for place in range(len(OF_AXIS)) for each in axes.values()]


def curve_limits(axes: Mapping[str, Limits]) -> Iterator[tuple[str, str, float]]:
    """Curve, name and bound of each limit that one curve can show; rates and levels are not among them."""
    for name, limits in axes.items():
        yield f"{name}/measured", "stroke", limits.stroke
        yield f"{name}/force", "force", limits.force
        for kind in ("tracking_error", "force_error"):  # an axis has one of both
            if (bound := getattr(limits, kind)) is not None:
                yield f"{name}/error", kind, bound


def per_column(servo_rate: float) -> int:
    """Samples of a column at ``servo_rate`` (Hz)."""
    return max(1, round(COLUMN_S * servo_rate))


class LiveColumns:
    """Gathers the samples of a test into columns of round(0.01 x servo rate) samples, counted from sample 0.

    A sample that is missing does not count; a column without any sample is nan.
    """

    def __init__(self, n_axes: int, servo_rate: float) -> None:
        self.samples_per_column = per_column(servo_rate)
        self._width = n_axes * len(OF_AXIS)
        self._rows = array("d")
        self._append = self._rows.fromlist
        self._nothing = [np.nan] * n_axes
        self._next = 0
        """Number of the next sample."""
        self._first = 0
        """Number of the first sample that was not taken yet; a column begins with it."""

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
        """The next sample: by axis target, command, measured displacement, force.

        ``aimed`` is what the target is compared with: the displacement, or the force of an axis controlled by it;
        nan where it is compared with nothing.
        """
        while self._next < sample:
            self._append(self._nothing * len(OF_AXIS))
            self._next += 1
        errors = [each - now for each, now in zip(target, aimed, strict=True)]
        self._append([*target, *command, *measured, *force, *errors, *indicator])
        self._next = sample + 1

    def newest(self) -> list[list[float]]:
        """Numbers of the last sample by axis: target, command, measured, force, error and tracking indicator."""
        row, n = self._rows[-self._width :].tolist() or self._nothing * len(OF_AXIS), len(self._nothing)
        return [row[place : place + n] for place in range(0, self._width, n)]

    def take(self, rest: bool = False) -> tuple[int, Array]:
        """First sample and columns ``(columns, curves, 4)`` of what is complete; with the ``rest`` all there is.

        Each column is given once.
        """
        per, first = self.samples_per_column, self._first
        rows = np.array(self._rows).reshape(-1, self._width)
        whole = len(rows) if rest else len(rows) // per * per
        found = columns_of(rows[:whole], per)
        self._rows = array("d", rows[whole:].ravel().tolist())
        self._append = self._rows.fromlist
        self._first = first + len(found) * per
        return first, found


def columns_of(rows: Array, per: int) -> Array:
    """Columns ``(columns, curves, 4)`` of samples ``(n, curves)``, ``per`` each; the last one may be short."""
    padded = np.concatenate((rows, np.full((-len(rows) % per, rows.shape[1]), np.nan)))
    return envelopes(padded.reshape(-1, per, rows.shape[1]))


def envelopes(samples: Array) -> Array:
    """First, lowest, highest and last number of each column: ``(columns, samples, curves)`` -> ``(.., 4)``."""
    columns, per, width = samples.shape
    found = np.empty((columns, width, PER_CURVE))
    if not columns:
        return found
    found[:, :, LOWEST], found[:, :, HIGHEST] = np.fmin.reduce(samples, axis=1), np.fmax.reduce(samples, axis=1)
    known = np.isfinite(samples)
    first, last = known.argmax(axis=1), per - 1 - known[:, ::-1].argmax(axis=1)
    found[:, :, FIRST] = np.take_along_axis(samples, first[:, None], axis=1)[:, 0]
    found[:, :, LAST] = np.take_along_axis(samples, last[:, None], axis=1)[:, 0]
    return found
