"""Figures of a scoreboard: an index by compensator with its spread, and tracking against response."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from rths_nodes.analysis.figures.sheet import WIDTH, svg
from rths_nodes.analysis.figures.style import FAINT, PALETTE, STYLE
from rths_nodes.analysis.study_table import HIGH, LOW, StudyTable

ROW = 0.24
"""Height of a compensator in the figure of an index, inches."""
NAMES = 1.9
"""Room for the names, inches."""
MARKS = "osD^vP*X<>"


def drawn(table: StudyTable, labels: Sequence[str], across: str, up: str) -> list[tuple[str, str, str]]:
    """Title, caption and SVG of each figure of the runs in ``table``, whose column ``law`` has the ``labels``.

    ``across`` and ``up`` are the indices of tracking and response of the last figure; it is left out where they
    are the same one.
    """
    if not table.finished.any():
        return []
    found = []
    with matplotlib.rc_context(STYLE):
        for index in table.indices:
            title = f"{index} by compensator"
            words = (
                f"Dots: single runs that finished. Bars: the middle {HIGH - LOW:g} %; stroke: median. "
                "Logarithmic; a compensator without dots finished no run."
            )
            found.append((title, words, svg(_by_law(table, labels, index), title)))
        if across != up:
            title = "Tracking against response"
            words = (
                f"Median over the runs that finished: tracking {across}, response {up}. Below and left is best."
            )
            found.append((title, words, svg(_tracking(table, labels, across, up), title)))
    return found


def _of(table: StudyTable, label: str, index: str) -> Any:
    size = np.abs(table.values(index)[[other == label for other in table.columns["law"]]])
    return size[np.isfinite(size) & (size > 0.0)]


def _logarithmic(panel: Any, *which: str) -> None:
    for name in which:
        axis = getattr(panel, f"{name}axis")
        getattr(panel, f"set_{name}scale")("log")
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())


def _by_law(table: StudyTable, labels: Sequence[str], index: str) -> Figure:
    height = 0.65 + ROW * len(labels)
    figure = Figure(figsize=(WIDTH, height))
    width = 1.0 - (NAMES + 0.2) / WIDTH
    panel = figure.add_axes((NAMES / WIDTH, 0.45 / height, width, 1.0 - 0.6 / height))
    for place, label in enumerate(labels):
        values = _of(table, label, index)
        if len(values):
            low, median, high = np.percentile(values, (LOW, 50.0, HIGH))
            panel.plot(values, np.full(len(values), place), ".", ms=2.5, color=FAINT, alpha=0.7)
            panel.plot([low, high], [place, place], color=PALETTE[0], lw=3.0, alpha=0.5)
            panel.plot([median, median], [place - 0.3, place + 0.3], color=PALETTE[1], lw=1.6)
    _logarithmic(panel, "x")
    panel.set_yticks(range(len(labels)), labels)
    panel.set_ylim(len(labels) - 0.4, -0.6)
    panel.set_xlabel(f"|{index}|")
    panel.margins(x=0.05)
    return figure


def _tracking(table: StudyTable, labels: Sequence[str], across: str, up: str) -> Figure:
    height = 3.6
    figure = Figure(figsize=(WIDTH, height))
    panel = figure.add_axes((0.7 / WIDTH, 0.45 / height, 1.0 - 3.1 / WIDTH, 1.0 - 0.6 / height))
    for place, label in enumerate(labels):
        x, y = _of(table, label, across), _of(table, label, up)
        if len(x) and len(y):
            style: dict[str, Any] = {
                "color": PALETTE[place % len(PALETTE)],
                "marker": MARKS[place // len(PALETTE) % len(MARKS)],
            }
            panel.plot([np.median(x)], [np.median(y)], ls="", ms=6.0, label=label, **style)
    _logarithmic(panel, "x", "y")
    panel.set_xlabel(f"tracking: |{across}|")
    panel.set_ylabel(f"response: |{up}|")
    panel.margins(0.1)
    panel.legend(loc="upper left", bbox_to_anchor=(1.01, 1.02), borderaxespad=0.0)
    return figure
