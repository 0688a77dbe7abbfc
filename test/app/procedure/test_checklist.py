# SPDX-License-Identifier: Apache-2.0
"""The checklist of a rig file: answered by name before the first motion, which it bars otherwise."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from messages import mentions, naming
from named_motions import NAMED
from rig_runner import referenced

from rths_nodes.app.procedure.ladder import Ladder
from rths_nodes.app.procedure.procedure_runner import ProcedureRunner
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.procedure_record import ANSWERS, TERMINAL, ProcedureRecord
from rths_nodes.loop.scenario import files
from rths_nodes.procedure.machine import ActRefused
from rths_nodes.procedure.session import CLEAR
from rths_nodes.recording import procedure

NAME = "chen_ricles_2010"
ITEMS = ["The area around the rig is clear", "The hardware stop was tried today"]


def rig_of(folder: Path) -> Path:
    rig = yaml.safe_load(files.locate("bench_simulated", files.RIG).read_text()) | {"checklist": ITEMS}
    file = folder / "bench.yaml"
    file.write_text(yaml.safe_dump(rig))
    return file


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[ProcedureRunner]:
    """A test on a rig with a checklist, whose offsets are confirmed."""
    scenario = files.load(NAME, ["duration=0.1"], rig=rig_of(tmp_path))
    record = ProcedureRecord("test", NAME, "", operator="A. Tester")
    runner = ProcedureRunner(Ladder(scenario, ("g",), 0.3, 2, False), record, tmp_path / "test")
    referenced(runner)
    yield runner
    runner.session.close()


@pytest.mark.parametrize("answers", [[], ["y"], ["y", "n"], ["n", "y"]])
def test_an_item_that_is_not_confirmed_bars_motion(runner: ProcedureRunner, answers: list[str]) -> None:
    command = runner.session.drive.command.copy()
    for item, answer in zip(ITEMS, answers, strict=False):
        runner.do("checklist", "Ada", TERMINAL, item=item, answer=answer)
    left = [item for item, answer in zip(ITEMS, [*answers, "", ""], strict=False) if answer != "y"]
    assert runner.clearing.unconfirmed == left
    with pytest.raises(ActRefused, match=naming("check", "checklist", *left)):
        runner.do("check", "Ada", TERMINAL, clear=CLEAR)
    assert (runner.session.drive.command == command).all()


def test_a_confirmed_checklist_is_in_the_record_with_name_and_time(
    runner: ProcedureRunner, tmp_path: Path
) -> None:
    for answer in ("n", "y"):
        runner.do("checklist", "Ada", TERMINAL, item=ITEMS[0], answer=answer)
    runner.do("checklist", "Ben", TERMINAL, item=ITEMS[1], answer="y")
    runner.do("check", "Ada", TERMINAL, clear=CLEAR)
    rows = procedure.read(tmp_path / "test").checklist
    assert [(row.item, row.answer, row.by) for row in rows] == [
        *((ITEMS[0], "n", "Ada"), (ITEMS[0], "y", "Ada"), (ITEMS[1], "y", "Ben")),
    ]
    assert all(row.time for row in rows)


def test_an_answer_is_taken_back_before_the_first_motion(runner: ProcedureRunner) -> None:
    for item in ITEMS:
        runner.do("checklist", "Ada", TERMINAL, item=item, answer="y")
    assert runner.session.possible()["checklist"] == ""
    runner.do("checklist", "Ben", TERMINAL, item=ITEMS[0], answer="n")
    assert runner.clearing.unconfirmed == ITEMS[:1]
    with pytest.raises(ActRefused, match=naming("check", "checklist", ITEMS[0])):
        runner.do("check", "Ada", TERMINAL, clear=CLEAR)


@pytest.mark.parametrize("arguments", [{"item": "anything", "answer": "y"}, {"item": ITEMS[0], "answer": "all"}])
def test_another_item_or_answer_is_refused(runner: ProcedureRunner, arguments: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="checklist"):
        runner.do("checklist", "Ada", TERMINAL, **arguments)
    assert runner.clearing.unconfirmed == ITEMS


def test_a_program_confirms_nothing_on_a_real_rig(runner: ProcedureRunner) -> None:
    runner.session.drive.port.simulated = False
    with pytest.raises(ActRefused, match=naming("checklist", ANSWERS)):
        runner.do("checklist", "a script", ANSWERS, item=ITEMS[0], answer="y")


@pytest.mark.nodes
@pytest.mark.parametrize("answer", ["y", "n"])
def test_answers_lead_a_simulated_rig_by_item(tmp_path: Path, environment: dict[str, str], answer: str) -> None:
    pytest.importorskip("rclpy")
    answers: dict[str, Any] = {
        **{"test_id": "first", "operator": "A. Tester", "specimen": "D-17", "rungs": ["g"], "arm": ["g"]},
        **{"offsets_seconds": 0.1, "confirm_offsets": True, "unloaded": True, "sign_for": ["story_1"]},
        **NAMED,
        "checklist": {ITEMS[0]: "y", ITEMS[1]: answer},
    }
    (tmp_path / "answers.yaml").write_text(yaml.safe_dump(answers))
    words = ["test", NAME, "--rig", str(rig_of(tmp_path)), "--set=duration=0.1", "--answers", "answers.yaml"]
    done = subprocess.run(
        [sys.executable, "-m", "rths_nodes.app.cli", *words],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=110,
    )
    record = procedure.read(tmp_path / "runs" / "first")
    assert (done.returncode == 0) is (answer == "y"), done.stdout + done.stderr
    assert bool(record.checks) is (answer == "y")
    assert mentions(record.reason, "checklist", ITEMS[1]) is (answer == "n")
    assert mentions((tmp_path / "runs" / "first" / "report.html").read_text(), ITEMS[1])
