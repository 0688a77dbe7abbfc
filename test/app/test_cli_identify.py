# SPDX-License-Identifier: Apache-2.0
"""``rths identify``: the model comes out of the rig, tests or recordings alike; what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from messages import mentions, naming

from rths_nodes.app.cli import main
from rths_nodes.core import yaml_text
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.mechanics.models.coupled_rig import coupled_model, feedforward
from rths_nodes.mechanics.models.file import load

SPECIMEN: dict[str, Any] = {
    "mass": [[98.3, 0.0], [0.0, 98.3]],
    "damping": [[125.0, -50.0], [-50.0, 50.0]],
    "stiffness": [[12.0e5, -6.84e5], [-6.84e5, 6.84e5]],
}
LIMITS = {"stroke": 0.1, "velocity": 2.0, "force": 1e5}
RIG: dict[str, Any] = {
    "version": 1,
    "name": "two_actuators",
    "servo_rate": 1000.0,
    "substeps": 1,
    "duration": 1.0,
    "integrator": {"type": "prescribed", "displacement": {"type": "sine", "amplitude": 0.001, "frequency": 1.0}},
    "compensator": {"type": "none"},
    "rig": {"type": "coupled_servo_hydraulic"} | SPECIMEN,
    "port": {"type": "simulator", "transport_samples": 2},
    "axes": {name: {"limits": LIMITS} for name in ("story_1", "story_2")},
}
OPTIONS = ["--rms", "1e-3", "--duration", "6", "--band", "1", "40", "--resolution", "1"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scenario, model, report and recordings of one identification."""
    folder = tmp_path_factory.mktemp("identify")
    (folder / "rig.yaml").write_text(yaml_text.dump(RIG))
    words = ["--out", str(folder / "model.yaml"), "--figure", str(folder / "page.svg")]
    assert main(["identify", str(folder / "rig.yaml"), *words, *OPTIONS, "--record", str(folder / "rec")]) == 0
    return folder


def test_the_model_is_that_of_the_rig_without_its_transport(place: Path) -> None:
    """Feedforward of the known rig, but for the ramp within samples, (omega dt)^2 / 12, and its derivative."""
    model = load(place / "model.yaml", ("story_1", "story_2"))
    known = feedforward(coupled_model(*SPECIMEN.values(), [1e-3], [0.1], [-200.0], [1.26e11]))
    found = model.feedforward
    np.testing.assert_allclose(found[0], known[0], atol=2e-3)
    np.testing.assert_allclose(found[1].diagonal(), known[1].diagonal(), rtol=5e-3)
    np.testing.assert_allclose(found[2].diagonal(), known[2].diagonal(), atol=1.5e-7)
    assert model.servo_rate == 1000.0
    assert mentions(model.provenance, "two_actuators", "6 s", "0.001 m", "1", "40")
    assert "story_1" in (place / "page.svg").read_text()


