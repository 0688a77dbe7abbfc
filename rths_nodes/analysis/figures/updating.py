# SPDX-License-Identifier: Apache-2.0
"""Figures of model updating in shadow and in the loop: parameters with their uncertainty, and the innovation."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from rths_nodes.analysis.figures.sheet import Base, Sheet, View, Words, label, level
from rths_nodes.analysis.figures.style import BAND, DASHES, FAINT, INK, LIMIT, PALETTE, Entry, legend_above
from rths_nodes.analysis.identification.updating import Followed
from rths_nodes.analysis.units import KN
from rths_nodes.loop.scenario.updating import USED, Copies
from rths_nodes.mechanics.updating.step import GATE, LEARNT, UNEXPLAINED

HEIGHT = 1.15
ESTIMATE: Entry = ("estimate", PALETTE[0], "-")


def copies(sheet: Sheet, view: View) -> Words | None:
    run = view.run
    if run.scenario.updating is None or not len(run.updating):
        return None
    copy = Copies(run.scenario).learns
    m = len(copy.names)
    base, used = Base("updating", run.updating_time), run.scenario.updating.mode == USED
    shares = run.updating[:, : 3 * m].reshape(-1, 3, m) / copy.initial
    released: Entry = ("copies have" if used else "copies would have", PALETTE[1], DASHES)
    unit = "of the initial value"
    for row, name in enumerate(copy.names):
        (panel,) = sheet.row(HEIGHT)
        mean, wide, values = shares[:, :, row].T
        sheet.band(panel, base, f"{name}, one standard deviation", unit, (mean - wide, mean + wide), BAND)
        sheet.curve(panel, base, label(name, unit), mean, ESTIMATE, 0.9)
        sheet.curve(panel, base, label(f"{name}, {released[0]}", unit), values, released, 1.1)
        for bound in (copy.lower[row], copy.upper[row]):
            level(panel, float(bound), LIMIT, DASHES, 0.7)
        view.time(sheet, panel, name.replace("_", " "))
    (panel,), innovation = sheet.row(HEIGHT), run.updating[:, 3 * m + 2]
    sheet.curve(panel, base, "mean square of innovation", innovation, ("", INK, "-"), 0.9)
    level(panel, UNEXPLAINED, LIMIT, DASHES, 0.7)
    view.time(sheet, panel, "mean square\nof innovation")
    view.legend(sheet, [ESTIMATE, ("one standard deviation", BAND, "-"), released])
    strange = bool((innovation > UNEXPLAINED).any())
    verdict = "the model does not explain the specimen" if strange else "learnt"
    use = "The copies follow the estimate." if used else "The test did not use the estimate (mode shadow)."
    return f"Copies of {run.scenario.updating.axis}: {verdict}", (
        f"Parameters of {copy.model} divided by their initial values, with bounds. {use} The mean square of the "
        f"innovation is 1 if the model is right; above {UNEXPLAINED:g} the copies return towards 1."
    )


WIDTH, ROW = 7.4, 1.5
TICKS = (0.1, 1.0, 10.0)


def draw(followed: Followed, title: str) -> Figure:
    count = len(followed.names)
    figure = Figure(figsize=(WIDTH, ROW * (count + 2) + 0.4), layout="constrained")
    figure.suptitle(
        f"{title}: copy of {followed.axis} in shadow, model {followed.model}, law {followed.law}",
        x=0.01,
        ha="left",
        fontsize=8.5,
    )
    panels = figure.subplots(count + 2, 1, sharex=True)
    for column in range(count):
        _parameter(panels[column], followed, column)
    _force(panels[count], followed)
    _innovation(panels[count + 1], followed)
    panels[-1].set_xlabel("time (s)")
    return figure


def _parameter(panel: Axes, followed: Followed, column: int) -> None:
    scale = followed.initial[column]
    mean, wide = followed.estimate[:, column] / scale, 2.0 * followed.deviation[:, column] / scale
    panel.fill_between(
        followed.time, mean - wide, mean + wide, color=BAND, lw=0.0, label="two standard deviations"
    )
    panel.plot(followed.time, mean, color=PALETTE[0], label="estimate")
    panel.plot(
        followed.time, followed.released[:, column] / scale, color=PALETTE[1], ls="--", label="copies would have"
    )
    low, high = followed.lower[column] / scale, followed.upper[column] / scale
    for bound in (low, high):
        panel.axhline(bound, color=LIMIT, lw=0.6)
    panel.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))
    state = "identified" if followed.identified[column] else "not identified"
    final = f"{scale:.4g} {followed.units[column]}".rstrip()
    title = f"{followed.names[column].replace('_', ' ')} relative to {final}: {state}"
    if column:
        panel.set_title(title)
    else:
        legend_above(panel, title)


def _force(panel: Axes, followed: Followed) -> None:
    panel.plot(followed.time, KN * followed.force, color=FAINT, lw=1.8, label="measured")
    panel.plot(followed.time, KN * followed.expected, color=INK, lw=0.8, label="expected")
    largest = 1.3 * float(np.nanmax(np.abs(followed.expected)))
    panel.set_ylim(-KN * largest, KN * largest)
    out = followed.use != LEARNT
    if out.any():
        at = np.full(out.sum(), -0.95 * KN * largest)
        panel.plot(followed.time[out], at, "|", color=LIMIT, ms=4.0, label="copies rest")
    panel.set_ylabel("force (kN)")
    legend_above(panel)


def _innovation(panel: Axes, followed: Followed) -> None:
    panel.plot(followed.time, followed.mean_square, color=INK)
    panel.axhline(UNEXPLAINED, color=LIMIT, lw=0.8)
    positive = followed.mean_square[followed.mean_square > 0.0]
    least = min(TICKS[0], 0.8 * float(positive.min(initial=TICKS[0])))
    panel.set(yscale="log", ylim=(least, 1.2 * GATE**2), yticks=TICKS)
    panel.yaxis.set_major_formatter("{x:g}")
    panel.yaxis.set_minor_formatter(NullFormatter())
    panel.set_ylabel("mean square\nof innovation")
