# SPDX-License-Identifier: Apache-2.0
"""The file of a procedure: what was written is read again, a damaged one is refused with path and words."""

from __future__ import annotations

import math
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import yaml
from messages import mentions, naming

from rths_nodes.core.errors import ConfigError
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
from rths_nodes.recording import procedure

NOON = "2030-01-02T12:00:00+00:00"


def record() -> ProcedureRecord:
    """One with something in every field."""
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
        mandates=[
            {"hash": "m1", "bounds": {"a": {"command": 0.011}}, "rows": [{"number": 1, "error": 3.5}]},
        ],
        unloading=[UnloadingRecord(NOON, {"a": 9e3}, {"a": 12.0}, {"a": 3e-3}, "no")],
        held=[HeldRecord(NOON, "held", "stop: asked for", {"a": 3e-3}, {"a": 9e3})],
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


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    written = record()
    path = procedure.write(written, tmp_path / "runs" / "t1")
    assert path == tmp_path / "runs" / "t1" / "procedure.yaml"
    found = procedure.read(path.parent)
    assert repr(found) == repr(written)  # repr: a command that could not be read is nan, which equals nothing
    assert [each.name for each in fields(written) if not getattr(found, each.name)] == []
    assert [entry.name for entry in path.parent.iterdir()] == ["procedure.yaml"]


def test_a_record_of_before_some_fields_were_there_is_read(tmp_path: Path) -> None:
    path = procedure.write(record(), tmp_path)
    new = ("simulated", "axis_names", "limits", "bridged", "counts", "laboratory", "client", "commissioning")
    data = yaml.safe_load(path.read_text())
    for part in (data, *data["rungs"]):
        for key in new:
            part.pop(key, None)
    path.write_text(yaml.safe_dump(data) + "...\n")
    found = procedure.read(tmp_path)
    assert (found.called("a"), found.rungs[0].bridged, found.ending) == ("a", 0, "tripped")


def test_one_that_has_just_begun_is_read_again(tmp_path: Path) -> None:
    begun = ProcedureRecord("t1", "a", "b")
    procedure.write(record(), tmp_path)
    procedure.write(begun, tmp_path)
    assert procedure.read(tmp_path) == begun
    assert [procedure.exists(place) for place in (tmp_path, tmp_path / "rung_a")] == [True, False]


def test_people_can_read_it(tmp_path: Path) -> None:
    text = procedure.write(record(), tmp_path).read_text()
    assert "operator: A. Müller\n" in text
    assert "    displacement: 0.0001\n" in text
    assert mentions(text, "record", "test")


def test_numbers_of_numpy_become_plain_ones(tmp_path: Path) -> None:
    act = Act(NOON, "position", {"at": np.float64(0.5), "axes": np.array([1, 2]), "to": (Path("x"), None)})
    procedure.write(ProcedureRecord("t1", "a", "b", acts=[act]), tmp_path)
    assert procedure.read(tmp_path).acts[0].arguments == {"at": 0.5, "axes": [1, 2], "to": ["x", None]}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("version: 1", "version: 7"), ("version", "7", "1")),
        (("test_id: t1\n", ""), ("test_id", "missing")),
        (("operator:", "operater:"), ("unknown", "operater", "operator")),
        (("sample: 511", "sample: many"), ("sample", "many")),
        (("    force: -30.5", "    force: true"), ("offsets_before.axes.a.force", "True")),
        (("    force: -30.5", "    force: .inf"), ("offsets_before.axes.a.force", "inf")),
        (("rungs:\n- name: d", "rungs:\n- name: 4"), ("rungs[0].name", "4", "text")),
        (("outcome: tripped", "outcome: {"), ("not YAML",)),
        (("planned:\n- a\n- d", "planned: a"), ("planned", "a")),
        (("controller:\n  hydraulics: high\n  interlock: closed", "controller: [high]"), ("section",)),
        (("confirmed: true", "confirmed: 1"), ("offsets_before.confirmed", "1", "true")),
        (("\n...\n", "\n"), ("damaged", "end", "missing")),
    ],
)
def test_a_damaged_file_is_refused_with_path_and_words(
    change: tuple[str, str], words: tuple[str, ...], tmp_path: Path
) -> None:
    path = procedure.write(record(), tmp_path)
    text = path.read_text()
    assert change[0] in text
    path.write_text(text.replace(*change))
    with pytest.raises(ConfigError) as error:
        procedure.read(tmp_path)
    assert all(problem.startswith(f"{path}: ") for problem in error.value.problems)
    assert mentions(str(error.value), *words)


def test_a_file_that_was_torn_off_anywhere_is_refused(tmp_path: Path) -> None:
    path = procedure.write(record(), tmp_path)
    whole = path.read_bytes()
    for size in range(0, len(whole) - 1, 7):
        path.write_bytes(whole[:size])
        with pytest.raises(ConfigError, match=r"procedure\.yaml: "):
            procedure.read(tmp_path)


def test_no_file_and_a_place_without_room_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=naming("procedure.yaml", "file")):
        procedure.read(tmp_path)
    (tmp_path / "taken").write_text("")
    with pytest.raises(ConfigError, match=naming("cannot be written")):
        procedure.write(record(), tmp_path / "taken")
    (tmp_path / "procedure.yaml").write_bytes(b"\x80\x81")
    with pytest.raises(ConfigError, match=naming("cannot be read")):
        procedure.read(tmp_path)
