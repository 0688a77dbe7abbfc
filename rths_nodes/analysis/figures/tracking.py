# SPDX-License-Identifier: Apache-2.0
"""Figures of the tracking near the largest target and the fastest zero crossing, and figure of a corridor."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes

from rths_nodes.analysis.figures.drawing import Base, Drawing, Recordings, Row, Words, label, suffix_of
from rths_nodes.analysis.figures.style import DASHES, FAINT, INK, TARGET, Look
from rths_nodes.analysis.histories import Evaluation, Indices
from rths_nodes.analysis.units import KN, MM, quantity
from rths_nodes.core.samples import Array
from rths_nodes.loop.supervision.corridor import Corridor, CorridorWatch, load, quantities

AT_PEAK, AT_ZERO = 0.1, 0.04
"""Half widths of the zooms, in periods of the target."""
LEAST = 12
"""Smallest half width of a zoom, samples."""
COMMAND: Look = {"color": INK, "ls": DASHES, "label": "command"}


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


def zooms(figure: Drawing, tests: Recordings) -> Words | None:
    run, samples, captions = tests.run, tests.of.counted, []
    spots = {axis: zoom for axis in range(len(run.axes)) if (zoom := places(tests.of, axis)) is not None}
    if not spots:
        return None
    panels = figure.panels(len(spots), 2, 1.2 if len(run.axes) > 1 else 2.0)
    for pair, (axis, zoom) in zip(panels, spots.items(), strict=True):
        suffix = suffix_of(run.axes, axis)
        for panel, (first, last), where in zip(pair, zoom, ("peak", "crossing of zero"), strict=True):
            cut = samples[first : last + 1]
            title = f"{suffix} (mm)".strip() if suffix else "displacement (mm)"
            tests.time(panel, title if panel is pair[0] else "")
            panel.set(xlim=(float(run.time[cut[0]]), float(run.time[cut[-1]])), title=where)
            followed(figure, tests, panel, axis, slice(cut[0], cut[-1] + 1))
            error = np.abs(run.target[cut, axis] - run.displacement[cut, axis])
            off = quantity(float(error.max()), MM, "mm")
            captions.append(f"{suffix} within {off} at the {where}".strip())
    caption = "A delay is visible at the zero crossing, an amplitude error at the peak. Dots: single samples."
    return f"Tracking in detail: {', '.join(captions[:2])}", caption


def followed(
    figure: Drawing, tests: Recordings, panel: Axes, axis: int, rows: slice | None = None, command: bool = True
) -> None:
    """Draw target, command and measured displacement of an axis; ``rows`` as in ``Drawing.curve``."""
    first, base, suffix = tests.first, tests.samples[0], suffix_of(tests.axes, axis)
    head, target = f"target{suffix} (mm)", MM * first.target[:, axis]
    look = TARGET if tests.alone else TARGET | {"label": f"target of {first.name}"}
    figure.curve(panel, base, tests.head(first, head), target, rows=rows, **look)
    name = "measured" if tests.alone else "displacement"
    moved = [MM * test.displacement.T for test in tests.tests]
    row = Row(name, "mm", tests.axes, [*zip(tests.samples, moved, strict=True)])
    tests.curves(figure, panel, row, axis, rows, label=f"measured{suffix}")
    if command:
        sent = MM * tests.run.command[first.rows, axis]
        figure.curve(panel, base, f"command{suffix} (mm)", sent, rows=rows, **COMMAND)


QUANTITIES = (("displacement", "mm", MM), ("force", "kN", KN), ("absorbed", "J", 1.0))
PREDICTED = "#f0dfa8"
NOMINAL: Look = {"color": FAINT, "ls": DASHES, "label": "nominal"}


def corridor(figure: Drawing, tests: Recordings) -> Words | None:
    """Draw measured quantities over the predicted bands. Raises ConfigError if the corridor's file is missing."""
    run, file = tests.run, tests.run.scenario.monitor.corridor
    if file is None:
        return None
    predicted = load(file, run.axes, run.scenario.servo_rate, 0)
    samples = tests.of.counted[tests.of.counted <= predicted.samples]
    measured, watch = _measured(tests, predicted, samples)
    base, n = Base("samples", run.time[samples]), len(QUANTITIES)
    panels = figure.panels(n * len(tests.axes), height=1.1, sharex=True)[:, 0]
    for row, panel in enumerate(panels):
        axis, number = divmod(row, n)
        (name, unit, factor), axis_name = QUANTITIES[number], run.axes[axis]
        title = name + suffix_of(tests.axes, axis)
        lower, nominal, upper = (
            factor * values[number, samples, axis]
            for values in (predicted.lower, predicted.nominal, predicted.upper)
        )
        band = label(f"{title}, predicted, {{}}", unit)
        figure.band(panel, base, band, (lower, upper), PREDICTED, "predicted")
        figure.curve(panel, base, label(f"{title}, nominal", unit), nominal, **NOMINAL)
        look = tests.axes[axis_name] | {"label": axis_name}
        figure.curve(panel, base, label(title, unit), factor * measured[number, :, axis], **look)
        tests.time(panel, label(f"{axis_name}\n{name}" if len(tests.axes) > 1 else name, unit))
    caption = f"Predicted before the test: {predicted.source}."
    if watch.left is None:
        return "Corridor: never exceeded", caption
    sample, reason = watch.left
    return f"Corridor: exceeded at {run.time[sample]:.4g}\u00a0s", f"{reason}. {caption}"


def _measured(tests: Recordings, corridor: Corridor, samples: Indices) -> tuple[Array, CorridorWatch]:
    run, first = tests.run, tests.of.first_sample
    watch = CorridorWatch(corridor, math.ceil(run.scenario.monitor.corridor_persistence / run.scenario.dt))
    base = max(0, first - 1)
    rows = np.concatenate(([base], samples)) if len(samples) else samples
    if first:
        watch.start(run.displacement[base].tolist(), run.force[base].tolist())
    for sample in samples.tolist():
        watch.step(sample, run.displacement[sample].tolist(), run.force[sample].tolist())
    return quantities(run.displacement[rows], run.force[rows]), watch
