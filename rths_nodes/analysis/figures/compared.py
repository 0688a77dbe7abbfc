# SPDX-License-Identifier: Apache-2.0
"""The figure of several runs: displacements, control errors, synchronisation, parameters of the compensators.

The displacement is the true one where a simulator told it. Each run has a colour, each axis a line style.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rths_nodes.analysis.figures import thinning
from rths_nodes.analysis.figures.histories import labelled
from rths_nodes.analysis.figures.plan import (
    DISPLACEMENT,
    TIME,
    ZERO_LINE,
    Curve,
    Look,
    Panel,
    Plan,
    Quantity,
)
from rths_nodes.analysis.figures.render import Layout, render
from rths_nodes.analysis.figures.sheet import View
from rths_nodes.analysis.figures.style import BAND, BAND_WIDTH, LINES, Entry, save
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.overlay import Aligned
from rths_nodes.analysis.units import MM
from rths_nodes.core.samples import Array
from rths_nodes.recording.run import Run

LAYOUT = Layout(width=9.6, left=0.82, right=0.18, bottom=0.5, gap=0.16, title=0.22, label=0.58)
ACROSS = 4
"""Synchronisation plots in a row."""
SIDE = 1.65
"""Height of one of them, inches."""
ZOOM = 1.0
"""Seconds of the magnified part of the displacements."""


def write(runs: Sequence[tuple[str, Run]], path: Path) -> None:
    """Draw ``runs``, each with its name, into the file ``path`` (PNG, SVG, PDF by its suffix). Raises OSError."""
    save(lambda: render(plan(runs), LAYOUT), path)


def plan(runs: Sequence[tuple[str, Run]]) -> Plan:
    """The figure; a run of which no sample counts is left out."""
    tests = [test for test in (Aligned(name, Evaluation(run)) for name, run in runs) if test.drawable]
    if not tests:
        return Plan("compared", "", "", [[Panel(TIME, DISPLACEMENT, [])]], [1.7])
    view = View(tests)
    moved = [MM * _true(test) for test in tests]
    errors = [MM * test.target - each for test, each in zip(tests, moved, strict=True)]
    worst = [float(np.abs(error).max()) for error in errors]
    back = sorted(range(len(tests)), key=lambda number: -worst[number])  # the largest error lies at the back
    zoom = thinning.strongest(tests[back[0]].time, errors[back[0]], ZOOM)
    target = Look(BAND, "-", BAND_WIDTH)
    shown = [Curve(view.samples[0], DISPLACEMENT, column, target) for column in MM * tests[0].target.T]
    shown += [curve for number in back for curve in _curves(view, number, DISPLACEMENT, moved[number])]
    whole = view.panel(DISPLACEMENT, shown, frame=zoom)
    of = Quantity("target − true", "mm")
    off = [curve for number in back for curve in _curves(view, number, of, errors[number])]
    subspaces = [_subspace(view, number, moved[number]) for number in range(len(tests))]
    rows = [subspaces[first : first + ACROSS] for first in range(0, len(tests), ACROSS)]
    parameters = _parameters(view)
    own = any(not np.array_equal(test.target, tests[0].target) for test in tests)
    # in a hybrid test the response, and with it the target, depends on the compensator
    legend: list[Entry] = [(f"target of {tests[0].name}" if own else "target", BAND, "-"), *view.entries]
    return Plan(
        "compared",
        "",
        "",
        [
            [whole, Panel(TIME, DISPLACEMENT, shown, span=zoom, over_time=True)],
            [view.panel(of, off, levels=[ZERO_LINE])],
            *rows,
            *([panel] for panel in parameters),
        ],
        [1.7, 1.7, *[SIDE] * len(rows), *[1.1] * len(parameters)],
        legend,
        widths=(2.1, 1.0),
        across=ACROSS,
    )


def _true(test: Aligned) -> Array:
    """Displacement ``(n, n_axes)`` m: the true one where it is known."""
    true = test.run.true_displacement[test.rows]
    return true if np.isfinite(true).all() else test.displacement


def _curves(view: View, number: int, of: Quantity, values: Array, width: float = 0.8) -> list[Curve]:
    return [
        Curve(view.samples[number], of, column, Look(view.entries[number][1], LINES[axis % len(LINES)], width))
        for axis, column in enumerate(values.T)
    ]


def _subspace(view: View, number: int, moved: Array) -> Panel:
    """The true displacement of a run over its target, with the line of a perfect actuator at 45 degrees."""
    target, over, of = MM * view.tests[number].target, Quantity("target", "mm"), Quantity("true", "mm")
    ends = [float(pick([pick(target), pick(moved)])) for pick in (np.min, np.max)]
    shown = [
        Curve(curve.base, of, curve.values, curve.look, over, column)
        for curve, column in zip(_curves(view, number, of, moved), target.T, strict=True)
    ]
    name = view.tests[number].name
    return Panel(over, of, shown, name, diagonal=(ends[0], ends[1]), square=True)


def _parameters(view: View) -> list[Panel]:
    found: dict[str, list[Curve]] = {}
    for number, test in enumerate(view.tests):
        for name, histories in test.of.parameters.items():
            last = name.rpartition(".")[2]
            of, factor = labelled(last, {last: test.of.state_units.get(name, "")})
            values = factor * np.column_stack(list(histories.values()))[test.rows]
            found.setdefault(last, []).extend(_curves(view, number, of, values, 1.0))
    return [view.panel(curves[-1].of, curves) for curves in found.values()]
