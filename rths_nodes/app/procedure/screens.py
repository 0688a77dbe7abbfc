# SPDX-License-Identifier: Apache-2.0
"""Terminal tables for the operator of a test: acts, offsets, checks, arming, rungs."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rich.table import Table

from rths_nodes.analysis.units import KN, MM, PERCENT, plain
from rths_nodes.app.procedure.ladder import Ladder, Step
from rths_nodes.loop.procedure_record import (
    NOT_VERIFIED,
    REHEARSAL,
    RUNGS,
    SIGNED,
    VERIFIED,
    WRONG,
    OffsetsRecord,
    ProcedureRecord,
    verdict,
)
from rths_nodes.loop.scenario import rehearsal
from rths_nodes.loop.scenario.schema import Scenario, axis_names, label, rig_kind
from rths_nodes.procedure.session import ACTS

NAMED_BY = 6
"""Number of characters of a hash that an operator types to arm a rung."""
WORDS = {VERIFIED: "verified", NOT_VERIFIED: "not verified", WRONG: "WRONG", SIGNED: "signed for"}


def acts(possible: Mapping[str, str], proposed: str) -> Table:
    grid = Table("", "act", "effect, or reason why the act is not possible now", box=None, pad_edge=False)
    for name in sorted(ACTS, key=lambda name: (bool(possible[name]), list(ACTS).index(name))):
        reason = possible[name]
        if reason:
            grid.add_row("", f"[dim]{name}[/]", f"[dim]{_plain(reason)}[/]")
        else:
            mark = "[bold]>[/]" if name == proposed else ""
            grid.add_row(mark, f"[bold]{name}[/]", _plain(ACTS[name].words))
    return grid


def offsets(record: OffsetsRecord, scenario: Scenario) -> Table:
    grid = Table(
        "axis",
        "channel",
        "value",
        "scatter (rms)",
        "of the range",
        title=f"{rig_kind(scenario)}: offsets, measured for {record.seconds:g} s",
    )
    names = axis_names(scenario)
    for name, row in record.axes.items():
        axis, called = scenario.axes[name].rig_axis, names[name]
        ends = (axis.displacement.range_si, axis.force.range_si) if axis is not None else (math.nan, math.nan)
        shown = (
            ("displacement", row.displacement, row.displacement_scatter, ends[0], MM, "mm"),
            ("force", row.force, row.force_scatter, ends[1], KN, "kN"),
        )
        for noun, value, scatter, end, factor, unit in shown:
            share = f"{plain(value / end, PERCENT)} %" if math.isfinite(end) else "-"
            grid.add_row(called, noun, _with(value, factor, unit), _with(scatter, factor, unit), share)
        active = _with(row.command, MM, "mm") if math.isfinite(row.command) else "cannot be read"
        grid.add_row(called, "active command", active, "", "")
    return grid


def checks(record: ProcedureRecord) -> Table:
    heads = ("axis", "displ. sign", "force sign", "displ. scale", "force scale", "stiffness", "expected")
    loops = any(row.force_loop for row in record.checks.values())
    grid = _narrow(
        *heads,
        *(("force loop",) if loops else ()),
        title=f"{label(record.simulation)}: signs and scales, checked by the small move",
    )
    for name, row in record.checks.items():
        keys = ("displacement_sign", "force_sign", "displacement_scale", "force_scale")
        stiffness = "-" if row.stiffness is None else _with(row.stiffness, KN / MM, "kN/mm")
        expected = "-"
        if row.low is not None and row.high is not None:
            expected = f"{plain(row.low, KN / MM)} to {plain(row.high, KN / MM)}"
        loop = (WORDS.get(row.force_loop, "-"),) if loops else ()
        grid.add_row(record.called(name), *(WORDS[getattr(row, key)] for key in keys), stiffness, expected, *loop)
    return grid


def armed(step: Step, ladder: Ladder, offsets_hash: str) -> Table:
    grid = Table(
        "", "", title=f"{rig_kind(ladder.scenario)}: rung {step.rung.name} ({step.rung.words})", show_header=False
    )
    grid.add_row("scenario", f"[bold]{step.hash}[/]  level {PERCENT * step.level:g} %, time ratio {step.ratio}")
    grid.add_row("offsets", offsets_hash)
    for path, digest in step.files.items():
        grid.add_row("file", _plain(f"{path}: {digest[:NAMED_BY]}"))
    for name, version in ladder.code.names.items():
        grid.add_row("code", _plain(f"{name}: {version}"))
    grid.add_row("host, pace", f"{step.host}, {step.pace}")
    grid.add_row("engine", step.engine)
    names, stops, elastic = axis_names(step.scenario), ladder.stops(step), rehearsal.elastic_limits(step.scenario)
    for name, peak in ladder.expected(step.rung.name).items():
        expected = [
            f"{_with(peak[noun], factor, unit)}, stops at {_with(stops[name][noun], factor, unit)}"
            for noun, factor, unit in (("displacement", MM, "mm"), ("force", KN, "kN"))
        ]
        version = "expected " + "\n         ".join(expected)
        if name in elastic:
            version += f"\nelastic up to {_with(elastic[name], MM, 'mm')}"
        grid.add_row(names[name], version)
    for version in (*step.remarks(), *ladder.unknown(step.rung.name)):
        grid.add_row("note", _plain(version))
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
                for noun, factor in (("displacement", MM), ("force", KN))
            ]
            grid.add_row(*first, record.called(axis), *far, *differs, verdict(row))
            first, differs = ("", ""), ["", ""]
    return grid


def _narrow(*heads: str, title: str) -> Table:
    return Table(*heads, title=title, box=None, padding=(0, 2, 0, 0), pad_edge=False)


def _worst(peaks: Mapping[str, float], rehearsal: bool) -> str:
    values = [value for name, value in peaks.items() if name.endswith(REHEARSAL) == rehearsal]
    return f"{max(values):.3g}" if values else "-"


def _with(value: float, factor: float, unit: str) -> str:
    return f"{plain(value, factor)} {unit}"


def _plain(text: str) -> str:
    return text.replace("[", r"\[")
