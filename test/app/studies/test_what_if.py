# SPDX-License-Identifier: Apache-2.0
"""What if: a recording gives its commands again to the bit, and predicts what another compensator does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from messages import mentions, naming

import rths_nodes
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.app.cli import main
from rths_nodes.app.commands import estimate
from rths_nodes.app.studies import prediction
from rths_nodes.app.studies.prediction import reproduced
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.scenario.files import shipped

PAPER = "chen_ricles_2010"
NOISE = [
    "duration=6",
    "axes.story_1.sensors.displacement_noise_rms=2e-5",
    "axes.story_1.sensors.force_noise_rms=500",
]


ALWAYS = (
    "chen_ricles_2010",
    "learning_five_story",
    "marths_2023",
    "phillips_spencer_2012",
    "rths_benchmark_2020",
    "tadc_el_centro",
)
"""The others under soak."""


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A test with noise, behind three samples of transport, with a compensator that learns."""
    path = tmp_path_factory.mktemp("recordings") / "run"
    rths_nodes.run(PAPER, [*NOISE, "port.transport_samples=3"], record=path)
    return path


@pytest.mark.parametrize(
    "name", [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.soak) for name in shipped()]
)
def test_the_recorded_commands_come_out_again_to_the_bit(name: str, tmp_path: Path) -> None:
    rths_nodes.run(name, ["duration=0.5"], record=tmp_path / "run")
    found = reproduced(rths_nodes.read(tmp_path / "run"))
    assert found.first_difference is None
    assert found.compared == found.samples > 100


def test_they_do_up_to_the_first_bridged_sample(tmp_path: Path) -> None:
    rths_nodes.run(PAPER, ["duration=2"], faults=["delay@1:command,3"], record=tmp_path / "run")
    found = reproduced(rths_nodes.read(tmp_path / "run"))
    assert found.first_difference is None
    assert 1000 < found.compared < 1100 < found.samples


def test_a_command_that_is_not_the_recorded_one_is_told(recording: Path) -> None:
    run = rths_nodes.read(recording)
    run.command[321] += 1e-15
    found = reproduced(run)
    assert found.first_difference == 321
    assert found.largest == pytest.approx(1e-15, rel=0.5)


@pytest.mark.parametrize(
    "changes",
    [
        ["compensator.type=inverse", "compensator.alpha=20"],
        pytest.param(
            ["compensator.type=polynomial", "compensator.delay=0.02", "compensator.order=1"],
            marks=pytest.mark.soak,
        ),
        ["compensator.type=none"],
    ],
    ids=lambda changes: changes[0],
)
def test_the_predicted_error_is_that_of_a_second_test(recording: Path, changes: list[str]) -> None:
    """With other noise, within 15 %, and what the actuator did to the response is in it."""
    predicted = prediction.predict(rths_nodes.read(recording), changes)
    second = rths_nodes.run(PAPER, [*NOISE, "port.transport_samples=3", "seed=77", *changes])
    real = Evaluation(second).indices()["story_1"]
    found = predicted.indices[prediction.CHANGED]["story_1"]
    for key in ("error_norm_percent", "max_error_m"):
        assert found[key] == pytest.approx(real[key], rel=0.15)
    as_it_was = predicted.indices[prediction.AGAIN]["story_1"]
    measured = predicted.indices[prediction.MEASURED]["story_1"]
    assert as_it_was["error_norm_percent"] == pytest.approx(measured["error_norm_percent"], rel=0.15)


def test_the_engine_changes_nothing(recording: Path) -> None:
    changes = ["compensator.type=none"]
    one, other = (prediction.predict(rths_nodes.read(recording), changes, each) for each in ("python", "compiled"))
    assert other.outcomes == one.outcomes
    assert repr(other.indices) == repr(one.indices)
    assert other.runs[prediction.CHANGED].information["engine"] == "compiled"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            ["axes.story_1.actuator.alpha=20"],
            ("20", "recording"),
        ),
        (["port.transport_samples=2"], ("cannot be changed",)),
        ({"axes.story_1.specimen": {"type": "kelvin_voigt"}}, ("axes.story_1.specimen", "cannot be changed")),
        ({"axes": {}}, ("axes", "cannot be changed")),
        (["compensator.type=nonee"], ("unknown", "compensator", "nonee")),
        (["servo_rate=2048"], ("servo_rate", "identified")),
    ],
)
def test_what_cannot_be_asked_is_refused(recording: Path, changes: Any, words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*words)):
        prediction.predict(rths_nodes.read(recording), changes)


