# SPDX-License-Identifier: Apache-2.0
"""Tests of ``rths iterate``, of ``--next``, which continues a series of runs, and of history files."""

from __future__ import annotations

import errno
import hashlib
import json
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_fixtures import RunCommand
from messages import each_mentions, mentions, naming
from rig_runner import positioned
from written_history import history_of, written_history

import rths_nodes
from rths_nodes.analysis.iteration import corrections
from rths_nodes.analysis.iteration.corrections import HISTORY, PEAKS, TRACKING, Settings
from rths_nodes.app.cli import main
from rths_nodes.app.commands import iterate
from rths_nodes.app.commands.procedures import _history
from rths_nodes.app.procedure.procedure_runner import Ladder, ProcedureRunner
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.procedure_record import ProcedureRecord, SpecimenRecord
from rths_nodes.loop.scenario import files
from rths_nodes.mechanics.history import History, load
from rths_nodes.recording import procedure
from rths_nodes.recording.reading import read_run

NAME = "sdof_by_iteration"
LATE = "compensator.type=none"
SHORT = ("duration=8", LATE)
SINE = {"type": "sine", "amplitude": 0.001, "frequency": 1.0}
PRESCRIBED = {"integrator": {"type": "prescribed", "displacement": SINE}}
PRESCRIBED |= {"structure": None, "ground_motion": {"type": "none"}}
"""Sections of a scenario with a prescribed motion."""


def iterated(mode: str, folder: Path, *overrides: str, record: bool = False, **settings: Any) -> iterate.Iteration:
    return iterate.iterate(files.load(NAME, [*SHORT, *overrides]), Settings(mode, **settings), folder, record)


def test_iteration_converges_where_real_time_loop_trips(tmp_path: Path) -> None:
    """The result is within 1 % of the exact response, with a stated stiffness that is 15 % too high."""
    assert rths_nodes.run(NAME, [LATE]).outcome == "tripped"
    result = iterated(HISTORY, tmp_path)
    assert (result.verdict, result.exit_code) == ("converged", 0)
    assert len(result.rows) <= 3
    assert result.rows[0].true > 30.0
    assert result.rows[-1].true < 1.0


@pytest.mark.parametrize("delay", [0, 60])
def test_iteration_is_independent_of_delay(delay: int, tmp_path: Path) -> None:
    result = iterated(HISTORY, tmp_path, f"port.transport_samples={delay}")
    assert (result.verdict, len(result.rows) <= 3) == ("converged", True)
    assert result.rows[-1].true < 1.0
    assert result.inverse.late[0] == pytest.approx(0.0284 + delay / 1024.0, abs=2e-3)


def test_tracking_converges_to_sensor_noise(tmp_path: Path) -> None:
    result = iterated(TRACKING, tmp_path, tolerance=0.01)
    assert (result.verdict, result.rows[-1].missed) == ("converged", pytest.approx(1e-5, rel=0.1))


def test_tracking_reduces_error_of_prescribed_motion(tmp_path: Path) -> None:
    scenario = files.load("predefined_sine", ["duration=6", "compensator={type: none}"])
    result = iterate.iterate(scenario, Settings(TRACKING), tmp_path, False)
    assert result.rows[-1].error < 0.1 * result.rows[0].error


def test_softening_specimen_ends_iteration(tmp_path: Path) -> None:
    result = iterated(HISTORY, tmp_path, changes={2: ["axes.story.specimen.stiffness=61e3"]})
    assert (result.verdict, len(result.rows), result.exit_code) == ("softened", 2, 3)
    assert mentions(result.reason, "axes.story", "force", "9.11 % smaller", "run 1", "must be <= 5 %")


def test_constant_relaxation_diverges(tmp_path: Path) -> None:
    result = iterated(HISTORY, tmp_path, relaxation="constant")
    assert (result.verdict, result.exit_code) == ("diverged", 3)


