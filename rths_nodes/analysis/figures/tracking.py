"""Figure of the tracking seen close: at the largest target and where it crosses zero fastest."""

from __future__ import annotations

from typing import Any

import numpy as np

from rths_nodes.analysis.figures.sheet import Drawing, View, over_time, plot, sheet
from rths_nodes.analysis.figures.style import BAND, BAND_WIDTH, DASHES, FAINT, INK, Entry
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.units import MM, quantity
from rths_nodes.core.samples import Array

AT_PEAK, AT_ZERO = 0.1, 0.04
"""Periods of the target (twice the time between two crossings of zero) that a zoom has on either side."""
DOTS = 300
"""Samples that can be told apart in a zoom."""
LEAST = 12
"""Samples in a zoom at the least."""


def places(of: Evaluation, axis: int) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """First and last counted sample (inclusive) at the peak of the target, and at its fastest crossing of zero.

    Numbers within ``of.counted``; None where the target does not cross zero.
    """
    target = of.run.target[of.counted, axis]
    crossings = np.flatnonzero(np.diff(np.signbit(target)))
    if len(crossings) < 2:
        return None
    peak = int(np.argmax(np.abs(target)))
    steepest = int(crossings[np.argmax(np.abs(np.diff(target)[crossings]))])
    period, last = 2.0 * float(np.median(np.diff(crossings))), len(target) - 1
    of_peak, of_zero = (
        (max(0, at - half), min(last, at + half))
        for at, half in (
            (peak, max(LEAST, round(AT_PEAK * period))),
            (steepest, max(LEAST, round(AT_ZERO * period))),
        )
    )
    return of_peak, of_zero


def zooms(view: View) -> Drawing | None:
    """Target, command and measured displacement at the peak (left) and at a crossing of zero (right), by axis."""
    run, samples = view.run, view.of.counted
    found = [places(view.of, axis) for axis in range(len(view.axes))]
    if not any(found):
        return None
    named = len(view.axes) > 1
    entries: list[Entry] = [("target", BAND, "-"), ("command", INK, DASHES)]
    entries += [(f"measured {name}" if named else "measured", colour, line) for name, colour, line in view.axes]
    heights = [1.35] * len(found) if named else [2.0]
    figure, panels = sheet(heights, entries, widths=(1.0, 1.0), between=0.2, gap=0.42, titled=True)
    words = []
    for axis, (name, colour, line) in enumerate(view.axes):
        for panel, ends, where in zip(panels[axis], found[axis] or (), ("peak", "crossing of zero"), strict=False):
            rows = samples[ends[0] : ends[1] + 1]
            time = run.time[rows]
            target, command, measured = (v[rows, axis] * MM for v in (run.target, run.command, run.displacement))
            _close(view, panel, time, (target, command, measured), (colour, line))
            panel.set_title(f"{name}: {where}" if named else where)
            off = quantity(float(np.abs(target - measured).max()), 1.0, "mm")
            words.append(f"{name} within {off} at the {where}" if named else f"within {off} at the {where}")
        panels[axis, 0].set_ylabel("displacement (mm)")
    for panel in panels[-1]:
        panel.set_xlabel("time (s)")
    caption = "A delay shows at the crossing of zero, an error of amplitude at the peak. Dots: single samples."
    return f"Seen close: {', '.join(words[:2])}", caption, figure


def _close(view: View, panel: Any, time: Array, curves: tuple[Array, ...], style: tuple[str, Any]) -> None:
    target, command, measured = curves
    over_time(view, panel, last=True)
    panel.set_xlabel("")
    plot(panel, time, target, color=BAND, lw=BAND_WIDTH)
    plot(panel, time, command, color=INK, lw=0.7, ls=DASHES)
    dots: dict[str, Any] = {"marker": ".", "ms": 2.5} if len(time) <= DOTS else {}
    plot(panel, time, measured, color=style[0], ls=style[1], lw=0.9, **dots)
    panel.axhline(0.0, color=FAINT, lw=0.4, zorder=1.2)
    panel.set_xlim(float(time[0]), float(time[-1]))
    low = min(float(np.nanmin(values)) for values in (target, measured))
    high = max(float(np.nanmax(values)) for values in (target, measured))
    margin = 0.08 * (high - low) or 1e-3
    panel.set_ylim(low - margin, high + margin)
