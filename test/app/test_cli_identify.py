# SPDX-License-Identifier: Apache-2.0
"""Tests of ``rths identify``: models of rigs, inverses of plants, characterisation for rig files."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_fixtures import RunCommand
from messages import mentions, naming
from rig_walk import Walk

import rths_nodes
from rths_nodes.analysis.identification.frequency_responses import fit
from rths_nodes.app.cli import main
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.yaml_text import dump, parse
from rths_nodes.loop.procedure_record import NOT_VERIFIED, WRONG, AxisChecks
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.mechanics.coupled_rig import coupled_model, feedforward
from rths_nodes.mechanics.loading_model import load

# Model of a rig

SPECIMEN: dict[str, Any] = {
    "mass": [[98.3, 0.0], [0.0, 98.3]],
    "damping": [[125.0, -50.0], [-50.0, 50.0]],
    "stiffness": [[12.0e5, -6.84e5], [-6.84e5, 6.84e5]],
}
LIMITS = {"stroke": 0.1, "velocity": 2.0, "force": 1e5}
TWO_ACTUATORS: dict[str, Any] = {
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
FIT = ["--band", "1", "40", "--resolution", "1"]
OPTIONS = ["--rms", "1e-3", "--duration", "6", *FIT]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with scenario, model, figure and recordings of an identification."""
    folder = tmp_path_factory.mktemp("identify")
    (folder / "rig.yaml").write_text(dump(TWO_ACTUATORS))
    files_out = ["--out", str(folder / "model.yaml"), "--figure", str(folder / "page.svg")]
    assert main(["identify", str(folder / "rig.yaml"), *files_out, *OPTIONS, "--record", str(folder / "rec")]) == 0
    return folder


def recordings_of(folder: Path, *axes: str) -> list[str]:
    return [word for axis in axes for word in ("--from", str(folder / "rec" / axis))]


def test_model_has_feedforward_of_rig_without_transport(folder: Path) -> None:
    """The tolerances cover the ramp within samples, (omega dt)^2 / 12, and its derivative."""
    model = load(folder / "model.yaml", ("story_1", "story_2"))
    expected = feedforward(coupled_model(*SPECIMEN.values(), [1e-3], [0.1], [-200.0], [1.26e11]))
    np.testing.assert_allclose(model.feedforward[0], expected[0], atol=2e-3)
    np.testing.assert_allclose(model.feedforward[1].diagonal(), expected[1].diagonal(), rtol=5e-3)
    np.testing.assert_allclose(model.feedforward[2].diagonal(), expected[2].diagonal(), atol=1.5e-7)
    assert model.servo_rate == 1000.0
    assert mentions(model.provenance, "two_actuators", "6 s", "0.001 m", "1", "40")
    assert "story_1" in (folder / "page.svg").read_text()


def test_recordings_give_the_same_model(folder: Path, tmp_path: Path, output: RunCommand) -> None:
    arguments = ["--out", str(tmp_path / "again.yaml"), *recordings_of(folder, "story_2", "story_1"), *FIT]
    result = json.loads(output("identify", str(folder / "rig.yaml"), *arguments, "--json"))
    first, again = load(folder / "model.yaml"), load(tmp_path / "again.yaml")
    np.testing.assert_array_equal(again.feedforward, first.feedforward)
    assert result["orders"][0][0] == result["orders"][1][1] == 3
    assert np.array(result["lowest_coherence"]).min() > 0.9
    assert np.max(result["fit_error_percent"]) < 0.5
    assert len(result["poles_rad_s"]) == 6


