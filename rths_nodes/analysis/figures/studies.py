# SPDX-License-Identifier: Apache-2.0
"""Figures of studies: each index by group, effect of each factor, distributions, and tracking versus response."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from rths_nodes.analysis.figures.drawing import WIDTH, Drawing
from rths_nodes.analysis.figures.style import FAINT, INK, LIMIT, PALETTE, Look, printed, styled
from rths_nodes.analysis.index_definitions import definition, magnitude_title
from rths_nodes.analysis.study_table import HIGH, LOW, StudyTable, percentile
from rths_nodes.analysis.units import exact, grouped, sentence
from rths_nodes.core.samples import Array

ROW, HEIGHT, ACROSS = 0.24, 2.1, 3
"""Heights of a row of runs and of a panel, inches; number of panels side by side."""
DOTS = 1500
"""Largest number of runs drawn as dots; if there are more runs, every n-th run is drawn."""
MARKS = "osD^vP*X<>"
TICKS = 3
STEPS = ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0))
"""Ticks within a decade, from few to many."""
PIECES, MOST = 12, 6
"""Points of a median line; largest number of groups in a panel."""
SHARE, LINE = 0.7, 0.05
"""Share of a level's width that its groups take; distance of the crosses of two groups, relative to the axis."""
NONE_FINISHED, NO_VALUE = "no run finished", "has no value"
SPREAD = (
    f"Dots: single runs. Bars: the middle {HIGH - LOW:g} % of the runs; {{}}: median. Crosses: runs that did not "
    "finish, which count as larger than all others."
)


class Magnitudes:
    """Logarithmic axis of the magnitudes ``values``. Zero has a separate position below all other values."""

    def __init__(self, values: Iterable[Array]) -> None:
        every = np.concatenate([*values, np.zeros(0)])
        every = every[np.isfinite(every)]
        positive = every[every > 0.0]
        self.least, self.most = (float(positive.min()), float(positive.max())) if len(positive) else (1.0, 1.0)
        decades = max(1.0, math.log10(self.most / self.least))
        self.zero = self.least / 10.0 ** (0.12 * decades)
        self.zeros = [self.zero] if (every == 0.0).any() else []
        self.ticks = ticks(self.least, self.most) if len(positive) else []

    @property
    def note(self) -> str:
        return "Logarithmic axis, with zero at its left end." if self.zeros else "Logarithmic axis."

    def at(self, values: Array | float) -> Array:
        return np.where(np.asarray(values) > 0.0, values, self.zero)

    def dress(self, panel: Axes, direction: str) -> float:
        """Set scale, ticks and limits of the axis ``direction`` (x or y), and return its upper end."""
        axis = getattr(panel, f"{direction}axis")
        low, high = self.zeros[0] if self.zeros else self.least, self.most
        beyond = max((high / low) ** 0.05, 1.05)
        panel.set(**{f"{direction}scale": "log", f"{direction}lim": (low / beyond, high * beyond)})
        axis.set_major_locator(FixedLocator([*self.zeros, *self.ticks]))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(lambda value, _: "0" if value in self.zeros else grouped(value, ".10g"))
        return high * beyond


def ticks(least: float, most: float) -> list[float]:
    decades = range(math.floor(math.log10(least)) - 1, math.ceil(math.log10(most)) + 1)
    choices = [[step * 10.0**decade for decade in decades for step in steps] for steps in STEPS]
    choices.append(MaxNLocator(4, steps=(1, 2, 2.5, 5, 10)).tick_values(least, most).tolist())
    inside = [[value for value in choice if least / 1.05 <= value <= most * 1.05] for choice in choices]
    return next((values for values in inside if len(values) >= TICKS), inside[-1])


