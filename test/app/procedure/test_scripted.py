"""``rths test`` by a file of answers: all rungs on the simulator, and by UDP; what ends it early, and how."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from rths_nodes.loop.procedure.records import ProcedureRecord
from rths_nodes.recording import procedure

pytestmark = [pytest.mark.nodes]
pytest.importorskip("rclpy")

NAME, RIG = "chen_ricles_2010", "bench_simulated"
PROGRAM = (sys.executable, "-m", "rths_nodes.app.cli")
BRIEF = "--set=duration=3"
ANSWERS: dict[str, Any] = {
    "test_id": "first",
    "operator": "A. Tester",
    "specimen": "D-17",
    "level": 0.1,
    "time_ratio": 4,
    "offsets_seconds": 0.5,
    "confirm_offsets": True,
    "unloaded": True,
    "sign_for": ["story_1"],
    "arm": ["d", "e", "f", "g"],
    "largest_difference": {"b": 0.0, "c": 0.01, "d": 0.2, "e": 1.0, "f": 1.0, "g": 0.2},
    "unload": True,
    "notes": ["bolts tightened to 300 N m"],
}
MOVING = ["d", "e", "f", "g"]


def answered(folder: Path, **changed: Any) -> Path:
    """A file of answers; what is None is left out."""
    data = {key: value for key, value in (ANSWERS | changed).items() if value is not None}
    file = folder / "answers.yaml"
    file.write_text(yaml.safe_dump(data))
    return file


@dataclass
class Tested:
    """A test that is over."""

    code: int
    shown: str
    folder: Path

    @property
    def record(self) -> ProcedureRecord:
        return procedure.read(self.folder)

    @property
    def outcomes(self) -> dict[str, str]:
        return {rung.name: rung.outcome for rung in self.record.rungs}


def tested(
    folder: Path, environment: Mapping[str, str], words: Sequence[str], answers: Path, **more: Any
) -> Tested:
    """``rths test`` in a process of its own, without a terminal."""
    command = [*PROGRAM, "test", NAME, *words, "--answers", str(answers)]
    done = subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=110
    )
    return Tested(done.returncode, done.stdout + done.stderr, folder / "runs" / ANSWERS["test_id"])


@pytest.fixture(scope="module")
def on_simulator(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> Tested:
    """The whole ladder on the simulator."""
    folder = tmp_path_factory.mktemp("simulator")
    return tested(folder, environment, ["--rig", RIG, BRIEF], answered(folder))


def test_all_rungs_are_climbed_on_the_simulator(on_simulator: Tested) -> None:
    assert on_simulator.code == 0, on_simulator.shown
    assert on_simulator.outcomes == dict.fromkeys("abcdefg", "finished")
    record = on_simulator.record
    assert (record.outcome, record.operator, record.rig) == ("finished", "A. Tester", RIG)
    assert [note.text for note in record.notes] == ANSWERS["notes"]
    assert record.offsets_before is not None
    assert record.offsets_before.confirmed
    assert record.offsets_after is not None
    assert record.ended
