# SPDX-License-Identifier: Apache-2.0
"""`rths estimate --for updating`: what it prints, its JSON, its figure, what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from messages import mentions

from rths_nodes.app.cli import main
from rths_nodes.loop.outcomes import ExitCode

SHADOW = ["estimate", "rec", "--for", "updating", "--model", "kelvin_voigt"]
OFF = ["--initial", "stiffness=9.9e6", "--initial", "damping=4.5e5"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the recording ``rec``."""
    folder = tmp_path_factory.mktemp("shadow")
    assert main(["run", "chen_ricles_2010", "--set", "duration=4", "--record", str(folder / "rec")]) == 0
    return folder


@pytest.fixture(autouse=True)
def _there(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(folder)
    capsys.readouterr()


def test_parameters_are_printed_with_their_uncertainty(output: Callable[..., str]) -> None:
    text = output(*SHADOW, *OFF, "--figure", "shadow.svg")
    head, *lines = text.splitlines()
    assert mentions(head, "story_1", "kelvin_voigt", "ukf", "0.00 to 4.00 s", "411 samples")
    rows = {line.split()[0]: line.split() for line in lines if line.split()}
    assert float(rows["stiffness"][1]) == 9.9e6
    assert float(rows["stiffness"][2]) == pytest.approx(7.6e6, rel=0.05)
    assert float(rows["damping"][2]) == pytest.approx(0.64e6, rel=0.05)
    assert rows["damping"][-1] == rows["stiffness"][-1] == "yes"
    assert sum("+-" in line for line in lines) == 8
    assert "samples: 411 learnt from" in text
    assert Path("shadow.svg").is_file()


def test_json_has_histories(output: Callable[..., str]) -> None:
    found = json.loads(output(*SHADOW, *OFF, "--law", "rls", "--parameter", "damping=1e5:1e6", "--json"))
    assert list(found["parameters"]) == ["damping"]
    assert len(found["time"]) == len(found["estimates"]["damping"]) == 411
    assert found["unexplained"] > 0.0, "the stiffness is fixed, and wrong"
    assert found["parameters"]["damping"]["identified"] is False


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["estimate", "rec", "--for", "updating"], ("--model", "missing", "bouc_wen", "bilinear", "kelvin_voigt")),
        (["estimate", "rec", "--law", "ukf"], ("--law", "--for")),
        ([*SHADOW, "--initial", "stiffness"], ("--initial", "NAME", "VALUE")),
        ([*SHADOW, "--initial", "stifness=1e6"], ("unknown", "key", "stifness")),
        ([*SHADOW, "--parameter", "stiffness=9e6"], ("--parameter", "9e6", "NAME", "LOW", "HIGH")),
        ([*SHADOW, "--figure", "shadow.bmp"], ("shadow.bmp", "svg")),
    ],
)
def test_it_refuses(words: list[str], message: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == ExitCode.REFUSED
    assert mentions(capsys.readouterr().err, *message)
