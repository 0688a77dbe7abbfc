# SPDX-License-Identifier: Apache-2.0
"""Recordings with missing samples: no analysis closes up a gap, and each says how many samples are missing."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from messages import mentions, naming
from rewritten_recordings import without

import rths_nodes
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.identification.estimate import estimate
from rths_nodes.analysis.overlay import Aligned, differences
from rths_nodes.analysis.report.document import render
from rths_nodes.app import hosts
from rths_nodes.app.cli import main
from rths_nodes.app.commands.iterate import _finished
from rths_nodes.core.errors import ConfigError
from rths_nodes.recording.run import longest_stretch

DELAY = 6.545e-3
"""J1 of the complete test, s."""
GAP = range(820, 1229)
LOST = sorted(np.random.default_rng(4).choice(2040, 204, replace=False).tolist())
STREAMS = ("measurement", "command")


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("complete") / "run"
    hosts.run("chen_ricles_2010", ["duration=2"], record=place)
    return place


@pytest.fixture(scope="module")
def gap(complete: Path) -> Path:
    return without(complete, complete.parent / "gap", STREAMS, GAP)


@pytest.fixture(scope="module")
def loss(complete: Path) -> Path:
    return without(complete, complete.parent / "loss", ("measurement",), LOST)


def test_the_longest_stretch_is_taken() -> None:
    usable = np.array([1, 1, 0, 1, 1, 1, 0, 0, 1], dtype=bool)
    assert longest_stretch(usable).tolist() == [3, 4, 5]
    assert longest_stretch(np.zeros(3, dtype=bool)).tolist() == []
    assert longest_stretch(np.ones(3, dtype=bool)).tolist() == [0, 1, 2]


def test_the_missing_samples_are_counted(complete: Path, gap: Path, loss: Path) -> None:
    assert rths_nodes.read(complete).notes == ()
    for place, count in ((gap, 409), (loss, 204)):
        run = rths_nodes.read(place)
        assert run.missing.sum() == count
        assert mentions(run.notes, place, count, 2051, "missing")


def test_an_estimate_does_not_close_up_a_gap(gap: Path) -> None:
    """0.150 ms with the rows side by side."""
    (found,) = estimate(rths_nodes.read(gap)).values()
    assert (found.missing, found.samples) == (409, 822)
    assert found.tracking.delay == pytest.approx(DELAY, rel=0.01)


def test_an_estimate_without_a_long_stretch_is_refused(loss: Path) -> None:
    """5.835 ms with the rows side by side."""
    with pytest.raises(ConfigError, match=naming("--begin 0 s", 209, "204 of 2051")):
        estimate(rths_nodes.read(loss))


def test_the_indices_are_those_of_the_test_itself(complete: Path, gap: Path, loss: Path) -> None:
    whole = Evaluation(rths_nodes.read(complete)).indices()["story_1"]
    assert whole["delay_s"] == pytest.approx(DELAY, rel=1e-3)
    for place in (gap, loss):
        found = Evaluation(rths_nodes.read(place)).indices()["story_1"]
        expected = {name: value for name, value in whole.items() if not name.startswith("fei")}
        assert found == pytest.approx(expected, rel=1e-9)


def test_without_those_the_longest_stretch_counts(gap: Path) -> None:
    of = Evaluation(dataclasses.replace(rths_nodes.read(gap), metrics={}))
    assert (of.counted[0], of.counted[-1]) == (1229, 2050)
    assert of.indices()["story_1"]["delay_s"] == pytest.approx(DELAY, rel=0.01)
    error = of.run.target[1229:, 0] - of.run.displacement[1229:, 0]
    np.testing.assert_array_equal(of.running.control_error[:, 0], error)


def test_the_energy_and_the_enclosed_area_of_a_stretch_begin_at_zero(complete: Path, gap: Path) -> None:
    """And grow by as much as in the complete test."""
    whole, part = (Evaluation(rths_nodes.read(place)).running for place in (complete, gap))
    for name in ("tracking_indicator", "energy_error"):
        values, after = getattr(part, name), getattr(whole, name)[1229:]
        np.testing.assert_allclose(values, after - after[0], rtol=1e-6, atol=1e-9 * np.abs(after).max())


@pytest.mark.parametrize("kind", ["gap", "loss"])
def test_the_page_says_it_at_its_head(kind: str, request: pytest.FixtureRequest) -> None:
    page = render(rths_nodes.read(request.getfixturevalue(kind)))
    count = {"gap": "409 of 2051", "loss": "204 of 2051"}[kind]
    assert count in page[page.index('<p class="first">') : page.index("<h1>")]
    assert f"<dd>{count}" in page


@pytest.mark.parametrize("kind", ["gap", "loss"])
def test_the_head_of_a_stopped_test_says_it_too(kind: str, request: pytest.FixtureRequest) -> None:
    run = rths_nodes.read(request.getfixturevalue(kind))
    page = render(dataclasses.replace(run, information=run.information | {"outcome": "tripped"}))
    assert f"{run.missing.sum()} of 2051" in page[: page.index("<header>")]


def test_the_command_says_it_and_what_it_used(gap: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", str(gap), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["story_1"]["missing"] == 409
    assert main(["estimate", str(gap), "--set", "compensator.type=none", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["missing"] == 409
    delays = [row["axes"]["story_1"]["delay_s"] for row in result["rows"]]
    assert delays[:2] == pytest.approx([DELAY, DELAY], rel=1e-2)


@pytest.mark.parametrize("purpose", ["model_based", "identified_inverse", "rig_file"])
def test_no_model_comes_from_an_incomplete_recording(
    purpose: str, gap: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["identify", "chen_ricles_2010", "--for", purpose, "--from", str(gap)]
    words += [] if purpose == "rig_file" else ["--out", str(tmp_path / "model.yaml")]
    assert main(words) == 2
    assert mentions(capsys.readouterr().err, gap, "409 of 2051")


def test_nothing_is_learned_from_an_incomplete_run(gap: Path) -> None:
    with pytest.raises(ConfigError, match=naming(gap, "409 of 2051")):
        _finished(gap)


def test_an_overlay_draws_no_line_through_a_gap(complete: Path, gap: Path) -> None:
    """A line from sample 819 to 1229 was millimetres off a test that is the same."""
    whole, part = (Aligned(name, Evaluation(rths_nodes.read(name))) for name in (complete, gap))
    found = differences(whole, part)["displacement of story_1"]
    assert found.largest == 0.0


def test_a_lost_command_is_no_target(complete: Path, tmp_path: Path) -> None:
    """The applied command, which the Measurement brings, took the place of the target."""
    run = rths_nodes.read(without(complete, tmp_path / "run", ("command",), range(1000, 1100)))
    assert np.isnan(run.target[1000:1100]).all()
    assert np.isfinite(run.command).all()
    assert mentions(run.notes, "100 of 2051")
