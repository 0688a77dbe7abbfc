# SPDX-License-Identifier: Apache-2.0
"""Figures over time: displacement, control error, indicator, compensator, response, equilibrium and loads.

The first four figures are Figs. 7(a) to 7(d) of Chen & Ricles (2010). Further figures show spectrum and timing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from matplotlib.ticker import NullFormatter
from scipy.linalg.blas import dtbsv  # scipy.signal has filters, too, but takes half a second to import

from rths_nodes.analysis import energy
from rths_nodes.analysis.energy import experimental_force
from rths_nodes.analysis.figures.sheet import COLUMNS, Base, Column, Sheet, View, Words, label, level
from rths_nodes.analysis.figures.style import (
    BAND,
    BAND_WIDTH,
    DASHES,
    FAINT,
    INK,
    LIMIT,
    LINES,
    PALETTE,
    Entry,
    styled,
)
from rths_nodes.analysis.figures.tracking import COMMAND, TARGET, followed, measured_by
from rths_nodes.analysis.histories import STILL, Evaluation, largest, strongest
from rths_nodes.analysis.overlay import on_times
from rths_nodes.analysis.share_of_structure import partition
from rths_nodes.analysis.units import (
    KN,
    MM,
    MM2,
    MS,
    PERCENT,
    US,
    clocks,
    early_or_late,
    grouped,
    number,
    quantity,
    rounded,
)
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Array
from rths_nodes.mechanics.structure import combined, transition
from rths_nodes.numerical.structures.damping import lowest_frequencies


def residual(evaluation: Evaluation) -> tuple[Array, Array, float]:
    """Return times ``(m,)`` s, residual ``(m, n_dof)`` N of the equation of motion, and largest force term, N.

    Raises ConfigError if a term was not recorded.
    """
    run, structure, ratio = evaluation.run, evaluation.assembly.structure, evaluation.scenario.time_ratio
    if structure is None:
        raise ConfigError("structure: missing; a test with prescribed displacements has no equation of motion")
    if not evaluation.assembly.observation.complete:
        raise ConfigError("interface: inertia and damping of the model were not recorded")
    tested = experimental_force(evaluation)
    m = min(len(tested), len(run.exact_acceleration), len(run.external_force))
    inertia = ratio**2 * run.exact_acceleration[:m] @ structure.mass.T
    damping = ratio * run.dof_velocity[:m] @ structure.damping.T
    error = inertia + damping + run.restoring_force[:m] + tested[:m] - run.external_force[:m]
    # a soft start prescribes the motion: there is no equilibrium before the test
    error, time = error[evaluation.first_step :], run.step_time[:m][evaluation.first_step :]
    terms = (inertia, damping, run.restoring_force[:m], tested[:m], run.external_force[:m])
    if any(len(term) and not np.isfinite(term).any() for term in terms):
        raise ConfigError("equation of motion: some terms were not recorded")
    scale = max((float(np.nanmax(np.abs(term))) for term in terms if term.size), default=0.0)
    return time, error, scale


LETTER = 0.08
"""Smallest height of a panel per letter of its label, inches."""
ZOOM = 2.0
"""Duration of the magnified part of the displacements, s."""
FEW, MANY = 4, 8
ROUNDING = 1e-6
"""Largest residual due to rounding, %."""
SYMBOLS = {"alpha": "α", "delta_alpha": "Δα", "theta": "θ"}
SHOWN_UNITS = {"s": ("ms", MS), "m": ("mm", MM), "m^2": ("mm²", MM2), "1/m^2": ("1/mm²", 1.0 / MM2)}
_NUMBERED = re.compile(r"(.*?)_?(\d*)", re.DOTALL)
GROUND: Entry = ("", INK, "-")
MEASURED: Entry = ("measured", INK, "-")
Panel = tuple[tuple[str, str], float, Sequence[Column], Sequence[tuple[Base, Sequence[Array]]]]
"""Name and unit of a state, conversion factor, curves of the panel, and histories of the state by test."""


def displacement(sheet: Sheet, view: View) -> Words:
    named = len(view.axes) > 1
    begin, end = strongest(view.first.counted, view.run.target[view.of.running.samples], ZOOM)
    for axis, (name, _, _) in enumerate(view.axes):
        entire, near = sheet.row(1.35 if named else 2.3, 8, 4)
        view.time(sheet, entire, f"{name} (mm)" if named else "displacement (mm)")
        view.time(sheet, near, "")
        followed(sheet, view, entire, axis, command=False)
        followed(sheet, view, near, axis, command=view.alone)
        entire.axvspan(begin, end, facecolor="none", edgecolor=FAINT, lw=0.8)
        near.set_xlim(begin, end)
    window, name = f"{end - begin:.2g}\u00a0s", view.first.name
    caption = (
        f"Measured displacement of all tests, and the target of {name}, on the time axis of the structure. "
        f"Framed and magnified: the {window} in which this target moved most."
    )
    entries: list[Entry] = [(f"target of {name}", BAND, "-"), *view.entries]
    if view.alone:
        caption = (
            f"Framed and magnified: the {window} in which the target moved most, with the command of the "
            "compensator."
        )
        entries = [TARGET, *measured_by(view), COMMAND]
    view.legend(sheet, entries)
    within = quantity(largest(view.of.running.control_error), MM, "mm")
    return view.titled("Displacement", f"measured follows target within {within}"), caption


def difference(sheet: Sheet, view: View) -> Words | None:
    first, further = view.first, view.tests[1:]
    if not further:
        return None
    moved = [
        np.array([on_times(first.time, test.time, values) for values in test.displacement.T]) for test in further
    ]
    values = [np.zeros((len(view.axes), 0)), *(MM * (rows - first.displacement.T) for rows in moved)]
    _by_axis(sheet, view, "difference", "mm", [(view.samples[0], rows) for rows in values], 0.9)
    view.legend(sheet, view.entries[1:])
    return f"Difference to {first.name}", f"Measured displacement minus {first.name}."


def control_error(sheet: Sheet, view: View) -> Words:
    time, error = view.of.running.time, view.of.running.control_error
    row, axis = divmod(int(np.argmax(np.abs(error))), len(view.axes))
    where = f" ({view.axes[axis][0]})" if len(view.axes) > 1 else ""
    worst = quantity(abs(float(error[row, axis])), MM, "mm")
    values = [MM * test.of.running.control_error.T for test in view.tests]
    _by_axis(sheet, view, "control error", "mm", [*zip(view.counted, values, strict=True)], 0.9)
    view.legend(sheet, view.several(view.axes))
    title = view.titled("Control error", f"largest {worst} at {time[row]:.3g}\u00a0s{where}")
    several = "Target minus measured displacement, with the target of each test."
    return title, "Target minus measured displacement." if view.alone else several


def tracking_indicator(sheet: Sheet, view: View) -> Words:
    indicator = view.of.running.tracking_indicator
    most = quantity(largest(indicator), MM2, "mm²")
    ends = ", ".join(rounded(value, MM2) for value in indicator[-1].tolist())
    values = [MM2 * test.of.running.tracking_indicator.T for test in view.tests]
    _by_axis(sheet, view, "tracking indicator", "mm²", [*zip(view.counted, values, strict=True)], 1.1)
    view.legend(sheet, view.several(view.axes))
    title = view.titled("Tracking indicator", f"magnitude up to {most}, {ends}\u00a0mm² at the end")
    return (
        title,
        "The indicator rises while the actuator lags its target and falls while the actuator leads; otherwise "
        "the indicator is constant.",
    )


def _by_axis(
    sheet: Sheet, view: View, name: str, unit: str, shown: list[tuple[Base, Array]], width: float
) -> None:
    groups = view.groups(view.axes)
    for group in groups:
        view.over_time(sheet, 1.7 if len(groups) == 1 else 1.35, (name, unit), group, shown, width)


def delay(sheet: Sheet, view: View) -> Words | None:
    windows = [test.of.windowed for test in view.tests]
    first = next((window for window in windows if window and np.isfinite(window.delay).any()), None)
    if first is None:
        return None
    nothing = np.zeros((len(view.axes), 0))
    bases, late, ratio = [], [], []
    for test, window in zip(view.tests, windows, strict=True):
        bases.append(Base("windows", test.at(window.time) if window else nothing[0]))
        late.append(MS * window.delay.T if window else nothing)
        ratio.append(window.amplitude.T if window else nothing)
    for group in view.groups(view.axes):
        for name, unit, values, aim in (("delay", "ms", late, 0.0), ("amplitude ratio", "", ratio, 1.0)):
            view.over_time(sheet, 1.15, (name, unit), group, [*zip(bases, values, strict=True)], 1.1, aim, True)
    view.legend(sheet, view.several(view.axes))
    low, high = (early_or_late(float(pick(first.delay))) for pick in (np.nanmin, np.nanmax))
    spans = f"windows of {first.length:.2g}\u00a0s" if view.alone else "windows, on the time axis of the rig"
    caption = (
        f"Frequency evaluation index (Guo et al. 2014) in {spans}. A window is omitted if its target moves less "
        f"than {PERCENT * STILL:g}\u00a0% as much as in the strongest window. Positive: late. All windows have "
        "equal weight; in the index J1 of the whole test the fastest motion has the largest weight."
    )
    return view.titled("Delay over time", f"between {low} and {high}"), caption


def compensator(sheet: Sheet, view: View) -> Words | None:
    states = [test.of.states if view.alone else test.of.parameters for test in view.tests]
    names = list(dict.fromkeys(name for histories in states for name in histories))
    names.sort(key=lambda name: name != "delta_alpha")
    panels = [
        (name, *panel)
        for name in names
        if name != "tracking_indicator"  # drawn in its own figure
        for panel in _state(view, name, [histories.get(name, {}) for histories in states])
    ]
    if not panels:
        return None
    drawn, limits = panels if view.alone else panels[:MANY], view.of.state_limits
    longest = max(len(label(title[0] + group[0][2], title[1])) for _, title, _, group, _ in drawn)
    height = max(1.7 if len(drawn) == 1 else 1.3 if len(drawn) <= 3 else 0.95, LETTER * longest)
    bounds = 0
    for name, title, factor, group, shown in drawn:
        panel = view.over_time(sheet, height, title, group, shown, 1.1, aim=None)
        for end in limits.get(name, ()):
            if panel and view.alone and math.isfinite(end):
                level(panel, factor * end, LIMIT, DASHES, 0.9)
                bounds += 1
    view.legend(sheet, view.several(view.axes))
    if not view.alone:
        left = f" Only the first {MANY} of {len(panels)} panels are shown." if len(panels) > MANY else ""
        return "Compensators", f"Parameters of all compensators that have parameters.{left}"
    unlimited = " The parameters have no limits." if limits else ""
    limited = " Dashed: limits of the parameters." if bounds else unlimited
    if "delta_alpha" not in states[0]:
        caption = f"Recorded states of the compensator {type(view.run.scenario.compensator).type_name}.{limited}"
        return "Compensator: internal quantities", caption
    histories = [values[np.isfinite(values)] for values in states[0]["delta_alpha"].values()]
    ends = ", ".join(rounded(float(values[-1])) for values in histories if len(values))
    return f"Compensator: Δα ends at {ends} samples", (
        "Δα is added to the estimated delay constant: α = αₑₛ + Δα (Chen & Ricles 2010, Eqs. 6–7). "
        f"The compensated delay is (α − 1) samples.{limited}"
    )


def _state(view: View, state: str, histories: Sequence[Mapping[str, Array]]) -> Iterator[Panel]:
    looks = {entry[0]: entry for entry in view.axes}
    axes = [
        looks.get(axis, (axis, INK, "-")) for axis in dict.fromkeys(name for rows in histories for name in rows)
    ]
    units = {name: unit for test in view.tests for name, unit in test.of.state_units.items()}
    title, factor = labelled(state, units)
    shown = []
    for test, base, rows in zip(view.tests, view.samples, histories, strict=True):
        values = [factor * rows[axis][test.rows] if axis in rows else np.zeros(0) for axis, _, _ in axes]
        shown.append((base, [history if np.isfinite(history).any() else np.zeros(0) for history in values]))
    for group in view.groups(axes):
        if any(len(rows[number]) for _, rows in shown for number, _, _ in group):
            yield title, factor, group, shown


def labelled(state: str, units: Mapping[str, str]) -> tuple[tuple[str, str], float]:
    """Return displayed name and unit of a compensator state, and factor to that unit."""
    stage, dot, name = state.rpartition(".")
    stem, number = _NUMBERED.fullmatch(name).groups()  # type: ignore[union-attr]  # matches everything
    unit, factor = SHOWN_UNITS.get(units.get(state, ""), (units.get(state, ""), 1.0))
    return (stage + dot + SYMBOLS.get(stem, stem) + number, unit), factor


def response(sheet: Sheet, view: View) -> Words | None:
    run, ground = view.run, energy.ground_acceleration(view.of) if view.alone else np.zeros(0)
    dofs = [entry for entry in styled(run.dof_names) if all(entry[0] in test.run.dof_names for test in view.tests)]
    if not dofs or (view.alone and len(ground) < 2) or not np.isfinite(run.dof_displacement).any():
        return None
    drawn = dofs if view.alone else dofs[:FEW]
    moved, shaken = [], []
    for test, base in zip(view.tests, view.steps, strict=True):
        rows = [test.run.dof_names.index(name) for name, _, _ in drawn]
        nothing = np.zeros((0, test.moved.shape[1]))
        moved.append((base, MM * test.moved.T[rows]))
        shaken.append((base, test.of.or_left_out("acceleration", test.acceleration, nothing).T[rows]))
    if view.alone and np.isfinite(ground).any():  # a test recorded elsewhere may lack the ground motion
        view.over_time(sheet, 0.85, ("ground", "m/s²"), [(0, GROUND, "")], [(view.steps[0], [ground])], 0.7)
    accelerated = any(np.isfinite(values).any() for _, values in shaken)
    for group in view.groups(drawn):
        view.over_time(sheet, 1.2, ("displ.", "mm"), group, moved)
        if accelerated:
            view.over_time(sheet, 1.2, ("accel.", "m/s²"), group, shaken, 0.9)
    view.legend(sheet, view.several(dofs))
    left = f" Only {FEW} of {len(dofs)} degrees of freedom are shown." if len(dofs) > len(drawn) else ""
    most = quantity(largest(run.dof_displacement[view.of.first_step :]), MM, "mm", 3)
    if not view.alone:
        return "Response", f"Displacement relative to the ground, and absolute acceleration.{left}"
    if not np.isfinite(ground).any():
        return f"Response: the structure moved by {most}", "Displacement relative to the ground."
    peak = quantity(largest(ground), 1.0, "m/s²", 3)
    title = f"Response: a ground acceleration of {peak} moved the structure by {most}"
    return title, "From the top: ground acceleration, displacement relative to the ground, absolute acceleration."


def equilibrium(sheet: Sheet, view: View) -> Words | None:
    """Draw the residual of equilibrium, % of the largest force. Raises ConfigError if a term was not recorded."""
    if view.of.scenario.structure is None:
        return None
    time, force, scale = residual(view.of)
    if len(time) < 2 or not scale:
        return None
    dofs = styled(view.run.dof_names)
    share = PERCENT * force / scale
    (group,) = view.groups(dofs)
    view.over_time(sheet, 1.3, ("residual", "%"), group, [(Base("steps", time), share.T)], 0.8)
    view.legend(sheet, view.several(dofs))
    most = largest(share)
    rounding = most < ROUNDING
    remainder = (
        "the residual is only rounding error" if rounding else f"residual of up to {quantity(most, 1.0, '%')}"
    )
    return f"Equilibrium: {remainder}", (
        "Sum of inertia, damping and restoring forces (computed and measured) minus the external force, at the "
        "steps of the integrator, in % of the largest of these forces. Only rounding remains if the integrator "
        "satisfies the equation of motion at its steps. The residual is larger if the integrator satisfies the "
        "equation within the steps, or if forces are read ahead."
    )


def loads(sheet: Sheet, view: View) -> Words | None:
    histories, base = view.run.loads, view.samples[0]
    if histories is None:
        return None
    for index, name in enumerate(histories.names):
        force, moved = (*sheet.row(1.35), *sheet.row(1.0))
        view.time(sheet, force, f"{name}\nforce (kN)")
        view.time(sheet, moved, "displacement (mm)")
        target = KN * histories.target[:, index]
        sheet.curve(force, base, f"{name} target force (kN)", target, TARGET, BAND_WIDTH)
        sheet.curve(force, base, f"{name} force (kN)", KN * histories.force[:, index], MEASURED, 0.8)
        displacement = MM * histories.displacement[:, index]
        sheet.curve(moved, base, f"{name} displacement (mm)", displacement, MEASURED, 0.8)
    view.legend(sheet, [TARGET, MEASURED])
    error = np.abs(histories.error)
    error = error[np.isfinite(error)]
    kept = (
        f"kept within {quantity(float(error.max()), KN, 'kN')}"
        if len(error)
        else "held, never controlled by force"
    )
    return f"Loads: {kept}", (
        "Top: force, with its target while the axis was controlled by force. Below: displacement."
    )


RARE: Entry = ("99.9 %", PALETTE[1], LINES[1])
PERIOD: Entry = ("servo period", INK, "-")


def timing(sheet: Sheet, view: View) -> Words | None:
    run = view.run
    named = clocks(run.information.get("host", ""))
    recorded = [(key, title, *bars(run.timing.get(f"{key}_histogram", {}))) for key, title in named]
    recorded = [clock for clock in recorded if len(clock[-1])]
    if not recorded:
        return None
    panels = sheet.row(1.9, *[COLUMNS // len(recorded)] * len(recorded))
    for panel, (key, title, edges, counts) in zip(panels, recorded, strict=True):
        base = Base(key, US * edges[:-1], f"{key} from (µs)")
        sheet.record(base, f"{key} to (µs)", US * edges[1:])
        sheet.record(base, f"samples of {key}", counts)
        heights = np.where(counts > 0.0, counts, np.nan)
        panel.stairs(heights, US * edges, baseline=0.5, fill=True, color=PALETTE[0], alpha=0.8)
        wide = edges[0] > 0.0 and edges[-1] > 5.0 * edges[0]
        panel.set(xscale="log" if wide else "linear", yscale="log", ylim=(0.5, 2.0 * float(counts.max())))
        panel.set(title=title, xlabel="µs", ylabel="" if panel is not panels[0] else "samples")
        for axis in (panel.xaxis, panel.yaxis) if wide else (panel.yaxis,):
            axis.set_major_formatter(lambda value, _: grouped(value, ".10g"))
            axis.set_minor_formatter(NullFormatter())
        slow = number(run.timing.get(key, {}).get("p999_s"))
        if not run.in_lockstep and slow is not None:
            panel.axvline(US * slow, **sheet.line(RARE, 1.0))
        if not run.in_lockstep and edges[-1] > run.scenario.dt:
            panel.axvline(US * run.scenario.dt, **sheet.line(PERIOD, 1.0))
    sheet.legend([] if run.in_lockstep else [RARE, PERIOD])
    return "Timing histograms", "Number of occurrences of each duration, on a logarithmic axis."


def bars(histogram: Mapping[str, object]) -> tuple[Array, Array]:
    """Return edges (s) and counts of a recorded histogram, without empty bins at its ends."""
    edges, counts = (np.array(histogram.get(key, ()), dtype=float) for key in ("edges_s", "counts"))
    filled = np.flatnonzero(counts > 0.0)
    if not len(filled) or len(edges) != len(counts) + 1:
        return np.zeros(0), np.zeros(0)
    first, end = filled[0], filled[-1] + 1
    return edges[first : end + 1], counts[first:end]


SHORTEST, LONGEST, PERIODS = 0.05, 5.0, 120
TICKS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
MARKED, LARGEST = 3, 300


DAMPING = 0.05
"""Damping ratio of the oscillators, as in design codes."""


def response_spectrum(
    acceleration: Array, step: float, periods: Array, damping: float = DAMPING
) -> tuple[Array, Array]:
    """Return largest relative displacement (m) and pseudo-acceleration (m/s^2) at ``periods`` (s), ``(m,)`` each.

    The response to the ground ``acceleration``, ``(n,)`` m/s^2 every ``step`` (s), is exact if the acceleration is
    linear between samples (Nigam & Jennings 1969). Maxima are taken at the samples.
    """
    moved = np.array(
        [_largest(acceleration, step, 2.0 * math.pi / period, damping) for period in periods.tolist()]
    )
    return moved, (2.0 * math.pi / periods) ** 2 * moved


def _largest(acceleration: Array, step: float, omega: float, damping: float) -> float:
    # in units of the oscillator's own time, so that both states have similar magnitudes
    system, inputs = np.array([[0.0, 1.0], [-1.0, -2.0 * damping]]), np.array([[0.0], [-1.0]])
    phi, before, now = transition(system, inputs, omega * step)
    # displacement only: x_k - trace x_{k-1} + det x_{k-2} = excitation by the ground (Cayley & Hamilton)
    trace, n = float(np.trace(phi)), len(acceleration)
    rest = phi - trace * np.eye(2)
    added = np.convolve(acceleration, np.hstack([now, before + rest @ now, rest @ before])[0])[:n]
    bands = np.repeat([[1.0], [-trace], [float(np.linalg.det(phi))]], n, axis=1)
    moved = dtbsv(2, np.asfortranarray(bands), added, lower=1, diag=1)
    return float(np.abs(moved).max(initial=0.0)) / omega**2


def spectrum(sheet: Sheet, view: View) -> Words | None:
    ground = energy.ground_acceleration(view.of)[view.of.first_step :]
    if len(ground) < 2 or not np.isfinite(ground).all() or not ground.any():
        return None
    step, periods = view.run.scenario.step, _periods(view)
    base = Base("periods", np.geomspace(max(SHORTEST, 4.0 * step), LONGEST, PERIODS), "period (s)")
    moved, strength = response_spectrum(ground, step, base.values)
    curves = (("pseudo-acceleration (m/s²)", strength), ("displacement (mm)", MM * moved))
    for panel, (title, values) in zip(sheet.row(1.9, 6, 6), curves, strict=True):
        sheet.curve(panel, base, title, values, ("", INK, "-"), 1.1)
        for period in periods.tolist():
            panel.axvline(period, color=FAINT, ls=DASHES, lw=0.8, zorder=1.5)
        panel.set(xscale="log", xlabel=base.head, ylabel=title, ylim=(0.0, 1.05 * float(values.max())))
        panel.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
        panel.minorticks_off()
    title = f"Excitation: response spectrum, {PERCENT * DAMPING:g}\u00a0% damping"
    if len(periods):
        at = float(response_spectrum(ground, step, periods[:1])[1][0])
        title = f"Excitation: {quantity(at, 1.0, 'm/s²', 3)} at the first period, {periods[0]:.3g}\u00a0s"
    caption = (
        f"Largest response of oscillators with {PERCENT * DAMPING:g}\u00a0% damping to the ground motion of the "
        "test, on the time axis of the structure."
    )
    if len(periods):
        several = f"the first {len(periods)} periods" if len(periods) > 1 else "the first period"
        caption += f" Dashed: {several} of the whole structure, before it yields."
    return title, caption


def _periods(view: View) -> Array:
    structure = view.of.assembly.structure
    if structure is None or len(structure.influence) > LARGEST:
        return np.zeros(0)
    try:
        frequencies = partition(view.of.assembly, {}).frequencies[:MARKED]
    except ConfigError:  # too large for a partition: use the structure as declared
        mass, _, stiffness = combined(structure)
        frequencies = lowest_frequencies(mass, stiffness, MARKED)[:MARKED] / (2.0 * math.pi)
    periods = 1.0 / frequencies[frequencies > 0.0]
    return np.asarray(periods[(periods > SHORTEST) & (periods < LONGEST)])
