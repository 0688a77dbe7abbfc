# SPDX-License-Identifier: Apache-2.0
"""The engine is named in scenario or rig file, never chosen behind a port, and part of what is armed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from messages import mentions
from rig_runner import referenced
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
NATIVE = "engine=executive"
REAL = RIG.replace("{type: simulator, transport_samples: 1, hydraulics: high, interlock: closed}", "{type: udp}")


def rig_file(folder: Path, text: str = RIG) -> str:
    (folder / "bench.yaml").write_text(text)
    return str(folder / "bench.yaml")


def runner(folder: Path, rungs: str) -> ProcedureRunner:
    scenario = files.load(NAME, [*SHORT, NATIVE], rig=rig_file(folder))
    record = ProcedureRecord("test", scenario.name, hash_of(scenario), operator="A. Tester")
    ladder = Ladder(scenario, tuple(rungs), 0.3, 2, realtime=False)
    ladder.check()
    return ProcedureRunner(ladder, record, folder / "test")


def arm(test: ProcedureRunner) -> str:
    referenced(test, 0.05)
    for act in ("check", "position"):
        test.do(act, clear="CLEAR")
    assert test.session.offsets is not None
    step = test.ladder.step("c")
    return test.do("arm", rung="c", scenario_hash=step.hash, offsets_hash=test.session.offsets.hash)


@pytest.mark.parametrize(
    ("overrides", "options", "engine"),
    [
        ([NATIVE], {}, "executive"),
        ([NATIVE], {"engine": "python"}, "python"),
        ([], {"engine": "executive"}, "executive"),
    ],
)
def test_the_option_goes_before_the_scenario(overrides: list[str], options: dict[str, Any], engine: str) -> None:
    result = hosts.run(NAME, [*SHORT, *overrides], **options)
    assert result.engine == engine
    assert result.scenario.engine == ("executive" if engine == "executive" else "auto")


def test_the_command_prints_the_engine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", NAME, "--set", SHORT[0], "--set", NATIVE]) == 0
    assert mentions(capsys.readouterr().out, "embedded, executive")


def test_a_study_prefers_its_own_engine() -> None:
    assert hosts.run(NAME, [*SHORT, NATIVE], preferred="kernels").engine == "kernels"


def test_a_rig_file_names_the_engine(tmp_path: Path) -> None:
    rig = rig_file(tmp_path, RIG.replace("port:", "engine: executive\nport:"))
    scenario, before = files.load(NAME, SHORT, rig=rig), files.load(NAME, SHORT, rig=rig_file(tmp_path))
    assert (scenario.engine, before.engine) == ("executive", "auto")
    assert rig_hash(scenario) != rig_hash(before)
    assert scenario.shared_hash() != before.shared_hash()


@pytest.mark.parametrize("command", ["check", "run", "test"])
@pytest.mark.parametrize("key", ["rig file", "override"])
def test_a_real_rig_is_refused(command: str, key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = REAL.replace("port:", "engine: executive\nport:") if key == "rig file" else REAL
    arguments = [
        command,
        NAME,
        "--rig",
        rig_file(tmp_path, text),
        *(["--set", NATIVE] if key == "override" else []),
    ]
    assert main(arguments) == 2
    assert mentions(capsys.readouterr().err, "engine", "executive", "udp", "doc/real_time.md")


def test_the_option_is_refused_for_a_real_rig(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        hosts.run(NAME, SHORT, rig=rig_file(tmp_path, REAL), engine="executive")
    assert mentions(str(refused.value), "engine", "executive", "udp", "doc/real_time.md")


@pytest.mark.parametrize("rung", ["d", "e", "f", "g"])
def test_a_rung_that_drives_the_rig_is_refused_before_it_is_connected(rung: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        runner(tmp_path, f"c{rung}")
    assert mentions(str(refused.value), "engine", f"rung {rung}")


def test_a_rung_that_sends_nothing_runs_by_the_armed_program(tmp_path: Path) -> None:
    test = runner(tmp_path, "ac")
    test.do("rehearse", rung="a")
    told, step = arm(test), test.ladder.step("c")
    assert step.hash != hash_of(step.scenario)
    assert mentions(told, step.hash, f"executive, program {step.program}")
    assert step.program in "".join(screens.armed(step, test.ladder, "").columns[1]._cells)  # type: ignore[arg-type]
    assert Served(test, print).situation().engine == step.engine
    test.do("run", clear="CLEAR")
    done = test.record.rungs[-1]
    assert (done.outcome, done.scenario_hash, done.samples) == (
        "finished",
        step.hash,
        test.ladder.scenario.samples,
    )
    assert mentions(done.remarks[0], step.program)
    run = read_run(test.folder / done.recording)
    assert run.information["engine"] == "executive"
    assert run.information["library"].startswith(step.program.partition("-")[2])


@pytest.mark.nodes
def test_rung_b_rehearses_the_program_behind_nodes(tmp_path: Path) -> None:
    test = runner(tmp_path, "ab")
    for rung in "ab":
        test.do("rehearse", rung=rung)
    last = test.record.rungs[-1]
    assert (last.name, last.host, last.outcome) == ("b", "composed", "finished")
    assert read_run(test.folder / last.recording).information["engine"] == "executive"
    assert last.differences["displacement of story_1"] == 0.0


def test_a_failed_arm_renews_its_hash(tmp_path: Path) -> None:
    test = runner(tmp_path, "ac")
    step, served = test.ladder.step("a"), Served(test, print)
    served._armed["a", 0.3, 2] = "stale", ""
    assert served.situation().scenario_hash == "stale"
    answer = served.answer(Request("arm"), Credentials(os.getpid(), os.getuid()))
    assert not answer.done
    assert answer.scenario_hash == step.hash


@pytest.mark.skipif(shutil.which("clang") is None, reason="no second compiler here")
def test_another_program_than_the_armed_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    test = runner(tmp_path, "c")
    arm(test)
    monkeypatch.setenv("CC", "clang")
    with pytest.raises(ActRefused) as refused:
        test.do("run", clear="CLEAR")
    assert mentions(str(refused.value), "program", "rung c")
    assert test.record.rungs == []


def test_nodes_of_their_own_refuse_the_executive() -> None:
    with pytest.raises(ConfigError) as refused:
        hosts.run(NAME, [*SHORT, NATIVE], host="processes")
    assert mentions(str(refused.value), "engine", "executive", "processes")
