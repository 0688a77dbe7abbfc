"""The tracking error beside what the sensor can tell: a smaller error than its floor is none that was measured."""

from __future__ import annotations

import math

import numpy as np

from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.report.procedure import Part, grid
from rths_nodes.analysis.report.set_up import floors
from rths_nodes.analysis.units import DASH, MM, PERCENT, rounded
from rths_nodes.loop.procedure.records import ProcedureRecord
from rths_nodes.loop.scenario.titles import axis_names


def floor(of: Evaluation, record: ProcedureRecord | None) -> Part:
    """Largest error and its rms in mm and in percent, with the floor of the sensor; empty if no sample counts."""
    title = "Error beside the floor of the sensor"
    if len(of.counted) < 2:
        return Part(title)
    run, known = of.run, floors(of.scenario)
    before = record.offsets_before if record else None
    rows = []
    for index, axis in enumerate(run.axes):
        target = run.target[of.counted, index]
        error = target - run.displacement[of.counted, index]
        size, spread = float(np.abs(target).max()), float(np.sqrt(np.mean(target**2)))
        largest, rms = float(np.abs(error).max()), float(np.sqrt(np.mean(error**2)))
        seen = before.axes[axis].displacement_scatter if before and axis in before.axes else math.nan
        most = max([value for value in (known[axis], seen) if value > 0.0], default=math.nan)
        shares = [rounded(PERCENT * a / b if b else math.nan) for a, b in ((largest, size), (rms, spread))]
        numbers = [rounded(largest, MM), shares[0], rounded(rms, MM), shares[1]]
        numbers += [rounded(known[axis] or math.nan, MM), rounded(seen, MM), rounded(rms / most)]
        rows.append([axis_names(of.scenario)[axis], *numbers])
    if all(row[-1] == DASH for row in rows):
        return Part(
            title, words=("Neither noise nor resolution of a displacement sensor is stated: no floor is known.",)
        )
    heads = ("Axis", "largest error, mm", "of largest target, %", "rms error, mm", "of rms target, %")
    beside = ("floor of the sensor, mm", "scatter at rest, mm", "rms error over floor")
    words = (
        "Floor of the sensor: rms of its noise and its resolution, √(noise² + resolution²/12), of the rig file or "
        "of the simulated sensor. Scatter at rest: rms while the offsets were taken.",
    )
    return Part(title, words=words, grid=grid((*heads, *beside), rows))
