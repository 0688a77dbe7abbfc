# SPDX-License-Identifier: Apache-2.0
"""Report on a procedure: header, checks, offsets, ladder and acts, in the order of a test report."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rths_nodes.analysis.units import DASH, KN, MM, PERCENT, exact, grouped, number, quantity, rounded
from rths_nodes.core.data import Data
from rths_nodes.loop.procedure_record import (
    NOT_VERIFIED,
    REHEARSAL,
    RUNGS,
    SIGNED,
    TO_SIGN,
    AxisChecks,
    OffsetsRecord,
    ProcedureRecord,
    RungRecord,
)
from rths_nodes.loop.procedure_record import verdict as judged
from rths_nodes.loop.scenario.schema import EMULATED

NOT_VALID, NO_END = "NOT VALID", "NOT ENDED"
DIRECT = "This run was started directly, without a procedure."
STOPPED = ("held", "tripped", "failed", "interrupted", "refused")
_NUMBER = re.compile(r"[−<>\s\d.,–%±e/-]*")

Grid = Mapping[str, Sequence[object]]
"""Table for a template: ``heads``, ``rows``, and whether each column is ``numeric``."""


class Part(NamedTuple):
    title: str
    facts: Mapping[str, str] = {}
    words: tuple[str, ...] = ()
    grid: Grid | None = None
    items: tuple[str, ...] = ()


def grid(heads: Sequence[str], rows: Iterable[Iterable[str]]) -> Grid | None:
    """Return a table without empty columns and with right-aligned numbers, or None if the table is empty."""
    columns = [*zip(*rows, strict=True)]
    kept = [n for n, column in enumerate(columns) if n == 0 or set(column) != {DASH}]
    if not columns or (len(kept) == 1 and len(heads) > 1):
        return None
    numeric = [n > 0 and all(map(_NUMBER.fullmatch, columns[n])) for n in kept]
    filled = [list(row) for row in zip(*(columns[n] for n in kept), strict=True)]
    return {"heads": [heads[n] for n in kept], "rows": filled, "numeric": numeric}


def listed(title: str, heads: Sequence[str], rows: Iterable[Iterable[str]], none: str = "None.") -> Part:
    """Return a part of the report with the table of ``rows``, or with the sentence ``none`` if it is empty."""
    table = grid(heads, rows)
    return Part(title, words=() if table else (none,), grid=table)


def moment(stamp: str) -> str:
    """Convert a time such as ``2030-01-02T03:04:05+00:00`` to ``2030-01-02 03:04:05 UTC``."""
    return re.sub(r"^(\S+)T(\S+?)(?:\.\d+)?(?:\+00:00|Z)$", r"\1 \2 UTC", stamp)


def cause(reason: str) -> str:
    return re.sub(r"^sample \d+: ", "", reason)


def first_words(record: ProcedureRecord) -> str:
    if record.ending != record.outcome:
        return f"Test {record.ending}{f' ({record.reason})' if record.reason else ''}"
    at = "" if record.sample is None or record.outcome == "refused" else f" at sample {grouped(record.sample)}"
    if record.outcome in STOPPED:
        return f"Test {record.outcome}{at}: {cause(record.named(record.reason)) or 'no reason was recorded'}"
    if record.outcome == "finished":
        return ""
    last = record.acts[-1] if record.acts else None
    done = f"; the last act was {last.act} at {moment(last.time)}" if last else ""
    return f"Test not ended: the record of the procedure has no end{done}"


def verdict(record: ProcedureRecord) -> str:
    if record.ending == "finished":
        return ""
    if record.outcome in STOPPED:
        return record.outcome.upper()
    return NOT_VALID if record.outcome == "finished" else NO_END


def first_facts(record: ProcedureRecord) -> dict[str, str]:
    persons = dict.fromkeys(name for rung in record.rungs for name in rung.armed_by if name != record.operator)
    simulated = f"not needed: {record.simulation}" if record.simulation else DASH
    return {
        "Test": record.test_id,
        "Date": f"{moment(record.started) or DASH} to {moment(record.ended) or DASH}",
        "Operator": record.operator or DASH,
        **({"Armed with": ", ".join(persons)} if persons else {}),
        "Specimen": record.specimen.id or DASH,
        "Laboratory": record.laboratory or DASH,
        "Client": record.client or DASH,
        "Rig": " – ".join(filter(None, (record.rig, record.rig_description))) or DASH,
        "Commissioning": record.commissioning or simulated,
        "Scenario": record.scenario,
        "Scenario hash": record.scenario_hash,
    }


def deviations(record: ProcedureRecord) -> Part:
    items = tuple(map(record.named, record.deviations))
    return Part("Deviations from the procedure", words=() if items else ("None.",), items=items)


def sections(record: ProcedureRecord, rung: RungRecord | None) -> dict[str, list[Part]]:
    """Return the parts of a procedure report, by section. ``rung`` is the rung whose histories the page shows."""
    return {"head": head(record, rung), "Checks": checks(record), "Ladder": ladder(record), "Acts": acts(record)}


def head(record: ProcedureRecord, rung: RungRecord | None) -> list[Part]:
    facts = {
        "Port": record.port + (", emulated" if record.simulated == EMULATED else "") or DASH,
        "Outcome": record.ending or "none, because the record has no end",
        "Reason": record.named(record.reason) or DASH,
        "At sample": DASH if record.sample is None or record.outcome == "refused" else grouped(record.sample),
        "Code": ", ".join(f"{name} {text}" for name, text in record.code.items()) or DASH,
        "Versions": ", ".join(f"{name} {version}" for name, version in record.versions.items()) or DASH,
    }
    if rung is not None:
        facts |= {"Rung of the histories": rung_title(rung.name), "Level": f"{PERCENT * rung.level:g} %"}
        if rung.scenario_hash != record.scenario_hash:  # the level or time ratio of the rung differs
            facts["Hash of the rung"] = rung.scenario_hash or DASH
        facts |= {"Armed by": " and ".join(rung.armed_by)} if rung.armed_by else {}
        facts["Files, by SHA-256"] = (
            ", ".join(f"{name} {digest}" for name, digest in rung.inputs.items()) or "none"
        )
    history = [
        [moment(exact(entry.get(key))) for key in ("date", "test", "rung", "level")]
        + [_by_axis(entry.get("displacement"), MM, "mm"), _by_axis(entry.get("force"), KN, "kN")]
        for entry in record.specimen.history
    ]
    none_before = "No load on the specimen is recorded before this test."
    if record.simulation:
        none_before = f"The test was {record.simulation}: no steel moved, and no load is recorded."
    notes = [[moment(note.time), note.text, note.by or DASH] for note in record.notes]
    checklist = [[moment(row.time), row.item, row.answer, row.by or DASH] for row in record.checklist]
    loads = ("Date", "Test", "Rung", "Level", "Largest displacement", "Largest force")
    return [
        Part("Procedure", facts),
        *([listed("Checklist", ("Time", "Item", "Answer", "By"), checklist)] if checklist else []),
        listed("Notes of the operator", ("Time", "Note", "By"), notes),
        listed("Load history of the specimen", loads, history, none_before),
    ]


def rung_title(name: str) -> str:
    return f"{name} – {RUNGS[name].title}" if name in RUNGS else name


def _by_axis(values: object, factor: float, unit: str) -> str:
    if not isinstance(values, Mapping):
        return exact(values) if number(values) is None else quantity(values, factor, unit, 3)
    return ", ".join(f"{axis} {quantity(value, factor, unit, 3)}" for axis, value in values.items()) or DASH


def rig(record: ProcedureRecord) -> list[Part]:
    notes = () if record.controller else ("The port reported nothing about the controller.",)
    return [Part("Controller, as read back", dict(record.controller), notes), _offsets(record)]


def _offsets(record: ProcedureRecord) -> Part:
    before, after = record.offsets_before, record.offsets_after
    if before is None:
        return Part("Offsets", words=("No offsets were taken.",))
    rows, away = [], []
    for axis, first in before.axes.items():
        last, called = after.axes.get(axis) if after else None, record.called(axis)
        moved = last.command - first.command if last else 0.0
        if moved and math.isfinite(moved):
            away.append(f"{called} {rounded(moved, MM)}\u00a0mm")
        for noun, factor, unit in (("displacement", MM, "mm"), ("force", KN, "kN")):
            keys = (noun, f"{noun}_scatter")
            numbers = [getattr(row, key) if row else math.nan for row in (first, last) for key in keys]
            drift = numbers[2] - numbers[0]
            drift -= moved if noun == "displacement" and math.isfinite(moved) else 0.0
            tared = "yes" if noun == "displacement" or first.force_tared else "no"
            rows.append([f"{called}: {noun}", *(rounded(x, factor) for x in (*numbers, drift)), unit, tared])
        rows.append([f"{called}: active command", rounded(first.command, MM), *[DASH] * 4, "mm", DASH])
    heads = ("Offset of", "before", "scatter (rms)", "after", "scatter (rms)", "drift", "Unit", "tared")
    notes = [
        f"The offsets before the test were taken {_taken(before)} and were "
        f"{'confirmed by the operator' if before.confirmed else 'not confirmed'} (hash {before.hash}).",
        f"The offsets after the test were taken {_taken(after)}."
        if after
        else "No offsets were taken after the test, so the drift is unknown.",
    ]
    if away:
        notes.append(
            f"After the test, the active command had changed by {', '.join(away)}. The drift of the displacement "
            "is relative to the active command. The drift of the force includes the load of the specimen at the "
            "new position."
        )
    return Part("Offsets before and after the test", words=tuple(notes), grid=grid(heads, rows))


def _taken(offsets: OffsetsRecord) -> str:
    return f"at {moment(offsets.time)} for {offsets.seconds:g}\u00a0s"


_CHECKED = ("displacement_sign", "force_sign", "displacement_scale", "force_scale")


def checks(record: ProcedureRecord) -> list[Part]:
    if not record.checks:
        return [Part("Signs and scales", words=("Nothing was checked, because no small move was made.",))]
    rows, notes = [], []
    for axis, axis_checks in record.checks.items():
        called = record.called(axis)
        rows.append([called, *(getattr(axis_checks, key) for key in _CHECKED), *_stiffness(axis_checks)])
        for key in _CHECKED:
            noun, _, kind = key.partition("_")
            why = next((text for text in axis_checks.remarks if f"of the {noun} not verified" in text), "")
            reason = why.partition(" not verified")[2].removesuffix(f": {TO_SIGN}")
            signed = f" The operator signed for this item{_signed_by(record, axis)}."
            if (state := getattr(axis_checks, key)) in (NOT_VERIFIED, SIGNED):
                notes.append(
                    f"{called}: {kind} of {noun} is not verified{reason}.{signed if state == SIGNED else ''}"
                )
        if axis_checks.force_loop:
            notes.append(
                f"{called}: the force loop of the controller is {axis_checks.force_loop}, checked with a small "
                "force."
            )
        remarks = [remark for remark in axis_checks.remarks if not remark.endswith(TO_SIGN)]
        for finding in (*axis_checks.findings, *remarks):
            notes.append(f"{called}: {record.named(finding).removeprefix(f'{called}: ')}")
    heads = ("Axis", "sign of displ.", "sign of force", "scale of displ.", "scale of force")
    table = grid((*heads, "stiffness, kN/mm", "expected", "band"), rows)
    return [Part("Signs and scales, checked by the small move", grid=table, items=tuple(notes))]


def _signed_by(record: ProcedureRecord, axis: str) -> str:
    for act in reversed(record.acts):
        if "sign" in act.act and axis in str(act.arguments) and not act.refused:
            return f" ({', '.join(filter(None, (act.by, moment(act.time))))})"
    return f" ({record.operator})" if record.operator else ""


def _stiffness(checks: AxisChecks) -> list[str]:
    stiffness, expected, low, high = (
        rounded(value, KN / MM) for value in (checks.stiffness, checks.expected, checks.low, checks.high)
    )
    return [stiffness, expected, DASH if DASH in (low, high) else f"{low} – {high}"]


def ladder(record: ProcedureRecord) -> list[Part]:
    names = [rung.name for rung in record.rungs]
    left = [rung_title(name) for name in RUNGS if name not in names]
    notes = [f"Rungs that were not climbed: {', '.join(left)}."] if left else []
    if missing := [name for name in record.planned if name not in names]:
        notes.append(f"Planned rungs that were not climbed: {', '.join(missing)}.")
    counts = [names[: n + 1].count(name) for n, name in enumerate(names)]
    numbers = [f" ({count})" if count > 1 else "" for count in counts]
    called = [rung_title(name) + number for name, number in zip(names, numbers, strict=True)]
    remarks = tuple(
        f"{rung.name}{number}: {record.named(remark)}"
        for rung, number in zip(record.rungs, numbers, strict=True)
        for remark in _remarks(rung)
    )
    rungs = [*zip(record.rungs, called, strict=True)]
    far = grid(_FAR, [row for rung, title in rungs for row in _far(record, rung, title)])
    quantities = dict.fromkeys(name.removesuffix(REHEARSAL) for rung in record.rungs for name in rung.differences)
    titles = ("Rung", "Rung before", *map(record.named, quantities))
    differ = grid(titles, [_differences(rung, title, quantities) for rung, title in rungs if rung.differences])
    heads = ("Rung", "Started", "How", "Level", "Samples", "Outcome")
    parts = [
        Part("Rungs", words=tuple(notes), grid=grid(heads, [_climbed(*rung) for rung in rungs]), items=remarks),
        Part("Peaks of the rungs, and values at which the rungs would have been stopped", grid=far),
        Part("Relative rms differences between the rungs", words=(_DIFFER,), grid=differ),
    ]
    return [*(part for part in parts if part.grid or part is parts[0]), *map(_mandate, record.mandates)]


def _remarks(rung: RungRecord) -> list[str]:
    persons = [f"armed by {' and '.join(rung.armed_by)}"] if len(rung.armed_by) > 1 else []
    return persons + rung.remarks


def _climbed(rung: RungRecord, title: str) -> list[str]:
    slower = f"{rung.time_ratio:g} × slower" if rung.time_ratio > 1 else ""
    how = ", ".join(filter(None, (rung.host, rung.pace, slower)))
    ended = rung.ending + (f": {rung.reason}" if rung.reason and rung.outcome != "finished" else "")
    ended += f"; accepted by {rung.counts}" if rung.counts else ""
    level = f"{PERCENT * rung.level:g} %"
    return [title, moment(rung.started), how, level, grouped(rung.samples), ended or DASH]


_FAR = ("Rung", "Axis", "displ., mm", "stops at", "force, kN", "stops at", "measured, mm/s", "Verdict")
_DIFFER = "Before the slash: difference from the previous rung. After it: from the rehearsal of the same rung."


def _far(record: ProcedureRecord, rung: RungRecord, title: str) -> Iterator[list[str]]:
    for axis, most in rung.peaks.items():
        both = (most, rung.limits.get(axis, {}))
        ends = [rounded(row.get(key), x) for key, x in (("displacement", MM), ("force", KN)) for row in both]
        yield [title, record.called(axis), *ends, rounded(most.get("velocity"), MM), judged(rung)]


def _differences(rung: RungRecord, title: str, names: Iterable[str]) -> list[str]:
    values = {name: f"{value:.3g}" for name, value in rung.differences.items() if math.isfinite(value)}
    both = [[values.get(key, DASH) for key in (name, name + REHEARSAL)] for name in names]
    shares = (DASH if set(pair) == {DASH} else " / ".join(pair) for pair in both)
    return [title, rung.compared_with or DASH, *shares]


def _mandate(mandate: Data) -> Part:
    """Return the part of the report on rung h. Only records of versions up to 0.9.0 contain a ``mandate``."""
    facts = {key.capitalize(): moment(exact(mandate.get(key))) for key in ("hash", "time", "by", "ended")}
    rows = [
        [exact(row.get("number")), exact(row.get("outcome")), rounded(row.get("error")), rounded(row.get("noise"))]
        + [exact(row.get("recording"))]
        for row in mandate.get("rows", [])
    ]
    heads = ("Run", "Outcome", "error, %", "noise, %", "Recording")
    return Part("Runs under a mandate (rung h, up to version 0.9.0)", facts, grid=grid(heads, rows))


DIFFERENCES = "; differs from rung "
QUANTITIES = {"seconds", "unloaded"}
UNSHOWN = ("hash", "clear")
"""Suffixes of arguments that are not shown."""


def _time_of_day(stamp: str, started: str) -> str:
    day, _, time = moment(stamp).partition(" ")
    return time if day and day == moment(started).partition(" ")[0] else moment(stamp)


def acts(record: ProcedureRecord) -> list[Part]:
    rows = []
    for act in record.acts:
        shown = {name: exact(value) for name, value in act.arguments.items() if not name.endswith(UNSHOWN)}
        verb = act.act.replace("_", " ")
        asked = ", ".join((verb, *(f"{name} {value}" for name, value in shown.items())))
        if len(shown) == 1 and not (shown.keys() & QUANTITIES):
            asked = f"{verb}: {next(iter(shown.values()))}"
        result = act.result.partition(DIFFERENCES)[0]  # the section about the ladder has the differences
        came = record.named(f"REFUSED: {act.refused}" if act.refused else result or "done")
        by = f"{act.by or DASH} ({act.way})" if act.way else act.by or DASH
        rows.append([_time_of_day(act.time, record.started), asked, came, by])
    note = () if rows else ("No acts were recorded.",)
    if len(persons := {row[-1] for row in rows}) == 1:
        note = (f"All acts by {persons.pop()}.",)
        rows = [[*row[:-1], DASH] for row in rows]
    table = grid(("Time", "Act", "Result", "By"), rows)
    parts = [Part("Acts of the operator", words=note, grid=table)]
    held = [
        [moment(stop.time), stop.state, record.named(stop.reason) or DASH, record.called(axis), rounded(x, MM)]
        + [rounded(stop.force.get(axis), KN)]
        for stop in record.held
        for axis, x in stop.displacement.items()
    ]
    if held:
        where = ("Time", "State", "Reason", "Axis", "position, mm", "force, kN")
        parts.append(listed("Positions at which the rig was held or tripped", where, held))
    unloaded = [
        [moment(row.time), record.called(axis), rounded(before, KN), rounded(row.after.get(axis), KN)]
        + [rounded(row.travel.get(axis), MM), row.given_up or "zero force, within the tolerance"]
        for row in record.unloading
        for axis, before in row.before.items()
    ]
    heads = ("Time", "Axis", "force before, kN", "after, kN", "travel, mm", "Result")
    return [*parts, listed("Unloading", heads, unloaded, "The rig was not unloaded by the procedure.")]
