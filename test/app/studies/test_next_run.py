# SPDX-License-Identifier: Apache-2.0
"""``rths iterate --next``: a series of runs leads to the histories of ``rths iterate``, or is refused."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from messages import each_mentions, mentions, naming
from rig_runner import positioned

import rths_nodes
from rths_nodes.analysis.iteration.convergence import HISTORY, TRACKING, Rule
from rths_nodes.analysis.iteration.corrections import Peaks, Settings, above_first, beyond_elastic
from rths_nodes.app.cli import main
from rths_nodes.app.commands import iterate
from rths_nodes.app.commands import test as command
from rths_nodes.app.procedure.ladder import Ladder
from rths_nodes.app.procedure.procedure_runner import ProcedureRunner
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.procedure_record import ProcedureRecord, SpecimenRecord
from rths_nodes.loop.scenario import files
from rths_nodes.mechanics import history
from rths_nodes.recording import procedure
from rths_nodes.recording.reading import read_run

NAME = "sdof_by_iteration"
SHORT = ["--set", "duration=6", "--set", "servo_rate=256"]
WORSE = ["--set", "compensator.delay=0.022"]
RIG = re.sub(
    r"port: .*",
    "port: {type: simulator, transport_samples: 1}",
    files.locate("bench_small_udp", files.RIG).read_text(),
).replace("servo_rate: 1024.0\n", "")


def write_next(
    folder: Path, mode: str = HISTORY, tolerance: float = 0.5, relaxation: str = "model"
) -> iterate.NextRun:
    return iterate.write(iterate.find(folder), Settings(mode, Rule(5, tolerance), relaxation))


def iterated(folder: Path, *words: str) -> None:
    main(["iterate", NAME, *SHORT, *words, "--record", str(folder)])


def equal(one: Path, other: Path) -> None:
    """Two files have the same history, to the bit."""
    first, second = history.load(str(one)), history.load(str(other))
    np.testing.assert_array_equal(first.target, second.target)
    np.testing.assert_array_equal(first.command, second.command)


@pytest.mark.parametrize(
    ("mode", "relaxation"), [(TRACKING, "model"), (HISTORY, "model"), (HISTORY, "quasi_newton")]
)
def test_a_series_by_next_equals_that_of_iterate(tmp_path: Path, mode: str, relaxation: str) -> None:
    """Run 1 of ``rths iterate``, then each run by ``--next`` and ``rths run``: the same histories, to the bit."""
    whole, series = tmp_path / "whole", tmp_path / "series"
    iterated(whole, *WORSE, "--mode", mode, "--relaxation", relaxation, "--runs", "3", "--tolerance", "1e-6")
    numbers = [number for number in (2, 3) if (whole / f"history_{number}.npz").is_file()]
    assert numbers, "nothing was corrected"
    series.mkdir()
    for name in ("scenario.yaml", "history_1.npz"):
        shutil.copy(whole / name, series)
    shutil.copytree(whole / "run_1", series / "run_1")
    for number in numbers:
        assert write_next(series, mode, 1e-6, relaxation=relaxation).number == number
        equal(series / f"history_{number}.npz", whole / f"history_{number}.npz")
        rths_nodes.run(str(series / f"run_{number}.yaml"), record=str(series / f"run_{number}"))
        runs = [read_run(folder / f"run_{number}") for folder in (series, whole)]
        np.testing.assert_array_equal(runs[0].displacement, runs[1].displacement)


@pytest.fixture
def series(tmp_path: Path) -> Callable[..., Path]:
    """Makes the folder of a test on a simulated rig, whose rung g is run 1; then each run of ``--next``."""
    (tmp_path / "rig.yaml").write_text(RIG)

    def tested(name: str, folder: Path, *sets: str) -> Path:
        scenario = files.load(name, sets, rig=str(tmp_path / "rig.yaml"))
        record = ProcedureRecord("test", NAME, "", operator="A. Tester", planned=["a", "g"])
        runner = ProcedureRunner(Ladder(scenario, ("a", "g"), None, None, False), record, folder)
        positioned(runner)
        offsets = runner.session.offsets
        assert offsets is not None
        step = runner.ladder.step("g")
        runner.do("arm", rung="g", scenario_hash=step.hash, offsets_hash=offsets.hash)
        runner.do("run", clear="CLEAR")
        runner.do("finish")
        return folder

    def make(*sets: str, runs: int = 1, later: tuple[str, ...] = (), mode: str = HISTORY) -> Path:
        folder = tested(NAME, tmp_path / "series", "duration=6", "servo_rate=256", *sets)
        for number in range(2, runs + 1):
            write_next(folder, mode)
            tested(str(folder / f"run_{number}.yaml"), folder / f"run_{number}", *later)
        return folder

    return make


@pytest.mark.parametrize("mode", [HISTORY, TRACKING])
def test_a_series_of_tests_on_a_rig_converges(
    series: Callable[..., Path], capsys: pytest.CaptureFixture[str], mode: str
) -> None:
    folder = series("compensator.delay=0.022", runs=2, mode=mode)
    found = write_next(folder, mode)
    assert found.rehearsal is None
    assert found.rows[0].error > 4.0
    assert found.rows[1].error < 0.5
    assert found.rows[1].answer["story"] == pytest.approx(1.0, abs=1e-3)
    assert not (folder / "history_3.npz").exists()
    assert main(["iterate", "--next", str(folder), "--mode", mode]) == 0
    assert mentions(capsys.readouterr().out, "series has converged", "the error")


def test_the_next_history_has_the_hashes_of_its_parents(
    series: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = series("compensator.delay=0.022")
    assert main(["iterate", "--next", str(folder)]) == 0
    said = capsys.readouterr().out
    assert mentions(said, folder / "run_2.yaml", "--rig", "RIG", "--record", folder / "run_2")
    assert "axes.story: expected command" in said
    parents = history.load(str(folder / "history_2.npz")).parents
    (recording,) = (folder / "rung_g").glob("*.mcap")
    assert parents == {
        f"rung_g/{recording.name}": hashlib.sha256(recording.read_bytes()).hexdigest(),
    }


def test_a_changed_parent_is_refused_by_its_name(series: Callable[..., Path]) -> None:
    folder = series("compensator.delay=0.022", runs=2)
    (recording,) = (folder / "rung_g").glob("*.mcap")
    known = history.load(str(folder / "history_2.npz"))
    history.History(
        *(known.axes, known.servo_rate, known.source, known.target, known.command),
        {f"rung_g/{recording.name}": "0" * 64},
    ).save(folder / "history_2.npz")
    with pytest.raises(ConfigError, match=naming(recording.name, "history_2.npz")) as refused:
        write_next(folder)
    assert "0" * 64 in str(refused.value)


def test_a_run_of_another_history_is_refused(series: Callable[..., Path]) -> None:
    """Another mode leads to another history, and a run that did not play its history is of no series."""
    folder = series("compensator.delay=0.022", runs=2)
    with pytest.raises(ConfigError, match=naming("history_2.npz", "differs")):
        write_next(folder, TRACKING)
    shutil.rmtree(folder / "run_2")
    shutil.copytree(folder / "rung_g", folder / "run_2")
    with pytest.raises(ConfigError, match=naming("run_2", "history_2.npz")):
        write_next(folder)


def test_a_missing_run_is_refused(series: Callable[..., Path]) -> None:
    folder = series("compensator.delay=0.022")
    (folder / "run_3").mkdir()
    with pytest.raises(ConfigError, match="run_2: missing"):
        write_next(folder)


def test_a_peak_above_that_of_run_1_is_refused(series: Callable[..., Path]) -> None:
    """A compensator of 40 ms for 28 ms takes energy out: run 1 is too small, run 2 needs 1.2 of it."""
    folder = series("compensator.delay=0.04")
    with pytest.raises(ConfigError, match=naming("axes.story", "run 2")) as refused:
        write_next(folder)
    assert "must be <= 1.1 times" in str(refused.value)
    assert not list(folder.glob("history_*"))


def test_a_loss_of_force_is_refused(tmp_path: Path, series: Callable[..., Path]) -> None:
    """The specimen is 9 % softer in run 2."""
    (tmp_path / "rig.yaml").write_text(RIG.replace("stiffness_known_to: 0.03", "stiffness_known_to: 0.3"))
    folder = series("compensator.delay=0.022", runs=2, later=("axes.story.specimen.stiffness=61e3",))
    with pytest.raises(ConfigError, match=r"run_2.*axes\.story: .* 9.11 % smaller") as refused:
        write_next(folder)
    assert "must be <= 5 %" in str(refused.value)
    assert not (folder / "history_3.npz").exists()


@pytest.mark.parametrize("limit", ["0.009", "missing"])
def test_an_elastic_limit_is_never_reached(tmp_path: Path, series: Callable[..., Path], limit: str) -> None:
    line = "" if limit == "missing" else f"    elastic_limit: {limit}\n"
    (tmp_path / "rig.yaml").write_text(re.sub(r"    elastic_limit:.*\n", line, RIG))
    folder = series("compensator.delay=0.022")
    with pytest.raises(ConfigError, match=r"axes\.story: .*elastic_limit") as refused:
        write_next(folder)
    assert ("must be < elastic_limit = 9 mm" in str(refused.value)) == bool(line)


def test_a_run_that_did_not_finish_is_refused(tmp_path: Path) -> None:
    iterated(tmp_path / "series", "--set", "axes.story.limits.force=900")
    with pytest.raises(ConfigError, match=naming("run_1", "finished", "valid", "tripped")):
        write_next(tmp_path / "series")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--next", "nowhere"], ("--next", "nowhere")),
        ([NAME, "--next", "nowhere"], ("--scenario", "--next")),
        ([], ("SCENARIO", "missing")),
    ],
)
def test_a_wrong_command_is_refused(
    words: list[str], part: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["iterate", *words]) == 2
    assert mentions(capsys.readouterr().err, *part)


def test_runs_of_a_series_are_in_the_history_of_the_specimen(tmp_path: Path) -> None:
    for name in ("other", "series", "series/run_2"):
        row = {"date": name, "test": name, "rung": "g"}
        record = ProcedureRecord(
            name, NAME, "", port="udp", specimen=SpecimenRecord("D-17", [row]), outcome="finished"
        )
        procedure.write(record, tmp_path / name)
    for place in (tmp_path, tmp_path / "series"):
        assert [row["test"] for row in command._history(place, "D-17")] == ["other", "series", "series/run_2"]


def test_bounds_are_those_of_each_axis() -> None:
    first = {"a": Peaks(1.0, 1.0, 1.0, 1.0), "b": Peaks(10.0, 10.0, 10.0, 10.0)}
    planned = first | {"a": Peaks(1.2, 1.1, 2.0, 1.0)}
    assert each_mentions(
        [words.partition(" m,")[0] for words in above_first(2, planned, first, 1.1)], ("axes.a", "run 2", "1.2")
    )
    assert beyond_elastic(2, planned, {"a": 2.1, "b": 10.1}) == []
    assert [words.partition(":")[0] for words in beyond_elastic(2, planned, {"a": 2.0, "b": 10.1})] == ["axes.a"]
