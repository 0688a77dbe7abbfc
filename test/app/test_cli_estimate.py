# SPDX-License-Identifier: Apache-2.0
"""Tests of ``rths estimate``: delays, updating of model parameters, prediction with another compensator."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_fixtures import RunCommand
from messages import mentions, naming

import rths_nodes
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.app.commands import estimate
from rths_nodes.app.studies import prediction
from rths_nodes.app.studies.prediction import reproduced
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.scenario.files import shipped

PAPER = "chen_ricles_2010"
SINE = "predefined_sine"


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["nowhere"], ("nowhere",)),
        (["rec", "--for", "updating"], ("--model", "missing", "bouc_wen", "bilinear", "kelvin_voigt")),
        (["rec", "--law", "ukf"], ("--law", "--for")),
        (["{updating}", "--initial", "stiffness"], ("--initial", "NAME", "VALUE")),
        (["{updating}", "--initial", "stifness=1e6"], ("unknown", "key", "stifness")),
        (["{updating}", "--parameter", "stiffness=9e6"], ("--parameter", "9e6", "NAME", "LOW", "HIGH")),
        (["{updating}", "--figure", "shadow.bmp"], ("shadow.bmp", "svg")),
    ],
)
def test_invalid_arguments_are_refused(
    refusal: RunCommand,
    updating: list[str],
    arguments: list[str],
    parts: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(Path(updating[0]).parent)
    first, *options = arguments
    assert mentions(refusal("estimate", *(updating if first == "{updating}" else [first]), *options), *parts)


# Delays


def test_delay_of_recording_is_estimated(output: RunCommand, tmp_path: Path) -> None:
    recording = str(tmp_path / "rec")
    rths_nodes.run(SINE, duration=3, compensator={"type": "none"}, record=recording)
    axis = json.loads(output("estimate", recording, "--begin", "1", "--json"))["axis_1"]
    assert axis["sine"] == pytest.approx(1.0, rel=1e-3)
    assert axis["suggested"]["inverse"]["alpha"] == pytest.approx(29.0, rel=0.02)
    text = output("estimate", recording, "--axis", "axis_1", "--begin", "1", "--end", "2.9")
    assert mentions(text, "axis_1", "1.000", "2.899 s", "1946")
    assert "suggested: compensator.type=inverse compensator.alpha=2" in text


def test_suggested_compensators_reduce_delay(output: RunCommand, tmp_path: Path) -> None:
    """The printed settings leave a tenth of the delay."""
    rths_nodes.run(PAPER, duration=6, compensator={"type": "none"}, record=tmp_path / "rec")
    text = output("estimate", str(tmp_path / "rec"))
    for name in ("polynomial", "inverse", "adaptive_inverse", "discrete_model"):
        if name in registry.names("compensator"):
            (settings,) = re.findall(rf"suggested: (compensator.type={name} .*)", text)
            command = ["compare", PAPER, "--set", "duration=6", "--variant", settings, "--json"]
            assert abs(json.loads(output(*command))["variants"][0]["values"]["J1"]) < 3.0


def test_unknown_axis_and_empty_range_are_refused(refusal: RunCommand, tmp_path: Path) -> None:
    recording = str(tmp_path / "rec")
    rths_nodes.run(SINE, duration=0.2, record=recording)
    assert mentions(refusal("estimate", recording, "--axis", "axis_2"), "--axis", "unknown", "axis_2")
    error = refusal("estimate", recording, "--begin", "5")
    assert mentions(error, "--begin 5 s", "--end 0.200195 s", "0", ">= 209")


# Updating of model parameters


@pytest.fixture(scope="module")
def updating(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Arguments that update the model of a specimen."""
    recording = tmp_path_factory.mktemp("updating") / "rec"
    rths_nodes.run(PAPER, duration=4, record=recording)
    return [str(recording), "--for", "updating", "--model", "kelvin_voigt"]


INITIAL = ["--initial", "stiffness=9.9e6", "--initial", "damping=4.5e5"]


def test_parameters_are_printed_with_uncertainty(output: RunCommand, updating: list[str], tmp_path: Path) -> None:
    text = output("estimate", *updating, *INITIAL, "--figure", str(tmp_path / "shadow.svg"))
    head, *lines = text.splitlines()
    assert mentions(head, "story_1", "kelvin_voigt", "ukf", "0.00 to 4.00 s", "411 samples")
    rows = {line.split()[0]: line.split() for line in lines if line.split()}
    assert float(rows["stiffness"][1]) == 9.9e6
    assert float(rows["stiffness"][2]) == pytest.approx(7.6e6, rel=0.05)
    assert float(rows["damping"][2]) == pytest.approx(0.64e6, rel=0.05)
    assert rows["damping"][-1] == rows["stiffness"][-1] == "yes"
    assert sum("+-" in line for line in lines) == 8
    assert "samples: 411 learnt from" in text
    assert (tmp_path / "shadow.svg").is_file()


