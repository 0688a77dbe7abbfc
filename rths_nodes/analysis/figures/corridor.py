# SPDX-License-Identifier: Apache-2.0
"""Figure of a test in its corridor: measured quantities over the predicted bands."""

from __future__ import annotations

import math

import numpy as np

from rths_nodes.analysis.figures.sheet import Base, Sheet, label
from rths_nodes.analysis.figures.style import DASHES, FAINT, Entry
from rths_nodes.analysis.figures.view import View, Words
from rths_nodes.analysis.histories import Indices
from rths_nodes.analysis.units import KN, MM
from rths_nodes.core.samples import Array
from rths_nodes.loop.supervision.corridor import Corridor, CorridorWatch, load, quantities

QUANTITIES = (("displacement", "mm", MM), ("force", "kN", KN), ("absorbed", "J", 1.0))
PREDICTED: Entry = ("predicted", "#f0dfa8", "-")
NOMINAL: Entry = ("nominal", FAINT, DASHES)


def corridor(sheet: Sheet, view: View) -> Words | None:
    """Draw a panel per quantity of each axis; None without a corridor. Raises ConfigError without its file."""
    run, file = view.run, view.run.scenario.monitor.corridor
    if file is None:
        return None
    predicted = load(file, run.axes, run.scenario.servo_rate, 0)
    samples = view.of.counted[view.of.counted <= predicted.samples]
    measured, watch = _measured(view, predicted, samples)
    base = Base("samples", run.time[samples])
    (group,) = view.groups(view.axes)
    for axis, entry, suffix in group:
        for number, (name, unit, factor) in enumerate(QUANTITIES):
            (panel,), of = sheet.row(1.15), name + suffix
            lower, nominal, upper = (
                factor * values[number, samples, axis]
                for values in (predicted.lower, predicted.nominal, predicted.upper)
            )
            sheet.band(panel, base, f"{of}, predicted", unit, (lower, upper), PREDICTED[1])
            sheet.curve(panel, base, label(f"{of}, nominal", unit), nominal, NOMINAL, 0.7)
            sheet.curve(panel, base, label(of, unit), factor * measured[number, :, axis], entry, 0.9)
            view.time(sheet, panel, label(f"{entry[0]}\n{name}" if suffix else name, unit))
    view.legend(sheet, [PREDICTED, NOMINAL, *view.axes])
    caption = f"Predicted before the test: {predicted.source}."
    if watch.left is None:
        return "Corridor: the test stayed in it", caption
    sample, words = watch.left
    return f"Corridor: left at {run.time[sample]:.4g}\u00a0s", f"{words}. {caption}"


def _measured(view: View, corridor: Corridor, samples: Indices) -> tuple[Array, CorridorWatch]:
    run, first = view.run, view.of.first_sample
    watch = CorridorWatch(corridor, math.ceil(run.scenario.monitor.corridor_persistence / run.scenario.dt))
    base = max(0, first - 1)
    rows = np.concatenate(([base], samples)) if len(samples) else samples
    if first:
        watch.start(run.displacement[base].tolist(), run.force[base].tolist())
    for sample in samples.tolist():
        watch.step(sample, run.displacement[sample].tolist(), run.force[sample].tolist())
    return quantities(run.displacement[rows], run.force[rows]), watch
