# SPDX-License-Identifier: Apache-2.0
"""Tests of import and export: values, units and figures are preserved; unsuitable files are refused."""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from ends import largest_file
from matplotlib.figure import Figure
from messages import mentions
from scipy import io

import rths_nodes
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.identification.from_recording import estimate
from rths_nodes.analysis.report import document, tables
from rths_nodes.app import cli
from rths_nodes.app.commands import exchange
from rths_nodes.app.hosts import open_writer, recorded_topics
from rths_nodes.app.studies.prediction import predict
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.procedure_record import ProcedureRecord, RungRecord, SpecimenRecord
from rths_nodes.loop.scenario import files
from rths_nodes.mechanics.loading_model import load
from rths_nodes.recording import bag, procedure
from rths_nodes.recording.run import Run

NAME = "rths_benchmark_2020"
LIMITS = {"stroke": 0.05, "velocity": 0.5, "force": 2e5, "deceleration": 10.0}
STREAMS = ("target", "command", "displacement", "force")


def rths(*arguments: object) -> int:
    return cli.main([str(argument) for argument in arguments])


def written(folder: Path, data: dict[str, Any]) -> Path:
    path = folder / "columns.yaml"
    path.write_text(yaml.safe_dump(data))
    return path


# -- Import


@pytest.fixture(scope="module")
def original() -> Run:
    return rths_nodes.run(NAME, ["duration=6.5"])


