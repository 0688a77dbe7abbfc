# SPDX-License-Identifier: Apache-2.0
"""Figures over time: displacement, control error, indicator, compensator, response, equilibrium, loads.

One test and several over one another have the same figures, see ``View``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

import numpy as np

from rths_nodes.analysis import energy, equilibrium
from rths_nodes.analysis.figures import thinning
from rths_nodes.analysis.figures.plan import (
    COLUMNS,
    DISPLACEMENT,
    TIME,
    ZERO_LINE,
    Base,
    Curve,
    Look,
    Panel,
    Plan,
    Quantity,
)
from rths_nodes.analysis.figures.sheet import View
from rths_nodes.analysis.figures.style import BAND, BAND_WIDTH, DASHES, FAINT, INK, LIMIT, Entry, styled
from rths_nodes.analysis.figures.thinning import largest
from rths_nodes.analysis.figures.tracking import followed, measured_by
from rths_nodes.analysis.histories import STILL
from rths_nodes.analysis.overlay import on_times
from rths_nodes.analysis.units import KN, MM, MM2, MS, PERCENT, early_or_late, quantity, rounded
from rths_nodes.core.samples import Array

LETTER = 0.08
"""Height that a panel needs for a letter of the label beside it, inches."""
ZOOM = 2.0
"""Seconds of the magnified part of the displacements."""
FEW, MANY = 4, 8
"""Degrees of freedom, and quantities of the compensators, that are drawn of several tests."""
ROUNDING = 1e-6
"""Percent of the largest force up to which a residual is rounding."""
SYMBOLS = {"alpha": "α", "delta_alpha": "Δα", "theta": "θ"}
"""Names of states as they are written in papers."""
SHOWN_UNITS = {"s": ("ms", MS), "m": ("mm", MM), "m^2": ("mm²", MM2), "1/m^2": ("1/mm²", 1.0 / MM2)}
"""Units of states as they are drawn, with the factor; others are drawn as they were recorded."""
_NUMBERED = re.compile(r"(.*?)_?(\d*)", re.DOTALL)


def displacements(view: View) -> Plan:
    """Fig. 7(a): target of the first test, measured displacement of all, and the strongest seconds of them.

    Those seconds of a single test have its command, too.
    """
    rows = []
    zoom = thinning.strongest(view.first.counted, view.run.target[view.running.samples], ZOOM)
    named = len(view.axes) > 1
    for axis, (name, _, _) in enumerate(view.axes):
        label = Quantity(name, "mm") if named else DISPLACEMENT
        target, command, measured = followed(view, axis)
        whole = view.panel(label, [target, *measured], frame=zoom, columns=COLUMNS * 2 // 3)
        shown = [*([command] if view.alone else []), target, *measured]
        rows.append([whole, Panel(TIME, label, shown, span=zoom, over_time=True, columns=COLUMNS // 2)])
    magnified = f"Framed, and magnified: the {zoom[1] - zoom[0]:.2g}\u00a0s in which"
    name = view.first.name
    caption = (
        f"Measured displacement of all tests, and the target of {name}, in the time of the structure. "
        f"{magnified} that moved most."
    )
    entries: list[Entry] = [(f"target of {name}", BAND, "-"), *view.entries]
    if view.alone:
        caption = f"{magnified} the target moved most, with the command that the compensator made of it."
        entries = [("target", BAND, "-"), *measured_by(view), ("command", INK, DASHES)]
    within = quantity(largest(view.running.control_error), MM, "mm")
    title = view.titled("Displacement", f"measured follows target within {within}")
    heights = [1.35 if named else 2.3] * len(rows)
    return Plan("displacement", title, caption, rows, heights, entries, view.spans, (2.1, 1.0))


def differences(view: View) -> Plan | None:
    """Measured displacement less that of the first test; None where there is no other one."""
    first, others = view.first, view.tests[1:]
    if not others:
        return None
    moved = [np.array([on_times(first.time, of.time, each) for each in of.displacement.T]) for of in others]
    values = [np.zeros((len(view.axes), 0)), *(MM * (each - first.displacement.T) for each in moved)]
    words = f"Difference to {first.name}", f"Measured displacement less that of {first.name}."
    bases = [view.samples[0]] * len(view.tests)
    plan = _running(view, "difference", words, bases, values, Quantity("difference", "mm"), 0.9)
    return replace(plan, legend=view.entries[1:])


def control_error(view: View) -> Plan:
    """Fig. 7(b)."""
    time, error = view.running.time, view.running.control_error
    row, axis = divmod(int(np.argmax(np.abs(error))), len(view.axes))
    where = f" ({view.axes[axis][0]})" if len(view.axes) > 1 else ""
    worst = quantity(abs(float(error[row, axis])), MM, "mm")
    title = view.titled("Control error", f"largest {worst} at {time[row]:.3g}\u00a0s{where}")
    words = title, f"Target minus measured displacement{'' if view.alone else ', each test to its own target'}."
    values = [MM * test.of.running.control_error.T for test in view.tests]
    return _running(view, "control_error", words, view.counted, values, Quantity("control error", "mm"), 0.9)


def tracking_indicator(view: View) -> Plan:
    """Fig. 7(c)."""
    indicator = view.running.tracking_indicator
    most = quantity(largest(indicator), MM2, "mm²")
    ends = ", ".join(rounded(value, MM2) for value in indicator[-1].tolist())
    title = view.titled("Tracking indicator", f"magnitude up to {most}, {ends}\u00a0mm² at the end")
    words = title, "Rises while the actuator lags its target, falls while it leads, level while they agree."
    values = [MM2 * test.of.running.tracking_indicator.T for test in view.tests]
    of = Quantity("tracking indicator", "mm²")
    return _running(view, "tracking_indicator", words, view.counted, values, of, 1.1)


def _running(
    view: View,
    name: str,
    words: tuple[str, str],
    bases: Sequence[Base],
    values: Sequence[Array],
    of: Quantity,
    width: float,
) -> Plan:
    panels = view.panels(bases, of, values, view.axes, width, levels=[ZERO_LINE])
    return view.plan(name, words, panels, [1.7 if len(panels) == 1 else 1.35] * len(panels), view.legend)


def delay(view: View) -> Plan | None:
    """Delay and amplitude ratio over time, by the frequency evaluation index of short windows.

    None where all tests are too short for it.
    """
    found = [test.of.windowed for test in view.tests]
    known = [each for each in found if each]
    if not known:
        return None
    bases = [
        Base("windows", TIME, test.at(each.time) if each else np.zeros(0))
        for test, each in zip(view.tests, found, strict=True)
    ]
    nothing = np.zeros((len(view.axes), 0))
    late = [MS * each.delay.T if each else nothing for each in found]
    ratio = [each.amplitude.T if each else nothing for each in found]
    panels = _in_turn(
        view.panels(bases, Quantity("delay", "ms"), late, view.axes, 1.1, dots=True, levels=_faint(0.0)),
        view.panels(bases, Quantity("amplitude ratio"), ratio, view.axes, 1.1, dots=True, levels=_faint(1.0)),
    )
    low, high = (early_or_late(float(pick(known[0].delay))) for pick in (np.nanmin, np.nanmax))
    length = f" of {known[0].length:.2g}\u00a0s, at their middle," if view.alone else ", in the time of the rig,"
    caption = (
        f"Frequency evaluation index (Guo et al. 2014) of windows{length} where the target moves at least "
        f"{PERCENT * STILL:g}\u00a0% as much as in the strongest of them. Above zero: late. Each window counts "
        "alike; in the index J1 of the whole test the fastest motion counts most."
    )
    title = view.titled("Delay over time", f"between {low} and {high}")
    return view.plan("delay", (title, caption), panels, [1.15] * len(panels), view.legend)


def _faint(level: float) -> list[tuple[float, Look]]:
    return [(level, Look(FAINT, "-", 0.6))]


def compensator(view: View) -> Plan | None:
    """Fig. 7(d): what the compensator has learned; of several tests the parameters that any of them has."""
    found = [test.of.states if view.alone else test.of.parameters for test in view.tests]
    names = list(dict.fromkeys(name for states in found for name in states))
    names = [name for name in names if name != "tracking_indicator"]  # has its own figure
    shown = {name: _state(view, name, [states.get(name, {}) for states in found]) for name in names}
    names = sorted((name for name in names if shown[name]), key=lambda name: name != "delta_alpha")
    if not names:
        return None
    panels = [panel for name in names for panel in shown[name]]
    title = view.titled("Compensator", "its inner quantities")
    caption = f"Recorded states of {type(view.run.scenario.compensator).type_name}.{_limited(view, names)}"
    if not view.alone:
        left = f" The first {MANY} of {len(panels)}." if len(panels) > MANY else ""
        title, caption = "Compensators", f"Parameters, of each test that has them.{left}"
    elif "delta_alpha" in names:
        adapted = found[0]["delta_alpha"].values()
        ends = ", ".join(rounded(float(v[np.isfinite(v)][-1])) for v in adapted if np.isfinite(v).any())
        title = f"Compensator: Δα ends at {ends} samples"
        caption = (
            "Δα is added to the estimated delay constant: α = αₑₛ + Δα (Chen & Ricles 2010, Eqs. 6–7). "
            f"The delay that is compensated is (α − 1) samples.{_limited(view, names)}"
        )
    panels = panels if view.alone else panels[:MANY]
    longest = max(len(str(panel.y)) for panel in panels)
    height = max(1.7 if len(panels) == 1 else 1.3 if len(panels) <= 3 else 0.95, LETTER * longest)
    return view.plan("compensator", (title, caption), panels, [height] * len(panels), view.legend)


def _state(view: View, state: str, found: Sequence[Mapping[str, Array]]) -> list[Panel]:
    styles = {entry[0]: entry for entry in view.axes}
    axes = [styles.get(axis, (axis, INK, "-")) for axis in dict.fromkeys(axis for rows in found for axis in rows)]
    units = {name: unit for test in view.tests for name, unit in test.of.state_units.items()}
    of, factor = labelled(state, units)
    values = []
    for test, rows in zip(view.tests, found, strict=True):
        histories = [factor * rows[axis[0]][test.rows] if axis[0] in rows else np.zeros(0) for axis in axes]
        values.append([each if np.isfinite(each).any() else np.zeros(0) for each in histories])
    ends = [end for end in view.of.state_limits.get(state, ()) if view.alone and math.isfinite(end)]
    limits = [(factor * end, Look(LIMIT, DASHES, 0.9)) for end in ends]
    return view.panels(view.samples, of, values, axes, 1.1, levels=limits)


def _limited(view: View, states: Iterable[str]) -> str:
    limits = view.of.state_limits
    drawn = any(math.isfinite(end) for state in states for end in limits.get(state, ()))
    return " Dashed: limits of the parameters." if drawn else " The parameters have no limits." if limits else ""


def labelled(state: str, units: Mapping[str, str]) -> tuple[Quantity, float]:
    """Return the name of a compensator's state in a figure, with its unit, and the factor to that unit."""
    stage, dot, name = state.rpartition(".")
    stem, number = _NUMBERED.fullmatch(name).groups()  # type: ignore[union-attr]  # matches everything
    symbol = stage + dot + SYMBOLS.get(stem, stem) + number
    unit, factor = SHOWN_UNITS.get(units.get(state, ""), (units.get(state, ""), 1.0))
    return Quantity(symbol, unit), factor


