# SPDX-License-Identifier: Apache-2.0
"""Figure of an iterative test: convergence, drift of the specimens, inverse with its bands, and last run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from rths_nodes.analysis.figures.drawing import Drawing, legend_above, level
from rths_nodes.analysis.figures.style import FAINT, LIMIT, LINES, PALETTE, TARGET, styled
from rths_nodes.analysis.histories import strongest
from rths_nodes.analysis.iteration.convergence import SOFTER, Row
from rths_nodes.analysis.iteration.learning import Inverse
from rths_nodes.analysis.units import MM, PERCENT
from rths_nodes.recording.run import Run

ERRORS = {"error": "measured", "noise": "noise", "residual": "repeatable", "true": "true displacement"}
ZOOM = 2.0
"""Displayed duration of the last run, around its strongest motion, s."""


def draw(rows: Sequence[Row], inverse: Inverse | None, last: Run, title: str) -> Drawing:
    figure = Drawing()
    figure.head(title)
    (error, drift), (bands, moved) = figure.panels(2, 2, 2.8, 9.6)
    numbers = [row.number for row in rows]
    errors = {label: [getattr(row, name) for row in rows] for name, label in ERRORS.items()}
    errors = {label: values for label, values in errors.items() if np.isfinite(values).any()}
    answers = {axis: [PERCENT * (row.answer.get(axis, np.nan) - 1.0) for row in rows] for axis in rows[0].answer}
    for panel, curves in ((error, errors), (drift, answers)):
        for label, look in styled(curves).items():
            panel.plot(numbers, curves[label], marker="o", ms=3.5, label=label, **look)
        panel.set(xlabel="run", xticks=numbers)
    error.set(yscale="log", ylabel="rms (% of the target's rms)")
    drift.set_ylabel("change since run 1 (%)")
    level(drift, -PERCENT * SOFTER, LIMIT)
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
    for axis in (error.yaxis, bands.xaxis, bands.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())
    _last(moved, last)
    titles = ("Convergence", "Force for the same motion", "Remaining fraction of an error", "Last run")
    for panel, words in zip((error, drift, bands, moved), titles, strict=True):
        legend_above(panel, words, 2)
    return figure


def _last(panel: Axes, last: Run) -> None:
    begin, end = strongest(last.time, last.target, ZOOM)
    part = (last.time >= begin) & (last.time <= end)
    for axis, name in enumerate(last.axes):
        line, suffix = LINES[axis % len(LINES)], f" {name}" if len(last.axes) > 1 else ""
        target, measured = MM * last.target[part, axis], MM * last.displacement[part, axis]
        panel.plot(last.time[part], target, **(TARGET | {"ls": line, "label": f"target{suffix}"}))
        panel.plot(last.time[part], measured, color=PALETTE[0], ls=line, label=f"measured{suffix}")
    panel.set(xlabel="time (s)", ylabel="displacement (mm)")
