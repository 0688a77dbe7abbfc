# SPDX-License-Identifier: Apache-2.0
"""Tests of ``two_persons: true`` in a rig file, with which rung g needs two names, and of removed keys."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_fixtures import RunCommand
from messages import mentions
from rig_runner import OF_RUNG_G, Bar, arm, positioned, rig_file

from rths_nodes.analysis.report.procedure import head, ladder
from rths_nodes.app.procedure.answers import Answers
from rths_nodes.app.procedure.console import Console
from rths_nodes.app.procedure.procedure_runner import Ladder, ProcedureRunner
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.validation import from_data
from rths_nodes.loop.procedure_record import TERMINAL, ProcedureRecord
from rths_nodes.loop.scenario import files
from rths_nodes.loop.supervision.states import State
from rths_nodes.recording import procedure

NAME = "chen_ricles_2010"
ANSWERS = OF_RUNG_G | {"unload": {"moves": "n"}}


def runner_of(folder: Path, rungs: str = "adg", two: bool = True) -> ProcedureRunner:
    """Return a test on a rig for ``two`` persons or one."""
    scenario = files.load(NAME, ["duration=0.2"], rig=str(rig_file(folder, two_persons=two)))
    record = ProcedureRecord("test", NAME, "", operator="A. Tester", planned=list(rungs))
    return ProcedureRunner(Ladder(scenario, tuple(rungs), 0.2, 2, False), record, folder / "test")


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[ProcedureRunner]:
    """Test for two persons before rung g is armed."""
    runner = runner_of(tmp_path)
    positioned(runner)
    yield runner
    runner.session.close()


@pytest.mark.parametrize("second", ["", "  ", "A. Tester", " a.TESTER ", "A . T e s t e r"])
def test_rung_g_needs_the_name_of_another_person(runner: ProcedureRunner, second: str) -> None:
    with pytest.raises(ConfigError, match=r"second.*two_persons: true") as refused:
        arm(runner, "g", "A. Tester", TERMINAL, second=second)
    assert ("'A. Tester'" in str(refused.value)) == bool(second.strip())
    assert runner.state is State.POSITIONED
    assert runner.record.acts[-1].refused


def test_both_names_are_in_record_and_report(runner: ProcedureRunner) -> None:
    assert mentions(arm(runner, "g", "A. Tester", TERMINAL, second=" R. Sponsible "), "A. Tester", "R. Sponsible")
    runner.do("run", clear="CLEAR")
    runner.do("finish")
    record = procedure.read(runner.folder)
    rung = record.rungs[-1]
    assert rung.armed_by == ["A. Tester", "R. Sponsible"]
    assert mentions(head(record, rung)[0].facts["Armed by"], "A. Tester", "R. Sponsible")
    assert mentions(ladder(record)[0].items, "g", "A. Tester", "R. Sponsible")


@pytest.mark.parametrize(("two", "rung"), [(True, "d"), (False, "g")])
def test_other_rungs_and_rigs_need_one_person(tmp_path: Path, two: bool, rung: str) -> None:
    runner = runner_of(tmp_path, two=two)
    positioned(runner)
    assert mentions(arm(runner, rung, "A. Tester", TERMINAL), "armed", "A. Tester:")
    runner.session.close()


def test_socket_takes_the_second_name_as_argument(runner: ProcedureRunner) -> None:
    pytest.importorskip("rclpy")
    from served_test import PEER

    from rths_nodes.app.procedure.operator_socket import Request
    from rths_nodes.app.procedure.served import Served

    served = Served(runner, print)
    seen = served.answer(Request(), PEER)
    hashes = {"scenario_hash": runner.ladder.step("g").hash, "offsets_hash": runner.session.offsets.hash}
    arguments = {"rung": "g", **hashes}
    refused = served.answer(Request("arm", arguments, "Ada", seen.stops, seen.state, seen.test_id), PEER)
    assert (refused.done, "second: must not" in refused.reason) == (False, True)
    arguments["second"] = "Grace"
    both = Request("arm", arguments, "Ada", seen.stops, seen.state, seen.test_id)
    assert served.answer(both, PEER).done


def run_console(folder: Path, ask: Any, **changed: Any) -> tuple[int, ProcedureRecord]:
    """Run a test by answers; ``ask`` answers the other questions."""
    runner = runner_of(folder, "g")
    console = Console(from_data(Answers, ANSWERS | changed), ask, print)
    console.attach(runner, lambda name: nullcontext(Bar()), leads=False)
    return console.run(), runner.record


def test_answers_have_a_key_for_the_second_name(tmp_path: Path) -> None:
    code, record = run_console(tmp_path, None, second="R. Sponsible")
    assert (code, record.outcome) == (0, "finished")
    assert record.rungs[-1].armed_by == ["A. Tester", "R. Sponsible"]


def test_terminal_asks_for_the_second_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    questions: list[str] = []

    def ask(question: str) -> str:
        questions.append(question)
        return "R. Sponsible"

    reader, writer = os.pipe()
    with os.fdopen(reader) as quiet:
        monkeypatch.setattr("sys.stdin", quiet)
        code, record = run_console(tmp_path, ask)
    os.close(writer)
    assert (code, record.rungs[-1].armed_by) == (0, ["A. Tester", "R. Sponsible"])
    assert [question.partition(":")[0] for question in questions] == ["second"]


def reason_of_refusal(
    folder: Path, refusal: RunCommand, *options: str, rig: Any = "bench_simulated", **changed: Any
) -> str:
    """Return the reason for which ``rths test`` refuses answers before it writes anything."""
    (folder / "answers.yaml").write_text(yaml.safe_dump(ANSWERS | changed))
    files_of_test = (f"--rig={rig}", f"--answers={folder / 'answers.yaml'}", f"--record={folder / 'test'}")
    reason = refusal("test", NAME, *files_of_test, *options)
    assert not (folder / "test").exists()
    return reason


@pytest.mark.parametrize(
    ("changed", "reason"), [({}, "second: must not"), ({"second": "a. tester"}, "second = 'a. tester'")]
)
def test_answers_without_another_person_are_refused(
    tmp_path: Path, refusal: RunCommand, changed: dict[str, str], reason: str
) -> None:
    rig = rig_file(tmp_path, two_persons=True)
    assert reason in reason_of_refusal(tmp_path, refusal, rig=rig, **changed)


@pytest.mark.parametrize("key", ["rig_file.two_persons", " rig_file.two_persons"])
@pytest.mark.parametrize("options", [(), ("--socket",)])
def test_override_cannot_remove_the_second_person(
    tmp_path: Path, refusal: RunCommand, key: str, options: tuple[str, ...]
) -> None:
    rig = rig_file(tmp_path, two_persons=True)
    reason = reason_of_refusal(tmp_path, refusal, f"--set={key}=false", *options, rig=rig)
    assert "rig_file: must" in reason


@pytest.mark.parametrize("command", ["check", "run", "test"])
def test_removed_key_roles_is_refused(tmp_path: Path, refusal: RunCommand, command: str) -> None:
    rig = rig_file(tmp_path, roles={"salt": "00112233445566778899aabbccddeeff"})
    reason = refusal(command, NAME, "--rig", str(rig))
    assert mentions(reason, "roles", "removed")
    assert "two_persons: true" in reason
    assert "bench.yaml" in reason


@pytest.mark.parametrize(
    ("changed", "parts"),
    [({"rungs": ["g", "h"]}, ("rungs", "rung h")), ({"iteration": "history"}, ("iteration",))],
)
def test_removed_rung_h_is_refused(
    tmp_path: Path, refusal: RunCommand, changed: dict[str, Any], parts: tuple[str, ...]
) -> None:
    reason = reason_of_refusal(tmp_path, refusal, **changed)
    assert mentions(reason, *parts)
    assert mentions(reason, "iterate", "--next")
