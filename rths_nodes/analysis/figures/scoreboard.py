# SPDX-License-Identifier: Apache-2.0
"""Figures of a scoreboard: each index by compensator, with its spread, and tracking versus response."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from rths_nodes.analysis.figures.style import FAINT, INK, LIMIT, PALETTE, Drawing, in_style, printed, svg
from rths_nodes.analysis.index_definitions import definition, magnitude_title
from rths_nodes.analysis.study_table import HIGH, LOW, StudyTable, percentile
from rths_nodes.analysis.units import grouped, sentence
from rths_nodes.core.data import Data
from rths_nodes.core.samples import Array

ROW = 0.24
LINE = 0.17
WIDTH = 7.4
DOTS = 1500
"""Largest number of runs drawn as dots; if there are more runs, every n-th run is drawn."""
MARKS = "osD^vP*X<>"
TICKS = 3
STEPS = ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0))
"""Ticks in a decade, from few to many."""
NONE_FINISHED, NO_VALUE = "no run finished", "has no value"


def drawings(table: StudyTable, labels: Sequence[str], across: str, up: str) -> list[Drawing]:
    """Return the figures of a ``table`` whose column ``law`` contains the ``labels``.

    ``across`` and ``up`` are the indices of tracking and response in the last figure, which is omitted if they are
    equal.
    """
    if not table.finished.any():
        return []
    figures: list[Drawing] = []
    for index in table.indices:
        sizes = {label: _magnitudes(table, label, index) for label in labels}
        axis = Magnitudes.by_label(sizes)
        caption = (
            f"Dots: single runs. Bars: the middle {HIGH - LOW:g} %; stroke: median. Crosses: unfinished runs, "
            f"which count as larger than all others. {axis.note}"
        )
        draw = partial(by_label, sizes, magnitude_title(index), axis)
        figures.append((f"{sentence(definition(index).title)} by compensator", caption, draw))
    if across != up:
        caption = "Median over the runs, if most of them finished. The best compensators are at the lower left."
        figures.append(("Tracking against response", caption, partial(_tracking, table, labels, across, up)))
    return figures


def drawn(drawings: Iterable[Drawing]) -> list[tuple[str, str, str]]:
    with in_style():
        return [(title, caption, svg(draw(), title)) for title, caption, draw in drawings]


def _rows(table: StudyTable, label: str) -> list[int]:
    return [row for row, other in enumerate(table.columns["law"]) if other == label]


def _magnitudes(table: StudyTable, label: str, index: str) -> Array:
    return table.magnitudes(index)[_rows(table, label)]


class Magnitudes:
    """Logarithmic axis of the magnitudes ``values``. Zero has a separate position, left of all other values."""

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
        """Return the plot axis for all finite magnitudes in ``sizes``."""
        return cls(size[np.isfinite(size)] for size in sizes.values())

    @property
    def note(self) -> str:
        return "Logarithmic, with zero at the left end." if self.with_zero else "Logarithmic."

    def at(self, values: Array) -> Array:
        return np.where(values > 0.0, values, self.zero)

    def dress(self, panel: Axes, direction: str) -> None:
        """Set scale and ticks of the axis ``direction``, ``x`` or ``y``."""
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
    """Draw magnitudes by label: dots, percentiles, and a cross with the number of failed runs."""
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
    figure = Figure(figsize=(WIDTH, max(3.6, 0.5 + LINE * len(labels))), layout="constrained")
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