def test_the_command_says_what_comes_out(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["estimate", str(recording), "--for", "prediction"]) == 0
    assert mentions(capsys.readouterr().out, "6150", "bit")
    assert main(["estimate", str(recording), "--for", "prediction", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["equal"] is True
    command = ["estimate", str(recording), "--set", "compensator.type=inverse", "--set", "compensator.alpha=20"]
    assert main([*command, "--figure", str(tmp_path / "what_if.svg")]) == 0
    shown = capsys.readouterr().out
    for words in ("story_1: the identified rig explains 9", "measured", "predicted, nothing changed", "finished"):
        assert words in shown
    assert "predicted" in (tmp_path / "what_if.svg").read_text()
    assert main([*command, "--json"]) == 0
    data: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in data["rows"]] == [prediction.MEASURED, prediction.AGAIN, prediction.CHANGED]
    assert data["identified"]["story_1"]["displacement_fit"] > 99.0


@pytest.mark.parametrize("own_motion", [0.0, 5e-3])
def test_a_model_that_does_not_match_says_so_first(
    own_motion: float, recording: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rig that also moves by itself, m, is no transfer function of the command."""
    run = rths_nodes.read(recording)
    run.displacement[:, 0] += own_motion * np.sin(2.0 * np.pi * run.time)
    monkeypatch.setattr("rths_nodes.recording.reading.read_run", lambda path: run)
    code = main(["estimate", str(recording), "--set", "compensator.type=none"])
    first = capsys.readouterr().out.splitlines()[0]
    assert (code, first.startswith(estimate.UNUSABLE)) == ((3, True) if own_motion else (0, False))
    assert not own_motion or mentions(first, "story_1", "mm")


def test_a_prediction_that_trips_says_so(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", str(recording), "--set", "axes.story_1.limits.force=2e4"]) == 3
    assert "tripped: " in capsys.readouterr().out


# Axes that are controlled by force

COLUMN = "column_under_axial_load"
SOON = [
    *("axes.load.load={value: 500.0e3, ramp_time: 1.0, held_for: 0.1}", "axes.load.limits.force_rate=2.0e6"),
    *("duration=4.0", "ground_motion.delay=1.2"),
]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A column under its load, with noise."""
    path = tmp_path_factory.mktemp("loaded") / "run"
    rths_nodes.run(COLUMN, SOON, record=path)
    return path


def test_commands_in_newtons_come_out_again_to_the_bit(loaded: Path) -> None:
    run = rths_nodes.read(loaded)
    found = reproduced(run)
    assert (found.first_difference, found.compared) == (None, found.samples)
    assert run.loads is not None
    run.loads.command[2000] *= 1.0 + 1e-15
    assert reproduced(run).first_difference == 2000


def test_a_loaded_column_is_predicted_under_its_recorded_load(loaded: Path) -> None:
    """k - P / h - P / L is identified, of which the setup gives back P / L, by the load as it was."""
    changes = ["compensator.type=none"]
    found = prediction.predict(rths_nodes.read(loaded), changes)
    model = found.models["drift"]
    assert list(found.models) == ["drift"]
    assert model.specimen["stiffness"] == pytest.approx(1e6 - 500e3 / 3.0 - 500e3 / 2.0, rel=0.01)
    assert model.force_fit > 95.0
    run = rths_nodes.run(COLUMN, [*SOON, *changes, "seed=7"])
    other, hsem = Evaluation(run).indices()["drift"], run.metrics["hsem_percent"]
    assert found.runs[prediction.CHANGED].metrics["hsem_percent"] == pytest.approx(hsem, rel=0.05)
    predicted = found.indices[prediction.CHANGED]["drift"]
    for name in ("error_norm_percent", "max_error_percent"):
        assert predicted[name] == pytest.approx(other[name], rel=0.05), name
    as_it_was = found.indices[prediction.AGAIN]["drift"], found.indices[prediction.MEASURED]["drift"]
    assert as_it_was[0]["delay_s"] == pytest.approx(as_it_was[1]["delay_s"], abs=1e-3)


def test_a_recorded_load_cannot_be_changed(loaded: Path) -> None:
    with pytest.raises(ConfigError, match=naming("axes.load.load.value", "100000")):
        prediction.predict(rths_nodes.read(loaded), ["axes.load.load.value=1e5"])


def test_python_predicts_what_the_command_predicts(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["estimate", str(recording), "--set", "compensator={type: inverse, alpha: 20}", "--json"]
    assert main(words) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    found = rths_nodes.estimate(recording, set={"compensator": {"type": "inverse", "alpha": 20}})
    assert rows == [
        {"name": row, "outcome": "finished", "reason": "", "axes": found.indices[row]} for row in found.runs
    ]
    assert isinstance(found.runs["predicted"], rths_nodes.Run)
    assert mentions(repr(found), "predicted", "finished", "story_1")
    with pytest.raises(ConfigError, match=naming("axis", "set")):
        rths_nodes.estimate(recording, "story_1", set="compensator.type=none")  # type: ignore[call-overload]
