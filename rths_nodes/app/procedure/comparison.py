# SPDX-License-Identifier: Apache-2.0
"""A rung beside the one before it: how much displacement and force differ, and how far each axis went.

Rungs are compared at the integration steps, which they share whatever their time ratio; of two at one ratio at the
longer ones, as a run that plays a history has a step in each sample. A level is divided out, so that a linear test
gives no difference. The difference is the rms of the two histories' over the rms of the earlier one, from the end
of a soft start to the last step that both have.
"""

from __future__ import annotations

import math

import numpy as np

from rths_nodes.core.samples import Array
from rths_nodes.procedure.records import ProcedureRecord
from rths_nodes.recording.run import Run


def at_steps(run: Run, each: int | None = None) -> tuple[Array, Array]:
    """Measured displacement (m) and force (N) at every step of the test proper, ``(n, n_axes)`` each.

    ``each`` step has so many samples; left out, as many as in the test.
    """
    scenario = run.scenario
    each = each or scenario.samples_per_step
    first = scenario.soft_start_steps * each
    return run.displacement[first::each], run.force[first::each]


def differences(run: Run, level: float, before: Run, level_before: float) -> dict[str, float]:
    """By ``displacement of AXIS`` and ``force of AXIS``; nan where nothing was there before, but is now."""
    found: dict[str, float] = {}
    same = run.scenario.time_ratio == before.scenario.time_ratio
    each = max(run.scenario.samples_per_step, before.scenario.samples_per_step) if same else None
    histories = at_steps(run, each), at_steps(before, each)
    for name, now, then in zip(("displacement", "force"), *histories, strict=True):
        n = min(len(now), len(then))
        for column, axis in enumerate(run.axes):
            found[f"{name} of {axis}"] = difference(now[:n, column] / level, then[:n, column] / level_before)
    return found


def difference(now: Array, then: Array) -> float:
    """Rms of the difference over the rms of ``then``; nan where nothing was there then, but is now."""
    both = np.isfinite(now) & np.isfinite(then)
    if not both.any():
        return math.nan
    size, off = np.sqrt(np.mean(then[both] ** 2)), np.sqrt(np.mean((now[both] - then[both]) ** 2))
    if size > 0.0:
        return float(off / size)
    return math.nan if off > 0.0 else 0.0


def peaks(run: Run) -> dict[str, dict[str, float]]:
    """By axis the largest magnitudes of displacement (m), force (N) and rate of the displacement (m/s)."""
    rate = np.diff(run.displacement, axis=0) / run.scenario.dt
    rows = {"displacement": run.displacement, "force": run.force, "velocity": rate}
    return {
        axis: {name: _largest(values[:, column]) for name, values in rows.items()}
        for column, axis in enumerate(run.axes)
    }


def _largest(values: Array) -> float:
    known = values[np.isfinite(values)]
    return float(np.abs(known).max()) if len(known) else 0.0


def cautions(level: float, ratio: float, level_before: float, ratio_before: float) -> list[str]:
    """Say what a comparison of rungs that differ in level or time ratio does not show."""
    found = []
    if level != level_before:
        found.append(
            f"compared with a rung at level {level_before:g}: displacement and force over the level; what is not "
            "linear differs"
        )
    if ratio != ratio_before:
        found.append(f"compared with a rung at the time ratio {ratio_before:g}: what depends on the rate differs")
    return found


def in_words(found: dict[str, float], record: ProcedureRecord) -> str:
    """Differences as people read them, with the names that ``record`` has for the axes."""
    return ", ".join(
        f"{record.named(name)} by {'what cannot be told' if math.isnan(value) else f'{value:.3g}'}"
        for name, value in found.items()
    )
