# SPDX-License-Identifier: Apache-2.0
"""Entries of a scoreboard: what one group writes another one verifies; what was altered is found."""

from __future__ import annotations

import math
import shutil
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import fmus
import pytest
from messages import mentions

from rths_nodes.analysis.report.studies import Score
from rths_nodes.app.cli import main
from rths_nodes.app.studies import entries, scoreboard
from rths_nodes.app.studies.candidates import Candidate
from rths_nodes.core import registry, yaml_text
from rths_nodes.loop.scenario import files

BRIEF = ["chen_ricles_2010", "--set", "duration=1", "--set", "servo_rate=512", "--jobs", "1"]
SETTINGS = """\
mine: {type: linear, file: law.yaml}
inverse: {alpha: 14.0}
"""
LAW = "numerator: [0.027, 1]\ndenominator: [0.004, 1]\n"


@pytest.fixture(scope="module")
def entry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("group")
    (folder / "settings.yaml").write_text(SETTINGS)
    (folder / "law.yaml").write_text(LAW)
    (folder / "shaking.txt").write_text("".join(f"{0.5 * (-1) ** (n // 9)}\n" for n in range(120)))
    motion = {"type": "record", "file": str(folder / "shaking.txt"), "step": 0.01, "unit": "m/s^2"}
    words = [
        "--set",
        f"ground_motion={motion}",
        "--laws",
        "mine,inverse",
        "--settings",
        str(folder / "settings.yaml"),
        "--noise-seeds",
        "2",
    ]
    words += ["--out", str(folder / "out"), "--entry", str(folder / "entry.yaml")]
    assert main(["scoreboard", *BRIEF, *words]) == 0
    return folder / "entry.yaml"


