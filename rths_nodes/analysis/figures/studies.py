# SPDX-License-Identifier: Apache-2.0
"""Figures of studies: each index by group, effect of each factor, distributions, and tracking versus response."""

from __future__ import annotations

import math
import signal
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing import get_all_start_methods, get_context
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

from rths_nodes.analysis.figures.style import (
    FAINT,
    INK,
    LIMIT,
    PALETTE,
    Drawing,
    Entry,
    columns_of,
    in_style,
    printed,
    styled,
    svg,
)
from rths_nodes.analysis.index_definitions import definition, magnitude_title
from rths_nodes.analysis.study_table import HIGH, LOW, Cell, StudyTable, percentile
from rths_nodes.analysis.units import exact, grouped, sentence
from rths_nodes.core.data import Data
from rths_nodes.core.samples import Array

ROW = 0.24
LEGEND_LINE = 0.17
DOTS = 1500
"""Largest number of runs drawn as dots; if there are more runs, every n-th run is drawn."""
MARKS = "osD^vP*X<>"
TICKS = 3
STEPS = ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0))
"""Ticks within a decade, from few to many."""
NONE_FINISHED, NO_VALUE = "no run finished", "has no value"


def scoreboard_drawings(table: StudyTable, labels: Sequence[str], across: str, up: str) -> list[Drawing]:
    """Return the figures of a ``table`` whose column ``law`` contains the ``labels``.

    ``across`` is the tracking index, ``up`` the response index. If both are the same index, the figure of one
    versus the other is omitted.
    """
    if not table.finished.any():
        return []
    figures: list[Drawing] = []
    for index in table.indices:
        sizes = {label: _magnitudes(table, label, index) for label in labels}
        axis = Magnitudes.by_label(sizes)
        caption = f"Dots: single runs. Bars: {MIDDLE}; stroke: median. {CROSSES} {axis.note}"
        draw = partial(by_label, sizes, magnitude_title(index), axis)
        figures.append((f"{sentence(definition(index).title)} by compensator", caption, draw))
    if across != up:
        caption = "Median over the runs, if most of them finished. The best compensators are at the lower left."
        figures.append(("Tracking against response", caption, partial(_tracking, table, labels, across, up)))
    return figures


def _rows(table: StudyTable, label: str) -> list[int]:
    return [row for row, other in enumerate(table.columns["law"]) if other == label]


def _magnitudes(table: StudyTable, label: str, index: str) -> Array:
    return table.magnitudes(index)[_rows(table, label)]


class Magnitudes:
    """Logarithmic axis of the magnitudes ``values``. Zero has a separate position below all other values."""

    def __init__(self, values: Iterable[Array]) -> None:
        every = np.concatenate([*values, np.zeros(0)])
        positive = every[every > 0.0]
        self.least, self.most = (float(positive.min()), float(positive.max())) if len(positive) else (1.0, 1.0)
        self.with_zero = bool((every == 0.0).any())
        decades = max(1.0, math.log10(self.most / self.least))
        self.zero = self.least / 10.0 ** (0.12 * decades)
        self.ticks = _ticks(self.least, self.most) if len(positive) else []

    @classmethod
    def by_label(cls, sizes: Mapping[str, Array]) -> Magnitudes:
        return cls(size[np.isfinite(size)] for size in sizes.values())

    @property
    def note(self) -> str:
        return "Logarithmic axis, with zero at its left end." if self.with_zero else "Logarithmic axis."

    def at(self, values: Array) -> Array:
        return np.where(values > 0.0, values, self.zero)

    def dress(self, panel: Axes, direction: str) -> None:
        getattr(panel, f"set_{direction}scale")("log")
        axis, zeros = getattr(panel, f"{direction}axis"), [self.zero] if self.with_zero else []
        axis.set_major_locator(FixedLocator([*zeros, *self.ticks]))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(lambda value, _: "0" if value in zeros else grouped(value, ".10g"))
        low, high = self.zero if self.with_zero else self.least, self.most
        beyond = max((high / low) ** 0.05, 1.05)
        getattr(panel, f"set_{direction}lim")(low / beyond, high * beyond)


def _ticks(least: float, most: float) -> list[float]:
    decades = range(math.floor(math.log10(least)) - 1, math.ceil(math.log10(most)) + 1)
    for steps in STEPS:
        ticks = [step * 10.0**decade for decade in decades for step in steps]
        inside = [value for value in ticks if least / 1.05 <= value <= most * 1.05]
        if len(inside) >= TICKS:
            return inside
    between = MaxNLocator(4, steps=(1, 2, 2.5, 5, 10)).tick_values(least, most)
    return [float(value) for value in between if value > 0.0 and least / 1.05 <= value <= most * 1.05]


def dotted(panel: Axes, x: Array, y: Array, size: float, **style: Any) -> None:
    """Draw dots of a ``size`` (points) as one path; single markers would take ten times the time and space."""
    points = np.column_stack((x, y))
    path = Path(np.repeat(points, 2, axis=0), np.tile((Path.MOVETO, Path.LINETO), len(x)))
    path.should_simplify = False  # with round caps, a line of zero length is drawn as a dot
    panel.add_artist(PathPatch(path, fill=False, lw=size, capstyle="round", **style))
    panel.update_datalim(points)


def by_label(sizes: Mapping[str, Array], title: str, axis: Magnitudes) -> Figure:
    figure = Figure(figsize=(WIDTH, 0.65 + ROW * len(sizes)), layout="constrained")
    labelled(figure.subplots(), sizes, title, axis)
    return figure


