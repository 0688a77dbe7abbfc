# SPDX-License-Identifier: Apache-2.0
"""Figures of force, energy and synchronisation: hysteresis loops, their areas, and the energy balance."""

from __future__ import annotations

import math

import numpy as np

from rths_nodes.analysis.energy import energies
from rths_nodes.analysis.figures.drawing import Drawing, Recordings, Row, Words, suffix_of
from rths_nodes.analysis.figures.style import FAINT, INK, Look, level, styled
from rths_nodes.analysis.histories import largest
from rths_nodes.analysis.units import KN, MM, quantity

INPUT: Look = {"color": INK, "lw": 1.7}
PARTS = ("numerical substructure", "experimental substructure", "viscous damping", "kinetic")
ERROR: Look = {"color": "#8e4585"}


def hysteresis(figure: Drawing, tests: Recordings) -> Words:
    """Draw the restoring force of each substructure versus displacement (Fig. 8 of Chen & Ricles 2010)."""
    run = tests.run
    m = len(run.restoring_force)
    loops = [("measured", tests.axes, tests.samples[0], run.displacement, run.force)]
    caption = "The area inside the loops is the dissipated energy."
    if run.scenario.structure is not None and np.isfinite(run.restoring_force[1:]).any():
        dofs = styled(run.dof_names)
        loops.insert(0, ("computed", dofs, tests.steps[0], run.dof_displacement[:m], run.restoring_force))
        part = quantity(largest(run.restoring_force), KN, "kN")
        caption += f" The numerical substructure (without its viscous damping) carried up to {part}."
    (panels,) = figure.panels(1, len(loops), 2.5)
    for panel, (kind, looks, base, moved, forces) in zip(panels, loops, strict=True):
        for number, (name, look) in enumerate(looks.items()):
            suffix = suffix_of(looks, number)
            over = f"{kind} displacement{suffix} (mm)", MM * moved[:, number]
            entry = look | ({"label": name} if suffix else {})
            figure.curve(panel, base, f"{kind} force{suffix} (kN)", KN * forces[:, number], over, **entry)
        substructure = "experimental" if kind == "measured" else "numerical"
        panel.set(title=f"{substructure} substructure ({kind})", xlabel="displacement (mm)")
        panel.set_ylabel("restoring force (kN)" if panel is panels[0] else "")
    return f"Hysteresis: the specimen carried up to {quantity(largest(run.force), KN, 'kN')}", caption


def force(figure: Drawing, tests: Recordings) -> Words:
    panels = figure.panels(len(tests.axes), 2, 1.6, width_ratios=(7, 5), sharex="col")
    values = [KN * test.force.T for test in tests.tests]
    row = Row("force", "kN", tests.axes, [*zip(tests.samples, values, strict=True)])
    for axis, (name, (over_time, loops)) in enumerate(zip(tests.axes, panels, strict=True)):
        suffix = suffix_of(tests.axes, axis)
        tests.time(over_time, f"{name}: force (kN)" if suffix else "restoring force (kN)")
        tests.curves(figure, over_time, row, axis)
        level(over_time)
        for test, base, forces in [*zip(tests.tests, tests.samples, values, strict=True)][::-1]:
            over = tests.head(test, f"displacement{suffix} (mm)"), MM * test.displacement[:, axis]
            head = tests.head(test, f"force{suffix} (kN)")
            figure.curve(loops, base, head, forces[axis], over, **tests.looks[test.name])
        loops.set_xlabel("displacement (mm)")
    return "Force", "Measured force versus time and versus measured displacement."


