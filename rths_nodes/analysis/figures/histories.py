# SPDX-License-Identifier: Apache-2.0
"""Figures of tests: displacement, tracking, compensator, force, energy, response, loads, corridor, copies, timing.

Several figures correspond to Figs. 7, 8 and 11 of Chen & Ricles (2010).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter
from scipy.linalg.blas import dtbsv  # scipy.signal has filters, too, but takes half a second to import

from rths_nodes.analysis.figures.drawing import (
    BAND,
    DASHES,
    FAINT,
    INK,
    LIMIT,
    LINES,
    PALETTE,
    TARGET,
    Base,
    Drawing,
    Look,
    Recordings,
    Row,
    Words,
    label,
    level,
    styled,
    suffix_of,
)
from rths_nodes.analysis.histories import (
    STILL,
    Evaluation,
    Indices,
    energies,
    experimental_force,
    ground_acceleration,
    largest,
    strongest,
)
from rths_nodes.analysis.identification.from_recording import Followed
from rths_nodes.analysis.overlay import Aligned, on_times
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
from rths_nodes.loop.scenario.updating import USED, Copies
from rths_nodes.loop.supervision.monitor import Corridor, CorridorWatch, corridor_quantities, load_corridor
from rths_nodes.mechanics.structure import transition
from rths_nodes.mechanics.updating import LEARNT, UNEXPLAINED
from rths_nodes.recording.run import Run


def residual(evaluation: Evaluation) -> tuple[Array, Array, float]:
    """Return times ``(m,)`` s, equilibrium residuals ``(m, n_dof)`` N, and the largest force term (N).

    Raises ConfigError if a term was not recorded.
    """
    run, structure, ratio = evaluation.run, evaluation.structure, evaluation.scenario.time_ratio
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


ZOOM = 2.0
"""Duration of the magnified part of the displacements, s."""
FEW, MANY = 4, 8
"""A figure of several tests has at most ``FEW`` degrees of freedom and ``MANY`` compensator panels."""
ROUNDING = 1e-6
"""Largest residual due to rounding, %."""
SYMBOLS = {"alpha": "α", "delta_alpha": "Δα", "theta": "θ"}
SHOWN_UNITS = {"s": ("ms", MS), "m": ("mm", MM), "m^2": ("mm²", MM2), "1/m^2": ("1/mm²", 1.0 / MM2)}
_NUMBERED = re.compile(r"(.*?)_?(\d*)", re.DOTALL)
BLACK: Look = {"color": INK}


def displacement(figure: Drawing, tests: Recordings) -> Words:
    first, several = tests.first, len(tests.axes) > 1
    test = "" if tests.alone else f" of {first.name}"
    begin, end = strongest(first.counted, tests.run.target[tests.of.running.samples], ZOOM)
    near = slice(*np.searchsorted(first.time, (begin, end), "left").tolist())
    panels = figure.panels(len(tests.axes), 2, 1.2 if several else 2.0, width_ratios=(2, 1), sharex="col")
    for axis, (name, pair) in enumerate(zip(tests.axes, panels, strict=True)):
        for panel, rows in zip(pair, (None, near), strict=True):
            title = f"{name} (mm)" if several else "displacement (mm)"
            tests.time(panel, title if rows is None else "")
            followed(figure, tests, panel, axis, rows, command=tests.alone and rows is not None)
        pair[0].axvspan(begin, end, facecolor="none", edgecolor=FAINT, lw=0.8)
        pair[1].set_xlim(begin, end)
    caption = (
        f"Framed and magnified: the {end - begin:.2g}\u00a0s in which the target{test} moved most. The axis "
        f"shows the time of the {'recording' if tests.alone else 'structure'}."
    )
    within = quantity(largest(tests.of.running.control_error), MM, "mm")
    return tests.titled("Displacement", f"measured follows target within {within}"), caption


def difference(figure: Drawing, tests: Recordings) -> Words | None:
    first, *further = tests.tests
    if not further:
        return None
    moved = [[on_times(first.time, test.time, values) for values in test.displacement.T] for test in further]
    shown = [MM * (np.array(rows) - first.displacement.T) for rows in moved]
    nothing = np.zeros((len(tests.axes), 0))
    bases = [tests.samples[0]] * len(tests.tests)
    tests.over_time(figure, [Row("difference", "mm", tests.axes, bases, [nothing, *shown])])
    return f"Difference from {first.name}", f"Measured displacement minus the displacement of {first.name}."


def control_error(figure: Drawing, tests: Recordings) -> Words:
    time, error = tests.of.running.time, tests.of.running.control_error
    row, axis = divmod(int(np.argmax(np.abs(error))), len(tests.axes))
    where = f" ({tests.run.axes[axis]})" if len(tests.axes) > 1 else ""
    worst = quantity(abs(float(error[row, axis])), MM, "mm")
    values = [MM * test.of.running.control_error.T for test in tests.tests]
    row_of_errors = Row("control error", "mm", tests.axes, tests.counted, values)
    tests.over_time(figure, [row_of_errors], 1.2 if len(values) > 1 else 1.5)
    title = tests.titled("Control error", f"largest {worst} at {time[row]:.3g}\u00a0s{where}")
    return title, "Target minus measured displacement of the same test."


def tracking_indicator(figure: Drawing, tests: Recordings) -> Words:
    indicator = tests.of.running.tracking_indicator
    most = quantity(largest(indicator), MM2, "mm²")
    ends = ", ".join(rounded(value, MM2) for value in indicator[-1].tolist())
    values = [MM2 * test.of.running.tracking_indicator.T for test in tests.tests]
    tests.over_time(figure, [Row("tracking indicator", "mm²", tests.axes, tests.counted, values)], 1.75)
    title = tests.titled("Tracking indicator", f"magnitude up to {most}, {ends}\u00a0mm² at the end")
    return title, "The indicator rises while the actuator lags its target and falls while the actuator leads."


def delay(figure: Drawing, tests: Recordings) -> Words | None:
    windows = [test.of.windowed for test in tests.tests]
    first = next((window for window in windows if window and np.isfinite(window.delay).any()), None)
    if first is None:
        return None
    nothing = np.zeros((len(tests.axes), 0))
    late = [MS * window.delay.T if window else nothing for window in windows]
    ratio = [window.amplitude.T if window else nothing for window in windows]
    bases = [
        Base("windows", test.at(window.time) if window else nothing[0])
        for test, window in zip(tests.tests, windows, strict=True)
    ]
    late_row = Row("delay", "ms", tests.axes, bases, late, dots=True)
    tests.over_time(figure, [late_row, Row("amplitude ratio", "", tests.axes, bases, ratio, 1.0, dots=True)])
    low, high = (early_or_late(float(pick(first.delay))) for pick in (np.nanmin, np.nanmax))
    spans = f"windows of {first.length:.2g}\u00a0s" if tests.alone else "windows, on the time axis of the rig"
    caption = (
        f"Frequency evaluation index (Guo et al. 2014) in {spans}. A window is omitted if its target moves less "
        f"than {PERCENT * STILL:g}\u00a0% of the motion in the strongest window. Positive delays are late. "
        "All windows have equal weight; in the index J1 of the test, the fastest motion has the largest weight."
    )
    return tests.titled("Delay over time", f"between {low} and {high}"), caption


def compensator(figure: Drawing, tests: Recordings) -> Words | None:
    states = [test.of.states if tests.alone else test.of.parameters for test in tests.tests]
    names = list(dict.fromkeys(name for histories in states for name in histories))
    names.sort(key=lambda name: name != "delta_alpha")
    # the tracking indicator has a separate figure
    rows = {name: _state(tests, name, states) for name in names if name != "tracking_indicator"}
    rows = {name: row for name, row in rows.items() if row.looks}
    count = sum(len(row.looks) for row in rows.values())
    while not tests.alone and len(rows) > 1 and sum(len(row.looks) for row in rows.values()) > MANY:
        rows.popitem()
    if not rows:
        return None
    panels = tests.over_time(figure, [*rows.values()], 1.5 if len(rows) == 1 else 1.1)
    if not tests.alone:
        left = f" Only the first {len(panels)} of {count} panels are shown." if count > len(panels) else ""
        return "Compensators", f"Recorded parameters of the compensators.{left}"
    unlimited = " The parameters have no limits." if tests.of.state_limits else ""
    bounded = np.isfinite([value for row in rows.values() for value in row.limits]).any()
    limited = " Dashed: limits of the parameters." if bounded else unlimited
    if "delta_alpha" not in states[0]:
        caption = f"Recorded states of the compensator {type(tests.run.scenario.compensator).type_name}.{limited}"
        return "Compensator: internal quantities", caption
    histories = [values[np.isfinite(values)] for values in states[0]["delta_alpha"].values()]
    ends = ", ".join(rounded(float(values[-1])) for values in histories if len(values))
    return f"Compensator: Δα ends at {ends} samples", (
        "Δα is added to the estimated delay constant: α = αₑₛ + Δα (Chen & Ricles 2010, Eqs. 6–7). "
        f"The compensated delay is (α − 1) samples.{limited}"
    )


def _state(tests: Recordings, state: str, states: Sequence[Mapping[str, Mapping[str, Array]]]) -> Row:
    units = {name: unit for test in tests.tests for name, unit in test.of.state_units.items()}
    stage, dot, name = state.rpartition(".")
    stem, number = _NUMBERED.fullmatch(name).groups()  # type: ignore[union-attr]  # matches everything
    unit, factor = SHOWN_UNITS.get(units.get(state, ""), (units.get(state, ""), 1.0))
    histories = [
        {axis: factor * values[test.rows] for axis, values in by_name.get(state, {}).items()}
        for test, by_name in zip(tests.tests, states, strict=True)
    ]
    finite = [{axis: values for axis, values in row.items() if np.isfinite(values).any()} for row in histories]
    looks = {axis: tests.axes.get(axis, BLACK) for axis in dict.fromkeys(axis for row in finite for axis in row)}
    shown = [[row.get(axis, np.zeros(0)) for axis in looks] for row in finite]
    limits = [factor * end for end in tests.of.state_limits.get(state, ())]
    title = stage + dot + SYMBOLS.get(stem, stem) + number
    return Row(title, unit, looks, tests.samples, shown, None, limits)


def response(figure: Drawing, tests: Recordings) -> Words | None:
    run, ground = tests.run, ground_acceleration(tests.of) if tests.alone else np.zeros(0)
    common = [name for name in run.dof_names if all(name in test.run.dof_names for test in tests.tests)]
    if not common or (tests.alone and len(ground) < 2) or not np.isfinite(run.dof_displacement).any():
        return None
    drawn = styled(common if tests.alone else common[:FEW])
    moved, shaken = [], []
    for test in tests.tests:
        rows = [test.run.dof_names.index(name) for name in drawn]
        nothing = np.zeros((0, test.moved.shape[1]))
        moved.append(MM * test.moved.T[rows])
        shaken.append(test.of.or_left_out("acceleration", test.acceleration, nothing).T[rows])
    panels = [Row("displ.", "mm", drawn, tests.steps, moved)]
    if any(np.isfinite(values).any() for values in shaken):
        panels.append(Row("accel.", "m/s²", drawn, tests.steps, shaken))
    shakes = np.isfinite(ground).any()  # a test recorded elsewhere may lack the ground motion
    if shakes:
        panels.insert(0, Row("ground", "m/s²", {"": BLACK}, tests.steps, [[ground]]))
    tests.over_time(figure, panels, 1.1)
    left = f" Only {FEW} of {len(common)} degrees of freedom are shown." if len(common) > len(drawn) else ""
    most = quantity(largest(run.dof_displacement[tests.of.first_step :]), MM, "mm", 3)
    if not tests.alone:
        return "Response", f"Displacement relative to the ground, and absolute acceleration.{left}"
    if not shakes:
        return f"Response: the structure moved by up to {most}", "Displacement relative to the ground."
    peak = quantity(largest(ground), 1.0, "m/s²", 3)
    title = f"Response: a ground acceleration of {peak} moved the structure by up to {most}"
    return title, "From the top: ground acceleration, displacement relative to the ground, absolute acceleration."


def equilibrium(figure: Drawing, tests: Recordings) -> Words | None:
    """Draw the equilibrium residual in % of the largest force. Raises ConfigError if a term was not recorded."""
    if tests.of.scenario.structure is None:
        return None
    time, force, scale = residual(tests.of)
    if len(time) < 2 or not scale:
        return None
    share = PERCENT * force / scale
    looks = styled(tests.run.dof_names)
    tests.over_time(figure, [Row("residual", "%", looks, [Base("steps", time)], [share.T])])
    most = largest(share)
    remainder = f"residual of up to {quantity(most, 1.0, '%')}"
    if most < ROUNDING:
        remainder = "the residual is only rounding error"
    return f"Equilibrium: {remainder}", (
        "Sum of inertia, damping and restoring forces (computed and measured) minus external force, at the "
        "steps of the integrator, in % of the largest of these forces. Only rounding errors remain if the "
        "integrator satisfies the equation of motion at its steps. The residual is larger if the integrator "
        "satisfies the equation within the steps, or if measured forces are extrapolated."
    )


def loads(figure: Drawing, tests: Recordings) -> Words | None:
    histories, base = tests.run.loads, tests.samples[0]
    if histories is None:
        return None
    rows = []
    for index, name in enumerate(histories.names):
        both = [KN * histories.target[:, index], KN * histories.force[:, index]]
        looks, heads = {"target": TARGET, "measured": BLACK}, (f"{name} target force (kN)", f"{name} force (kN)")
        rows.append(Row(f"{name} force", "kN", looks, [base], [both], None, heads=heads))
        moved = [MM * histories.displacement[:, index]]
        rows.append(Row(f"{name} displacement", "mm", {"measured": BLACK}, [base], [moved], None))
    tests.over_time(figure, rows)
    error = np.abs(histories.error)
    error = error[np.isfinite(error)]
    kept = f"within {quantity(float(error.max()), KN, 'kN')} of the target" if len(error) else "held"
    return f"Loads: {kept}", "Force and displacement, with the target force while the axis was force-controlled."


def timing(figure: Drawing, tests: Recordings) -> Words | None:
    run = tests.run
    named = clocks(run.information.get("host", ""))
    recorded = [(key, title, *bars(run.timing.get(f"{key}_histogram", {}))) for key, title in named]
    recorded = [clock for clock in recorded if len(clock[-1])]
    if not recorded:
        return None
    (panels,) = figure.panels(1, len(recorded), 1.9)
    for panel, (key, title, edges, counts) in zip(panels, recorded, strict=True):
        base = Base(key, US * edges[:-1], f"{key} from (µs)")
        figure.record(base, f"{key} to (µs)", US * edges[1:])
        figure.record(base, f"samples of {key}", counts)
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
            panel.axvline(US * slow, color=PALETTE[1], ls=LINES[1], label="99.9 %")
        if not run.in_lockstep and edges[-1] > run.scenario.dt:
            panel.axvline(US * run.scenario.dt, color=INK, label="servo period")
    return "Timing histograms", "Number of occurrences of each duration, on a logarithmic axis."


def bars(histogram: Mapping[str, object]) -> tuple[Array, Array]:
    """Return the bin edges (s) and the counts of a recorded histogram. Empty bins at its ends are omitted."""
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
    """Return the largest displacement (m) and pseudo-acceleration (m/s^2) at ``periods`` (s), ``(m,)`` each.

    The displacement is relative to the ground. ``acceleration`` ``(n,)`` (m/s^2) of the ground has a value every
    ``step`` (s). The response is exact if the acceleration is linear between samples (Nigam & Jennings 1969).
    Maxima are taken at the samples.
    """
    moved = np.array(
        [_largest(acceleration, step, 2.0 * math.pi / period, damping) for period in periods.tolist()]
    )
    return moved, (2.0 * math.pi / periods) ** 2 * moved


def _largest(acceleration: Array, step: float, omega: float, damping: float) -> float:
    # time is scaled by the oscillator's frequency, so that both states have similar magnitudes
    system, inputs = np.array([[0.0, 1.0], [-1.0, -2.0 * damping]]), np.array([[0.0], [-1.0]])
    phi, before, now = transition(system, inputs, omega * step)
    # displacement only: x_k - trace x_{k-1} + det x_{k-2} = excitation by the ground (Cayley & Hamilton)
    trace, n = float(np.trace(phi)), len(acceleration)
    rest = phi - trace * np.eye(2)
    added = np.convolve(acceleration, np.hstack([now, before + rest @ now, rest @ before])[0])[:n]
    bands = np.repeat([[1.0], [-trace], [float(np.linalg.det(phi))]], n, axis=1)
    moved = dtbsv(2, np.asfortranarray(bands), added, lower=1, diag=1)
    return float(np.abs(moved).max(initial=0.0)) / omega**2


def spectrum(figure: Drawing, tests: Recordings) -> Words | None:
    ground = ground_acceleration(tests.of)[tests.of.first_step :]
    if len(ground) < 2 or not np.isfinite(ground).all() or not ground.any():
        return None
    step, periods = tests.run.scenario.step, _periods(tests.of)
    base = Base("periods", np.geomspace(max(SHORTEST, 4.0 * step), LONGEST, PERIODS), "period (s)")
    moved, strength = response_spectrum(ground, step, base.values)
    curves = (("pseudo-acceleration (m/s²)", strength), ("displacement (mm)", MM * moved))
    for panel, (title, values) in zip(figure.panels(1, 2, 1.9)[0], curves, strict=True):
        figure.curve(panel, base, title, values, **BLACK)
        for period in periods.tolist():
            panel.axvline(period, color=FAINT, ls=DASHES, lw=0.8, zorder=1.5)
        panel.set(xscale="log", xlabel=base.head, ylabel=title, ylim=(0.0, 1.05 * float(values.max())))
        panel.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
        panel.minorticks_off()
    title = f"Excitation: response spectrum, {PERCENT * DAMPING:g}\u00a0% damping"
    if len(periods):
        at = float(response_spectrum(ground, step, periods[:1])[1][0])
        title = f"Excitation: {quantity(at, 1.0, 'm/s²', 3)} at the first period, {periods[0]:.3g}\u00a0s"
    caption = f"Largest response of oscillators with {PERCENT * DAMPING:g}\u00a0% damping to the ground motion."
    return title, caption + (" Dashed: first periods of the elastic structure." if len(periods) else "")


def _periods(evaluation: Evaluation) -> Array:
    structure = evaluation.structure
    if structure is None or len(structure.influence) > LARGEST:
        return np.zeros(0)
    try:
        frequencies = partition(evaluation.assembly, {}).frequencies[:MARKED]
    except ConfigError:  # the structure is too large
        return np.zeros(0)
    periods = 1.0 / frequencies[frequencies > 0.0]
    return np.asarray(periods[(periods > SHORTEST) & (periods < LONGEST)])


AT_PEAK, AT_ZERO = 0.1, 0.04
"""Half widths of the magnified parts at the peak and at the zero crossing, in periods of the target."""
LEAST = 12
"""Smallest half width of a magnified part, samples."""
COMMAND: Look = {"color": INK, "ls": DASHES, "label": "command"}


def places(evaluation: Evaluation, axis: int) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Return the first and last sample of two intervals to magnify: at the peak and the fastest zero crossing.

    Sample 0 is the first evaluated sample. The result is None if the target has fewer than two zero crossings.
    """
    target = evaluation.run.target[evaluation.counted, axis]
    crossings = np.flatnonzero(np.diff(np.signbit(target)))
    if len(crossings) < 2:
        return None
    peak = int(np.argmax(np.abs(target)))
    steepest = int(crossings[np.argmax(np.abs(np.diff(target)[crossings]))])
    period, last = 2.0 * float(np.median(np.diff(crossings))), len(target) - 1
    wide, narrow = (max(LEAST, round(share * period)) for share in (AT_PEAK, AT_ZERO))
    around = (max(0, peak - wide), min(last, peak + wide))
    return around, (max(0, steepest - narrow), min(last, steepest + narrow))


