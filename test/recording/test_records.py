# SPDX-License-Identifier: Apache-2.0
"""Tests of the files of procedures and commissionings: round trips, refusals of damaged files, sheets."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from commissioned import commissioned
from ends import largest_file
from messages import mentions, naming

from rths_nodes.analysis.report.document import commissioning_sheet
from rths_nodes.app.cli import main
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.commissioning import (
    FAILED,
    KILLED,
    NOT_TRIED,
    VOID,
    AxisHardware,
    Commissioning,
    CommissioningRow,
)
from rths_nodes.loop.procedure_record import (
    SIGNED,
    VERIFIED,
    Act,
    AxisChecks,
    AxisOffsets,
    ChecklistAnswer,
    HeldRecord,
    Note,
    OffsetsRecord,
    ProcedureRecord,
    RungRecord,
    SpecimenRecord,
    UnloadingRecord,
)
from rths_nodes.loop.scenario import files
from rths_nodes.recording import commissioning, procedure
from rths_nodes.recording.records import RecordingError

NOON = "2030-01-02T12:00:00+00:00"


def record() -> ProcedureRecord:
    """Return a record with a value in every field."""
    offsets = OffsetsRecord(NOON, 2.0, {"a": AxisOffsets(1e-4, 2e-6, -30.5, 4.0, math.nan, True)}, "ab12", True)
    rung = RungRecord(
        *("d", NOON, "embedded", "lockstep", 0.5, 10.0, "h1", "ab12"),
        *("held", "stop: asked for", 512, 0.7, "rung_d"),
        compared_with="b",
        differences={"a.displacement": 1e-14},
        peaks={"a": {"displacement": 0.01, "force": 1e5, "velocity": 0.2}},
        remarks=["viscous damping is 10 times smaller"],
        limits={"a": {"displacement": 0.04, "force": 1.8e6}},
        bridged=5,
        counts="A. Müller",
        inputs={"ground_motion.file": "9f86d0"},
        code="2c26b4",
        armed_by=["A. Müller", "B. Schmidt"],
    )
    return ProcedureRecord(
        *("t1", "chen_ricles_2010", "c0ffee", "frame.yaml", 'a frame: "two" axes', "udp", "A. Müller"),
        specimen=SpecimenRecord("s1", [{"date": NOON, "level": 0.5, "displacement": {"a": 0.01}}]),
        started=NOON,
        ended=NOON,
        outcome="tripped",
        reason="limit of force: a 201 kN\nsecond line",
        sample=511,
        planned=["a", "d"],
        controller={"hydraulics": "high", "interlock": "closed"},
        deviations=["rung c was left out"],
        notes=[Note(NOON, "oil 41 °C", "A. Müller")],
        acts=[Act(NOON, "arm", {"rung": "d", "offsets": "ab12"}, "armed", "", "A. Müller")],
        offsets_before=offsets,
        offsets_after=offsets,
        checks={"a": AxisChecks(VERIFIED, VERIFIED, SIGNED, SIGNED, 1e6, 1.1e6, 0.9e6, 1.2e6, ["f"], ["r"])},
        rungs=[rung],
        mandates=[{"hash": "m1", "bounds": {"a": {"command": 0.011}}, "rows": [{"number": 1, "error": 3.5}]}],
        unloading=[UnloadingRecord(NOON, {"a": 9e3}, {"a": 12.0}, {"a": 3e-3}, "no")],
        held=[HeldRecord(NOON, "held", "stop: asked for", {"a": 3e-3}, {"a": math.inf})],
        versions={"rths_nodes": "1.2"},
        simulated="emulated",
        axis_names={"a": "north (a)"},
        rig_kind="EMULATED",
        checklist=[ChecklistAnswer("10:00:00", "area clear", "y", "Ada")],
        code={"rths_nodes": "0.1.0, commit 535f332"},
        laboratory="hall 3",
        client="Bridge Authority",
        commissioning="2030-01-01, by Ada and Bob",
    )


def assert_refused(
    read: Callable[[Path], Any], path: Path, change: tuple[str, str], parts: tuple[str, ...]
) -> None:
    """The changed file is refused; each problem begins with its path."""
    text = path.read_text()
    assert change[0] in text
    path.write_text(text.replace(*change, 1))
    with pytest.raises(ConfigError) as refused:
        read(path)
    assert all(problem.startswith(f"{path}: ") for problem in refused.value.problems)
    assert mentions(str(refused.value), *parts)


def test_procedure_record_round_trip(tmp_path: Path) -> None:
    original = record()
    path = procedure.write(original, tmp_path / "runs" / "t1")
    assert path == tmp_path / "runs" / "t1" / "procedure.yaml"
    stored = procedure.read(path.parent)
    assert repr(stored) == repr(original)  # repr: a missing command is nan, which equals nothing
    assert [field.name for field in fields(original) if not getattr(stored, field.name)] == []
    assert [entry.name for entry in path.parent.iterdir()] == ["procedure.yaml"]
    text = path.read_text()
    assert "operator: A. Müller\n" in text
    assert "    displacement: 0.0001\n" in text
    assert mentions(text, "record", "test")


def test_record_without_later_fields_is_read(tmp_path: Path) -> None:
    path = procedure.write(record(), tmp_path)
    later = ("simulated", "axis_names", "limits", "bridged", "counts", "laboratory", "client", "commissioning")
    data = yaml.safe_load(path.read_text())
    for part in (data, *data["rungs"]):
        for key in later:
            part.pop(key, None)
    path.write_text(yaml.safe_dump(data) + "...\n")
    stored = procedure.read(tmp_path)
    assert (stored.called("a"), stored.rungs[0].bridged, stored.ending) == ("a", 0, "tripped")


def test_new_record_replaces_previous_one(tmp_path: Path) -> None:
    new = ProcedureRecord("t1", "a", "b")
    procedure.write(record(), tmp_path)
    procedure.write(new, tmp_path)
    assert procedure.read(tmp_path) == new
    assert [procedure.exists(folder) for folder in (tmp_path, tmp_path / "rung_a")] == [True, False]


def test_numpy_values_are_stored_as_plain_numbers(tmp_path: Path) -> None:
    act = Act(NOON, "position", {"at": np.float64(0.5), "axes": np.array([1, 2]), "to": (Path("x"), None)})
    procedure.write(ProcedureRecord("t1", "a", "b", acts=[act]), tmp_path)
    assert procedure.read(tmp_path).acts[0].arguments == {"at": 0.5, "axes": [1, 2], "to": ["x", None]}


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (("version: 1", "version: 7"), ("version", "7", "1")),
        (("test_id: t1\n", ""), ("test_id", "missing")),
        (("operator:", "operater:"), ("unknown", "operater", "operator")),
        (("sample: 511", "sample: many"), ("sample", "many")),
        (("    force: -30.5", "    force: true"), ("offsets_before.axes.a.force", "True")),
        (("    force: -30.5", "    force: null"), ("offsets_before.axes.a.force", "None")),
        (("rungs:\n- name: d", "rungs:\n- name: 4"), ("rungs[0].name", "4", "text")),
        (("outcome: tripped", "outcome: {"), ("not YAML",)),
        (("planned:\n- a\n- d", "planned: a"), ("planned", "a")),
        (("controller:\n  hydraulics: high\n  interlock: closed", "controller: [high]"), ("section",)),
        (("confirmed: true", "confirmed: 1"), ("offsets_before.confirmed", "1", "true")),
        (("\n...\n", "\n"), ("damaged", "end", "missing")),
    ],
)
def test_damaged_procedure_record_is_refused(
    change: tuple[str, str], parts: tuple[str, ...], tmp_path: Path
) -> None:
    assert_refused(lambda file: procedure.read(file.parent), procedure.write(record(), tmp_path), change, parts)


def test_truncated_procedure_record_is_refused(tmp_path: Path) -> None:
    path = procedure.write(record(), tmp_path)
    content = path.read_bytes()
    for size in range(0, len(content) - 1, 7):
        path.write_bytes(content[:size])
        with pytest.raises(ConfigError, match=r"procedure\.yaml: "):
            procedure.read(tmp_path)


def test_missing_and_unwritable_procedure_records_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=naming("procedure.yaml", "file")):
        procedure.read(tmp_path)
    (tmp_path / "taken").write_text("")
    with pytest.raises(ConfigError, match=naming("cannot be written")):
        procedure.write(record(), tmp_path / "taken")
    (tmp_path / "procedure.yaml").write_bytes(b"\x80\x81")
    with pytest.raises(ConfigError, match=naming("cannot be read")):
        procedure.read(tmp_path)


# -- Commissionings


@pytest.fixture
def complete() -> Commissioning:
    """A commissioning with all trials passed."""
    return commissioned(files.load("chen_ricles_2010", rig="bench_udp"))


@pytest.fixture
def path(complete: Commissioning, tmp_path: Path) -> Path:
    path = commissioning.beside(tmp_path / "frame.yaml")
    commissioning.write(complete, path)
    return path


def test_commissioning_round_trip(complete: Commissioning, path: Path) -> None:
    assert path.name == "frame.commissioned.yaml"
    stored = commissioning.of_rig(path.with_name("frame.yaml"))
    assert stored.rig_hash == complete.rig_hash
    assert [row.verdict for row in stored.rows] == ["passed"] * 9
    assert "operator: A. Tester\nsecond_person: B. Müller\n" in path.read_text()
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (("version: 1", "version: 2"), ("version", "2", "1")),
        (("rig_hash:", "rig_hush:"), ("unknown", "rig_hush", "rig_hash")),
        (("operator: A. Tester\n", ""), ("operator", "missing")),
        (("  verdict: passed", "  verdict: fine"), ("rows[0].verdict", "fine", "passed", "failed", "not tried")),
        (("\n...\n", "\n"), ("damaged", "end", "missing")),
        (("rows:\n- cause", "rows:\n- case"), ("rows[0].case", "case", "unknown")),
    ],
)
def test_damaged_commissioning_is_refused(path: Path, change: tuple[str, str], parts: tuple[str, ...]) -> None:
    assert_refused(commissioning.read, path, change, parts)


def test_missing_and_unwritable_commissionings(complete: Commissioning, tmp_path: Path) -> None:
    assert commissioning.of_rig(tmp_path / "frame.yaml") is None
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordingError, match=naming("commissioning", "written")):
        commissioning.write(complete, tmp_path / "file" / "a.yaml")


def test_full_disk_keeps_no_part_of_an_older_commissioning(path: Path) -> None:
    with largest_file(100), pytest.raises(RecordingError, match=naming("older", "commissioning")):
        commissioning.keep_older(path)
    assert list(path.parent.iterdir()) == [path]


OF_0_9_0 = """\
# What the commissioning of this rig has found, before any specimen: written by rths commission, not to be
# edited. It holds for 12 months, and for the port, channels, limits and receiver that it was made with.
version: 1
rig: bench
rig_hash: a61fe3098ba53927
build: b1
port: udp
operator: A. Tester
second_person: B. Müller
date: '2029-12-01T12:00:00+01:00'
versions: {}
rows:
- cause: signs and cables
  what: north
  stated: 1 mm
  measured: 0.9 mm
  verdict: passed