def test_undeclared_transport_is_measured_as_lead(folder: Path, tmp_path: Path, output: RunCommand) -> None:
    """Transport declared by the rig and lead of the model give the same compensator."""
    command = ["identify", str(folder / "rig.yaml"), "--set", "port.transport_samples=0"]
    command += [*recordings_of(folder, "story_1", "story_2"), *FIT]
    output(*command, "--out", str(tmp_path / "as_declared.yaml"), "--transport", "declared")
    assert load(tmp_path / "as_declared.yaml").lead == 0.0
    result = json.loads(output(*command, "--out", str(tmp_path / "model.yaml"), "--json"))
    measured = result["transport_samples"]
    assert measured["least"] - 0.01 <= 2.0 <= measured["most"] + 0.01
    lead = load(tmp_path / "model.yaml").lead
    assert lead == pytest.approx(0.002, abs=2e-5)

    def compensator(model: Path, declared: int = 2) -> Any:
        overrides = [f"port.transport_samples={declared}", f"compensator={{type: model_based, model: {model}}}"]
        return Assembly(files.load(folder / "rig.yaml", overrides)).compensator

    omega = 2.0 * np.pi * np.array([1.0, 10.0, 40.0])
    expected = compensator(folder / "model.yaml").frequency_response(omega)
    response = compensator(tmp_path / "model.yaml", 0).frequency_response(omega)
    np.testing.assert_allclose(response, expected, atol=1e-3 * np.abs(expected).max())
    early = tmp_path / "early.yaml"
    early.write_text((tmp_path / "model.yaml").read_text().replace(f"lead: {lead!r}", "lead: -0.003"))
    with pytest.raises(ConfigError, match=naming("lead", "-0.003 s", "0.002 s", ">= 0")):
        compensator(early)