def test_json_has_parameter_histories(output: RunCommand, updating: list[str]) -> None:
    options = ["--law", "rls", "--parameter", "damping=1e5:1e6", "--json"]
    result = json.loads(output("estimate", *updating, *INITIAL, *options))
    assert list(result["parameters"]) == ["damping"]
    assert len(result["time"]) == len(result["estimates"]["damping"]) == 411
    assert result["unexplained"] > 0.0, "the stiffness is fixed to a wrong value"
    assert result["parameters"]["damping"]["identified"] is False


# Prediction

NOISE = [
    "duration=6",
    "axes.story_1.sensors.displacement_noise_rms=2e-5",
    "axes.story_1.sensors.force_noise_rms=500",
    "port.transport_samples=3",
]
QUICK = ("chen_ricles_2010", "learning_five_story", "marths_2023", "phillips_spencer_2012")
QUICK += ("rths_benchmark_2020", "tadc_el_centro")
"""Scenarios that are also tested without ``-m soak``."""


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recording of a test with noise, transport of three samples and an adaptive compensator."""
    path = tmp_path_factory.mktemp("recordings") / "run"
    rths_nodes.run(PAPER, NOISE, record=path)
    return path


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.soak) for name in shipped()]
)
def test_recorded_commands_are_reproduced_to_the_bit(name: str, tmp_path: Path) -> None:
    rths_nodes.run(name, ["duration=0.5"], record=tmp_path / "run")
    run = rths_nodes.read(tmp_path / "run")
    assert reproduced(run) == (run.scenario.samples, None, 0.0)
    assert run.scenario.samples > 100


def test_commands_are_reproduced_until_first_bridged_sample(tmp_path: Path) -> None:
    rths_nodes.run(PAPER, ["duration=2"], faults=["delay@1:command,3"], record=tmp_path / "run")
    run = rths_nodes.read(tmp_path / "run")
    compared, first, _ = reproduced(run)
    assert first is None
    assert 1000 < compared < 1100 < run.scenario.samples


def test_recording_without_complete_command_is_not_reproduced(recording: Path) -> None:
    run = rths_nodes.read(recording)
    run.force[0] = math.nan
    with pytest.raises(ConfigError, match=naming("command", "bridged", "lost")):
        reproduced(run)


def test_changed_command_is_detected(recording: Path) -> None:
    run = rths_nodes.read(recording)
    run.command[321] += 1e-15
    _, first, largest = reproduced(run)
    assert first == 321
    assert largest == pytest.approx(1e-15, rel=0.5)


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
def test_predicted_error_equals_error_of_second_test(recording: Path, changes: list[str]) -> None:
    """The second test has other noise; its actuator acts on the response."""
    indices = prediction.predict(rths_nodes.read(recording), changes).indices
    second = Evaluation(rths_nodes.run(PAPER, [*NOISE, "seed=77", *changes])).indices()["story_1"]
    for key in ("error_norm_percent", "max_error_m"):
        assert indices[prediction.CHANGED]["story_1"][key] == pytest.approx(second[key], rel=0.15)
    repeated, measured = (indices[row]["story_1"] for row in (prediction.AGAIN, prediction.MEASURED))
    assert repeated["error_norm_percent"] == pytest.approx(measured["error_norm_percent"], rel=0.15)


def test_engine_does_not_change_prediction(recording: Path) -> None:
    python, compiled = (
        prediction.predict(rths_nodes.read(recording), ["compensator.type=none"], engine)
        for engine in ("python", "compiled")
    )
    assert compiled.outcomes == python.outcomes
    assert repr(compiled.indices) == repr(python.indices)
    assert compiled.runs[prediction.CHANGED].information["engine"] == "compiled"


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        (["axes.story_1.actuator.alpha=20"], ("20", "recording")),
        (["port.transport_samples=2"], ("cannot be changed",)),
        ({"axes.story_1.specimen": {"type": "kelvin_voigt"}}, ("axes.story_1.specimen", "cannot be changed")),
        ({"axes": {}}, ("axes", "cannot be changed")),
        (["compensator.type=nonee"], ("unknown", "compensator", "nonee")),
        (["servo_rate=2048"], ("servo_rate", "identified")),
    ],
)
def test_impossible_predictions_are_refused(recording: Path, changes: Any, parts: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*parts)):
        prediction.predict(rths_nodes.read(recording), changes)


def test_command_prints_reproduction_and_prediction(output: RunCommand, recording: Path, tmp_path: Path) -> None:
    reproduction = ["estimate", str(recording), "--for", "prediction"]
    assert mentions(output(*reproduction), "6150", "bit")
    assert json.loads(output(*reproduction, "--json"))["equal"] is True
    command = ["estimate", str(recording), "--set", "compensator.type=inverse", "--set", "compensator.alpha=20"]
    text = output(*command, "--figure", str(tmp_path / "what_if.svg"))
    for part in ("story_1: the identified rig explains 9", "measured", "predicted, nothing changed", "finished"):
        assert part in text
    assert "predicted" in (tmp_path / "what_if.svg").read_text()
    data = json.loads(output(*command, "--json"))
    assert [row["name"] for row in data["rows"]] == [prediction.MEASURED, prediction.AGAIN, prediction.CHANGED]
    assert data["identified"]["story_1"]["displacement_fit"] > 99.0


@pytest.mark.parametrize("own_motion", [0.0, 5e-3])
def test_mismatch_of_identified_rig_is_printed_first(
    own_motion: float, recording: Path, output: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rig that also moves without a command, m, has no transfer function of the command."""
    run = rths_nodes.read(recording)
    run.displacement[:, 0] += own_motion * np.sin(2.0 * np.pi * run.time)
    monkeypatch.setattr("rths_nodes.app.commands.estimate.read_run", lambda path: run)
    text = output("estimate", str(recording), "--set", "compensator.type=none", code=3 if own_motion else 0)
    first = text.splitlines()[0]
    assert first.startswith(estimate.UNUSABLE) is bool(own_motion)
    assert not own_motion or mentions(first, "story_1", "mm")