def response(view: View) -> Plan | None:
    """Response of the degrees of freedom that all tests have; that of a single one below its ground motion."""
    tests, run, level = view.tests, view.run, [ZERO_LINE]
    dofs = [entry for entry in styled(run.dof_names) if all(entry[0] in test.run.dof_names for test in tests)]
    ground = energy.ground_acceleration(view.of) if view.alone else np.zeros(0)
    if not dofs or (view.alone and len(ground) < 2) or not np.isfinite(run.dof_displacement).any():
        return None
    shown = dofs if view.alone else dofs[:FEW]
    moved, shaken = [], []
    for test in tests:
        rows = [test.run.dof_names.index(name) for name, _, _ in shown]
        nothing = np.zeros((0, test.moved.shape[1]))
        moved.append(MM * test.moved.T[rows])
        shaken.append(test.of.or_left_out("acceleration", test.acceleration, nothing).T[rows])
    accelerations: list[Panel] = []
    if any(np.isfinite(each).any() for each in shaken):
        accelerations = view.panels(view.steps, Quantity("accel.", "m/s²"), shaken, shown, 0.9, levels=level)
    panels = _in_turn(
        view.panels(view.steps, Quantity("displ.", "mm"), moved, shown, 1.0, levels=level), accelerations
    )
    heights = [1.2] * len(panels)
    left = f" The first {FEW} of {len(dofs)} degrees of freedom." if len(dofs) > len(shown) else ""
    title, caption = "Response", f"Displacement relative to the ground, and absolute acceleration.{left}"
    most = quantity(largest(run.dof_displacement[view.of.first_step :]), MM, "mm", 3)
    if view.alone and not np.isfinite(ground).any():  # the record of a test that was made elsewhere may lack it
        title, caption = f"Response: the structure moved by {most}", "Displacement relative to the ground."
    elif view.alone:
        of = Quantity("ground", "m/s²")
        panels = [*view.panels(view.steps, of, [[ground]], [("", INK, "-")], 0.7, levels=level), *panels]
        heights = [0.85, *heights]
        peak = quantity(largest(ground), 1.0, "m/s²", 3)
        title = f"Response: {peak} of ground acceleration moved the structure by {most}"
        caption = "From the top: acceleration of the ground, displacement relative to it, absolute acceleration."
    return view.plan("response", (title, caption), panels, heights, view.legend_of(dofs))


