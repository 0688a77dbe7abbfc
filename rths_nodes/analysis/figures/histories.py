"""Figures over time: displacement, control error, tracking indicator, compensator, response."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

import numpy as np
from matplotlib.figure import Figure

from rths_nodes.analysis import energy
from rths_nodes.analysis.figures import thinning
from rths_nodes.analysis.figures.sheet import (
    COLUMNS,
    Drawing,
    View,
    at_zero,
    over_time,
    plot,
    plots,
    sheet,
    time_sheet,
)
from rths_nodes.analysis.figures.style import BAND, BAND_WIDTH, DASHES, FAINT, INK, LIMIT, Entry, styled
from rths_nodes.analysis.figures.thinning import largest
from rths_nodes.analysis.histories import STILL, windowed_evaluation
from rths_nodes.analysis.units import MM, MM2, MS, PERCENT, quantity, rounded
from rths_nodes.core.samples import Array

ZOOM = 2.0
"""Seconds of the magnified part of the displacements."""
SYMBOLS = {"alpha": "α", "delta_alpha": "Δα", "theta": "θ"}
"""Names of states as they are written in papers."""
SHOWN_UNITS = {"s": ("ms", MS), "m": ("mm", MM), "m^2": ("mm²", MM2), "1/m^2": ("1/mm²", 1.0 / MM2)}
"""Units of states as they are drawn, with the factor; others are drawn as they were recorded."""
_NUMBERED = re.compile(r"(.*?)_?(\d*)", re.DOTALL)


def displacements(view: View) -> Drawing:
    """Fig. 7(a): target and measured displacement, and the strongest seconds of them."""
    run, running = view.run, view.running
    zoom = thinning.strongest(running.time, run.target[running.samples], ZOOM)
    inside = (run.time >= zoom[0]) & (run.time <= zoom[1])
    named = len(view.axes) > 1
    entries: list[Entry] = [("target", BAND, "-")]
    entries += [(f"measured {name}" if named else "measured", c, line) for name, c, line in view.axes]
    entries.append(("command", INK, DASHES))
    heights = [1.35] * len(view.axes) if named else [2.3]
    figure, panels = sheet(heights, entries, widths=(2.1, 1.0), shades=view.spans, between=0.13)
    for axis, (name, colour, line) in enumerate(view.axes):
        target, command, measured = (v[:, axis] * MM for v in (run.target, run.command, run.displacement))
        whole, close = panels[axis]
        plot(close, run.time[inside], command[inside], COLUMNS // 3, color=INK, lw=0.7, ls=DASHES)
        for panel, shown in ((whole, slice(None)), (close, inside)):
            over_time(view, panel, last=axis == len(view.axes) - 1)
            time, columns = run.time[shown], COLUMNS * 2 // 3
            plot(panel, time, target[shown], columns, color=BAND, lw=BAND_WIDTH)
            plot(panel, time, measured[shown], columns, color=colour, ls=line, lw=0.9)
        whole.axvspan(*zoom, facecolor="none", edgecolor=FAINT, lw=0.8)
        whole.set_ylabel(f"{name} (mm)" if named else "displacement (mm)")
        close.set_xlim(*zoom)
    worst = quantity(largest(running.control_error), MM, "mm")
    caption = (
        f"Left: the whole test. Right: the {zoom[1] - zoom[0]:.2g}\u00a0s in which the target moved most "
        "(framed on the left), with the command that the compensator made of it."
    )
    return f"Displacement: measured follows target within {worst}", caption, figure


def control_error(view: View) -> Drawing:
    """Fig. 7(b)."""
    time, error = view.running.time, view.running.control_error
    row, axis = divmod(int(np.argmax(np.abs(error))), len(view.axes))
    where = f" ({view.axes[axis][0]})" if len(view.axes) > 1 else ""
    worst = quantity(abs(float(error[row, axis])), MM, "mm")
    title = f"Control error: largest {worst} at {time[row]:.3g}\u00a0s{where}"
    return title, "Target minus measured displacement.", _running(view, error * MM, "control error (mm)", 0.9)


def tracking_indicator(view: View) -> Drawing:
    """Fig. 7(c)."""
    indicator = view.running.tracking_indicator
    most = quantity(largest(indicator), MM2, "mm²")
    ends = ", ".join(rounded(value, MM2) for value in indicator[-1].tolist())
    title = f"Tracking indicator: magnitude up to {most}, {ends}\u00a0mm² at the end"
    caption = "Rises while the actuator lags its target, falls while it leads, level while they agree."
    return title, caption, _running(view, indicator * MM2, "tracking indicator (mm²)", 1.1)


def delay(view: View) -> Drawing | None:
    """Delay and amplitude ratio over time, by the frequency evaluation index of short windows."""
    found = windowed_evaluation(view.of)
    if found is None:
        return None
    figure, panels = time_sheet(view, [1.15, 1.15], view.legend)
    for panel, values, label, level in (
        (panels[0], found.delay * MS, "delay (ms)", 0.0),
        (panels[1], found.amplitude, "amplitude ratio", 1.0),
    ):
        for column, (_, colour, line) in zip(values.T, view.axes, strict=True):
            panel.plot(found.time, column, color=colour, ls=line, lw=1.1, marker=".", ms=3.0)
        panel.axhline(level, color=FAINT, lw=0.6, zorder=1.5)
        panel.set_ylabel(label)
    low, high = (quantity(float(pick(found.delay)), MS, "ms", 2) for pick in (np.nanmin, np.nanmax))
    caption = (
        f"Frequency evaluation index (Guo et al. 2014) of windows of {found.length:.2g}\u00a0s, at their "
        f"middle, where the target moves at least {PERCENT * STILL:g}\u00a0% as much as in the strongest of them. "
        "Above zero: late."
    )
    return f"Delay over time: {low} to {high}", caption, figure


def _running(view: View, values: Array, label: str, lw: float) -> Figure:
    figure, (panel,) = time_sheet(view, [1.7], view.legend)
    plots(panel, view.running.time, values, view.axes, lw)
    at_zero(panel)
    panel.set_ylabel(label)
    return figure


def compensator(view: View) -> Drawing | None:
    """Fig. 7(d): what the compensator has learned."""
    found = {
        name: rows
        for name, rows in view.of.states.items()
        if name != "tracking_indicator"  # has its own figure
        and any(np.isfinite(values).any() for values in rows.values())
    }
    if not found:
        return None
    order = sorted(found, key=lambda name: name != "delta_alpha")
    height = 1.7 if len(found) == 1 else 1.3 if len(found) <= 3 else 0.95
    figure, panels = time_sheet(view, [height] * len(found), view.legend)
    styles = {name: (colour, line) for name, colour, line in view.axes}
    units = view.of.state_units
    for panel, state in zip(panels, order, strict=True):
        label, factor = labelled(state, units)
        for name, values in found[state].items():
            colour, line = styles.get(name, (INK, "-"))
            plot(panel, view.run.time, values * factor, color=colour, ls=line, lw=1.1)
        panel.set_ylabel(label)
        for end in view.of.state_limits.get(state, ()):
            if math.isfinite(end):
                panel.axhline(end * factor, color=LIMIT, ls=DASHES, lw=0.9, zorder=1.5)
    adapted = found.get("delta_alpha")
    if adapted is None:
        kind = type(view.run.scenario.compensator).type_name
        return "Compensator: its inner quantities", f"Recorded states of {kind}.{_limited(view, found)}", figure
    ends = ", ".join(rounded(float(v[np.isfinite(v)][-1])) for v in adapted.values() if np.isfinite(v).any())
    caption = (
        "Δα is added to the estimated delay constant: α = αₑₛ + Δα "
        f"(Chen & Ricles 2010, Eqs. 6–7). The delay that is compensated is (α − 1) samples.{_limited(view, found)}"
    )
    return f"Compensator: Δα ends at {ends} samples", caption, figure


def _limited(view: View, states: Iterable[str]) -> str:
    """What a caption says of the limits of the parameters."""
    limits = view.of.state_limits
    drawn = any(math.isfinite(end) for state in states for end in limits.get(state, ()))
    return " Dashed: limits of the parameters." if drawn else " The parameters have no limits." if limits else ""


def labelled(state: str, units: Mapping[str, str]) -> tuple[str, float]:
    """What a state of a compensator is called in a figure, with its unit, and the factor to that unit."""
    stage, dot, name = state.rpartition(".")
    stem, number = _NUMBERED.fullmatch(name).groups()  # type: ignore[union-attr]  # matches everything
    symbol = stage + dot + SYMBOLS.get(stem, stem) + number
    unit, factor = SHOWN_UNITS.get(units.get(state, ""), (units.get(state, ""), 1.0))
    return symbol if unit in ("", "1") else f"{symbol} ({unit})", factor


def response(view: View) -> Drawing | None:
    """Ground motion and response of the degrees of freedom."""
    run = view.run
    ground = energy.ground_acceleration(view.of)
    if len(ground) < 2:
        return None
    dofs = styled(run.dof_names)
    figure, panels = time_sheet(view, [0.85, 1.2, 1.2], dofs if len(dofs) > 1 else [])
    total = energy.absolute_acceleration(view.of)
    plot(panels[0], run.step_time[: len(ground)], ground, color=INK, lw=0.7)
    plots(panels[1], run.step_time, run.dof_displacement * MM, dofs, 1.0)
    plots(panels[2], run.step_time[: len(total)], total, dofs, 0.9)
    for panel, label in zip(panels, ("ground (m/s²)", "displ. (mm)", "accel. (m/s²)"), strict=True):
        at_zero(panel)
        panel.set_ylabel(label)
    tested = run.dof_displacement[view.of.first_step :]
    peak, moved = quantity(largest(ground), 1.0, "m/s²", 3), quantity(largest(tested), MM, "mm", 3)
    title = f"Response: {peak} of ground acceleration moved the structure by {moved}"
    caption = "From the top: acceleration of the ground, displacement relative to it, absolute acceleration."
    return title, caption, figure
