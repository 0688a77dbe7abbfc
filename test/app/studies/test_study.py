# SPDX-License-Identifier: Apache-2.0
"""Tests of studies: design, journal, interruption, and the same table on every back end."""

from __future__ import annotations

import csv
import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from command_fixtures import RunCommand
from messages import mentions, naming
from programs import begun

import rths_nodes
from rths_nodes.app.cli import main
from rths_nodes.app.commands.studies import _summary
from rths_nodes.app.studies import study
from rths_nodes.app.studies.engine import Where
from rths_nodes.app.studies.study import NAME, Design, Journal, StudyFile
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
SCATTERED = {"set": {"scatter": {ESTIMATE: {"normal": [15, 1]}}}, "plants": 1}
HERE = Where()


def designed(**changes: Any) -> Design:
    return Design(from_data(StudyFile, SMALL | changes), Path())


def run_study(plan: Design, folder: Path, where: Where = HERE) -> study.StudyTable:
    with Journal(folder) as journal:
        lost = study.run(plan, journal, where)
        return study.table(plan, journal.results | lost)


def text(table: study.StudyTable, folder: Path) -> str:
    """Return the table as text, in which missing values are equal."""
    write_columns(table.columns, folder / "compared.csv")
    return (folder / "compared.csv").read_text()


@pytest.fixture
def study_file(tmp_path: Path) -> str:
    (tmp_path / "study.yaml").write_text(dump(SMALL))
    return str(tmp_path / "study.yaml")


def test_rows_are_all_combinations_with_the_same_plants() -> None:
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


def test_levels_may_be_lists_grids_settings_or_cases() -> None:
    laws = {
        "none": {"compensator.type": "none"},
        "inverse": {"compensator.type": "inverse", "compensator.alpha": 29},
    }
    cases = {"list": ["alpha_29_k_p_0", "alpha_15_k_p_04"]}
    rows = designed(factors={"law": {"settings": laws}, "case": cases}, plants=0).rows
    assert [row.name for row in rows[:2]] == ["law=none, case=alpha_29_k_p_0", "law=none, case=alpha_15_k_p_04"]
    types = [files.from_text(row.scenario, "").compensator.type_name for row in rows]
    assert types[::2] == ["none", "inverse"]
    grid = designed(factors={GAIN: {"log_grid": [0.01, 1.0, 3]}}, plants=0)
    assert [row.levels[GAIN] for row in grid.rows] == pytest.approx([0.01, 0.1, 1.0])


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"factors": {"compensator.k_p": {"list": [1.0]}}}, ("factors", "compensator.k_p", "unknown")),
        ({"factors": {GAIN: {"list": [0.1, -1.0]}}}, ("factors", "compensator.k_p_per_mm2", "-1 1/mm^2", ">= 0")),
        ({"factors": {GAIN: {"lst": [0.1]}}}, ("unknown", "lst", "list")),
        ({"factors": {GAIN: 3}}, ("list", "grid")),
        ({"factors": {GAIN: {"list": []}}}, ("factors.compensator.k_p_per_mm2.list", "list")),
        ({"factors": {GAIN: {"grid": [0, 1]}}}, ("number", "values")),
        ({"factors": {GAIN: {"grid": [0, 1, float("inf")]}}}, ("number", "values")),
        ({"factors": {GAIN: {"grid": [0, 1, float("nan")]}}}, ("number", "values")),
        ({"factors": {GAIN: {"grid": [0, 10**400, 2]}}}, ("number", "values")),
        ({"factors": {GAIN: {"log_grid": [0, 1, 3]}}}, ("last", "> 0")),
        ({"factors": {GAIN: {"normal": [0, -1]}}}, ("factors.compensator.k_p_per_mm2.normal", "[0, -1]")),
        ({"factors": {"case": {"list": ["alpha_3"]}}}, ("factors.case.list", "unknown", "alpha_3")),
        ({"factors": {"case": {"list": [["alpha_3"]]}}}, ("factors.case.list", "unknown", "alpha_3")),
        ({"factors": {"law": {"settings": [1]}}}, ("mapping", "names")),
        ({"factors": {"outcome": {"settings": {"a": {GAIN: 1}}}}}, ("factors.outcome", "column")),
        ({"factors": {"J1": {"settings": {"a": {GAIN: 1}}}}}, ("factors.J1", "column")),
        ({"factors": {GAIN: {"grid": [0, 1, 400]}, ESTIMATE: {"grid": [1, 2, 400]}}}, ("160000", "<= 100000")),
        ({"factors": {ALPHA: {"normal": [29, 3]}}}, ("plants", "0", "> 0", ALPHA)),
        ({"indices": ["J1", "J99"]}, ("indices", "unknown", "J99")),
        ({"name": "../x"}, ("name", "folder")),
        ({"name": "a\0b"}, ("name", "folder")),
        ({"plants": 10**9}, ("plants", "1000000000", "<= 100000")),
        ({"scenario": "chen"}, ("unknown", "scenario", "chen")),
        ({"set": {"duratio": 1}}, ("set", "duratio", "unknown")),
        ({"set": {"scatter": {GAIN: {"normal": [1, 1]}}}, "plants": 1}, ("compensator.k_p_per_mm2", "scatters")),
        (SCATTERED | {"factors": {"case": {"list": ["alpha_15_k_p_0"]}}}, (ESTIMATE, "scatters")),
    ],
)
def test_invalid_studies_are_refused(changes: dict[str, Any], parts: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*parts)):
        designed(**(PLAIN | changes))


