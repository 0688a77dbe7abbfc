# SPDX-License-Identifier: Apache-2.0
"""Figures of force, energy and synchronisation: hysteresis loops, their areas, and the energy balance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from rths_nodes.analysis.energy import energies
from rths_nodes.analysis.figures.sheet import Base, Sheet, View, Words, label, level
from rths_nodes.analysis.figures.style import ERROR, FAINT, INK, LINES, PALETTE, ZERO, Entry, styled
from rths_nodes.analysis.histories import largest
from rths_nodes.analysis.units import KN, MM, quantity
from rths_nodes.core.samples import Array

INPUT: Entry = ("input", INK, "-")
_PARTS: tuple[Entry, ...] = (
    INPUT,
    ("numerical substructure", PALETTE[0], "-"),
    ("experimental substructure", PALETTE[1], "-"),
    ("viscous damping", PALETTE[2], LINES[1]),
    ("kinetic", PALETTE[4], "-"),
)
_ENOUGH = 0.05


def hysteresis(sheet: Sheet, view: View) -> Words:
    """Draw the restoring force of each substructure versus displacement (Fig. 8 of Chen & Ricles 2010)."""
    run, dofs = view.run, styled(view.run.dof_names)
    numerical = run.scenario.structure is not None and bool(np.isfinite(run.restoring_force[1:]).any())
    *left, right = sheet.row(2.7, 6, 6) if numerical else sheet.row(2.7)
    caption = "The area inside the loops is the dissipated energy."
    for panel in left:
        m = len(run.restoring_force)
        _loops(
            sheet, view, panel, view.steps[0], (run.dof_displacement[:m], run.restoring_force), dofs, "computed"
        )
        part = quantity(largest(run.restoring_force), KN, "kN")
        panel.set(title="numerical substructure (computed)", ylabel="restoring force (kN)")
        caption += f" The numerical substructure (without its viscous damping) carried up to {part}."
    _loops(sheet, view, right, view.samples[0], (run.displacement, run.force), view.axes, "measured")
    right.set(title="experimental substructure (measured)", ylabel="" if left else "restoring force (kN)")
    if len(dofs) > 1 or len(view.axes) > 1:
        names: dict[tuple[str, object], list[str]] = {}
        for name, *look in [*(dofs if left else []), *view.axes]:
            names.setdefault((look[0], look[1]), []).append(name)
        sheet.legend([(" / ".join(dict.fromkeys(same)), *look) for look, same in names.items()])
    return f"Hysteresis: the specimen carried up to {quantity(largest(run.force), KN, 'kN')}", caption


def _loops(
    sheet: Sheet,
    view: View,
    panel: Axes,
    base: Base,
    values: tuple[Array, Array],
    entries: list[Entry],
    kind: str,
) -> None:
    (group,) = view.groups(entries)
    for (_, entry, suffix), moved, force in zip(group, values[0].T, values[1].T, strict=True):
        over = f"{kind} displacement{suffix} (mm)", MM * moved
        sheet.curve(panel, base, f"{kind} force{suffix} (kN)", KN * force, entry, 0.8, over)
    panel.set_xlabel("displacement (mm)")


def force(sheet: Sheet, view: View) -> Words:
    several = len(view.axes) > 1
    for axis, entry in enumerate(view.axes):
        over_time, loops = sheet.row(1.8 if several else 2.3, 7, 5)
        suffix = f" {entry[0]}" if several else ""
        view.time(sheet, over_time, f"{entry[0]}: force (kN)" if several else "restoring force (kN)")
        shown = [(base, KN * test.force[:, axis]) for base, test in zip(view.samples, view.tests, strict=True)]
        view.curves(sheet, over_time, (axis, entry, suffix), ("force", "kN"), shown, 0.9)
        level(over_time, colour=ZERO)
        for test, look, (base, values) in [*zip(view.tests, view.entries, shown, strict=True)][::-1]:
            over = view.head(test, f"displacement{suffix} (mm)"), MM * test.displacement[:, axis]
            sheet.curve(loops, base, view.head(test, f"force{suffix} (kN)"), values, look, 0.8, over)
        loops.set_xlabel("displacement (mm)")
    sheet.legend(view.entries)
    return "Force", "Measured force versus time and versus measured displacement."


def energy(sheet: Sheet, view: View) -> Words:
    """Draw the running HSEM (Fig. 11 of Chen & Ricles 2010), or the energy error if the HSEM is unknown.

    A second panel shows the energy balance of a single test, or the input energies (if known) of several tests.
    """
    running = [test.of.running for test in view.tests]
    relative = all(np.isfinite(history.energy_error_percent).any() for history in running)
    name, unit, errors = "HSEM, running", "%", [history.energy_error_percent for history in running]
    if not relative:
        unit, factor = _joules(largest(np.concatenate([history.energy_error for history in running])))
        name, errors = "energy error", [factor * history.energy_error for history in running]
    shown = [(base, [values]) for base, values in zip(view.counted, errors, strict=True)]
    panel = view.over_time(sheet, 1.4, (name, unit), [(0, ("", ERROR, "-"), "")], shown, 1.1)
    if panel and relative and view.alone:
        panel.set_ylim(*_sensible(view))
    if not view.alone:
        if relative:
            history = [[1e-3 * test.of.running.input_energy[test.first_step :]] for test in view.tests]
            inputs = [*zip(view.steps, history, strict=True)]
            view.over_time(sheet, 1.9, ("input energy", "kJ"), [(0, INPUT, "")], inputs, 1.1, aim=None)
        view.legend(sheet, view.entries)
        percent = "Energy added by the tracking error, in percent, and the input energy."
        return "Energy", percent if relative else "Energy added by the tracking error."
    parts = energies(view.of)
    view.legend(sheet, _parts(sheet, view, parts))
    title = f"Energy: the tracking error added {_energy(float(running[0].energy_error[-1]))}"
    total = float(running[0].input_energy[-1]) if len(running[0].input_energy) else math.nan
    if relative and "input" in parts and math.isfinite(total):
        title += f" to an input energy of {_energy(total, 3)}"
    return title, _energy_caption(running[0].elastic_energy, relative)


def _parts(sheet: Sheet, view: View, parts: Mapping[str, Array]) -> Sequence[Entry]:
    unit, factor = _joules(largest(np.array([*parts.values()])))
    (panel,) = sheet.row(1.9)
    view.time(sheet, panel, label("energy", unit))
    entries = [entry for entry in _PARTS if entry[0] in parts]
    for entry in entries:
        width = 1.7 if entry == INPUT else 1.1
        sheet.curve(panel, view.steps[0], label(entry[0], unit), factor * parts[entry[0]], entry, width)
    return entries


def _energy_caption(elastic: float, relative: bool) -> str:
    if not relative:
        return (
            "Top: work done by the measured force over the difference between measured and target displacement, "
            "in units of energy because there is no input energy. Below: work absorbed by the specimen."
        )
    denominator = (
        f"|input energy| + strain energy at yield ({_energy(elastic, 3)})"
        if elastic
        else "|input energy|; without strain energy at yield, the first seconds are not meaningful"
    )
    return (
        "Top: running form of the hybrid simulation energy monitor (HSEM), energy error / ("
        f"{denominator}), as during the test. A positive value indicates lag, which adds energy. The HSEM in the "
        "table is the last energy error divided by the input energy. Below: distribution of the input energy."
    )


def _sensible(view: View) -> tuple[float, float]:
    running = view.of.running
    percent = running.energy_error_percent
    if running.elastic_energy == 0.0 and len(running.input_energy):
        step = np.minimum(running.samples // view.run.scenario.samples_per_step, len(running.input_energy) - 1)
        energy_input = np.abs(running.input_energy[step])
        percent = percent[energy_input >= _ENOUGH * energy_input.max()]
    percent = percent[np.isfinite(percent)]
    low, high = float(percent.min(initial=0.0)), float(percent.max(initial=0.0))
    margin = 0.06 * (high - low) or 1.0
    return low - margin, high + margin


def _joules(size: float) -> tuple[str, float]:
    return ("kJ", 1e-3) if size >= 1e3 else ("J", 1.0)


def _energy(joules: float, digits: int = 2) -> str:
    unit, factor = _joules(abs(joules))
    return quantity(joules, factor, unit, digits)


def synchronisation(sheet: Sheet, view: View) -> Words:
    """Draw, for each axis, measured displacement and control error versus target (Mercan 2007)."""
    run, running, base = view.run, view.of.running, view.counted[0]
    (group,) = view.groups(view.axes)
    for axis, entry, suffix in group:
        left, right = sheet.row(2.7 if len(group) == 1 else 2.2, 6, 6)
        target, measured = (MM * values[running.samples, axis] for values in (run.target, run.displacement))
        over = f"target{suffix} (mm)", target
        near, off = f"measured{suffix} (mm)", f"target − measured{suffix} (mm)"
        sheet.curve(left, base, near, measured, entry, 0.8, over)
        sheet.curve(right, base, off, MM * running.control_error[:, axis], entry, 0.7, over)
        left.axline((0.0, 0.0), slope=1.0, color=FAINT, lw=0.6, zorder=1.5)
        left.set_aspect("equal", adjustable="datalim")
        level(right, colour=ZERO)
        left.set(xlabel=over[0], ylabel=near)
        right.set(xlabel=over[0], ylabel=off)
    sheet.legend(view.several(view.axes))
    return "Synchronisation: measured versus target", (
        "Measured versus target: a perfect actuator draws the line at 45°. A lag opens the line into an ellipse; "
        "too small an amplitude tilts the line. Target − measured: the same plot without the line, magnified."
    )
