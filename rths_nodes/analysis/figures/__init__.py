"""The figures of the report, as SVG text. Only these modules know matplotlib; only the report loads them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import matplotlib

from rths_nodes.analysis.figures import corridor, energy, excitation, histories, loads, timing
from rths_nodes.analysis.figures.sheet import Drawing, View, svg
from rths_nodes.analysis.figures.style import STYLE
from rths_nodes.analysis.histories import Evaluation

FIGURES: tuple[Callable[[View], Drawing | None], ...] = (
    histories.displacements,
    histories.control_error,
    histories.tracking_indicator,
    histories.delay,
    histories.compensator,
    energy.hysteresis,
    energy.energy,
    energy.synchronisation,
    histories.response,
    excitation.spectrum,
    loads.loads,
    corridor.bands,
)
"""Each may return None: the run has not enough numbers for it."""


def drawn(of: Evaluation) -> list[tuple[str, str, str]]:
    """Title, caption and SVG of each figure; none if there are too few samples to draw.

    A figure for which a component is missing is noted in ``of.left_out``.
    """
    view = View(of)
    if len(view.running.time) < 2:
        return []
    found = []
    with matplotlib.rc_context(STYLE):
        for draw in FIGURES:
            drawing = of.or_left_out(f"the figure of {draw.__name__}", partial(draw, view), None)
            if drawing is not None:
                title, caption, figure = drawing
                found.append((title, caption, svg(figure, title)))
    return found


def histograms(of: Evaluation) -> str:
    """SVG of the histograms of the timing; empty if none were recorded."""
    with matplotlib.rc_context(STYLE):
        figure = timing.histograms(of.run)
        return "" if figure is None else svg(figure, "Timing histograms")
