# SPDX-License-Identifier: Apache-2.0
"""Studies: their design, that they can be killed at any time, and one table wherever they were done."""

from __future__ import annotations

import csv
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from messages import mentions, naming

import rths_nodes
from rths_nodes.app.cli import main
from rths_nodes.app.studies import design, study
from rths_nodes.app.studies.design import Design, StudyFile
from rths_nodes.app.studies.engine import Where
from rths_nodes.app.studies.study import NAME, Journal
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.text_files import write_columns
from rths_nodes.core.validation import from_data
from rths_nodes.core.yaml_text import dump
from rths_nodes.loop.scenario import files

PAPER = "chen_ricles_2010"
GAIN, ESTIMATE, ALPHA = "compensator.k_p_per_mm2", "compensator.alpha_es", "axes.story_1.actuator.alpha"
SMALL: dict[str, Any] = {
    "version": 1,
    "name": "gains",
    "scenario": PAPER,
    "set": {"duration": 0.2},
    "factors": {GAIN: {"list": [0.0, 0.4]}, ESTIMATE: {"grid": [15, 45, 3]}, ALPHA: {"normal": [29.0, 3.0]}},
    "plants": 2,
}

PLAIN = {"factors": {GAIN: {"list": [0.0, 0.4]}}, "plants": 0}
HERE = Where()


def designed(**changes: Any) -> Design:
    return Design(from_data(StudyFile, SMALL | changes), Path())


def done(of: Design, folder: Path, where: Where = HERE) -> study.StudyTable:
    with Journal(folder) as journal:
        lost = study.run(of, journal, where)
        return study.table(of, journal.results | lost)


def text(of: study.StudyTable, folder: Path) -> str:
    """The whole table, in which nothing is equal to nothing."""
    write_columns(of.columns, folder / "compared.csv")
    return (folder / "compared.csv").read_text()


# Design


def test_the_runs_are_all_combinations_with_the_same_plants() -> None:
    rows = designed().rows
    assert [row.number for row in rows] == list(range(12))
    levels = [(row.levels[GAIN], row.levels[ESTIMATE], row.plant.number) for row in rows]
    assert levels == list(itertools.product((0.0, 0.4), (15.0, 30.0, 45.0), (1, 2)))
    assert rows[3].name == "k_p_per_mm2=0, alpha_es=30, plant 2"
    for row in rows:
        scenario = files.from_text(row.scenario, "row")
        assert scenario.compensator.k_p_per_mm2 == row.levels[GAIN]
        assert scenario.axes["story_1"].actuator.alpha == rows[row.plant.number - 1].plant.values[ALPHA]
    assert len({row.key for row in rows}) == 12


def test_levels_are_lists_grids_settings_and_cases() -> None:
    laws = {
        "none": {"compensator.type": "none"},
        "inverse": {"compensator.type": "inverse", "compensator.alpha": 29},
    }
    of = designed(
        factors={"law": {"settings": laws}, "case": {"list": ["alpha_29_k_p_0", "alpha_15_k_p_04"]}}, plants=0
    )
    names = [row.name for row in of.rows]
    assert names[:2] == ["law=none, case=alpha_29_k_p_0", "law=none, case=alpha_15_k_p_04"]
    assert [files.from_text(row.scenario, "").compensator.type_name for row in of.rows][::2] == [
        "none",
        "inverse",
    ]
    grid = designed(factors={GAIN: {"log_grid": [0.01, 1.0, 3]}}, plants=0)
    assert [row.levels[GAIN] for row in grid.rows] == pytest.approx([0.01, 0.1, 1.0])


