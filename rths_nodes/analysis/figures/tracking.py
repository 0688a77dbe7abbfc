# SPDX-License-Identifier: Apache-2.0
"""Figure of the tracking seen close: at the largest target and where it crosses zero fastest."""

from __future__ import annotations

import numpy as np

from rths_nodes.analysis.figures.plan import DISPLACEMENT, TIME, Curve, Look, Panel, Plan, Quantity
from rths_nodes.analysis.figures.sheet import View
from rths_nodes.analysis.figures.style import BAND, BAND_WIDTH, DASHES, FAINT, INK, Entry
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.units import MM, quantity
from rths_nodes.core.samples import Array

AT_PEAK, AT_ZERO = 0.1, 0.04
"""Periods of the target (twice the time between two crossings of zero) that a zoom has on either side."""
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


def zooms(view: View) -> Plan | None:
    """Target, command and measured displacement at the peak (left) and at a crossing of zero (right), by axis."""
    run, samples = view.run, view.of.counted
    found = [places(view.of, axis) for axis in range(len(view.axes))]
    if not any(found):
        return None
    named = len(view.axes) > 1
    entries: list[Entry] = [("target", BAND, "-"), ("command", INK, DASHES), *measured_by(view)]
    rows, words = [], []
    for axis, entry in enumerate(view.axes):
        wanted, command, moved = followed(view, axis)
        curves = [wanted, command, *moved]
        row = []
        for ends, where in zip(found[axis] or (), ("peak", "crossing of zero"), strict=False):
            cut = samples[ends[0] : ends[1] + 1]
            target, measured = (MM * v[cut, axis] for v in (run.target, run.displacement))
            title = f"{entry[0]}: {where}" if named else where
            span = float(run.time[cut[0]]), float(run.time[cut[-1]])
            around = _around(target, measured)
            zero = [(0.0, Look(FAINT, "-", 0.4))]
            row.append(Panel(TIME, DISPLACEMENT, curves, title, span, around, levels=zero, over_time=True))
            off = quantity(float(np.abs(target - measured).max()), 1.0, "mm")
            words.append(f"{entry[0]} within {off} at the {where}" if named else f"within {off} at the {where}")
        rows += [row] if row else []
    caption = "A delay shows at the crossing of zero, an error of amplitude at the peak. Dots: single samples."
    heights, title = [1.35 if named else 2.0] * len(rows), f"Seen close: {', '.join(words[:2])}"
    return Plan("zooms", title, caption, rows, heights, entries, view.spans, (1.0, 1.0))


def measured_by(view: View) -> list[Entry]:
    """Entries of a legend for the measured displacement of a single test, by axis."""
    named = len(view.axes) > 1
    return [(f"measured {name}" if named else "measured", colour, line) for name, colour, line in view.axes]


def followed(view: View, axis: int) -> tuple[Curve, Curve, list[Curve]]:
    """Target and command of the first test, and the measured displacement of each, of one axis, mm."""
    first, entry = view.first, view.axes[axis]

    def named(name: str) -> Quantity:
        return view.named(Quantity(name, "mm"), view.axes, entry[0])

    base, target, sent = view.samples[0], MM * first.target[:, axis], MM * view.run.command[first.rows, axis]
    moved = [MM * test.displacement[:, axis] for test in view.tests]
    of = named("measured" if view.alone else "displacement")
    return (
        Curve(base, view.told(first, named("target")), target, Look(BAND, "-", BAND_WIDTH)),
        Curve(base, named("command"), sent, Look(INK, DASHES, 0.7)),
        view.curves(view.samples, of, moved, entry, 0.9, dots=True),
    )


def _around(target: Array, measured: Array) -> tuple[float, float]:
    low = min(float(np.nanmin(values)) for values in (target, measured))
    high = max(float(np.nanmax(values)) for values in (target, measured))
    margin = 0.08 * (high - low) or 1e-3
    return low - margin, high + margin
