# SPDX-License-Identifier: Apache-2.0
"""Figures of an identification, a characterisation and an iterative test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from rths_nodes.analysis.figures.drawing import Drawing, legend_above
from rths_nodes.analysis.figures.style import FAINT, INK, LIMIT, LINES, PALETTE, TARGET, Look, level, styled
from rths_nodes.analysis.histories import strongest
from rths_nodes.analysis.identification.characteristics import Cyclic, Equivalent
from rths_nodes.analysis.identification.frequency_responses import NONE, FrequencyResponse, InverseFit
from rths_nodes.analysis.iteration.convergence import SOFTER, Row
from rths_nodes.analysis.iteration.learning import Inverse
from rths_nodes.analysis.units import KN, MM, MS, PERCENT
from rths_nodes.core.frequency_response import Complex
from rths_nodes.recording.run import Run

SEEN = 0.5
"""Smallest coherence at which the phase is meaningful."""
LOWEST = 1e-6
"""Smallest drawn magnitude."""
MEASURED: Look = {"color": FAINT, "lw": 2.2, "label": "measured"}
FITTED: Look = {"color": INK, "lw": 0.9, "label": "fitted"}


def frequency_responses(measured: FrequencyResponse, fit: InverseFit, axes: Sequence[str], title: str) -> Drawing:
    """Draw magnitude, phase and coherence for each command: Figs. 3.2 and 3.3 of Phillips & Spencer (2012)."""
    n, frequency, figure = len(axes), measured.frequency, Drawing()
    figure.head(f"{title}: displacement over command")
    panels = figure.panels(2 * n + 1, n, 1.5, 3.1 * n + 0.6, sharex=True)
    fitted = fit.response(frequency)
    for j, of in enumerate(axes):
        for i, axis in enumerate(axes):
            order = "zero" if fit.orders[i, j] == NONE else f"order {fit.orders[i, j]}"
            pair = f"{axis} of {of}\n" if n > 1 else ""
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
    figure.head(f"{title}: cyclic tests")
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


ERRORS = {"error": "measured", "noise": "noise", "residual": "repeatable", "true": "true displacement"}
ZOOM = 2.0
"""Displayed duration of the last run, around its strongest motion, s."""


def iteration(rows: Sequence[Row], inverse: Inverse | None, last: Run, title: str) -> Drawing:
    figure = Drawing()
    figure.head(title)
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
    titles = ("Convergence", "Force for the same motion", "Remaining fraction of an error", "Last run")
    for panel, words in zip((error, drift, bands, moved), titles, strict=True):
        legend_above(panel, words)
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
