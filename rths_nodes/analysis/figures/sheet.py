"""What all figures share: a run as it is drawn, thinned curves, clean SVG."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from rths_nodes.analysis.figures import thinning
from rths_nodes.analysis.figures.plan import COLUMNS, TIME, Base, Curve, Look, Panel, Plan, Quantity, Shown
from rths_nodes.analysis.figures.style import SHADES, ZERO, Entry, styled
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.core.samples import Array
from rths_nodes.recording.run import Run

WIDTH, LEFT, RIGHT, BOTTOM, GAP = 7.4, 0.66, 0.16, 0.42, 0.14
"""Width of a figure (the browser scales it), its margins, and the gap between two panels, inches."""
CELLS = 1200
"""Dots across a plot of one quantity over another."""
RASTER = 12_000
"""A curve with more points than this becomes dots instead of lines of SVG."""


class View:
    """An evaluated run as it is drawn: bases of its tables, flagged stretches, a line style per axis."""

    def __init__(self, of: Evaluation) -> None:
        self.of, self.run, self.running = of, of.run, of.running
        self.samples = Base("samples", TIME, of.run.time)
        self.counted = Base("samples", TIME, of.running.time)
        self.steps = Base("steps", TIME, of.run.step_time)
        self.spans = _spans(of.run)
        self.axes = styled(of.run.axes)

    @property
    def legend(self) -> list[Entry]:
        """The axes, if there are several."""
        return self.axes if len(self.axes) > 1 else []

    @property
    def whole(self) -> tuple[float, float]:
        """From the beginning of the recording to its end, s."""
        return 0.0, max(float(self.run.time[-1]), self.run.scenario.dt)

    def named(self, quantity: Quantity, entries: Sequence[Entry], name: str) -> Quantity:
        """``quantity`` as that of one of ``entries``: by its name, if there are several."""
        return Quantity(f"{quantity.name} {name}", quantity.unit) if len(entries) > 1 else quantity

    def each(
        self, base: Base, quantity: Quantity, values: Array, entries: Sequence[Entry], width: float = 1.0
    ) -> list[Curve]:
        """A curve over time for every column of ``values (n, len(entries))``."""
        return [
            Curve(base, self.named(quantity, entries, entry[0]), column, Look.of(entry, width))
            for column, entry in zip(values.T, entries, strict=True)
        ]

    def panel(self, y: Quantity, shown: Sequence[Shown], **more: Any) -> Panel:
        """One over the time of the whole recording."""
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


def plot(panel: Any, time: Array, values: Array, columns: int = COLUMNS, **style: Any) -> None:
    """A history by its envelope; gaps stay gaps."""
    finite = np.isfinite(values)
    if not finite.any():
        return
    filled = values if finite.all() else np.where(finite, values, float(values[finite][0]))
    keep = thinning.envelope(len(values), filled, columns)
    panel.plot(time[keep], values[keep], **style)


def curve(panel: Any, x: Array, y: Array, **style: Any) -> None:
    """y over x, without the points that nobody can tell apart."""
    usable = np.isfinite(x) & np.isfinite(y)
    x, y = x[usable], y[usable]
    keep = thinning.thinned(x, y, CELLS)
    panel.plot(x[keep], y[keep], rasterized=len(keep) > RASTER, **style)


def at_zero(panel: Any) -> None:
    """A faint line there."""
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
