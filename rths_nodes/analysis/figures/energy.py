# SPDX-License-Identifier: Apache-2.0
"""Figures of force, energy and synchronisation: what the loops enclose, and where the energy went."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from rths_nodes.analysis.energy import energies
from rths_nodes.analysis.figures.plan import (
    DISPLACEMENT,
    FORCE,
    ZERO_LINE,
    Base,
    Curve,
    Look,
    Panel,
    Plan,
    Quantity,
)
from rths_nodes.analysis.figures.sheet import View
from rths_nodes.analysis.figures.style import ERROR, INK, LINES, PALETTE, Entry, styled
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


def hysteresis(view: View) -> Plan:
    """Fig. 8: restoring force over displacement of both substructures."""
    run = view.run
    numerical = run.scenario.structure is not None and bool(np.isfinite(run.restoring_force[1:]).any())
    dofs = styled(run.dof_names)
    loops = _loops(view, view.samples[0], (run.displacement, run.force), view.axes, "measured")
    row = [Panel(DISPLACEMENT, FORCE, loops, "experimental substructure (measured)")]
    caption = "The area inside the loops is energy dissipated."
    if numerical:
        m = len(run.restoring_force)
        loops = _loops(
            view, view.steps[0].first(m), (run.dof_displacement[:m], run.restoring_force), dofs, "computed"
        )
        legend = dofs if len(dofs) > 1 else []
        row.insert(0, Panel(DISPLACEMENT, FORCE, loops, "numerical substructure (computed)", legend=legend))
        part = quantity(largest(run.restoring_force), KN, "kN")
        caption += f" The numerical substructure (without its viscous damping) carried up to {part}."
    title = f"Hysteresis: the specimen carried up to {quantity(largest(run.force), KN, 'kN')}"
    return Plan("hysteresis", title, caption, [row], [2.7], view.legend, widths=(1.0,) * len(row))


def _loops(
    view: View, base: Base, values: tuple[Array, Array], entries: Sequence[Entry], kind: str
) -> list[Curve]:
    over, of = Quantity(f"{kind} displacement", "mm"), Quantity(f"{kind} force", "kN")
    return [
        Curve(
            base,
            view.named(of, entries, entry[0]),
            KN * force,
            Look.of(entry, 0.8),
            view.named(over, entries, entry[0]),
            MM * moved,
        )
        for moved, force, entry in zip(values[0].T, values[1].T, entries, strict=True)
    ]


def force(view: View) -> Plan:
    """Measured force of several tests, over time and over the measured displacement."""
    rows = []
    for axis, entry in enumerate(view.axes):
        of, over = (view.named(each, view.axes, entry[0]) for each in (Quantity("force", "kN"), DISPLACEMENT))
        shown = view.curves(view.samples, of, [KN * test.force[:, axis] for test in view.tests], entry, 0.9)
        loops = [
            replace(
                curve,
                look=curve.look._replace(width=0.8),
                over=view.told(test, over),
                across=MM * test.displacement[:, axis],
            )
            for curve, test in zip(shown, view.tests[::-1], strict=True)
        ]
        label = Quantity(f"{entry[0]}: force", "kN") if len(view.axes) > 1 else FORCE
        rows.append([view.panel(label, shown, levels=[ZERO_LINE]), Panel(DISPLACEMENT, label, loops)])
    heights = [2.3 if len(rows) == 1 else 1.8] * len(rows)
    caption = "Measured force, over time and over the measured displacement."
    return Plan("force", "Force", caption, rows, heights, view.legend, widths=(1.5, 1.0))


def energy(view: View) -> Plan:
    """Fig. 11 in the running form; below it where the input energy of a single test went, or that of several."""
    running = [test.of.running for test in view.tests]
    relative = all(np.isfinite(each.energy_error_percent).any() for each in running)
    label, errors = Quantity("HSEM, running", "%"), [each.energy_error_percent for each in running]
    if not relative:
        unit, factor = _joules(largest(np.concatenate([each.energy_error for each in running])))
        label, errors = Quantity("energy error", unit), [factor * each.energy_error for each in running]
    top = view.curves(view.counted, label, errors, ("", ERROR, "-"), 1.1)
    limits = _sensible(view) if relative and view.alone else None
    panels, entries = [view.panel(label, top, limits=limits, levels=[ZERO_LINE])], view.legend
    title, caption = "Energy", "Energy that the tracking error has fed in."
    if view.alone:
        parts = energies(view.of)
        entries = [entry for entry in _PARTS if entry[0] in parts]
        panels.append(_parts(view, parts, entries))
        title += f": the tracking error fed in {_energy(float(running[0].energy_error[-1]))}"
        given = float(running[0].input_energy[-1]) if len(running[0].input_energy) else math.nan
        if relative and "input" in parts and math.isfinite(given):
            title += f" of {_energy(given, 3)} input"
        caption = _energy_caption(running[0].elastic_energy, relative)
    elif relative:
        each = [1e-3 * test.of.running.input_energy[test.first_step :] for test in view.tests]
        panels += view.panels(
            view.steps, Quantity("input energy", "kJ"), [[of] for of in each], [("", INK, "-")], 1.1
        )
        caption = "Energy that the tracking error has fed in, in percent, and the input energy."
    return view.plan("energy", (title, caption), panels, [1.4, 1.9][: len(panels)], entries)


def _parts(view: View, parts: Mapping[str, Array], entries: Sequence[Entry]) -> Panel:
    unit, factor = _joules(largest(np.array([*parts.values()])))
    shown = [
        Curve(
            view.steps[0].first(len(parts[entry[0]])),
            Quantity(entry[0], unit),
            factor * parts[entry[0]],
            Look.of(entry, 1.7 if entry[0] == "input" else 1.1),
        )
        for entry in entries
    ]
    return view.panel(Quantity("energy", unit), shown)


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


def synchronisation(view: View) -> Plan:
    """Synchronisation subspace plot (Mercan 2007) of each axis, and the same with the diagonal taken off."""
    run, running, rows = view.run, view.running, []
    for axis, entry in enumerate(view.axes):
        target, measured = (MM * v[running.samples, axis] for v in (run.target, run.displacement))
        over = view.named(Quantity("target", "mm"), view.axes, entry[0])
        near = view.named(Quantity("measured", "mm"), view.axes, entry[0])
        off = view.named(Quantity("target − measured", "mm"), view.axes, entry[0])
        left = Curve(view.counted[0], near, measured, Look.of(entry, 0.8), over, target)
        right = Curve(view.counted[0], off, MM * running.control_error[:, axis], Look.of(entry, 0.7), over, target)
        ends = np.array([min(target.min(), measured.min()), max(target.max(), measured.max())])
        rows.append(
            [
                Panel(over, near, [left], diagonal=(float(ends[0]), float(ends[1])), square=True),
                Panel(over, off, [right], levels=[ZERO_LINE]),
            ]
        )
    caption = (
        "Measured over target: a perfect actuator draws the line at 45°; a lag opens it to an ellipse, too small "
        "an amplitude turns it. Target − measured: the same with that line taken off and magnified."
    )
    heights = [2.7 if len(rows) == 1 else 2.2] * len(rows)
    title = "Synchronisation: measured over target"
    return Plan("synchronisation", title, caption, rows, heights, view.legend, widths=(1.0, 1.0))
