"""Histograms of the timing: how long a sample took, how late it began."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from rths_nodes.analysis.figures import thinning
from rths_nodes.analysis.figures.sheet import sheet
from rths_nodes.analysis.figures.style import INK, LINES, PALETTE
from rths_nodes.analysis.units import US, clocks, grouped, number
from rths_nodes.recording.run import Run


def histograms(run: Run) -> Figure | None:
    """One panel per clock that was recorded; None if there is none."""
    named = clocks(run.information.get("host", ""))
    recorded = [(key, title, *thinning.bars(run.timing.get(f"{key}_histogram", {}))) for key, title in named]
    shown = [row for row in recorded if len(row[-1])]
    if not shown:
        return None
    entries = [("99.9 %", PALETTE[1], LINES[1]), ("servo period", INK, "-")]
    figure, panels = sheet([1.9], entries, widths=(1.0,) * len(shown), titled=True)
    for panel, (key, title, edges, counts) in zip(panels[0], shown, strict=True):
        heights = np.where(counts > 0.0, counts, np.nan)
        panel.stairs(heights, edges * US, baseline=0.5, fill=True, color=PALETTE[0], alpha=0.8)
        panel.set_yscale("log")
        panel.set_ylim(0.5, 2.0 * float(counts.max()))
        scaled = [panel.yaxis]
        if edges[0] > 0.0 and edges[-1] > 5.0 * edges[0]:
            panel.set_xscale("log")
            scaled.append(panel.xaxis)
        for axis in scaled:
            axis.set_major_formatter(lambda value, _: grouped(value, ".10g"))
            axis.set_minor_formatter(NullFormatter())
        slow = number(run.timing.get(key, {}).get("p999_s"))
        if slow is not None:
            panel.axvline(slow * US, color=PALETTE[1], lw=1.0, ls=LINES[1])
        if edges[-1] > run.scenario.dt:
            panel.axvline(run.scenario.dt * US, color=INK, lw=1.0)
        panel.set_xlabel("µs")
        panel.set_title(title)
    panels[0, 0].set_ylabel("samples")
    return figure
