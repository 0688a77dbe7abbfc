# SPDX-License-Identifier: Apache-2.0
"""Histograms of the timing: duration and lateness of samples."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.ticker import NullFormatter

from rths_nodes.analysis.figures.sheet import COLUMNS, Base, Sheet
from rths_nodes.analysis.figures.style import INK, LINES, PALETTE, Entry
from rths_nodes.analysis.figures.view import View, Words
from rths_nodes.analysis.units import US, clocks, grouped, number
from rths_nodes.core.samples import Array

RARE: Entry = ("99.9 %", PALETTE[1], LINES[1])
PERIOD: Entry = ("servo period", INK, "-")


def timing(sheet: Sheet, view: View) -> Words | None:
    """Draw one panel per recorded clock; None without one. In lockstep no servo period is drawn."""
    run = view.run
    named = clocks(run.information.get("host", ""))
    recorded = [(key, title, *bars(run.timing.get(f"{key}_histogram", {}))) for key, title in named]
    recorded = [clock for clock in recorded if len(clock[-1])]
    if not recorded:
        return None
    panels = sheet.row(1.9, *[COLUMNS // len(recorded)] * len(recorded))
    for panel, (key, title, edges, counts) in zip(panels, recorded, strict=True):
        base = Base(key, US * edges[:-1], f"{key} from (µs)")
        sheet.record(base, f"{key} to (µs)", US * edges[1:])
        sheet.record(base, f"samples of {key}", counts)
        heights = np.where(counts > 0.0, counts, np.nan)
        panel.stairs(heights, US * edges, baseline=0.5, fill=True, color=PALETTE[0], alpha=0.8)
        wide = edges[0] > 0.0 and edges[-1] > 5.0 * edges[0]
        panel.set(xscale="log" if wide else "linear", yscale="log", ylim=(0.5, 2.0 * float(counts.max())))
        panel.set(title=title, xlabel="µs", ylabel="" if panel is not panels[0] else "samples")
        for axis in (panel.xaxis, panel.yaxis) if wide else (panel.yaxis,):
            axis.set_major_formatter(lambda value, _: grouped(value, ".10g"))
            axis.set_minor_formatter(NullFormatter())
        slow = number(run.timing.get(key, {}).get("p999_s"))
        if not run.in_lockstep and slow is not None:
            panel.axvline(US * slow, **sheet.line(RARE, 1.0))
        if not run.in_lockstep and edges[-1] > run.scenario.dt:
            panel.axvline(US * run.scenario.dt, **sheet.line(PERIOD, 1.0))
    sheet.legend([] if run.in_lockstep else [RARE, PERIOD])
    return "Timing histograms", "How often (logarithmic) a duration occurred."


def bars(histogram: Mapping[str, object]) -> tuple[Array, Array]:
    """Return edges (s) and counts of a recorded histogram, without its empty ends."""
    edges, counts = (np.array(histogram.get(key, ()), dtype=float) for key in ("edges_s", "counts"))
    filled = np.flatnonzero(counts > 0.0)
    if not len(filled) or len(edges) != len(counts) + 1:
        return np.zeros(0), np.zeros(0)
    first, end = filled[0], filled[-1] + 1
    return edges[first : end + 1], counts[first:end]