- cause: limit of velocity
  what: north
  stated: 1 mm
  measured: 0.9 mm
  verdict: passed
...
"""
"""A file as version 0.9.0 wrote it, with two of its rows."""


def test_commissioning_of_0_9_0_is_read_and_printed(tmp_path: Path) -> None:
    (tmp_path / "bench.commissioned.yaml").write_text(OF_0_9_0)
    stored = commissioning.of_rig(tmp_path / "bench.yaml")
    assert stored.counts == "2 rows: 2 passed, 0 failed, 0 not tried, 0 witnessed"
    assert (stored.valid_until, stored.unsigned, stored.rows[0].speed) == ("2030-12-01", False, "")
    assert main(["report", str(tmp_path / "bench.commissioned.yaml")]) == 0
    page = (tmp_path / "bench.commissioned.html").read_text()
    assert "PASSED" in page
    assert "DRAFT" not in page


def test_sheet_shows_hardware_trials_validity_and_persons(complete: Commissioning) -> None:
    complete.date = "2029-12-01T12:00:00+01:00"
    complete.axes = {"north": AxisHardware("Moog D765, no. 1187", "HBM U10M, no. 55", "Temposonics, no. 88")}
    complete.rows.append(CommissioningRow("limit of force", "north", "1 kN", "no specimen", NOT_TRIED))
    complete.proves = {KILLED: "stops alone"}
    page = commissioning_sheet(complete)
    for text in ("Moog D765, no. 1187", "no. 55", "no. 88", "2030-12-01", "b1", complete.rig_hash, "B. Müller"):
        assert text in page
    assert "10 rows: 9 passed, 0 failed, 1 not tried, 0 witnessed" in page
    assert "stops alone" in page
    assert all(change in page for change in VOID)


def test_sheet_groups_rows_by_cause(complete: Commissioning) -> None:
    first, second = complete.rows[:2]
    complete.rows += [replace(first, what="second"), replace(second, what="third")]
    page = commissioning_sheet(complete)
    causes = [row.cause.capitalize() for row in (first, second)]
    assert all(page.count(f">{cause}<") == 1 for cause in causes)
    assert page.index(causes[0]) < page.index(">second<") < page.index(causes[1]) < page.index(">third<")


@pytest.mark.parametrize(
    ("change", "badge", "draft"),
    [({}, "PASSED", False), ({"second_person": ""}, "DRAFT", True), ({"operator": "b. müller"}, "DRAFT", True)],
)
def test_unsigned_sheet_is_a_draft(
    complete: Commissioning, change: dict[str, str], badge: str, draft: bool
) -> None:
    sheet = replace(complete, **change)
    page = commissioning_sheet(sheet)
    assert f'">{badge}</span>' in page
    assert mentions(page, "DRAFT:", "two persons") is draft
    sheet.rows[0].verdict = FAILED
    assert '">FAILED</span>' in commissioning_sheet(sheet)


def test_sheet_of_emulated_rig_is_marked(complete: Commissioning) -> None:
    complete.rig_kind = "EMULATED"
    assert mentions(commissioning_sheet(complete), "EMULATED: no steel")