def zooms(figure: Drawing, tests: Recordings) -> Words | None:
    run, samples, captions = tests.run, tests.of.counted, []
    spots = {axis: zoom for axis in range(len(run.axes)) if (zoom := places(tests.of, axis)) is not None}
    if not spots:
        return None
    panels = figure.panels(len(spots), 2, 1.2 if len(run.axes) > 1 else 2.0)
    for pair, (axis, zoom) in zip(panels, spots.items(), strict=True):
        suffix = suffix_of(run.axes, axis)
        for panel, (first, last), where in zip(pair, zoom, ("peak", "zero crossing"), strict=True):
            cut = samples[first : last + 1]
            title = f"{suffix} (mm)".strip() if suffix else "displacement (mm)"
            tests.time(panel, title if panel is pair[0] else "")
            panel.set(xlim=(float(run.time[cut[0]]), float(run.time[cut[-1]])), title=where)
            followed(figure, tests, panel, axis, slice(cut[0], cut[-1] + 1))
            error = np.abs(run.target[cut, axis] - run.displacement[cut, axis])
            off = quantity(float(error.max()), MM, "mm")
            captions.append(f"{suffix} within {off} at the {where}".strip())
    caption = "A delay is visible at the zero crossing, an amplitude error at the peak. Dots: single samples."
    return f"Tracking in detail: {', '.join(captions[:2])}", caption