def test_a_combination_that_does_not_fit_together_is_a_row_with_its_reason(tmp_path: Path) -> None:
    """One time step is beyond the stability limit of the integrator."""
    steps = {"substeps": {"list": [10, 1000]}}
    of = designed(factors=steps, plants=0, set={"duration": 2.0, "integrator.type": "central_difference"})
    found = done(of, tmp_path)
    assert found.columns["outcome"] == ["finished", "refused"]
    assert "stability limit" in found.columns["reason"][1]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"factors": {"compensator.k_p": {"list": [1.0]}}}, ("factors", "compensator.k_p", "unknown")),
        (
            {"factors": {GAIN: {"list": [0.1, -1.0]}}},
            ("factors", "compensator.k_p_per_mm2", "-1 1/mm^2", ">= 0"),
        ),
        ({"factors": {GAIN: {"lst": [0.1]}}}, ("unknown", "lst", "list")),
        ({"factors": {GAIN: 3}}, ("list", "grid")),
        ({"factors": {GAIN: {"list": []}}}, ("factors.compensator.k_p_per_mm2.list", "list")),
        ({"factors": {GAIN: {"grid": [0, 1]}}}, ("number", "values")),
        ({"factors": {GAIN: {"log_grid": [0, 1, 3]}}}, ("last", "> 0")),
        ({"factors": {GAIN: {"normal": [0, -1]}}}, ("factors.compensator.k_p_per_mm2.normal", "[0, -1]")),
        ({"factors": {"case": {"list": ["alpha_3"]}}}, ("factors.case.list", "unknown", "alpha_3")),
        ({"factors": {"law": {"settings": [1]}}}, ("mapping", "names")),
        (
            {"factors": {GAIN: {"grid": [0, 1, 400]}, ESTIMATE: {"grid": [1, 2, 400]}}},
            ("160000", "<= 100000"),
        ),
        ({"factors": {ALPHA: {"normal": [29, 3]}}}, ("plants", "0", "> 0", ALPHA)),
        ({"indices": ["J1", "J99"]}, ("indices", "unknown", "J99")),
        ({"name": "../x"}, ("name", "folder")),
        ({"scenario": "chen"}, ("unknown", "scenario", "chen")),
        ({"set": {"duratio": 1}}, ("set", "duratio", "unknown")),
        (
            {"set": {"scatter": {GAIN: {"normal": [1, 1]}}}, "plants": 1},
            ("compensator.k_p_per_mm2", "scatters"),
        ),
    ],
)
def test_what_cannot_be_studied_is_refused_before_anything_runs(
    changes: dict[str, Any], words: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError, match=naming(*words)):
        designed(**(PLAIN | changes))


