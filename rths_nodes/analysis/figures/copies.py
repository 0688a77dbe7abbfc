# SPDX-License-Identifier: Apache-2.0
"""Figure of copies of the specimen: parameters over time with one standard deviation, and the innovation."""

from __future__ import annotations

from rths_nodes.analysis.figures.sheet import Base, Sheet, label, level
from rths_nodes.analysis.figures.style import BAND, DASHES, INK, LIMIT, PALETTE, Entry
from rths_nodes.analysis.figures.view import View, Words
from rths_nodes.loop.scenario.updating import USED, Copies
from rths_nodes.mechanics.updating.step import UNEXPLAINED

HEIGHT = 1.15
"""Inches of a panel."""
ESTIMATE: Entry = ("estimate", PALETTE[0], "-")


def copies(sheet: Sheet, view: View) -> Words | None:
    """Draw a panel for each parameter over its initial value, and the innovation; None without learning."""
    run = view.run
    if run.scenario.updating is None or not len(run.updating):
        return None
    copy = Copies(run.scenario).learns
    m = len(copy.names)
    base, used = Base("updating", run.updating_time), run.scenario.updating.mode == USED
    shares = run.updating[:, : 3 * m].reshape(-1, 3, m) / copy.initial
    released: Entry = ("copies have" if used else "copies would have", PALETTE[1], DASHES)
    unit = "of the initial value"
    for place, name in enumerate(copy.names):
        (panel,) = sheet.row(HEIGHT)
        mean, wide, values = shares[:, :, place].T
        sheet.band(panel, base, f"{name}, one standard deviation", unit, (mean - wide, mean + wide), BAND)
        sheet.curve(panel, base, label(name, unit), mean, ESTIMATE, 0.9)
        sheet.curve(panel, base, label(f"{name}, {released[0]}", unit), values, released, 1.1)
        for bound in (copy.lower[place], copy.upper[place]):
            level(panel, float(bound), LIMIT, DASHES, 0.7)
        view.time(sheet, panel, name.replace("_", " "))
    (panel,), innovation = sheet.row(HEIGHT), run.updating[:, 3 * m + 2]
    sheet.curve(panel, base, "mean square of innovation", innovation, ("", INK, "-"), 0.9)
    level(panel, UNEXPLAINED, LIMIT, DASHES, 0.7)
    view.time(sheet, panel, "mean square\nof innovation")
    view.legend(sheet, [ESTIMATE, ("one standard deviation", BAND, "-"), released])
    strange = bool((innovation > UNEXPLAINED).any())
    title = f"Copies of {run.scenario.updating.axis}: {'the model does not explain it' if strange else 'learnt'}"
    return title, (
        f"Parameters of {copy.model} over their initial values, between bounds; "
        f"{'the copies follow' if used else 'in shadow: nothing of it was used'}. The mean square of the "
        f"innovation is 1 where the model is right; beyond {UNEXPLAINED:g} the copies go back towards 1."
    )
