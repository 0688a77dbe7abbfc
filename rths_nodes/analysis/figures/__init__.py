# SPDX-License-Identifier: Apache-2.0
"""Figures of the report. The package imports matplotlib, so other modules import it only to draw.

To add a figure, write a function that draws on a figure. The function returns title and caption, or None if there
is nothing to draw. Add the function to one of the tables below. The figure file is named after the function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from rths_nodes.analysis.figures import histories
from rths_nodes.analysis.figures.drawing import Drawing, Recordings, Words

Draw = Callable[[Drawing, Recordings], Words | None]
FIGURES: tuple[Draw, ...] = (
    histories.displacement,
    histories.zooms,
    histories.control_error,
    histories.tracking_indicator,
    histories.delay,
    histories.compensator,
    histories.copies,
    histories.hysteresis,
    histories.energy,
    histories.synchronisation,
    histories.equilibrium,
    histories.response,
    histories.spectrum,
    histories.loads,
    histories.corridor,
)
OVERLAID: tuple[Draw, ...] = (
    histories.displacement,
    histories.difference,
    histories.control_error,
    histories.tracking_indicator,
    histories.delay,
    histories.force,
    histories.response,
    histories.energy,
    histories.compensator,
)


def drawings(tests: Recordings) -> Iterator[Drawing]:
    """Draw the figures of one or several tests, in matplotlib's current style.

    A figure that raises ConfigError is omitted, and its message is stored in ``left_out`` of the first test.
    """
    chosen: Sequence[Draw] = OVERLAID
    if tests.alone:
        chosen = (*(FIGURES if len(tests.of.counted) > 1 else ()), histories.timing)
    for draw in chosen:
        figure = Drawing(draw.__name__)
        texts = tests.of.or_left_out(f"the figure of {draw.__name__}", partial(draw, figure, tests), None)
        if texts is not None:
            figure.title, figure.caption = texts
            figure.finish()
            yield figure