def test_a_scenario_beside_the_study_is_found(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(dump(files.load(PAPER, ["name=own"]).data()))
    (tmp_path / "study.yaml").write_text(dump(SMALL | {"scenario": "own.yaml"}))
    assert design.load(tmp_path / "study.yaml").base.name == "own"
    (tmp_path / "wrong.yaml").write_text(dump(SMALL | {"plant": 3}))
    with pytest.raises(ConfigError, match=naming("wrong.yaml", "plant", "unknown")):
        design.load(tmp_path / "wrong.yaml")


# Runs


def test_a_row_is_an_ordinary_run(tmp_path: Path) -> None:
    """And its resolved scenario, saved as a file, gives it again."""
    found = done(designed(), tmp_path / "out")
    assert found.finished.all()
    (tmp_path / "row.yaml").write_text(found.columns["scenario"][7])
    again = rths_nodes.run(tmp_path / "row.yaml").metrics["axes"]["story_1"]
    assert found.columns["J2"][7] == pytest.approx(again["error_norm_percent"], rel=1e-9)
    assert found.columns["max_error_mm"][7] == pytest.approx(1e3 * again["max_error_m"], rel=1e-9)


def test_two_processes_give_the_same_table(tmp_path: Path) -> None:
    one, two = done(designed(), tmp_path / "one"), done(designed(), tmp_path / "two", Where(2))
    assert text(one, tmp_path) == text(two, tmp_path)


def test_a_run_that_fails_is_a_row_with_its_reason(tmp_path: Path) -> None:
    limits = {"axes.story_1.limits.force": {"list": [1.7e6, 10.0]}}
    found = done(designed(factors=limits, plants=0, set={"duration": 4.0}), tmp_path)
    assert found.columns["outcome"] == ["finished", "tripped"]
    assert "limits.force" in found.columns["reason"][1]
    wrong = done(designed(factors={ALPHA: {"uniform": [0.2, 1.8]}}, plants=6), tmp_path)
    refused = [row for row, outcome in enumerate(wrong.columns["outcome"]) if outcome == "refused"]
    assert 0 < len(refused) < 6
    assert "axes.story_1.actuator.alpha" in wrong.columns["reason"][refused[0]]


def test_what_is_done_is_not_repeated(tmp_path: Path) -> None:
    done(designed(factors={GAIN: {"list": [0.0, 0.4]}}, plants=0), tmp_path)
    lines = (tmp_path / NAME).read_text().splitlines()
    assert len(lines) == 2
    found = done(designed(factors={GAIN: {"list": [0.4, 0.2]}}, plants=0), tmp_path)
    assert found.columns[GAIN] == [0.4, 0.2]
    assert (tmp_path / NAME).read_text().splitlines()[:2] == lines
    assert len((tmp_path / NAME).read_text().splitlines()) == 3


def test_a_line_that_was_not_written_to_its_end_is_done_again(tmp_path: Path) -> None:
    expected = done(designed(), tmp_path)
    whole = (tmp_path / NAME).read_bytes()
    (tmp_path / NAME).write_bytes(whole[:-7])
    with Journal(tmp_path) as journal:
        assert len(study.undone(designed(), journal)) == 1
    assert text(done(designed(), tmp_path), tmp_path) == text(expected, tmp_path)
    assert (tmp_path / NAME).read_bytes().count(b"\n") == 12


def damaged(folder: Path, change: Callable[[bytes], bytes]) -> str:
    """What is said of a journal in which line 3 was changed."""
    lines = (folder / NAME).read_bytes().splitlines(keepends=True)
    (folder / NAME).write_bytes(b"".join([*lines[:2], change(lines[2]), *lines[3:]]))
    with pytest.raises(ConfigError) as refused:
        Journal(folder)
    (folder / NAME).write_bytes(b"".join(lines))
    return str(refused.value)


def flipped(line: bytes, place: int, bit: int) -> bytes:
    return line[:place] + bytes([line[place] ^ bit]) + line[place + 1 :]


def test_a_line_that_is_not_as_it_was_written_is_refused_by_its_number(tmp_path: Path) -> None:
    expected = done(designed(), tmp_path)
    whole = (tmp_path / NAME).read_bytes()
    length = len(whole.splitlines()[2])
    for place in {*range(0, length, 37), *range(length - 22, length)}:  # any byte, and each of the check sum
        for bit in (0x01, 0x20, 0x80):
            told = damaged(tmp_path, partial(flipped, place=place, bit=bit))
            assert f"{NAME}, line 3: is damaged, " in told, (place, bit)
    told = damaged(tmp_path, lambda line: line.replace(b'"samples":210', b'"samples":211'))
    assert mentions(told, "checksum", "Delete")
    (tmp_path / NAME).write_bytes(
        b"".join(whole.splitlines(keepends=True)[:2] + whole.splitlines(keepends=True)[3:])
    )
    assert text(done(designed(), tmp_path), tmp_path) == text(expected, tmp_path), "the one line is done again"


def test_a_journal_without_check_sums_is_read(tmp_path: Path) -> None:
    """As version 0.1.0 wrote it at first; what is no result in it is refused all the same."""
    expected = done(designed(), tmp_path)
    lines = (tmp_path / NAME).read_bytes().splitlines()
    old = b"".join(line.rpartition(b',"crc32":')[0] + b"}\n" for line in lines)
    (tmp_path / NAME).write_bytes(old)
    assert {*json.loads(old.splitlines()[0])} == {"key", "result"}
    with Journal(tmp_path) as journal:
        assert study.undone(designed(), journal) == []
        assert text(study.table(designed(), journal.results), tmp_path) == text(expected, tmp_path)
    told = damaged(tmp_path, lambda line: line.replace(b'"outcome"', b'"outcoma"'))
    assert mentions(told, NAME, "line 3")


def test_a_damaged_journal_ends_the_command_with_2_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "study.yaml").write_text(dump(SMALL))
    command = ["study", str(tmp_path / "study.yaml"), "--jobs", "1", "--out", str(tmp_path / "out")]
    done(designed(), tmp_path / "out")
    journal = tmp_path / "out" / NAME
    journal.write_bytes(journal.read_bytes().replace(b"finished", b"finishad", 1))
    assert main(command) == 2
    assert mentions(capsys.readouterr().err, journal, "line 1")


