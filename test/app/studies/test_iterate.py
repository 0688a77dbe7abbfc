# SPDX-License-Identifier: Apache-2.0
"""``rths iterate`` on simulated rigs: it converges, ends by its rule, and refuses what it cannot do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from messages import mentions, naming
from written_history import history_of, written_history

import rths_nodes
from rths_nodes.analysis.iteration.convergence import HISTORY, TRACKING, Rule
from rths_nodes.analysis.iteration.corrections import Settings
from rths_nodes.app.cli import main
from rths_nodes.app.commands.iterate import Iteration, iterate
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.scenario import files
from rths_nodes.mechanics.history import History, load

NAME = "sdof_by_iteration"
LATE = "compensator.type=none"
SHORT = ("duration=8", LATE)


PRESCRIBED = {"type": "prescribed", "displacement": {"type": "sine", "amplitude": 0.001, "frequency": 1.0}}


def iterated(mode: str, folder: Path, *overrides: str, record: bool = False, **settings: Any) -> Iteration:
    rule = Rule(settings.pop("runs", 5), settings.pop("tolerance", 0.5))
    scenario = files.load(NAME, [*SHORT, *overrides])
    return iterate(scenario, Settings(mode, rule, **settings), folder, record)


def test_the_loop_in_real_time_is_not_stable_and_from_run_to_run_it_agrees(tmp_path: Path) -> None:
    """Within 1 % of the oscillator in one piece, which the scenario states 15 % too stiff."""
    assert rths_nodes.run(NAME, [LATE]).outcome == "tripped"
    found = iterated(HISTORY, tmp_path)
    assert found.verdict == "converged"
    assert found.exit_code == 0
    assert len(found.rows) <= 3
    assert found.rows[0].true > 30.0
    assert found.rows[-1].true < 1.0


@pytest.mark.parametrize("delay", [0, 60])
def test_a_delay_falls_out(delay: int, tmp_path: Path) -> None:
    found = iterated(HISTORY, tmp_path, f"port.transport_samples={delay}")
    assert found.verdict == "converged"
    assert len(found.rows) <= 3
    assert found.rows[-1].true < 1.0
    assert found.inverse is not None
    assert found.inverse.late[0] == pytest.approx(0.0284 + delay / 1024.0, abs=2e-3)


def test_tracking_ends_at_the_noise_of_the_sensor(tmp_path: Path) -> None:
    found = iterated(TRACKING, tmp_path, tolerance=0.01)
    assert found.verdict == "converged"
    assert found.rows[-1].missed == pytest.approx(1e-5, rel=0.1)


def test_prescribed_displacements_are_tracked(tmp_path: Path) -> None:
    scenario = files.load("predefined_sine", ["duration=6", "compensator={type: none}"])
    found = iterate(scenario, Settings(TRACKING), tmp_path, False)
    assert found.rows[-1].error < 0.1 * found.rows[0].error


def test_a_specimen_that_softens_ends_it_before_run_3(tmp_path: Path) -> None:
    changes = {2: ["axes.story.specimen.stiffness=61e3"]}
    found = iterated(HISTORY, tmp_path, changes=changes)
    assert (found.verdict, len(found.rows)) == ("softened", 2)
    assert mentions(found.reason, "axes.story", "force", "9.11 % smaller", "run 1")
    assert "must be <= 5 %" in found.reason
    assert found.exit_code == 3


def test_what_plain_iteration_cannot_it_says(tmp_path: Path) -> None:
    found = iterated(HISTORY, tmp_path, relaxation="constant")
    assert found.verdict == "diverged"
    assert found.exit_code == 3


def test_a_run_beyond_the_first_is_held_before_it_begins(tmp_path: Path) -> None:
    found = iterated(HISTORY, tmp_path, within=1.01)
    assert (found.verdict, len(found.rows), found.exit_code) == ("held", 1, 130)
    assert mentions(found.reason, "axes.story", "run 2", "0.0208725 m", "1.08")
    assert "must be <= 1.01 times, i.e. 0.019447 m" in found.reason
    assert not (tmp_path / "history_2.npz").exists()
    assert iterated(HISTORY, tmp_path, within=1.3).verdict == "converged"


def test_a_run_that_trips_ends_it_with_its_own_code(tmp_path: Path) -> None:
    found = iterated(HISTORY, tmp_path, "axes.story.limits.force=900")
    assert (found.verdict, found.exit_code) == ("ended", 3)
    assert found.reason.startswith("run 1 tripped: sample")


def test_a_history_runs_again_to_the_same_bits(tmp_path: Path) -> None:
    """What was sent stands in one file, and a recording is all that it takes to send it again."""
    found = iterated(HISTORY, tmp_path, record=True)
    last = rths_nodes.read(tmp_path / f"run_{len(found.rows)}")
    again = rths_nodes.run(last.scenario)
    np.testing.assert_array_equal(again.displacement, last.displacement)
    sent = load(str(tmp_path / f"history_{len(found.rows)}.npz"))
    np.testing.assert_array_equal(again.command[1:], sent.command[1:])
    np.testing.assert_array_equal(again.target[1:], sent.target[1:, 0])


@pytest.mark.parametrize(
    ("name", "overrides", "mode", "words"),
    [
        (NAME, ["time_ratio=10"], HISTORY, ("time_ratio", "10", "1")),
        ("predefined_sine", [], HISTORY, ("structure", "missing")),
        ("column_under_axial_load", [], TRACKING, ("axes.load", "controlled")),
        ("phillips_spencer_2012", [], HISTORY, ("semi_active", "inputs")),
        ("yielding_five_story", [], HISTORY, ("linear",)),
    ],
)
def test_what_cannot_be_iterated_is_refused(
    name: str, overrides: list[str], mode: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=naming(*words)):
        iterate(files.load(name, overrides), Settings(mode), tmp_path)


def test_a_real_rig_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each run on a real rig is armed by an operator."""
    command = ["iterate", "chen_ricles_2010", "--rig", "bench_udp", "--record", str(tmp_path / "runs")]
    assert main(command) == 2
    assert mentions(capsys.readouterr().err, "port.type", "simulated rig", "rths iterate --next")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"mode": "both"}, ("unknown", "mode", "both")),
        ({"mode": HISTORY, "relaxation": "none"}, ("unknown", "relaxation", "none")),
        ({"mode": HISTORY, "omega": 0.0}, ("--omega", "0", "> 0")),
        ({"mode": HISTORY, "cutoff": -1.0}, ("--cutoff", "-1 Hz", "> 0")),
        ({"mode": HISTORY, "within": 0.9}, ("--within", "0.9", ">= 1")),
    ],
)
def test_settings_out_of_bounds_are_refused(settings: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*words)):
        Settings(**settings)


