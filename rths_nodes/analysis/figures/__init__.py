"""The figures of the report, as SVG text. Only these modules know matplotlib; only the report loads them."""

from __future__ import annotations

from collections.abc import Callable

import matplotlib

from rths_nodes.analysis.figures import energy, histories, timing
from rths_nodes.analysis.figures.sheet import Drawing, View, svg
from rths_nodes.analysis.figures.style import STYLE
from rths_nodes.recording.run import Run

FIGURES: tuple[Callable[[View], Drawing | None], ...] = (
    histories.displacements,
    histories.control_error,
    histories.tracking_indicator,
    histories.compensator,
    energy.hysteresis,
    energy.energy,
    energy.synchronisation,
    histories.response,
)
"""Each may return None: the run has not enough numbers for it."""


def drawn(run: Run) -> list[tuple[str, str, str]]:
    """Title, caption (both HTML) and SVG of each figure; none if there are too few samples to draw."""
    view = View(run)
    if len(view.running.time) < 2:
        return []
    with matplotlib.rc_context(STYLE):
        drawings = [drawing for draw in FIGURES if (drawing := draw(view)) is not None]
        return [(title, caption, svg(figure, title)) for title, caption, figure in drawings]


def histograms(run: Run) -> str:
    """SVG of the histograms of the timing; empty if none were recorded."""
    with matplotlib.rc_context(STYLE):
        figure = timing.histograms(run)
        return "" if figure is None else svg(figure, "Timing histograms")