def _in_turn(*rows: Sequence[Panel]) -> list[Panel]:
    """The first of each row, then the second of each."""
    return [panel for column in zip_longest(*rows) for panel in column if panel]


def residual(view: View) -> Plan | None:
    """Over time, in percent of the largest force; None for prescribed displacements, which have no equation.

    Raises ConfigError where it cannot be computed.
    """
    if view.of.scenario.structure is None:
        return None
    found = equilibrium.residual(view.of)
    if len(found.time) < 2 or not found.scale:
        return None
    dofs = styled(view.run.dof_names)
    share = PERCENT * found.force / found.scale
    of = Quantity("residual", "%")
    panels = view.panels([Base("steps", TIME, found.time)], of, [share.T], dofs, 0.8, levels=[ZERO_LINE])
    most = largest(share)
    rounding = most < ROUNDING
    words = "nothing but rounding is left" if rounding else f"up to {quantity(most, 1.0, '%')} is left"
    caption = (
        "Inertia, damping, computed and measured restoring force minus the external force, at the steps of the "
        "integrator, as a share of the largest of these forces. An integrator that satisfies the equation at its "
        "steps leaves rounding; one that does so within them, or forces that are read ahead, leave more."
    )
    return view.plan("equilibrium", (f"Equilibrium: {words}", caption), panels, [1.3], view.legend_of(dofs))


