"""What an operator sees of a test: acts, offsets, checks, what is armed, rungs; as tables for a terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rich.table import Table

from rths_nodes.analysis.units import KN, MM, PERCENT
from rths_nodes.app.procedure.acts import ACTS
from rths_nodes.app.procedure.comparison import REHEARSAL
from rths_nodes.app.procedure.ladder import Ladder, Step
from rths_nodes.app.procedure.walk import WORDS
from rths_nodes.loop.procedure.records import AxisChecks, OffsetsRecord, RungRecord
from rths_nodes.loop.scenario import rehearsal
from rths_nodes.loop.scenario.schema import Scenario


def acts(possible: Mapping[str, str], proposed: str) -> Table:
    """Acts that are possible now, the proposed one first marked, and why the others are not."""
    grid = Table("", "act", "what it does, or why it is not possible now", box=None, pad_edge=False)
    for name in sorted(ACTS, key=lambda name: (bool(possible[name]), list(ACTS).index(name))):
        reason = possible[name]
        if reason:
            grid.add_row("", f"[dim]{name}[/]", f"[dim]{_plain(reason)}[/]")
        else:
            mark = "[bold]>[/]" if name == proposed else ""
            grid.add_row(mark, f"[bold]{name}[/]", _plain(ACTS[name].words))
    return grid


def offsets(found: OffsetsRecord, scenario: Scenario) -> Table:
    """Value, scatter and share of the range of every axis."""
    grid = Table(
        "axis", "channel", "value", "scatter (rms)", "of the range", title=f"offsets over {found.seconds:g} s"
    )
    for name, row in found.axes.items():
        axis = scenario.axes[name].rig_axis
        ends = (axis.displacement.range_si, axis.force.range_si) if axis is not None else (math.nan, math.nan)
        shown = (
            ("displacement", row.displacement, row.displacement_scatter, ends[0], MM, "mm"),
            ("force", row.force, row.force_scatter, ends[1], KN, "kN"),
        )
        for noun, value, scatter, end, factor, unit in shown:
            share = f"{PERCENT * value / end:.3g} %" if math.isfinite(end) else "-"
            grid.add_row(name, noun, f"{factor * value:.5g} {unit}", f"{factor * scatter:.3g} {unit}", share)
        active = f"{MM * row.command:.5g} mm" if math.isfinite(row.command) else "cannot be read"
        grid.add_row(name, "active command", active, "", "")
    return grid


def checks(found: Mapping[str, AxisChecks]) -> Table:
    """What the small move has found of every axis."""
    grid = Table("axis", "sign of displacement", "of force", "scale of displacement", "of force", "stiffness")
    for name, row in found.items():
        stiffness = "-" if row.stiffness is None else f"{row.stiffness:.4g} N/m"
        if row.low is not None and row.high is not None:
            stiffness += f" (expected {row.low:.4g} to {row.high:.4g})"
        keys = ("displacement_sign", "force_sign", "displacement_scale", "force_scale")
        grid.add_row(name, *(WORDS[getattr(row, key)] for key in keys), stiffness)
    return grid


def armed(step: Step, ladder: Ladder, offsets_hash: str) -> Table:
    """What is about to be armed: hashes, level, ratio, and how far each axis is expected to go."""
    grid = Table("", "", title=f"rung {step.rung.name}: {step.rung.words}", show_header=False)
    grid.add_row("scenario", f"[bold]{step.hash}[/]  level {step.level:g}, time ratio {step.ratio}")
    grid.add_row("offsets", offsets_hash)
    grid.add_row("host, pace", f"{step.host}, {step.pace}")
    limits, elastic = step.scenario.limits, rehearsal.elastic_limits(step.scenario)
    for name, peak in ladder.expected(step.rung.name).items():
        words = f"expected {MM * peak['displacement']:.4g} mm, {KN * peak['force']:.4g} kN; stops at "
        words += f"{MM * limits[name].stroke:g} mm, {KN * limits[name].force:g} kN"
        if name in elastic:
            words += f"; elastic up to {MM * elastic[name]:g} mm"
        grid.add_row(f"axis {name}", words)
    for words in (*step.remarks(), *ladder.unknown(step.rung.name)):
        grid.add_row("note", _plain(words))
    return grid


def rungs(found: list[RungRecord]) -> Table:
    """The ladder so far."""
    grid = Table(
        "rung",
        "outcome",
        "level",
        "ratio",
        "samples",
        "displacement",
        "force",
        "from the one before",
        "from its rehearsal",
    )
    for row in found:
        far = ", ".join(f"{MM * peak['displacement']:.4g} mm" for peak in row.peaks.values())
        force = ", ".join(f"{KN * peak['force']:.4g} kN" for peak in row.peaks.values())
        differs = [_worst(row.differences, rehearsal) for rehearsal in (False, True)]
        ratio = str(row.time_ratio)
        grid.add_row(row.name, row.outcome, f"{row.level:g}", ratio, str(row.samples), far, force, *differs)
    return grid


def _worst(found: Mapping[str, float], rehearsal: bool) -> str:
    """The largest difference to the rehearsal of a rung, or to the rung before."""
    values = [value for name, value in found.items() if name.endswith(REHEARSAL) == rehearsal]
    return f"{max(values):.3g}" if values else "-"


def _plain(words: str) -> str:
    """``words`` in which nothing is markup."""
    return words.replace("[", r"\[")
