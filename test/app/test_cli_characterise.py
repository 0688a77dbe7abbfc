# SPDX-License-Identifier: Apache-2.0
"""``rths identify --for rig_file``: results of tests and of recordings; refusals."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from messages import mentions
from rig_walk import Walk

from rths_nodes.app.cli import main
from rths_nodes.core.yaml_text import dump, parse
from rths_nodes.loop.procedure_record import NOT_VERIFIED, WRONG, AxisChecks
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.schema import Scenario

NAME, AXIS, RIG = "chen_ricles_2010", "story_1", "bench_simulated"
COMMAND = ["identify", NAME, "--for", "rig_file"]
TESTS = ["--amplitudes", "0.005,0.02", "--frequencies", "2,4", "--cycles", "2"]
K, C, ALPHA, DT = 7.6e6, 0.64e6, 29.0, 1.0 / 1024.0
"""Of the damper, and of the actuator: Chen & Ricles (2010)."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Table, figure and recordings of one characterisation."""
    folder = tmp_path_factory.mktemp("characterise")
    words = ["--csv", str(folder / "table.csv"), "--figure", str(folder / "page.svg")]
    assert main([*COMMAND, *TESTS, *words, "--record", str(folder / "rec")]) == 0
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
    drawn = (place / "page.svg").read_text()
    assert all(label in drawn for label in ("storage stiffness (kN/mm)", "amplitude 5 mm", "amplitude 20 mm"))
    assert AXIS not in drawn, "the only axis needs no name"


