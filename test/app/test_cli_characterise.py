"""``rths characterise``: what the rig is made of comes out, from tests and recordings alike; what is refused."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rths_nodes.app.cli import main

pytestmark = pytest.mark.long

NAME, AXIS = "chen_ricles_2010", "story_1"
TESTS = ["--amplitudes", "0.005,0.02", "--frequencies", "2,4", "--cycles", "2"]
K, C, ALPHA, DT = 7.6e6, 0.64e6, 29.0, 1.0 / 1024.0
"""Of the damper, and of the actuator: Chen & Ricles (2010)."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Table, figure and recordings of one characterisation."""
    folder = tmp_path_factory.mktemp("characterise")
    words = ["--csv", str(folder / "table.csv"), "--figure", str(folder / "page.svg")]
    assert main(["characterise", NAME, *TESTS, *words, "--record", str(folder / "rec")]) == 0
    return folder


def rows(file: Path) -> list[dict[str, Any]]:
    with file.open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def test_specimen_and_actuator_are_found(place: Path) -> None:
    """The velocity is the difference over a sample, half a sample late: part of C looks like stiffness."""
    found = rows(place / "table.csv")
    assert [(float(row["wanted"]), float(row["frequency"])) for row in found] == [
        (pytest.approx(amplitude), frequency) for amplitude in (0.005, 0.02) for frequency in (2.0, 4.0)
    ]
    for row in found:
        omega = 2.0 * math.pi * float(row["frequency"])
        late = 0.5 * omega * DT
        stiffness, loss = K + C * omega * math.sin(late), C * omega * math.cos(late)
        answer = 1.0 / (1.0 + (ALPHA - 1.0) * (1.0 - np.exp(-1j * omega * DT)))  # Eq. (3)
        assert float(row["storage_stiffness"]) == pytest.approx(stiffness, rel=2e-3)
        assert float(row["loss_stiffness"]) == pytest.approx(loss, rel=2e-3)
        assert float(row["gain"]) == pytest.approx(abs(answer), rel=1e-3)
        assert float(row["delay"]) == pytest.approx(-np.angle(answer) / omega, rel=2e-3)
    assert AXIS in (place / "page.svg").read_text()


def test_recordings_give_the_same_numbers(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recordings = [word for test in sorted((place / "rec").iterdir()) for word in ("--from", str(test))]
    assert main(["characterise", NAME, *recordings, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["axes"][AXIS]
    assert found["equivalent"]["damping"] == pytest.approx(C, rel=1e-2)
    again = {(test["wanted"], test["frequency"]): test["energy"] for test in found["tests"]}
    first = {(float(row["wanted"]), float(row["frequency"])): row for row in rows(place / "table.csv")}
    assert again == {key: float(row["energy"]) for key, row in first.items()}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--amplitudes: must be given"),
        (["--amplitudes", "0.01", "--frequencies", "1;2"], "must be numbers with commas between them"),
        (["--amplitudes", "9", "--frequencies", "1"], f"must be <= axes.{AXIS}.limits.stroke"),
        (["--amplitudes", "0.05", "--frequencies", "40"], f"must be <= axes.{AXIS}.limits.velocity"),
        (["--amplitudes", "0.01", "--frequencies", "600"], "must be below half the servo_rate, 512 Hz"),
        (["--amplitudes", "-1", "--frequencies", "1"], "amplitude = -1 m: must be > 0"),
        ([*TESTS, "--axis", "story_9"], f"known: {AXIS}"),
        ([*TESTS, "--voltage", "2"], "takes a voltage"),
        (["--from", "nowhere", "--cycles", "3"], "--cycles: no tests are run with --from"),
    ],
)
def test_what_cannot_be_run_is_refused(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["characterise", NAME, *words]) == 2
    assert message in capsys.readouterr().err


def test_a_recording_of_something_else_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", NAME, "--set", "duration=0.1", "--record", str(tmp_path / "run")]) == 0
    assert main(["characterise", NAME, "--from", str(tmp_path / "run")]) == 2
    assert "is no cyclic test" in capsys.readouterr().err


def test_a_test_that_trips_ends_with_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["characterise", NAME, *TESTS, "--set", f"axes.{AXIS}.limits.force=1e3"]) == 3
    assert "take a smaller amplitude" in capsys.readouterr().out
