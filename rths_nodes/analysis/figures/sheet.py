"""What all figures share: the sheet with its legend, shaded stretches of time, thinned curves, clean SVG."""

from __future__ import annotations

import html
import io
import math
import re
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from rths_nodes.analysis.figures import thinning
from rths_nodes.analysis.figures.style import BAND, BAND_WIDTH, SHADES, ZERO, Entry, styled
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.core.samples import Array
from rths_nodes.recording.run import Run

Drawing = tuple[str, str, Figure]
"""Title, caption, figure."""

WIDTH, LEFT, RIGHT, BOTTOM, GAP = 7.4, 0.66, 0.16, 0.42, 0.14
"""Width of a figure (the browser scales it), its margins, and the gap between two panels, inches."""
COLUMNS = 700
"""Dots across a time plot: finer than this nothing is drawn."""
CELLS = 1200
"""Dots across a plot of one quantity over another."""
RASTER = 12_000
"""A curve with more points than this becomes dots instead of lines of SVG."""


class View:
    """An evaluated run as it is drawn: running indices, flagged stretches of time, a line style per axis."""

    def __init__(self, of: Evaluation) -> None:
        self.of, self.run, self.running = of, of.run, of.running
        self.spans = _spans(of.run)
        self.axes = styled(of.run.axes)

    @property
    def legend(self) -> list[Entry]:
        """The axes, if there are several."""
        return self.axes if len(self.axes) > 1 else []


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


def sheet(
    heights: Sequence[float],
    entries: Sequence[Entry],
    widths: Sequence[float] = (1.0,),
    shades: Sequence[Entry] = (),
    between: float = 0.2,
    titled: bool = False,
    gap: float = GAP,
) -> tuple[Figure, Any]:
    """A figure with one row of panels per height (inches) and one legend on top, of lines and shades."""
    handles: list[Any] = [
        Line2D([], [], color=colour, linestyle=line, lw=BAND_WIDTH if colour == BAND else 1.2)
        for _, colour, line in entries
    ]
    handles += [Patch(color=colour, alpha=0.3, lw=0.0) for _, colour, _ in shades]
    labels = [entry[0] for entry in (*entries, *shades)]
    longest = max((len(label) for label in labels), default=0)
    across = max(1, min(len(labels), int((WIDTH - 0.6) / (0.068 * longest + 0.45))))
    top = 0.17 * math.ceil(len(labels) / across) + (0.3 if titled else 0.12)
    inside = sum(heights) + gap * (len(heights) - 1)
    height = top + inside + BOTTOM
    figure = Figure(figsize=(WIDTH, height))
    grid = {
        "left": LEFT / WIDTH,
        "right": 1.0 - RIGHT / WIDTH,
        "bottom": BOTTOM / height,
        "top": 1.0 - top / height,
        "hspace": gap / (sum(heights) / len(heights)),
        "wspace": between,
        "height_ratios": heights,
        "width_ratios": widths,
    }
    panels = figure.subplots(len(heights), len(widths), squeeze=False, gridspec_kw=grid)
    if labels:
        place = {"loc": "upper left", "bbox_to_anchor": (LEFT / WIDTH - 0.01, 1.0), "borderaxespad": 0.1}
        spacing = {"handlelength": 1.8, "columnspacing": 1.4, "labelspacing": 0.2}
        figure.legend(handles, labels, ncols=across, **place, **spacing)
    figure.align_ylabels(panels[:, 0])
    return figure, panels


def time_sheet(view: View, heights: Sequence[float], entries: Sequence[Entry]) -> tuple[Figure, Any]:
    """Panels over time, one below the other, with the flagged samples shaded."""
    figure, panels = sheet(heights, entries, shades=view.spans)
    for panel in panels[:, 0]:
        over_time(view, panel, last=panel is panels[-1, 0])
    return figure, panels[:, 0]


def over_time(view: View, panel: Any, last: bool) -> None:
    """The time axis of a panel and the flagged samples; only the ``last`` panel has numbers below it."""
    for _, colour, stretches in view.spans:
        bars, across = [(start, end - start) for start, end in stretches], panel.get_xaxis_transform()
        panel.broken_barh(bars, (0.0, 1.0), transform=across, color=colour, alpha=0.3, lw=0.0)
    panel.set_xlim(0.0, max(float(view.run.time[-1]), view.run.scenario.dt))
    panel.tick_params(labelbottom=last)
    if last:
        panel.set_xlabel("time (s)")


def plot(panel: Any, time: Array, values: Array, columns: int = COLUMNS, **style: Any) -> None:
    """A history by its envelope; gaps stay gaps."""
    finite = np.isfinite(values)
    if not finite.any():
        return
    filled = values if finite.all() else np.where(finite, values, float(values[finite][0]))
    keep = thinning.envelope(len(values), filled, columns)
    panel.plot(time[keep], values[keep], **style)


def plots(panel: Any, time: Array, values: Array, entries: Sequence[Entry], lw: float) -> None:
    """One history per column of ``values``."""
    for column, (_, colour, line) in zip(values.T, entries, strict=True):
        plot(panel, time, column, color=colour, ls=line, lw=lw)


def curves(panel: Any, x: Array, y: Array, entries: Sequence[Entry], lw: float) -> None:
    """One curve y(x) per column, without the points that nobody can tell apart."""
    for across, up, (name, colour, line) in zip(x.T, y.T, entries, strict=True):
        usable = np.isfinite(across) & np.isfinite(up)
        across, up = across[usable], up[usable]
        keep = thinning.thinned(across, up, CELLS)
        style = {"color": colour, "ls": line, "lw": lw, "label": name}
        panel.plot(across[keep], up[keep], rasterized=len(keep) > RASTER, **style)
    panel.margins(x=0.04)


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
