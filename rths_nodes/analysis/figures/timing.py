# SPDX-License-Identifier: Apache-2.0
"""Histograms of the timing: how long a sample took, how late it began."""

from __future__ import annotations

from rths_nodes.analysis.figures import thinning
from rths_nodes.analysis.figures.plan import Bars, Base, Look, Panel, Plan, Quantity
from rths_nodes.analysis.figures.style import INK, LINES, PALETTE, Entry
from rths_nodes.analysis.units import US, clocks, number
from rths_nodes.core.samples import Array
from rths_nodes.recording.run import Run


def histograms(run: Run) -> Plan | None:
    """One panel per clock that was recorded; None if there is none. In lockstep no servo period is drawn."""
    named = clocks(run.information.get("host", ""))
    recorded = [(key, title, *thinning.bars(run.timing.get(f"{key}_histogram", {}))) for key, title in named]
    row = [_panel(run, *found) for found in recorded if len(found[-1])]
    if not row:
        return None
    marked: list[Entry] = [("99.9 %", PALETTE[1], LINES[1]), ("servo period", INK, "-")]
    entries = [] if run.in_lockstep else marked
    caption = "How often (logarithmic) a duration occurred."
    return Plan("timing", "Timing histograms", caption, [row], [1.9], entries, widths=(1.0,) * len(row))


def _panel(run: Run, key: str, title: str, edges: Array, counts: Array) -> Panel:
    scaled = US * edges
    of = Quantity(f"samples of {key}", "")
    base, to = Base(key, Quantity(f"{key} from", "µs"), scaled[:-1]), Quantity(f"{key} to", "µs")
    bars = Bars(base, of, to, scaled[1:], counts, PALETTE[0])
    wide = edges[0] > 0.0 and edges[-1] > 5.0 * edges[0]
    marks = [] if run.in_lockstep else _marks(run, key, float(edges[-1]))
    ends = (0.5, 2.0 * float(counts.max()))
    scales = "xy" if wide else "y"
    return Panel(Quantity("µs"), Quantity("samples"), [bars], title, limits=ends, marks=marks, logarithmic=scales)


def _marks(run: Run, key: str, longest: float) -> list[tuple[float, Look]]:
    slow = number(run.timing.get(key, {}).get("p999_s"))
    rare = [] if slow is None else [(US * slow, Look(PALETTE[1], LINES[1]))]
    return rare + ([(US * run.scenario.dt, Look(INK))] if longest > run.scenario.dt else [])