def loads(view: View) -> Plan | None:
    """Force and displacement of each; None without one."""
    found, base = view.run.loads, view.samples[0]
    if found is None:
        return None
    panels = []
    for index, name in enumerate(found.names):
        target, force = KN * found.target[:, index], KN * found.force[:, index]
        of_force = [
            Curve(base, Quantity(f"{name} target force", "kN"), target, Look(BAND, "-", BAND_WIDTH)),
            Curve(base, Quantity(f"{name} force", "kN"), force, Look(INK, "-", 0.8)),
        ]
        moved = Quantity(f"{name} displacement", "mm")
        of_place = [Curve(base, moved, MM * found.displacement[:, index], Look(INK, "-", 0.8))]
        panels += [view.panel(Quantity(f"{name}\nforce", "kN"), of_force), view.panel(DISPLACEMENT, of_place)]
    entries: list[Entry] = [("target", BAND, "-"), ("measured", INK, "-")]
    error = np.abs(found.error)
    known = error[np.isfinite(error)]
    caption = "Above the force, with its target where the axis was controlled by force; below the displacement."
    title = "Loads: held, never controlled by force"
    if len(known):
        title = f"Loads: kept within {quantity(float(known.max()), KN, 'kN')}"
    return view.plan("loads", (title, caption), panels, [1.35, 1.0] * len(found.names), entries)
