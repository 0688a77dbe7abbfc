# SPDX-License-Identifier: Apache-2.0
"""Records of tests that were made elsewhere: what comes in comes out, in our units, or is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from matplotlib.figure import Figure
from messages import mentions
from scipy import io

import rths_nodes
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.report import document, tables
from rths_nodes.app import cli
from rths_nodes.app.commands import importing
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.scenario import files
from rths_nodes.mechanics.models import file
from rths_nodes.recording.run import Run

NAME, SHORT = "rths_benchmark_2020", ["duration=6.5"]
LIMITS = {"stroke": 0.05, "velocity": 0.5, "force": 2e5, "deceleration": 10.0}
FLOORS = ("x_1", "x_2", "x_3")


@pytest.fixture(scope="module")
def ours() -> Run:
    return rths_nodes.run(NAME, SHORT)


@pytest.fixture(scope="module")
def matlab(ours: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The histories of a run of ours, by a program with millimetres and another direction of the force."""
    path = tmp_path_factory.mktemp("elsewhere") / "results.mat"
    results = {"x": 1e3 * ours.target, "m": 1e3 * ours.displacement, "f": -1e-3 * ours.force}
    io.savemat(
        path, {"t": ours.time, "u": 100.0 * ours.command, "results": results, "floors": ours.dof_displacement}
    )
    return path


def columns(**changes: Any) -> dict[str, Any]:
    axis = {
        "target": {"column": "results.x", "unit": "mm"},
        "command": {"column": "u", "unit": "cm"},
        "displacement": {"column": "results.m", "unit": "mm"},
        "force": {"column": "results.f", "unit": "kN", "factor": -1},
    }
    floors = {name: {"displacement": {"column": "floors", "index": index}} for index, name in enumerate(FLOORS, 1)}
    return {
        "version": 1,
        "time": {"column": "t"},
        "axes": {"floor_1": axis},
        "degrees_of_freedom": floors,
    } | changes


def written(folder: Path, data: dict[str, Any], name: str = "columns.yaml") -> Path:
    path = folder / name
    path.write_text(yaml.safe_dump(data))
    return path


@pytest.fixture(scope="module")
def imported(matlab: Path) -> Path:
    """The recording that the command makes of it."""
    folder = matlab.parent
    words = [str(matlab), str(written(folder, columns())), "--record", str(folder / "imported")]
    assert cli.main(["import", *words, "--scenario", NAME, "--set", "recording.note=of 1998"]) == 0
    return folder / "imported"


def test_what_comes_in_comes_out(imported: Path, ours: Run) -> None:
    found = rths_nodes.read(imported)
    for name in ("target", "command", "displacement", "force", "dof_displacement", "time", "step_time"):
        one, other = getattr(found, name), getattr(ours, name)
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-18, err_msg=name)
    assert np.isnan(found.dof_velocity).all()
    assert np.isnan(found.true_displacement).all()
    assert (found.scenario.duration, found.scenario.recording.note, found.outcome) == (6.5, "of 1998", "finished")
    assert found.information["source"].startswith("results.mat, sha256 ")
    index = ("axes", "floor_1", "error_norm_percent")
    told, known = (each.metrics for each in (found, ours))
    for key in index:
        told, known = told[key], known[key]
    assert told == pytest.approx(known, rel=1e-9)


