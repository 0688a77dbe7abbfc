# SPDX-License-Identifier: Apache-2.0
"""The figures of the report. These modules import matplotlib, so other modules import them only to draw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from rths_nodes.analysis.figures import energy, histories, tracking, updating
from rths_nodes.analysis.figures.sheet import PAGE, Paper, Sheet, View, Words
from rths_nodes.analysis.figures.style import ON_PAGE, in_style, svg

TALL = 8.0
"""Height above which a figure would be unreadable on half a sheet, inches."""
Draw = Callable[[Sheet, View], Words | None]
"""Function that draws tests on a sheet and returns title and caption, or None if there is nothing to draw. The
figure's files are named after the function."""
FIGURES: tuple[Draw, ...] = (
    histories.displacement,
    tracking.zooms,
    histories.control_error,
    histories.tracking_indicator,
    histories.delay,
    histories.compensator,
    updating.copies,
    energy.hysteresis,
    energy.energy,
    energy.synchronisation,
    histories.equilibrium,
    histories.response,
    histories.spectrum,
    histories.loads,
    tracking.corridor,
)
OVERLAID: tuple[Draw, ...] = (
    histories.displacement,
    histories.difference,
    histories.control_error,
    histories.tracking_indicator,
    histories.delay,
    energy.force,
    histories.response,
    energy.energy,
    histories.compensator,
)


def sheets(view: View, paper: Paper = PAGE) -> list[Sheet]:
    """Draw the figures of one test (timing last) or of several tests.

    A figure that raises ConfigError is listed in ``left_out`` of the first test.
    """
    figures: Sequence[Draw] = OVERLAID
    if view.alone:
        figures = (*(FIGURES if len(view.of.counted) > 1 else ()), histories.timing)
    return [sheet for draw in figures if (sheet := _sheet(draw, view, paper))]


def _sheet(draw: Draw, view: View, paper: Paper) -> Sheet | None:
    sheet = Sheet(draw.__name__, paper)
    failure = view.of.or_left_out(f"the figure of {sheet.name}", partial(draw, sheet, view), None)
    if failure is None:
        return None
    sheet.title, sheet.caption = failure
    sheet.finish()
    return sheet


def drawn(view: View) -> list[Sheet]:
    with in_style(ON_PAGE):
        result = sheets(view)
        for sheet in result:
            sheet.tall, sheet.svg = sheet.figure.get_figheight() > TALL, svg(sheet.figure, sheet.title)
    return result
