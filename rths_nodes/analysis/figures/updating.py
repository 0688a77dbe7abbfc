# SPDX-License-Identifier: Apache-2.0
"""Figures of model updating in shadow and in the loop: parameters with their uncertainty, and the innovation."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from rths_nodes.analysis.figures.drawing import Base, Drawing, Recordings, Words, label, legend_above, level
from rths_nodes.analysis.figures.style import BAND, DASHES, FAINT, INK, LIMIT, PALETTE, Look
from rths_nodes.analysis.identification.updating import Followed
from rths_nodes.analysis.units import KN
from rths_nodes.core.samples import Array
from rths_nodes.loop.scenario.updating import USED, Copies
from rths_nodes.mechanics.updating.step import GATE, LEARNT, UNEXPLAINED

TICKS = (0.1, 1.0, 10.0)
INNOVATION = "mean square of innovation"


def copies(figure: Drawing, tests: Recordings) -> Words | None:
    run = tests.run
    if run.scenario.updating is None or not len(run.updating):
        return None
    copy = Copies(run.scenario).learns
    m = len(copy.names)
    base, used = Base("updating", run.updating_time), run.scenario.updating.mode == USED
    shares = run.updating[:, : 3 * m].reshape(-1, 3, m) / copy.initial
    panels = figure.panels(m + 1, height=1.1, sharex=True)[:, 0]
    for row, (name, panel) in enumerate(zip(copy.names, panels, strict=False)):
        released = "copies have" if used else "copies would have"
        bounds = copy.lower[row], copy.upper[row]
        _parameter(figure, panel, base, name, shares[:, :, row].T, bounds, (1, released))
        tests.time(panel, name.replace("_", " "))
    innovation = run.updating[:, 3 * m + 2]
    figure.curve(panels[m], base, INNOVATION, innovation, color=INK)
    level(panels[m], UNEXPLAINED, LIMIT, DASHES)
    tests.time(panels[m], "mean square\nof innovation")
    strange = bool((innovation > UNEXPLAINED).any())
    verdict = "the model does not explain the specimen" if strange else "learnt"
    use = "The copies follow the estimate." if used else "The test did not use the estimate (mode shadow)."
    return f"Copies of {run.scenario.updating.axis}: {verdict}", (
        f"Parameters of {copy.model} divided by their initial values, with bounds. {use} The mean square of the "
        f"innovation is 1 if the model is right; above {UNEXPLAINED:g} the copies return towards 1."
    )


def _parameter(
    figure: Drawing,
    panel: Axes,
    base: Base,
    name: str,
    histories: Array,
    bounds: tuple[float, float],
    words: tuple[int, str],
) -> None:
    """Draw a parameter relative to its initial value: mean, deviation and released value ``(3, n)``, and bounds.

    ``words`` are the number of standard deviations in the band, and the name of the released value.
    """
    (mean, wide, values), (wider, released), unit = histories, words, "of the initial value"
    deviations = f"{('one', 'two')[wider - 1]} standard deviation{'s' if wider > 1 else ''}"
    ends = mean - wider * wide, mean + wider * wide
    figure.band(panel, base, label(f"{name}, {deviations}, {{}}", unit), ends, BAND, deviations)
    figure.curve(panel, base, label(name, unit), mean, color=PALETTE[0], label="estimate")
    look: Look = {"color": PALETTE[1], "ls": DASHES, "label": released}
    figure.curve(panel, base, label(f"{name}, {released}", unit), values, **look)
    for bound in bounds:
        level(panel, float(bound), LIMIT, DASHES)


def draw(followed: Followed, title: str) -> Drawing:
    figure, count = Drawing(), len(followed.names)
    figure.head(f"{title}: copy of {followed.axis} in shadow, model {followed.model}, law {followed.law}")
    panels = figure.panels(count + 2, height=1.5, sharex=True)[:, 0]
    base = Base("updating", followed.time)
    for column, (name, unit) in enumerate(zip(followed.names, followed.units, strict=True)):
        scale, panel = followed.initial[column], panels[column]
        shares = (followed.estimate, followed.deviation, followed.released)
        histories = np.array([values[:, column] / scale for values in shares])
        low, high = followed.lower[column] / scale, followed.upper[column] / scale
        _parameter(figure, panel, base, name, histories, (low, high), (2, "copies would have"))
        panel.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))
        state = "identified" if followed.identified[column] else "not identified"
        initial = f"{scale:.4g} {unit}".rstrip()
        panel.set_title(f"{name.replace('_', ' ')} relative to {initial}: {state}")
    figure.finish()
    _force(panels[count], followed)
    panel = panels[count + 1]
    panel.plot(followed.time, followed.mean_square, color=INK)
    panel.axhline(UNEXPLAINED, color=LIMIT, lw=0.8)
    positive = followed.mean_square[followed.mean_square > 0.0]
    least = min(TICKS[0], 0.8 * float(positive.min(initial=TICKS[0])))
    panel.set(yscale="log", ylim=(least, 1.2 * GATE**2), yticks=TICKS, xlabel="time (s)")
    panel.yaxis.set_major_formatter("{x:g}")
    panel.yaxis.set_minor_formatter(NullFormatter())
    panel.set_ylabel("mean square\nof innovation")
    return figure


def _force(panel: Axes, followed: Followed) -> None:
    panel.plot(followed.time, KN * followed.force, color=FAINT, lw=1.8, label="measured")
    panel.plot(followed.time, KN * followed.expected, color=INK, lw=0.8, label="expected")
    largest = 1.3 * KN * float(np.nanmax(np.abs(followed.expected)))
    panel.set(ylim=(-largest, largest), ylabel="force (kN)")
    out = followed.use != LEARNT
    if out.any():
        at = np.full(out.sum(), -0.95 * largest)
        panel.plot(followed.time[out], at, "|", color=LIMIT, ms=4.0, label="copies rest")
    legend_above(panel)