def test_run_larger_than_first_is_held(tmp_path: Path) -> None:
    result = iterated(HISTORY, tmp_path, within=1.01)
    assert (result.verdict, len(result.rows), result.exit_code) == ("held", 1, 130)
    assert mentions(result.reason, "axes.story", "run 2", "0.0208725 m", "1.08")
    assert "must be <= 1.01 times, i.e. 0.019447 m" in result.reason
    assert not (tmp_path / "history_2.npz").exists()
    assert iterated(HISTORY, tmp_path, within=1.3).verdict == "converged"


def test_next_history_beyond_stroke_is_held(tmp_path: Path) -> None:
    """The experimental part has 90 % of the stiffness, so that targets grow more than tenfold."""
    stiff = ("structure.experimental_stiffness=[[142122.6]]", "axes.story.specimen.stiffness=120804.0")
    result = iterated(HISTORY, tmp_path, *stiff, relaxation="constant")
    assert (result.verdict, result.exit_code) == ("held", 130)
    assert len(result.rows) >= 1
    assert mentions(result.reason, f"run {len(result.rows) + 1}", "axes.story", "axes.story.limits.stroke = 0.1 m")


def test_tripped_run_ends_iteration(tmp_path: Path) -> None:
    result = iterated(HISTORY, tmp_path, "axes.story.limits.force=900")
    assert (result.verdict, result.exit_code) == ("ended", 3)
    assert result.reason.startswith("run 1 tripped: sample")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("function", ["_tell", "run"])