def content_of(entry: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml_text.parse(entry.read_text(), "entry")
    return found


def test_an_entry_is_verified_elsewhere(
    entry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In another folder, without the files of the group."""
    moved = tmp_path / "theirs.yaml"
    moved.write_text(entry.read_text())
    assert str(entry.parent) not in moved.read_text()
    monkeypatch.chdir(tmp_path)
    assert main(["scoreboard", "--verify", "theirs.yaml", "--jobs", "1"]) == 0
    told = capsys.readouterr().out
    assert mentions(told, "mine", "stated")
    assert mentions(told, "inverse", "stated")
    assert "theirs.yaml: verified" in told
    assert "code: " not in told
    assert sorted(each.name for each in tmp_path.iterdir()) == ["theirs.yaml"]


@pytest.mark.parametrize(
    "alter",
    [
        lambda content: content["scores"][0]["high"].update({"J2": 0.1}),
        lambda content: content["laws"]["inverse"].update({"alpha": 15.0}),
        lambda content: content["scored"].update({"seed": 2}),
        lambda content: content.update({"made": "2020-01-01 00:00 UTC"}),
    ],
)
def test_an_entry_that_was_altered_is_refused(
    alter: Any, entry: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = content_of(entry)
    alter(content)
    altered = tmp_path / "altered.yaml"
    entries.write(content, altered)
    assert main(["scoreboard", "--verify", str(altered)]) == 2
    assert mentions(capsys.readouterr().err, "altered.yaml", "altered")


def test_numbers_that_do_not_come_out_are_told_though_the_digest_is_right(
    entry: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = content_of(entry)
    content["laws"]["inverse"]["alpha"] = 15.0
    content["code"]["files"] = "0123456789abcdef"
    forged = tmp_path / "forged.yaml"
    entries.write(content | {"digest": entries.digest(content)}, forged)
    assert main(["scoreboard", "--verify", str(forged), "--jobs", "1"]) == 3
    told = capsys.readouterr().out
    assert mentions(told, "mine", "stated")
    assert mentions(told, "inverse", "median")
    assert mentions(told, "forged.yaml", "1", "2", "rows")
    assert "code: files: 0123456789abcdef in the " in told


def test_entries_of_several_groups_stand_in_one_table(
    entry: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other, another = tmp_path / "other.yaml", tmp_path / "another.yaml"
    content = content_of(entry)
    content["scores"] = [row for row in content["scores"] if row["law"] == "inverse"]
    entries.write(content | {"digest": entries.digest(content)}, other)
    assert main(["scoreboard", "--merge", str(entry), str(other)]) == 0
    rows = [line.split()[:2] for line in capsys.readouterr().out.splitlines() if " A " in line]
    assert sorted(rows) == [["entry", "inverse"], ["entry", "mine"], ["other", "inverse"]]
    content["scored"]["seed"] = 7
    entries.write(content | {"digest": entries.digest(content)}, another)
    assert main(["scoreboard", "--merge", str(entry), str(another)]) == 2
    assert mentions(capsys.readouterr().err, "another", "scored")


def test_what_is_no_entry_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "none.yaml").write_text("version: 1\n")
    for name, words in (("none.yaml", "is not a scoreboard entry"), ("nowhere.yaml", "cannot be read")):
        assert main(["scoreboard", "--verify", str(tmp_path / name)]) == 2
        assert words in capsys.readouterr().err


def test_values_of_failed_runs_are_compared_from_the_second_version_on(entry: Path, tmp_path: Path) -> None:
    """The first one left failed runs out of its values, which a repetition cannot reproduce."""
    values = {"median": {"J2": 2.0}, "high": {"J2": math.inf}, "worst": {"J2": math.inf}}
    known = {("mine", "A"): Score("mine", "A", 20, 3, "", **values)}
    stored = {"law": "mine", "block": "A", "runs": 20, "failures": 3} | values
    finished = stored | {"high": {"J2": 2.5}, "worst": {"J2": 2.6}}
    assert entries._verdict(stored, known, 2).problems == ()
    assert len(entries._verdict(finished, known, 2).problems) == 2
    assert entries._verdict(finished, known, 1).problems == ()
    assert len(entries._verdict(finished | {"failures": 0}, known, 1).problems) == 3
    content = content_of(entry) | {"version": 1, "scores": [stored]}
    entries.write(content | {"digest": entries.digest(content)}, tmp_path / "first.yaml")
    assert entries.read(tmp_path / "first.yaml")["scores"] == [stored]


@pytest.mark.parametrize("name", ["../law.yaml", "/tmp/law.yaml", "..", "a/b"])
def test_a_file_of_an_entry_is_written_nowhere_else(
    name: str, entry: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = content_of(entry)
    content["files"][name] = "numerator: [1]\n"
    entries.write(content | {"digest": entries.digest(content)}, tmp_path / "theirs.yaml")
    assert main(["scoreboard", "--verify", str(tmp_path / "theirs.yaml"), "--jobs", "1"]) == 2
    assert mentions(capsys.readouterr().err, f"files.{name}", "folder")


def test_controllers_that_were_exported_take_part_and_are_verified_where_that_is_wanted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two groups with an FMU each; an entry carries them, and they run elsewhere only where somebody says so."""
    fmus.skip_without_fmi()
    build, law = fmus.example(), fmus.EXAMPLE / "controller.c"
    for group in ("group_a", "group_b"):
        (tmp_path / group).mkdir()
        build.build(law, build.OTHERS["controller"], tmp_path / group / "law.fmu")
    names = {each: each for each in ("target", "velocity", "measured", "command")}
    of = {"type": "fmu", "axes": {"story_1": names}}
    rows = {
        group: of | {"file": f"{group}/law.fmu", "parameters": {"delay": delay}}
        for group, delay in (("group_a", 0.02), ("group_b", 0.03))
    }
    (tmp_path / "settings.yaml").write_text(yaml_text.dump(rows))
    words = ["--laws", "group_a,group_b", "--settings", str(tmp_path / "settings.yaml"), "--noise-seeds", "1"]
    told = tmp_path / "entry.yaml"
    words += ["--out", str(tmp_path / "out"), "--entry", str(told)]
    assert main(["scoreboard", *BRIEF, *words]) == 0
    assert {row["law"] for row in content_of(told)["scores"]} == {"group_a", "group_b"}
    shutil.rmtree(tmp_path / "group_a")
    capsys.readouterr()
    assert main(["scoreboard", "--verify", str(told), "--jobs", "1"]) == 2
    refused = capsys.readouterr().err
    assert "group_a.file = group_a_law.fmu; group_b.file = group_b_law.fmu" in refused
    assert "--run-programs" in refused
    assert main(["scoreboard", "--verify", str(told), "--jobs", "1", "--run-programs"]) == 0
    assert mentions(capsys.readouterr().out, "group_a", "stated")


def test_the_code_of_a_law_of_another_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rths_nodes_of_a_lab.py").write_text(
        "from rths_nodes.control.compensators.none import NoCompensation as Mine\n"
        "class Law(Mine):\n    class Params(Mine.Params):\n        pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    points = EntryPoints([EntryPoint("law", "rths_nodes_of_a_lab:Law", "rths_nodes.compensator")])
    monkeypatch.setattr(registry, "_entry_points", lambda: points)
    registry._table.cache_clear()
    try:
        scenario, scored = files.load("chen_ricles_2010"), scoreboard.Scored((), 1, 0, 1, ("J2",))
        found = entries.begun(scenario, scored, [Candidate("law", {"type": "law"})], tmp_path)
    finally:
        registry._table.cache_clear()
    assert found["code"].keys() >= {"rths_nodes", "files", "python", "numpy", "scipy", "rths_nodes_of_a_lab"}
