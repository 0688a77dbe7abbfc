# SPDX-License-Identifier: Apache-2.0
"""Figures of a study: each index by group, effect of each factor by group, and distribution of each index."""

from __future__ import annotations

import signal
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from multiprocessing import get_all_start_methods, get_context

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from rths_nodes.analysis.figures.scoreboard import DOTS, MARKS, Magnitudes, by_label, dotted
from rths_nodes.analysis.figures.style import Drawing, Entry, columns_of, in_style, styled, svg
from rths_nodes.analysis.index_definitions import definition, magnitude_title
from rths_nodes.analysis.study_table import HIGH, LOW, Cell, StudyTable, percentile
from rths_nodes.analysis.units import exact, sentence
from rths_nodes.core.samples import Array

ACROSS = 3
PIECES = 12
MOST = 6
"""Largest number of groups in a panel, one for each colour."""
LETTERS = 30
SHARE = 0.7
"""Width of the groups at a level, relative to the distance between levels."""
LINE = 0.05
"""Distance between the lines of crosses, relative to the range of the magnitudes."""
WIDTH, HEIGHT = 7.4, 2.1
"""Width of a figure and height of a row of panels with labels, inches."""
CROSSES = "Crosses: runs that did not finish, which count as larger than all others."


def drawn(table: StudyTable, processes: int = 1) -> list[tuple[str, str, str]]:
    """Return title, caption and SVG of each figure; empty if no run has finished.

    Forks of this process draw in parallel, because it has already loaded matplotlib.
    """
    figures = drawings(table)
    with in_style():
        if min(processes, len(figures)) < 2 or "fork" not in get_all_start_methods():
            return list(map(_drawn, figures))
        ignored = signal.SIGINT, signal.SIG_IGN  # only the parent handles Ctrl-C
        with get_context("fork").Pool(min(processes, len(figures)), signal.signal, ignored) as pool:
            return pool.map(_drawn, figures, chunksize=1)


def drawings(table: StudyTable) -> list[Drawing]:
    return list(_figures(table)) if table.finished.any() else []


def _drawn(drawing: Drawing) -> tuple[str, str, str]:
    title, caption, draw = drawing
    return title, caption, svg(draw(), title)


def _figures(table: StudyTable) -> Iterator[Drawing]:
    middle = f"the middle {HIGH - LOW:g} % of the runs"
    more = f" The first {MOST} of {len(table.groups)} groups." if len(table.groups) > MOST else ""
    for index in table.indices:
        name, size = sentence(definition(index).title), table.magnitudes(index)
        sizes = {group: size[rows] for group, rows in table.groups.items()}
        axis = Magnitudes.by_label(sizes)
        if len(sizes) > 1:
            caption = f"Dots: single runs. Bars: {middle}; stroke: median. {CROSSES} {axis.note}"
            yield f"{name} by group", caption, partial(by_label, sizes, magnitude_title(index), axis)
        if table.shown_factors:
            caption = f"Dots: single runs. Bars: {middle}; marks and lines: median. {CROSSES} {axis.note}{more}"
            yield f"{name}: effect of each factor", caption, partial(_effects, table, index, axis)
    caption = f"Share of the runs up to a magnitude. A curve ends below 1 if some runs did not finish.{more}"
    yield "Distribution of the indices", caption, partial(_distributions, table)


def _effects(table: StudyTable, index: str, axis: Magnitudes) -> Figure:
    size = table.magnitudes(index)
    figure, panels = _panels(len(table.shown_factors), table)
    for panel, factor in zip(panels, table.shown_factors, strict=True):
        axis.dress(panel, "y")
        if table.continuous(factor):
            _over(panel, table, np.array(table.columns[factor], dtype=float), size, axis)
        else:
            _by_level(panel, table, table.cells(factor), size, axis)
        title = table.title_of(factor)
        panel.set_xlabel(title if len(title) <= 34 else f"…{title[-33:]}")
    for panel in panels[::ACROSS]:
        panel.set_ylabel(textwrap.fill(magnitude_title(index), LETTERS))
    if table.failed.any():
        low, high = panels[0].get_ylim()
        shown = min(len(table.groups), MOST)
        panels[0].set_ylim(low, high * (high / low) ** (LINE * (shown + 0.5)))
    return figure