def spread(
    panel: Axes, position: float, values: Array, axis: Magnitudes, looks: tuple[str, str], mark: str
) -> None:
    """Draw runs of magnitude ``values`` as dots, their middle part as a bar and their median as a ``mark``.

    The magnitudes are along x for a stroke (``|``), otherwise along y. ``looks`` are the colours of the dots and
    of the bar.
    """
    across = mark == "|"

    def put(at: Array | list[float], line: str, **style: Any) -> None:
        fixed = np.full(len(at), position)
        panel.plot(*((at, fixed) if across else (fixed, at)), line, **style)

    edge = (panel.get_xlim() if across else panel.get_ylim())[1]
    dots, bar = looks
    finite = values[np.isfinite(values)]
    if len(finite):
        shown = axis.at(finite)[:: max(1, len(finite) // DOTS)]
        put(shown, "o", ms=2.0, mew=0.0, color=dots, alpha=0.5, rasterized=True)
        low, median, high = (percentile(values, percent) for percent in (LOW, 50.0, HIGH))
        ends = [float(axis.at(end)) if np.isfinite(end) else edge for end in (low, high)]
        if np.isfinite(low):
            put(ends, "-", color=bar, lw=3.0, alpha=0.5)
        if np.isfinite(median):
            look = {"ms": 9.0, "mew": 1.6, "color": INK} if across else {"ms": 4.0, "color": bar}
            put([float(axis.at(median))], mark, **look)


def by_label(panel: Axes, sizes: Mapping[str, Array], title: str, axis: Magnitudes) -> None:
    """Draw the magnitudes of each label in a row."""
    edge = axis.dress(panel, "x")
    for position, magnitudes in enumerate(sizes.values()):
        values = magnitudes[~np.isnan(magnitudes)]
        spread(panel, position, values, axis, (FAINT, PALETTE[0]), "|")
        failed = int(np.isinf(values).sum())
        if failed == len(values):
            words = NONE_FINISHED if failed else NO_VALUE
            panel.text(0.01, position, words, color=FAINT, va="center", transform=panel.get_yaxis_transform())
        if failed:
            panel.plot(edge, position, "x", ms=5.0, color=LIMIT, clip_on=False)
            words, away = f"{failed} of {len(values)}{' unfinished' if printed() is None else ''}", (6.0, 0.0)
            panel.annotate(words, (edge, position), away, textcoords="offset points", color=LIMIT, va="center")
    panel.set_yticks(range(len(sizes)), [*sizes])
    panel.set(ylim=(len(sizes) - 0.4, -0.6), xlabel=title)


def _drawing(title: str, caption: str) -> Drawing:
    return Drawing(re.sub(r"\W+", "_", title).strip("_").lower(), title, caption)


def _by_label(table: StudyTable, index: str, rows: Mapping[str, Sequence[int]], noun: str) -> Drawing:
    size = table.magnitudes(index)
    sizes = {label: size[[*numbers]] for label, numbers in rows.items()}
    axis = Magnitudes(sizes.values())
    title = f"{sentence(definition(index).title)} by {noun}"
    figure = _drawing(title, f"{SPREAD.format('stroke')} {axis.note}")
    by_label(figure.panels(1, height=0.4 + ROW * len(sizes))[0, 0], sizes, magnitude_title(index), axis)
    return figure


def scoreboard_drawings(table: StudyTable, labels: Sequence[str], across: str, up: str) -> Iterator[Drawing]:
    """Draw the figures of a ``table`` whose column ``law`` contains the ``labels``.

    ``across`` is the tracking index, ``up`` the response index. If both are the same index, the figure of one
    versus the other is omitted.
    """
    if table.finished.any():
        laws = table.columns["law"]
        rows = {label: [row for row, law in enumerate(laws) if law == label] for label in labels}
        yield from (_by_label(table, index, rows, "compensator") for index in table.indices)
        if across != up:
            yield _tracking(table, rows, across, up)


def _tracking(table: StudyTable, rows: Mapping[str, Sequence[int]], across: str, up: str) -> Drawing:
    caption = "Median over the runs, if most of them finished. The best compensators are at the lower left."
    figure = _drawing("Tracking against response", caption)
    panel = figure.panels(1, height=3.4)[0, 0]
    sizes = [table.magnitudes(index) for index in (across, up)]
    medians = {label: [percentile(size[[*own]], 50.0) for size in sizes] for label, own in rows.items()}
    shown = [pair for pair in medians.values() if np.isfinite(pair).all()]
    axes = [Magnitudes([np.array([pair[column] for pair in shown])]) for column in (0, 1)]
    for number, (label, pair) in enumerate(medians.items()):
        if pair in shown:
            at = [[float(axis.at(value))] for axis, value in zip(axes, pair, strict=True)]
            look = {"color": PALETTE[number % len(PALETTE)], "marker": MARKS[number % len(MARKS)]}
            panel.plot(*at, ls="", ms=6.0, label=label, **look)
    for axis, column in zip(axes, "xy", strict=True):
        axis.dress(panel, column)
    panel.set(xlabel=f"tracking: {magnitude_title(across)}", ylabel=f"response: {magnitude_title(up)}")
    figure.finish()
    return figure


def drawings(table: StudyTable) -> Iterator[Drawing]:
    """Draw the figures of a study, in matplotlib's current style."""
    if not table.finished.any():
        return
    more = f" Only {MOST} of {len(table.groups)} groups are shown." if len(table.groups) > MOST else ""
    for index in table.indices:
        if len(table.groups) > 1:
            yield _by_label(table, index, {group: [*rows] for group, rows in table.groups.items()}, "group")
        if table.shown_factors:
            yield _effects(table, index, more)
    caption = f"Share of the runs up to each magnitude. A curve ends below 1 if some runs did not finish.{more}"
    figure = _drawing("Distribution of the indices", caption)
    panels = _panels(figure, len(table.indices), "share of the runs")
    for panel, index in zip(panels, table.indices, strict=True):
        size = table.magnitudes(index)
        axis = Magnitudes([size])
        for group, look in _looks(table).items():
            values = np.sort(size[table.groups[group]])
            values = values[~np.isnan(values)]
            finite = values[np.isfinite(values)]
            if len(finite):
                shares = np.arange(len(finite) + 1) / len(values)
                steps = axis.at(np.append(finite[0], finite))
                panel.step(steps, shares, where="post", label=group, **(look | {"marker": ""}))
        axis.dress(panel, "x")
        panel.set(xlabel=magnitude_title(index), ylim=(0.0, 1.0))
    figure.finish()
    yield figure


def _effects(table: StudyTable, index: str, more: str) -> Drawing:
    size, axis = table.magnitudes(index), Magnitudes([table.magnitudes(index)])
    title = f"{sentence(definition(index).title)}: effect of each factor"
    figure = _drawing(title, f"{SPREAD.format('marks and lines')} {axis.note}{more}")
    shown = min(len(table.groups), MOST) if table.failed.any() else 0
    panels = _panels(figure, len(table.shown_factors), magnitude_title(index))
    for group, look in _looks(table).items():
        panels[0].plot([], [], label=group, **look)
    for panel, factor in zip(panels, table.shown_factors, strict=True):
        axis.dress(panel, "y")
        low, high = panel.get_ylim()
        failed = [high * (high / low) ** (LINE * (number + 0.7)) for number in range(MOST)]
        (_over if table.continuous(factor) else _by_level)(panel, table, factor, size, axis, failed)
        panel.set_ylim(low, high * (high / low) ** (LINE * (shown + 0.5) if shown else 0.0))
        name = table.title_of(factor)
        panel.set_xlabel(name if len(name) <= 34 else f"…{name[-33:]}")
    figure.finish()
    return figure


def _over(
    panel: Axes, table: StudyTable, factor: str, size: Array, axis: Magnitudes, failed: Sequence[float]
) -> None:
    x, every = np.array(table.columns[factor], dtype=float), max(1, len(size) // DOTS)
    for (group, look), crosses in zip(_looks(table).items(), failed, strict=False):
        at, values = x[table.groups[group]], size[table.groups[group]]
        valid = np.isfinite(at) & ~np.isnan(values)
        at, values = at[valid], values[valid]
        for own, line, style in (
            (np.isfinite(values), "o", {"ms": 2.0, "mew": 0.0, "alpha": 0.4, "rasterized": True}),
            (np.isinf(values), "x", {"ms": 3.5}),
        ):
            heights = axis.at(values[own]) if line == "o" else np.full(own.sum(), crosses)
            panel.plot(at[own][::every], heights[::every], line, color=look["color"], **style)
        distinct = np.array_split(np.unique(at), min(PIECES, max(1, len(at) // 5)))
        pieces = [(at >= part[0]) & (at <= part[-1]) for part in distinct if len(part)]
        middle = np.array([percentile(values[piece], 50.0) for piece in pieces])
        middle = np.where(np.isfinite(middle), axis.at(middle), np.nan)
        panel.plot([np.median(at[piece]) for piece in pieces], middle, **look)
    panel.margins(x=0.04)


def _by_level(
    panel: Axes, table: StudyTable, factor: str, size: Array, axis: Magnitudes, failed: Sequence[float]
) -> None:
    cells, looks = table.cells(factor), _looks(table)
    places = {level: position for position, level in enumerate(dict.fromkeys(cell.level for cell in cells))}
    for group, level, rows in cells:
        if group in looks:
            values, number = size[rows][~np.isnan(size[rows])], [*looks].index(group)
            x = places[level] + SHARE * ((number + 0.5) / len(looks) - 0.5)
            colour = looks[group]["color"]
            spread(panel, x, values, axis, (colour, colour), looks[group]["marker"])
            if np.isinf(values).any():
                panel.plot(x, failed[number], "x", ms=3.5, color=colour)
    turned = len(places) > 4 or any(len(level) > 7 for level in places)
    turn = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"} if turned else {}
    panel.set_xticks(range(len(places)), [_fitted(level) for level in places], **turn)
    panel.set_xlim(-0.6, len(places) - 0.4)


def _fitted(label: str) -> str:
    with suppress(ValueError):
        label = exact(float(label))
    return label if len(label) <= 16 else f"{label[:15]}…"


def _looks(table: StudyTable) -> dict[str, Look]:
    looks = styled([*table.groups][:MOST])
    return {group: looks[group] | {"marker": mark, "ms": 3.0} for group, mark in zip(looks, MARKS, strict=False)}


def _panels(figure: Drawing, count: int, label: str) -> list[Axes]:
    """Return ``count`` panels, with ``label`` at the left."""
    across = min(count, ACROSS, max(1, round((printed() or WIDTH) / WIDTH * ACROSS)))
    grid = figure.panels(-(-count // across), across, HEIGHT, sharey=True)
    for panel in grid.ravel()[count:]:
        panel.remove()
    for panel in grid[:, 0]:
        panel.set_ylabel(label)
    panels: list[Axes] = grid.ravel()[:count].tolist()
    return panels
