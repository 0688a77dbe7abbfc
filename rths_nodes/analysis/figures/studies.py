# SPDX-License-Identifier: Apache-2.0
"""Figures of a study: effect of each factor, and distribution of each index."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rths_nodes.analysis.figures.style import FAINT, INK, PALETTE, in_style, svg
from rths_nodes.analysis.study_table import HIGH, LOW, StudyTable, shown
from rths_nodes.core.samples import Array

ACROSS = 3
"""Factors in a row."""
PIECES = 12
"""Intervals of a continuous factor, each with its median."""
DOTS = 1500
"""Largest number of runs drawn as dots; of more, every n-th."""
WIDTH, HEIGHT = 7.4, 2.1
"""Width of a figure, height of a row of panels with their labels, inches."""


def drawn(table: StudyTable) -> list[tuple[str, str, str]]:
    """Return title, caption and SVG of each figure; none if no run has finished."""
    if not table.finished.any():
        return []
    found = []
    with in_style():
        for index in table.indices:
            if table.shown_factors:
                title = f"{index}: effect of each factor"
                words = f"Dots: single runs. Bars: median and the middle {HIGH - LOW:g} % of the finished runs."
                found.append((title, words, svg(_effects(table, index), title)))
        title = "Distribution of the indices"
        found.append((title, "Share of the finished runs up to a value.", svg(_distributions(table), title)))
    return found


def _effects(table: StudyTable, index: str) -> Figure:
    figure, panels = _panels(len(table.shown_factors))
    size = np.abs(table.values(index))
    for panel, factor in zip(panels, table.shown_factors, strict=True):
        if table.continuous(factor):
            _over(panel, np.array(table.columns[factor], dtype=float), size)
        else:
            _by_level(panel, table, factor, index, size)
        panel.set_xlabel(factor if len(factor) <= 34 else f"…{factor[-33:]}")
        panel.set_ylim(bottom=0.0)
    for panel in panels[::ACROSS]:
        panel.set_ylabel(f"|{index}|")
    return figure


def _over(panel: Axes, x: Array, size: Array) -> None:
    known = np.isfinite(x) & np.isfinite(size)
    x, size = x[known], size[known]
    every = max(1, len(x) // DOTS)
    panel.plot(x[::every], size[::every], ".", ms=2.0, color=PALETTE[0], alpha=0.5, rasterized=len(x) > DOTS)
    order = np.argsort(x, kind="stable")
    pieces = [piece for piece in np.array_split(order, min(PIECES, max(1, len(x) // 5))) if len(piece)]
    panel.plot(
        [np.median(x[piece]) for piece in pieces], [np.median(size[piece]) for piece in pieces], color=PALETTE[1]
    )
    panel.margins(x=0.04)


def _by_level(panel: Axes, table: StudyTable, factor: str, index: str, size: Array) -> None:
    levels = table.levels(factor, index)
    places = {level.label: place for place, level in enumerate(levels)}
    x = np.array([places[shown(value)] for value in table.columns[factor]], dtype=float)
    every = max(1, len(x) // DOTS)
    panel.plot(x[::every], size[::every], ".", ms=2.0, color=FAINT, alpha=0.6)
    for place, level in enumerate(levels):
        panel.plot([place, place], [level.low, level.high], color=PALETTE[0], lw=3.0, alpha=0.5)
        panel.plot([place - 0.22, place + 0.22], [level.median] * 2, color=PALETTE[1], lw=1.6)
    panel.set_xticks(range(len(levels)), [_fitted(level.label) for level in levels])
    if len(levels) > 4 or any(len(level.label) > 7 for level in levels):
        panel.tick_params(axis="x", labelrotation=35)
        for label in panel.get_xticklabels():
            label.set_horizontalalignment("right")
            label.set_rotation_mode("anchor")
    panel.set_xlim(-0.6, len(levels) - 0.4)


def _fitted(label: str) -> str:
    return label if len(label) <= 16 else f"{label[:15]}…"


def _distributions(table: StudyTable) -> Figure:
    figure, panels = _panels(len(table.indices))
    for panel, index in zip(panels, table.indices, strict=True):
        values = np.sort(table.values(index))
        values = values[np.isfinite(values)]
        if len(values):
            panel.plot(
                np.repeat(values, 2), np.repeat(np.arange(len(values) + 1), 2)[1:-1] / len(values), color=INK
            )
        panel.set_xlabel(index)
        panel.set_ylim(0.0, 1.0)
        panel.margins(x=0.04)
    for panel in panels[::ACROSS]:
        panel.set_ylabel("share of the runs")
    return figure


def _panels(count: int) -> tuple[Figure, list[Axes]]:
    rows, across = -(-count // ACROSS), min(count, ACROSS)
    figure = Figure(figsize=(WIDTH, rows * HEIGHT), layout="constrained")
    panels = figure.subplots(rows, across, squeeze=False, sharey=True).ravel().tolist()
    for panel in panels[count:]:
        panel.remove()
    return figure, panels[:count]