def _over(panel: Axes, table: StudyTable, x: Array, size: Array, axis: Magnitudes) -> None:
    every, lines = max(1, len(x) // DOTS), _lines(panel)
    for number, ((group, rows), (_, colour, line), mark) in enumerate(_styles(table)):
        at, values = x[rows], size[rows]
        valid = np.isfinite(at) & ~np.isnan(values)
        at, values = at[valid], values[valid]
        failed = np.isinf(values)
        dotted(panel, at[~failed][::every], axis.at(values[~failed])[::every], 2.0, color=colour, alpha=0.4)
        crosses = at[failed][::every]
        panel.plot(crosses, np.full(len(crosses), lines[number]), "x", ms=3.5, color=colour)
        distinct = np.array_split(np.unique(at), min(PIECES, max(1, len(at) // 5)))
        pieces = [np.flatnonzero((at >= part[0]) & (at <= part[-1])) for part in distinct if len(part)]
        middle = np.array([percentile(values[piece], 50.0) for piece in pieces])
        middle = np.where(np.isfinite(middle), axis.at(middle), np.nan)
        style = {"color": colour, "ls": line, "marker": mark, "ms": 3.0, "label": group}
        panel.plot([np.median(at[piece]) for piece in pieces], middle, **style)
    panel.margins(x=0.04)


def _by_level(panel: Axes, table: StudyTable, cells: list[Cell], size: Array, axis: Magnitudes) -> None:
    places = {level: position for position, level in enumerate(dict.fromkeys(cell.level for cell in cells))}
    groups, every = list(table.groups)[:MOST], max(1, len(size) // DOTS)
    styles = {group: (colour, mark) for (group, _), (_, colour, _), mark in _styles(table)}
    top, lines = panel.get_ylim()[1], _lines(panel)
    for group, level, rows in cells:
        if group not in styles:
            continue
        colour, mark = styles[group]
        values = size[rows][~np.isnan(size[rows])]
        x = places[level] + SHARE * ((groups.index(group) + 0.5) / len(groups) - 0.5)
        finite = values[np.isfinite(values)]
        dots = axis.at(finite)[::every]
        dotted(panel, np.full(len(dots), x), dots, 2.0, color=colour, alpha=0.3)
        low, median, high = (percentile(values, percent) for percent in (LOW, 50.0, HIGH))
        if np.isfinite(low):
            ends = [float(axis.at(np.array(end))) if np.isfinite(end) else top for end in (low, high)]
            panel.plot([x, x], ends, color=colour, lw=2.0, alpha=0.5)
        if np.isfinite(median):
            panel.plot(x, axis.at(np.array(median)), mark, color=colour, ms=4.0, label=group)
        if np.isinf(values).any():
            panel.plot(x, lines[groups.index(group)], "x", ms=3.5, color=colour)
    panel.set_xticks(range(len(places)), [_fitted(level) for level in places])
    if len(places) > 4 or any(len(level) > 7 for level in places):
        panel.tick_params(axis="x", labelrotation=35)
        for label in panel.get_xticklabels():
            label.set_horizontalalignment("right")
            label.set_rotation_mode("anchor")
    panel.set_xlim(-0.6, len(places) - 0.4)


def _lines(panel: Axes) -> Array:
    low, high = panel.get_ylim()
    return np.array([high * (high / low) ** (LINE * (number + 0.7)) for number in range(MOST)])


def _fitted(label: str) -> str:
    with suppress(ValueError):
        label = exact(float(label))
    return label if len(label) <= 16 else f"{label[:15]}…"


def _distributions(table: StudyTable) -> Figure:
    figure, panels = _panels(len(table.indices), table)
    for panel, index in zip(panels, table.indices, strict=True):
        size = table.magnitudes(index)
        axis = Magnitudes([size[np.isfinite(size)]])
        for (group, rows), (_, colour, line), _ in _styles(table):
            values = np.sort(size[rows][~np.isnan(size[rows])])
            if len(finite := values[np.isfinite(values)]):
                shares = np.repeat(np.arange(len(finite) + 1), 2)[1:-1] / len(values)
                panel.plot(np.repeat(axis.at(finite), 2), shares, color=colour, ls=line, label=group)
        axis.dress(panel, "x")
        panel.set_xlabel(magnitude_title(index))
        panel.set_ylim(0.0, 1.0)
    for panel in panels[::ACROSS]:
        panel.set_ylabel("share of the runs")
    return figure


def _styles(table: StudyTable) -> Iterator[tuple[tuple[str, NDArray[np.intp]], Entry, str]]:
    names = list(table.groups)[:MOST]
    for number, entry in enumerate(styled(names)):
        yield (names[number], table.groups[names[number]]), entry, MARKS[number % len(MARKS)]


def _panels(count: int, table: StudyTable) -> tuple[Figure, list[Axes]]:
    rows, across = -(-count // ACROSS), min(count, ACROSS)
    legend = len(table.groups) > 1
    figure = Figure(figsize=(WIDTH, rows * HEIGHT + 0.35 * legend), layout="constrained")
    panels = figure.subplots(rows, across, squeeze=False, sharey=True).ravel().tolist()
    for panel in panels[count:]:
        panel.remove()
    if legend:
        keys = [
            Line2D([], [], color=colour, ls=line, marker=mark, ms=4.0, label=group)
            for (group, _), (_, colour, line), mark in _styles(table)
        ]
        figure.legend(
            handles=keys,
            loc="outside upper left",
            ncols=columns_of(
                [group for (group, _), _, _ in _styles(table)], matplotlib.rcParams["figure.figsize"][0]
            ),
        )
    return figure, panels[:count]
