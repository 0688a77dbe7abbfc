# SPDX-License-Identifier: Apache-2.0
"""Terminal tables for the operator of a test: acts, offsets, checks, arming, rungs."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rich.markup import escape
from rich.table import Table

from rths_nodes.analysis.units import KN, MM, PERCENT, plain
from rths_nodes.app.procedure.ladder import Ladder, Step
from rths_nodes.loop import procedure_record as records
from rths_nodes.loop.procedure_record import REHEARSAL, RUNGS, OffsetsRecord, ProcedureRecord, verdict
from rths_nodes.loop.scenario import rehearsal
from rths_nodes.loop.scenario.schema import Scenario, axis_names, label, rig_kind
from rths_nodes.procedure.session import ACTS

NAMED_BY = 6
"""Number of characters of a hash that an operator types to arm a rung."""
UNITS = {"displacement": (MM, "mm"), "force": (KN, "kN")}


def acts(possible: Mapping[str, str], proposed: str) -> Table:
    grid = Table("", "act", "effect, or reason why the act is not possible now", box=None, pad_edge=False)
    for name in sorted(ACTS, key=lambda name: bool(possible[name])):
        if reason := possible[name]:
            grid.add_row("", f"[dim]{name}[/]", f"[dim]{escape(reason)}[/]")
        else:
            grid.add_row("[bold]>[/]" if name == proposed else "", f"[bold]{name}[/]", escape(ACTS[name].words))
    return grid


def offsets(record: OffsetsRecord, scenario: Scenario) -> Table:
    title = f"{rig_kind(scenario)}: offsets, measured for {record.seconds:g} s"
    grid = Table("axis", "channel", "value", "scatter (rms)", "of the range", title=title)
    names = axis_names(scenario)
    for name, row in record.axes.items():
        axis, called = scenario.axes[name].rig_axis, names[name]
        for noun in UNITS:
            value, end = getattr(row, noun), getattr(axis, noun).range_si if axis is not None else math.nan
            share = f"{plain(value / end, PERCENT)} %" if math.isfinite(end) else "-"
            grid.add_row(called, noun, _with(value, noun), _with(getattr(row, f"{noun}_scatter"), noun), share)
        active = _with(row.command, "displacement") if math.isfinite(row.command) else "cannot be read"
        grid.add_row(called, "active command", active, "", "")
    return grid


def checks(record: ProcedureRecord) -> Table:
    heads = ["axis", "displ. sign", "force sign", "displ. scale", "force scale", "stiffness", "expected"]
    keys = ("displacement_sign", "force_sign", "displacement_scale", "force_scale")
    labels = {records.WRONG: "WRONG", "": "-"}
    loops = any(row.force_loop for row in record.checks.values())
    title = f"{label(record.simulation)}: signs and scales, checked by the small move"
    grid = _narrow(*heads, *["force loop"] * loops, title=title)
    for name, row in record.checks.items():
        results = [getattr(row, key) for key in keys]
        stiffness = "-" if row.stiffness is None else f"{plain(row.stiffness, KN / MM)} kN/mm"
        band = [plain(bound, KN / MM) for bound in (row.low, row.high) if bound is not None]
        cells = [labels.get(result, result) for result in (*results, *[row.force_loop] * loops)]
        cells[4:4] = stiffness, " to ".join(band) or "-"
        grid.add_row(record.called(name), *cells)
    return grid


def armed(step: Step, ladder: Ladder, offsets_hash: str) -> Table:
    title = f"{rig_kind(ladder.scenario)}: rung {step.rung.name} ({step.rung.words})"
    grid = Table("", "", title=title, show_header=False)
    grid.add_row("scenario", f"[bold]{step.hash}[/]  level {PERCENT * step.level:g} %, time ratio {step.ratio}")
    grid.add_row("offsets", offsets_hash)
    for path, digest in step.files.items():
        grid.add_row("file", escape(f"{path}: {digest[:NAMED_BY]}"))
    for name, version in ladder.code.names.items():
        grid.add_row("code", escape(f"{name}: {version}"))
    grid.add_row("host, pace", f"{step.host}, {step.pace}")
    grid.add_row("engine", step.engine)
    names, stops, elastic = axis_names(step.scenario), ladder.stops(step), rehearsal.elastic_limits(step.scenario)
    for name, peak in ladder.expected(step.rung.name).items():
        expected = [f"{_with(peak[noun], noun)}, stops at {_with(stops[name][noun], noun)}" for noun in UNITS]
        text = "expected " + "\n         ".join(expected)
        if name in elastic:
            text += f"\nelastic up to {_with(elastic[name], 'displacement')}"
        grid.add_row(names[name], text)
    for remark in (*step.remarks(), *ladder.unknown(step.rung.name)):
        grid.add_row("note", escape(remark))
    return grid


def rungs(record: ProcedureRecord) -> Table:
    heads = ("rung", "level", "axis", "mm (stop)", "kN (stop)", "before", "rehearsal", "verdict")
    title = f"{label(record.simulation)}: peaks, and differences from the previous rung and the rehearsal"
    grid = _narrow(*heads, title=title)
    for column in grid.columns[1:-1]:
        column.no_wrap = True
    for row in record.rungs:
        differs = [_worst(row.differences, rehearsal) for rehearsal in (False, True)]
        slower = f", ratio {row.time_ratio:g}" if row.time_ratio > 1 else ""
        first = (f"{row.name} {RUNGS[row.name].title}{slower}", f"{PERCENT * row.level:g} %")
        for axis, peak in (row.peaks or {"": {}}).items():
            stop = row.limits.get(axis, {})
            far = [
                f"{plain(peak.get(noun), factor)} ({plain(stop.get(noun), factor)})"
                for noun, (factor, _) in UNITS.items()
            ]
            grid.add_row(*first, record.called(axis), *far, *differs, verdict(row))
            first, differs = ("", ""), ["", ""]
    return grid


def _narrow(*heads: str, title: str) -> Table:
    return Table(*heads, title=title, box=None, padding=(0, 2, 0, 0), pad_edge=False)


def _worst(peaks: Mapping[str, float], rehearsal: bool) -> str:
    values = [value for name, value in peaks.items() if name.endswith(REHEARSAL) == rehearsal]
    return f"{max(values):.3g}" if values else "-"


def _with(value: float, noun: str) -> str:
    factor, unit = UNITS[noun]
    return f"{plain(value, factor)} {unit}"
