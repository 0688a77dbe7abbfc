# SPDX-License-Identifier: Apache-2.0
"""Peaks of a rung, and relative differences between two rungs.

Rungs are compared at the integration steps, which do not depend on the time ratio. A replayed history has a step
in each sample, so rungs of equal ratio are compared at the longer of their steps. Histories are divided by the
level, because the response of a linear test is proportional to the level.
"""

from __future__ import annotations

import math

import numpy as np

from rths_nodes.core.samples import Array
from rths_nodes.recording.run import Run


def differences(run: Run, level: float, before: Run, level_before: float) -> dict[str, float]:
    """Return the relative differences between two runs after the soft start.

    The keys are ``displacement of AXIS`` and ``force of AXIS``. A difference is NaN if the axis moved only in
    ``run``.
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
            result[f"{name} of {axis}"] = difference(now[:n, column] / level, then[:n, column] / level_before)
    return result


def difference(now: Array, then: Array) -> float:
    """Return rms(``now`` - ``then``) / rms(``then``); 0 for 0 / 0, NaN if only ``then`` is 0 or without data."""
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