@pytest.fixture(scope="module")
def matlab(original: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The histories of a run as by a program with millimetres and forces of the opposite sign."""
    path = tmp_path_factory.mktemp("elsewhere") / "results.mat"
    results = {"x": 1e3 * original.target, "m": 1e3 * original.displacement, "f": -1e-3 * original.force}
    histories = {"t": original.time, "u": 100.0 * original.command, "results": results}
    io.savemat(path, histories | {"floors": original.dof_displacement})
    return path


def columns(**changes: Any) -> dict[str, Any]:
    axis = {
        "target": {"column": "results.x", "unit": "mm"},
        "command": {"column": "u", "unit": "cm"},
        "displacement": {"column": "results.m", "unit": "mm"},
        "force": {"column": "results.f", "unit": "kN", "factor": -1},
    }
    floors = {f"x_{floor}": {"displacement": {"column": "floors", "index": floor}} for floor in (1, 2, 3)}
    data = {"version": 1, "time": {"column": "t"}, "axes": {"floor_1": axis}, "degrees_of_freedom": floors}
    return {name: value for name, value in (data | changes).items() if value is not None}


@pytest.fixture(scope="module")
def imported(matlab: Path) -> Path:
    """The recording that the command makes."""
    record = matlab.with_name("imported")
    named = ("--scenario", NAME, "--set", "recording.note=of 1998")
    assert rths("import", matlab, written(matlab.parent, columns()), "--record", record, *named) == 0
    return record


def test_imported_values_equal_original(imported: Path, original: Run) -> None:
    run = rths_nodes.read(imported)
    for name in (*STREAMS, "dof_displacement", "time", "step_time"):
        expected = getattr(original, name)
        np.testing.assert_allclose(getattr(run, name), expected, rtol=1e-12, atol=1e-18, err_msg=name)
    assert np.isnan(run.dof_velocity).all()
    assert np.isnan(run.true_displacement).all()
    assert (run.scenario.duration, run.scenario.recording.note, run.outcome) == (6.5, "of 1998", "finished")
    assert run.information["source"].startswith("results.mat, sha256 ")
    error, expected = (item.metrics["axes"]["floor_1"]["error_norm_percent"] for item in (run, original))
    assert error == pytest.approx(expected, rel=1e-9)


def test_estimates_and_predictions_equal_those_of_original(imported: Path, original: Run) -> None:
    runs = (rths_nodes.read(imported), original)
    delay, expected = (estimate(run)["floor_1"].loading.delay for run in runs)
    assert delay == pytest.approx(expected, rel=1e-9)
    assert 0.020 < delay < 0.030
    change = ["compensator={type: inverse, alpha: 100.0}"]
    delay, expected = (predict(run, change).indices["predicted"]["floor_1"]["delay_s"] for run in runs)
    assert delay == pytest.approx(expected, rel=1e-6)


def test_report_says_made_elsewhere(imported: Path, tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    page = tmp_path / "page.html"
    assert rths("report", imported, "--out", page) == 0
    text = page.read_text()
    assert mentions(text, "MADE", "ELSEWHERE")
    assert "SIMULATED" not in text
    assert mentions(text, "equation", "terms")
    assert mentions(text, "Response", "structure")
    assert "numerical substructure (computed)" not in text
    assert [str(warning.message) for warning in recwarn] == []


def test_text_without_scenario_is_fitted_but_not_computed_again(
    original: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = np.column_stack([1e3 * original.command, 1e3 * original.displacement])
    np.savetxt(tmp_path / "jack.csv", table, delimiter=";", fmt="%.17g", header="sent in mm; shown in mm")
    axis = {
        "command": {"column": "1", "unit": "mm"},
        "displacement": {"column": "2", "unit": "mm"},
        "limits": LIMITS,
    }
    path = written(tmp_path, {"version": 1, "name": "frame_7", "servo_rate": 4096, "axes": {"jack": axis}})
    record = tmp_path / "imported"
    arguments = ("import", tmp_path / "jack.csv", path, "--record", record)
    assert rths(*arguments) == 0
    run = rths_nodes.read(record)
    np.testing.assert_array_equal(run.target, run.command)
    np.testing.assert_allclose(run.displacement, original.displacement, rtol=1e-12, atol=1e-18)
    assert np.isnan(run.force).all()
    assert rths("estimate", record) == 0
    assert rths("report", record) == 0
    capsys.readouterr()
    assert rths("estimate", record, "--set", "ramp.type=linear") == 2
    message = capsys.readouterr().err
    assert mentions(message, "imported", "--scenario")
    assert rths(*arguments) == 2
    assert "imported" in capsys.readouterr().err


def test_test_without_limits_is_compared_with_simulation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    test = rths_nodes.run("predefined_sine", duration=2.5)
    test.to_csv(tmp_path / "test.csv")
    axis = {name: {"column": f"axis_1.{name} (m)"} for name in ("command", "displacement", "target")}
    axis["force"] = {"column": "axis_1.force (N)"}
    path = written(
        tmp_path, {"version": 1, "name": "sine", "time": {"column": "time (s)"}, "axes": {"axis_1": axis}}
    )
    assert rths("import", tmp_path / "test.csv", path, "--record", tmp_path / "measured") == 0
    assert mentions(capsys.readouterr().out, "axes.axis_1.limits", "missing")
    assert rths("estimate", tmp_path / "measured") == 0
    measured = rths_nodes.read(tmp_path / "measured")
    assert measured.samples == test.samples == 2560
    assert tables.limits(Evaluation(measured)).rows == []
    simulated = rths_nodes.run(
        "predefined_sine", "compensator.alpha_es=29", duration=2.0, record=str(tmp_path / "simulated")
    )
    panel = rths_nodes.overlay({"measured": measured, "simulated": simulated}, ax=Figure().subplots())
    for line, run in zip(panel.lines, (measured, simulated), strict=True):
        np.testing.assert_allclose(line.get_ydata(), 1e3 * run.displacement[:, 0])
    assert panel.get_ylabel() == "displacement (mm)"
    arguments = ("report", tmp_path / "measured", tmp_path / "simulated", "--out", tmp_path / "both.html")
    assert rths(*arguments, "--figures", "--format", "svg") == 0
    assert list((tmp_path / "both_figures").glob("*.svg"))


def test_number_of_samples_is_consistent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert rths("run", "predefined_sine", "--set", "duration=0.5", "--record", tmp_path / "sine") == 0
    assert mentions(capsys.readouterr().out, "512 samples")
    run = rths_nodes.read(tmp_path / "sine")
    assert run.samples == 512
    assert "512 samples" in repr(run)
    assert "512 samples" in run._repr_html_()
    assert document.particulars(Evaluation(run))["Samples"] == "512"
    assert len(run.to_dataframe()) == len(run.time) == run.samples + 1, "row k is sample k"


def test_imported_recording_identifies_same_model(tmp_path: Path) -> None:
    """A test with noise by ``rths identify``, exported and imported again, gives the same model to nine digits."""
    name, direct, again = "chen_ricles_2010", tmp_path / "direct.yaml", tmp_path / "again.yaml"
    noise = ("--orders", "1", "--duration", "20", "--record", tmp_path / "noise")
    assert rths("identify", name, "--out", direct, *noise) == 0
    run = rths_nodes.read(tmp_path / "noise" / "story_1")
    io.savemat(tmp_path / "noise.mat", {"u": run.command, "m": run.displacement})
    axis = {"command": {"column": "u"}, "displacement": {"column": "m"}}
    path = written(tmp_path, {"version": 1, "servo_rate": 1024, "axes": {"story_1": axis}})
    record = tmp_path / "imported"
    assert rths("import", tmp_path / "noise.mat", path, "--record", record, "--scenario", name) == 0
    assert rths("identify", name, "--orders", "1", "--from", record, "--out", again) == 0
    np.testing.assert_allclose(load(again).feedforward, load(direct).feedforward, rtol=1e-9, atol=0.0)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"time": None, "servo_rate": 1000.0}, ("1000 Hz", "4096 Hz", "rths_benchmark_2020")),
        ({"servo_rate": 4096.0}, ("exactly", "servo_rate")),
        ({"time": {"column": "result.x"}}, ("time.column", "unknown", "result.x", "results.x")),
        ({"time": {"column": "u"}}, ("increase", "equal", "steps")),
        ({"time": {"column": "u", "factor": 0.0}}, ("row 2", "steps", "0 s")),
        ({"time": {"column": "floors", "index": 4}}, ("time.index", "4", "floors")),
        ({"axes": {"jack": {"displacement": {"column": "u"}}}}, ("axes.jack", "target")),
        (
            {"axes": {"jack": {"displacement": {"column": "u"}, "target": {"column": "u"}}}},
            ("axes", "rths_benchmark_2020", "floor_1"),
        ),
        ({"degrees_of_freedom": {"x_4": {"displacement": {"column": "u"}}}}, ("unknown", "degree", "x_4")),
    ],
)
def test_unsuitable_columns_are_refused(
    changes: dict[str, Any], parts: tuple[str, ...], matlab: Path, tmp_path: Path
) -> None:
    path = written(tmp_path, columns(**changes))
    with pytest.raises(ConfigError) as refused:
        exchange.read(matlab, path, files.load(NAME))
    assert str(refused.value).startswith(f"{path}: ")
    assert mentions(str(refused.value), *parts)


def test_imported_record_has_no_soft_start(matlab: Path, tmp_path: Path) -> None:
    scenario = files.load(NAME, ["soft_start={amplitude: 0.001}"])
    record = exchange.read(matlab, written(tmp_path, columns()), scenario)
    assert record.scenario.soft_start is None
    assert record.scenario.samples + 1 == len(record.target)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a,b\n1,2\n3,x\n", ("line", "3", "3,x", "2")),
        ("a,b\n1,2\n3,nan\n5,6\n", ("row", "2", "nan", "finite")),
        ("# nothing\n", ("contains", "numbers")),
    ],
)
def test_text_without_numbers_is_refused(text: str, parts: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "jack.csv").write_text(text)
    axis = {"command": {"column": "a"}, "displacement": {"column": "b"}, "limits": LIMITS}
    path = written(tmp_path, {"version": 1, "name": "jack", "servo_rate": 100, "axes": {"jack": axis}})
    with pytest.raises(ConfigError) as refused:
        exchange.read(tmp_path / "jack.csv", path)
    assert mentions(str(refused.value), *parts)


# -- Export

SCRIPT = """\
import sys
from contextlib import suppress
from pathlib import Path
import numpy as np
folder = Path(sys.argv[1])
def table(path):
    with open(path) as stream:
        names = stream.readline().rstrip().split(",")
        rows = np.array([[float(cell or "nan") for cell in line.rstrip("\\n").split(",")] for line in stream])
    return dict(zip(names, rows.T))
tested = table(folder / "experimental_substructures" / "story_1" / "output" / "run.csv")
model = table(folder / "simulation_substructure" / "output" / "run.csv")
time, force = tested["time (s)"], tested["story_1.force (N)"]
moved, target = tested["story_1.displacement (m)"], tested["story_1.target (m)"]
error = 1e3 * (target - moved)
absorbed = np.sum(0.5 * (force[1:] + force[:-1]) * np.diff(moved))
print(repr(float(np.abs(error).max())), repr(float(1e-3 * np.abs(force).max())))
print(repr(float(absorbed)), repr(float(1e3 * np.abs(model["x.dof_displacement (m)"]).max())))
"""
"""Largest control error (mm), largest force (kN), energy (J), largest displacement (mm), by numpy alone."""


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recorded") / "run"
    rths_nodes.run("chen_ricles_2010", ["duration=4"], record=path)
    return path


@pytest.fixture(scope="module")
def run(recording: Path) -> Run:
    return rths_nodes.read(recording)


def exported(recording: Path, folder: Path, form: str) -> Path:
    assert rths("export", recording, "--out", folder, "--form", form) == 0
    return folder


def test_mat_file_has_names_of_run_and_is_imported_again(recording: Path, run: Run, tmp_path: Path) -> None:
    mat = exported(recording, tmp_path / "to", "mat") / "run.mat"
    stored = io.loadmat(mat, simplify_cells=True)
    for name in (*STREAMS, "compensator", "dof_displacement", "restoring_force"):
        values = getattr(run, name)
        np.testing.assert_array_equal(np.reshape(stored[name], values.shape), values, err_msg=name)
    np.testing.assert_array_equal(stored["time"], run.time)
    assert stored["units"]["force"] == "N"
    assert (stored["axes"], stored["test"]["outcome"]) == ("story_1", "finished")
    assert yaml.safe_load(stored["test"]["scenario"])["name"] == "chen_ricles_2010"
    axis = {name: {"column": name} for name in STREAMS}
    path = written(tmp_path, {"version": 1, "time": {"column": "time"}, "axes": {"story_1": axis}})
    assert rths("import", mat, path, "--scenario", "chen_ricles_2010", "--record", tmp_path / "in") == 0
    again = rths_nodes.read(tmp_path / "in")
    for name in STREAMS:
        np.testing.assert_array_equal(getattr(again, name), getattr(run, name))


def test_hdf5_has_units_and_columns(recording: Path, run: Run, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(exported(recording, tmp_path / "to", "hdf5") / "run.h5") as stored:
        np.testing.assert_array_equal(stored["samples/force"][()], run.force)
        np.testing.assert_array_equal(stored["steps/exact_acceleration"][()], run.exact_acceleration)
        assert stored["samples/force"].attrs["unit"] == "N"
        assert list(stored["samples/compensator"].attrs["columns"]) == list(run.compensator_names)
        assert stored.attrs["outcome"] == "finished"


@pytest.mark.parametrize("name", ["run.html", "figure.png", "run.mat", "run.h5", "schema.json"])
def test_full_disk_changes_no_earlier_file(name: str, recording: Path, run: Run, tmp_path: Path) -> None:
    def write() -> int:
        if name == "run.html":
            return rths("report", recording, "--out", path)
        if name == "schema.json":
            return rths("schema", "scenario", "--out", path)
        if name == "figure.png":
            return rths("compare", "predefined_sine", "--variant=", "--set=duration=0.1", "--figure", path)
        run.to_mat(path) if name == "run.mat" else exchange.write_hdf5(run, path)
        return 0

    if name == "run.h5":
        pytest.importorskip("h5py")
    path = tmp_path / name
    assert write() == 0
    before = path.read_bytes()
    with largest_file(1000), suppress(OSError):
        assert write() == 1
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [before]


def test_csv_has_all_digits(recording: Path, run: Run, tmp_path: Path) -> None:
    folder = exported(recording, tmp_path / "to", "csv")
    with (folder / "run_samples.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [float(row["story_1.force (N)"]) for row in rows] == run.force[:, 0].tolist()
    with (folder / "run_steps.csv").open(newline="") as stream:
        steps = list(csv.DictReader(stream))
    assert [row["step_time (s)"] for row in steps] == list(map(repr, run.step_time.tolist()))
    assert steps[-1]["x.restoring_force (N)"] == ""


def test_archive_gives_same_figures_by_numpy_alone(recording: Path, run: Run, tmp_path: Path) -> None:
    folder = exported(recording, tmp_path / "an archive", "designsafe")
    command = [sys.executable, "-I", "-c", SCRIPT, str(folder)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    error, force, absorbed, moved = map(float, output.split())
    assert error == pytest.approx(1e3 * run.metrics["axes"]["story_1"]["max_error_m"], rel=1e-12)
    assert force == 1e-3 * np.abs(run.force).max()
    work = (0.5 * (run.force[1:] + run.force[:-1]) * np.diff(run.displacement, axis=0)).sum()
    assert absorbed == pytest.approx(work, rel=1e-12)
    assert moved == 1e3 * np.abs(run.dof_displacement).max()
    rig = yaml.safe_load((folder / "experimental_substructures" / "story_1" / "rig.yaml").read_text())
    assert rig["axes"]["story_1"]["limits"]["force"] == run.scenario.limits["story_1"].force
    assert rths_nodes.load(folder / "global_model" / "scenario.yaml").duration == 4.0
    assert (folder / "report" / "run.html").read_text().startswith("<!DOCTYPE html>")
    assert "| run | finished |" in (folder / "README.md").read_text()


def test_impossible_export_is_refused(recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    about = bag.read(recording).information | {"outcome": "failed"}
    open_writer(str(tmp_path / "empty"), recorded_topics("rths", rths_nodes.load(NAME)), about).close({})
    for sources, target, reason in (
        ([recording], "full", "exists and is not an empty folder"),
        ([recording, recording], "to", "the recordings must have different names (run, run)"),
        ([tmp_path / "none"], "to", "cannot be read"),
        ([tmp_path / "empty"], "to", "empty: has no samples"),
    ):
        assert rths("export", *sources, "--out", tmp_path / target) == 2
        assert reason in capsys.readouterr().err
    assert not (tmp_path / "to").exists()


def test_test_is_exported_with_record_and_operator(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One folder contains each recorded rung under the name of the test, and the record."""
    test = tmp_path / "t-42"
    for rung in ("rung_d", "rung_g"):
        shutil.copytree(recording, test / rung)
    rungs = [RungRecord(name, "", recording=f"rung_{name}") for name in "adg"]
    head = {"operator": "A. Müller", "specimen": SpecimenRecord("D-17"), "client": "Bridge Authority"}
    procedure.write(ProcedureRecord("t-42", "chen_ricles_2010", "", rungs=rungs, **head), test)
    folder = exported(test, tmp_path / "to", "mat")
    names = ["t-42_procedure.yaml", "t-42_rung_d.mat", "t-42_rung_g.mat"]
    assert sorted(path.name for path in folder.iterdir()) == names
    stored = io.loadmat(folder / "t-42_rung_g.mat", simplify_cells=True)["test"]
    assert (stored["operator"], stored["specimen"], stored["client"]) == ("A. Müller", "D-17", "Bridge Authority")
    assert (exported(test, tmp_path / "archive", "designsafe") / "report" / "t-42_rung_d.html").is_file()
    for rung in ("rung_d", "rung_g"):
        shutil.rmtree(test / rung)
    assert rths("export", test, "--out", tmp_path / "none") == 2
    assert mentions(capsys.readouterr().err, "t-42", "recorded")
