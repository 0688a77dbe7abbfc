# SPDX-License-Identifier: Apache-2.0
"""Figure of a stability judgement: apparent stiffness and damping, and damping versus delay and frequency."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from rths_nodes.analysis.figures.sheet import level
from rths_nodes.analysis.figures.style import DASHES, FAINT, INK, ZERO, legend_above, styled
from rths_nodes.analysis.stability.crossings import Crossing, follow
from rths_nodes.analysis.stability.judgement import Judgement
from rths_nodes.analysis.stability.turns import HZ
from rths_nodes.analysis.units import MS, PERCENT
from rths_nodes.core.samples import Array

SIZE = (9.0, 5.9)
COLUMNS = 130
POINTS = 400
STEPS = 120
ROOM = 1.4
"""Ratio of the upper end of a horizontal axis to the largest value that is marked on it."""
TALLEST = 6.0
"""Largest drawn apparent stiffness or damping, relative to the stiffness of the spring."""
MOST = 0.25
JUMP = 0.25
LIMIT = "#B22222"
DATA_AND_AXES = ("data", "axes fraction")


def draw(judgement: Judgement, title: str) -> Figure:
    figure = Figure(figsize=SIZE, layout=ConstrainedLayoutEngine(hspace=0.07, wspace=0.05))
    panels = figure.subplots(2, 2)
    name, _, reason = judgement.verdict().partition(": ")
    heading = "\n".join([f"{title}: {name}", *textwrap.wrap(reason, COLUMNS)])
    figure.suptitle(heading, x=0.01, ha="left", fontsize=8.5, color=INK)
    _apparent(panels[0], judgement)
    _over_delay(panels[1, 0], judgement)
    _over_frequency(panels[1, 1], judgement)
    return figure


def _apparent(panels: Sequence[Axes], judgement: Judgement) -> None:
    loop = judgement.loop
    limits = [one.frequency for one in (judgement.further_delay, judgement.frequency_factor) if one]
    highest = ROOM * max([*(mode.frequency for mode in judgement.modes), *limits, loop.scale / HZ])
    frequency = np.linspace(0.0, min(highest, loop.highest / HZ), POINTS)
    rig = loop.rig(HZ * frequency / loop.time_ratio).diagonal(axis1=1, axis2=2)
    names = ("apparent stiffness k*/k", "apparent damping c*ω/k")
    for panel, label, values, aim in zip(panels, names, (rig.real, rig.imag), (1.0, 0.0), strict=True):
        panel.axhline(aim, color=FAINT, lw=0.8, zorder=1.5)
        for column, (axis, colour, line) in zip(values.T, styled(judgement.axes), strict=True):
            panel.plot(frequency, column, color=colour, ls=line, lw=1.4, label=axis)
        low, high = max(values.min(), -TALLEST), min(values.max(), TALLEST)
        margin = 0.08 * max(high - low, 0.1)
        panel.set_ylim(low - margin, high + margin)
        panel.set_xlim(frequency[0], frequency[-1])
        panel.set_ylabel(label)
        panel.set_xlabel("frequency of the motion (Hz)")
        _mark_modes(panel, judgement)
    panels[1].axhspan(-2.0 * TALLEST, 0.0, color=LIMIT, alpha=0.07, lw=0.0)
    if len(judgement.axes) > 1:
        legend_above(panels[0], panels=2)


def _mark_modes(panel: Axes, judgement: Judgement) -> None:
    for number, mode in enumerate(judgement.modes, 1):
        if mode.frequency <= panel.get_xlim()[1]:
            panel.axvline(mode.frequency, color=INK, lw=0.8, ls=DASHES)
            panel.annotate(
                f"{number}", (mode.frequency, 1.0), (2, -8), DATA_AND_AXES, "offset points", fontsize=7.0
            )


def _over_delay(panel: Axes, judgement: Judgement) -> None:
    now, limit = judgement.delay, judgement.further_delay
    critical = judgement.critical_delay
    end = ROOM * max(now, critical or 0.0) or 1.0 / judgement.loop.scale
    _curves(panel, judgement, "delay", np.linspace(-now, end - now, STEPS), 0.0, limit, (now, MS))
    _marks(panel, now * MS, None if critical is None else critical * MS, "ms")
    panel.set_xlim(0.0, end * MS)
    panel.set_xlabel("delay of the rig (ms)")


def _over_frequency(panel: Axes, judgement: Judgement) -> None:
    limit = judgement.frequency_factor
    end = judgement.loop.reach(ROOM * max(1.0, limit.value if limit else 1.0))
    _curves(panel, judgement, "ratio", np.linspace(end / STEPS, end, STEPS), 1.0, limit, (0.0, 1.0))
    _marks(panel, 1.0, limit.value if limit else None, "times")
    panel.set_xlim(0.0, end)
    panel.set_xlabel("factor on all natural frequencies")


def _curves(
    panel: Axes,
    judgement: Judgement,
    parameter: str,
    values: Array,
    now: float,
    limit: Crossing | None,
    shown: tuple[float, float],
) -> None:
    offset, factor = shown
    starts: list[tuple[str, complex, float]] = [
        (f"mode {number}: {mode.frequency:.3g} Hz", mode.motion, now)
        for number, mode in enumerate(judgement.modes, 1)
    ]
    further = [("another motion", motion, now) for motion in judgement.motions if motion.imag > 0.0]
    further += [("another motion", 1j * HZ * limit.frequency, limit.value)] if limit else []
    entries = styled(name for name, _, _ in starts)
    seen: list[Array] = []
    for index, (name, motion, value) in enumerate([*starts, *further]):
        damping = _damping(judgement, motion, parameter, values, value)
        if index >= len(starts) and any(_alike(damping, other) for other in seen):
            continue
        seen.append(damping)
        _, colour, line = entries[index] if index < len(starts) else ("", FAINT, "-")
        kept = np.where(np.abs(damping) < 2.0 * MOST, damping, np.nan)
        panel.plot((values + offset) * factor, PERCENT * kept, color=colour, ls=line, lw=1.4, label=name)
    level(panel, colour=ZERO)
    panel.axhspan(-1e3, 0.0, color=LIMIT, alpha=0.07, lw=0.0)
    panel.set_ylim(*_range(seen))
    panel.set_ylabel("damping ratio in the loop (%)")
    legend_above(panel, panels=2)


def _damping(judgement: Judgement, motion: complex, parameter: str, values: Array, now: float) -> Array:
    first = int(np.searchsorted(values, now))
    roots = np.empty(len(values), complex)
    roots[first:] = follow(judgement.loop, motion, parameter, values[first:])
    roots[:first] = follow(judgement.loop, motion, parameter, values[:first][::-1])[::-1]
    damping = -roots.real / np.abs(roots)
    jumps = np.flatnonzero(np.abs(np.diff(roots)) > JUMP * np.abs(roots[1:]))
    damping[: max(jumps[jumps < first], default=-1) + 1] = np.nan
    damping[min(jumps[jumps >= first], default=len(values)) + 1 :] = np.nan
    return np.asarray(damping)


def _alike(one: Array, other: Array) -> bool:
    return bool((np.abs(one - other) < 1e-6).mean() > 0.2)


def _range(curves: Iterable[Array]) -> tuple[float, float]:
    joined = np.concatenate([*curves, [0.0]])
    inside = joined[np.abs(joined) <= MOST]  # excludes nan
    size = PERCENT * max(float(np.abs(inside).max()), 1e-3)
    return -1.1 * size, 1.1 * size


def _marks(panel: Axes, now: float, limit: float | None, unit: str) -> None:
    panel.axvline(now, color=INK, lw=1.0)
    _note(panel, now, "this test", INK, 0.93)
    if limit is not None:
        panel.axvline(limit, color=LIMIT, lw=1.0, ls=DASHES)
        _note(panel, limit, f"limit {limit:.3g} {unit}", LIMIT, 0.84)


def _note(panel: Axes, x: float, text: str, colour: str, height: float) -> None:
    box = {"boxstyle": "square,pad=0.15", "fc": "white", "ec": "none", "alpha": 0.8}
    panel.annotate(text, (x, height), (3, 0), DATA_AND_AXES, "offset points", fontsize=7.5, color=colour, bbox=box)
