# SPDX-License-Identifier: Apache-2.0
"""Tests of the engine in scenario and rig file: refused at a real rig, and part of the armed program."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from messages import mentions
from rig_runner import arm, referenced
from rig_walk import RIG

from rths_nodes.app import hosts
from rths_nodes.app.cli import main
from rths_nodes.app.procedure import screens
from rths_nodes.app.procedure.ladder import Ladder
from rths_nodes.app.procedure.operator_socket import Request
from rths_nodes.app.procedure.procedure_runner import ProcedureRunner
from rths_nodes.app.procedure.served import Served
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.commissioning import rig_hash
from rths_nodes.loop.procedure_record import ProcedureRecord
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.rehearsal import hash_of
from rths_nodes.procedure.machine import ActRefused
from rths_nodes.recording.reading import read_run
from rths_nodes.ros.transport.greeting import Credentials

NAME, SHORT = "chen_ricles_2010", ["duration=0.5"]
EXECUTIVE = "engine=executive"
REAL = RIG.replace("{type: simulator, transport_samples: 1, hydraulics: high, interlock: closed}", "{type: udp}")


def with_engine(rig: str) -> str:
    return rig.replace("port:", "engine: executive\nport:")


def rig_file(folder: Path, text: str = RIG) -> str:
    (folder / "bench.yaml").write_text(text)
    return str(folder / "bench.yaml")


def runner_of(folder: Path, rungs: str) -> ProcedureRunner:
    scenario = files.load(NAME, [*SHORT, EXECUTIVE], rig=rig_file(folder))
    record = ProcedureRecord("test", scenario.name, hash_of(scenario), operator="A. Tester")
    ladder = Ladder(scenario, tuple(rungs), 0.3, 2, realtime=False)
    ladder.check()
    return ProcedureRunner(ladder, record, folder / "test")


def arm_rung_c(runner: ProcedureRunner) -> str:
    referenced(runner, 0.05)
    for act in ("check", "position"):
        runner.do(act, clear="CLEAR")
    return arm(runner, "c")


@pytest.mark.parametrize(
    ("overrides", "options", "engine"),
    [
        ([EXECUTIVE], {}, "executive"),
        ([EXECUTIVE], {"engine": "python"}, "python"),
        ([], {"engine": "executive"}, "executive"),
    ],
)
def test_option_has_priority_over_the_scenario(overrides: list[str], options: dict[str, Any], engine: str) -> None:
    result = hosts.run(NAME, [*SHORT, *overrides], **options)
    assert result.engine == engine
    assert result.scenario.engine == ("executive" if engine == "executive" else "auto")


def test_command_prints_the_engine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", NAME, "--set", SHORT[0], "--set", EXECUTIVE]) == 0
    assert mentions(capsys.readouterr().out, "embedded, executive")


def test_study_prefers_its_own_engine() -> None:
    assert hosts.run(NAME, [*SHORT, EXECUTIVE], preferred="kernels").engine == "kernels"


def test_engine_of_a_rig_file_changes_its_hashes(tmp_path: Path) -> None:
    scenario = files.load(NAME, SHORT, rig=rig_file(tmp_path, with_engine(RIG)))
    without = files.load(NAME, SHORT, rig=rig_file(tmp_path))
    assert (scenario.engine, without.engine) == ("executive", "auto")
    assert rig_hash(scenario) != rig_hash(without)
    assert scenario.shared_hash() != without.shared_hash()


@pytest.mark.parametrize("command", ["check", "run", "test"])
@pytest.mark.parametrize("key", ["rig file", "override"])
def test_executive_is_refused_for_a_real_rig(
    command: str, key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rig = rig_file(tmp_path, with_engine(REAL) if key == "rig file" else REAL)
    overrides = ["--set", EXECUTIVE] if key == "override" else []
    assert main([command, NAME, "--rig", rig, *overrides]) == 2
    assert mentions(capsys.readouterr().err, "engine", "executive", "udp", "doc/real_time.md")


def test_option_executive_is_refused_if_unsupported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        hosts.run(NAME, SHORT, rig=rig_file(tmp_path, REAL), engine="executive")
    assert mentions(str(refused.value), "engine", "executive", "udp", "doc/real_time.md")
    with pytest.raises(ConfigError) as refused:
        hosts.run(NAME, [*SHORT, EXECUTIVE], host="processes")
    assert mentions(str(refused.value), "engine", "executive", "processes")


@pytest.mark.parametrize("rung", ["d", "e", "f", "g"])
def test_executive_is_refused_for_rungs_that_drive_the_rig(rung: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        runner_of(tmp_path, f"c{rung}")
    assert mentions(str(refused.value), "engine", f"rung {rung}")


def test_rung_without_commands_runs_the_armed_program(tmp_path: Path) -> None:
    runner = runner_of(tmp_path, "ac")
    runner.do("rehearse", rung="a")
    armed, step = arm_rung_c(runner), runner.ladder.step("c")
    assert step.hash != hash_of(step.scenario)
    assert mentions(armed, step.hash, f"executive, program {step.program}")
    assert step.program in "".join(screens.armed(step, runner.ladder, "").columns[1]._cells)
    assert Served(runner, print).situation().engine == step.engine
    runner.do("run", clear="CLEAR")
    rung = runner.record.rungs[-1]
    samples = runner.ladder.scenario.samples
    assert (rung.outcome, rung.scenario_hash, rung.samples) == ("finished", step.hash, samples)
    assert mentions(rung.remarks[0], step.program)
    run = read_run(runner.folder / rung.recording)
    assert run.information["engine"] == "executive"
    assert run.information["library"].startswith(step.program.partition("-")[2])


@pytest.mark.nodes
def test_rung_b_rehearses_the_program_with_nodes(tmp_path: Path) -> None:
    runner = runner_of(tmp_path, "ab")
    for name in "ab":
        runner.do("rehearse", rung=name)
    rung = runner.record.rungs[-1]
    assert (rung.name, rung.host, rung.outcome) == ("b", "composed", "finished")
    assert read_run(runner.folder / rung.recording).information["engine"] == "executive"
    assert rung.differences["displacement of story_1"] == 0.0


def test_failed_arm_renews_the_hash(tmp_path: Path) -> None:
    runner = runner_of(tmp_path, "ac")
    step, served = runner.ladder.step("a"), Served(runner, print)
    served._armed["a", 0.3, 2] = "stale", ""
    assert served.situation().scenario_hash == "stale"
    answer = served.answer(Request("arm"), Credentials(os.getpid(), os.getuid()))
    assert not answer.done
    assert answer.scenario_hash == step.hash


@pytest.mark.skipif(shutil.which("clang") is None, reason="no second compiler here")
def test_program_that_was_not_armed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = runner_of(tmp_path, "c")
    arm_rung_c(runner)
    monkeypatch.setenv("CC", "clang")
    with pytest.raises(ActRefused) as refused:
        runner.do("run", clear="CLEAR")
    assert mentions(str(refused.value), "program", "rung c")
    assert runner.record.rungs == []
