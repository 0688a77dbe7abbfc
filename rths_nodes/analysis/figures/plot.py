# SPDX-License-Identifier: Apache-2.0
"""One quantity of a test on the axes of a caller, for notebooks and papers."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rths_nodes.analysis.figures.scoreboard import Magnitudes, labelled
from rths_nodes.analysis.figures.style import BAND, BAND_WIDTH, STYLE, in_style, styled
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
    histories = {history.name: history for history in (*samples_of(run), *steps_of(run)) if history.columns}
    names = [TRACKING, ERROR, LOOPS, *histories]
    if quantity not in names:
        raise unknown("quantity", "quantity", quantity, names)
    if quantity == TRACKING:
        target = histories["target"]
        _lines(axes, run.time, target._replace(name="displacement"), "target", color=BAND, linewidth=BAND_WIDTH)
        _lines(axes, run.time, histories["displacement"], "measured")
    elif quantity == ERROR:
        _lines(axes, run.time, History("control error", run.target - run.displacement, "m", run.axes))
    elif quantity == LOOPS:
        for column, (name, colour, line) in enumerate(styled(run.axes)):
            x, y = 1e3 * run.displacement[:, column], 1e-3 * run.force[:, column]
            axes.plot(x, y, color=colour, linestyle=line, linewidth=0.7, label=name)
        axes.set(xlabel="displacement (mm)", ylabel="force (kN)")
    else:
        time = run.time if len(histories[quantity].values) == len(run.time) else run.step_time
        _lines(axes, time, histories[quantity])
    if len(axes.lines) > 1:  # above the axes, where no curve is; the targets of several axes are explained once
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
    return axes


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
