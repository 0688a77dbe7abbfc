"""Figure of the axes that are controlled by force: the load, and where its actuator went for it."""

from __future__ import annotations

import numpy as np

from rths_nodes.analysis.figures.plan import DISPLACEMENT, Curve, Look, Plan, Quantity
from rths_nodes.analysis.figures.sheet import View
from rths_nodes.analysis.figures.style import BAND, BAND_WIDTH, INK, Entry
from rths_nodes.analysis.units import KN, MM, quantity


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
