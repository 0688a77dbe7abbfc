"""Figure of the axes that are controlled by force: the load, and where its actuator went for it."""

from __future__ import annotations

import numpy as np

from rths_nodes.analysis.figures.sheet import Drawing, View, plot, time_sheet
from rths_nodes.analysis.figures.style import BAND, BAND_WIDTH, INK, Entry
from rths_nodes.analysis.units import KN, MM, quantity


def loads(view: View) -> Drawing | None:
    """Force and displacement of each; None without one."""
    found, time = view.run.loads, view.run.time
    if found is None:
        return None
    entries: list[Entry] = [("target", BAND, "-"), ("measured", INK, "-")]
    figure, panels = time_sheet(view, [1.35, 1.0] * len(found.names), entries)
    for index, name in enumerate(found.names):
        of_force, of_place = panels[2 * index : 2 * index + 2]
        plot(of_force, time, found.target[:, index] * KN, color=BAND, lw=BAND_WIDTH)
        plot(of_force, time, found.force[:, index] * KN, color=INK, lw=0.8)
        plot(of_place, time, found.displacement[:, index] * MM, color=INK, lw=0.8)
        of_force.set_ylabel(f"{name}\nforce (kN)")
        of_place.set_ylabel("displacement (mm)")
    error = np.abs(found.error)
    known = error[np.isfinite(error)]
    caption = "Above the force, with its target where the axis was controlled by force; below the displacement."
    if not len(known):
        return "Loads: held, never controlled by force", caption, figure
    return f"Loads: kept within {quantity(float(known.max()), KN, 'kN')}", caption, figure
