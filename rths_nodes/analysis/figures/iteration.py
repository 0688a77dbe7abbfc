# SPDX-License-Identifier: Apache-2.0
"""Figure of an iterative test: convergence, drift of the specimens, inverse with its bands, and last run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from rths_nodes.analysis.figures.style import BAND, BAND_WIDTH, FAINT, LIMIT, LINES, PALETTE, legend_above, styled
from rths_nodes.analysis.histories import strongest
from rths_nodes.analysis.iteration.convergence import SOFTER, Row
from rths_nodes.analysis.iteration.learning import Inverse
from rths_nodes.analysis.units import MM, PERCENT
from rths_nodes.recording.run import Run

SIZE = (9.6, 5.6)
ERRORS = {"error": "measured", "noise": "noise", "residual": "repeatable", "true": "true displacement"}
ZOOM = 2.0
"""Displayed duration of the last run, around its strongest motion, s."""


def draw(rows: Sequence[Row], inverse: Inverse | None, last: Run, title: str) -> Figure:
    figure = Figure(figsize=SIZE, layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", fontsize=8.5)
    (error, drift), (bands, moved) = figure.subplots(2, 2)
    numbers = [row.number for row in rows]
    curves = [(entry, [getattr(row, name) for row in rows]) for name, entry in ERRORS.items()]
    shown = [(entry, values) for entry, values in curves if np.isfinite(values).any()]
    for (label, colour, line), (_, values) in zip(styled(name for name, _ in shown), shown, strict=True):
        error.plot(numbers, values, color=colour, ls=line, marker="o", ms=3.5, label=label)
    error.set(yscale="log", xlabel="run", ylabel="rms (% of the target's rms)", xticks=numbers)
    legend_above(error, "Convergence", 2)
    axes = list(rows[0].answer)
    for label, colour, line in styled(axes):
        values = [PERCENT * (row.answer.get(label, np.nan) - 1.0) for row in rows]
        drift.plot(numbers, values, color=colour, ls=line, marker="o", ms=3.5, label=label)
    drift.axhline(-PERCENT * SOFTER, color=LIMIT, lw=0.8)
    drift.set(xlabel="run", ylabel="change since run 1 (%)", xticks=numbers)
    legend_above(drift, "Force for the same motion", 2)
    if inverse is not None and len(inverse.bands):
        for column, label, colour in ((0, "with noise", PALETTE[1]), (1, "without noise", PALETTE[0])):
            bands.plot(inverse.bands, inverse.left[:, column], color=colour, label=label)
        for end, line, text in (
            (inverse.learned_to, LINES[1], "end of Q"),
            (inverse.known_to, LINES[2], "end of W"),
        ):
            bands.axvline(end, color=FAINT, ls=line, lw=0.8, label=text)
        bands.set(xscale="log", yscale="log", ylim=(1e-3, 2.0), xlim=(inverse.bands[0], 4.0 * inverse.known_to))
        bands.set(xlabel="frequency (Hz)", ylabel="factor |1 − L T|")
        legend_above(bands, "Remaining fraction of an error", 2)
    for panel in (error.yaxis, bands.xaxis, bands.yaxis):
        panel.set_major_formatter("{x:g}")
        panel.set_minor_formatter(NullFormatter())
    _last(moved, last)
    return figure


def _last(panel: Axes, last: Run) -> None:
    begin, end = strongest(last.time, last.target, ZOOM)
    part = (last.time >= begin) & (last.time <= end)
    for axis, name in enumerate(last.axes):
        line = LINES[axis % len(LINES)]
        suffix = f" {name}" if len(last.axes) > 1 else ""
        target, measured = MM * last.target[part, axis], MM * last.displacement[part, axis]
        panel.plot(last.time[part], target, color=BAND, ls=line, lw=BAND_WIDTH, label=f"target{suffix}")
        panel.plot(last.time[part], measured, color=PALETTE[0], ls=line, lw=0.8, label=f"measured{suffix}")
    panel.set(xlabel="time (s)", ylabel="displacement (mm)")
    legend_above(panel, "Last run", 2)
