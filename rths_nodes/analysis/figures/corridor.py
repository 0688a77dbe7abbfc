"""Figure of a test in its corridor: what was measured, over the bands that were predicted."""

from __future__ import annotations

import numpy as np

from rths_nodes.analysis.figures.sheet import COLUMNS, Drawing, View, plot, time_sheet
from rths_nodes.analysis.figures.style import DASHES, FAINT, Entry
from rths_nodes.analysis.histories import Indices
from rths_nodes.analysis.units import KN, MM
from rths_nodes.core.samples import Array
from rths_nodes.loop.supervision.corridor import Corridor, CorridorWatch, load, quantities

LABELS = (("displacement (mm)", MM), ("force (kN)", KN), ("absorbed (J)", 1.0))
PREDICTED = "#f0dfa8"


def bands(view: View) -> Drawing | None:
    """A panel for each quantity of each axis; None without a corridor. Raises ConfigError without its file."""
    run, file = view.run, view.run.scenario.monitor.corridor
    if file is None:
        return None
    corridor = load(file, run.axes, run.scenario.servo_rate, 0)
    samples = view.of.counted[view.of.counted <= corridor.samples]
    measured, watch = _measured(view, corridor, samples)
    entries: list[Entry] = [("predicted", PREDICTED, "-"), ("nominal", FAINT, DASHES), *view.axes]
    figure, panels = time_sheet(view, [1.15] * (3 * len(view.axes)), entries)
    rows = [(axis, quantity) for axis in range(len(view.axes)) for quantity in range(len(LABELS))]
    for panel, (axis, quantity) in zip(panels, rows, strict=True):
        (name, colour, line), (label, factor) = view.axes[axis], LABELS[quantity]
        every = max(1, len(samples) // COLUMNS)
        # of each cell the widest place: no part of the band is lost
        lower, upper = (
            np.array(
                [fold(values[quantity, cell, axis]) for cell in np.array_split(samples, len(samples) // every)]
            )
            for fold, values in ((np.nanmin, corridor.lower), (np.nanmax, corridor.upper))
        )
        time = np.array([run.time[cell[0]] for cell in np.array_split(samples, len(samples) // every)])
        panel.fill_between(time, factor * lower, factor * upper, color=PREDICTED, lw=0.0)
        plot(
            panel,
            run.time[samples],
            factor * corridor.nominal[quantity, samples, axis],
            COLUMNS,
            color=FAINT,
            lw=0.7,
            ls=DASHES,
        )
        plot(
            panel, run.time[samples], factor * measured[quantity, :, axis], COLUMNS, color=colour, ls=line, lw=0.9
        )
        panel.set_ylabel(f"{name}\n{label}" if len(view.axes) > 1 else label)
    caption = f"Predicted before the test: {corridor.source}."
    if watch.left is None:
        return "Corridor: the test stayed in it", caption, figure
    sample, words = watch.left
    return f"Corridor: left at {run.time[sample]:.4g}\u00a0s", f"{words}. {caption}", figure


def _measured(view: View, corridor: Corridor, samples: Indices) -> tuple[Array, CorridorWatch]:
    """``QUANTITIES`` at ``samples``, and how they lie in their bands."""
    run, first = view.run, view.of.first_sample
    watch = CorridorWatch(corridor, round(run.scenario.monitor.corridor_persistence * run.scenario.servo_rate))
    base = max(0, first - 1)
    rows = np.concatenate(([base], samples)) if len(samples) else samples
    values, _ = quantities(run.displacement[rows], run.force[rows])
    if first:
        watch.start(run.displacement[base], run.force[base])
    watch.update(int(samples[0]), run.displacement[samples], run.force[samples])
    return values, watch
