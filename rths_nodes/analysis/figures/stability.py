# SPDX-License-Identifier: Apache-2.0
"""Figure of a stability judgement: apparent stiffness and damping, and damping versus delay and frequency."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from rths_nodes.analysis.figures.drawing import Drawing
from rths_nodes.analysis.figures.style import DASHES, FAINT, INK, LIMIT, level, styled
from rths_nodes.analysis.stability.crossings import Crossing, follow
from rths_nodes.analysis.stability.judgement import Judgement
from rths_nodes.analysis.stability.turns import HZ
from rths_nodes.analysis.units import MS, PERCENT
from rths_nodes.core.samples import Array

COLUMNS = 130
POINTS = 400
STEPS = 120
ROOM = 1.4
"""Ratio of the upper end of a horizontal axis to the largest value that is marked on it."""
TALLEST = 6.0
"""Largest drawn apparent stiffness or damping, relative to the stiffness of the spring."""
MOST = 0.25
JUMP = 0.25
DATA_AND_AXES = ("data", "axes fraction")


def draw(judgement: Judgement, title: str) -> Drawing:
    figure = Drawing()
    name, _, reason = judgement.verdict().partition(": ")
    figure.head("\n".join([f"{title}: {name}", *textwrap.wrap(reason, COLUMNS)]))
    top, (delay, frequency) = figure.panels(2, 2, 2.8, 9.0)
    _apparent(top, judgement)
    now, critical = judgement.delay, judgement.critical_delay
    end = ROOM * max(now, critical or 0.0) or 1.0 / judgement.loop.scale
    _curves(
        delay, judgement, "delay", np.linspace(-now, end - now, STEPS), 0.0, judgement.further_delay, (now, MS)
    )
    _marks(delay, now * MS, None if critical is None else critical * MS, "ms")
    delay.set(xlim=(0.0, end * MS), xlabel="delay of the rig (ms)")
    limit = judgement.frequency_factor
    end = judgement.loop.reach(ROOM * max(1.0, limit.value if limit else 1.0))
    _curves(frequency, judgement, "ratio", np.linspace(end / STEPS, end, STEPS), 1.0, limit, (0.0, 1.0))
    _marks(frequency, 1.0, limit.value if limit else None, "times")
    frequency.set(xlim=(0.0, end), xlabel="factor on all natural frequencies")
    figure.finish()
    return figure


def _apparent(panels: Sequence[Axes], judgement: Judgement) -> None:
    loop = judgement.loop
    limits = [one.frequency for one in (judgement.further_delay, judgement.frequency_factor) if one]
    highest = ROOM * max([*(mode.frequency for mode in judgement.modes), *limits, loop.scale / HZ])
    frequency = np.linspace(0.0, min(highest, loop.highest / HZ), POINTS)
    rig = loop.rig(HZ * frequency / loop.time_ratio).diagonal(axis1=1, axis2=2)
    names = ("apparent stiffness k*/k", "apparent damping c*ω/k")
    for panel, label, values, aim in zip(panels, names, (rig.real, rig.imag), (1.0, 0.0), strict=True):
        level(panel, aim, FAINT)
        for column, (axis, look) in zip(values.T, styled(judgement.axes).items(), strict=True):
            panel.plot(frequency, column, label=axis if len(judgement.axes) > 1 else "", **look)
        low, high = max(values.min(), -TALLEST), min(values.max(), TALLEST)
        margin = 0.08 * max(high - low, 0.1)
        panel.set(xlim=(frequency[0], frequency[-1]), ylim=(low - margin, high + margin))
        panel.set(xlabel="frequency of the motion (Hz)", ylabel=label)
        for number, mode in enumerate(judgement.modes, 1):
            if mode.frequency <= frequency[-1]:
                panel.axvline(mode.frequency, color=INK, lw=0.8, ls=DASHES)
                at = (mode.frequency, 1.0)
                panel.annotate(f"{number}", at, (2, -8), DATA_AND_AXES, "offset points", fontsize="small")
    panels[1].axhspan(-2.0 * TALLEST, 0.0, color=LIMIT, alpha=0.07, lw=0.0)


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
    starts = {
        f"mode {number}: {mode.frequency:.3g} Hz": (mode.motion, now)
        for number, mode in enumerate(judgement.modes, 1)
    }
    further = [(motion, now) for motion in judgement.motions if motion.imag > 0.0]
    further += [(1j * HZ * limit.frequency, limit.value)] if limit else []
    looks = [look | {"label": name} for name, look in styled(starts).items()]
    seen: list[Array] = []
    for index, (motion, value) in enumerate([*starts.values(), *further]):
        damping = _damping(judgement, motion, parameter, values, value)
        # the same curve may start at several motions
        if index >= len(starts) and any((np.abs(damping - other) < 1e-6).mean() > 0.2 for other in seen):
            continue
        seen.append(damping)
        look = looks[index] if index < len(starts) else {"color": FAINT, "label": "another motion"}
        kept = np.where(np.abs(damping) < 2.0 * MOST, damping, np.nan)
        panel.plot((values + offset) * factor, PERCENT * kept, **look)
    level(panel)
    panel.axhspan(-1e3, 0.0, color=LIMIT, alpha=0.07, lw=0.0)
    joined = np.concatenate([*seen, [0.0]])
    size = 1.1 * PERCENT * max(float(np.abs(joined[np.abs(joined) <= MOST]).max()), 1e-3)  # excludes nan
    panel.set(ylim=(-size, size), ylabel="damping ratio in the loop (%)")


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


def _marks(panel: Axes, now: float, limit: float | None, unit: str) -> None:
    marks = [(now, "this test", INK, "-", 0.93)]
    if limit is not None:
        marks.append((limit, f"limit {limit:.3g} {unit}", LIMIT, DASHES, 0.84))
    box = {"boxstyle": "square,pad=0.15", "fc": "white", "ec": "none", "alpha": 0.8}
    for x, text, colour, line, height in marks:
        panel.axvline(x, color=colour, lw=1.0, ls=line)
        panel.annotate(text, (x, height), (3, 0), DATA_AND_AXES, "offset points", color=colour, bbox=box)
