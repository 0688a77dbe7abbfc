# SPDX-License-Identifier: Apache-2.0
"""Figure of an iterative test: convergence, drift of the specimens, inverse with its bands, last run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from rths_nodes.analysis.figures.style import BAND, BAND_WIDTH, FAINT, LIMIT, LINES, PALETTE, styled
from rths_nodes.analysis.histories import strongest
from rths_nodes.analysis.iteration.convergence import SOFTER, Row
from rths_nodes.analysis.iteration.learning import Inverse
from rths_nodes.analysis.units import MM, PERCENT
from rths_nodes.recording.run import Run

SIZE = (9.6, 5.6)
"""Inches."""
ZOOM = 2.0
"""Displayed duration of the last run, at its strongest motion, s."""


def draw(rows: Sequence[Row], inverse: Inverse | None, last: Run, title: str) -> Figure:
    """Draw four panels; target and measured displacement are those in ``last``, the last run."""
    figure = Figure(figsize=SIZE, layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", fontsize=8.5)
    (error, drift), (bands, moved) = figure.subplots(2, 2)
    numbers = [row.number for row in rows]
    curves = [(name, [getattr(row, name) for row in rows]) for name in ("error", "noise", "residual", "true")]
    shown = [(name, values) for name, values in curves if np.isfinite(values).any()]
    for (label, colour, line), (_, values) in zip(styled(name for name, _ in shown), shown, strict=True):
        error.plot(numbers, values, color=colour, ls=line, marker="o", ms=3.5, label=label)
    error.set(yscale="log", xlabel="run", ylabel="% of the target, rms", title="convergence", xticks=numbers)
    error.legend(fontsize=7.0)
    axes = list(rows[0].answer)
    for label, colour, line in styled(axes):
        values = [PERCENT * (row.answer.get(label, np.nan) - 1.0) for row in rows]
        drift.plot(numbers, values, color=colour, ls=line, marker="o", ms=3.5, label=label)
    drift.axhline(-PERCENT * SOFTER, color=LIMIT, lw=0.8)
    drift.set(xlabel="run", ylabel="change since run 1 (%)", title="force for the same motion", xticks=numbers)
    drift.legend(fontsize=7.0)
    if inverse is not None and len(inverse.bands):
        for column, label, colour in ((0, "with noise", PALETTE[1]), (1, "without", PALETTE[0])):
            bands.plot(inverse.bands, inverse.left[:, column], color=colour, label=label)
        for end, symbol in ((inverse.learned_to, "Q"), (inverse.known_to, "W")):
            bands.axvline(end, color=FAINT, lw=0.8)
            bands.annotate(symbol, (end, 1.5), fontsize=7.0)
        bands.set(xscale="log", yscale="log", ylim=(1e-3, 2.0), xlim=(inverse.bands[0], 4.0 * inverse.known_to))
        bands.set(xlabel="frequency (Hz)", ylabel="|1 - L T|", title="left of an error from run to run")
        bands.legend(fontsize=7.0)
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
        panel.plot(last.time[part], MM * last.target[part, axis], color=BAND, ls=line, lw=BAND_WIDTH)
        panel.plot(
            last.time[part], MM * last.displacement[part, axis], color=PALETTE[0], ls=line, lw=0.8, label=name
        )
    panel.set(xlabel="time (s)", ylabel="displacement (mm)", title="target and measured, last run")
    panel.legend(fontsize=7.0)
