# SPDX-License-Identifier: Apache-2.0
"""Figure of several runs: true displacements (if known), errors and parameters, entire and magnified."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rths_nodes.analysis.figures.drawing import Drawing, Recordings, label, level
from rths_nodes.analysis.figures.histories import labelled
from rths_nodes.analysis.figures.style import FAINT, LINES, TARGET
from rths_nodes.analysis.histories import Evaluation, strongest
from rths_nodes.analysis.overlay import Aligned
from rths_nodes.analysis.units import MM
from rths_nodes.core.samples import Array
from rths_nodes.recording.run import Run

ZOOM = 1.0
"""Duration of the magnified part, s."""


def draw(runs: Sequence[tuple[str, Run]]) -> Drawing:
    figure = Drawing()
    aligned = [test for name, run in runs if (test := Aligned(name, Evaluation(run))).drawable]
    if not aligned:
        figure.panels(1)[0, 0].set(xlabel="time (s)", ylabel="displacement (mm)")
        return figure
    tests, first = Recordings(aligned), aligned[0]
    moved = {test.name: MM * _true(test) for test in aligned}
    errors = {test.name: MM * test.target - moved[test.name] for test in aligned}
    back = sorted(aligned, key=lambda test: -float(np.abs(errors[test.name]).max()))
    begin, end = strongest(back[0].time, errors[back[0].name], ZOOM)
    rows = {"displacement (mm)": moved, "target − true (mm)": errors} | _parameters(aligned)
    panels = figure.panels(len(rows), 2, 1.6, 9.6, width_ratios=(2, 1), sharex="col")
    # in a hybrid test the response, and with it the target, depends on the compensator
    same = all(np.array_equal(test.target, first.target) for test in aligned)
    target = TARGET | {"label": "target" if same else f"target of {first.name}"}
    for pair, (title, values) in zip(panels, rows.items(), strict=True):
        for panel in pair:
            tests.time(panel, title if panel is pair[0] else "")
            if values is moved:
                panel.plot(first.time, MM * first.target, **target)
            for test in back:  # the largest error is drawn at the back
                for axis, column in enumerate(values[test.name].T if test.name in values else ()):
                    look = tests.looks[test.name] | ({"ls": LINES[axis % len(LINES)]} if axis else {})
                    panel.plot(test.time, column, label=test.name, **look)
        if values is errors:
            level(pair[0])
        pair[0].axvspan(begin, end, facecolor="none", edgecolor=FAINT, lw=0.8)
        pair[1].set_xlim(begin, end)
    figure.finish()
    return figure


def _true(test: Aligned) -> Array:
    true = test.run.true_displacement[test.rows]
    return true if np.isfinite(true).all() else test.displacement


def _parameters(tests: Sequence[Aligned]) -> dict[str, dict[str, Array]]:
    rows: dict[str, dict[str, Array]] = {}
    for test in tests:
        for name, histories in test.of.parameters.items():
            last = name.rpartition(".")[2]
            title, factor = labelled(last, {last: test.of.state_units.get(name, "")})
            values = factor * np.column_stack([*histories.values()])[test.rows]
            rows.setdefault(label(*title), {})[test.name] = values
    return rows