def test_model_compensates_test_on_its_rig(folder: Path, output: RunCommand) -> None:
    command = ["run", str(folder / "rig.yaml"), "--set", "duration=2", "--json"]
    model = f"compensator={{type: model_based, model: {folder / 'model.yaml'}, feedback: {{}}}}"
    compensated = json.loads(output(*command, "--set", model, "--set", "ramp.type=hermite"))
    assert max(axis["error_norm_percent"] for axis in compensated["metrics"]["axes"].values()) < 1.0
    assert json.loads(output(*command))["metrics"]["axes"]["story_1"]["error_norm_percent"] > 5.0


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--rms", "0"], ("rms", "0 m", "> 0")),
        (["--band", "30", "10"], ("rths: lower_frequency", "30 Hz", "< upper_frequency")),
        (["--resolution", "-1", "--duration", "0.5"], ("resolution", "-1 Hz", "> 0")),
        (["--orders", "3,1"], ("--orders", "3,1", "3", "1", "2", "0")),
        (["--orders=-,1;1,3"], ("axis", "respond")),
        (["--figure", "page.html"], ("page.html", "figure")),
        (["--out", "{rec}"], ("rec", "written")),
        (["--out", "{rec}/../rig.yaml/model.yaml"], ("rig.yaml/model.yaml", "written")),
        (["--from", "{rec}/story_1", "--from", "{rec}/story_1"], ("story_1", "driven")),
        (["--from", "nowhere", "--rms", "1e-3", "--record", "again"], ("--rms", "--record", "--from")),
    ],
)
def test_invalid_options_are_refused(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    refusal: RunCommand,
    options: list[str],
    parts: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    options = [option.format(rec=folder / "rec") for option in options]
    out = [] if "--out" in options else ["--out", "model.yaml"]
    assert mentions(refusal("identify", str(folder / "rig.yaml"), *out, *options), *parts)
    assert not Path("model.yaml").exists()


def test_tripped_identification_writes_no_model(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--out", str(tmp_path / "model.yaml"), "--set", "axes.story_2.limits.tracking_error=1e-5"]
    assert main(["identify", str(folder / "rig.yaml"), *arguments, *OPTIONS]) == 3
    captured = capsys.readouterr()
    assert "two_actuators.identify_story_1: tripped" in captured.out + captured.err
    assert not (tmp_path / "model.yaml").exists()


@pytest.mark.soak
@pytest.mark.parametrize("name", files.shipped())
def test_shipped_scenarios_are_identified_by_default(name: str, tmp_path: Path, output: RunCommand) -> None:
    """Regression: ten scenarios were refused because the model had the pole 2 / dt = 2097 1/s."""
    result = json.loads(output("identify", name, "--out", str(tmp_path / "model.yaml"), "--json"))
    assert max((pole for pole, _ in result["poles_rad_s"]), default=-1.0) < 0.0
    assert np.max(result["fit_error_percent"]) < 15.0
    scenario = files.load(name)
    delays = [axis["actuator"].get("delay", 0.0) for axis in scenario.data()["axes"].values() if axis["actuator"]]
    expected = scenario.transport_samples + max(delays, default=0.0) / scenario.dt
    transport = result["transport_samples"]
    assert not transport["certain"] or transport["least"] - 0.05 <= expected <= transport["most"] + 0.05
    assert load(tmp_path / "model.yaml").axes


# Inverse of a plant

BENCHMARK = "rths_benchmark_2020"
INVERSE = ["identify", BENCHMARK, "--for", "identified_inverse"]


@pytest.fixture(scope="module")
def inverse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Inverse of the benchmark's plant, identified with a tenth of the motion of the test."""
    out = tmp_path_factory.mktemp("identify") / "inverse.yaml"
    assert main([*INVERSE, "--duration", "20", "--json", "--out", str(out)]) == 0
    return out


def exact_coefficients() -> np.ndarray:
    """Coefficients from the exact response of the plant with transport, at the lines of the fit."""
    scenario = files.load(BENCHMARK)
    (axis,) = scenario.axes.values()
    actuator = registry.build("actuator", axis.actuator, scenario.dt, registry.build("specimen", axis.specimen))
    frequency = np.arange(3, 100) / 10.0
    omega = 2.0 * np.pi * frequency
    response = actuator.frequency_response(omega) * np.exp(-1j * omega * scenario.dt)
    return fit(frequency, response[:, None, None]).coefficients.ravel()


def test_identified_inverse_is_within_stated_deviation(inverse: Path) -> None:
    model = load(inverse)
    assert model.deviation is not None
    errors = (model.feedforward.ravel() - exact_coefficients()) / model.deviation.ravel()
    assert np.abs(errors).max() < 4.0
    np.testing.assert_allclose(model.feedforward.ravel()[:3], exact_coefficients()[:3], rtol=0.02)
    assert model.lead == -1.0 / 4096.0  # the coefficients include the transport


def test_shipped_inverse_agrees_with_identified_one(inverse: Path) -> None:
    """The shipped coefficients were identified in 40 s; 20 s add only noise."""
    model = load(inverse)
    assert model.deviation is not None
    shipped = files.load(BENCHMARK).compensator.inverse.coefficients("shipped")
    assert (np.abs(model.feedforward - shipped) / model.deviation).max() < 4.0
    np.testing.assert_allclose(shipped.ravel(), exact_coefficients(), rtol=0.05)


def test_compensators_count_transport_of_inverse_once(inverse: Path) -> None:
    model = f"compensator.model={inverse}"
    identified = Assembly(files.load(BENCHMARK, [model, "compensator.inverse=null"])).compensator
    np.testing.assert_array_equal(identified.state()[:4], load(inverse).feedforward.ravel())
    model_based = Assembly(files.load(BENCHMARK, ["compensator.type=model_based", model])).compensator
    assert model_based.lead == pytest.approx(0.0, abs=1e-15)


def test_inverse_is_printed_with_fitted_band(output: RunCommand, tmp_path: Path) -> None:
    command = [*INVERSE, "--duration", "20", "--rms", "1e-3", "--set", "servo_rate=1024"]
    command += ["--out", str(tmp_path / "again.yaml")]
    text = output(*command)
    assert mentions(text, "inverse", "1", "9.93 Hz")
    assert mentions(text, "--set", "compensator.type", "identified_inverse")
    assert json.loads(output(*command, "--json", "--fit-up-to", "6"))["fitted_up_to_hz"] == 6.0


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        ([*INVERSE, "--duration", "5"], ("duration", "5", ">= 20 s")),
        ([*INVERSE, "--orders", "3"], ("--orders", "3", "--for", "identified_inverse")),
        ([*INVERSE, "--transport", "measured"], ("--transport", "measured")),
        ([*INVERSE, "--fit-up-to", "30"], ("fit_up_to", "30", "> 0.25", "<= 20 Hz")),
        (["identify", BENCHMARK, "--fit-up-to", "6"], ("--fit-up-to", "6.0", "--for", "identified_inverse")),
    ],
)
def test_options_of_another_purpose_are_refused(
    command: list[str], parts: tuple[str, ...], tmp_path: Path, refusal: RunCommand
) -> None:
    assert mentions(refusal(*command, "--out", str(tmp_path / "x.yaml")), *parts)


