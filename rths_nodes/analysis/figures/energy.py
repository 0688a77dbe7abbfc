"""Figures of force, energy and synchronisation: what the loops enclose, and where the energy went."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rths_nodes.analysis.energy import energies
from rths_nodes.analysis.figures.sheet import (
    BOTTOM,
    Drawing,
    View,
    at_zero,
    curves,
    plot,
    plots,
    sheet,
    time_sheet,
)
from rths_nodes.analysis.figures.style import FAINT, INK, LINES, PALETTE, Entry, styled
from rths_nodes.analysis.figures.thinning import largest
from rths_nodes.analysis.units import KN, MM, quantity
from rths_nodes.core.samples import Array

_PARTS = (
    ("input", INK, "-"),
    ("numerical substructure", PALETTE[0], "-"),
    ("experimental substructure", PALETTE[1], "-"),
    ("viscous damping", PALETTE[2], LINES[1]),
    ("kinetic", PALETTE[4], "-"),
)
_ENOUGH = 0.05
"""Share of the largest input energy below which a running HSEM without strain energy says little."""


def hysteresis(view: View) -> Drawing:
    """Fig. 8: restoring force over displacement of both substructures."""
    run = view.run
    numerical = run.scenario.structure is not None and len(run.restoring_force) > 1
    dofs = styled(run.dof_names)
    figure, panels = sheet([2.7], view.legend, widths=(1.0,) * (1 + numerical), between=0.24, titled=True)
    curves(panels[0, -1], run.displacement * MM, run.force * KN, view.axes, 0.8)
    panels[0, -1].set_title("experimental substructure (measured)")
    caption = "The area inside the loops is energy dissipated."
    if numerical:
        moved = run.dof_displacement[: len(run.restoring_force)]
        curves(panels[0, 0], moved * MM, run.restoring_force * KN, dofs, 0.8)
        panels[0, 0].set_title("numerical substructure (computed)")
        if len(dofs) > 1:
            panels[0, 0].legend(fontsize=7.0, loc="upper left")
        part = quantity(largest(run.restoring_force), KN, "kN")
        caption += f" The numerical substructure (without its viscous damping) carried up to {part}."
    for panel in panels[0]:
        panel.set_xlabel("displacement (mm)")
        panel.set_ylabel("restoring force (kN)")
    most = quantity(largest(run.force), KN, "kN")
    return f"Hysteresis: the specimen carried up to {most}", caption, figure


def energy(view: View) -> Drawing:
    """Fig. 11 in the running form, and where the input energy went."""
    run, running = view.run, view.running
    parts = energies(view.of)
    entries = [entry for entry in _PARTS if entry[0] in parts]
    figure, (top, below) = time_sheet(view, [1.4, 1.9], entries)
    error, label = running.energy_error_percent, "HSEM, running (%)"
    relative = bool(np.isfinite(error).any())
    if relative:
        top.set_ylim(*_sensible(view))
    else:
        unit, factor = _joules(largest(running.energy_error))
        error, label = running.energy_error * factor, f"energy error ({unit})"
    plot(top, running.time, error, color=PALETTE[3], lw=1.1)
    at_zero(top)
    top.set_ylabel(label)
    shown = np.column_stack([parts[name] for name, _, _ in entries])
    unit, factor = _joules(largest(shown))
    plots(below, run.step_time[: len(shown)], shown * factor, entries, 1.1)
    below.set_ylabel(f"energy ({unit})")
    title = f"Energy: the tracking error fed in {_energy(float(running.energy_error[-1]))}"
    given = float(running.input_energy[-1]) if len(running.input_energy) else math.nan
    if relative and "input" in parts and math.isfinite(given):
        title += f" of {_energy(given, 3)} input"
    return title, _energy_caption(running.elastic_energy, relative), figure


def _energy_caption(elastic: float, relative: bool) -> str:
    if not relative:
        return (
            "Top: work of the measured force on the difference of measured and target displacement; without "
            "input energy there is nothing to relate it to. Below: work absorbed by the specimen."
        )
    denominator = (
        f"|input energy| + strain energy at yield ({_energy(elastic, 3)})"
        if elastic
        else "|input energy| (linear: no strain energy at yield to add, so the first seconds say little)"
    )
    return (
        "Top: running form of the hybrid simulation energy monitor, energy error / ("
        f"{denominator}), as the test was monitored; positive: lag, energy fed in. The HSEM of the table "
        "is the last energy error by the input energy alone. Below: where the input energy went."
    )


def _sensible(view: View) -> tuple[float, float]:
    """Limits of the running HSEM: those of the samples with enough energy to divide by."""
    running = view.running
    percent = running.energy_error_percent
    if running.elastic_energy == 0.0 and len(running.input_energy):
        step = np.minimum(running.samples // view.run.scenario.samples_per_step, len(running.input_energy) - 1)
        given = np.abs(running.input_energy[step])
        percent = percent[given >= _ENOUGH * given.max()]
    percent = percent[np.isfinite(percent)]
    low, high = float(percent.min(initial=0.0)), float(percent.max(initial=0.0))
    margin = 0.06 * (high - low) or 1.0
    return low - margin, high + margin


def _joules(size: float) -> tuple[str, float]:
    return ("kJ", 1e-3) if size >= 1e3 else ("J", 1.0)


def _energy(joules: float, digits: int = 2) -> str:
    unit, factor = _joules(abs(joules))
    return quantity(joules, factor, unit, digits)


def synchronisation(view: View) -> Drawing:
    """Synchronisation subspace plot (Mercan 2007) of each axis, and the same with the diagonal taken off."""
    run, running = view.run, view.running
    target, measured = run.target[running.samples] * MM, run.displacement[running.samples] * MM
    n = len(view.axes)
    heights = [2.7 if n == 1 else 2.2] * n
    figure, panels = sheet(heights, view.legend, widths=(1.0, 1.0), between=0.24, gap=BOTTOM)
    for axis, ((left, right), entry) in enumerate(zip(panels, view.axes, strict=True)):
        column = slice(axis, axis + 1)
        curves(right, target[:, column], running.control_error[:, column] * MM, [entry], 0.7)
        subspace(left, target[:, column], measured[:, column], entry)
        at_zero(right)
        name = f"{entry[0]}: " if n > 1 else ""
        left.set_ylabel(f"{name}measured (mm)")
        right.set_ylabel("target − measured (mm)")
        for panel in (left, right):
            panel.set_xlabel("target (mm)")
    caption = (
        "Left: a perfect actuator draws the line at 45°; a lag opens it to an ellipse, too small an amplitude "
        "turns it. Right: the same with that line taken off and magnified."
    )
    return "Synchronisation: measured over target", caption, figure


def subspace(panel: Any, target: Array, measured: Array, entry: Entry) -> None:
    """Measured over target ``(n, 1)`` mm, with the line of a perfect actuator at 45 degrees."""
    curves(panel, target, measured, [entry], 0.8)
    ends = [min(target.min(), measured.min()), max(target.max(), measured.max())]
    panel.plot(ends, ends, color=FAINT, lw=0.6, zorder=1.5)
    panel.set_aspect("equal", adjustable="datalim")
