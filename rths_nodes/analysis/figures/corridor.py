# SPDX-License-Identifier: Apache-2.0
"""Figure of a test in its corridor: what was measured, over the bands that were predicted."""

from __future__ import annotations

import math

import numpy as np

from rths_nodes.analysis.figures.plan import DISPLACEMENT, TIME, Band, Base, Curve, Look, Plan, Quantity, Shown
from rths_nodes.analysis.figures.sheet import View
from rths_nodes.analysis.figures.style import DASHES, FAINT, Entry
from rths_nodes.analysis.histories import Indices
from rths_nodes.analysis.units import KN, MM
from rths_nodes.core.samples import Array
from rths_nodes.loop.supervision.corridor import Corridor, CorridorWatch, load, quantities

LABELS = ((DISPLACEMENT, MM), (Quantity("force", "kN"), KN), (Quantity("absorbed", "J"), 1.0))
PREDICTED = "#f0dfa8"


def bands(view: View) -> Plan | None:
    """A panel for each quantity of each axis; None without a corridor. Raises ConfigError without its file."""
    run, file = view.run, view.run.scenario.monitor.corridor
    if file is None:
        return None
    corridor = load(file, run.axes, run.scenario.servo_rate, 0)
    samples = view.of.counted[view.of.counted <= corridor.samples]
    measured, watch = _measured(view, corridor, samples)
    base = Base("samples", TIME, run.time[samples])
    panels = []
    for axis, entry in enumerate(view.axes):
        for number, (label, factor) in enumerate(LABELS):
            lower, nominal, upper = (
                factor * values[number, samples, axis]
                for values in (corridor.lower, corridor.nominal, corridor.upper)
            )
            of = view.named(label, view.axes, entry[0])
            shown: list[Shown] = [
                Band(base, Quantity(f"{of.name}, predicted", of.unit), lower, upper, PREDICTED),
                Curve(base, Quantity(f"{of.name}, nominal", of.unit), nominal, Look(FAINT, DASHES, 0.7)),
                Curve(base, of, factor * measured[number, :, axis], Look.of(entry, 0.9)),
            ]
            several = Quantity(f"{entry[0]}\n{label.name}", label.unit)
            panels.append(view.panel(several if len(view.axes) > 1 else label, shown))
    legend: list[Entry] = [("predicted", PREDICTED, "-"), ("nominal", FAINT, DASHES), *view.axes]
    heights = [1.15] * len(panels)
    caption = f"Predicted before the test: {corridor.source}."
    title = "Corridor: the test stayed in it"
    if watch.left is not None:
        sample, words = watch.left
        title, caption = f"Corridor: left at {run.time[sample]:.4g}\u00a0s", f"{words}. {caption}"
    return view.plan("corridor", (title, caption), panels, heights, legend)


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
