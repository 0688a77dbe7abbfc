# SPDX-License-Identifier: Apache-2.0
"""``rths identify --for identified_inverse``: the coefficients, a file for two compensators, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from messages import mentions, naming

import rths_nodes
from rths_nodes.analysis.identification.frequency_responses import Lines, fit
from rths_nodes.app.cli import main
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.mechanics.models.file import load

NAME = "rths_benchmark_2020"
OPTIONS = ["--for", "identified_inverse", "--duration", "20", "--json"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the benchmark's plant, at a tenth of the motion of the test."""
    out = tmp_path_factory.mktemp("identify") / "inverse.yaml"
    assert main(["identify", NAME, *OPTIONS, "--out", str(out)]) == 0
    return out


def exact() -> np.ndarray:
    """Coefficients from the response that the plant has, transport included, at the lines of the fit."""
    scenario = files.load(NAME)
    (axis,) = scenario.axes.values()
    specimen = registry.build("specimen", axis.specimen)
    actuator = registry.build("actuator", axis.actuator, scenario.dt, specimen)
    frequency = np.arange(3, 100) / 10.0
    omega = 2.0 * np.pi * frequency
    late = np.exp(-1j * omega * scenario.dt)
    return fit(Lines(frequency, (actuator.frequency_response(omega) * late)[:, None, None])).coefficients.ravel()


def test_it_finds_the_inverse_of_the_plant_within_what_it_states(model: Path) -> None:
    found = load(model)
    assert found.deviation is not None
    errors = (found.feedforward.ravel() - exact()) / found.deviation.ravel()
    assert np.abs(errors).max() < 4.0
    np.testing.assert_allclose(found.feedforward.ravel()[:3], exact()[:3], rtol=0.02)
    assert found.lead == -1.0 / 4096.0  # the transport is in the coefficients


def test_the_shipped_coefficients_are_those_of_the_command(model: Path) -> None:
    """Which were found over 40 s: 20 s give the same but for the noise."""
    found = load(model)
    assert found.deviation is not None
    shipped = files.load(NAME).compensator.inverse.coefficients("shipped")
    assert (np.abs(found.feedforward - shipped) / found.deviation).max() < 4.0
    np.testing.assert_allclose(shipped.ravel(), exact(), rtol=0.05)


def test_both_compensators_take_the_file_and_count_the_transport_once(model: Path) -> None:
    words = [f"compensator.model={model}"]
    inverse = Assembly(files.load(NAME, [*words, "compensator.inverse=null"])).compensator
    np.testing.assert_array_equal(inverse.state()[:4], load(model).feedforward.ravel())
    based = Assembly(files.load(NAME, ["compensator.type=model_based", *words])).compensator
    assert based.lead == pytest.approx(0.0, abs=1e-15)


def test_what_it_says(model: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    short = ["--duration", "20", "--rms", "1e-3", "--set", "servo_rate=1024"]
    out = str(tmp_path / "again.yaml")
    assert main(["identify", NAME, "--for", "identified_inverse", *short, "--out", out]) == 0
    said = capsys.readouterr().out
    assert mentions(said, "inverse", "1", "9.93 Hz")
    assert mentions(said, "--set", "compensator.type", "identified_inverse")
    assert main(["identify", NAME, *OPTIONS, *short, "--fit-up-to", "6", "--out", out]) == 0
    assert json.loads(capsys.readouterr().out)["fitted_up_to_hz"] == 6.0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--duration", "5"], ("duration", "5", ">= 20 s")),
        (["--orders", "3"], ("--orders", "3", "--for", "identified_inverse")),
        (["--transport", "measured"], ("--transport", "measured")),
        (["--fit-up-to", "30"], ("fit_up_to", "30", "> 0.25", "<= 20 Hz")),
    ],
)
def test_what_does_not_belong_to_it_is_refused(
    words: list[str], message: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["identify", NAME, "--for", "identified_inverse", *words, "--out", str(tmp_path / "x.yaml")]
    assert main(command) == 2
    assert mentions(capsys.readouterr().err, *message)


def test_python_identifies_what_the_command_does(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "python.yaml"
    fit = rths_nodes.identify(NAME, purpose="identified_inverse", noise={"duration": 20.0}, out=out)
    assert fit.error.max() < 0.05
    assert (fit.coefficients == load(model).feedforward).all()
    assert out.read_bytes() == model.read_bytes()


@pytest.mark.parametrize(
    "keys",
    [{"purpose": "inverse"}, {"purpose": "identified_inverse", "resolution": 0.1}, {"fit_up_to": 5.0}],
    ids=str,
)
def test_a_keyword_of_another_purpose_is_refused(keys: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=naming(list(keys)[-1])):
        rths_nodes.identify(NAME, **keys)  # type: ignore[call-overload]


def test_a_fit_up_to_is_for_this_purpose_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["identify", NAME, "--fit-up-to", "6", "--out", str(tmp_path / "x.yaml")]
    assert main(command) == 2
    assert mentions(capsys.readouterr().err, "--fit-up-to", "6.0", "--for", "identified_inverse")