def energy(figure: Drawing, tests: Recordings) -> Words:
    """Draw the running HSEM (Fig. 11 of Chen & Ricles 2010), or the energy error if the HSEM is unknown.

    A second panel shows the energy balance of a single test, or the input energies (if known) of several tests.
    """
    running = [test.of.running for test in tests.tests]
    relative = all(np.isfinite(history.energy_error_percent).any() for history in running)
    name, unit, errors = "HSEM, running", "%", [history.energy_error_percent for history in running]
    if not relative:
        unit, factor = _joules(largest(np.concatenate([history.energy_error for history in running])))
        name, errors = "energy error", [factor * history.energy_error for history in running]
    shown = [(base, [values]) for base, values in zip(tests.counted, errors, strict=True)]
    rows = [Row(name, unit, {"": ERROR}, shown)]
    if not tests.alone:
        if relative:
            inputs = [[1e-3 * test.of.running.input_energy[test.first_step :]] for test in tests.tests]
            both = [*zip(tests.steps, inputs, strict=True)]
            rows.append(Row("input energy", "kJ", {"": INPUT}, both, None))
        tests.over_time(figure, rows, 1.6)
        percent = "Energy added by the tracking error, in percent, and the input energy."
        return "Energy", percent if relative else "Energy added by the tracking error."
    parts = energies(tests.of)
    unit, factor = _joules(largest(np.array([*parts.values()])))
    looks = {name: look for name, look in ({"input": INPUT} | styled(PARTS)).items() if name in parts}
    balance = [(tests.steps[0], [factor * parts[name] for name in looks])]
    panels = tests.over_time(figure, [*rows, Row("energy", unit, looks, balance, None)], 1.6)
    if relative and len(panels) > 1:
        # without strain energy at yield, the first values are large because the input energy is small
        late = errors[0][len(errors[0]) // 4 if running[0].elastic_energy == 0.0 else 0 :]
        low, high = np.nanmin(late, initial=0.0), np.nanmax(late, initial=0.0)
        margin = 0.06 * (high - low) or 1.0
        panels[0].set_ylim(low - margin, high + margin)
    title = f"Energy: the tracking error added {_energy(float(running[0].energy_error[-1]))}"
    total = float(running[0].input_energy[-1]) if len(running[0].input_energy) else math.nan
    if relative and "input" in parts and math.isfinite(total):
        title += f" to an input energy of {_energy(total, 3)}"
    return title, _energy_caption(running[0].elastic_energy, relative)


def _energy_caption(elastic: float, relative: bool) -> str:
    if not relative:
        return "Work of the force over measured minus target displacement, and work absorbed by the specimen."
    reference = f"|input energy| + strain energy at yield ({_energy(elastic, 3)})" if elastic else "|input energy|"
    return (
        f"Top: running hybrid simulation energy monitor (HSEM), energy error / ({reference}), as during the test. "
        "A positive value indicates lag, which adds energy. The HSEM in the table is the last energy error / input"
        " energy. Below: distribution of the input energy."
    )


def _joules(size: float) -> tuple[str, float]:
    return ("kJ", 1e-3) if size >= 1e3 else ("J", 1.0)


def _energy(joules: float, digits: int = 2) -> str:
    unit, factor = _joules(abs(joules))
    return quantity(joules, factor, unit, digits)


def synchronisation(figure: Drawing, tests: Recordings) -> Words:
    """Draw, for each axis, measured displacement and control error versus target (Mercan 2007)."""
    run, running, base = tests.run, tests.of.running, tests.counted[0]
    panels = figure.panels(len(tests.axes), 2, 2.4)
    for axis, ((left, right), (name, look)) in enumerate(zip(panels, tests.axes.items(), strict=True)):
        suffix = suffix_of(tests.axes, axis)
        target, measured = (MM * values[running.samples, axis] for values in (run.target, run.displacement))
        over = f"target{suffix} (mm)", target
        near, off = f"measured{suffix} (mm)", f"target − measured{suffix} (mm)"
        entry = look | ({"label": name} if suffix else {})
        figure.curve(left, base, near, measured, over, **entry)
        figure.curve(right, base, off, MM * running.control_error[:, axis], over, **entry)
        left.axline((0.0, 0.0), slope=1.0, color=FAINT, lw=0.6, zorder=1.5)
        left.set_aspect("equal", adjustable="datalim")
        level(right)
        left.set(xlabel=over[0], ylabel=near)
        right.set(xlabel=over[0], ylabel=off)
    return "Synchronisation: measured versus target", (
        "Measured versus target: a perfect actuator draws the line at 45°. A lag opens the line into an ellipse; "
        "too small an amplitude tilts the line. Target − measured: the same plot without the line, magnified."
    )
