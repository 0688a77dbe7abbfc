"""Figures over time: displacement, control error, tracking indicator, compensator, response."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from rths_nodes.analysis import energy
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
from rths_nodes.analysis.figures.style import BAND, DASHES, FAINT, INK, LIMIT, Entry, styled
from rths_nodes.analysis.figures.thinning import largest
from rths_nodes.analysis.figures.tracking import followed
from rths_nodes.analysis.histories import STILL
from rths_nodes.analysis.units import MM, MM2, MS, PERCENT, early_or_late, quantity, rounded
from rths_nodes.core.samples import Array

LETTER = 0.08
"""Height that a panel needs for a letter of the label beside it, inches."""
ZOOM = 2.0
"""Seconds of the magnified part of the displacements."""
SYMBOLS = {"alpha": "α", "delta_alpha": "Δα", "theta": "θ"}
"""Names of states as they are written in papers."""
SHOWN_UNITS = {"s": ("ms", MS), "m": ("mm", MM), "m^2": ("mm²", MM2), "1/m^2": ("1/mm²", 1.0 / MM2)}
"""Units of states as they are drawn, with the factor; others are drawn as they were recorded."""
_NUMBERED = re.compile(r"(.*?)_?(\d*)", re.DOTALL)


def displacements(view: View) -> Plan:
    """Fig. 7(a): target and measured displacement, and the strongest seconds of them."""
    run, running = view.run, view.running
    zoom = thinning.strongest(running.time, run.target[running.samples], ZOOM)
    named = len(view.axes) > 1
    entries: list[Entry] = [("target", BAND, "-")]
    entries += [(f"measured {name}" if named else "measured", c, line) for name, c, line in view.axes]
    entries.append(("command", INK, DASHES))
    rows = []
    for axis, (name, _, _) in enumerate(view.axes):
        label = Quantity(name, "mm") if named else DISPLACEMENT
        target, command, measured = followed(view, axis, command=True)
        whole = view.panel(label, [target, measured], frame=zoom, columns=COLUMNS * 2 // 3)
        close = Panel(TIME, label, [command, target, measured], span=zoom, over_time=True, columns=COLUMNS // 2)
        rows.append([whole, close])
    worst = quantity(largest(running.control_error), MM, "mm")
    caption = (
        f"Framed, and magnified: the {zoom[1] - zoom[0]:.2g}\u00a0s in which the target moved most, with the "
        "command that the compensator made of it."
    )
    title, heights = f"Displacement: measured follows target within {worst}", [1.35 if named else 2.3] * len(rows)
    return Plan("displacement", title, caption, rows, heights, entries, view.spans, (2.1, 1.0))


def control_error(view: View) -> Plan:
    """Fig. 7(b)."""
    time, error = view.running.time, view.running.control_error
    row, axis = divmod(int(np.argmax(np.abs(error))), len(view.axes))
    where = f" ({view.axes[axis][0]})" if len(view.axes) > 1 else ""
    worst = quantity(abs(float(error[row, axis])), MM, "mm")
    title = f"Control error: largest {worst} at {time[row]:.3g}\u00a0s{where}"
    words = title, "Target minus measured displacement."
    return _running(view, "control_error", words, error * MM, Quantity("control error", "mm"), 0.9)


def tracking_indicator(view: View) -> Plan:
    """Fig. 7(c)."""
    indicator = view.running.tracking_indicator
    most = quantity(largest(indicator), MM2, "mm²")
    ends = ", ".join(rounded(value, MM2) for value in indicator[-1].tolist())
    title = f"Tracking indicator: magnitude up to {most}, {ends}\u00a0mm² at the end"
    words = title, "Rises while the actuator lags its target, falls while it leads, level while they agree."
    of = Quantity("tracking indicator", "mm²")
    return _running(view, "tracking_indicator", words, indicator * MM2, of, 1.1)


def delay(view: View) -> Plan | None:
    """Delay and amplitude ratio over time, by the frequency evaluation index of short windows."""
    found = view.of.windowed
    if found is None:
        return None
    base = Base("windows", TIME, found.time)
    panels = []
    for values, of, level in (
        (found.delay * MS, Quantity("delay", "ms"), 0.0),
        (found.amplitude, Quantity("amplitude ratio"), 1.0),
    ):
        shown = [
            Curve(base, view.named(of, view.axes, entry[0]), column, Look.of(entry, 1.1, dots=True))
            for column, entry in zip(values.T, view.axes, strict=True)
        ]
        panels.append(view.panel(of, shown, levels=[(level, Look(FAINT, "-", 0.6))]))
    low, high = (early_or_late(float(pick(found.delay))) for pick in (np.nanmin, np.nanmax))
    caption = (
        f"Frequency evaluation index (Guo et al. 2014) of windows of {found.length:.2g}\u00a0s, at their "
        f"middle, where the target moves at least {PERCENT * STILL:g}\u00a0% as much as in the strongest of them. "
        "Above zero: late. Each window counts alike; in the index J1 of the whole test the fastest motion counts "
        "most."
    )
    return view.plan(
        "delay", (f"Delay over time: between {low} and {high}", caption), panels, [1.15, 1.15], view.legend
    )


def _running(view: View, name: str, words: tuple[str, str], values: Array, of: Quantity, width: float) -> Plan:
    panel = view.panel(of, view.each(view.counted, of, values, view.axes, width), levels=[ZERO_LINE])
    return view.plan(name, words, [panel], [1.7], view.legend)


def compensator(view: View) -> Plan | None:
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
    longest = max(len(str(labelled(state, view.of.state_units)[0])) for state in found)
    height = max(1.7 if len(found) == 1 else 1.3 if len(found) <= 3 else 0.95, LETTER * longest)
    panels = [_state(view, state, found[state]) for state in order]
    adapted = found.get("delta_alpha")
    title = "Compensator: its inner quantities"
    caption = f"Recorded states of {type(view.run.scenario.compensator).type_name}.{_limited(view, found)}"
    if adapted is not None:
        ends = ", ".join(rounded(float(v[np.isfinite(v)][-1])) for v in adapted.values() if np.isfinite(v).any())
        title = f"Compensator: Δα ends at {ends} samples"
        caption = (
            "Δα is added to the estimated delay constant: α = αₑₛ + Δα (Chen & Ricles 2010, Eqs. 6–7). "
            f"The delay that is compensated is (α − 1) samples.{_limited(view, found)}"
        )
    return view.plan("compensator", (title, caption), panels, [height] * len(panels), view.legend)


def _state(view: View, state: str, rows: Mapping[str, Array]) -> Panel:
    """One quantity of the compensator, of all axes that have it, with its limits."""
    styles = {entry[0]: entry for entry in view.axes}
    of, factor = labelled(state, view.of.state_units)
    shown = [
        Curve(
            view.samples,
            Quantity(f"{of.name} {name}".rstrip(), of.unit) if len(rows) > 1 else of,
            factor * values,
            Look.of(styles.get(name, (name, INK, "-")), 1.1),
        )
        for name, values in rows.items()
    ]
    ends = [end for end in view.of.state_limits.get(state, ()) if math.isfinite(end)]
    return view.panel(of, shown, levels=[(factor * end, Look(LIMIT, DASHES, 0.9)) for end in ends])


def _limited(view: View, states: Iterable[str]) -> str:
    """What a caption says of the limits of the parameters."""
    limits = view.of.state_limits
    drawn = any(math.isfinite(end) for state in states for end in limits.get(state, ()))
    return " Dashed: limits of the parameters." if drawn else " The parameters have no limits." if limits else ""


def labelled(state: str, units: Mapping[str, str]) -> tuple[Quantity, float]:
    """What a state of a compensator is called in a figure, with its unit, and the factor to that unit."""
    stage, dot, name = state.rpartition(".")
    stem, number = _NUMBERED.fullmatch(name).groups()  # type: ignore[union-attr]  # matches everything
    symbol = stage + dot + SYMBOLS.get(stem, stem) + number
    unit, factor = SHOWN_UNITS.get(units.get(state, ""), (units.get(state, ""), 1.0))
    return Quantity(symbol, unit), factor


def response(view: View) -> Plan | None:
    """Ground motion and response of the degrees of freedom."""
    run = view.run
    ground = energy.ground_acceleration(view.of)
    if len(ground) < 2:
        return None
    dofs = styled(run.dof_names)
    total = energy.absolute_acceleration(view.of)
    base = view.steps.first(len(ground))
    moved, shaken = Quantity("displ.", "mm"), Quantity("accel.", "m/s²")
    panels = [
        view.panel(
            Quantity("ground", "m/s²"), [Curve(base, Quantity("ground", "m/s²"), ground, Look(INK, "-", 0.7))]
        ),
        view.panel(moved, view.each(view.steps, moved, run.dof_displacement * MM, dofs, 1.0)),
        view.panel(shaken, view.each(view.steps.first(len(total)), shaken, total, dofs, 0.9)),
    ]
    panels = [replace(panel, levels=[ZERO_LINE]) for panel in panels]
    tested = run.dof_displacement[view.of.first_step :]
    peak, most = quantity(largest(ground), 1.0, "m/s²", 3), quantity(largest(tested), MM, "mm", 3)
    title = f"Response: {peak} of ground acceleration moved the structure by {most}"
    caption = "From the top: acceleration of the ground, displacement relative to it, absolute acceleration."
    legend = dofs if len(dofs) > 1 else []
    return view.plan("response", (title, caption), panels, [0.85, 1.2, 1.2], legend)