def test_estimates_and_predictions_are_those_of_ours(
    imported: Path, ours: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    from rths_nodes.analysis.identification.estimate import estimate
    from rths_nodes.app.studies.prediction import predict

    found = rths_nodes.read(imported)
    one, other = (estimate(run)["floor_1"].loading for run in (found, ours))
    assert one.delay == pytest.approx(other.delay, rel=1e-9)
    assert 0.020 < one.delay < 0.030
    changed = ["compensator={type: inverse, alpha: 100.0}"]
    again, known = (predict(run, changed).indices["predicted"]["floor_1"] for run in (found, ours))
    assert again["delay_s"] == pytest.approx(known["delay_s"], rel=1e-6)


def test_the_page_says_that_it_was_made_elsewhere(
    imported: Path, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    page = tmp_path / "page.html"
    assert cli.main(["report", str(imported), "--out", str(page)]) == 0
    text = page.read_text()
    assert mentions(text, "MADE", "ELSEWHERE")
    assert "SIMULATED" not in text
    assert mentions(text, "equation", "terms")
    assert mentions(text, "Response", "structure")
    assert "numerical substructure (computed)" not in text
    assert [str(each.message) for each in recwarn] == []


def test_text_without_a_scenario_is_looked_at_and_fitted_but_not_computed_again(
    ours: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = np.column_stack([1e3 * ours.command, 1e3 * ours.displacement])
    np.savetxt(tmp_path / "jack.csv", table, delimiter=";", fmt="%.17g", header="sent in mm; shown in mm")
    axis = {
        "command": {"column": "1", "unit": "mm"},
        "displacement": {"column": "2", "unit": "mm"},
        "limits": LIMITS,
    }
    named = {"version": 1, "name": "frame_7", "servo_rate": 4096, "axes": {"jack": axis}}
    record = str(tmp_path / "imported")
    words = [str(tmp_path / "jack.csv"), str(written(tmp_path, named)), "--record", record]
    assert cli.main(["import", *words]) == 0
    found = rths_nodes.read(record)
    np.testing.assert_array_equal(found.target, found.command)
    np.testing.assert_allclose(found.displacement, ours.displacement, rtol=1e-12, atol=1e-18)
    assert np.isnan(found.force).all()
    assert cli.main(["estimate", record]) == 0
    assert cli.main(["report", record]) == 0
    capsys.readouterr()
    assert cli.main(["estimate", record, "--set", "ramp.type=linear"]) == 2
    assert "unknown" in (told := capsys.readouterr().err)
    assert "elsewhere" in told
    assert cli.main(["import", *words]) == 2
    assert "imported" in capsys.readouterr().err


def test_without_limits_a_test_is_estimated_and_laid_over_a_simulated_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured, simulated = str(tmp_path / "measured"), str(tmp_path / "simulated")
    test = rths_nodes.run("predefined_sine", duration=2.5)
    test.to_csv(tmp_path / "test.csv")
    columns = {name: {"column": f"axis_1.{name} (m)"} for name in ("command", "displacement", "target")}
    force = {"column": "axis_1.force (N)"}
    named = {
        "version": 1,
        "name": "sine",
        "time": {"column": "time (s)"},
        "axes": {"axis_1": columns | {"force": force}},
    }
    words = [str(tmp_path / "test.csv"), str(written(tmp_path, named)), "--record", measured]
    assert cli.main(["import", *words]) == 0
    assert mentions(capsys.readouterr().out, "axes.axis_1.limits", "missing")
    assert cli.main(["estimate", measured]) == 0
    found = rths_nodes.read(measured)
    assert found.samples == test.samples == 2560
    assert tables.limits(Evaluation(found)).rows == []
    other = rths_nodes.run("predefined_sine", "compensator.alpha_es=29", duration=2.0, record=simulated)
    panel = rths_nodes.overlay({"measured": found, "simulated": other}, ax=Figure().subplots())
    for line, run in zip(panel.lines, (found, other), strict=True):
        np.testing.assert_allclose(line.get_ydata(), 1e3 * run.displacement[:, 0])
    assert panel.get_ylabel() == "displacement (mm)"
    page = str(tmp_path / "both.html")
    assert cli.main(["report", measured, simulated, "--out", page, "--figures", "--format", "svg"]) == 0
    assert any(path.suffix == ".svg" for path in (tmp_path / "both_figures").iterdir())


def test_all_places_count_the_same_samples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = str(tmp_path / "sine")
    assert cli.main(["run", "predefined_sine", "--set", "duration=0.5", "--record", record]) == 0
    assert mentions(capsys.readouterr().out, "512 samples")
    run = rths_nodes.read(record)
    assert run.samples == 512
    assert "512 samples" in repr(run)
    assert "512 samples" in run._repr_html_()
    assert document.particulars(Evaluation(run))["Samples"] == "512"
    assert len(run.to_dataframe()) == len(run.time) == run.samples + 1, "row k is sample k"


def test_a_recording_identifies_the_rig(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A test with noise, by ``rths identify`` itself, goes out and comes in: the same model to nine digits."""
    name, own, again = "chen_ricles_2010", tmp_path / "own.yaml", tmp_path / "again.yaml"
    noise = ["--orders", "1", "--duration", "20", "--record", str(tmp_path / "noise")]
    assert cli.main(["identify", name, "--out", str(own), *noise]) == 0
    run = rths_nodes.read(tmp_path / "noise" / "story_1")
    io.savemat(tmp_path / "noise.mat", {"u": run.command, "m": run.displacement})
    axis = {"command": {"column": "u"}, "displacement": {"column": "m"}}
    path = written(tmp_path, {"version": 1, "servo_rate": 1024, "axes": {"story_1": axis}})
    record = str(tmp_path / "imported")
    assert (
        cli.main(["import", str(tmp_path / "noise.mat"), str(path), "--record", record, "--scenario", name]) == 0
    )
    assert cli.main(["identify", name, "--orders", "1", "--from", record, "--out", str(again)]) == 0
    one, other = (file.load(each).feedforward for each in (own, again))
    np.testing.assert_allclose(other, one, rtol=1e-9, atol=0.0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"time": None, "servo_rate": 1000.0}, ("1000 Hz", "4096 Hz", "rths_benchmark_2020")),
        ({"servo_rate": 4096.0}, ("exactly", "servo_rate")),
        ({"time": {"column": "result.x"}}, ("time.column", "unknown", "result.x", "results.x")),
        ({"time": {"column": "u"}}, ("even", "steps")),
        ({"time": {"column": "floors", "index": 4}}, ("time.index", "4", "floors")),
        ({"axes": {"jack": {"displacement": {"column": "u"}}}}, ("axes.jack", "target")),
        (
            {"axes": {"jack": {"displacement": {"column": "u"}, "target": {"column": "u"}}}},
            ("axes", "rths_benchmark_2020", "floor_1"),
        ),
        (
            {"degrees_of_freedom": {"x_4": {"displacement": {"column": "u"}}}},
            ("unknown", "degree", "x_4"),
        ),
    ],
)
def test_what_does_not_fit_is_refused_by_its_place(
    changes: dict[str, Any], words: tuple[str, ...], matlab: Path, tmp_path: Path
) -> None:
    data = {name: value for name, value in columns(**changes).items() if value is not None}
    path = written(tmp_path, data)
    with pytest.raises(ConfigError) as error:
        importing.read(matlab, path, files.load(NAME))
    assert str(error.value).startswith(f"{path}: ")
    assert mentions(str(error.value), *words)


def test_the_record_is_of_the_test_without_the_soft_start_of_the_scenario(matlab: Path, tmp_path: Path) -> None:
    scenario = files.load(NAME, ["soft_start={amplitude: 0.001}"])
    found = importing.read(matlab, written(tmp_path, columns()), scenario)
    assert found.scenario.soft_start is None
    assert found.scenario.samples + 1 == len(found.target)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n3,x\n", ("line", "3", "3,x", "2")),
        ("a,b\n1,2\n3,nan\n5,6\n", ("row", "2", "nan", "number")),
        ("# nothing\n", ("contains", "numbers")),
    ],
)
def test_a_file_without_numbers_is_refused_by_its_line(text: str, words: tuple[str, ...], tmp_path: Path) -> None:
    csv = tmp_path / "jack.csv"
    csv.write_text(text)
    axis = {"command": {"column": "a"}, "displacement": {"column": "b"}, "limits": LIMITS}
    path = written(tmp_path, {"version": 1, "name": "jack", "servo_rate": 100, "axes": {"jack": axis}})
    with pytest.raises(ConfigError) as error:
        importing.read(csv, path)
    assert mentions(str(error.value), *words)
