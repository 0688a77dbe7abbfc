# SPDX-License-Identifier: Apache-2.0
"""One quantity of a test on the axes of a caller, for notebooks and papers."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rths_nodes.analysis.figures.scoreboard import Magnitudes, labelled
from rths_nodes.analysis.figures.style import BAND, BAND_WIDTH, LINES, STYLE, in_style, styled
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.overlay import Aligned
from rths_nodes.analysis.study_table import StudyTable, magnitude_title
from rths_nodes.core.errors import unknown
from rths_nodes.core.samples import Array
from rths_nodes.recording.columns import History, samples_of, steps_of
from rths_nodes.recording.run import Run

UNITS = {"m": (1e3, "mm"), "N": (1e-3, "kN"), "m/s^2": (1.0, "m/s²"), "1": (1.0, "")}
"""Unit of an array -> factor and unit of a figure."""
TRACKING, ERROR, LOOPS = "tracking", "error", "hysteresis"


def plot(run: Run, quantity: str, axes: Axes | None = None) -> Axes:
    """Draw a quantity of ``run``; on a new figure of matplotlib.pyplot without ``axes``.

    ``quantity``: ``tracking`` (target and measured), ``error``, ``hysteresis``, or the name of an array. Raises
    ConfigError with the names names.
    """
    axes = axes or _new()
    histories = _histories(run)
    names = [TRACKING, LOOPS, *histories]
    if quantity not in names:
        raise unknown("quantity", "quantity", quantity, names)
    if quantity == TRACKING:
        target = histories["target"]
        _lines(axes, run.time, target._replace(name="displacement"), "target", color=BAND, linewidth=BAND_WIDTH)
        _lines(axes, run.time, histories["displacement"], "measured")
    elif quantity == LOOPS:
        for column, (name, colour, line) in enumerate(styled(run.axes)):
            x, y = 1e3 * run.displacement[:, column], 1e-3 * run.force[:, column]
            axes.plot(x, y, color=colour, linestyle=line, linewidth=0.7, label=name)
        axes.set(xlabel="displacement (mm)", ylabel="force (kN)")
    else:
        _lines(axes, _times(run, histories[quantity]), histories[quantity])
    _legend(axes)
    return axes


def overlay(runs: Mapping[str, Run], quantity: str, axes: Axes | None = None) -> Axes:
    """Draw a quantity of several runs, by name, from the end of their soft starts, in the structure's time.

    ``quantity``: ``error``, ``hysteresis``, or the name of an array. Lines differ by axis or degree of freedom.
    Raises ConfigError for a run without this quantity, with the known ones.
    """
    axes = axes or _new()
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
    return axes


def _times(run: Run, history: History) -> Array:
    return run.time if len(history.values) == len(run.time) else run.step_time


def _histories(run: Run) -> dict[str, History]:
    """Return histories with columns by name, and the control error."""
    error = History("control error", run.target - run.displacement, "m", run.axes)
    return {ERROR: error} | {row.name: row for row in (*samples_of(run), *steps_of(run)) if row.columns}


def _legend(axes: Axes) -> None:
    """Explain several lines above the axes, where no curve is; targets of several axes once."""
    if len(axes.lines) < 2:
        return
    entries = dict(zip(*axes.get_legend_handles_labels()[::-1], strict=True))
    axes.legend(
        entries.values(),
        entries.keys(),
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=4,
        frameon=False,
        borderaxespad=0.2,
    )


def plot_by_label(
    table: StudyTable, index: str, rows: Mapping[str, Sequence[int]], axes: Axes | None = None
) -> Axes:
    """Draw the magnitudes of an index by label of ``rows``. Raises ConfigError for an unknown index."""
    if index not in table.columns:
        raise unknown("index", "index", index, table.indices)
    axes = axes or _new()
    size = table.magnitudes(index)
    sizes = {label or table.title: size[list(numbers)] for label, numbers in rows.items()}
    labelled(axes, sizes, magnitude_title(index), Magnitudes.by_label(sizes))
    return axes


def _new() -> Axes:
    from matplotlib import pyplot

    axes: Axes = pyplot.subplots(layout="constrained")[1]
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
    """Return a PNG of these quantities, one above the other, as the address of an HTML image."""
    with in_style(STYLE | {"savefig.dpi": 100.0}), io.BytesIO() as buffer:
        figure = Figure(figsize=(width, 1.9 * len(quantities)), layout="constrained")
        panels = np.atleast_1d(figure.subplots(len(quantities), 1))
        for panel, quantity in zip(panels, quantities, strict=True):
            plot(run, quantity, panel)
        figure.savefig(buffer)
        return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
