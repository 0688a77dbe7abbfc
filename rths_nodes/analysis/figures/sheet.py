# SPDX-License-Identifier: Apache-2.0
"""Parts that all figures share: tests as they are drawn, thinned curves, clean SVG."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rths_nodes.analysis.figures import thinning
from rths_nodes.analysis.figures.plan import COLUMNS, TIME, Base, Curve, Look, Panel, Plan, Quantity, Shown
from rths_nodes.analysis.figures.style import SHADES, ZERO, Entry, styled
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.overlay import Aligned
from rths_nodes.core.samples import Array
from rths_nodes.recording.run import Run

WIDTH, LEFT, RIGHT, BOTTOM, GAP = 7.4, 0.66, 0.16, 0.42, 0.14
"""Width of a figure (the browser scales it), its margins, and the gap between two panels, inches."""
CELLS = 1200
"""Dots across a plot of one quantity over another."""
RASTER = 12_000
"""A curve with more points than this becomes dots instead of lines of SVG."""


class View:
    """Tests as they are drawn: one of them, or several over one another, the first in front.

    One is drawn over its recording, with its flagged stretches: each axis has a colour, all share a panel.
    Where several are drawn, each test has a colour, and each axis a panel of its own. ``samples``, ``counted`` and
    ``steps`` are bases of tables, one for each test; ``of``, ``run`` and ``running`` are those of the first.
    """

    def __init__(self, tests: Sequence[Aligned]) -> None:
        self.tests, self.first = tests, tests[0]
        self.of, self.run, self.running = self.first.of, self.first.run, self.first.of.running
        self.alone = self.first.recorded
        self.samples = [Base("samples", TIME, test.time) for test in tests]
        self.counted = [Base("samples", TIME, test.counted) for test in tests]
        self.steps = [Base("steps", TIME, test.step_time) for test in tests]
        self.spans = _spans(self.run) if self.alone else []
        self.axes = styled(self.run.axes)
        self.entries = styled(test.name for test in tests)
        self.whole = 0.0, max(self.run.scenario.dt, *(float(test.time[-1]) for test in tests))

    @classmethod
    def one(cls, of: Evaluation) -> View:
        return cls([Aligned("", of, recorded=True)])

    @property
    def legend(self) -> list[Entry]:
        """The tests; of a single one the axes, if there are several."""
        return self.legend_of(self.axes)

    def legend_of(self, entries: list[Entry]) -> list[Entry]:
        """The tests; of a single one the ``entries``, if there are several."""
        return self.entries if not self.alone else entries if len(entries) > 1 else []

    def named(self, quantity: Quantity, entries: Sequence[Entry], name: str) -> Quantity:
        """``quantity`` as that of one of ``entries``: by its name, if there are several."""
        return Quantity(f"{quantity.name} {name}".rstrip(), quantity.unit) if len(entries) > 1 else quantity

    def titled(self, title: str, found: str) -> str:
        """The title of a figure: with what was found in a single test."""
        return f"{title}: {found}" if self.alone else title

    def told(self, test: Aligned, quantity: Quantity) -> Quantity:
        """``quantity`` as that of a ``test``: by its name, where several are drawn."""
        return quantity if self.alone else Quantity(f"{test.name}: {quantity.name}", quantity.unit)

    def curves(
        self,
        bases: Sequence[Base],
        of: Quantity,
        values: Sequence[Array],
        entry: Entry,
        width: float = 1.0,
        dots: bool = False,
    ) -> list[Curve]:
        """A curve of each test, the first one in front; ``values (n,)`` of each, empty: it has none.

        ``entry`` is the style of a single test.
        """
        found = []
        for test, base, each, own in zip(self.tests, bases, values, self.entries, strict=True):
            if len(each):
                look = Look.of(entry if self.alone else own, width, dots)
                found.append(Curve(base.first(len(each)), self.told(test, of), each, look))
        return found[::-1]

    def panels(
        self,
        bases: Sequence[Base],
        of: Quantity,
        values: Sequence[Sequence[Array] | Array],
        entries: Sequence[Entry],
        width: float = 1.0,
        dots: bool = False,
        levels: Sequence[tuple[float, Look]] = (),
    ) -> list[Panel]:
        """A quantity over time: of a single test one panel, of several one for each of the ``entries``.

        ``values`` of each test are a column ``(n,)`` for each of the entries; those of several are told by name.
        """
        rows = []
        for column, entry in enumerate(entries):
            named = self.named(of, entries, entry[0])
            own = [each[column] for each in values]
            rows.append((named, self.curves(bases, named, own, entry, width, dots)))
        if self.alone:
            rows = [(of, [curve for _, curves in rows for curve in curves])]
        return [self.panel(label, shown, levels=levels) for label, shown in rows if shown]

    def panel(self, y: Quantity, shown: Sequence[Shown], **more: Any) -> Panel:
        """A panel over the time of the longest test."""
        return Panel(TIME, y, shown, span=self.whole, over_time=True, **more)

    def plan(
        self,
        name: str,
        words: tuple[str, str],
        panels: Sequence[Panel],
        heights: Sequence[float],
        legend: Sequence[Entry] = (),
    ) -> Plan:
        """Panels over time below one another, with the flagged stretches; ``words``: title and caption."""
        return Plan(name, *words, [[panel] for panel in panels], heights, legend, self.spans)


def _spans(run: Run) -> list[Entry]:
    """Label, colour and stretches of time of the flagged samples; each stretch is wide enough to be seen."""
    found: list[Entry] = []
    least = max(1, len(run.time) // COLUMNS)
    for flag, label, colour in SHADES:
        marked = (run.flags & flag) != 0
        if not marked.any():
            continue
        cells = thinning.intervals(np.add.reduceat(marked, np.arange(0, len(marked), least)) > 0)
        dt = run.scenario.dt  # sample k stands at the end of its period
        stretches = [((first * least - 1) * dt, ((last + 1) * least - 1) * dt) for first, last in cells]
        found.append((f"{label} ({int(marked.sum())})", colour, stretches))
    return found


def plot(panel: Axes, time: Array, values: Array, columns: int = COLUMNS, **style: Any) -> None:
    """A history by its envelope; gaps stay gaps."""
    finite = np.isfinite(values)
    if not finite.any():
        return
    filled = values if finite.all() else np.where(finite, values, float(values[finite][0]))
    keep = thinning.envelope(len(values), filled, columns)
    panel.plot(time[keep], values[keep], **style)


def curve(panel: Axes, x: Array, y: Array, **style: Any) -> None:
    """y over x, without the points that nobody can tell apart."""
    usable = np.isfinite(x) & np.isfinite(y)
    x, y = x[usable], y[usable]
    keep = thinning.thinned(x, y, CELLS)
    panel.plot(x[keep], y[keep], rasterized=len(keep) > RASTER, **style)


def at_zero(panel: Axes) -> None:
    panel.axhline(0.0, color=ZERO, lw=0.6, zorder=1.5)


def svg(figure: Figure, title: str) -> str:
    """The figure as an SVG element of the page: no prolog, no ids that could meet those of its neighbours."""
    label = html.escape(title)
    with matplotlib.rc_context({"svg.hashsalt": label}), io.StringIO() as buffer:
        figure.savefig(buffer, format="svg")
        text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r' xmlns(:xlink)?="[^"]*"', "", text)
    text = re.sub(r'<g id="[^"]*">', "<g>", text)
    text = re.sub(r"(font: [\d.]+px)[^;\"]*", r"\1 var(--face)", text)
    text = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\d\.\d\d)\d+|\n", r"\1", path[0]), text)
    text = re.sub(r"\n\s*", "\n", text)
    return text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