def test_python_identifies_the_same_inverse(inverse: Path, tmp_path: Path) -> None:
    out = tmp_path / "python.yaml"
    result = rths_nodes.identify(BENCHMARK, purpose="identified_inverse", noise={"duration": 20.0}, out=out)
    assert result.error.max() < 0.05
    assert (result.coefficients == load(inverse).feedforward).all()
    assert out.read_bytes() == inverse.read_bytes()


@pytest.mark.parametrize(
    "keys",
    [{"purpose": "inverse"}, {"purpose": "identified_inverse", "resolution": 0.1}, {"fit_up_to": 5.0}],
    ids=str,
)
def test_keyword_of_another_purpose_is_refused(keys: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=naming(list(keys)[-1])):
        rths_nodes.identify(BENCHMARK, **keys)  # type: ignore[call-overload]


# Characterisation for a rig file

PAPER, AXIS, RIG = "chen_ricles_2010", "story_1", "bench_simulated"
CHARACTERISE = ["identify", PAPER, "--for", "rig_file"]
TESTS = ["--amplitudes", "0.005,0.02", "--frequencies", "2,4", "--cycles", "2"]
K, C, ALPHA, DT = 7.6e6, 0.64e6, 29.0, 1.0 / 1024.0
"""Damper and actuator of Chen & Ricles (2010)."""