def test_two_studies_do_not_write_into_one_folder(tmp_path: Path) -> None:
    with Journal(tmp_path), pytest.raises(ConfigError, match=naming("study", "writes")):
        Journal(tmp_path)


def test_a_file_that_is_no_journal_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("my notes\n")
    with pytest.raises(ConfigError, match=naming("runs.jsonl", "journal")):
        Journal(tmp_path)
    assert (tmp_path / NAME).read_text() == "my notes\n"


def test_parquet_holds_what_the_csv_holds(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    found = done(designed(), tmp_path / "out")
    write_columns(found.columns, tmp_path / "table.csv")
    study.write_parquet(found, tmp_path / "table.parquet")
    with open(tmp_path / "table.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    columns = parquet.read_table(tmp_path / "table.parquet").to_pydict()
    assert list(columns) == list(rows[0])
    assert columns["J2"] == [float(row["J2"]) for row in rows] == found.columns["J2"]
    assert columns["scenario"] == [row["scenario"] for row in rows]
    assert json.loads(rows[0]["scenario"])["compensator"]["k_p_per_mm2"] == 0.0


def test_without_pyarrow_there_is_only_the_csv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    (tmp_path / "study.yaml").write_text(dump(SMALL))
    assert main(["study", str(tmp_path / "study.yaml"), "--out", str(tmp_path / "out"), "--jobs", "1"]) == 0
    assert mentions(capsys.readouterr().err, "pip", "pyarrow")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["runs.jsonl", "study.html", "table.csv"]
    with pytest.raises(ConfigError, match="pyarrow is missing"):
        study.write_parquet(done(designed(), tmp_path / "out"), tmp_path / "x")


# The command


def test_the_command_tells_what_it_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "study.yaml").write_text(dump(SMALL))
    arguments = ["study", str(tmp_path / "study.yaml"), "--out", str(tmp_path / "out"), "--jobs", "1"]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    for words in ("gains: 12 runs, 0 of them done", "12 finished", "worst run", "k_p_per_mm2=", "study.html"):
        assert words in shown
    assert mentions(shown.splitlines()[1], "gains", "12 finished", "median", "worst")
    assert main([*arguments, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["outcomes"] == {"finished": 12}
    assert data["units"] == {"J1": "ms", "J2": "%", "J3": "%", "max_error_mm": "mm"}
    (group,) = data["groups"]
    assert (group["group"], group["runs"], group["failed"]) == ("", 12, 0)
    assert set(group["indices"]) == {"J1", "J2", "J3", "max_error_mm"}
    assert set(group["indices"]["J2"]) == {"low", "median", "high", "worst"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--jobs", "0"], ("jobs", "0", ">= 1")),
        (["--jobs", "2", "--scheduler", "tcp://x:1"], ("must be omitted", "scheduler")),
    ],
)
def test_options_that_make_no_sense_are_refused(
    words: list[str], message: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "study.yaml").write_text(dump(SMALL))
    assert main(["study", str(tmp_path / "study.yaml"), *words]) == 2
    assert mentions(capsys.readouterr().err, *message)


def started(file: Path, out: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "rths_nodes.app.cli", "study", str(file), "--out", str(out), *words]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.nodes
@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.soak)])
def test_a_study_that_was_killed_goes_on_where_it_was(tmp_path: Path, number: int) -> None:
    """It repeats nothing, and ends with the same table."""
    factors = SMALL["factors"] | {GAIN: {"grid": [0.0, 0.4, 5]}, ESTIMATE: {"list": [27, 29, 31]}}
    of = SMALL | {"set": {"duration": 3.0}, "factors": factors}
    (tmp_path / "study.yaml").write_text(dump(of))
    process = started(tmp_path / "study.yaml", tmp_path / "out", "--jobs", "2")
    journal = tmp_path / "out" / NAME
    while not journal.exists() or journal.read_bytes().count(b"\n") < 4:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(number)
    _, told = process.communicate()  # its processes have its outputs, too: they end with it
    assert process.returncode == (-number if number == signal.SIGKILL else 130), told
    if number == signal.SIGINT:
        assert mentions(told, "command", "continues")
        assert "Traceback" not in told
    kept = journal.read_bytes().splitlines()[:-1]
    assert len(kept) < 30
    alone = ["study", str(tmp_path / "study.yaml"), "--jobs", "1", "--out"]
    assert main([*alone, str(tmp_path / "out")]) == 0
    lines = journal.read_bytes().splitlines()
    assert lines[: len(kept)] == kept
    assert len({json.loads(line)["key"] for line in lines}) == len(lines) == 30
    assert main([*alone, str(tmp_path / "whole")]) == 0
    assert (tmp_path / "out" / study.CSV).read_bytes() == (tmp_path / "whole" / study.CSV).read_bytes()


