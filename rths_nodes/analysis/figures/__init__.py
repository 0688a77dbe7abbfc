# SPDX-License-Identifier: Apache-2.0
"""The figures of the report, as SVG text. Only these modules know matplotlib; only the report loads them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import matplotlib

from rths_nodes.analysis.figures import (
    copies,
    corridor,
    energy,
    excitation,
    histories,
    timing,
    tracking,
)
from rths_nodes.analysis.figures.plan import Plan
from rths_nodes.analysis.figures.render import render
from rths_nodes.analysis.figures.sheet import View, svg
from rths_nodes.analysis.figures.style import ON_PAGE
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.overlay import Aligned

TALL = 8.0
"""Height of a figure, inches, that a half of a sheet would leave too small to be read."""
FIGURES: tuple[Callable[[View], Plan | None], ...] = (
    histories.displacements,
    tracking.zooms,
    histories.control_error,
    histories.tracking_indicator,
    histories.delay,
    histories.compensator,
    copies.learnt,
    energy.hysteresis,
    energy.energy,
    energy.synchronisation,
    histories.residual,
    histories.response,
    excitation.spectrum,
    histories.loads,
    corridor.bands,
)
"""Figures of a single test; each may return None: the run has not enough numbers for it."""
OVERLAID: tuple[Callable[[View], Plan | None], ...] = (
    histories.displacements,
    histories.differences,
    histories.control_error,
    histories.tracking_indicator,
    histories.delay,
    energy.force,
    histories.response,
    energy.energy,
    histories.compensator,
)
"""Figures of several tests over one another."""


def plans(of: Evaluation) -> list[Plan]:
    """Return the plans of the figures of a run; none if there are too few samples to draw.

    A figure for which a component is missing is noted in ``of.left_out``.
    """
    return _found(View.one(of), FIGURES) if len(of.counted) > 1 else []


def overlaid(tests: Sequence[Aligned]) -> list[Plan]:
    """Plans of the figures of several tests; a missing component is noted in ``left_out`` of the first."""
    return _found(View([test for test in tests if test.drawable]), OVERLAID)


def _found(view: View, of: Iterable[Callable[[View], Plan | None]]) -> list[Plan]:
    plans = [view.of.or_left_out(f"the figure of {plan.__name__}", partial(plan, view), None) for plan in of]
    return [plan for plan in plans if plan is not None]


def all_plans(of: Evaluation) -> list[Plan]:
    """Return the plans of a run, and that of its timing where it was recorded."""
    timed = timing.histograms(of.run)
    return [*plans(of), *([timed] if timed else [])]


class Drawn(NamedTuple):
    """A figure of the page as SVG, with its title and caption; a ``tall`` one fills a sheet of paper."""

    title: str
    caption: str
    svg: str
    tall: bool


def drawn(plan: Plan) -> Drawn:
    with matplotlib.rc_context(ON_PAGE):
        figure = render(plan)
        return Drawn(plan.title, plan.caption, svg(figure, plan.title), figure.get_figheight() > TALL)
