# SPDX-License-Identifier: Apache-2.0
"""Comparison of a rung with the previous one: differences of displacement and force, and peaks of each axis.

Rungs are compared at the integration steps, which do not depend on the time ratio; two of equal ratio at the
longer steps, because a played history has a step in each sample. The level is divided out, so that linear tests do
not differ. A difference is the rms of the histories' difference over the rms of the earlier one, from the end of a
soft start to the last common step. The peaks are rows in the history of the specimen.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Array
from rths_nodes.loop.procedure_record import ProcedureRecord, RungRecord, moves
from rths_nodes.recording.reading import read_run
from rths_nodes.recording.records import RecordingError
from rths_nodes.recording.run import Run


def at_steps(run: Run, samples_per_step: int | None = None) -> tuple[Array, Array]:
    """Return displacement (m) and force (N) by step, ``(n, n_axes)``; ``samples_per_step`` as the test."""
    scenario = run.scenario
    samples_per_step = samples_per_step or scenario.samples_per_step
    first = scenario.soft_start_steps * samples_per_step
    return run.displacement[first::samples_per_step], run.force[first::samples_per_step]


def differences(run: Run, level: float, before: Run, level_before: float) -> dict[str, float]:
    """Return differences ``displacement of AXIS`` and ``force of AXIS``; nan if only the later one moved."""
    result: dict[str, float] = {}
    same = run.scenario.time_ratio == before.scenario.time_ratio
    samples_per_step = max(run.scenario.samples_per_step, before.scenario.samples_per_step) if same else None
    histories = at_steps(run, samples_per_step), at_steps(before, samples_per_step)
    for name, now, then in zip(("displacement", "force"), *histories, strict=True):
        n = min(len(now), len(then))
        for column, axis in enumerate(run.axes):
            result[f"{name} of {axis}"] = difference(now[:n, column] / level, then[:n, column] / level_before)
    return result


def difference(now: Array, then: Array) -> float:
    """Return the rms of the difference over the rms of ``then``; nan if only ``now`` is not zero."""
    both = np.isfinite(now) & np.isfinite(then)
    if not both.any():
        return math.nan
    size, off = np.sqrt(np.mean(then[both] ** 2)), np.sqrt(np.mean((now[both] - then[both]) ** 2))
    if size > 0.0:
        return float(off / size)
    return math.nan if off > 0.0 else 0.0


def peaks(run: Run) -> dict[str, dict[str, float]]:
    """Return the peaks of displacement (m), force (N) and rate of displacement (m/s) by axis."""
    rate = np.diff(run.displacement, axis=0) / run.scenario.dt
    rows = {"displacement": run.displacement, "force": run.force, "velocity": rate}
    return {
        axis: {name: _largest(values[:, column]) for name, values in rows.items()}
        for column, axis in enumerate(run.axes)
    }


def _largest(values: Array) -> float:
    finite = values[np.isfinite(values)]
    return float(np.abs(finite).max()) if len(finite) else 0.0


def cautions(level: float, ratio: float, level_before: float, ratio_before: float) -> list[str]:
    """Return remarks on a comparison of rungs that differ in level or time ratio."""
    result = []
    if level != level_before:
        result.append(
            f"compared with a rung at level {level_before:g}: displacement and force over the level; what is not "
            "linear differs"
        )
    if ratio != ratio_before:
        result.append(f"compared with a rung at the time ratio {ratio_before:g}: what depends on the rate differs")
    return result


def in_words(differences_by_name: dict[str, float], record: ProcedureRecord) -> str:
    """Return the differences as text, with the axis names of ``record``."""
    return ", ".join(
        f"{record.named(name)} by {'what cannot be told' if math.isnan(value) else f'{value:.3g}'}"
        for name, value in differences_by_name.items()
    )


def tell_specimen(record: ProcedureRecord, entry: RungRecord) -> bool:
    """Begin or complete the row of a rung in the history of its specimen; return whether it loads it.

    The row has no numbers while the rung is under way. Simulated rungs do not count.
    """
    if record.simulation or not moves(entry.name):
        return False
    largest = {
        name: {axis: values[name] for axis, values in entry.peaks.items()} for name in ("displacement", "force")
    }
    named = {"date": entry.started, "test": record.test_id, "rung": entry.name}
    rows = record.specimen.history
    begun = [row for row in rows if all(row.get(key) == value for key, value in named.items())]
    if not begun:
        rows.append({})
    row = begun[-1] if begun else rows[-1]
    row |= named | {"level": entry.level} | largest
    return True


def tell_broken_off(record: ProcedureRecord, entry: RungRecord, recording: Path) -> None:
    """Complete an aborted rung from its recording: it has loaded the specimen."""
    try:
        run = read_run(recording)
    except (ConfigError, RecordingError) as error:
        entry.remarks.append(f"its recording cannot be read: {error}")
        return
    entry.samples, entry.peaks = len(run.time) - 1, peaks(run)
    entry.remarks.append("it broke off: its peaks are those of what was recorded until then")
    tell_specimen(record, entry)