def followed(
    figure: Drawing, tests: Recordings, panel: Axes, axis: int, rows: slice | None = None, command: bool = True
) -> None:
    first, base, suffix = tests.first, tests.samples[0], suffix_of(tests.axes, axis)
    head, target = f"target{suffix} (mm)", MM * first.target[:, axis]
    look = TARGET if tests.alone else TARGET | {"label": f"target of {first.name}"}
    figure.curve(panel, base, tests.head(first, head), target, rows=rows, **look)
    name = "measured" if tests.alone else "displacement"
    moved = [MM * test.displacement.T for test in tests.tests]
    row = Row(name, "mm", tests.axes, tests.samples, moved)
    tests.curves(figure, panel, row, axis, rows, f"measured{suffix}")
    if command:
        sent = MM * tests.run.command[first.rows, axis]
        figure.curve(panel, base, f"command{suffix} (mm)", sent, rows=rows, **COMMAND)


QUANTITIES = (("displacement", "mm", MM), ("force", "kN", KN), ("absorbed", "J", 1.0))
PREDICTED: dict[str, Look] = {
    "predicted": {"color": "#f0dfa8"},
    "nominal": {"color": FAINT, "ls": DASHES},
    "measured": {"color": PALETTE[0]},
}


def corridor(figure: Drawing, tests: Recordings) -> Words | None:
    """Draw measured quantities and their predicted ranges. Raises ConfigError if the corridor file is missing."""
    run, file = tests.run, tests.run.scenario.monitor.corridor
    if file is None:
        return None
    predicted = load_corridor(file, run.axes, run.scenario.servo_rate, 0)
    samples = tests.of.counted[tests.of.counted <= predicted.samples]
    measured, watch = _measured(tests, predicted, samples)
    base, rows = Base("samples", run.time[samples]), []
    for axis, axis_name in enumerate(run.axes):
        for row, (name, unit, factor) in enumerate(QUANTITIES):
            lower, nominal, upper = (
                factor * values[row, samples, axis]
                for values in (predicted.lower, predicted.nominal, predicted.upper)
            )
            curves = [np.array([lower, upper]), nominal, factor * measured[row, :, axis]]
            column = name + suffix_of(run.axes, axis)
            heads = [label(column + part, unit) for part in (", predicted, {}", ", nominal", "")]
            rows.append(Row(f"{axis_name} {name}", unit, PREDICTED, [base], [curves], None, heads=heads))
    tests.over_time(figure, rows, 1.1)
    caption = f"Predicted before the test: {predicted.source}."
    if watch.left is None:
        return "Corridor: never exceeded", caption
    sample, reason = watch.left
    return f"Corridor: exceeded at {run.time[sample]:.4g}\u00a0s", f"{reason}. {caption}"