def test_recordings_give_the_same_numbers(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recordings = [word for test in sorted((place / "rec").iterdir()) for word in ("--from", str(test))]
    assert main([*COMMAND, *recordings, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["axes"][AXIS]
    assert found["equivalent"]["damping"] == pytest.approx(C, rel=1e-2)
    again = {(test["wanted"], test["frequency"]): test["energy"] for test in found["tests"]}
    first = {(float(row["wanted"]), float(row["frequency"])): row for row in rows(place / "table.csv")}
    assert again == {key: float(row["energy"]) for key, row in first.items()}


def with_section(rig: Path, section: Path) -> dict[str, Any]:
    """A shipped rig file, the section pasted into its axis, without the stiffness that it knows."""
    file: dict[str, Any] = parse(rig.read_text(), str(rig))
    found = parse(section.read_text(), str(section))["axes"]
    for name, more in found.items():
        file["axes"][name] |= more
        for key in ("stiffness", "stiffness_known_to"):
            del file["axes"][name][key]
    return file


def test_what_was_found_bounds_the_stiffness_of_the_small_move(tmp_path: Path) -> None:
    """The whole way: cycles, section, rig file, small move; and a load cell that is off by 10 % since is found."""
    section, rig = tmp_path / "section.yaml", tmp_path / "rig.yaml"
    assert main([*COMMAND, *TESTS, "--rig", RIG, "--out", str(section)]) == 0
    data = with_section(files.locate(RIG, files.RIG), section)
    rig.write_text(dump(data))
    kept = data["axes"]["bench"]["characterised"]
    assert [row[:2] for row in kept["tests"]] == [[0.005, 2.0], [0.005, 4.0], [0.02, 2.0], [0.02, 4.0]]
    assert kept["tests"][0][5] == pytest.approx((ALPHA - 1.0) * DT, rel=0.05)  # delay of the actuator
    found = small_move(files.load(NAME, rig=rig))
    band = 3.0 * kept["stiffness_scatter"]
    assert band > 0.02 * kept["stiffness"]
    assert (found.expected, found.low, found.high) == (
        kept["stiffness"],
        pytest.approx(kept["stiffness"] - band),
        pytest.approx(kept["stiffness"] + band),
    )
    assert found.stiffness == pytest.approx(K, rel=0.02)
    assert found.findings == []
    assert found.force_scale == NOT_VERIFIED  # the same load cell has told the stiffness
    assert mentions(" ".join(found.remarks), "verifies", "no scale")
    wrong = small_move(files.load(NAME, [f"axes.{AXIS}.sensors.force_scale=1.15"], rig=rig))
    assert wrong.force_scale == WRONG
    assert mentions(" ".join(wrong.findings), "cyclic", "tests")


def small_move(scenario: Scenario) -> AxisChecks:
    """What the small move finds of the axis, on the simulator."""
    walk = Walk(scenario, [])
    walk.refer()
    return walk.session.check()[AXIS]


def test_the_section_of_recordings_is_that_of_their_rig_only(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = ["--from", str(next((place / "rec").iterdir()))]
    assert main([*COMMAND, *recording, "--rig", RIG, "--out", str(tmp_path / "section.yaml")]) == 2
    assert mentions(capsys.readouterr().err, "rig", "bench_simulated", "--rig")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], ("section", "--rig")),
        (["--rig", RIG, "--cycles", "1"], ("1", "cycles", "scatter")),
        (["--rig", RIG, "--set", f"axes.{AXIS}.sensors.force_scale=-1"], ("> 0",)),
        (
            ["--rig", RIG, "--set", f"axes.{AXIS}.sensors.force_scale=1.1"],
            ("scale", "wrong"),
        ),
    ],
)
def test_a_section_that_makes_no_sense_is_refused(
    words: list[str], message: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "section.yaml"
    tests = ["--amplitudes", "0.005", "--frequencies", "2", "--cycles", "2"]
    assert main([*COMMAND, *tests, "--out", str(out), *words]) == 2
    assert mentions(capsys.readouterr().err, *message)
    assert not out.exists()


def test_planned_tests_are_those_that_would_be_run(place: Path, tmp_path: Path) -> None:
    """As an operator drives them, from their files, on the rig; what they tell becomes a section, too."""
    assert main([*COMMAND, *TESTS, "--rig", RIG, "--plan", str(tmp_path / "plan")]) == 0
    files_of = sorted(path.name for path in (tmp_path / "plan").iterdir())
    assert files_of == [f"{AXIS}_{words}.yaml" for words in ("20mm_2Hz", "20mm_4Hz", "5mm_2Hz", "5mm_4Hz")]
    test, run = str(tmp_path / "plan" / files_of[2]), str(tmp_path / "run")
    assert main(["run", test, "--rig", RIG, "--record", run]) == 0
    out = tmp_path / "section.yaml"
    assert main([*COMMAND, "--rig", RIG, "--from", run, "--out", str(out)]) == 0
    row = parse(out.read_text(), "")["axes"]["bench"]["characterised"]["tests"][0]
    assert row[:2] == [0.005, 2.0]
    assert row[2] == pytest.approx(float(rows(place / "table.csv")[0]["storage_stiffness"]), rel=2e-3)


def test_a_plan_finds_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMAND, *TESTS, "--plan", str(tmp_path), "--csv", str(tmp_path / "x")]) == 2
    assert mentions(capsys.readouterr().err, "--csv", "--plan")
    assert main([*COMMAND, "--from", "nowhere", "--plan", str(tmp_path)]) == 2


def test_a_rig_file_is_not_overwritten_by_its_section(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rig = tmp_path / "rig.yaml"
    rig.write_text(files.locate(RIG, files.RIG).read_text())
    assert main([*COMMAND, *TESTS, "--rig", str(rig), "--out", str(rig)]) == 2
    assert mentions(capsys.readouterr().err, "rig", "file", "itself")


@pytest.mark.parametrize(
    ("words", "message"),
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
    ],
)
def test_what_cannot_be_run_is_refused(
    words: list[str], message: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*COMMAND, *words]) == 2
    assert mentions(capsys.readouterr().err, *message)


def test_a_recording_of_something_else_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", NAME, "--set", "duration=0.1", "--record", str(tmp_path / "run")]) == 0
    assert main([*COMMAND, "--from", str(tmp_path / "run")]) == 2
    assert mentions(capsys.readouterr().err, "cyclic", "test")


def test_a_test_that_trips_ends_with_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMAND, *TESTS, "--set", f"axes.{AXIS}.limits.force=1e3"]) == 3
    assert mentions(capsys.readouterr().err, "smaller", "amplitude")
