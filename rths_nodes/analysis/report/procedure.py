"""What the report says of a procedure: head, checks, offsets, ladder, acts, in the order of a test report."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from rths_nodes.analysis.units import DASH, KN, MM, PERCENT, exact, grouped, number, quantity, rounded
from rths_nodes.loop.procedure.records import (
    NOT_VERIFIED,
    RUNGS,
    SIGNED,
    AxisChecks,
    OffsetsRecord,
    ProcedureRecord,
    RungRecord,
)

DIRECT = "no procedure: this run was started directly"
ENDED = {
    "held": "Test held",
    "tripped": "Test tripped",
    "failed": "Test failed",
    "interrupted": "Test interrupted",
    "refused": "Test refused",
}
"""Outcome -> the first words of the page about such a test."""
_NUMBER = re.compile(r"[−<>\s\d.,–%±e-]*")


class Grid(NamedTuple):
    """A table of words and numbers: heads of its columns, its rows, which of the columns stand to the right."""

    heads: list[str]
    rows: list[list[str]]
    numeric: list[bool]


class Part(NamedTuple):
    """A part of a section: its title, facts by name, sentences, a table (None: none), a list."""

    title: str
    facts: Mapping[str, str] = {}
    words: tuple[str, ...] = ()
    grid: Grid | None = None
    items: tuple[str, ...] = ()


def grid(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> Grid | None:
    """The table, its columns of numbers to the right; None where there is no row."""
    filled = [list(row) for row in rows]
    if not filled:
        return None
    columns = range(1, len(filled[0]))  # the first has names
    numeric = [False, *(all(_NUMBER.fullmatch(row[column]) for row in filled) for column in columns)]
    return Grid(list(heads), filled, numeric)


def moment(stamp: str) -> str:
    """``2030-01-02T03:04:05+00:00`` as people write it."""
    return re.sub(r"^(\S+)T(\S+?)(?:\.\d+)?(?:\+00:00|Z)$", r"\1 \2 UTC", stamp)


def rung_of(record: ProcedureRecord, folder: str) -> RungRecord | None:
    """The rung whose recording is in ``folder``, a name; None where it is none of the record."""
    return next((rung for rung in reversed(record.rungs) if rung.recording and rung.recording == folder), None)


def first_words(record: ProcedureRecord) -> str:
    """What the first line says of a procedure that did not finish; empty for one that did."""
    at = "" if record.sample is None else f" at sample {grouped(record.sample)}"
    if record.outcome in ENDED:
        return f"{ENDED[record.outcome]}{at}: {record.reason or 'no reason was recorded'}"
    if record.outcome == "finished":
        return ""
    last = record.acts[-1] if record.acts else None
    done = f"; the last act was {last.act} at {moment(last.time)}" if last else ""
    return f"Test not ended: the record of the procedure has no end{done}"


def head(record: ProcedureRecord, rung: RungRecord | None) -> list[Part]:
    """Who tested what with what, and how it ended."""
    facts = {
        "Test": record.test_id,
        "Date": f"{moment(record.started) or DASH} to {moment(record.ended) or DASH}",
        "Operator": record.operator or DASH,
        "Rig": " – ".join(filter(None, (record.rig, record.rig_description))) or DASH,
        "Port": record.port or DASH,
        "Specimen": record.specimen.id or DASH,
        "Outcome": record.outcome or "none: the record has no end",
        "Reason": record.reason or DASH,
        "At sample": DASH if record.sample is None else grouped(record.sample),
        "Scenario": record.scenario,
        "Scenario hash": record.scenario_hash,
        "Versions": ", ".join(f"{name} {version}" for name, version in record.versions.items()) or DASH,
    }
    if rung is not None:
        facts |= {"Rung of this page": _rung(rung.name), "Level": f"{PERCENT * rung.level:g} %"}
        facts["Hash that was armed"] = rung.scenario_hash or DASH
    history = [
        [moment(exact(entry.get(key))) for key in ("date", "test", "rung", "level")]
        + [_by_axis(entry.get("displacement"), MM, "mm"), _by_axis(entry.get("force"), KN, "kN")]
        for entry in record.specimen.history
    ]
    notes = [[moment(note.time), note.text, note.by or DASH] for note in record.notes]
    none = () if record.deviations else ("None.",)
    return [
        Part("Test", facts),
        Part("Deviations from the procedure", words=none, items=tuple(record.deviations)),
        Part(
            "Notes of the operator",
            words=() if notes else ("None.",),
            grid=grid(("Time", "Note", "By"), notes),
        ),
        Part(
            "What the specimen has gone through",
            words=() if history else ("Nothing is recorded before this test.",),
            grid=grid(("Date", "Test", "Rung", "Level", "Largest displacement", "Largest force"), history),
        ),
    ]


def _rung(name: str) -> str:
    return f"{name} – {RUNGS[name].title}" if name in RUNGS else name


def _by_axis(values: Any, factor: float, unit: str) -> str:
    if not isinstance(values, Mapping):
        return exact(values) if number(values) is None else quantity(values, factor, unit, 3)
    return ", ".join(f"{axis} {quantity(value, factor, unit, 3)}" for axis, value in values.items()) or DASH


def rig(record: ProcedureRecord) -> list[Part]:
    """Of the set-up: the controller as read back, offsets before and after the test."""
    words = () if record.controller else ("The port told nothing of the controller.",)
    return [Part("Controller, as read back", dict(record.controller), words), _offsets(record)]


def _offsets(record: ProcedureRecord) -> Part:
    before, after = record.offsets_before, record.offsets_after
    if before is None:
        return Part("Offsets", words=("No offsets were taken.",))
    rows = []
    for axis, first in before.axes.items():
        last = after.axes.get(axis) if after else None
        for what, factor, unit in (("displacement", MM, "mm"), ("force", KN, "kN")):
            value, scatter = getattr(first, what), getattr(first, f"{what}_scatter")
            then = getattr(last, what) if last else math.nan
            then_scatter = getattr(last, f"{what}_scatter") if last else math.nan
            tared = "yes" if what == "displacement" or first.force_tared else "no"
            moved = last.command - first.command if last and what == "displacement" else 0.0
            drift = then - value - (moved if math.isfinite(moved) else 0.0)
            numbers = [rounded(each, factor) for each in (value, scatter, then, then_scatter, drift)]
            rows.append([f"{axis}: {what}", *numbers, unit, tared])
        rows.append([f"{axis}: active command", rounded(first.command, MM), *[DASH] * 4, "mm", DASH])
    heads = ("Offset of", "before", "scatter (rms)", "after", "scatter (rms)", "drift", "Unit", "tared")
    return Part("Offsets before and after the test", words=_taken(before, after), grid=grid(heads, rows))


def _taken(before: OffsetsRecord, after: OffsetsRecord | None) -> tuple[str, ...]:
    confirmed = "confirmed by the operator" if before.confirmed else "not confirmed"
    words = f"Before: {moment(before.time)}, over {before.seconds:g}\u00a0s, {confirmed} (hash {before.hash})."
    if after is None:
        return (words, "They were not taken again after the test: the drift is not known.")
    taken = (words, f"After: {moment(after.time)}, over {after.seconds:g}\u00a0s.")
    away = [
        f"{axis} {rounded(last.command - first.command, MM)}\u00a0mm"
        for axis, first in before.axes.items()
        if (last := after.axes.get(axis)) is not None and last.command != first.command
    ]
    if not away:
        return taken
    elsewhere = (
        f"The rig stood elsewhere after the test: {', '.join(away)}. The drift of the displacement is counted "
        "from the active command; that of the force has in it what the specimen carries there."
    )
    return (*taken, elsewhere)


_CHECKED = ("displacement_sign", "force_sign", "displacement_scale", "force_scale")


def checks(record: ProcedureRecord) -> list[Part]:
    """Signs and scales of the axes: what was verified, and what somebody signed for."""
    if not record.checks:
        return [Part("Signs and scales", words=("Nothing was checked: no small move was made.",))]
    rows, said = [], []
    for axis, found in record.checks.items():
        rows.append([axis, *(getattr(found, key) for key in _CHECKED), *_stiffness(found)])
        for key in _CHECKED:
            what = f"{axis}: {_turned(key)}"
            if getattr(found, key) == NOT_VERIFIED:
                said.append(f"{what} not verified.")
            elif getattr(found, key) == SIGNED:
                said.append(f"{what} not verified; the operator signed for it{_signed_by(record, axis)}.")
        said += [f"{axis}: {words}" for words in (*found.findings, *found.remarks)]
    heads = ("Axis", "sign of displ.", "sign of force", "scale of displ.", "scale of force")
    stiff = ("stiffness, kN/mm", "expected", "band")
    return [Part("Signs and scales, by the small move", grid=grid((*heads, *stiff), rows), items=tuple(said))]


def _turned(key: str) -> str:
    what, _, kind = key.partition("_")
    return f"{kind} of {what}"


def _signed_by(record: ProcedureRecord, axis: str) -> str:
    """Who has signed, and when, of the acts."""
    for act in reversed(record.acts):
        if "sign" in act.act and axis in str(act.arguments) and not act.refused:
            return f" ({', '.join(filter(None, (act.by, moment(act.time))))})"
    return f" ({record.operator})" if record.operator else ""


def _stiffness(found: AxisChecks) -> list[str]:
    factor = KN / MM
    band = DASH
    if found.low is not None and found.high is not None:
        band = f"{rounded(found.low, factor)} – {rounded(found.high, factor)}"
    return [rounded(found.stiffness, factor), rounded(found.expected, factor), band]


def ladder(record: ProcedureRecord) -> list[Part]:
    """The rungs: which were climbed, how they ended, how far from the one before."""
    rows, peaks = [], []
    for rung in record.rungs:
        slower = f"{rung.time_ratio} × slower" if rung.time_ratio > 1 else ""
        how = ", ".join(filter(None, (rung.host, rung.pace, slower)))
        ended = rung.outcome + (f": {rung.reason}" if rung.reason and rung.outcome != "finished" else "")
        rows.append(
            [
                *(_rung(rung.name), moment(rung.started), how, f"{PERCENT * rung.level:g} %"),
                *(grouped(rung.samples), ended or DASH, _differences(rung), "; ".join(rung.remarks) or DASH),
            ]
        )
        for axis, most in rung.peaks.items():
            values = (("displacement", MM), ("force", KN), ("velocity", MM))
            peaks.append([rung.name, axis, *(rounded(most.get(key), factor) for key, factor in values)])
    done = {rung.name for rung in record.rungs}
    left = [_rung(name) for name in RUNGS if name not in done]
    words = [f"Not climbed: {', '.join(left)}."] if left else []
    if missing := [name for name in record.planned if name not in done]:
        words.append(f"Planned, but not climbed: {', '.join(missing)}.")
    heads = ("Rung", "Started", "How", "Level", "Samples", "Outcome", "Differences to the one before", "Remarks")
    parts = [Part("Rungs", words=tuple(words), grid=grid(heads, rows))]
    if peaks:
        of = ("Rung", "Axis", "displacement, mm", "force, kN", "velocity, mm/s")
        parts.append(Part("Largest values of the rungs", grid=grid(of, peaks)))
    return parts


def _differences(rung: RungRecord) -> str:
    if not rung.differences:
        return DASH
    found = ", ".join(f"{name} {quantity(value, PERCENT, '%')}" for name, value in rung.differences.items())
    return f"to {rung.compared_with}: {found}" if rung.compared_with else found


def acts(record: ProcedureRecord) -> list[Part]:
    """What was asked for and done, in its order, and how the rig was unloaded."""
    rows = []
    for act in record.acts:
        asked = ", ".join(f"{name} {exact(value)}" for name, value in act.arguments.items()) or DASH
        came = f"REFUSED: {act.refused}" if act.refused else act.result or "done"
        rows.append([moment(act.time), act.act, asked, came, act.by or DASH])
    words = () if rows else ("None were recorded.",)
    parts = [Part("Acts of the operator", words=words, grid=grid(("Time", "Act", "With", "Result", "By"), rows))]
    unloaded = [
        [
            *(moment(each.time), axis, rounded(each.before[axis], KN), rounded(each.after.get(axis), KN)),
            *(rounded(each.travel.get(axis), MM), each.given_up or "no force, within the tolerance"),
        ]
        for each in record.unloading
        for axis in each.before
    ]
    heads = ("Time", "Axis", "force before, kN", "after, kN", "travel, mm", "Result")
    not_unloaded = () if unloaded else ("The rig was not unloaded by the procedure.",)
    return [*parts, Part("Unloading", words=not_unloaded, grid=grid(heads, unloaded))]