def _measured(tests: Recordings, corridor: Corridor, samples: Indices) -> tuple[Array, CorridorWatch]:
    run, first = tests.run, tests.of.first_sample
    watch = CorridorWatch(corridor, math.ceil(run.scenario.monitor.corridor_persistence / run.scenario.dt))
    base = max(0, first - 1)
    rows = np.concatenate(([base], samples)) if len(samples) else samples
    if first:
        watch.start(run.displacement[base].tolist(), run.force[base].tolist())
    for sample in samples.tolist():
        watch.step(sample, run.displacement[sample].tolist(), run.force[sample].tolist())
    return corridor_quantities(run.displacement[rows], run.force[rows]), watch


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
        caption += f" The numerical substructure (without its viscous damping) carried forces of up to {part}."
    (panels,) = figure.panels(1, len(loops), 2.5)
    for panel, (kind, looks, base, moved, forces) in zip(panels, loops, strict=True):
        for column, (name, look) in enumerate(looks.items()):
            suffix = suffix_of(looks, column)
            over = f"{kind} displacement{suffix} (mm)", MM * moved[:, column]
            entry = look | ({"label": name} if suffix else {})
            figure.curve(panel, base, f"{kind} force{suffix} (kN)", KN * forces[:, column], over, **entry)
        substructure = "experimental" if kind == "measured" else "numerical"
        panel.set(title=f"{substructure} substructure ({kind})", xlabel="displacement (mm)")
        panel.set_ylabel("restoring force (kN)" if panel is panels[0] else "")
    return f"Hysteresis: the specimen carried up to {quantity(largest(run.force), KN, 'kN')}", caption


