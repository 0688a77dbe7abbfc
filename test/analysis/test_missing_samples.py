# SPDX-License-Identifier: Apache-2.0
"""Tests of analyses of recordings with missing samples."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from messages import mentions, naming
from rewritten_recordings import rewritten, without

import rths_nodes
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.identification.from_recording import estimate
from rths_nodes.analysis.overlay import Aligned, differences
from rths_nodes.analysis.report.document import render
from rths_nodes.app import hosts
from rths_nodes.app.cli import main
from rths_nodes.app.commands.iterate import _finished
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.wire import decode
from rths_nodes.recording.run import longest_stretch

DELAY = 6.545e-3
"""J1 of the complete test, s."""
GAP = range(820, 1229)
LOST = sorted(np.random.default_rng(4).choice(2040, 204, replace=False).tolist())
STREAMS = ("measurement", "command")


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("complete") / "run"
    hosts.run("chen_ricles_2010", ["duration=2"], record=path)
    return path


@pytest.fixture(scope="module")
def gap(complete: Path) -> Path:
    return without(complete, complete.parent / "gap", STREAMS, GAP)


@pytest.fixture(scope="module")
def loss(complete: Path) -> Path:
    return without(complete, complete.parent / "loss", ("measurement",), LOST)


def test_longest_stretch_is_selected() -> None:
    assert longest_stretch(np.array([1, 1, 0, 1, 1, 1, 0, 0, 1], dtype=bool)).tolist() == [3, 4, 5]
    assert longest_stretch(np.zeros(3, dtype=bool)).tolist() == []
    assert longest_stretch(np.ones(3, dtype=bool)).tolist() == [0, 1, 2]


def test_missing_samples_are_counted(complete: Path, gap: Path, loss: Path) -> None:
    assert rths_nodes.read(complete).notes == ()
    for path, count in ((gap, 409), (loss, 204)):
        run = rths_nodes.read(path)
        assert run.missing.sum() == count
        assert mentions(run.notes, path, count, 2051, "missing")


def test_estimate_does_not_close_gap(gap: Path) -> None:
    """0.150 ms if the rows are joined."""
    (result,) = estimate(rths_nodes.read(gap)).values()
    assert (result.missing, result.samples) == (409, 822)
    assert result.tracking.delay == pytest.approx(DELAY, rel=0.01)


def test_estimate_without_long_stretch_is_refused(loss: Path) -> None:
    """5.835 ms if the rows are joined."""
    with pytest.raises(ConfigError, match=naming("--begin 0 s", 209, "204 of 2051")):
        estimate(rths_nodes.read(loss))


def test_indices_equal_those_of_test(complete: Path, gap: Path, loss: Path) -> None:
    expected = Evaluation(rths_nodes.read(complete)).indices()["story_1"]
    assert expected["delay_s"] == pytest.approx(DELAY, rel=1e-3)
    for path in (gap, loss):
        indices = Evaluation(rths_nodes.read(path)).indices()["story_1"]
        unfiltered = {name: value for name, value in expected.items() if not name.startswith("fei")}
        assert indices == pytest.approx(unfiltered, rel=1e-9)


def test_indices_without_metrics_use_longest_stretch(gap: Path) -> None:
    evaluation = Evaluation(dataclasses.replace(rths_nodes.read(gap), metrics={}))
    assert (evaluation.counted[0], evaluation.counted[-1]) == (1229, 2050)
    assert evaluation.indices()["story_1"]["delay_s"] == pytest.approx(DELAY, rel=0.01)
    error = evaluation.run.target[1229:, 0] - evaluation.run.displacement[1229:, 0]
    np.testing.assert_array_equal(evaluation.running.control_error[:, 0], error)


def test_running_indices_of_stretch_start_at_zero(complete: Path, gap: Path) -> None:
    """They grow by as much as in the complete test."""
    complete_run, partial_run = (Evaluation(rths_nodes.read(path)).running for path in (complete, gap))
    for name in ("tracking_indicator", "energy_error"):
        values, after = getattr(partial_run, name), getattr(complete_run, name)[1229:]
        np.testing.assert_allclose(values, after - after[0], rtol=1e-6, atol=1e-9 * np.abs(after).max())


@pytest.mark.parametrize("kind", ["gap", "loss"])
def test_page_states_missing_samples_in_head(kind: str, request: pytest.FixtureRequest) -> None:
    run = rths_nodes.read(request.getfixturevalue(kind))
    page = render(run)
    count = {"gap": "409 of 2051", "loss": "204 of 2051"}[kind]
    assert count in page[page.index('<p class="first">') : page.index("<h1>")]
    assert f"<dd>{count}" in page
    stopped = render(dataclasses.replace(run, information=run.information | {"outcome": "tripped"}))
    assert f"{run.missing.sum()} of 2051" in stopped[: stopped.index("<header>")]


@pytest.mark.parametrize("lost", ["target", "test_state", "target test_state", "target test_state summary"])
def test_report_of_recording_without_topics(complete: Path, tmp_path: Path, lost: str) -> None:
    def change(topic: str, data: bytes) -> list[bytes]:
        return [] if topic.rpartition("/")[2] in lost.split() else [data]

    run = rths_nodes.read(rewritten(complete, tmp_path / "part", change))
    assert any("target" in note for note in run.notes) == ("target" in lost)
    assert all(note in render(run) for note in run.notes)


def test_estimate_command_reports_missing_samples(gap: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", str(gap), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["story_1"]["missing"] == 409
    assert main(["estimate", str(gap), "--set", "compensator.type=none", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["missing"] == 409
    delays = [row["axes"]["story_1"]["delay_s"] for row in result["rows"]]
    assert delays[:2] == pytest.approx([DELAY, DELAY], rel=1e-2)


@pytest.mark.parametrize("purpose", ["model_based", "identified_inverse", "rig_file"])
def test_identification_refuses_incomplete_recording(
    purpose: str, gap: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["identify", "chen_ricles_2010", "--for", purpose, "--from", str(gap)]
    arguments += [] if purpose == "rig_file" else ["--out", str(tmp_path / "model.yaml")]
    assert main(arguments) == 2
    assert mentions(capsys.readouterr().err, gap, "409 of 2051")


def test_iteration_refuses_incomplete_run(gap: Path) -> None:
    with pytest.raises(ConfigError, match=naming(gap, "409 of 2051")):
        _finished(gap)


def test_overlay_does_not_interpolate_gap(complete: Path, gap: Path) -> None:
    """A line from sample 819 to 1229 differed by millimetres from an identical test."""
    complete_run, partial_run = (Aligned(name, Evaluation(rths_nodes.read(name))) for name in (complete, gap))
    assert differences(complete_run, partial_run)["displacement of story_1"].largest == 0.0


def test_lost_command_gives_no_target(complete: Path, tmp_path: Path) -> None:
    """The applied command in the Measurement must not replace the target."""
    run = rths_nodes.read(without(complete, tmp_path / "run", ("command",), range(1000, 1100)))
    assert np.isnan(run.target[1000:1100]).all()
    assert np.isfinite(run.command).all()
    assert mentions(run.notes, "100 of 2051")


@pytest.mark.parametrize("lost", [range(220), range(150, 220)], ids=["begin", "end"])
def test_time_begins_after_soft_start_whose_samples_are_missing(lost: range, tmp_path: Path) -> None:
    """Otherwise the histories are shifted, and a test differs from itself."""
    soft = "{amplitude: 1e-4, frequency: 10, rise_time: 0.05, fall_time: 0.05, duration: 0.1, rest_time: 0.05}"
    hosts.run("chen_ricles_2010", ["duration=0.2", f"soft_start={soft}"], record=tmp_path / "complete")
    cut = without(tmp_path / "complete", tmp_path / "cut", (*STREAMS, "true_state"), lost)
    uncut, part = (Evaluation(rths_nodes.read(path)) for path in (tmp_path / "complete", cut))
    assert (uncut.first_sample, part.first_sample) == (211, 211)
    for name, entry in differences(Aligned("uncut", uncut), Aligned("part", part)).items():
        assert entry.largest == 0.0, name


@pytest.mark.parametrize("lost", [range(5), range(100, 105), range(201, 206)], ids=["begin", "middle", "end"])
def test_missing_targets_are_counted(lost: range, complete: Path, tmp_path: Path) -> None:
    def change(topic: str, data: bytes) -> list[bytes]:
        return [] if topic.endswith("/target") and decode("Target", data)["step"] in lost else [data]

    run = rths_nodes.read(rewritten(complete, tmp_path / "some", change))
    assert mentions(run.notes, 5, "of 206", "target", "missing")
    assert "<dd>nothing" not in render(run)