def test_scenario_path_is_relative_to_study(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(dump(files.load(PAPER, ["name=own"]).data()))
    (tmp_path / "study.yaml").write_text(dump(SMALL | {"scenario": "own.yaml"}))
    assert study.load(tmp_path / "study.yaml").base.name == "own"
    (tmp_path / "wrong.yaml").write_text(dump(SMALL | {"plant": 3}))
    with pytest.raises(ConfigError, match=naming("wrong.yaml", "plant", "unknown")):
        study.load(tmp_path / "wrong.yaml")


def test_row_equals_single_run_of_its_scenario(tmp_path: Path) -> None:
    table = run_study(designed(), tmp_path / "out")
    assert table.finished.all()
    (tmp_path / "row.yaml").write_text(table.columns["scenario"][7])
    expected = rths_nodes.run(tmp_path / "row.yaml").metrics["axes"]["story_1"]
    assert table.columns["J2"][7] == pytest.approx(expected["error_norm_percent"], rel=1e-9)
    assert table.columns["max_error_mm"][7] == pytest.approx(1e3 * expected["max_error_m"], rel=1e-9)


def test_two_processes_give_the_same_table(tmp_path: Path) -> None:
    one, two = run_study(designed(), tmp_path / "one"), run_study(designed(), tmp_path / "two", Where(2))
    assert text(one, tmp_path) == text(two, tmp_path)


@pytest.mark.parametrize(
    ("factors", "overrides", "outcome", "reason"),
    [
        (
            {"substeps": {"list": [10, 1000]}},
            {"duration": 2.0, "integrator.type": "central_difference"},
            "refused",
            "stability limit",
        ),
        ({"axes.story_1.limits.force": {"list": [1.7e6, 10.0]}}, {"duration": 4.0}, "tripped", "limits.force"),
    ],
)
def test_failed_runs_are_rows_with_reasons(
    factors: dict[str, Any], overrides: dict[str, Any], outcome: str, reason: str, tmp_path: Path
) -> None:
    table = run_study(designed(factors=factors, plants=0, set=overrides), tmp_path)
    assert table.columns["outcome"] == ["finished", outcome]
    assert reason in table.columns["reason"][1]
    assert _summary(table).endswith("worst inf") == (outcome == "tripped")


def test_invalid_plants_are_refused_rows(tmp_path: Path) -> None:
    columns = run_study(designed(factors={ALPHA: {"uniform": [0.2, 1.8]}}, plants=6), tmp_path).columns
    assert 0 < columns["outcome"].count("refused") < 6
    assert "axes.story_1.actuator.alpha" in columns["reason"][columns["outcome"].index("refused")]


def test_finished_runs_are_not_repeated(tmp_path: Path) -> None:
    run_study(designed(factors={GAIN: {"list": [0.0, 0.4]}}, plants=0), tmp_path)
    first = (tmp_path / NAME).read_text().splitlines()
    assert len(first) == 2
    table = run_study(designed(factors={GAIN: {"list": [0.4, 0.2]}}, plants=0), tmp_path)
    assert table.columns[GAIN] == [0.4, 0.2]
    lines = (tmp_path / NAME).read_text().splitlines()
    assert (lines[:2], len(lines)) == (first, 3)


def test_runs_are_repeated_after_change_of_file(tmp_path: Path) -> None:
    record = tmp_path / "record.txt"
    ground = {"type": "record", "file": str(record), "step": 0.01, "unit": "m/s^2"}
    plan = {"factors": {GAIN: {"list": [0.0]}}, "plants": 0, "set": {"duration": 0.2, "ground_motion": ground}}

    def largest(acceleration: float, folder: str) -> object:
        record.write_text(f"{acceleration}\n" * 30)
        return run_study(designed(**plan), tmp_path / folder).columns["min_displacement_mm"]

    assert largest(0.5, "out") != largest(1.0, "out") == largest(1.0, "other")


def test_runs_are_repeated_for_indices_of_response(tmp_path: Path) -> None:
    run_study(designed(**PLAIN), tmp_path / "out")
    again, other = (
        run_study(designed(**PLAIN, indices=["response_x"]), tmp_path / name) for name in ("out", "other")
    )
    assert again.columns["response_x"] == other.columns["response_x"]


def test_run_of_truncated_line_is_repeated(tmp_path: Path) -> None:
    expected = run_study(designed(), tmp_path)
    (tmp_path / NAME).write_bytes((tmp_path / NAME).read_bytes()[:-7])
    with Journal(tmp_path) as journal:
        assert len(study.undone(designed(), journal)) == 1
    assert text(run_study(designed(), tmp_path), tmp_path) == text(expected, tmp_path)
    assert (tmp_path / NAME).read_bytes().count(b"\n") == 12


def refusal_of_changed(folder: Path, change: Callable[[bytes], bytes]) -> str:
    """Return the refusal of a journal in which line 3 was changed."""
    lines = (folder / NAME).read_bytes().splitlines(keepends=True)
    (folder / NAME).write_bytes(b"".join([*lines[:2], change(lines[2]), *lines[3:]]))
    with pytest.raises(ConfigError) as excinfo:
        Journal(folder)
    (folder / NAME).write_bytes(b"".join(lines))
    return str(excinfo.value)


def flip(line: bytes, index: int, bit: int) -> bytes:
    return line[:index] + bytes([line[index] ^ bit]) + line[index + 1 :]


def test_damaged_line_is_refused_with_its_number(tmp_path: Path) -> None:
    expected = run_study(designed(), tmp_path)
    lines = (tmp_path / NAME).read_bytes().splitlines(keepends=True)
    length = len(lines[2]) - 1
    for index in {*range(0, length, 37), *range(length - 22, length)}:  # some bytes, and all of the checksum
        for bit in (0x01, 0x20, 0x80):
            error = refusal_of_changed(tmp_path, partial(flip, index=index, bit=bit))
            assert f"{NAME}, line 3: is damaged, " in error, (index, bit)
    error = refusal_of_changed(tmp_path, lambda line: line.replace(b'"samples":210', b'"samples":211'))
    assert mentions(error, "checksum", "Delete")
    (tmp_path / NAME).write_bytes(b"".join(lines[:2] + lines[3:]))
    assert text(run_study(designed(), tmp_path), tmp_path) == text(expected, tmp_path), "line 3 was not repeated"


def test_journal_without_checksums_is_read(tmp_path: Path) -> None:
    """Early journals of version 0.1.0 have no checksums; lines without a result are still refused."""
    expected = run_study(designed(), tmp_path)
    lines = (tmp_path / NAME).read_bytes().splitlines()
    old = b"".join(line.rpartition(b',"crc32":')[0] + b"}\n" for line in lines)
    (tmp_path / NAME).write_bytes(old)
    assert {*json.loads(old.splitlines()[0])} == {"key", "result"}
    with Journal(tmp_path) as journal:
        assert study.undone(designed(), journal) == []
        assert text(study.table(designed(), journal.results), tmp_path) == text(expected, tmp_path)
    error = refusal_of_changed(tmp_path, lambda line: line.replace(b'"outcome"', b'"outcoma"'))
    assert mentions(error, NAME, "line 3")


def test_command_refuses_damaged_journal(study_file: str, tmp_path: Path, refusal: RunCommand) -> None:
    run_study(designed(), tmp_path / "out")
    journal = tmp_path / "out" / NAME
    journal.write_bytes(journal.read_bytes().replace(b"finished", b"finishad", 1))
    error = refusal("study", study_file, "--jobs", "1", "--out", str(tmp_path / "out"))
    assert mentions(error, journal, "line 1")


def test_second_study_in_same_folder_is_refused(tmp_path: Path) -> None:
    with Journal(tmp_path), pytest.raises(ConfigError, match=naming("study", "writes")):
        Journal(tmp_path)


@pytest.mark.parametrize("notes", ["my notes\n", "my notes", '{"mine": 1}'])
def test_other_file_is_not_overwritten_by_journal(notes: str, tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(notes)
    with pytest.raises(ConfigError, match=naming("runs.jsonl", "journal")):
        Journal(tmp_path)
    assert (tmp_path / NAME).read_text() == notes


def test_parquet_equals_csv(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    table = run_study(designed(), tmp_path / "out")
    write_columns(table.columns, tmp_path / "table.csv")
    study.write_parquet(table, tmp_path / "table.parquet")
    with open(tmp_path / "table.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    columns = parquet.read_table(tmp_path / "table.parquet").to_pydict()
    assert list(columns) == list(rows[0])
    assert columns["J2"] == [float(row["J2"]) for row in rows] == table.columns["J2"]
    assert columns["scenario"] == [row["scenario"] for row in rows]
    assert json.loads(rows[0]["scenario"])["compensator"]["k_p_per_mm2"] == 0.0


def test_missing_pyarrow_leaves_csv_only(
    study_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert main(["study", study_file, "--out", str(tmp_path / "out"), "--jobs", "1"]) == 0
    assert mentions(capsys.readouterr().err, "pip", "pyarrow")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["runs.jsonl", "study.html", "table.csv"]
    with pytest.raises(ConfigError, match="pyarrow is missing"):
        study.write_parquet(run_study(designed(), tmp_path / "out"), tmp_path / "x")


def test_command_prints_summary_and_json(study_file: str, tmp_path: Path, output: RunCommand) -> None:
    command = ["study", study_file, "--out", str(tmp_path / "out"), "--jobs", "1"]
    summary = output(*command)
    for part in ("gains: 12 runs, 0 of them done", "12 finished", "worst run", "k_p_per_mm2=", "study.html"):
        assert part in summary
    assert mentions(summary.splitlines()[1], "gains", "12 finished", "median", "worst")
    data = json.loads(output(*command, "--json"))
    assert data["outcomes"] == {"finished": 12}
    assert data["units"] == {"J1": "ms", "J2": "%", "J3": "%", "max_error_mm": "mm"}
    (group,) = data["groups"]
    assert (group["group"], group["runs"], group["failed"], {*group["indices"]}) == ("", 12, 0, {*data["units"]})
    assert set(group["indices"]["J2"]) == {"low", "median", "high", "worst"}


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--jobs", "0"], ("jobs", "0", ">= 1")),
        (["--jobs", "2", "--scheduler", "tcp://x:1"], ("must be omitted", "scheduler")),
    ],
)
def test_invalid_options_are_refused(
    options: list[str], parts: tuple[str, ...], study_file: str, refusal: RunCommand
) -> None:
    assert mentions(refusal("study", study_file, *options), *parts)


@pytest.mark.nodes
@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.soak)])
def test_killed_study_continues(tmp_path: Path, number: int) -> None:
    """No run is repeated, and the table is the same as without interruption."""
    factors = SMALL["factors"] | {GAIN: {"grid": [0.0, 0.4, 5]}, ESTIMATE: {"list": [27, 29, 31]}}
    (tmp_path / "study.yaml").write_text(dump(SMALL | {"set": {"duration": 3.0}, "factors": factors}))
    command = ["study", str(tmp_path / "study.yaml"), "--out"]
    process = begun([sys.executable, "-m", "rths_nodes.app.cli", *command, str(tmp_path / "out"), "--jobs", "2"])
    journal = tmp_path / "out" / NAME
    while not journal.exists() or journal.read_bytes().count(b"\n") < 4:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(number)
    _, err = process.communicate()  # returns after its child processes, which share its outputs, have ended
    assert process.returncode == (-number if number == signal.SIGKILL else 130), err
    if number == signal.SIGINT:
        assert mentions(err, "repeat the command", "continue")
        assert "Traceback" not in err
    kept = journal.read_bytes().splitlines()[:-1]
    assert len(kept) < 30
    assert main([*command, str(tmp_path / "out"), "--jobs", "1"]) == 0
    lines = journal.read_bytes().splitlines()
    assert lines[: len(kept)] == kept
    assert len({json.loads(line)["key"] for line in lines}) == len(lines) == 30
    assert main([*command, str(tmp_path / "reference"), "--jobs", "1"]) == 0
    assert (tmp_path / "out" / study.CSV).read_bytes() == (tmp_path / "reference" / study.CSV).read_bytes()