def force(figure: Drawing, tests: Recordings) -> Words:
    panels = figure.panels(len(tests.axes), 2, 1.6, width_ratios=(7, 5), sharex="col")
    values = [KN * test.force.T for test in tests.tests]
    row = Row("force", "kN", tests.axes, tests.samples, values)
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

    A second panel shows the energy balance of a single test, or the known input energies of several tests.
    """
    running = [test.of.running for test in tests.tests]
    relative = all(np.isfinite(history.energy_error_percent).any() for history in running)
    name, unit, errors = "HSEM, running", "%", [history.energy_error_percent for history in running]
    if not relative:
        unit, factor = _joules(largest(np.concatenate([history.energy_error for history in running])))
        name, errors = "energy error", [factor * history.energy_error for history in running]
    rows = [Row(name, unit, {"": ERROR}, tests.counted, [[values] for values in errors])]
    if not tests.alone:
        if relative:
            inputs = [[1e-3 * test.of.running.input_energy[test.first_step :]] for test in tests.tests]
            rows.append(Row("input energy", "kJ", {"": INPUT}, tests.steps, inputs, None))
        tests.over_time(figure, rows, 1.6)
        percent = "Energy added by the tracking error (HSEM, %), and input energy."
        return "Energy", percent if relative else "Energy added by the tracking error."
    parts = energies(tests.of)
    unit, factor = _joules(largest(np.array([*parts.values()])))
    looks = {name: look for name, look in ({"input": INPUT} | styled(PARTS)).items() if name in parts}
    values, heads = [factor * parts[name] for name in looks], [f"{name} ({unit})" for name in looks]
    balance = Row("energy", unit, looks, tests.steps, [values], None, heads=heads)
    panels = tests.over_time(figure, [*rows, balance], 1.6)
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
        return "Top: work of the force over measured minus target displacement. Below: work done on the specimen."
    reference = f"|input energy| + strain energy at yield ({_energy(elastic, 3)})" if elastic else "|input energy|"
    return (
        f"Top: running hybrid simulation energy monitor (HSEM), energy error / ({reference}), as during the test. "
        "A positive value indicates lag, which adds energy. The table shows the last energy error / input energy. "
        "Below: distribution of the input energy."
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
        "Measured versus target: a perfect actuator gives a line at 45°. A lag opens the line into an ellipse; "
        "too small an amplitude tilts the line. Target − measured: deviation from the line at 45°, magnified."
    )


def compared(runs: Sequence[tuple[str, Run]]) -> Drawing:
    figure = Drawing()
    aligned = [test for name, run in runs if (test := Aligned(name, Evaluation(run))).drawable]
    if not aligned:
        figure.panels(1)[0, 0].set(xlabel="time (s)", ylabel="displacement (mm)")
        return figure
    tests, first = Recordings(aligned), aligned[0]
    true = [test.run.true_displacement[test.rows] for test in aligned]
    pairs = zip(true, aligned, strict=True)
    moved = [MM * (exact if np.isfinite(exact).all() else test.displacement).T for exact, test in pairs]
    errors = [MM * test.target.T - values for test, values in zip(aligned, moved, strict=True)]
    rows = [
        Row(name, "mm", tests.axes, tests.samples, values, None)
        for name, values in (("displacement", moved), ("target − true", errors))
    ]
    states = [test.of.parameters for test in aligned]
    names = dict.fromkeys(name for row in states for name in row)
    rows += [row for name in names if (row := _state(tests, name, states)).looks]
    panels = figure.panels(len(rows), height=min(1.5, 8.5 / len(rows)), sharex=True)[:, 0]
    # in a hybrid test the response, and with it the target, depends on the compensator
    same = all(np.array_equal(test.target, first.target) for test in aligned)
    look = TARGET | {"label": "target" if same else f"target of {first.name}"}
    panels[0].plot(first.time, MM * first.target, **look)
    for panel, row in zip(panels, rows, strict=True):
        tests.time(panel, label(row.name, row.unit))
        for (name, look), base, histories in zip(tests.looks.items(), row.bases, row.shown, strict=True):
            for axis, history in enumerate(histories):
                line = {"ls": LINES[axis % len(LINES)]} if axis else {}
                panel.plot(base.values[: len(history)], history, label=name, **(look | line))
    figure.finish()
    return figure


def copies(figure: Drawing, tests: Recordings) -> Words | None:
    run = tests.run
    if run.scenario.updating is None or not len(run.updating):
        return None
    copy = Copies(run.scenario).learns
    m, used = len(copy.names), run.scenario.updating.mode == USED
    base, innovation = Base("updating", run.updating_time), run.updating[:, 3 * m + 2]
    shares = run.updating[:, : 3 * m].reshape(-1, 3, m) / copy.initial
    released = "copies have" if used else "copies would have"
    rows = _parameters(base, copy.names, shares, (copy.lower, copy.upper), released)
    tests.over_time(figure, [*rows, _innovation(base, innovation)], 1.1)
    strange = bool((innovation > UNEXPLAINED).any())
    verdict = "the model does not explain the specimen" if strange else "learnt"
    use = "The copies follow the estimate." if used else "The test did not use the estimate (mode shadow)."
    return f"Copies of {run.scenario.updating.axis}: {verdict}", (
        f"Parameters of {copy.model} divided by their initial values, with bounds. {use} The mean square of the "
        f"innovation is 1 if the model is right; above {UNEXPLAINED:g} the copies return to their initial values."
    )


def _parameters(
    base: Base, names: Iterable[str], shares: Array, bounds: tuple[Array, Array], released: str
) -> list[Row]:
    """Return a row of the figure for each of ``m`` parameters. ``released`` is the label of the released value.

    ``shares`` ``(n, 3, m)`` holds mean, deviation and released value, relative to the initial values.
    """
    looks: dict[str, Look] = {
        "one standard deviation": {"color": BAND},
        "estimate": {"color": PALETTE[0]},
        released: {"color": PALETTE[1], "ls": DASHES},
    }
    rows = []
    for name, (mean, wide, values), *limits in zip(names, shares.transpose(2, 1, 0), *bounds, strict=True):
        curves = [np.array([mean - wide, mean + wide]), mean, values]
        parts = (", one standard deviation, {}", "", f", {released}")
        heads = [f"{name}{part} (of the initial value)" for part in parts]
        rows.append(Row(name.replace("_", " "), "", looks, [base], [curves], None, limits, heads=heads))
    return rows


def _innovation(base: Base, values: Array) -> Row:
    return Row("mean square of innovation", "", {"": {"color": INK}}, [base], [[values]], None, [UNEXPLAINED])


def copies_in_shadow(followed: Followed, run: Run) -> Drawing:
    figure, base = Drawing(), Base("updating", followed.time)
    heading = f"copy of {followed.axis} in shadow, model {followed.copy.model}, law {followed.law}"
    figure.heading = f"{run.scenario.name}: {heading}"
    shares = np.stack((followed.estimate, followed.deviation, followed.released), axis=1) / followed.copy.initial
    names = [
        f"{name}{'' if identified else ', not identified'}"
        for name, identified in zip(followed.copy.names, followed.identified, strict=True)
    ]
    bounds = followed.copy.lower, followed.copy.upper
    rows = _parameters(base, names, shares, bounds, "copies would have")
    looks: dict[str, Look] = {
        "measured": {"color": FAINT, "lw": 1.8},
        "expected": {"color": INK},
        "not updated": {"color": LIMIT, "ls": "", "marker": "|", "ms": 4.0},
    }
    forces = [KN * followed.force, KN * followed.expected, np.where(followed.use == LEARNT, np.nan, 0.0)]
    rows += [Row("force", "kN", looks, [base], [forces], None), _innovation(base, followed.mean_square)]
    Recordings.one(Evaluation(run)).over_time(figure, rows, 1.3)
    figure.finish()
    return figure
