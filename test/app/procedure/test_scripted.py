# SPDX-License-Identifier: Apache-2.0
"""Tests of ``rths test`` by a file of answers: all rungs, on the simulator and over UDP, and early ends."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import rig_runner
import yaml
from c_compiler import needs_compiler
from command_fixtures import RunCommand
from emulated_bench import free_port
from messages import mentions
from programs import RTHS, begun, killed, wait_for_journal

import rths_nodes
from rths_nodes.loop.procedure_record import ProcedureRecord, SpecimenRecord
from rths_nodes.recording import procedure

TITLES = (
    *("Deviations from the procedure", "Notes of the operator", "Load history of the specimen"),
    *("Partition", "Natural frequencies and damping", "Sensors and channels", "Controller, as read back"),
    *("Offsets before and after", "Signs and scales", "Rungs", "Acts of the operator", "Unloading"),
    *("Error and floor of the sensor", "Response", "Displacement", "Tracking in detail", "Control error"),
    *("Tracking indicator", "Compensator", "Hysteresis", "Energy", "Synchronisation", "Equilibrium", "Excitation"),
    *("Extreme values of each axis and its limits", "Timing", "Scenario file"),
)
"""Titles in the report of a complete test."""
pytestmark = pytest.mark.nodes
pytest.importorskip("rclpy")

NAME, RIG = "chen_ricles_2010", "bench_simulated"
SLOW = ("--set=servo_rate=256", "--set=substeps=3")
"""A quarter of the samples is enough: most of a test are moves between rests."""
ANSWERS = rig_runner.ANSWERS | {
    "level": 0.3,
    "time_ratio": 2,
    "offsets_seconds": 0.5,
    "sign_for": ["story_1"],
    "arm": ["d", "e", "f", "g"],
    "largest_difference": {"b": 0.0, "c": 0.01, "d": 0.2, "e": 0.1, "f": 0.1, "g": 0.1},
    "notes": ["bolts tightened to 300 N m"],
}


@dataclass
class Result:
    """Result of a test."""

    code: int
    output: str
    errors: str
    folder: Path

    @property
    def record(self) -> ProcedureRecord:
        return procedure.read(self.folder)

    @property
    def outcomes(self) -> dict[str, str]:
        return {rung.name: rung.outcome for rung in self.record.rungs}


def start_test(
    folder: Path, environment: Mapping[str, str], options: Sequence[str], **changed: Any
) -> subprocess.Popen[str]:
    """Start ``rths test`` without a terminal; answers that are None are omitted."""
    answers = {key: value for key, value in (ANSWERS | changed).items() if value is not None}
    (folder / "answers.yaml").write_text(yaml.safe_dump(answers))
    return begun(
        [*RTHS, "test", NAME, *options, "--answers", "answers.yaml"],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
    )


def run_test(folder: Path, environment: Mapping[str, str], options: Sequence[str], **changed: Any) -> Result:
    with killed(start_test(folder, environment, options, **changed)) as program:
        output, errors = program.communicate(timeout=110)
    return Result(program.returncode, output, errors, folder / "runs" / ANSWERS["test_id"])


def short_test(folder: Path, environment: Mapping[str, str], *options: str, **changed: Any) -> Result:
    return run_test(folder, environment, ["--rig", RIG, "--set=duration=0.3", "--no-report", *options], **changed)


ONLY_G = {"rungs": ["g"], "arm": ["g"], "largest_difference": None}


@pytest.fixture(scope="module")
def on_simulator(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> Result:
    """All rungs on the simulator."""
    folder = tmp_path_factory.mktemp("simulator")
    return run_test(folder, environment, ["--rig", RIG, "--set=duration=2", *SLOW])


def test_all_rungs_finish_on_the_simulator(on_simulator: Result) -> None:
    assert on_simulator.code == 0, on_simulator.output + on_simulator.errors
    assert on_simulator.outcomes == dict.fromkeys("abcdefg", "finished")
    record = on_simulator.record
    assert (record.outcome, record.operator, record.rig) == ("finished", "A. Tester", RIG)
    assert [note.text for note in record.notes] == ANSWERS["notes"]
    assert record.offsets_before.confirmed
    assert record.offsets_after is not None
    assert record.ended


def test_rungs_are_recorded_and_compared(on_simulator: Result) -> None:
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
    for quantity in ("displacement", "force"):
        assert named["g"].differences[f"{quantity} of story_1 to its rehearsal"] < 0.2


def test_levels_ratios_and_hashes_are_recorded(on_simulator: Result) -> None:
    named = {rung.name: rung for rung in on_simulator.record.rungs}
    assert {name: rung.level for name, rung in named.items() if rung.level != 1.0} == dict.fromkeys("def", 0.3)
    assert {name: rung.time_ratio for name, rung in named.items() if rung.time_ratio != 1} == {"e": 2}
    assert {named[name].host for name in "acdefg"} == {"embedded"}
    assert named["b"].host == "composed"
    assert {named[name].offsets_hash for name in "cdefg"} == {on_simulator.record.offsets_before.hash}
    assert any(mentions(remark, "depends", "rate") for remark in named["e"].remarks)


def test_simulator_does_not_load_the_specimen(on_simulator: Result) -> None:
    assert (on_simulator.record.simulated, on_simulator.record.specimen.history) == ("simulated", [])
    peaks = {rung.name: rung.peaks["story_1"]["displacement"] for rung in on_simulator.record.rungs}
    assert peaks["g"] > 2.0 * peaks["d"]


def test_acts_are_recorded(on_simulator: Result) -> None:
    acts = [act.act for act in on_simulator.record.acts]
    once = ["connect", "take_offsets", "confirm_offsets", "check"]
    assert [act for act in acts if act in once] == once
    assert acts.count("position") == acts.count("arm") == acts.count("run") == 5
    assert acts[-2:] == ["unload", "finish"]
    assert [act.refused for act in on_simulator.record.acts if act.refused] == []


def test_report_has_all_sections(on_simulator: Result) -> None:
    page = (on_simulator.folder / "report.html").read_text()
    headings = re.findall(r"<h[23][^>]*>.*?</h[23]>", page, re.DOTALL)
    titles = [re.sub("<[^>]+>", "", heading).strip() for heading in headings]
    assert [title for title in TITLES if not any(title in shown for shown in titles)] == []


@needs_compiler
def test_all_rungs_finish_over_udp(tmp_path: Path, environment: dict[str, str]) -> None:
    """Against an emulator in another process, in lockstep."""
    options = ["--rig", "bench_udp", "--set=duration=1", *SLOW, f"--set=port.port={free_port()}"]
    command = [*RTHS, "emulate", NAME, *options]
    started = begun(command, stderr=None, cwd=tmp_path, env=environment)
    with killed(started) as emulator:
        assert "emulated at" in emulator.stdout.readline()
        bounds = dict.fromkeys("bcdefg", 1.0)
        result = run_test(tmp_path, environment, [*options, "--no-report"], largest_difference=bounds)
        assert emulator.wait(timeout=20) == 0
    assert result.code == 0, result.output + result.errors
    assert result.outcomes == dict.fromkeys("abcdefg", "finished")
    assert result.record.port == "udp"
    differences = result.record.rungs[-1].differences
    to_rehearsal = [value for name, value in differences.items() if name.endswith("to its rehearsal")]
    assert len(to_rehearsal) == 2
    assert max(to_rehearsal) < 0.05


def test_missing_answers_are_reported_before_motion(tmp_path: Path, environment: dict[str, str]) -> None:
    result = short_test(tmp_path, environment, unloaded=None, operator=None, arm=["d", "e", "f"])
    assert result.code == 2
    shown = result.output + result.errors
    for reason in (
        "operator: must be answered (name of the person",
        "unloaded: must be answered (true: the specimen carries no load",
        "arm: must list every planned rung that moves the rig, but lacks g",
    ):
        assert reason in shown
    assert mentions(shown, "terminal")
    assert not result.folder.exists()


def test_unknown_answer_is_refused(tmp_path: Path, environment: dict[str, str]) -> None:
    result = short_test(tmp_path, environment, timeratio=4)
    assert result.code == 2
    assert mentions(result.output + result.errors, "timeratio", "unknown", "time_ratio")
    assert not result.folder.exists()


def test_command_needs_a_rig_file_and_prints_a_template(output: RunCommand, refusal: RunCommand) -> None:
    assert "--rig: missing" in refusal("test", NAME)
    assert "time_ratio:" in output("test", NAME, "--print-answers")


def test_existing_test_is_not_overwritten(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "runs" / "first" / "rung_a").mkdir(parents=True)
    result = short_test(tmp_path, environment)
    assert result.code == 2
    assert mentions(result.output + result.errors, "runs/first", "never overwritten")


def test_wrong_sign_of_force_ends_the_test_before_arming(tmp_path: Path, environment: dict[str, str]) -> None:
    override = "--set=axes.story_1.sensors.force_scale=-1"
    result = short_test(tmp_path, environment, override, rungs=["d", "g"], arm=["d", "g"])
    assert result.code == 2, result.output + result.errors
    assert result.record.outcome == "refused"
    assert "sign" in result.record.reason
    assert result.outcomes == {}
    assert "arm" not in [act.act for act in result.record.acts]
    assert result.record.ended


def test_trip_in_a_rung_ends_the_test(tmp_path: Path, environment: dict[str, str]) -> None:
    tight = "--set=axes.story_1.limits.levels={displacement: {maximum: 2.0e-3, minimum: -2.0e-3}}"
    result = short_test(tmp_path, environment, tight, "--set=duration=2", **ONLY_G)
    assert result.code == 3, result.output + result.errors
    record = result.record
    assert record.outcome == record.rungs[-1].outcome == "tripped"
    assert "displacement" in record.reason
    assert record.sample == record.rungs[-1].samples > 0
    assert rths_nodes.read(result.folder / "rung_g").outcome == "tripped"


def test_large_difference_of_a_rung_ends_the_test(tmp_path: Path, environment: dict[str, str]) -> None:
    bounds = ANSWERS["largest_difference"] | {"f": 1e-9}
    result = short_test(tmp_path, environment, rungs=["f", "g"], arm=["f", "g"], largest_difference=bounds)
    assert result.code == 130, result.output + result.errors
    assert result.outcomes == {"f": "finished"}
    assert mentions(result.record.reason, "rung f", "difference", "must be <=")


@pytest.mark.parametrize(
    ("number", "cause"),
    [(signal.SIGTERM, "SIGTERM"), (signal.SIGHUP, "SIGHUP"), (signal.SIGINT, "operator")],
)
def test_signal_holds_the_test(
    number: signal.Signals, cause: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    folder = tmp_path / "runs" / "first"
    journal = folder / "rung_g" / "rung_g_0.mcap"
    options = ["--rig", RIG, "--set=duration=60", "--no-report"]
    with killed(start_test(tmp_path, environment, options, **ONLY_G, unload={"moves": "n"})) as program:
        wait_for_journal(journal, program)
        program.send_signal(number)
        output = program.communicate(timeout=60)
    assert program.returncode == 130, output
    record = procedure.read(folder)
    assert record.outcome == record.rungs[-1].outcome == "held"
    assert cause in record.rungs[-1].reason
    assert ("operator" in record.rungs[-1].reason) is (cause == "operator")
    assert record.ended
    assert record.offsets_after is not None
    assert rths_nodes.read(folder / "rung_g").outcome == "held"


def test_record_is_printed_as_json(tmp_path: Path, environment: dict[str, str]) -> None:
    result = short_test(tmp_path, environment, "--json", rungs=["a"], largest_difference=None, arm=None)
    assert result.code == 0
    assert json.loads(result.output)["rungs"][0]["outcome"] == "finished"


def test_history_of_the_specimen_has_earlier_tests(tmp_path: Path, environment: dict[str, str]) -> None:
    for test, specimen in (("zero", "D-17"), ("other", "D-18")):
        history = SpecimenRecord(specimen, [{"test": test, "rung": "g"}])
        procedure.write(ProcedureRecord(test, NAME, "", specimen=history), tmp_path / "runs" / test)
    result = short_test(tmp_path, environment, **ONLY_G, unload={"moves": "n"})
    assert result.code == 0, result.output + result.errors
    assert [(row["test"], row["rung"]) for row in result.record.specimen.history] == [("zero", "g")]
