# SPDX-License-Identifier: Apache-2.0
"""Figure of copies of the specimen: parameters over time with one standard deviation, and the innovation."""

from __future__ import annotations

from rths_nodes.analysis.figures.plan import TIME, Band, Base, Curve, Look, Plan, Quantity, Shown
from rths_nodes.analysis.figures.sheet import View
from rths_nodes.analysis.figures.style import BAND, DASHES, INK, LIMIT, PALETTE, Entry
from rths_nodes.loop.scenario.updating import USED, Copies
from rths_nodes.mechanics.updating.step import UNEXPLAINED

HEIGHT = 1.15
"""Inches of a panel."""


def learnt(view: View) -> Plan | None:
    """A panel for each parameter over its initial value, and one for the innovation; None where nothing learns."""
    run = view.run
    if run.scenario.updating is None or not len(run.updating):
        return None
    copy = Copies(run.scenario).learns
    m = len(copy.names)
    base, used = Base("updating", TIME, run.updating_time), run.scenario.updating.mode == USED
    shares = run.updating[:, : 3 * m].reshape(-1, 3, m) / copy.initial
    has = "copies have" if used else "copies would have"
    panels = []
    for place, name in enumerate(copy.names):
        mean, wide, released = shares[:, :, place].T
        of = Quantity(name, "of the initial value")
        shown: list[Shown] = [
            Band(base, Quantity(f"{name}, one standard deviation", of.unit), mean - wide, mean + wide, BAND),
            Curve(base, of, mean, Look(PALETTE[0], "-", 0.9)),
            Curve(base, Quantity(f"{name}, {has}", of.unit), released, Look(PALETTE[1], DASHES, 1.1)),
        ]
        levels = [(float(bound), Look(LIMIT, DASHES, 0.7)) for bound in (copy.lower[place], copy.upper[place])]
        panels.append(view.panel(Quantity(name.replace("_", " "), "1"), shown, levels=levels))
    of = Quantity("mean square of innovation", "1")
    curve = Curve(base, of, run.updating[:, 3 * m + 2], Look(INK, "-", 0.9))
    panels.append(view.panel(of, [curve], levels=[(UNEXPLAINED, Look(LIMIT, DASHES, 0.7))]))
    strange = bool((run.updating[:, 3 * m + 2] > UNEXPLAINED).any())
    title = f"Copies of {run.scenario.updating.axis}: {'the model does not explain it' if strange else 'learnt'}"
    caption = (
        f"Parameters of {copy.model} over their initial values, between bounds; "
        f"{'the copies follow' if used else 'in shadow: nothing of it was used'}. The mean square of the "
        f"innovation is 1 where the model is right; beyond {UNEXPLAINED:g} the copies go back towards 1."
    )
    legend: list[Entry] = [
        ("estimate", PALETTE[0], "-"),
        ("one standard deviation", BAND, "-"),
        (has, PALETTE[1], DASHES),
    ]
    return view.plan("copies", (title, caption), panels, [HEIGHT] * len(panels), legend)
