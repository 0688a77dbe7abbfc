# SPDX-License-Identifier: Apache-2.0
"""Figures of the tracking near the largest target and the fastest zero crossing, and figure of a corridor."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes

from rths_nodes.analysis.figures.sheet import Base, Sheet, View, Words, label, level
from rths_nodes.analysis.figures.style import BAND, BAND_WIDTH, DASHES, FAINT, INK, Entry
from rths_nodes.analysis.histories import Evaluation, Indices
from rths_nodes.analysis.units import KN, MM, quantity
from rths_nodes.core.samples import Array
from rths_nodes.loop.supervision.corridor import Corridor, CorridorWatch, load, quantities

AT_PEAK, AT_ZERO = 0.1, 0.04
"""Half widths of the zooms, in periods of the target."""
LEAST = 12
"""Smallest half width of a zoom, samples."""
TARGET: Entry = ("target", BAND, "-")
COMMAND: Entry = ("command", INK, DASHES)


def places(evaluation: Evaluation, axis: int) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Return first and last sample of two zooms: at the peak and at the fastest zero crossing.

    Only evaluated samples are numbered, from 0. The result is None if there are fewer than two zero crossings.
    """
    target = evaluation.run.target[evaluation.counted, axis]
    crossings = np.flatnonzero(np.diff(np.signbit(target)))
    if len(crossings) < 2:
        return None
    peak = int(np.argmax(np.abs(target)))
    steepest = int(crossings[np.argmax(np.abs(np.diff(target)[crossings]))])
    period, last = 2.0 * float(np.median(np.diff(crossings))), len(target) - 1
    of_peak, of_zero = (
        (max(0, at - half), min(last, at + half))
        for at, half in (
            (peak, max(LEAST, round(AT_PEAK * period))),
            (steepest, max(LEAST, round(AT_ZERO * period))),
        )
    )
    return of_peak, of_zero


def zooms(sheet: Sheet, view: View) -> Words | None:
    run, samples, captions, named = view.run, view.of.counted, [], len(view.axes) > 1
    for axis, (name, _, _) in enumerate(view.axes):
        if (spots := places(view.of, axis)) is None:
            continue
        panels = sheet.row(1.35 if named else 2.0, 6, 6)
        for panel, (first, last), where in zip(panels, spots, ("peak", "crossing of zero"), strict=True):
            cut = samples[first : last + 1]
            target, measured = (MM * values[cut, axis] for values in (run.target, run.displacement))
            low, high = np.nanmin([target, measured]), np.nanmax([target, measured])
            margin = 0.08 * (high - low) or 1e-3
            begin, end = float(run.time[cut[0]]), float(run.time[cut[-1]])
            view.time(sheet, panel, "displacement (mm)" if where == "peak" else "")
            followed(sheet, view, panel, axis, within=(begin, end))
            level(panel, width=0.4)
            title = f"{name}: {where}" if named else where
            panel.set(xlim=(begin, end), ylim=(low - margin, high + margin), title=title)
            off = quantity(float(np.abs(target - measured).max()), 1.0, "mm")
            captions.append(f"{name} within {off} at the {where}" if named else f"within {off} at the {where}")
    if not captions:
        return None
    view.legend(sheet, [TARGET, COMMAND, *measured_by(view)])
    caption = "A delay is visible at the zero crossing, an amplitude error at the peak. Dots: single samples."
    return f"Tracking in detail: {', '.join(captions[:2])}", caption


def measured_by(view: View) -> list[Entry]:
    named = len(view.axes) > 1
    return [(f"measured {name}" if named else "measured", colour, line) for name, colour, line in view.axes]


def followed(
    sheet: Sheet,
    view: View,
    panel: Axes,
    axis: int,
    command: bool = True,
    within: tuple[float, float] | None = None,
) -> None:
    first, base = view.first, view.samples[0]
    column = (axis, view.axes[axis], f" {view.axes[axis][0]}" if len(view.axes) > 1 else "")
    target = view.head(first, f"target{column[2]} (mm)")
    sheet.curve(panel, base, target, MM * first.target[:, axis], TARGET, BAND_WIDTH)
    if command:
        sent = MM * view.run.command[first.rows, axis]
        sheet.curve(panel, base, f"command{column[2]} (mm)", sent, COMMAND, 0.7)
    moved = [MM * test.displacement[:, axis] for test in view.tests]
    title = ("measured" if view.alone else "displacement", "mm")
    view.curves(sheet, panel, column, title, [*zip(view.samples, moved, strict=True)], 0.9, within)


QUANTITIES = (("displacement", "mm", MM), ("force", "kN", KN), ("absorbed", "J", 1.0))
PREDICTED: Entry = ("predicted", "#f0dfa8", "-")
NOMINAL: Entry = ("nominal", FAINT, DASHES)


def corridor(sheet: Sheet, view: View) -> Words | None:
    """Draw measured quantities over the predicted bands. Raises ConfigError if the corridor's file is missing."""
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
            (panel,), sheet_row = sheet.row(1.15), name + suffix
            lower, nominal, upper = (
                factor * values[number, samples, axis]
                for values in (predicted.lower, predicted.nominal, predicted.upper)
            )
            sheet.band(panel, base, f"{sheet_row}, predicted", unit, (lower, upper), PREDICTED[1])
            sheet.curve(panel, base, label(f"{sheet_row}, nominal", unit), nominal, NOMINAL, 0.7)
            sheet.curve(panel, base, label(sheet_row, unit), factor * measured[number, :, axis], entry, 0.9)
            view.time(sheet, panel, label(f"{entry[0]}\n{name}" if suffix else name, unit))
    view.legend(sheet, [PREDICTED, NOMINAL, *view.axes])
    caption = f"Predicted before the test: {predicted.source}."
    if watch.left is None:
        return "Corridor: never exceeded", caption
    sample, reason = watch.left
    return f"Corridor: exceeded at {run.time[sample]:.4g}\u00a0s", f"{reason}. {caption}"


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