@pytest.mark.nodes
def test_cluster_gives_the_same_table(cluster: Any, tmp_path: Path) -> None:
    local = run_study(designed(), tmp_path / "local")
    on_cluster = run_study(designed(), tmp_path / "cluster", Where(scheduler=cluster.scheduler_address))
    assert text(local, tmp_path) == text(on_cluster, tmp_path)


def design_of_400_runs() -> Design:
    factors = {GAIN: {"grid": [0.0, 0.4, 5]}, ESTIMATE: {"grid": [15, 45, 4]}, ALPHA: {"normal": [29.0, 3.0]}}
    return designed(factors=factors, plants=20)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_400_runs_are_the_same_on_joblib_and_cluster(cluster: Any, tmp_path: Path) -> None:
    local = run_study(design_of_400_runs(), tmp_path / "local", Where(2))
    on_cluster = run_study(design_of_400_runs(), tmp_path / "cluster", Where(scheduler=cluster.scheduler_address))
    assert len(local) == 400
    assert local.finished.all()
    assert text(local, tmp_path) == text(on_cluster, tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_study_survives_killed_worker(cluster: Any, tmp_path: Path) -> None:
    plan, killed = design_of_400_runs(), []
    where = Where(scheduler=cluster.scheduler_address)
    with Journal(tmp_path) as journal:

        def kill_one(shares: Any) -> None:
            if sum(shares) >= 50 and not killed:
                killed.append(cluster.workers[0].process.pid)
                os.kill(killed[0], signal.SIGKILL)

        assert study.run(plan, journal, where, kill_one) == {}
        table = study.table(plan, journal.results)
    assert killed
    assert len(table) == 400
    assert table.finished.all()


SCATTER = {
    ALPHA: {"normal": [29.0, 6.0]},
    "axes.story_1.specimen.stiffness": {"normal": [7.6e6, 8.0e5]},
    GAIN: {"uniform": [0.0, 3.0]},
}


def test_table_does_not_depend_on_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some plants trip; all bytes are compared."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    changes = {"duration": 4.0, "scatter": SCATTER}
    plan = designed(set=changes, factors={ESTIMATE: {"list": [15.0, 29.0]}}, plants=6, seed=3)
    tables = []
    for engine in ("python", "compiled"):
        table = run_study(plan, tmp_path / engine, Where(engine=engine))
        tables.append(text(table, tmp_path))
        assert set(table.outcomes()) == {"finished", "tripped"}
    assert tables[0] == tables[1]


def test_engine_is_chosen_by_number_of_samples() -> None:
    scenario = files.load("chen_ricles_2010")
    for samples, automatic in ((1e5, "kernels"), (1e8, "compiled")):  # some seconds, and half an hour
        engines = [Where(engine=engine).engine_of(scenario, samples) for engine in ("auto", "python", "compiled")]
        assert engines == [automatic, "python", "compiled"]


def test_reason_against_compilation_is_printed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    small = SMALL | PLAIN | {"set": {"duration": 0.1, "port.trigger": True}}
    Path("trigger.yaml").write_text(dump(small), encoding="utf-8")
    assert main(["study", "trigger.yaml", "--jobs", "1", "--engine", "compiled"]) == 0
    assert capsys.readouterr().err.count("engine python: port: ") == 1
