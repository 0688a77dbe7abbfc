# SPDX-License-Identifier: Apache-2.0
"""Figure of several runs: true displacements (if known), errors, synchronisation and compensator parameters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rths_nodes.analysis.figures.histories import labelled
from rths_nodes.analysis.figures.sheet import COLUMNS, Paper, Sheet, View, label, level, paper_of_style
from rths_nodes.analysis.figures.style import BAND, BAND_WIDTH, FAINT, LINES, ZERO
from rths_nodes.analysis.histories import Evaluation, strongest
from rths_nodes.analysis.overlay import Aligned
from rths_nodes.analysis.units import MM
from rths_nodes.core.samples import Array
from rths_nodes.recording.run import Run

SCREEN = Paper(width=9.6)
ACROSS = 4
ZOOM = 1.0
"""Duration of the magnified part of the displacements, s."""


def draw(runs: Sequence[tuple[str, Run]]) -> Figure:
    sheet, tests = (
        Sheet("compared", paper_of_style(SCREEN)),
        [Aligned(name, Evaluation(run)) for name, run in runs],
    )
    tests = [test for test in tests if test.drawable]
    if not tests:
        sheet.row(1.7)[0].set(xlabel="time (s)", ylabel="displacement (mm)")
        return sheet.finish()
    view = View(tests)
    moved = [MM * _true(test) for test in tests]
    errors = [MM * test.target - values for test, values in zip(tests, moved, strict=True)]
    back = sorted(range(len(tests)), key=lambda number: -float(np.abs(errors[number]).max()))
    begin, end = strongest(tests[back[0]].time, errors[back[0]], ZOOM)
    entire, near = sheet.row(1.7, 8, 4)
    for panel in (entire, near):
        panel.plot(tests[0].time, MM * tests[0].target, color=BAND, lw=BAND_WIDTH)
        view.time(sheet, panel, "displacement (mm)" if panel is entire else "")
    (off,) = sheet.row(1.7)
    view.time(sheet, off, "target − true (mm)")
    for number in back:  # the largest error is drawn at the back
        for panel, values in ((entire, moved), (near, moved), (off, errors)):
            _curves(view, number, panel, tests[number].time, values[number])
    entire.axvspan(begin, end, facecolor="none", edgecolor=FAINT, lw=0.8)
    near.set_xlim(begin, end)
    level(off, colour=ZERO)
    # a page of a journal has no room for more plots
    drawn = (
        len(tests) if sheet.paper is SCREEN else 0 if sheet.paper.stacked or len(tests) > ACROSS else len(tests)
    )
    for first in range(0, drawn, ACROSS):
        row = range(first, min(first + ACROSS, drawn))
        for number, panel in zip(row, sheet.row(1.65, *[COLUMNS // ACROSS] * len(row)), strict=True):
            _curves(view, number, panel, MM * tests[number].target, moved[number])
            panel.axline((0.0, 0.0), slope=1.0, color=FAINT, lw=0.6, zorder=1.5)
            panel.set_aspect("equal", adjustable="datalim")
            panel.margins(x=0.04)
            panel.set(
                xlabel="target (mm)", ylabel="true (mm)" if number == first else "", title=tests[number].name
            )
    _parameters(sheet, view)
    targets_differ = any(not np.array_equal(test.target, tests[0].target) for test in tests)
    # in a hybrid test the response, and with it the target, depends on the compensator
    sheet.legend([(f"target of {tests[0].name}" if targets_differ else "target", BAND, "-"), *view.entries])
    return sheet.finish()


def _true(test: Aligned) -> Array:
    true = test.run.true_displacement[test.rows]
    return true if np.isfinite(true).all() else test.displacement


def _curves(view: View, number: int, panel: Axes, x: Array, values: Array, width: float = 0.8) -> None:
    over = np.broadcast_to(x if x.ndim > 1 else x[:, None], values.shape)
    _, colour, line = view.entries[number]
    for axis, (across, column) in enumerate(zip(over.T, values.T, strict=True)):
        panel.plot(across, column, color=colour, ls=LINES[axis % len(LINES)] if axis else line, lw=width)


def _parameters(sheet: Sheet, view: View) -> None:
    panels: dict[str, Axes] = {}
    for number, test in enumerate(view.tests):
        for name, histories in test.of.parameters.items():
            last = name.rpartition(".")[2]
            title, factor = labelled(last, {last: test.of.state_units.get(name, "")})
            if last not in panels:
                (panels[last],) = sheet.row(1.1)
                view.time(sheet, panels[last], label(*title))
            values = factor * np.column_stack(list(histories.values()))[test.rows]
            _curves(view, number, panels[last], test.time, values, 1.0)
