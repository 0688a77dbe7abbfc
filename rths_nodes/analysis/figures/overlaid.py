"""Figures of several tests over one another: each test has its colour and its dashes, each axis its panels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from rths_nodes.analysis.figures import thinning
from rths_nodes.analysis.figures.histories import ZOOM, labelled
from rths_nodes.analysis.figures.plan import (
    COLUMNS,
    DISPLACEMENT,
    FORCE,
    TIME,
    ZERO_LINE,
    Base,
    Curve,
    Look,
    Panel,
    Plan,
    Quantity,
)
from rths_nodes.analysis.figures.style import BAND, BAND_WIDTH, FAINT, Entry, styled
from rths_nodes.analysis.overlay import Aligned, on_times
from rths_nodes.analysis.units import KN, MM, MM2, MS
from rths_nodes.core.samples import Array

FEW = 4
"""Degrees of freedom whose response is drawn."""
MANY = 8
"""Quantities of the compensators that are drawn."""


class Overlay:
    """Tests that are drawn over one another, the first of which the others are compared with."""

    def __init__(self, tests: Sequence[Aligned]) -> None:
        self.tests, self.first = tests, tests[0]
        self.axes = self.first.run.axes
        self.entries: list[Entry] = styled(test.name for test in tests)
        self.samples = [Base("samples", TIME, test.time) for test in tests]
        self.steps = [Base("steps", TIME, test.step_time) for test in tests]
        self.whole = 0.0, max(float(test.time[-1]) for test in tests)

    def label(self, quantity: Quantity, name: str, of: Sequence[str]) -> Quantity:
        """``quantity`` of one of several axes or degrees of freedom."""
        return Quantity(f"{quantity.name} {name}", quantity.unit) if len(of) > 1 else quantity

    def curves(
        self, bases: Sequence[Base], of: Quantity, values: Sequence[Array], width: float = 1.0
    ) -> list[Curve]:
        """A curve of each test, the first one in front; ``values`` ``(n,)`` of each, empty: it has none."""
        rows = zip(self.tests, self.entries, bases, values, strict=True)
        found = [
            Curve(base.first(len(each)), Quantity(f"{test.name}: {of.name}", of.unit), each, Look.of(entry, width))
            for test, entry, base, each in rows
            if len(each)
        ]
        return found[::-1]

    def panel(self, of: Quantity, curves: Sequence[Curve], **more: object) -> Panel:
        """One over the time of the longest test."""
        return Panel(TIME, of, curves, span=self.whole, over_time=True, **more)  # type: ignore[arg-type]

    def plan(self, name: str, words: tuple[str, str], panels: Sequence[Panel], height: float) -> Plan:
        """Panels over time below one another; ``words``: title and caption."""
        heights = [height if len(panels) == 1 else 0.8 * height] * len(panels)
        return Plan(name, *words, [[panel] for panel in panels], heights, self.entries)


def displacements(overlay: Overlay) -> Plan:
    """Measured displacement of all tests over the target of the first."""
    first, rows = overlay.first, []
    zoom = thinning.strongest(first.time, first.target, min(ZOOM, float(first.time[-1])))
    for axis, name in enumerate(overlay.axes):
        wanted = overlay.label(Quantity(f"{first.name}: target", "mm"), name, overlay.axes)
        target = Curve(overlay.samples[0], wanted, MM * first.target[:, axis], Look(BAND, "-", BAND_WIDTH))
        of = overlay.label(Quantity("displacement", "mm"), name, overlay.axes)
        shown = overlay.curves(overlay.samples, of, [MM * test.displacement[:, axis] for test in overlay.tests])
        label = Quantity(name, "mm") if len(overlay.axes) > 1 else DISPLACEMENT
        whole = overlay.panel(label, [target, *shown], frame=zoom, columns=COLUMNS * 2 // 3)
        close = Panel(TIME, label, [target, *shown], span=zoom, over_time=True, columns=COLUMNS // 2)
        rows.append([whole, close])
    caption = (
        f"Measured displacement of all tests, and the target of {first.name}, in the time of the structure. "
        f"Framed, and magnified: the {zoom[1] - zoom[0]:.2g}\u00a0s in which that moved most."
    )
    legend = [(f"target of {first.name}", BAND, "-"), *overlay.entries]
    heights = [2.3 if len(rows) == 1 else 1.5] * len(rows)
    return Plan("displacement", "Displacement", caption, rows, heights, legend, widths=(2.1, 1.0))


def differences(overlay: Overlay) -> Plan | None:
    """Measured displacement less that of the first test; None where there is no other one."""
    first, panels = overlay.first, []
    if len(overlay.tests) < 2:
        return None
    for axis, name in enumerate(overlay.axes):
        of = overlay.label(Quantity("difference", "mm"), name, overlay.axes)
        values = [
            MM * (on_times(first.time, test.time, test.displacement[:, axis]) - first.displacement[:, axis])
            for test in overlay.tests[1:]
        ]
        bases = [overlay.samples[0]] * len(overlay.tests)
        shown = overlay.curves(bases, of, [np.zeros(0), *values], 0.9)
        panels.append(overlay.panel(of, shown, levels=[ZERO_LINE]))
    words = f"Difference to {first.name}", f"Measured displacement less that of {first.name}."
    plan = overlay.plan("difference", words, panels, 1.7)
    return Plan(plan.name, plan.title, plan.caption, plan.rows, plan.heights, overlay.entries[1:])


def control_error(overlay: Overlay) -> Plan:
    """Target minus measured displacement of each test."""
    values = [test.of.running.control_error for test in overlay.tests]
    caption = "Target minus measured displacement, each test to its own target."
    return _by_axis(
        overlay, "control_error", ("Control error", caption), values, Quantity("control error", "mm"), MM
    )


def tracking_indicator(overlay: Overlay) -> Plan:
    """That of each test."""
    values = [test.of.running.tracking_indicator for test in overlay.tests]
    caption = "Rises while the actuator lags its target, falls while it leads, level while they agree."
    of = Quantity("tracking indicator", "mm²")
    return _by_axis(overlay, "tracking_indicator", ("Tracking indicator", caption), values, of, MM2)


def _by_axis(
    overlay: Overlay, name: str, words: tuple[str, str], values: Sequence[Array], of: Quantity, factor: float
) -> Plan:
    panels = []
    for axis, axis_name in enumerate(overlay.axes):
        label = overlay.label(of, axis_name, overlay.axes)
        shown = overlay.curves(overlay.samples, label, [factor * each[:, axis] for each in values], 0.9)
        panels.append(overlay.panel(label, shown, levels=[ZERO_LINE]))
    return overlay.plan(name, words, panels, 1.7)


def delay(overlay: Overlay) -> Plan | None:
    """Delay and amplitude ratio over time; None where all tests are too short for them."""
    found = [test.of.windowed for test in overlay.tests]
    if not any(found):
        return None
    bases = []
    for test, each in zip(overlay.tests, found, strict=True):
        zero = float(test.run.time[max(0, test.of.first_sample - 1)])
        time = np.zeros(0) if each is None else (each.time - zero) / test.of.scenario.time_ratio
        bases.append(Base("windows", TIME, time))
    panels = []
    for axis, name in enumerate(overlay.axes):
        for of, level, values in (
            (Quantity("delay", "ms"), 0.0, [None if each is None else MS * each.delay for each in found]),
            (Quantity("amplitude ratio"), 1.0, [None if each is None else each.amplitude for each in found]),
        ):
            label = overlay.label(of, name, overlay.axes)
            filled = [np.zeros(0) if each is None else each[:, axis] for each in values]
            shown = [
                Curve(each.base, each.of, each.values, each.look._replace(dots=True))
                for each in overlay.curves(bases, label, filled, 1.1)
            ]
            panels.append(overlay.panel(label, shown, levels=[(level, Look(FAINT, "-", 0.6))]))
    caption = "Frequency evaluation index (Guo et al. 2014) of windows, in the time of the rig. Above zero: late."
    return overlay.plan("delay", ("Delay over time", caption), panels, 1.4)


def force(overlay: Overlay) -> Plan:
    """Measured force over time and over displacement."""
    rows = []
    for axis, name in enumerate(overlay.axes):
        of = overlay.label(Quantity("force", "kN"), name, overlay.axes)
        shown = overlay.curves(overlay.samples, of, [KN * test.force[:, axis] for test in overlay.tests], 0.9)
        by_name = {f"{test.name}: {of.name}": MM * test.displacement[:, axis] for test in overlay.tests}
        loops = [
            Curve(
                each.base,
                each.of,
                each.values,
                each.look._replace(width=0.8),
                Quantity(each.of.name.replace(": force", ": displacement", 1), "mm"),
                by_name[each.of.name],
            )
            for each in shown
        ]
        label = Quantity(f"{name}: force", "kN") if len(overlay.axes) > 1 else FORCE
        rows.append([overlay.panel(label, shown, levels=[ZERO_LINE]), Panel(DISPLACEMENT, label, loops)])
    heights = [2.3 if len(rows) == 1 else 1.8] * len(rows)
    caption = "Measured force, over time and over the measured displacement."
    return Plan("force", "Force", caption, rows, heights, overlay.entries, widths=(1.5, 1.0))


def response(overlay: Overlay) -> Plan | None:
    """Displacement and absolute acceleration of the degrees of freedom that all tests have."""
    shared = [
        dof for dof in overlay.first.run.dof_names if all(dof in test.run.dof_names for test in overlay.tests)
    ]
    if not shared:
        return None
    total = [test.of.or_left_out("acceleration", test.acceleration, np.zeros((0, 0))) for test in overlay.tests]
    panels = []
    for dof in shared[:FEW]:
        columns = [test.run.dof_names.index(dof) for test in overlay.tests]
        moved = [MM * test.moved[:, column] for test, column in zip(overlay.tests, columns, strict=True)]
        shaken = [
            each[:, column] if len(each) else np.zeros(0) for each, column in zip(total, columns, strict=True)
        ]
        for of, values in ((Quantity("displ.", "mm"), moved), (Quantity("accel.", "m/s²"), shaken)):
            label = overlay.label(of, dof, shared)
            if any(len(each) for each in values):
                shown = overlay.curves(overlay.steps, label, values, 0.9)
                panels.append(overlay.panel(label, shown, levels=[ZERO_LINE]))
    left = f" The first {FEW} of {len(shared)} degrees of freedom." if len(shared) > FEW else ""
    caption = f"Displacement relative to the ground, and absolute acceleration, of the structure.{left}"
    return overlay.plan("response", ("Response", caption), panels, 1.5)


def energy(overlay: Overlay) -> Plan:
    """What the tracking errors have fed in, and the input energy."""
    running = [test.of.running for test in overlay.tests]
    relative = all(np.isfinite(each.energy_error_percent).any() for each in running)
    values = [each.energy_error_percent if relative else each.energy_error for each in running]
    of = Quantity("HSEM, running", "%") if relative else Quantity("energy error", "J")
    panels = [overlay.panel(of, overlay.curves(overlay.samples, of, values, 1.1), levels=[ZERO_LINE])]
    given = [each.input_energy[test.of.first_step :] for each, test in zip(running, overlay.tests, strict=True)]
    if relative:
        of = Quantity("input energy", "kJ")
        panels.append(overlay.panel(of, overlay.curves(overlay.steps, of, [1e-3 * each for each in given], 1.1)))
    caption = "Energy that the tracking error has fed in" + (
        ", in percent, and the input energy." if relative else "."
    )
    return overlay.plan("energy", ("Energy", caption), panels, 1.6)


def compensator(overlay: Overlay) -> Plan | None:
    """The parameters of the compensators, by their names; None where none has any."""
    names = list(dict.fromkeys(name for test in overlay.tests for name in test.of.parameters))
    panels = []
    for state in names:
        axes = list(dict.fromkeys(axis for test in overlay.tests for axis in test.of.parameters.get(state, ())))
        for axis in axes:
            values: list[Array] = []
            units: dict[str, str] = {}
            for test in overlay.tests:
                history = test.of.parameters.get(state, {}).get(axis)
                known = history is not None and np.isfinite(history[test.rows]).any()
                values.append(history[test.rows] if history is not None and known else np.zeros(0))
                units |= {state: test.of.state_units[state]} if state in test.of.state_units else {}
            of, factor = labelled(state, units)
            label = overlay.label(of, axis, axes)
            if any(len(each) for each in values):
                shown = overlay.curves(overlay.samples, label, [factor * each for each in values], 1.1)
                panels.append(overlay.panel(label, shown))
    if not panels:
        return None
    left = f" The first {MANY} of {len(panels)}." if len(panels) > MANY else ""
    caption = f"Parameters, of each test that has them.{left}"
    return overlay.plan("compensator", ("Compensators", caption), panels[:MANY], 1.4)


FIGURES: tuple[Callable[[Overlay], Plan | None], ...] = (
    displacements,
    differences,
    control_error,
    tracking_indicator,
    delay,
    force,
    response,
    energy,
    compensator,
)
"""Each may return None: the tests have not enough numbers for it."""


def plans(tests: Sequence[Aligned]) -> list[Plan]:
    """What the figures of these tests show; what lacks a component is noted in ``left_out`` of the first."""
    overlay = Overlay([test for test in tests if test.drawable])
    of = overlay.first.of
    found = [of.or_left_out(f"the figure of {plan.__name__}", partial(plan, overlay), None) for plan in FIGURES]
    return [plan for plan in found if plan is not None]