def labelled(panel: Axes, sizes: Mapping[str, Array], title: str, axis: Magnitudes) -> None:
    axis.dress(panel, "x")
    edge, every = panel.get_xlim()[1], max(1, sum(map(len, sizes.values())) // DOTS)
    for position, magnitudes in enumerate(sizes.values()):
        values = magnitudes[~np.isnan(magnitudes)]
        finite = values[np.isfinite(values)]
        if len(finite):
            low, median, high = (percentile(values, percent) for percent in (LOW, 50.0, HIGH))
            dots = axis.at(finite)[::every]
            dotted(panel, dots, np.full(len(dots), position), 2.25, color=FAINT, alpha=0.7)
            ends = [float(axis.at(np.array(end))) if np.isfinite(end) else edge for end in (low, high)]
            panel.plot(ends, [position, position], color=PALETTE[0], lw=3.0, alpha=0.5)
            if np.isfinite(median):
                panel.plot([axis.at(np.array(median))] * 2, [position - 0.3, position + 0.3], color=INK, lw=1.6)
        elif not len(values):
            panel.text(0.01, position, NO_VALUE, color=FAINT, va="center", transform=panel.get_yaxis_transform())
        else:
            panel.text(
                0.01, position, NONE_FINISHED, color=FAINT, va="center", transform=panel.get_yaxis_transform()
            )
        if failed := len(values) - len(finite):
            panel.plot(edge, position, "x", ms=5.0, color=LIMIT, clip_on=False)
            label, away = f"{failed} of {len(values)}{' unfinished' if printed() is None else ''}", (6.0, 0.0)
            panel.annotate(label, (edge, position), away, textcoords="offset points", color=LIMIT, va="center")
    panel.set_yticks(range(len(sizes)), list(sizes))
    panel.set_ylim(len(sizes) - 0.4, -0.6)
    panel.set_xlabel(title)


def _tracking(table: StudyTable, labels: Sequence[str], across: str, up: str) -> Figure:
    figure = Figure(figsize=(WIDTH, max(3.6, 0.5 + LEGEND_LINE * len(labels))), layout="constrained")
    panel = figure.subplots()
    medians = {
        label: [percentile(_magnitudes(table, label, index), 50.0) for index in (across, up)] for label in labels
    }
    shown = [pair for pair in medians.values() if np.isfinite(pair).all()]
    axes = [Magnitudes([np.array([pair[column] for pair in shown])]) for column in (0, 1)]
    for number, (label, (x, y)) in enumerate(medians.items()):
        if math.isfinite(x) and math.isfinite(y):
            style: Data = {
                "color": PALETTE[number % len(PALETTE)],
                "marker": MARKS[number % len(MARKS)],
            }
            at = [axis.at(np.array([value])) for axis, value in zip(axes, (x, y), strict=True)]
            panel.plot(*at, ls="", ms=6.0, label=label, **style)
    for axis, column in zip(axes, "xy", strict=True):
        axis.dress(panel, column)
    panel.set_xlabel(f"tracking: {magnitude_title(across)}")
    panel.set_ylabel(f"response: {magnitude_title(up)}")
    width = printed()
    narrow = width is not None and width < WIDTH / 2.0
    figure.legend(loc="outside upper left" if narrow else "outside right upper", ncols=1 + narrow)
    return figure


ACROSS = 3
PIECES = 12
MOST = 6
"""Largest number of groups in a panel."""
LETTERS = 30
SHARE = 0.7
LINE = 0.05
WIDTH, HEIGHT = 7.4, 2.1
"""Width of a figure, and height of a row of panels including labels, inches."""
MIDDLE = f"the middle {HIGH - LOW:g} % of the runs"
CROSSES = "Crosses: runs that did not finish, which count as larger than all others."


def drawn(drawings: Sequence[Drawing], processes: int = 1) -> list[tuple[str, str, str]]:
    """Return title, caption and SVG of each figure.

    Forked ``processes`` draw in parallel; they need not import matplotlib again.
    """
    with in_style():
        if min(processes, len(drawings)) < 2 or "fork" not in get_all_start_methods():
            return list(map(_drawn, drawings))
        ignored = signal.SIGINT, signal.SIG_IGN  # only the parent handles Ctrl-C
        with get_context("fork").Pool(min(processes, len(drawings)), signal.signal, ignored) as pool:
            return pool.map(_drawn, drawings, chunksize=1)


def drawings(table: StudyTable) -> list[Drawing]:
    return list(_figures(table)) if table.finished.any() else []


def _drawn(drawing: Drawing) -> tuple[str, str, str]:
    title, caption, draw = drawing
    return title, caption, svg(draw(), title)


def _figures(table: StudyTable) -> Iterator[Drawing]:
    more = f" Only {MOST} of {len(table.groups)} groups are shown." if len(table.groups) > MOST else ""
    for index in table.indices:
        name, size = sentence(definition(index).title), table.magnitudes(index)
        sizes = {group: size[rows] for group, rows in table.groups.items()}
        axis = Magnitudes.by_label(sizes)
        if len(sizes) > 1:
            caption = f"Dots: single runs. Bars: {MIDDLE}; stroke: median. {CROSSES} {axis.note}"
            yield f"{name} by group", caption, partial(by_label, sizes, magnitude_title(index), axis)
        if table.shown_factors:
            caption = f"Dots: single runs. Bars: {MIDDLE}; marks and lines: median. {CROSSES} {axis.note}{more}"
            yield f"{name}: effect of each factor", caption, partial(_effects, table, index, axis)
    caption = f"Share of the runs up to each magnitude. A curve ends below 1 if some runs did not finish.{more}"
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
