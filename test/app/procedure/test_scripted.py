# SPDX-License-Identifier: Apache-2.0
"""``rths test`` by a file of answers: all rungs on the simulator, and by UDP; what ends it early, and how."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from messages import mentions
from named_motions import NAMED

import rths_nodes
from rths_nodes.app.cli import main
from rths_nodes.loop.procedure_record import ProcedureRecord, SpecimenRecord
from rths_nodes.recording import procedure

OF_A_REPORT = (
    *("Deviations from the procedure", "Notes of the operator", "Load history of the specimen"),
    *("Partition", "Natural frequencies and damping", "Sensors and channels", "Controller, as read back"),
    *("Offsets before and after", "Signs and scales", "Rungs", "Acts of the operator", "Unloading"),
    *("Error and floor of the sensor", "Response", "Displacement", "Tracking in detail", "Control error"),
    *("Tracking indicator", "Compensator", "Hysteresis", "Energy", "Synchronisation", "Equilibrium", "Excitation"),
    *("Extreme values of each axis and its limits", "Timing", "Scenario file"),
)
"""Titles of the report of a whole test."""
pytestmark = pytest.mark.nodes
pytest.importorskip("rclpy")

NAME, RIG = "chen_ricles_2010", "bench_simulated"
PROGRAM = (sys.executable, "-m", "rths_nodes.app.cli")
BRIEF, BRIEFER = "--set=duration=2", "--set=duration=1"
SLOW = ("--set=servo_rate=256", "--set=substeps=3")
"""Most of a test are moves at rest, a quarter of whose samples show the same."""
ANSWERS: dict[str, Any] = {
    "test_id": "first",
    "operator": "A. Tester",
    "specimen": "D-17",
    "level": 0.3,
    "time_ratio": 2,
    "offsets_seconds": 0.5,
    "confirm_offsets": True,
    "unloaded": True,
    "sign_for": ["story_1"],
    "arm": ["d", "e", "f", "g"],
    "largest_difference": {"b": 0.0, "c": 0.01, "d": 0.2, "e": 0.1, "f": 0.1, "g": 0.1},
    **NAMED,
    "notes": ["bolts tightened to 300 N m"],
}
BOUNDS = dict.fromkeys("bcdefg", 1.0)


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
    printed: str = ""
    """What went to standard output alone."""
    __test__ = False

    @property
    def record(self) -> ProcedureRecord:
        return procedure.read(self.folder)

    @property
    def outcomes(self) -> dict[str, str]:
        return {rung.name: rung.outcome for rung in self.record.rungs}


def carried_out(folder: Path, environment: Mapping[str, str], words: Sequence[str], answers: Path) -> Tested:
    """``rths test`` in a process of its own, without a terminal."""
    command = [*PROGRAM, "test", NAME, *words, "--answers", str(answers)]
    done = subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=110
    )
    return Tested(done.returncode, done.stdout + done.stderr, folder / "runs" / ANSWERS["test_id"], done.stdout)


@pytest.fixture(scope="module")
def on_simulator(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> Tested:
    """The whole ladder on the simulator."""
    folder = tmp_path_factory.mktemp("simulator")
    return carried_out(folder, environment, ["--rig", RIG, BRIEF, *SLOW], answered(folder))


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


def test_every_rung_is_recorded_and_compared(on_simulator: Tested) -> None:
    rungs = on_simulator.record.rungs
    for before, rung in zip([None, *rungs], rungs, strict=False):
        run = rths_nodes.read(on_simulator.folder / rung.recording)
        assert run.outcome == "finished"
        assert len(run.time) == rung.samples + 1
        assert rung.compared_with == (before.name if before else "")
        assert bool(rung.differences) is (before is not None)
        assert rung.peaks["story_1"]["displacement"] > 0.0
    named = {rung.name: rung for rung in rungs}
    assert set(named["b"].differences.values()) == {0.0}
    assert (
        max(named["g"].differences[f"{name} of story_1 to its rehearsal"] for name in ("displacement", "force"))
        < 0.2
    )


def test_levels_ratios_and_hashes_stand_in_the_record(on_simulator: Tested) -> None:
    named = {rung.name: rung for rung in on_simulator.record.rungs}
    assert {name: rung.level for name, rung in named.items() if rung.level != 1.0} == dict.fromkeys("def", 0.3)
    assert {name: rung.time_ratio for name, rung in named.items() if rung.time_ratio != 1} == {"e": 2}
    assert {named[name].host for name in "acdefg"} == {"embedded"}
    assert named["b"].host == "composed"
    offsets = on_simulator.record.offsets_before
    assert offsets is not None
    assert {named[name].offsets_hash for name in "cdefg"} == {offsets.hash}
    assert any(mentions(words, "depends", "rate") for words in named["e"].remarks)


def test_a_simulator_loads_no_specimen(on_simulator: Tested) -> None:
    assert on_simulator.record.simulated == "simulated"
    assert on_simulator.record.specimen.history == []
    peaks = {rung.name: rung.peaks["story_1"]["displacement"] for rung in on_simulator.record.rungs}
    assert peaks["g"] > 2.0 * peaks["d"]


def test_every_act_is_written_down(on_simulator: Tested) -> None:
    acts = [act.act for act in on_simulator.record.acts]
    assert [name for name in acts if name in ("connect", "take_offsets", "confirm_offsets", "check")] == [
        *("connect", "take_offsets", "confirm_offsets", "check"),
    ]
    assert acts.count("position") == acts.count("arm") == acts.count("run") == 5
    assert acts[-2:] == ["unload", "finish"]
    assert [act.refused for act in on_simulator.record.acts if act.refused] == []


def test_a_report_stands_at_the_end(on_simulator: Tested) -> None:
    """With everything that a test has to tell."""
    page = (on_simulator.folder / "report.html").read_text()
    titles = [
        re.sub("<[^>]+>", "", each).strip() for each in re.findall(r"<h[23][^>]*>.*?</h[23]>", page, re.DOTALL)
    ]
    missing = [each for each in OF_A_REPORT if not any(each in title for title in titles)]
    assert missing == []


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@dataclass
class Emulated:
    """A test on an emulated rig: how both programs ended."""

    test: Tested
    code: int


@pytest.fixture(scope="module")
def by_udp(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> Emulated:
    """The whole ladder through the port udp, against an emulator in a process of its own, in lockstep."""
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        pytest.skip("no C compiler here")
    folder = tmp_path_factory.mktemp("udp")
    words = ["--rig", "bench_udp", BRIEFER, *SLOW, f"--set=port.port={free_port()}"]
    emulator = subprocess.Popen(
        [*PROGRAM, "emulate", NAME, *words], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        assert emulator.stdout is not None
        assert "emulated at" in emulator.stdout.readline()
        answers = answered(folder, largest_difference=BOUNDS)
        test = carried_out(folder, environment, [*words, "--no-report"], answers)
        return Emulated(test, emulator.wait(timeout=20))
    finally:
        emulator.kill()
        emulator.wait()


def test_all_rungs_are_climbed_by_udp(by_udp: Emulated) -> None:
    assert by_udp.test.code == 0, by_udp.test.shown
    assert by_udp.test.outcomes == dict.fromkeys("abcdefg", "finished")
    assert by_udp.test.record.port == "udp"
    assert by_udp.code == 0


def test_the_full_rung_by_udp_is_its_rehearsal_on_the_simulator(by_udp: Emulated) -> None:
    full = by_udp.test.record.rungs[-1]
    own = {name: value for name, value in full.differences.items() if name.endswith("to its rehearsal")}
    assert len(own) == 2
    assert max(own.values()) < 0.05


# -- what ends a test early ------------------------------------------------------------------------------------


def in_short(folder: Path, environment: Mapping[str, str], *words: str, **changed: Any) -> Tested:
    """A test that begins on the rig, with little of the ladder."""
    return carried_out(
        folder,
        environment,
        ["--rig", RIG, "--set=duration=0.3", "--no-report", *words],
        answered(folder, **changed),
    )


def test_answers_that_are_missing_are_named_before_anything_moves(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    found = in_short(tmp_path, environment, unloaded=None, operator=None, arm=["d", "e", "f"])
    assert found.code == 2
    for words in (
        "operator: must be answered (name of the person",
        "unloaded: must be answered (true: the specimen carries no load",
        "arm: must list every planned rung that moves the rig, but lacks g",
    ):
        assert words in found.shown
    assert mentions(found.shown, "terminal")
    assert not found.folder.exists()


def test_a_typo_in_the_answers_is_refused(tmp_path: Path, environment: dict[str, str]) -> None:
    found = in_short(tmp_path, environment, timeratio=4)
    assert found.code == 2
    assert mentions(found.shown, "timeratio", "unknown", "time_ratio")
    assert not found.folder.exists()


def test_without_a_rig_file_there_is_no_procedure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["test", NAME]) == 2
    assert "--rig: missing" in capsys.readouterr().err


def test_a_template_of_answers_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["test", NAME, "--print-answers"]) == 0
    assert "time_ratio:" in capsys.readouterr().out


def test_a_test_is_never_written_over(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "runs" / "first" / "rung_a").mkdir(parents=True)
    found = in_short(tmp_path, environment)
    assert found.code == 2
    assert mentions(found.shown, "runs/first", "never overwritten")


def test_a_wrong_sign_of_the_load_cell_ends_the_test_before_it_is_armed(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    wrong = "--set=axes.story_1.sensors.force_scale=-1"
    found = in_short(tmp_path, environment, wrong, rungs=["d", "g"], arm=["d", "g"])
    assert found.code == 2, found.shown
    assert found.record.outcome == "refused"
    assert "sign" in found.record.reason
    assert found.outcomes == {}
    assert "arm" not in [act.act for act in found.record.acts]
    assert found.record.ended


def test_a_rung_that_trips_ends_the_test(tmp_path: Path, environment: dict[str, str]) -> None:
    tight = "--set=axes.story_1.limits.levels={displacement: {maximum: 2.0e-3, minimum: -2.0e-3}}"
    words = (tight, "--set=duration=2")
    found = in_short(tmp_path, environment, *words, rungs=["g"], arm=["g"], largest_difference=None)
    assert found.code == 3, found.shown
    assert found.record.outcome == "tripped"
    assert "displacement" in found.record.reason
    assert found.record.rungs[-1].outcome == "tripped"
    assert found.record.sample == found.record.rungs[-1].samples > 0
    assert rths_nodes.read(found.folder / "rung_g").outcome == "tripped"


def test_a_rung_that_differs_too_much_ends_the_ladder(tmp_path: Path, environment: dict[str, str]) -> None:
    bounds = ANSWERS["largest_difference"] | {"f": 1e-9}
    found = in_short(tmp_path, environment, rungs=["f", "g"], arm=["f", "g"], largest_difference=bounds)
    assert found.code == 130, found.shown
    assert found.outcomes == {"f": "finished"}
    assert mentions(found.record.reason, "rung f", "difference", "must be <=")


@pytest.fixture
def long_test(tmp_path: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A test that is under way on the rig for a long time; its folder is runs/first."""
    answers = answered(tmp_path, rungs=["g"], arm=["g"], largest_difference=None, unload={"moves": "n"})
    words = ["--rig", RIG, "--set=duration=60", "--no-report", "--answers", str(answers)]
    program = subprocess.Popen(
        [*PROGRAM, "test", NAME, *words],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    yield program
    program.kill()
    program.wait()


@pytest.mark.parametrize(
    ("number", "cause"),
    [(signal.SIGTERM, "SIGTERM"), (signal.SIGHUP, "SIGHUP"), (signal.SIGINT, "operator")],
)
def test_an_interrupted_test_ends_in_order(
    number: signal.Signals, cause: str, tmp_path: Path, long_test: subprocess.Popen[str]
) -> None:
    folder = tmp_path / "runs" / "first"
    journal = folder / "rung_g" / "rung_g_0.mcap"
    while long_test.poll() is None and not (journal.exists() and journal.stat().st_size > 100_000):
        time.sleep(0.05)
    long_test.send_signal(number)
    shown, _ = long_test.communicate(timeout=60)
    assert long_test.returncode == 130, shown
    record = procedure.read(folder)
    assert record.outcome == "held"
    assert record.rungs[-1].outcome == "held"
    assert cause in record.rungs[-1].reason
    assert ("operator" in record.rungs[-1].reason) is (cause == "operator")
    assert record.ended
    assert record.offsets_after is not None
    assert rths_nodes.read(folder / "rung_g").outcome == "held"


def test_the_record_is_printed_as_json(tmp_path: Path, environment: dict[str, str]) -> None:
    found = in_short(tmp_path, environment, "--json", rungs=["a"], largest_difference=None, arm=None)
    assert found.code == 0
    data = json.loads(found.printed)
    assert data["rungs"][0]["outcome"] == "finished"


def test_the_history_of_a_specimen_goes_over_its_tests(tmp_path: Path, environment: dict[str, str]) -> None:
    earlier = ProcedureRecord("zero", NAME, "", specimen=SpecimenRecord("D-17", [{"test": "zero", "rung": "g"}]))
    other = ProcedureRecord("other", NAME, "", specimen=SpecimenRecord("D-18", [{"test": "other", "rung": "g"}]))
    for record in (earlier, other):
        procedure.write(record, tmp_path / "runs" / record.test_id)
    found = in_short(tmp_path, environment, rungs=["g"], arm=["g"], largest_difference=None, unload={"moves": "n"})
    assert found.code == 0, found.shown
    history = found.record.specimen.history
    assert [(row["test"], row["rung"]) for row in history] == [("zero", "g")]