def test_stop_request_after_run_holds_series_with_its_results(
    number: int, function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second signal within a second belongs to the same request."""
    owner: Any = iterate.hosts if function == "run" else iterate
    call = getattr(owner, function)

    def interrupted(*arguments: Any, **options: Any) -> Any:
        result = call(*arguments, **options)
        signal.raise_signal(number)
        return result

    monkeypatch.setattr(owner, function, interrupted)
    folder = tmp_path / "series"
    assert main(["iterate", NAME, "--set", "duration=0.4", "--set", LATE, "--record", str(folder)]) == 130
    result = json.loads((folder / iterate.RESULT).read_text())
    assert (result["verdict"], [row["outcome"] for row in result["rows"]]) == ("held", ["finished"])


def test_full_disk_is_reported_with_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(History, "save", full)
    assert main(["iterate", NAME, "--set", "duration=0.4", "--record", str(tmp_path / "series")]) == 1
    assert f"{tmp_path / 'series'}: No space left" in capsys.readouterr().err


def test_recording_of_history_runs_again_to_the_bit(tmp_path: Path) -> None:
    result = iterated(HISTORY, tmp_path, record=True)
    last = rths_nodes.read(tmp_path / f"run_{len(result.rows)}")
    again = rths_nodes.run(last.scenario)
    np.testing.assert_array_equal(again.displacement, last.displacement)
    sent = load(str(tmp_path / f"history_{len(result.rows)}.npz"))
    np.testing.assert_array_equal(again.command[1:], sent.command[1:])
    np.testing.assert_array_equal(again.target[1:], sent.target[1:, 0])


@pytest.mark.parametrize(
    ("name", "overrides", "mode", "parts"),
    [
        (NAME, ["time_ratio=10"], HISTORY, ("time_ratio", "10", "1")),
        ("predefined_sine", [], HISTORY, ("structure", "missing")),
        ("column_under_axial_load", [], TRACKING, ("axes.load", "controlled")),
        ("phillips_spencer_2012", [], HISTORY, ("semi_active", "inputs")),
        ("yielding_five_story", [], HISTORY, ("linear",)),
    ],
)
def test_unsupported_scenarios_are_refused(
    name: str, overrides: list[str], mode: str, parts: tuple[str, ...], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=naming(*parts)):
        iterate.iterate(files.load(name, overrides), Settings(mode), tmp_path)


def test_real_rig_is_refused(tmp_path: Path, refusal: RunCommand) -> None:
    """An operator arms each run on a real rig."""
    record = "--record", str(tmp_path / "runs")
    error = refusal("iterate", "chen_ricles_2010", "--rig", "bench_udp", *record)
    assert mentions(error, "port.type", "simulated rig", "rths iterate --next")
    assert mentions(refusal("iterate", "yielding_five_story", *record), "structure", "linear")
    # refused when run 1 begins
    assert mentions(refusal("iterate", NAME, "--set=axes.story.limits.stroke=1e-5", *record), "stroke", "2.354 s")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"mode": "both"}, ("unknown", "mode", "both")),
        ({"mode": HISTORY, "relaxation": "none"}, ("unknown", "relaxation", "none")),
        ({"mode": HISTORY, "omega": 0.0}, ("--omega", "0", "> 0")),
        ({"mode": HISTORY, "cutoff": -1.0}, ("--cutoff", "-1 Hz", "> 0")),
        ({"mode": HISTORY, "within": 0.9}, ("--within", "0.9", ">= 1")),
        ({"mode": HISTORY, "changes": {7: ["seed=2"]}}, ("--change 7", "--runs 5")),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, Any], parts: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*parts)):
        Settings(**settings)


def test_command_writes_results_figure_and_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], refusal: RunCommand
) -> None:
    folder, figure, page = tmp_path / "runs", tmp_path / "figure.svg", tmp_path / "last.html"
    command = ["iterate", NAME, "--set", SHORT[0], "--set", LATE]
    record = ["--record", str(folder)]
    assert main([*command, *record, "--figure", str(figure), "--report", str(page)]) == 0
    out, err = capsys.readouterr()
    assert "converged: the error" in out
    assert "run 1: error" in err
    assert mentions(figure.read_text(), "Remaining fraction", "error")
    assert page.read_text().startswith("<!DOCTYPE html>")
    data = json.loads((folder / "iteration.json").read_text())
    numbers = [row["number"] for row in data["rows"]]
    assert (data["verdict"], numbers) == ("converged", list(range(1, len(data["rows"]) + 1)))
    assert {path.name for path in folder.iterdir()} >= {"history_1.npz", "run_1", "run_2"}
    assert mentions(refusal(*command, *record), "exists", "new folder")
    assert main([*command, "--no-record", "--json", "--change", "2:axes.story.specimen.stiffness=6e4"]) == 3
    data = json.loads(capsys.readouterr().out)
    assert (data["verdict"], len(data["rows"])) == ("softened", 2)
    error = refusal(*command, "--no-record", "--change", "axes.story.specimen.stiffness=6e4")
    assert mentions(error, "RUN", "section.key")
    error = refusal(*command, "--no-record", "--change", "3:axes.story.specimen.stifness=6e4")
    assert mentions(error, "axes.story.specimen.stifness", "stiffness")
    assert "run 1" not in error  # refused before the first run


# Series of runs with ``--next``

BRIEF = ["--set", "duration=6", "--set", "servo_rate=256"]
WORSE = ["--set", "compensator.delay=0.022"]
RIG = re.sub(
    r"port: .*",
    "port: {type: simulator, transport_samples: 1}",
    files.locate("bench_small_udp", files.RIG).read_text(),
).replace("servo_rate: 1024.0\n", "")


def write_next(
    folder: Path, mode: str = HISTORY, tolerance: float = 0.5, relaxation: str = "model"
) -> iterate.NextRun:
    return iterate.write(iterate.find(folder), Settings(mode, 5, tolerance, relaxation))


def iterate_series(folder: Path, *options: str) -> None:
    main(["iterate", NAME, *BRIEF, *options, "--record", str(folder)])


@pytest.mark.parametrize(
    ("mode", "relaxation"), [(TRACKING, "model"), (HISTORY, "model"), (HISTORY, "quasi_newton")]
)
def test_next_gives_same_histories_as_iterate(tmp_path: Path, mode: str, relaxation: str) -> None:
    """After run 1 of ``rths iterate``, ``--next`` and ``rths run`` give the same bits for each further run."""
    reference, series = tmp_path / "reference", tmp_path / "series"
    options = ["--mode", mode, "--relaxation", relaxation, "--runs", "3", "--tolerance", "1e-6"]
    iterate_series(reference, *WORSE, *options)
    numbers = [number for number in (2, 3) if (reference / f"history_{number}.npz").is_file()]
    assert numbers, "nothing was corrected"
    series.mkdir()
    for name in ("scenario.yaml", "history_1.npz"):
        shutil.copy(reference / name, series)
    shutil.copytree(reference / "run_1", series / "run_1")
    for number in numbers:
        assert write_next(series, mode, 1e-6, relaxation=relaxation).number == number
        result, expected = (load(str(folder / f"history_{number}.npz")) for folder in (series, reference))
        np.testing.assert_array_equal(result.target, expected.target)
        np.testing.assert_array_equal(result.command, expected.command)
        rths_nodes.run(str(series / f"run_{number}.yaml"), record=str(series / f"run_{number}"))
        runs = [read_run(folder / f"run_{number}") for folder in (series, reference)]
        np.testing.assert_array_equal(runs[0].displacement, runs[1].displacement)


Series = Callable[..., Path]


@pytest.fixture
def series(tmp_path: Path) -> Series:
    """Run a series of tests on a simulated rig, whose rung g is run 1, and return its folder."""
    (tmp_path / "rig.yaml").write_text(RIG)

    def run_test(name: str, folder: Path, *overrides: str) -> Path:
        scenario = files.load(name, overrides, rig=str(tmp_path / "rig.yaml"))
        record = ProcedureRecord("test", NAME, "", operator="A. Tester", planned=["a", "g"])
        runner = ProcedureRunner(Ladder(scenario, ("a", "g"), None, None, False), record, folder)
        positioned(runner)
        offsets = runner.session.offsets
        assert offsets is not None
        runner.do("arm", rung="g", scenario_hash=runner.ladder.step("g").hash, offsets_hash=offsets.hash)
        runner.do("run", clear="CLEAR")
        runner.do("finish")
        return folder

    def make(*overrides: str, runs: int = 1, later: tuple[str, ...] = (), mode: str = HISTORY) -> Path:
        folder = run_test(NAME, tmp_path / "series", "duration=6", "servo_rate=256", *overrides)
        for number in range(2, runs + 1):
            write_next(folder, mode)
            run_test(str(folder / f"run_{number}.yaml"), folder / f"run_{number}", *later)
        return folder

    return make


@pytest.mark.parametrize("mode", [HISTORY, TRACKING])
def test_series_of_tests_on_rig_converges(series: Series, capsys: pytest.CaptureFixture[str], mode: str) -> None:
    folder = series("compensator.delay=0.022", runs=2, mode=mode)
    result = write_next(folder, mode)
    assert result.rehearsal is None
    assert result.rows[0].error > 4.0
    assert result.rows[1].error < 0.5
    assert result.rows[1].answer["story"] == pytest.approx(1.0, abs=1e-3)
    assert not (folder / "history_3.npz").exists()
    assert main(["iterate", "--next", str(folder), "--mode", mode]) == 0
    assert mentions(capsys.readouterr().out, "series has converged", "the error")


def test_next_history_stores_hashes_of_parents(series: Series, capsys: pytest.CaptureFixture[str]) -> None:
    folder = series("compensator.delay=0.022")
    assert main(["iterate", "--next", str(folder)]) == 0
    text = capsys.readouterr().out
    assert mentions(text, folder / "run_2.yaml", "--rig", "RIG", "--record", folder / "run_2")
    assert "axes.story: expected command" in text
    (recording,) = (folder / "rung_g").glob("*.mcap")
    digest = hashlib.sha256(recording.read_bytes()).hexdigest()
    assert load(str(folder / "history_2.npz")).parents == {f"rung_g/{recording.name}": digest}


def test_changed_parent_is_refused(series: Series) -> None:
    folder = series("compensator.delay=0.022", runs=2)
    (recording,) = (folder / "rung_g").glob("*.mcap")
    last = load(str(folder / "history_2.npz"))
    parents = {f"rung_g/{recording.name}": "0" * 64}
    changed = History(last.axes, last.servo_rate, last.source, last.target, last.command, parents)
    changed.save(folder / "history_2.npz")
    with pytest.raises(ConfigError, match=naming(recording.name, "history_2.npz")) as excinfo:
        write_next(folder)
    assert "0" * 64 in str(excinfo.value)


def test_run_of_another_history_is_refused(series: Series) -> None:
    """Another mode gives another history; a run must have played its own history."""
    folder = series("compensator.delay=0.022", runs=2)
    with pytest.raises(ConfigError, match=naming("history_2.npz", "differs")):
        write_next(folder, TRACKING)
    shutil.rmtree(folder / "run_2")
    shutil.copytree(folder / "rung_g", folder / "run_2")
    with pytest.raises(ConfigError, match=naming("run_2", "history_2.npz")):
        write_next(folder)


def test_missing_run_is_refused(series: Series) -> None:
    folder = series("compensator.delay=0.022")
    (folder / "run_3").mkdir()
    with pytest.raises(ConfigError, match="run_2: missing"):
        write_next(folder)


def test_peak_above_run_1_is_refused(series: Series) -> None:
    """A compensator of 40 ms for 28 ms dissipates energy: run 1 is too small, run 2 needs 1.2 times its peak."""
    folder = series("compensator.delay=0.04")
    with pytest.raises(ConfigError, match=naming("axes.story", "run 2")) as excinfo:
        write_next(folder)
    assert "must be <= 1.1 times" in str(excinfo.value)
    assert not list(folder.glob("history_*"))


def test_loss_of_force_is_refused(tmp_path: Path, series: Series) -> None:
    """The specimen is 9 % softer in run 2."""
    (tmp_path / "rig.yaml").write_text(RIG.replace("stiffness_known_to: 0.03", "stiffness_known_to: 0.3"))
    folder = series("compensator.delay=0.022", runs=2, later=("axes.story.specimen.stiffness=61e3",))
    with pytest.raises(ConfigError, match=r"run_2.*axes\.story: .* 9.11 % smaller") as excinfo:
        write_next(folder)
    assert "must be <= 5 %" in str(excinfo.value)
    assert not (folder / "history_3.npz").exists()


@pytest.mark.parametrize("limit", ["0.009", "missing"])
def test_history_beyond_elastic_limit_is_refused(tmp_path: Path, series: Series, limit: str) -> None:
    line = "" if limit == "missing" else f"    elastic_limit: {limit}\n"
    (tmp_path / "rig.yaml").write_text(re.sub(r"    elastic_limit:.*\n", line, RIG))
    folder = series("compensator.delay=0.022")
    with pytest.raises(ConfigError, match=r"axes\.story: .*elastic_limit") as excinfo:
        write_next(folder)
    assert ("must be < elastic_limit = 9 mm" in str(excinfo.value)) == bool(line)


def test_unfinished_run_is_refused(tmp_path: Path) -> None:
    iterate_series(tmp_path / "series", "--set", "axes.story.limits.force=900")
    with pytest.raises(ConfigError, match=naming("run_1", "finished", "valid", "tripped")):
        write_next(tmp_path / "series")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--next", "nowhere"], ("--next", "nowhere")),
        ([NAME, "--next", "nowhere"], ("scenario sdof_by_iteration", "--next")),
        (["--next", "nowhere", "--style", "paper"], ("--style", "--next")),
        (["--next", "nowhere", "--engine", "compiled"], ("--engine", "--next")),
        ([], ("SCENARIO", "missing")),
    ],
)
def test_invalid_arguments_are_refused(arguments: list[str], parts: tuple[str, ...], refusal: RunCommand) -> None:
    assert mentions(refusal("iterate", *arguments), *parts)


def test_specimen_history_contains_runs_of_series(tmp_path: Path) -> None:
    for name in ("other", "series", "series/run_2"):
        specimen = SpecimenRecord("D-17", [{"date": name, "test": name, "rung": "g"}])
        record = ProcedureRecord(name, NAME, "", port="udp", specimen=specimen, outcome="finished")
        procedure.write(record, tmp_path / name)
    for folder in (tmp_path, tmp_path / "series"):
        assert [row["test"] for row in _history(folder, "D-17")] == ["other", "series", "series/run_2"]


def test_bounds_apply_to_each_axis() -> None:
    first = {"a": dict.fromkeys(PEAKS, 1.0), "b": dict.fromkeys(PEAKS, 10.0)}
    planned = first | {"a": dict(zip(PEAKS, (1.2, 1.1, 2.0, 1.0), strict=True))}
    problems = [text.partition(" m,")[0] for text in corrections.above_first(2, planned, first, 1.1)]
    assert each_mentions(problems, ("axes.a", "run 2", "1.2"))
    assert corrections.beyond_elastic(2, planned, {"a": 2.1, "b": 10.1}) == []
    assert [text[:7] for text in corrections.beyond_elastic(2, planned, {"a": 2.0, "b": 10.1})] == ["axes.a:"]


def test_history_is_stored_to_the_bit(tmp_path: Path) -> None:
    history = history_of(2, 0.01)
    history.save(tmp_path / "a.npz")
    stored = load(str(tmp_path / "a.npz"))
    assert (stored.axes, stored.servo_rate, stored.source) == (history.axes, history.servo_rate, history.source)
    np.testing.assert_array_equal(stored.target, history.target)
    np.testing.assert_array_equal(stored.command, history.command)


def test_invalid_history_files_are_refused(tmp_path: Path) -> None:
    valid = history_of(2, 0.01)
    (tmp_path / "text.npz").write_text("text")
    History(valid.axes, 100.0, "", valid.target[:, :, :1], valid.command).save(tmp_path / "narrow.npz")
    History(valid.axes, 100.0, "", np.nan * valid.target, valid.command).save(tmp_path / "nan.npz")
    reasons = {"none": "cannot be read", "text": "must be a history", "narrow": "size", "nan": "finite"}
    for name, reason in reasons.items():
        with pytest.raises(ConfigError, match=reason):
            load(str(tmp_path / f"{name}.npz"))


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({}, ("compensator.type", "integrator.type", "targets")),
        (PRESCRIBED | {"soft_start": {"amplitude": 0.001}}, ("compensator.type", "soft_start", "left")),
    ],
)
def test_history_without_its_targets_is_refused(changes: dict[str, Any], parts: tuple[str, ...]) -> None:
    compensator = {"type": "predefined", "history": written_history(1, 1.0 / 1024.0)}
    data = files.load(NAME).data() | {"compensator": compensator} | changes
    with pytest.raises(ConfigError, match=naming(*parts)):
        rths_nodes.run(files.from_data(data, "test"))


@pytest.mark.parametrize(
    ("history", "parts"),
    [
        ((2, 1.0 / 1024.0), ("axes", "test")),
        ((1, 1.0 / 512.0), ("512 Hz", "1024 Hz")),
        ((1, 1.0 / 1024.0), ("200", "samples")),
    ],
)
def test_history_of_another_test_is_refused(history: tuple[int, float], parts: tuple[str, ...]) -> None:
    data = files.load(NAME).data()
    data |= PRESCRIBED | {"axes": {"a": data["axes"]["story"]}}
    played = {"type": "predefined", "history": written_history(*history)}
    for changes in ({"integrator": played}, {"compensator": played}):
        with pytest.raises(ConfigError, match=naming(*parts)):
            rths_nodes.run(files.from_data(data | changes, "test"))
