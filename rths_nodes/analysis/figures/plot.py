# SPDX-License-Identifier: Apache-2.0
"""Plots of one quantity of a test on the caller's matplotlib axes, for notebooks and papers."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rths_nodes.analysis.figures.studies import Magnitudes, labelled
from rths_nodes.analysis.figures.style import (
    BAND,
    BAND_WIDTH,
    LINES,
    STYLE,
    PrintFigure,
    in_grey_lines,
    in_style,
    legend_above,
    on_paper,
    styled,
)
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.index_definitions import magnitude_title
from rths_nodes.analysis.overlay import Aligned
from rths_nodes.analysis.paper import COLUMN, PAPER, STYLES, check_width
from rths_nodes.analysis.study_table import StudyTable
from rths_nodes.core.errors import unknown
from rths_nodes.core.samples import Array
from rths_nodes.recording.columns import History, samples_of, steps_of
from rths_nodes.recording.run import Run

UNITS = {"m": (1e3, "mm"), "N": (1e-3, "kN"), "m/s^2": (1.0, "m/s²"), "1": (1.0, "")}
TRACKING, ERROR, LOOPS = "tracking", "error", "hysteresis"


def plot(
    run: Run, quantity: str, axes: Axes | None = None, style: str | None = None, width: float = COLUMN
) -> Axes:
    """Draw a quantity of ``run`` on ``axes``, by default on a new figure of matplotlib.pyplot.

    ``quantity`` is ``tracking`` (target and measured), ``error``, ``hysteresis``, or the name of an array.
    ``width`` (mm) is used only in the style ``paper``. Raises ConfigError if the quantity is unknown.
    """
    with _in(axes, style, width) as panel:
        _draw(run, quantity, panel)
    return panel


def _draw(run: Run, quantity: str, axes: Axes) -> None:
    histories = _histories(run)
    tracked = [TRACKING] if {"target", "displacement"} <= histories.keys() else []
    names = [*tracked, LOOPS, *histories]
    if quantity not in names:
        raise unknown("quantity", "quantity", quantity, names)
    if quantity == TRACKING:
        target = histories["target"]
        _lines(axes, run.time, target._replace(name="displacement"), "target", color=BAND, linewidth=BAND_WIDTH)
        _lines(axes, run.time, histories["displacement"], "measured")
    elif quantity == LOOPS:
        for column, (name, colour, line) in enumerate(styled(run.axes)):
            x, y = 1e3 * run.displacement[:, column], 1e-3 * run.force[:, column]
            axes.plot(x, y, color=colour, linestyle=line, linewidth=0.7, label=_in_words(name))
        axes.set(xlabel="displacement (mm)", ylabel="force (kN)")
        axes.margins(0.04)
    else:
        _lines(axes, _times(run, histories[quantity]), histories[quantity])
    _legend(axes)


def overlay(
    runs: Mapping[str, Run],
    quantity: str,
    axes: Axes | None = None,
    style: str | None = None,
    width: float = COLUMN,
) -> Axes:
    """Draw a quantity of several named runs, from the end of the soft start, on the structure's time axis.

    ``quantity`` is ``error``, ``hysteresis``, or the name of an array. Line styles distinguish axes or degrees of
    freedom. Raises ConfigError if a run lacks the quantity.
    """
    with _in(axes, style, width) as panel:
        _overlay(runs, quantity, panel)
    return panel


def _overlay(runs: Mapping[str, Run], quantity: str, axes: Axes) -> None:
    for (name, colour, _), run in zip(styled(runs), runs.values(), strict=True):
        histories = _histories(run)
        if quantity not in (LOOPS, *histories):
            raise unknown(f"{name}: quantity", "quantity", quantity, (LOOPS, *histories))
        drawn = histories["force" if quantity == LOOPS else quantity]
        aligned = Aligned(name, Evaluation(run))
        for column, line, title in zip(range(len(drawn.columns)), cycle(LINES), drawn.columns, strict=False):
            label = f"{name}, {_in_words(title)}" if len(drawn.columns) > 1 else name
            single = drawn._replace(values=drawn.values[:, column : column + 1], columns=(label,))
            if quantity == LOOPS:
                x, y = 1e3 * run.displacement[:, column], 1e-3 * run.force[:, column]
                axes.plot(x, y, color=colour, linestyle=line, linewidth=0.7, label=label)
            else:
                time = aligned.at(_times(run, drawn))
                _lines(axes, time, single, label, color=colour, linestyle=line)
    if quantity == LOOPS:
        axes.set(xlabel="displacement (mm)", ylabel="force (kN)")
    _legend(axes)


def _times(run: Run, history: History) -> Array:
    return run.time if len(history.values) == len(run.time) else run.step_time


def _histories(run: Run) -> dict[str, History]:
    error = History("control error", run.target - run.displacement, "m", run.axes)
    return {ERROR: error} | {row.name: row for row in (*samples_of(run), *steps_of(run)) if row.columns}


def _legend(axes: Axes) -> None:
    if len(axes.lines) > 1:
        legend_above(axes)


def plot_by_label(
    table: StudyTable,
    index: str,
    rows: Mapping[str, Sequence[int]],
    axes: Axes | None = None,
    style: str | None = None,
    width: float = COLUMN,
) -> Axes:
    if index not in table.columns:
        raise unknown("index", "index", index, table.indices)
    size = table.magnitudes(index)
    sizes = {label or table.title: size[list(numbers)] for label, numbers in rows.items()}
    with _in(axes, style, width) as panel:
        labelled(panel, sizes, magnitude_title(index), Magnitudes.by_label(sizes))
    return panel


@contextmanager
def _in(axes: Axes | None, style: str | None, width: float) -> Iterator[Axes]:
    if style is not None and style not in STYLES:
        raise unknown("style", "style", style, STYLES)
    if style is None:
        yield axes or _new(Figure)
        return
    check_width(width)
    with in_style(on_paper(width) if style == PAPER else STYLE):
        panel = axes or _new(PrintFigure if style == PAPER else Figure)
        yield panel
        if style == PAPER:
            in_grey_lines(panel)


def _new(kind: type[Figure]) -> Axes:
    from matplotlib import pyplot

    axes: Axes = pyplot.subplots(layout="constrained", FigureClass=kind)[1]
    return axes


def _lines(axes: Axes, time: Array, history: History, prefix: str = "", **style: object) -> None:
    factor, unit = UNITS.get(history.unit, (1.0, history.unit))
    title = history.name.removeprefix("dof_").replace("_", " ")
    several = len(history.columns) > 1
    for (name, colour, line), values in zip(styled(history.columns), history.values.T, strict=True):
        label = "target" if prefix == "target" else f"{prefix} {_in_words(name)}".strip() if several else prefix
        look = {"color": colour, "linestyle": line} | style
        axes.plot(time[: len(values)], factor * values, label=label, **look)
    axes.set(xlabel="time (s)", ylabel=f"{title} ({unit})" if unit else title)
    axes.margins(x=0.0)


def _in_words(name: str) -> str:
    return name.removeprefix("axes.").replace("_", " ").replace(".", ": ")


def picture(run: Run, quantities: Sequence[str], width: float = 7.4) -> str:
    """Return a PNG of ``run``, as a data URL for HTML, with one panel per quantity."""
    with in_style(STYLE | {"savefig.dpi": 100.0}), io.BytesIO() as buffer:
        figure = Figure(figsize=(width, 1.9 * len(quantities)), layout="constrained")
        panels = np.atleast_1d(figure.subplots(len(quantities), 1))
        for panel, quantity in zip(panels, quantities, strict=True):
            plot(run, quantity, panel)
        figure.savefig(buffer)
        return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
