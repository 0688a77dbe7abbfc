"""One figure of several runs: displacements, control errors, synchronisation, parameters of the compensators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rths_nodes.analysis.figures import thinning
from rths_nodes.analysis.figures.histories import labelled
from rths_nodes.analysis.figures.plan import COLUMNS
from rths_nodes.analysis.figures.sheet import at_zero, curve, plot
from rths_nodes.analysis.figures.style import BAND, BAND_WIDTH, FAINT, LINES, Entry, save, styled
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.units import MM
from rths_nodes.core.samples import Array
from rths_nodes.recording.run import Run

WIDTH, LEFT, RIGHT, GAP = 9.6, 0.82, 0.18, 0.16
"""Width of the figure, its margins and the gap between two panels over one time axis, inches."""
BELOW = 0.5
"""Room for numbers and label of a time axis, inches."""
LABEL = 0.58
"""From the vertical axis to its label, inches: the labels stand below one another."""
ACROSS = 4
"""Synchronisation plots in a row."""
ZOOM = 1.0
"""Seconds of the magnified part of the displacements."""


class _Curves:
    """What is drawn of a run: the samples that count, from the beginning of the test, true displacement in mm."""

    def __init__(self, run: Run, entry: Entry) -> None:
        self.of = Evaluation(run)
        samples = self.of.counted
        self.name, self.colour = entry[0], entry[1]
        self.samples = samples
        self.time = run.time[samples] - run.time[samples[:1]]
        true = run.true_displacement[samples]
        self.moved = MM * (true if np.isfinite(true).all() else run.displacement[samples])
        self.target = MM * run.target[samples]
        self.error = self.target - self.moved


def write(runs: Sequence[tuple[str, Run]], path: Path) -> None:
    """Draw ``runs``, each with its name, into the file ``path`` (PNG, SVG, PDF by its suffix). Raises OSError."""
    save(lambda: draw(runs), path)


def draw(runs: Sequence[tuple[str, Run]]) -> Figure:
    """The figure; a run of which no sample counts is left out."""
    entries = styled(name for name, _ in runs)
    shown = [_Curves(run, entry) for (_, run), entry in zip(runs, entries, strict=True)]
    shown = [curves for curves in shown if len(curves.time) > 1]
    quantities = _quantities(shown)
    rows = math.ceil(len(shown) / ACROSS)
    side = _inside() / max(ACROSS, 1) - 0.5
    heights = [1.7, 1.7] + [side] * rows + [1.1] * len(quantities)
    page = _Page(heights, rows)
    page.legend(shown)
    _displacements(page, shown)
    _errors(page, shown)
    _synchronisation(page, shown, rows)
    _parameters(page, shown, quantities)
    return page.figure


def _inside() -> float:
    return WIDTH - LEFT - RIGHT


class _Page:
    """A figure that is filled from the top, in inches."""

    def __init__(self, heights: Sequence[float], rows: int) -> None:
        parameters = len(heights) - 2 - rows
        self.height = 0.34 + sum(heights) + 2 * BELOW + rows * (BELOW + 0.22)
        self.height += parameters * GAP + (BELOW - GAP if parameters else 0.0)
        self.figure = Figure(figsize=(WIDTH, self.height))
        self._top = 0.34

    def down(self, by: float) -> None:
        """Leave room."""
        self._top += by

    def row(self, height: float, widths: Sequence[float], between: float) -> list[Any]:
        """Panels side by side; their widths are shares of what is left by the gaps ``between``, inches."""
        room = (_inside() - between * (len(widths) - 1)) / sum(widths)
        bottom, left, panels = self.height - self._top - height, LEFT, []
        for share in widths:
            place = (left / WIDTH, bottom / self.height, share * room / WIDTH, height / self.height)
            panels.append(self.figure.add_axes(place))
            left += share * room + between
        self._top += height
        panels[0].yaxis.set_label_coords(-LABEL / (widths[0] * room), 0.5)
        return panels

    def legend(self, shown: Sequence[_Curves]) -> None:
        if not shown:
            return
        lines = [Line2D([], [], color=BAND, lw=BAND_WIDTH)]
        lines += [Line2D([], [], color=curves.colour, lw=1.4) for curves in shown]
        own = any(curves.target.shape != shown[0].target.shape for curves in shown)
        own = own or any((curves.target != shown[0].target).any() for curves in shown)
        # in a hybrid test the response, and with it the target, depends on the compensator
        labels = [f"target of {shown[0].name}" if own else "target", *(curves.name for curves in shown)]
        place = {"loc": "upper left", "bbox_to_anchor": (LEFT / WIDTH - 0.01, 1.0), "borderaxespad": 0.3}
        self.figure.legend(lines, labels, ncols=len(labels), handlelength=1.8, columnspacing=1.4, **place)


def _displacements(page: _Page, shown: Sequence[_Curves]) -> None:
    """The whole test on the left, the time of the largest errors on the right."""
    panels = page.row(1.7, (2.1, 1.0), 0.45)
    panels[0].set_ylabel("displacement (mm)")
    for panel in panels:
        panel.set_xlabel("time (s)")
    page.down(BELOW)
    if not shown:
        return
    worst = _worst_first(shown)[0]
    end = max(curves.time[-1] for curves in shown)
    zoom = thinning.strongest(worst.time, worst.error, ZOOM)
    for panel, (first, last) in zip(panels, ((0.0, end), zoom), strict=True):
        panel.set_xlim(first, last)
        _lines(panel, shown[0], shown[0].target, BAND, BAND_WIDTH, (first, last))
        for curves in _worst_first(shown):
            _lines(panel, curves, curves.moved, curves.colour, 0.8, (first, last))
    panels[0].axvspan(*zoom, facecolor="none", edgecolor=FAINT, lw=0.8)


def _worst_first(shown: Sequence[_Curves]) -> list[_Curves]:
    """In the order of drawing: the largest error lies at the back."""
    return sorted(shown, key=lambda curves: -float(np.abs(curves.error).max()))


def _errors(page: _Page, shown: Sequence[_Curves]) -> None:
    """Over one another, the largest at the back."""
    (panel,) = page.row(1.7, (1.0,), 0.0)
    for curves in _worst_first(shown):
        _lines(panel, curves, curves.error, curves.colour, 0.8)
    at_zero(panel)
    panel.set_xlim(0.0, max((curves.time[-1] for curves in shown), default=1.0))
    panel.set_ylabel("target − true (mm)")
    panel.set_xlabel("time (s)")
    page.down(BELOW)


def _synchronisation(page: _Page, shown: Sequence[_Curves], rows: int) -> None:
    """One plot for each run, all of one scale: the true displacement over the target."""
    side = _inside() / ACROSS - 0.5
    for row in range(rows):
        page.down(0.22)
        part = shown[row * ACROSS : (row + 1) * ACROSS]
        panels = page.row(side, (1.0,) * ACROSS, 0.5)
        for panel, curves in zip(panels, part, strict=False):
            for axis in range(curves.target.shape[1]):
                style = {"color": curves.colour, "ls": LINES[axis % len(LINES)], "lw": 0.8}
                _subspace(panel, curves.target[:, axis], curves.moved[:, axis], style)
            panel.set_title(curves.name, fontsize=8.0)
            panel.set_xlabel("target (mm)")
        panels[0].set_ylabel("true (mm)")
        for panel in panels[len(part) :]:
            panel.remove()
        page.down(BELOW)


def _subspace(panel: Any, target: Array, moved: Array, style: dict[str, Any]) -> None:
    """Displacement over target ``(n,)`` mm, with the line of a perfect actuator at 45 degrees."""
    curve(panel, target, moved, **style)
    ends = [min(target.min(), moved.min()), max(target.max(), moved.max())]
    panel.plot(ends, ends, color=FAINT, lw=0.6, zorder=1.5)
    panel.set_aspect("equal", adjustable="datalim")
    panel.margins(x=0.04)


def _quantities(shown: Sequence[_Curves]) -> list[str]:
    """Names of the parameters that any of the compensators has, whichever stage of a chain they belong to."""
    names = (name for curves in shown for name in curves.of.parameters)
    return list(dict.fromkeys(name.rpartition(".")[2] for name in names))


def _parameters(page: _Page, shown: Sequence[_Curves], quantities: Sequence[str]) -> None:
    """One panel for each quantity, in which all runs that have it are drawn."""
    for number, quantity in enumerate(quantities):
        (panel,) = page.row(1.1, (1.0,), 0.0)
        for curves in shown:
            units = curves.of.state_units
            for name, histories in curves.of.parameters.items():
                if name.rpartition(".")[2] == quantity:
                    label, factor = labelled(quantity, {quantity: units.get(name, "")})
                    values = factor * np.column_stack(list(histories.values()))[curves.samples]
                    _lines(panel, curves, values, curves.colour, 1.0)
                    panel.set_ylabel(str(label))
        panel.set_xlim(0.0, max(curves.time[-1] for curves in shown))
        last = number == len(quantities) - 1
        panel.tick_params(labelbottom=last)
        if last:
            panel.set_xlabel("time (s)")
        else:
            page.down(GAP)


def _lines(
    panel: Any,
    curves: _Curves,
    values: Array,
    colour: str,
    lw: float,
    span: tuple[float, float] = (0.0, math.inf),
) -> None:
    """One history per column, with the line style of its axis; only what lies in ``span`` (s)."""
    inside = (curves.time >= span[0]) & (curves.time <= span[1])
    for axis, column in enumerate(values[inside].T):
        plot(panel, curves.time[inside], column, COLUMNS, color=colour, lw=lw, ls=LINES[axis % len(LINES)])