def test_recordings_give_the_same_model(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recordings = ["--from", str(place / "rec" / "story_2"), "--from", str(place / "rec" / "story_1")]
    words = ["identify", str(place / "rig.yaml"), "--out", str(tmp_path / "again.yaml"), *recordings, *OPTIONS]
    assert main([*words, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    first, again = load(place / "model.yaml"), load(tmp_path / "again.yaml")
    np.testing.assert_array_equal(again.feedforward, first.feedforward)
    assert said["orders"][0][0] == said["orders"][1][1] == 3
    assert np.array(said["lowest_coherence"]).min() > 0.9
    assert np.max(said["fit_error_percent"]) < 0.5
    assert len(said["poles_rad_s"]) == 6


def test_a_transport_that_nobody_declared_is_measured_and_becomes_lead(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a rig declares, or a model brings as its lead, comes to the same compensator."""
    recordings = ["--from", str(place / "rec" / "story_1"), "--from", str(place / "rec" / "story_2")]
    undeclared = ["--set", "port.transport_samples=0"]
    words = ["identify", str(place / "rig.yaml"), *undeclared, *recordings, *OPTIONS]
    assert main([*words, "--out", str(tmp_path / "as_declared.yaml"), "--transport", "declared"]) == 0
    assert load(tmp_path / "as_declared.yaml").lead == 0.0
    capsys.readouterr()
    assert main([*words, "--out", str(tmp_path / "model.yaml"), "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)["transport_samples"]
    assert measured["least"] - 0.01 <= 2.0 <= measured["most"] + 0.01
    lead = load(tmp_path / "model.yaml").lead
    assert lead == pytest.approx(0.002, abs=2e-5)
    omega = 2.0 * np.pi * np.array([1.0, 10.0, 40.0])
    responses = []
    for declared, model in ((2, place / "model.yaml"), (0, tmp_path / "model.yaml")):
        sets = [f"port.transport_samples={declared}", f"compensator={{type: model_based, model: {model}}}"]
        responses.append(Assembly(files.load(place / "rig.yaml", sets)).compensator.frequency_response(omega))
    np.testing.assert_allclose(responses[1], responses[0], atol=1e-3 * np.abs(responses[0]).max())
    sets = [f"compensator={{type: model_based, model: {place / 'early.yaml'}}}"]
    early = (tmp_path / "model.yaml").read_text().replace(f"lead: {lead!r}", "lead: -0.003")
    (place / "early.yaml").write_text(early)
    with pytest.raises(ConfigError, match=naming("lead", "-0.003 s", "0.002 s", ">= 0")):
        _ = Assembly(files.load(place / "rig.yaml", sets)).compensator


def test_the_model_goes_into_a_test(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = f"compensator={{type: model_based, model: {place / 'model.yaml'}, feedback: {{}}}}"
    words = ["run", str(place / "rig.yaml"), "--set", model, "--set", "duration=2", "--set", "ramp.type=hermite"]
    assert main([*words, "--json"]) == 0
    errors = [
        axis["error_norm_percent"] for axis in json.loads(capsys.readouterr().out)["metrics"]["axes"].values()
    ]
    assert max(errors) < 1.0
    assert main(["run", *words[1:2], "--set", "duration=2", "--json"]) == 0
    without = json.loads(capsys.readouterr().out)["metrics"]["axes"]["story_1"]["error_norm_percent"]
    assert without > 5.0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rms", "0"], ("rms", "0 m", "> 0")),
        (["--band", "30", "10"], ("lower_frequency", "30 Hz", "< upper_frequency")),
        (["--resolution", "-1", "--duration", "0.5"], ("resolution", "-1 Hz", "> 0")),
        (["--orders", "3,1"], ("--orders", "3,1", "3", "1", "2", "0")),
        (["--orders=-,1;1,3"], ("axis", "respond")),
        (["--figure", "page.html"], ("page.html", "figure")),
        (["--out", "{rec}"], ("rec", "written")),
        (["--out", "{rec}/../rig.yaml/model.yaml"], ("rig.yaml/model.yaml", "written")),
        (
            ["--from", "{rec}/story_1", "--from", "{rec}/story_1"],
            ("story_1", "driven"),
        ),
    ],
)
def test_what_cannot_be_is_refused(
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    message: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    given = [word.format(rec=place / "rec") for word in words]
    out = [] if "--out" in given else ["--out", "model.yaml"]
    assert main(["identify", str(place / "rig.yaml"), *out, *given]) == 2
    assert mentions(capsys.readouterr().err, *message)
    assert not Path("model.yaml").exists()


def test_a_rig_that_trips_gives_no_model(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--out", str(tmp_path / "model.yaml"), "--set", "axes.story_2.limits.tracking_error=1e-5", *OPTIONS]
    assert main(["identify", str(place / "rig.yaml"), *words]) == 3
    captured = capsys.readouterr()
    assert "two_actuators.identify_story_1: tripped" in captured.out + captured.err
    assert not (tmp_path / "model.yaml").exists()


@pytest.mark.soak
@pytest.mark.parametrize("name", files.shipped())
def test_every_shipped_scenario_is_identified_by_default(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten of them were refused: the model had the pole 2097 1/s, 2 / dt."""
    assert main(["identify", name, "--out", str(tmp_path / "model.yaml"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert max((pole for pole, _ in found["poles_rad_s"]), default=-1.0) < 0.0
    assert np.max(found["fit_error_percent"]) < 15.0
    scenario = files.load(name)
    delays = [axis["actuator"].get("delay", 0.0) for axis in scenario.data()["axes"].values() if axis["actuator"]]
    known = scenario.transport_samples + max(delays, default=0.0) / scenario.dt
    if found["transport_samples"]["certain"]:
        assert found["transport_samples"]["least"] - 0.05 <= known <= found["transport_samples"]["most"] + 0.05
    assert load(tmp_path / "model.yaml").axes
