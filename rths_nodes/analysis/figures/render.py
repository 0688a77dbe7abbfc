# SPDX-License-Identifier: Apache-2.0
"""Draws the plan of a figure, for the page or for paper of a given width."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, NullFormatter

from rths_nodes.analysis.figures.plan import Band, Bars, Look, Panel, Plan, Shown
from rths_nodes.analysis.figures.sheet import curve, plot
from rths_nodes.analysis.figures.style import BAND, BAND_WIDTH, FAINT, HATCHES, Entry, in_grey
from rths_nodes.analysis.units import grouped
from rths_nodes.core.data import Data
from rths_nodes.core.samples import Array

DOTS = 300
"""Single values that can be told apart in a panel."""
BESIDE = 6.6
"""Letters that line and gaps of an entry of a legend take."""
MOST = 9
"""Entries of the legend of a panel below one another."""
STEPS = (1, 2, 2.5, 5, 10)
"""Steps between the numbers on an axis, times a power of ten."""


@dataclass(frozen=True)
class Layout:
    """Sizes of a drawing, inches; ``stacked``: rows are taken apart; ``grey``: lines differ without colours."""

    width: float = 7.4
    left: float = 0.66
    right: float = 0.16
    bottom: float = 0.42
    gap: float = 0.14
    title: float = 0.19
    line: float = 0.17
    """Height of a line of the legend."""
    letter: float = 0.068
    """Width of a letter of the legend."""
    label: float = 0.5
    """From a vertical axis to its label: labels stand below one another."""
    scale: float = 1.0
    """Factor on all heights."""
    stacked: bool = False
    grey: bool = False


PAGE = Layout(left=0.74, bottom=0.46, title=0.21, line=0.19, letter=0.077, label=0.58)
"""Layout of the report, in the larger letters of ``style.ON_PAGE``: the browser scales it, a telephone to half."""


def render(plan: Plan, layout: Layout = PAGE) -> Figure:
    rows, heights = _rows(plan, layout)
    labels = [entry[0] for entry in (*plan.legend, *plan.shades)]
    longest = max((len(label) for label in labels), default=0)
    room = layout.width - layout.left - layout.right
    each = layout.letter * (longest + BESIDE)
    across = max(1, min(len(labels), int((layout.width - layout.left) / each)))
    top = layout.line * math.ceil(len(labels) / across) + (0.21 if labels else 0.19)
    last = [_ends(rows, number) for number in range(len(rows))]
    titled = [layout.title if any(panel.title for panel in row) else 0.0 for row in rows]
    below = [layout.bottom if ends else layout.gap for ends in last]
    figure = Figure(figsize=(layout.width, top + sum(heights) + sum(titled) + sum(below)))
    height, down = figure.get_figheight(), top
    for number, row in enumerate(rows):
        down += titled[number] + heights[number]
        shares = _shares(plan, row)
        between = 0.62 if len({str(panel.y) for panel in row} | {""}) > 2 else 0.4
        unit = (room - between * (len(row) - 1)) / sum(shares)
        left = layout.left
        for panel, share in zip(row, shares, strict=False):
            place = (
                left / layout.width,
                1.0 - down / height,
                share * unit / layout.width,
                heights[number] / height,
            )
            drawn = figure.add_axes(place)
            _panel(drawn, panel, plan, layout, last[number], first=panel is row[0] or panel.y != row[0].y)
            drawn.yaxis.set_label_coords(-layout.label / (share * unit), 0.5)
            left += share * unit + between
        down += below[number]
    if labels:
        handles: list[Artist] = [_handle(Look.of(entry, 1.2), layout) for entry in plan.legend]
        handles += [_patch(entry[1], layout) for entry in plan.shades]
        place_of = {"loc": "upper left", "bbox_to_anchor": (layout.left / layout.width - 0.01, 1.0)}
        spacing = {"handlelength": 1.8, "columnspacing": 1.4, "labelspacing": 0.2, "borderaxespad": 0.1}
        figure.legend(handles, labels, ncols=across, **place_of, **spacing)
    return figure


def _rows(plan: Plan, layout: Layout) -> tuple[list[Sequence[Panel]], list[float]]:
    rows: list[Sequence[Panel]] = []
    heights: list[float] = []
    for row, height in zip(plan.rows, plan.heights, strict=True):
        parts: list[Sequence[Panel]] = [[panel] for panel in row] if layout.stacked else [row]
        rows += parts
        heights += [height * layout.scale] * len(parts)
    return rows, heights


def _shares(plan: Plan, row: Sequence[Panel]) -> Sequence[float]:
    if plan.across and row[0].square:
        return (1.0,) * plan.across
    return plan.widths if len(row) > 1 else (1.0,)


def _ends(rows: Sequence[Sequence[Panel]], number: int) -> bool:
    """The row has numbers on its horizontal axes: the next one has others, or none follows."""
    if number + 1 == len(rows):
        return True
    here, there = rows[number], rows[number + 1]
    if len(here) != len(there):
        return True
    same = all(a.over_time and b.over_time and a.span == b.span for a, b in zip(here, there, strict=True))
    return not same


def _panel(drawn: Axes, panel: Panel, plan: Plan, layout: Layout, last: bool, first: bool) -> None:
    if panel.over_time:
        _shade(drawn, plan.shades, layout)
    for shown in panel.shown:
        _draw(drawn, shown, panel, layout)
    for value, look in panel.levels:
        drawn.axhline(value, zorder=1.5, **_style(look, layout))
    for value, look in panel.marks:
        drawn.axvline(value, zorder=1.5, **_style(look, layout))
    if panel.frame:
        drawn.axvspan(*panel.frame, facecolor="none", edgecolor=FAINT, lw=0.8)
    if panel.diagonal:
        drawn.plot(panel.diagonal, panel.diagonal, color=FAINT, lw=0.6, zorder=1.5)
    if panel.square:
        drawn.set_aspect("equal", adjustable="datalim")
    _scales(drawn, panel)
    _ticks(drawn, panel)
    drawn.tick_params(labelbottom=last)
    if last:
        drawn.set_xlabel(str(panel.x))
    if first:
        drawn.set_ylabel(str(panel.y))
    if panel.title:
        drawn.set_title(panel.title)
    if panel.legend:
        handles = [_handle(Look.of(entry, 1.0), layout) for entry in panel.legend]
        columns = math.ceil(len(handles) / MOST)
        drawn.legend(
            handles, [entry[0] for entry in panel.legend], fontsize="small", loc="upper left", ncols=columns
        )


def _scales(drawn: Axes, panel: Panel) -> None:
    if "x" in panel.logarithmic:
        drawn.set_xscale("log")
    if "y" in panel.logarithmic:
        drawn.set_yscale("log")
    for axis, name in ((drawn.xaxis, "x"), (drawn.yaxis, "y")):
        if name in panel.logarithmic:
            axis.set_major_formatter(lambda value, _: grouped(value, ".10g"))
            axis.set_minor_formatter(NullFormatter())
    if panel.span:
        drawn.set_xlim(*panel.span)
    elif not panel.over_time and not panel.logarithmic:
        drawn.margins(x=0.04)
    if panel.limits:
        drawn.set_ylim(*panel.limits)


def _ticks(drawn: Any, panel: Panel) -> None:
    if panel.ticks:
        drawn.set_xticks(panel.ticks, [f"{tick:g}" for tick in panel.ticks])
        drawn.minorticks_off()
    width, height = drawn.figure.get_size_inches() * drawn.get_position().size
    if not panel.ticks and "x" not in panel.logarithmic:
        drawn.xaxis.set_major_locator(MaxNLocator(max(3, min(9, int(width / 0.5))), steps=STEPS))
    if "y" not in panel.logarithmic:
        drawn.yaxis.set_major_locator(MaxNLocator(max(4, min(7, int(height / 0.22))), steps=STEPS))


def _draw(drawn: Axes, shown: Shown, panel: Panel, layout: Layout) -> None:
    if isinstance(shown, Bars):
        heights = np.where(shown.counts > 0.0, shown.counts, np.nan)
        drawn.stairs(heights, shown.edges, baseline=0.5, fill=True, color=shown.colour, alpha=0.8)
    elif isinstance(shown, Band):
        _band(drawn, shown, panel.columns)
    elif shown.across is not None:
        curve(drawn, shown.x, shown.values, **_style(shown.look, layout))
    else:
        time, values = _within(panel.span, shown.x, shown.values)
        style = _style(shown.look, layout)
        if shown.look.dots and len(time) <= DOTS:
            style |= {"marker": ".", "ms": 2.5}
        plot(drawn, time, values, panel.columns, **style)


def _within(span: tuple[float, float] | None, x: Array, y: Array) -> tuple[Array, Array]:
    """Return the part of a curve within ``span``: the less of it is seen, the finer it is drawn."""
    if span is None:
        return x, y
    inside = (x >= span[0]) & (x <= span[1])
    return x[inside], y[inside]


def _band(drawn: Axes, band: Band, columns: int) -> None:
    """Draw a band as wide as its widest place in each dot, so that no part of it is lost."""
    n = len(band.lower)
    if not n:
        return
    starts = np.arange(0, n, max(1, n // columns))
    lower, upper = np.fmin.reduceat(band.lower, starts), np.fmax.reduceat(band.upper, starts)
    drawn.fill_between(band.base.values[starts], lower, upper, color=band.colour, lw=0.0)


def _shade(drawn: Axes, shades: Sequence[Entry], layout: Layout) -> None:
    for _, colour, stretches in shades:
        bars, across = [(start, end - start) for start, end in stretches], drawn.get_xaxis_transform()
        drawn.broken_barh(bars, (0.0, 1.0), transform=across, **_filling(colour, layout))


def _filling(colour: str, layout: Layout) -> Data:
    if layout.grey and colour in HATCHES:
        return {"facecolor": "#e8e8e8", "edgecolor": "#8c8c8c", "hatch": HATCHES[colour], "lw": 0.0}
    return {"color": colour, "alpha": 0.3, "lw": 0.0}


def _style(look: Look, layout: Layout) -> Data:
    colour, line, width = in_grey(look.colour, look.line, look.width) if layout.grey else look[:3]
    return {"color": colour, "ls": line, "lw": width}


def _handle(look: Look, layout: Layout) -> Line2D:
    style = _style(look, layout)
    return Line2D([], [], **(style | {"lw": BAND_WIDTH} if look.colour == BAND else style))


def _patch(colour: str, layout: Layout) -> Patch:
    return Patch(**_filling(colour, layout))