def test_tripped_prediction_sets_exit_code(recording: Path, output: RunCommand) -> None:
    assert "tripped: " in output("estimate", str(recording), "--set", "axes.story_1.limits.force=2e4", code=3)


def test_python_prediction_equals_command(recording: Path, output: RunCommand) -> None:
    arguments = ["--set", "compensator={type: inverse, alpha: 20}", "--json"]
    rows = json.loads(output("estimate", str(recording), *arguments))["rows"]
    result = rths_nodes.estimate(recording, set={"compensator": {"type": "inverse", "alpha": 20}})
    assert rows == [
        {"name": row, "outcome": "finished", "reason": "", "axes": result.indices[row]} for row in result.runs
    ]
    assert isinstance(result.runs["predicted"], rths_nodes.Run)
    assert mentions(repr(result), "predicted", "finished", "story_1")
    with pytest.raises(ConfigError, match=naming("axis", "set")):
        rths_nodes.estimate(recording, "story_1", set="compensator.type=none")  # type: ignore[call-overload]


# Prediction with force-controlled axes

COLUMN = "column_under_axial_load"
SOON = [
    *("axes.load.load={value: 500.0e3, ramp_time: 1.0, held_for: 0.1}", "axes.load.limits.force_rate=2.0e6"),
    *("duration=4.0", "ground_motion.delay=1.2"),
]


@pytest.fixture(scope="module")
def column(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recording of a loaded column, with noise."""
    path = tmp_path_factory.mktemp("column") / "run"
    rths_nodes.run(COLUMN, SOON, record=path)
    return path


def test_force_commands_are_reproduced_to_the_bit(column: Path) -> None:
    run = rths_nodes.read(column)
    assert reproduced(run)[:2] == (run.scenario.samples, None)
    assert run.loads is not None
    run.loads.command[2000] *= 1.0 + 1e-15
    assert reproduced(run)[1] == 2000


def test_column_is_predicted_under_recorded_load(column: Path) -> None:
    """k - P / h - P / L is identified; the setup adds P / L with the recorded load."""
    changes = ["compensator.type=none"]
    result = prediction.predict(rths_nodes.read(column), changes)
    assert list(result.models) == ["drift"]
    model = result.models["drift"]
    assert model.specimen["stiffness"] == pytest.approx(1e6 - 500e3 / 3.0 - 500e3 / 2.0, rel=0.01)
    assert model.force_fit > 95.0
    second = rths_nodes.run(COLUMN, [*SOON, *changes, "seed=7"])
    hsem = second.metrics["hsem_percent"]
    assert result.runs[prediction.CHANGED].metrics["hsem_percent"] == pytest.approx(hsem, rel=0.05)
    expected, predicted = Evaluation(second).indices()["drift"], result.indices[prediction.CHANGED]["drift"]
    for name in ("error_norm_percent", "max_error_percent"):
        assert predicted[name] == pytest.approx(expected[name], rel=0.05), name
    repeated, measured = (result.indices[row]["drift"] for row in (prediction.AGAIN, prediction.MEASURED))
    assert repeated["delay_s"] == pytest.approx(measured["delay_s"], abs=1e-3)


def test_recorded_load_cannot_be_changed(column: Path) -> None:
    with pytest.raises(ConfigError, match=naming("axes.load.load.value", "100000")):
        prediction.predict(rths_nodes.read(column), ["axes.load.load.value=1e5"])


@pytest.mark.parametrize(("error", "agrees"), [(1.1e-5, True), (2e-5, False)])
def test_axis_without_motion_is_compared_by_its_error(error: float, agrees: bool) -> None:
    nothing = dict.fromkeys(prediction.DISCREPANCY, math.nan)
    rows = {
        name: {"axis": nothing | {"max_error_m": value}}
        for name, value in ((prediction.MEASURED, 1e-5), (prediction.AGAIN, error))
    }
    result = prediction.Prediction({}, {}, rows, dict.fromkeys(rows, ("finished", "")))
    assert bool(result.discrepancy) is not agrees
