# SPDX-License-Identifier: Apache-2.0
"""Plots of single quantities of tests on the caller's matplotlib axes, for notebooks and papers."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rths_nodes.analysis.figures.drawing import (
    INCH,
    LINES,
    STYLE,
    TARGET,
    WIDTH,
    Look,
    in_style,
    label,
    legend_above,
    styled,
)
from rths_nodes.analysis.figures.studies import by_label
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.index_definitions import magnitude_title
from rths_nodes.analysis.overlay import Aligned
from rths_nodes.analysis.study_table import StudyTable
from rths_nodes.analysis.units import COLUMN, PAPER, STYLES, check_width
from rths_nodes.core.errors import unknown
from rths_nodes.recording.run import History, Run, samples_of, steps_of

UNITS = {"m": (1e3, "mm"), "N": (1e-3, "kN"), "m/s^2": (1.0, "m/s²"), "1": (1.0, "")}
RATES = {"m/s": 1, "m/s^2": 2}
"""Power of the time ratio that converts a rate to the time axis of the structure, by unit."""
TRACKING, ERROR, LOOPS = "tracking", "error", "hysteresis"


def plot(
    run: Run, quantity: str, axes: Axes | None = None, style: str | None = None, width: float = COLUMN
) -> Axes:
    """Draw a quantity of ``run`` on ``axes``, by default on a new figure; see :meth:`rths_nodes.Run.plot`."""
    with _in(axes, style, width) as panel:
        histories = _histories(run)
        tracked = {"target", "displacement"} <= histories.keys()
        if quantity == TRACKING and tracked:
            for target in run.target.T:
                panel.plot(run.time, 1e3 * target, **TARGET)
            _draw(panel, run, histories, "displacement", "measured")
        elif quantity in (LOOPS, *histories):
            _draw(panel, run, histories, quantity)
        else:
            names = [*([TRACKING] if tracked else []), LOOPS, *histories]
            raise unknown("quantity", "quantity", quantity, names)
        if len(panel.lines) > 1:
            legend_above(panel)
    return panel


def overlay(
    runs: Mapping[str, Run],
    quantity: str,
    axes: Axes | None = None,
    style: str | None = None,
    width: float = COLUMN,
) -> Axes:
    """Draw a quantity of several named runs, with a look for each run; see :func:`rths_nodes.overlay`."""
    with _in(axes, style, width) as panel:
        for name, look in styled(runs).items():
            histories = _histories(runs[name])
            if quantity not in (LOOPS, *histories):
                raise unknown(f"{name}: quantity", "quantity", quantity, (LOOPS, *histories))
            _draw(panel, runs[name], histories, quantity, f"{name},", look)
        if len(panel.lines) > 1:
            legend_above(panel)
    return panel


def _draw(
    panel: Axes,
    run: Run,
    histories: Mapping[str, History],
    quantity: str,
    prefix: str = "",
    colour: Look | None = None,
) -> None:
    history = histories["force" if quantity == LOOPS else quantity]
    factor, unit = UNITS.get(history.unit, (1.0, history.unit))
    x = run.time if len(history.values) == len(run.time) else run.step_time
    if colour and quantity != LOOPS:
        x = Aligned(prefix, Evaluation(run)).at(x)
        factor *= run.scenario.time_ratio ** RATES.get(history.unit, 0)
    for number, (column, look) in enumerate(styled(history.columns).items()):
        label_of = f"{prefix} {_in_words(column)}" if len(history.columns) > 1 else prefix.rstrip(",") or column
        if colour:
            look = colour | ({"ls": LINES[number % len(LINES)]} if number else {})
        if quantity == LOOPS:
            x = 1e3 * run.displacement[:, number]
        panel.plot(x[: len(history.values)], factor * history.values[:, number], label=label_of.strip(), **look)
    name = _in_words(history.name.removeprefix("dof_"))
    panel.set(xlabel="displacement (mm)" if quantity == LOOPS else "time (s)", ylabel=label(name, unit))
    panel.margins(0.04 if quantity == LOOPS else 0.0, 0.05)


def _histories(run: Run) -> dict[str, History]:
    error = History("control error", run.target - run.displacement, "m", run.axes)
    return {ERROR: error} | {row.name: row for row in (*samples_of(run), *steps_of(run)) if row.columns}


def plot_by_label(
    table: StudyTable,
    index: str,
    rows: Mapping[str, Sequence[int]],
    axes: Axes | None,
    style: str | None,
    width: float,
) -> Axes:
    if index not in table.columns:
        raise unknown("index", "index", index, table.indices)
    size = table.magnitudes(index)
    sizes = {label or table.title: size[list(numbers)] for label, numbers in rows.items()}
    with _in(axes, style, width) as panel:
        by_label(panel, sizes, magnitude_title(index))
    return panel


class PrintFigure(Figure):
    """Figure that is always saved in the print style."""

    def savefig(self, *places: Any, **options: Any) -> None:
        with in_style(INCH * self.get_figwidth()):
            super().savefig(*places, **options)


@contextmanager
def _in(axes: Axes | None, style: str | None, width: float) -> Iterator[Axes]:
    if style is not None and style not in STYLES:
        raise unknown("style", "style", style, STYLES)
    if style is None:
        yield axes or _new(Figure)
        return
    check_width(width)
    with in_style(width if style == PAPER else STYLE):
        yield axes or _new(PrintFigure if style == PAPER else Figure)


def _new(kind: type[Figure]) -> Axes:
    from matplotlib import pyplot

    axes: Axes = pyplot.subplots(layout="constrained", FigureClass=kind)[1]
    return axes


def _in_words(name: str) -> str:
    return name.removeprefix("axes.").replace("_", " ").replace(".", ": ")


def picture(run: Run, quantities: Sequence[str]) -> str:
    """Return a PNG of ``run``, as a data URL for HTML, with one panel per quantity."""
    with in_style(STYLE | {"savefig.dpi": 100.0}), io.BytesIO() as buffer:
        figure = Figure(figsize=(WIDTH, 1.9 * len(quantities)), layout="constrained")
        panels = np.atleast_1d(figure.subplots(len(quantities), 1))
        for panel, quantity in zip(panels, quantities, strict=True):
            plot(run, quantity, panel)
        figure.savefig(buffer)
        return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