@pytest.mark.nodes
def test_a_cluster_gives_the_same_table(cluster: Any, tmp_path: Path) -> None:
    here = done(designed(), tmp_path / "here")
    there = done(designed(), tmp_path / "there", Where(scheduler=cluster.scheduler_address))
    assert text(here, tmp_path) == text(there, tmp_path)


def many() -> Design:
    factors = {GAIN: {"grid": [0.0, 0.4, 5]}, ESTIMATE: {"grid": [15, 45, 4]}, ALPHA: {"normal": [29.0, 3.0]}}
    return designed(factors=factors, plants=20)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_four_hundred_runs_are_the_same_on_joblib_and_on_a_cluster(cluster: Any, tmp_path: Path) -> None:
    here = done(many(), tmp_path / "here", Where(2))
    there = done(many(), tmp_path / "there", Where(scheduler=cluster.scheduler_address))
    assert len(here) == 400
    assert here.finished.all()
    assert text(here, tmp_path) == text(there, tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_study_survives_a_worker_that_is_killed(cluster: Any, tmp_path: Path) -> None:
    of, killed = many(), []
    where = Where(scheduler=cluster.scheduler_address)
    with Journal(tmp_path) as journal:

        def kill_one(shares: Any) -> None:
            if sum(shares) >= 50 and not killed:
                killed.append(cluster.workers[0].process.pid)
                os.kill(killed[0], signal.SIGKILL)

        assert study.run(of, journal, where, kill_one) == {}
        found = study.table(of, journal.results)
    assert killed
    assert len(found) == 400
    assert found.finished.all()


SCATTER = {
    ALPHA: {"normal": [29.0, 6.0]},
    "axes.story_1.specimen.stiffness": {"normal": [7.6e6, 8.0e5]},
    GAIN: {"uniform": [0.0, 3.0]},
}


def test_the_table_does_not_depend_on_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With plants that trip: to the byte."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    changes = {"duration": 4.0, "scatter": SCATTER}
    of = designed(set=changes, factors={ESTIMATE: {"list": [15.0, 29.0]}}, plants=6, seed=3)
    tables = []
    for engine in ("python", "compiled"):
        table = done(of, tmp_path / engine, Where(engine=engine))
        tables.append(text(table, tmp_path))
        assert set(table.outcomes()) == {"finished", "tripped"}
    assert tables[0] == tables[1]


def test_few_runs_are_not_worth_a_compiler() -> None:
    scenario = files.load("chen_ricles_2010")
    for samples, by_itself in ((1e5, "kernels"), (1e8, "compiled")):  # some seconds, and half an hour
        found = [Where(engine=engine).engine_of(scenario, samples) for engine in ("auto", "python", "compiled")]
        assert found == [by_itself, "python", "compiled"]


def test_a_study_says_once_why_it_is_not_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    small = SMALL | PLAIN | {"set": {"duration": 0.1, "port.trigger": True}}
    Path("trigger.yaml").write_text(dump(small), encoding="utf-8")
    assert main(["study", "trigger.yaml", "--jobs", "1", "--engine", "compiled"]) == 0
    told = capsys.readouterr().err
    assert told.count("engine python: port: ") == 1