@pytest.fixture(scope="module")
def characterised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with table, figure and recordings of a characterisation with a late load cell."""
    folder = tmp_path_factory.mktemp("characterise")
    files_out = ["--csv", str(folder / "table.csv"), "--figure", str(folder / "page.svg")]
    files_out += ["--set", f"axes.{AXIS}.sensors.force_delay=5"]
    assert main([*CHARACTERISE, *TESTS, *files_out, "--record", str(folder / "rec")]) == 0
    return folder


def table_rows(folder: Path) -> list[dict[str, Any]]:
    with (folder / "table.csv").open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def test_characterisation_finds_specimen_and_actuator(characterised: Path) -> None:
    """The velocity is a difference over one sample, half a sample late: a part of C appears as stiffness."""
    rows = table_rows(characterised)
    assert [(float(row["wanted"]), float(row["frequency"])) for row in rows] == [
        (pytest.approx(amplitude), frequency) for amplitude in (0.005, 0.02) for frequency in (2.0, 4.0)
    ]
    for row in rows:
        omega = 2.0 * math.pi * float(row["frequency"])
        lag = 0.5 * omega * DT
        stiffness, loss = K + C * omega * math.sin(lag), C * omega * math.cos(lag)
        response = 1.0 / (1.0 + (ALPHA - 1.0) * (1.0 - np.exp(-1j * omega * DT)))  # Eq. (3)
        assert float(row["storage_stiffness"]) == pytest.approx(stiffness, rel=2e-3)
        assert float(row["loss_stiffness"]) == pytest.approx(loss, rel=2e-3)
        assert float(row["gain"]) == pytest.approx(abs(response), rel=1e-3)
        assert float(row["delay"]) == pytest.approx(-np.angle(response) / omega, rel=2e-3)
    figure = (characterised / "page.svg").read_text()
    assert all(label in figure for label in ("storage stiffness (kN/mm)", "amplitude 5 mm", "amplitude 20 mm"))
    assert AXIS not in figure, "a single axis is not named"


def test_recordings_give_the_same_characterisation(characterised: Path, output: RunCommand) -> None:
    recordings = recordings_of(characterised, *sorted(path.name for path in (characterised / "rec").iterdir()))
    result = json.loads(output(*CHARACTERISE, *recordings, "--json"))["axes"][AXIS]
    assert result["equivalent"]["damping"] == pytest.approx(C, rel=1e-2)
    energies = {(test["wanted"], test["frequency"]): test["energy"] for test in result["tests"]}
    assert energies == {
        (float(row["wanted"]), float(row["frequency"])): float(row["energy"]) for row in table_rows(characterised)
    }


def with_section(rig: Path, section: Path) -> dict[str, Any]:
    """Return a rig file with the characterised section instead of its stiffness."""
    data: dict[str, Any] = parse(rig.read_text(), str(rig))
    for name, keys in parse(section.read_text(), str(section))["axes"].items():
        data["axes"][name] |= keys
        for key in ("stiffness", "stiffness_known_to"):
            del data["axes"][name][key]
    return data


def small_move(scenario: Scenario) -> AxisChecks:
    """Result of the small move of the axis on the simulator."""
    walk = Walk(scenario, [])
    walk.refer()
    return walk.session.check()[AXIS]


def test_section_bounds_stiffness_of_small_move(tmp_path: Path) -> None:
    """A load cell that changed by 15 % after the characterisation is detected."""
    section, rig = tmp_path / "section.yaml", tmp_path / "rig.yaml"
    assert main([*CHARACTERISE, *TESTS, "--rig", RIG, "--out", str(section)]) == 0
    data = with_section(files.locate(RIG, files.RIG), section)
    rig.write_text(dump(data))
    stored = data["axes"]["bench"]["characterised"]
    assert [row[:2] for row in stored["tests"]] == [[0.005, 2.0], [0.005, 4.0], [0.02, 2.0], [0.02, 4.0]]
    assert stored["tests"][0][5] == pytest.approx((ALPHA - 1.0) * DT, rel=0.05)  # delay of the actuator
    checks = small_move(files.load(PAPER, rig=rig))
    band = 3.0 * stored["stiffness_scatter"]
    assert band > 0.02 * stored["stiffness"]
    assert (checks.expected, checks.low) == (stored["stiffness"], pytest.approx(stored["stiffness"] - band))
    assert checks.high == pytest.approx(stored["stiffness"] + band)
    assert (checks.stiffness, checks.findings) == (pytest.approx(K, rel=0.02), [])
    assert checks.force_scale == NOT_VERIFIED  # the same load cell measured the stiffness
    assert mentions(" ".join(checks.remarks), "verifies", "no scale")
    changed = small_move(files.load(PAPER, [f"axes.{AXIS}.sensors.force_scale=1.15"], rig=rig))
    assert changed.force_scale == WRONG
    assert mentions(" ".join(changed.findings), "cyclic", "tests")


def test_planned_tests_give_the_same_stiffness(characterised: Path, tmp_path: Path) -> None:
    """An operator runs one of the planned files on the rig; its recording gives a section."""
    assert main([*CHARACTERISE, *TESTS, "--rig", RIG, "--plan", str(tmp_path / "plan")]) == 0
    names = sorted(path.name for path in (tmp_path / "plan").iterdir())
    assert names == [f"{AXIS}_{test}.yaml" for test in ("20mm_2Hz", "20mm_4Hz", "5mm_2Hz", "5mm_4Hz")]
    recording, out = str(tmp_path / "run"), tmp_path / "section.yaml"
    assert main(["run", str(tmp_path / "plan" / names[2]), "--rig", RIG, "--record", recording]) == 0
    assert main([*CHARACTERISE, "--rig", RIG, "--from", recording, "--out", str(out)]) == 0
    row = parse(out.read_text(), "")["axes"]["bench"]["characterised"]["tests"][0]
    assert row[:2] == [0.005, 2.0]
    assert row[2] == pytest.approx(float(table_rows(characterised)[0]["storage_stiffness"]), rel=2e-3)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ([], ("section", "--rig")),
        (["--rig", RIG, "--cycles", "1"], ("1", "cycles", "scatter")),
        (["--rig", RIG, "--set", f"axes.{AXIS}.sensors.force_scale=-1"], ("> 0",)),
        (["--rig", RIG, "--set", f"axes.{AXIS}.sensors.force_scale=1.1"], ("scale", "wrong")),
    ],
)
def test_invalid_section_is_refused(
    options: list[str], parts: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "section.yaml"
    tests = ["--amplitudes", "0.005", "--frequencies", "2", "--cycles", "2"]
    assert main([*CHARACTERISE, *tests, "--out", str(out), *options]) == 2
    assert mentions(capsys.readouterr().err, *parts)
    assert not out.exists()


def test_section_from_recordings_of_another_rig_is_refused(
    characterised: Path, tmp_path: Path, refusal: RunCommand
) -> None:
    recording = str(next((characterised / "rec").iterdir()))
    arguments = ["--from", recording, "--rig", RIG, "--out", str(tmp_path / "section.yaml")]
    assert mentions(refusal(*CHARACTERISE, *arguments), "rig", "bench_simulated", "--rig")


def test_section_does_not_overwrite_rig_file(tmp_path: Path, refusal: RunCommand) -> None:
    rig = tmp_path / "rig.yaml"
    rig.write_text(files.locate(RIG, files.RIG).read_text())
    assert mentions(refusal(*CHARACTERISE, *TESTS, "--rig", str(rig), "--out", str(rig)), "rig", "file", "itself")


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ([], ("--amplitudes", "given")),
        (["--amplitudes", "0.01", "--frequencies", "1;2"], ("numbers", "commas")),
        (["--amplitudes", "9", "--frequencies", "1"], (f"<= axes.{AXIS}.limits.stroke",)),
        (["--amplitudes", "0.05", "--frequencies", "40"], (f"<= axes.{AXIS}.limits.velocity",)),
        (["--amplitudes", "0.01", "--frequencies", "600"], ("servo_rate", "512 Hz")),
        (["--amplitudes", "-1", "--frequencies", "1"], ("amplitude", "-1 m", "> 0")),
        ([*TESTS, "--axis", "story_9"], ("known", AXIS)),
        ([*TESTS, "--voltage", "2"], ("voltage = 2 V", "voltage input")),
        (["--from", "nowhere", "--cycles", "3"], ("--cycles", "--from")),
        ([*TESTS, "--plan", "plan", "--csv", "x"], ("--csv", "--plan")),
        (["--from", "nowhere", "--plan", "plan"], ("--plan",)),
    ],
)
def test_impossible_characterisations_are_refused(
    options: list[str],
    parts: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    refusal: RunCommand,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert mentions(refusal(*CHARACTERISE, *options), *parts)


def test_recording_of_another_kind_of_test_is_refused(tmp_path: Path, refusal: RunCommand) -> None:
    rths_nodes.run(PAPER, duration=0.1, record=tmp_path / "run")
    assert mentions(refusal(*CHARACTERISE, "--from", str(tmp_path / "run")), "cyclic", "test")


def test_tripped_characterisation_sets_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*CHARACTERISE, *TESTS, "--set", f"axes.{AXIS}.limits.force=1e3"]) == 3
    assert mentions(capsys.readouterr().err, "smaller", "amplitude")