def test_the_command_writes_table_result_figure_and_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, figure, page = tmp_path / "runs", tmp_path / "found.svg", tmp_path / "last.html"
    command = ["iterate", NAME, "--set", SHORT[0], "--set", LATE, "--record", str(folder)]
    assert main([*command, "--figure", str(figure), "--report", str(page)]) == 0
    told = capsys.readouterr()
    assert "converged: the error" in told.out
    assert "run 1: error" in told.err
    assert mentions(figure.read_text(), "Remaining fraction", "error")
    assert page.read_text().startswith("<!DOCTYPE html>")
    data = json.loads((folder / "iteration.json").read_text())
    assert data["verdict"] == "converged"
    assert [row["number"] for row in data["rows"]] == list(range(1, len(data["rows"]) + 1))
    assert {path.name for path in folder.iterdir()} >= {"history_1.npz", "run_1", "run_2"}
    assert main(command) == 2
    assert mentions(capsys.readouterr().err, "exists", "new folder")
    assert main([*command[:-2], "--no-record", "--json", "--change", "2:axes.story.specimen.stiffness=6e4"]) == 3
    data = json.loads(capsys.readouterr().out)
    assert (data["verdict"], len(data["rows"])) == ("softened", 2)
    assert main([*command[:-2], "--no-record", "--change", "axes.story.specimen.stiffness=6e4"]) == 2
    assert mentions(capsys.readouterr().err, "RUN", "section.key")


# The file of a history


def test_a_history_comes_back_to_the_bit(tmp_path: Path) -> None:
    written = history_of(2, 0.01)
    written.save(tmp_path / "a.npz")
    found = load(str(tmp_path / "a.npz"))
    assert (found.axes, found.servo_rate, found.source) == (written.axes, written.servo_rate, written.source)
    np.testing.assert_array_equal(found.target, written.target)
    np.testing.assert_array_equal(found.command, written.command)


def test_files_that_are_no_history_are_refused(tmp_path: Path) -> None:
    good = history_of(2, 0.01)
    (tmp_path / "words.npz").write_text("words")
    History(good.axes, 100.0, "", good.target[:, :, :1], good.command).save(tmp_path / "narrow.npz")
    History(good.axes, 100.0, "", np.nan * good.target, good.command).save(tmp_path / "nan.npz")
    for name, words in (
        ("none", "cannot be read"),
        ("words", "must be a history"),
        ("narrow", "size"),
        ("nan", "finite"),
    ):
        with pytest.raises(ConfigError, match=words):
            load(str(tmp_path / f"{name}.npz"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, ("integrator", "targets")),
        (
            {"structure": None, "integrator": PRESCRIBED, "soft_start": {"amplitude": 0.001}},
            ("soft_start", "left"),
        ),
    ],
)
def test_commands_of_a_history_do_not_follow_targets_of_another_time(
    change: dict[str, Any], words: tuple[str, ...]
) -> None:
    data = files.load(NAME).data() | {
        "compensator": {"type": "predefined", "history": written_history(1, 1.0 / 1024.0)}
    }
    if change:
        data |= change | {"ground_motion": {"type": "none"}}
    with pytest.raises(ConfigError, match=naming(*words)):
        rths_nodes.run(files.from_data(data, "test"))


@pytest.mark.parametrize(
    ("history", "words"),
    [
        ((2, 1.0 / 1024.0), ("axes", "test")),
        ((1, 1.0 / 512.0), ("512 Hz", "1024 Hz")),
        ((1, 1.0 / 1024.0), ("200", "samples")),
    ],
)
def test_a_history_of_another_test_is_refused(history: tuple[int, float], words: tuple[str, ...]) -> None:
    data = files.load(NAME).data()
    data |= {"structure": None, "axes": {"a": data["axes"]["story"]}, "ground_motion": {"type": "none"}}
    played = {"type": "predefined", "history": written_history(*history)}
    for wrong in ({"integrator": played}, {"integrator": PRESCRIBED, "compensator": played}):
        with pytest.raises(ConfigError, match=naming(*words)):
            rths_nodes.run(files.from_data(data | wrong, "test"))
