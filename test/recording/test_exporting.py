# SPDX-License-Identifier: Apache-2.0
"""What is exported is read back by scipy, h5py or numpy alone, to the bit, and gives the same figures."""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from messages import mentions
from scipy import io

import rths_nodes
from rths_nodes.app import cli
from rths_nodes.loop.procedure_record import ProcedureRecord, RungRecord, SpecimenRecord
from rths_nodes.recording import procedure
from rths_nodes.recording.run import Run

SCRIPT = """\
import sys
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
"""From the export alone: largest control error (mm), largest force (kN), energy (J), largest displacement (mm)."""


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recorded") / "run"
    rths_nodes.run("chen_ricles_2010", ["duration=4"], record=path)
    return path


@pytest.fixture(scope="module")
def run(recording: Path) -> Run:
    return rths_nodes.read(recording)


def exported(recording: Path, folder: Path, form: str) -> Path:
    assert cli.main(["export", str(recording), "--out", str(folder), "--form", form]) == 0
    return folder


def test_matlab_reads_what_it_is_called_in_python(recording: Path, run: Run, tmp_path: Path) -> None:
    found = io.loadmat(exported(recording, tmp_path / "to", "mat") / "run.mat", simplify_cells=True)
    for name in (
        "target",
        "command",
        "displacement",
        "force",
        "compensator",
        "dof_displacement",
        "restoring_force",
    ):
        values = getattr(run, name)
        np.testing.assert_array_equal(np.reshape(found[name], values.shape), values, err_msg=name)
    np.testing.assert_array_equal(found["time"], run.time)
    assert found["units"]["force"] == "N"
    assert (found["axes"], found["test"]["outcome"]) == ("story_1", "finished")
    assert yaml.safe_load(found["test"]["scenario"])["name"] == "chen_ricles_2010"


def test_hdf5_has_units_and_columns(recording: Path, run: Run, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(exported(recording, tmp_path / "to", "hdf5") / "run.h5") as found:
        np.testing.assert_array_equal(found["samples/force"][()], run.force)
        np.testing.assert_array_equal(found["steps/exact_acceleration"][()], run.exact_acceleration)
        assert found["samples/force"].attrs["unit"] == "N"
        assert list(found["samples/compensator"].attrs["columns"]) == list(run.compensator_names)
        assert found.attrs["outcome"] == "finished"


def test_text_has_every_digit(recording: Path, run: Run, tmp_path: Path) -> None:
    folder = exported(recording, tmp_path / "to", "csv")
    with (folder / "run_samples.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [float(row["story_1.force (N)"]) for row in rows] == run.force[:, 0].tolist()
    with (folder / "run_steps.csv").open(newline="") as stream:
        steps = list(csv.DictReader(stream))
    assert [row["step_time (s)"] for row in steps] == list(map(repr, run.step_time.tolist()))
    assert steps[-1]["x.restoring_force (N)"] == ""


def test_an_archive_gives_the_same_figures_by_numpy_alone(recording: Path, run: Run, tmp_path: Path) -> None:
    folder = exported(recording, tmp_path / "an archive", "designsafe")
    done = subprocess.run(
        [sys.executable, "-I", "-c", SCRIPT, str(folder)], capture_output=True, text=True, check=True
    )
    error, force, absorbed, moved = map(float, done.stdout.split())
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


def test_what_was_exported_is_imported_again(recording: Path, run: Run, tmp_path: Path) -> None:
    file = exported(recording, tmp_path / "to", "mat") / "run.mat"
    axis = {name: {"column": name} for name in ("target", "command", "displacement", "force")}
    columns = tmp_path / "columns.yaml"
    columns.write_text(yaml.safe_dump({"version": 1, "time": {"column": "time"}, "axes": {"story_1": axis}}))
    words = ["import", str(file), str(columns), "--scenario", "chen_ricles_2010", "--record", str(tmp_path / "in")]
    assert cli.main(words) == 0
    again = rths_nodes.read(tmp_path / "in")
    for name in ("target", "command", "displacement", "force"):
        np.testing.assert_array_equal(getattr(again, name), getattr(run, name))


def test_what_cannot_be_exported_is_refused(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    for words, told in (
        ([str(recording), "--out", str(tmp_path / "full")], "exists and is not an empty folder"),
        (
            [str(recording), str(recording), "--out", str(tmp_path / "to")],
            "two recordings have the same name: run, run",
        ),
        ([str(tmp_path / "none"), "--out", str(tmp_path / "to")], "cannot be read"),
    ):
        assert cli.main(["export", *words]) == 2
        assert told in capsys.readouterr().err
    assert not (tmp_path / "to").exists()


def test_a_whole_test_is_exported_with_its_operator(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One folder: every recorded rung under the name of the test, and the record itself."""
    test = tmp_path / "t-42"
    for rung in ("rung_d", "rung_g"):
        shutil.copytree(recording, test / rung)
    rungs = [RungRecord(name, "", recording=f"rung_{name}") for name in "adg"]
    head = {"operator": "A. Müller", "specimen": SpecimenRecord("D-17"), "client": "Bridge Authority"}
    procedure.write(ProcedureRecord("t-42", "chen_ricles_2010", "", rungs=rungs, **head), test)
    folder = exported(test, tmp_path / "to", "mat")
    assert sorted(path.name for path in folder.iterdir()) == [
        *("t-42_procedure.yaml", "t-42_rung_d.mat", "t-42_rung_g.mat")
    ]
    told = io.loadmat(folder / "t-42_rung_g.mat", simplify_cells=True)["test"]
    assert (told["operator"], told["specimen"], told["client"]) == ("A. Müller", "D-17", "Bridge Authority")
    archive = exported(test, tmp_path / "archive", "designsafe")
    assert (archive / "report" / "t-42_rung_d.html").is_file()
    for rung in ("rung_d", "rung_g"):
        shutil.rmtree(test / rung)
    assert cli.main(["export", str(test), "--out", str(tmp_path / "none")]) == 2
    assert mentions(capsys.readouterr().err, "t-42", "recorded")
