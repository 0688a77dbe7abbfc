# SPDX-License-Identifier: Apache-2.0
"""Comparison of tests with the first test on a common time axis, and comparison of two rungs.

The time axis is the structure's time from the end of the soft start. Histories are interpolated linearly at the
times of the first test.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rths_nodes.analysis.histories import Evaluation, absolute_acceleration
from rths_nodes.core.errors import Problems
from rths_nodes.core.samples import Array
from rths_nodes.recording.run import Run

EQUAL = 1e-9
"""Largest difference between two times that are treated as equal, s."""


class Aligned:
    """Histories of a named test on the common time axis.

    ``time`` (s, ``(n,)``) holds the times of the evaluated samples, ``step_time`` (s, ``(n_steps,)``) the times of
    the steps after the soft start. ``displacement``, ``target`` (m) and ``force`` (N) are ``(n, n_axes)``. The
    structure's displacement ``moved`` (m) is ``(n_steps, n_dof)``. If ``recorded`` is true, all samples and steps
    are included, on the time axis of the recording. ``counted`` always holds the times of the evaluated samples.
    """

    def __init__(self, name: str, evaluation: Evaluation, recorded: bool = False) -> None:
        self.name, self.of, self.run, self.recorded = name, evaluation, evaluation.run, recorded
        run = evaluation.run
        self.rows = np.arange(len(run.time)) if recorded else evaluation.counted
        self.first_step = 0 if recorded else evaluation.first_step
        self._ratio = 1 if recorded else evaluation.scenario.time_ratio
        shifted = len(run.time) and not recorded
        self._zero = float(run.time[max(0, evaluation.first_sample - 1)]) if shifted else 0.0
        self.time, self.counted = self.at(run.time[self.rows]), self.at(run.time[evaluation.counted])
        self.target, self.displacement, self.force = (
            v[self.rows] for v in (run.target, run.displacement, run.force)
        )
        self.step_time = self.at(run.step_time[self.first_step :])
        self.moved = run.dof_displacement[self.first_step :]

    def at(self, time: Array) -> Array:
        return (time - self._zero) / self._ratio

    @property
    def drawable(self) -> bool:
        return len(self.time) > 1

    def acceleration(self) -> Array:
        """Return the absolute acceleration, ``(m, n_dof)`` m/s^2. Raises ConfigError if it cannot be computed."""
        return absolute_acceleration(self.of)[self.first_step :]

    def histories(self) -> dict[str, tuple[Array, Array, str]]:
        """Return times ``(n,)``, values ``(n,)`` and SI unit of each history that can be compared, by name."""
        histories = {}
        for column, axis in enumerate(self.run.axes):
            histories[f"displacement of {axis}"] = (self.time, self.displacement[:, column], "m")
            histories[f"force of {axis}"] = (self.time, self.force[:, column], "N")
        accelerated = self.of.or_left_out(f"acceleration of {self.name}", self.acceleration, np.zeros((0, 0)))
        for column, dof in enumerate(self.run.dof_names):
            histories[f"response of {dof}"] = (self.step_time, self.moved[:, column], "m")
            if len(accelerated):
                time = self.step_time[: len(accelerated)]
                histories[f"acceleration of {dof}"] = (time, accelerated[:, column], "m/s²")
        return histories


class Difference(NamedTuple):
    """Difference of a history from the first test's history, in ``unit``.

    ``rms`` is the rms difference, and ``largest`` the largest difference, at the time ``at`` (s). The shares are
    relative to the rms and the peak of the first history, or NaN if this history is zero.
    """

    rms: float
    rms_share: float
    largest: float
    largest_share: float
    at: float
    unit: str


def check(runs: Mapping[str, Run]) -> None:
    """Raise ConfigError if a test cannot be compared with the first test.

    All tests must have the same axes and duration. Only imported tests may differ in duration. The first test must
    have at least two evaluated samples.
    """
    (first, one), *rest = runs.items()
    problems = Problems()
    for name, run in rest:
        if run.axes != one.axes:
            axes, other_axes = (", ".join(tested.axes) or "none" for tested in (run, one))
            problems.append(f"{name}: axes = {axes}: must equal the axes of {first} ({other_axes})")
        length, known_length = run.scenario.duration, one.scenario.duration
        imported = run.made_elsewhere or one.made_elsewhere
        if abs(length - known_length) > max(run.scenario.step, one.scenario.step) and not imported:
            problems.append(
                f"{name}: duration = {length:g} s: must equal the duration of {first} ({known_length:g} s)"
            )
    if not Aligned(first, Evaluation(one)).drawable:
        problems.append(f"{first}: no sample of this test can be evaluated. List another test first")
    problems.refuse()


def differences(first: Aligned, other: Aligned) -> dict[str, Difference]:
    ours, theirs = first.histories(), other.histories()
    result = {}
    for name in [name for name in ours if name in theirs]:
        time, values, unit = ours[name]
        off = on_times(time, *theirs[name][:2]) - values
        both = np.isfinite(off)
        if both.any():
            result[name] = _difference(time[both], values[both], off[both], unit)
    return result


def on_times(time: Array, time_of_values: Array, values: Array) -> Array:
    """Interpolate ``values`` at increasing ``time``; NaN outside ``time_of_values`` or next to NaN values."""
    n = min(len(time), len(time_of_values))
    if n and np.allclose(time[:n], time_of_values[:n], rtol=0.0, atol=EQUAL):
        return np.append(values[:n], np.full(len(time) - n, np.nan))
    if not len(time_of_values):
        return np.full(len(time), np.nan)
    return np.interp(time, time_of_values, values, left=np.nan, right=np.nan)


def _difference(time: Array, values: Array, off: Array, unit: str) -> Difference:
    rms, size = (math.sqrt(float(np.mean(history**2))) for history in (off, values))
    at = int(np.argmax(np.abs(off)))
    most, peak = abs(float(off[at])), float(np.abs(values).max())
    return Difference(rms, _share(rms, size), most, _share(most, peak), float(time[at]), unit)


def _share(part: float, total: float) -> float:
    return part / total if total > 0.0 else math.nan


def names(paths: Sequence[Sequence[str]]) -> list[str]:
    """Return the shortest ends of ``paths`` (tuples of components) that all differ. Equal paths are numbered."""
    for length in range(1, max(map(len, paths)) + 1):
        shortened = ["/".join(parts[-length:]) for parts in paths]
        if len(set(shortened)) == len(shortened):
            return shortened
    last = [parts[-1] for parts in paths]
    return [f"{name} ({last[: number + 1].count(name)})" for number, name in enumerate(last)]


def rung_differences(run: Run, level: float, before: Run, level_before: float) -> dict[str, float]:
    """Return the relative differences between two runs after the soft start.

    The runs are compared at the integration steps, which do not depend on the time ratio. A replayed history has
    a step in each sample; runs with the same time ratio are therefore compared at the longer of their steps.
    Histories are divided by the level, because the response of a linear test is proportional to its level. The
    keys are ``displacement of AXIS`` and ``force of AXIS``. A difference is NaN if the axis moved only in ``run``.
    """
    runs = run, before
    samples = [one.scenario.samples_per_step for one in runs]
    if run.scenario.time_ratio == before.scenario.time_ratio:
        samples = [max(samples)] * 2
    steps = [slice(one.scenario.soft_start_steps * n, None, n) for one, n in zip(runs, samples, strict=True)]
    result: dict[str, float] = {}
    for name in ("displacement", "force"):
        now, then = (getattr(one, name)[rows] for one, rows in zip(runs, steps, strict=True))
        n = min(len(now), len(then))
        for column, axis in enumerate(run.axes):
            result[f"{name} of {axis}"] = _relative(now[:n, column] / level, then[:n, column] / level_before)
    return result


def _relative(now: Array, then: Array) -> float:
    """Return rms(``now`` - ``then``) / rms(``then``): 0 if both are 0, NaN if only ``then`` is 0 or missing."""
    both = np.isfinite(now) & np.isfinite(then)
    if not both.any():
        return math.nan
    size, off = (float(np.sqrt(np.mean(values[both] ** 2))) for values in (then, now - then))
    if size > 0.0:
        return off / size
    return math.nan if off > 0.0 else 0.0


def peaks_of(run: Run) -> dict[str, dict[str, float]]:
    """Return the largest displacement (m), force (N) and velocity (m/s) of each axis, as magnitudes."""
    rows = {"displacement": run.displacement, "force": run.force, "velocity": run.rates(run.displacement)}
    return {
        axis: {
            name: float(np.max(np.abs(column[np.isfinite(column)]), initial=0.0))
            for name, column in zip(rows, columns, strict=True)
        }
        for axis, *columns in zip(run.axes, *(values.T for values in rows.values()), strict=True)
    }
