# SPDX-License-Identifier: Apache-2.0
"""Figures of analyses: stability, identification, characterisation and iterative test."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from rths_nodes.analysis.figures.drawing import (
    DASHES,
    FAINT,
    INK,
    LIMIT,
    LINES,
    PALETTE,
    TARGET,
    Drawing,
    Look,
    legend_above,
    level,
    styled,
)
from rths_nodes.analysis.histories import strongest
from rths_nodes.analysis.identification.experiments import Cyclic, Equivalent
from rths_nodes.analysis.identification.frequency_responses import NONE, FrequencyResponse, InverseFit
from rths_nodes.analysis.iteration.corrections import SOFTER, Row
from rths_nodes.analysis.iteration.learning import Inverse
from rths_nodes.analysis.stability.crossings import Crossing, follow
from rths_nodes.analysis.stability.judgement import Judgement
from rths_nodes.analysis.stability.loops import HZ
from rths_nodes.analysis.units import KN, MM, MS, PERCENT
from rths_nodes.core.frequency_response import Complex
from rths_nodes.core.samples import Array
from rths_nodes.recording.run import Run

COLUMNS = 130
POINTS = 400
STEPS = 120
ROOM = 1.4
"""Upper end of a horizontal axis, relative to the largest value marked on the axis."""
TALLEST = 6.0
"""Largest apparent stiffness or damping in the figure, relative to the stiffness of the spring."""
MOST = 0.25
JUMP = 0.25
DATA_AND_AXES = ("data", "axes fraction")


def stability(judgement: Judgement, title: str) -> Drawing:
    figure = Drawing()
    name, _, reason = judgement.verdict().partition(": ")
    figure.heading = "\n".join([f"{title}: {name}", *textwrap.wrap(reason, COLUMNS)])
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
    frequency.set(xlim=(0.0, end), xlabel="scale factor of all natural frequencies")
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
        named = len(judgement.axes) > 1 and panel is panels[0]
        for column, (axis, look) in zip(values.T, styled(judgement.axes).items(), strict=True):
            panel.plot(frequency, column, label=axis if named else "", **look)
        low, high = max(values.min(), -TALLEST), min(values.max(), TALLEST)
        margin = 0.08 * max(high - low, 0.1)
        panel.set(xlim=(frequency[0], frequency[-1]), ylim=(low - margin, high + margin))
        panel.set(xlabel="frequency of the motion (Hz)", ylabel=label)
        for number, mode in enumerate(judgement.modes, 1):
            if mode.frequency <= frequency[-1]:
                panel.axvline(mode.frequency, color=INK, lw=0.8, ls=DASHES)
                at = (mode.frequency, 1.0)
                panel.annotate(f"{number}", at, (2, -8), DATA_AND_AXES, "offset points", fontsize="small")
    legend_above(panels[0])
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
        # several motions may belong to the same curve
        if index >= len(starts) and any((np.abs(damping - other) < 1e-6).mean() > 0.2 for other in seen):
            continue
        seen.append(damping)
        look = looks[index] if index < len(starts) else {"color": FAINT, "label": "another motion"}
        kept = np.where(np.abs(damping) < 2.0 * MOST, damping, np.nan)
        panel.plot((values + offset) * factor, PERCENT * kept, **look)
    level(panel)
    panel.axhspan(-1e3, 0.0, color=LIMIT, alpha=0.07, lw=0.0)
    joined = np.concatenate([*seen, [0.0]])
    size = 1.1 * PERCENT * max(float(np.abs(joined[np.abs(joined) <= MOST]).max()), 1e-3)  # <= excludes NaN
    panel.set(ylim=(-size, size), ylabel="damping ratio in the loop (%)")
    legend_above(panel)


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
    marks: list[tuple[float, str, str, Any, float]] = [(now, "this test", INK, "-", 0.93)]
    if limit is not None:
        marks.append((limit, f"limit {limit:.3g} {unit}", LIMIT, DASHES, 0.84))
    box = {"boxstyle": "square,pad=0.15", "fc": "white", "ec": "none", "alpha": 0.8}
    for x, text, colour, line, height in marks:
        panel.axvline(x, color=colour, lw=1.0, ls=line)
        panel.annotate(text, (x, height), (3, 0), DATA_AND_AXES, "offset points", color=colour, bbox=box)


SEEN = 0.5
"""Smallest coherence at which the phase is drawn."""
LOWEST = 1e-6
MEASURED: Look = {"color": FAINT, "lw": 2.2, "label": "measured"}
FITTED: Look = {"color": INK, "lw": 0.9, "label": "fitted"}


def frequency_responses(measured: FrequencyResponse, fit: InverseFit, axes: Sequence[str], title: str) -> Drawing:
    """Draw magnitude, phase and coherence by command, as in Figs. 3.2 and 3.3 of Phillips & Spencer (2012)."""
    n, frequency, figure = len(axes), measured.frequency, Drawing()
    figure.heading = f"{title}: displacement over command"
    panels = figure.panels(2 * n + 1, n, 1.5, 3.1 * n + 0.6, sharex=True)
    fitted = fit.response(frequency)
    for j, commanded in enumerate(axes):
        for i, axis in enumerate(axes):
            order = "zero" if fit.orders[i, j] == NONE else f"order {fit.orders[i, j]}"
            pair = f"{axis} of {commanded}\n" if n > 1 else ""
            panels[i, j].set_title(f"{pair}inverse: {order}, error {PERCENT * fit.error[i, j]:.2g} %")
            for values, look in ((measured.response, MEASURED), (fitted, FITTED)):
                size = np.maximum(np.abs(values[:, i, j]), LOWEST)
                panels[i, j].plot(frequency, 20.0 * np.log10(size), **look)
            _phase(panels[n + i, j], measured, fitted, (i, j))
            panels[i, 0].set_ylabel("magnitude (dB)")
            panels[n + i, 0].set_ylabel(f"{axis}\nphase (°)" if n > 1 else "phase (°)")
        for values, (name, look) in zip(measured.coherence[:, :, j].T, styled(axes).items(), strict=True):
            panels[2 * n, j].plot(frequency, values, label=f"coherence with {name}" if n > 1 else "", **look)
        panels[2 * n, j].set(ylim=(0.0, 1.05), xlabel="frequency (Hz)")
    panels[2 * n, 0].set_ylabel("coherence")
    figure.finish()
    return figure


def _phase(panel: Axes, measured: FrequencyResponse, fitted: Complex, entry: tuple[int, int]) -> None:
    i, j = entry
    angle = np.unwrap(np.angle(fitted[:, i, j]))
    beyond = np.angle(measured.response[:, i, j] / fitted[:, i, j])
    seen = np.where(measured.coherence[:, i, j] > SEEN, angle + beyond, np.nan)
    panel.plot(measured.frequency, np.degrees(seen), **MEASURED)
    panel.plot(measured.frequency, np.degrees(angle), **FITTED)


CURVES = (
    ("storage stiffness (kN/mm)", "storage_stiffness", KN / MM),
    ("loss factor", "loss_factor", 1.0),
    ("gain of the actuator", "gain", 1.0),
    ("delay of the actuator (ms)", "delay", MS),
)
MARKERS = "osv^Dx"


def characteristics(
    tests_of: Mapping[str, Sequence[Cyclic]], alike: Mapping[str, Equivalent], title: str
) -> Drawing:
    figure = Drawing()
    figure.heading = f"{title}: cyclic tests"
    panels = figure.panels(len(tests_of), 1 + len(CURVES), 2.2, 14.5)
    for (loops, *row), (axis, tests) in zip(panels, tests_of.items(), strict=True):
        families = _by_amplitude(tests)
        for number, (name, look) in enumerate(styled(families).items()):
            look["label"] = f"amplitude {name}"
            for test in families[name]:
                path, pull = (np.append(values, values[0]) for values in (test.displacement, test.force))
                loops.plot(MM * path, KN * pull, **look)
            frequencies = [test.frequency for test in families[name]]
            for panel, (_, quantity, factor) in zip(row, CURVES, strict=True):
                values = [factor * getattr(test, quantity) for test in families[name]]
                panel.plot(frequencies, values, marker=MARKERS[number % len(MARKERS)], ms=3.5, mfc="none", **look)
        row[0].axhline(KN / MM * alike[axis].stiffness, color=FAINT, lw=0.8, zorder=0)
        loops.set(xlabel="displacement (mm)", ylabel="force (kN)", title=axis if len(tests_of) > 1 else "")
        for panel, (quantity, _, _) in zip(row, CURVES, strict=True):
            panel.set(xlabel="frequency (Hz)", ylabel=quantity)
        for panel in (loops, *row):
            panel.margins(0.08)
    figure.finish()
    return figure


def _by_amplitude(tests: Sequence[Cyclic]) -> dict[str, list[Cyclic]]:
    families: dict[str, list[Cyclic]] = {}
    for test in sorted(tests, key=lambda test: test.wanted):
        families.setdefault(f"{MM * test.wanted:.3g} mm", []).append(test)
    return {label: sorted(family, key=lambda test: test.frequency) for label, family in families.items()}


ERRORS = {"error": "measured", "noise": "noise", "residual": "residual", "true": "true displacement"}
ZOOM = 2.0
"""Duration of the displayed part of the last run, s."""


def iteration(rows: Sequence[Row], inverse: Inverse | None, last: Run, title: str) -> Drawing:
    figure = Drawing()
    figure.heading = title
    (error, drift), (bands, moved) = figure.panels(2, 2, 2.8, 9.6)
    numbers = [row.number for row in rows]
    errors = {label: [getattr(row, name) for row in rows] for name, label in ERRORS.items()}
    errors = {label: values for label, values in errors.items() if np.isfinite(values).any()}
    answers = {axis: [PERCENT * (row.answer.get(axis, np.nan) - 1.0) for row in rows] for axis in rows[0].answer}
    for panel, curves in ((error, errors), (drift, answers)):
        for label, look in styled(curves).items():
            panel.plot(numbers, curves[label], marker="o", ms=3.5, label=label, **look)
        panel.set(xlabel="run", xticks=numbers)
    error.set(yscale="log", ylabel="rms (% of the target's rms)")
    drift.set_ylabel("change since run 1 (%)")
    level(drift, -PERCENT * SOFTER, LIMIT)
    if inverse is not None and len(inverse.bands):
        for column, label, colour in ((0, "with noise", PALETTE[1]), (1, "without noise", PALETTE[0])):
            bands.plot(inverse.bands, inverse.left[:, column], color=colour, label=label)
        for end, line, text in (
            (inverse.learned_to, LINES[1], "end of Q"),
            (inverse.known_to, LINES[2], "end of W"),
        ):
            bands.axvline(end, color=FAINT, ls=line, lw=0.8, label=text)
        bands.set(xscale="log", yscale="log", ylim=(1e-3, 2.0), xlim=(inverse.bands[0], 4.0 * inverse.known_to))
        bands.set(xlabel="frequency (Hz)", ylabel="factor |1 − L T|")
    for axis in (error.yaxis, bands.xaxis, bands.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())
    _last(moved, last)
    titles = ("Convergence", "Force for the same motion", "Remaining fraction of the error", "Last run")
    for panel, title in zip((error, drift, bands, moved), titles, strict=True):
        legend_above(panel, title)
    figure.finish()
    return figure


def _last(panel: Axes, last: Run) -> None:
    begin, end = strongest(last.time, last.target, ZOOM)
    part = (last.time >= begin) & (last.time <= end)
    for axis, name in enumerate(last.axes):
        line, suffix = LINES[axis % len(LINES)], f" {name}" if len(last.axes) > 1 else ""
        target, measured = MM * last.target[part, axis], MM * last.displacement[part, axis]
        panel.plot(last.time[part], target, **(TARGET | {"ls": line, "label": f"target{suffix}"}))
        panel.plot(last.time[part], measured, color=PALETTE[0], ls=line, label=f"measured{suffix}")
    panel.set(xlabel="time (s)", ylabel="displacement (mm)")
