# SPDX-License-Identifier: Apache-2.0
"""Figures of studies: indices by group, effects of factors, distributions, and response versus tracking."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from rths_nodes.analysis.figures.drawing import FAINT, INK, LIMIT, PALETTE, Drawing, Look, beside, printed, styled
from rths_nodes.analysis.index_definitions import definition, magnitude_title
from rths_nodes.analysis.study_table import HIGH, LOW, StudyTable, percentile, shown
from rths_nodes.analysis.units import exact, grouped, sentence
from rths_nodes.core.data import Data
from rths_nodes.core.samples import Array

ROW, HEIGHT, ACROSS = 0.24, 2.1, 3
"""``ROW``: height of a row of runs, inches. ``HEIGHT``: height of a panel, inches. ``ACROSS``: panels per row."""
DOTS = 1500
"""Largest number of runs drawn as dots. If there are more, only every n-th run is drawn."""
MARKS = "osD^vP*X<>"
TICKS = 3
STEPS = ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0))
PIECES, MOST = 12, 6
"""``PIECES``: number of intervals of a continuous factor. ``MOST``: largest number of groups in a panel."""
SHARE, LINE = 0.7, 0.05
NONE_FINISHED, NO_VALUE = "no run finished", "has no value"
SPREAD = (
    f"Dots: single runs. Bars: the middle {HIGH - LOW:g} % of the runs; {{}}: median. Crosses: runs without "
    "a value, e.g. unfinished runs, which count as larger than all others. Logarithmic axis{}."
)


def magnitude_axis(panel: Axes, direction: str, values: Array) -> float:
    """Scale the axis ``direction`` (``x`` or ``y``) for magnitudes ``values``, and return its upper end.

    The axis is logarithmic, with a linear section down to zero if a value is zero.
    """
    finite = values[np.isfinite(values)]
    positive = finite[finite > 0.0]
    least, most = (float(positive.min()), float(positive.max())) if len(positive) else (1.0, 1.0)
    zeros = [0.0] if (finite == 0.0).any() else []
    decades = max(1.0, math.log10(most / least))
    beyond: float = max((most / least) ** 0.05, 1.05)
    scale = {"linthresh": least, "linscale": 0.12 * decades} if zeros else {}
    getattr(panel, f"set_{direction}scale")("symlog" if zeros else "log", **scale)
    axis = getattr(panel, f"{direction}axis")
    axis.set_major_locator(FixedLocator([*zeros, *(ticks(least, most) if len(positive) else ())]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: grouped(value, ".10g"))
    panel.set(**{f"{direction}lim": (-0.3 * least if zeros else least / beyond, most * beyond)})
    return most * beyond


def ticks(least: float, most: float) -> list[float]:
    decades = range(math.floor(math.log10(least)) - 1, math.ceil(math.log10(most)) + 1)
    choices = [[step * 10.0**decade for decade in decades for step in steps] for steps in STEPS]
    choices.append(list(MaxNLocator(4, steps=(1, 2, 2.5, 5, 10)).tick_values(least, most)))
    inside = [[value for value in choice if least / 1.05 <= value <= most * 1.05] for choice in choices]
    return next((values for values in inside if len(values) >= TICKS), inside[-1])


def spread(
    panel: Axes, at: Array, values: Array, edge: float, across: bool, dots: str, median: Look, bar: bool = True
) -> None:
    """Draw magnitudes ``values`` of runs as dots at positions ``at``, and their median.

    Magnitudes are along x if ``across`` is true, otherwise along y. ``edge`` is the upper end of this axis. If
    ``bar`` is true, a bar marks the 5th to the 95th percentile. ``dots`` is a colour, ``median`` a look.
    """

    def put(positions: Array, magnitudes: Array, look: Look) -> None:
        panel.plot(*((magnitudes, positions) if across else (positions, magnitudes)), **look)

    finite, every = np.isfinite(values), max(1, len(values) // DOTS)
    look = {"color": dots, "ls": "", "marker": "o", "ms": 2.0, "mew": 0.0, "alpha": 0.5, "rasterized": True}
    put(at[finite][::every], values[finite][::every], look)
    low, middle, high = (percentile(values, percent) for percent in (LOW, 50.0, HIGH))
    centre = np.full(2, np.median(at)) if len(at) else np.zeros(2)
    if bar and np.isfinite(low):
        look = {"color": PALETTE[0] if across else dots, "lw": 3.0, "alpha": 0.5}
        put(centre, np.minimum((low, high), edge), look)
    if np.isfinite(middle):
        put(centre[:1], np.array([middle]), median)


def by_label(panel: Axes, sizes: Mapping[str, Array], title: str) -> None:
    edge = magnitude_axis(panel, "x", np.concatenate([*sizes.values(), []]))
    for position, magnitudes in enumerate(sizes.values()):
        values = magnitudes[~np.isnan(magnitudes)]
        stroke: Look = {"marker": "|", "ms": 9.0, "mew": 1.6, "color": INK}
        spread(panel, np.full(len(values), position), values, edge, True, FAINT, stroke)
        failed = int(np.isinf(values).sum())
        if failed == len(values):
            reason = NONE_FINISHED if failed else NO_VALUE
            panel.text(0.01, position, reason, color=FAINT, va="center", transform=panel.get_yaxis_transform())
        if failed:
            panel.plot(edge, position, "x", ms=5.0, color=LIMIT, clip_on=False)
            count, away = f"{failed} of {len(values)}{' without value' if printed() is None else ''}", (6.0, 0.0)
            panel.annotate(count, (edge, position), away, textcoords="offset points", color=LIMIT, va="center")
    panel.set_yticks(range(len(sizes)), [*sizes])
    panel.set(ylim=(len(sizes) - 0.4, -0.6), xlabel=title)


def _drawing(title: str, caption: str) -> Drawing:
    return Drawing(re.sub(r"\W+", "_", title).strip("_").lower(), title, caption)


def _caption(median: str, size: Array) -> str:
    return SPREAD.format(median, ", with zero at its left end" if (size == 0.0).any() else "")


def _by_label(table: StudyTable, index: str, rows: Mapping[str, Sequence[int]], noun: str) -> Drawing:
    size = table.magnitudes(index)
    figure = _drawing(f"{sentence(definition(index).title)} by {noun}", _caption("stroke", size))
    sizes = {label: size[[*numbers]] for label, numbers in rows.items()}
    by_label(figure.panels(1, height=0.4 + ROW * len(sizes))[0, 0], sizes, magnitude_title(index))
    return figure


def scoreboard_drawings(table: StudyTable, labels: Sequence[str], across: str, up: str) -> Iterator[Drawing]:
    """Draw the figures of a ``table`` whose column ``law`` contains the ``labels``.

    ``across`` is the tracking index, ``up`` the response index. The figure of response versus tracking is omitted
    if both are the same index.
    """
    if table.finished.any():
        laws = table.columns["law"]
        rows = {label: [row for row, law in enumerate(laws) if law == label] for label in labels}
        yield from (_by_label(table, index, rows, "compensator") for index in table.indices)
        if across != up:
            yield _tracking(table, rows, across, up)


def _tracking(table: StudyTable, rows: Mapping[str, Sequence[int]], across: str, up: str) -> Drawing:
    caption = "Median per compensator, if most of its runs finished. The best compensators are at the lower left."
    figure = _drawing("Tracking against response", caption)
    panel = figure.panels(1, height=3.4)[0, 0]
    sizes = [table.magnitudes(index) for index in (across, up)]
    medians = {label: [percentile(size[[*runs]], 50.0) for size in sizes] for label, runs in rows.items()}
    for number, (label, pair) in enumerate(medians.items()):
        if np.isfinite(pair).all():
            look = {"color": PALETTE[number % len(PALETTE)], "marker": MARKS[number % len(MARKS)]}
            panel.plot(*pair, ls="", ms=6.0, label=label, **look)
    drawn = np.array([pair for pair in medians.values() if np.isfinite(pair).all()]).reshape(-1, 2)
    for values, direction in zip(drawn.T, "xy", strict=True):
        magnitude_axis(panel, direction, values)
    panel.set(xlabel=f"tracking: {magnitude_title(across)}", ylabel=f"response: {magnitude_title(up)}")
    figure.finish()
    return figure


def drawings(table: StudyTable) -> Iterator[Drawing]:
    if not table.finished.any():
        return
    more = f" Only {MOST} of {len(table.groups)} groups are shown." if len(table.groups) > MOST else ""
    for index in table.indices:
        if len(table.groups) > 1:
            yield _by_label(table, index, {group: [*rows] for group, rows in table.groups.items()}, "group")
        if table.shown_factors:
            yield _effects(table, index, more)
    caption = f"Share of runs at or below each magnitude. A curve ends below 1 if some runs have no value.{more}"
    figure = _drawing("Distribution of the indices", caption)
    panels = _panels(figure, len(table.indices), "share of the runs")
    for panel, index in zip(panels, table.indices, strict=True):
        size = table.magnitudes(index)
        for group, look in _looks(table).items():
            values = np.sort(size[table.groups[group]])
            values = values[~np.isnan(values)]
            if len(finite := values[np.isfinite(values)]):
                shares = np.arange(len(finite) + 1) / len(values)
                style = look | {"marker": "", "label": group}
                panel.step(np.append(finite[0], finite), shares, where="post", **style)
        magnitude_axis(panel, "x", size)
        panel.set(xlabel=magnitude_title(index), ylim=(0.0, 1.0))
    figure.finish()
    yield figure


def _effects(table: StudyTable, index: str, more: str) -> Drawing:
    size = table.magnitudes(index)
    title = f"{sentence(definition(index).title)}: effect of each factor"
    figure = _drawing(title, f"{_caption('marks and lines', size)}{more}")
    panels = _panels(figure, len(table.shown_factors), magnitude_title(index))
    for group, look in _looks(table).items():
        panels[0].plot([], [], label=group, **look)
    for panel, factor in zip(panels, table.shown_factors, strict=True):
        edge = magnitude_axis(panel, "y", size)
        low = min(size[(size > 0.0) & np.isfinite(size)], default=edge / 2.0)
        lines = [edge * (edge / low) ** (LINE * (number + 0.7)) for number in range(MOST)]
        _effect(panel, table, factor, size, edge, lines)
        if table.failed.any():
            panel.set_ylim(top=lines[min(len(table.groups), MOST) - 1] * (edge / low) ** (0.5 * LINE))
        name = table.title_of(factor)
        panel.set_xlabel(name if len(name) <= 34 else f"…{name[-33:]}")
    figure.finish()
    return figure


def _effect(panel: Axes, table: StudyTable, factor: str, size: Array, edge: float, lines: Sequence[float]) -> None:
    continuous, looks = table.continuous(factor), _looks(table)
    column = table.columns[factor]
    levels = dict.fromkeys(map(shown, column))
    x = np.array(column, dtype=float) if continuous else np.array([[*levels].index(shown(one)) for one in column])
    for number, ((group, look), line) in enumerate(zip(looks.items(), lines, strict=False)):
        rows = table.groups[group][~np.isnan(size[table.groups[group]])]
        at, values = x[rows], size[rows]
        at, values = at[np.isfinite(at)], values[np.isfinite(at)]
        if not continuous:
            at = at + SHARE * ((number + 0.5) / len(looks) - 0.5)
        distinct = np.unique(at)
        count = min(PIECES, max(1, len(at) // 5)) if continuous else max(1, len(distinct))
        pieces = np.array_split(distinct, count)
        parts = [(at >= piece[0]) & (at <= piece[-1]) for piece in pieces if len(piece)]
        for part in parts:
            spread(panel, at[part], values[part], edge, False, look["color"], look | {"ms": 4.0}, not continuous)
        if continuous:
            middle = np.array([percentile(values[part], 50.0) for part in parts])
            middle[~np.isfinite(middle)] = np.nan
            panel.plot([np.median(at[part]) for part in parts], middle, color=look["color"], ls=look["ls"])
        crosses = np.unique(at[np.isinf(values)])
        if len(crosses):
            panel.plot(crosses, np.full(len(crosses), line), "x", ms=3.5, color=look["color"])
    panel.margins(x=0.04)
    if not continuous:
        turned = len(levels) > 4 or any(len(level) > 7 for level in levels)
        turn: Data = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"} if turned else {}
        panel.set_xticks(range(len(levels)), [_fitted(level) for level in levels], **turn)
        panel.set_xlim(-0.6, len(levels) - 0.4)


def _fitted(label: str) -> str:
    with suppress(ValueError):
        label = exact(float(label))
    return label if len(label) <= 16 else f"{label[:15]}…"


def _looks(table: StudyTable) -> dict[str, Look]:
    looks = styled([*table.groups][:MOST])
    return {group: looks[group] | {"marker": mark, "ms": 3.0} for group, mark in zip(looks, MARKS, strict=False)}


def _panels(figure: Drawing, count: int, label: str) -> list[Axes]:
    across = beside(min(count, ACROSS))
    panels = figure.panels(-(-count // across), across, HEIGHT, sharey=True).ravel().tolist()
    for panel in panels[count:]:
        panel.remove()
    for panel in panels[:count:across]:
        panel.set_ylabel(label)
    return [*panels[:count]]
