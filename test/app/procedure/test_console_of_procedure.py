# SPDX-License-Identifier: Apache-2.0
"""Tests of an operator at a terminal: questions, hold and resume, Ctrl-C, and a closed terminal."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from messages import each_mentions, mentions
from programs import RTHS
from rig_runner import ANSWERS
from terminal import Terminal

import rths_nodes
from rths_nodes.app.procedure.console import SAME_KEY_S
from rths_nodes.loop.procedure_record import ProcedureRecord
from rths_nodes.recording import procedure

pytestmark = pytest.mark.nodes
pytest.importorskip("rclpy")

ASKS_FOR_HASH = "type g and the first 6 characters of the scenario's hash: "

Start = Callable[..., Terminal]
Record = Callable[[], ProcedureRecord]


@pytest.fixture
def start(tmp_path: Path, environment: dict[str, str]) -> Iterator[Start]:
    """Starts ``rths test`` at a terminal with a file of answers; without answers, the operator leads."""
    terminals: list[Terminal] = []

    def start(duration: float, *options: str, **answers: Any) -> Terminal:
        command = [*RTHS, "test", "chen_ricles_2010", "--rig", "bench_simulated", "--no-report"]
        command += [f"--set=duration={duration}", *options]
        if answers:
            (tmp_path / "answers.yaml").write_text(yaml.safe_dump(ANSWERS | {"unload": {"moves": "n"}} | answers))
            command += ["--answers", "answers.yaml"]
        terminals.append(Terminal(command, tmp_path, environment))
        return terminals[-1]

    yield start
    for terminal in terminals:
        terminal.close()


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """Reads the record of the only test."""

    def record() -> ProcedureRecord:
        (folder,) = (tmp_path / "runs").iterdir()
        return procedure.read(folder)

    return record


def test_answers_missing_in_the_file_are_asked(start: Start, record: Record) -> None:
    terminal = start(0.3, rungs=["g"], operator=None, confirm_offsets=None)
    terminal.answer("operator: name of the person.*: ", "B. Operator")
    terminal.answer(r"confirm these offsets \(\w+\)\?.*: ", "y")
    shown = terminal.wait_for(ASKS_FOR_HASH)
    hashes = re.search(r"scenario\s+│ (\w{16}).*offsets\s+│ (\w{16})", shown, re.DOTALL)
    assert hashes, shown
    terminal.type(f"g{hashes[2][:6]}")
    terminal.wait_for("the entered text is the hash of the offsets")
    terminal.answer(ASKS_FOR_HASH, f"g {hashes[1][:6]}")
    assert terminal.end() == 0, terminal.shown
    assert (record().operator, record().outcome) == ("B. Operator", "finished")
    ways = {act.act: act.way for act in record().acts}
    assert (ways["confirm_offsets"], ways["arm"]) == ("terminal", "terminal")
    assert (ways["take_offsets"], ways["run"]) == ("answers", "answers")


def test_other_text_than_the_hash_does_not_arm(start: Start, record: Record) -> None:
    terminal = start(0.3, rungs=["g"])
    terminal.answer(ASKS_FOR_HASH, "yes")
    terminal.wait_for("not armed")
    assert terminal.end() == 130
    assert record().rungs == []
    assert record().outcome == "held"


def start_slow_rung(start: Start, duration: float) -> Terminal:
    """Start rung e and wait until it moves."""
    terminal = start(duration, rungs=["e"], level=0.1, time_ratio=10, arm=["e"])
    terminal.wait_for("rung e is armed")
    terminal.wait_for(r"rung e .*[1-9] %")
    return terminal


def test_slow_rung_is_held_and_resumed(start: Start, record: Record, tmp_path: Path) -> None:
    terminal = start_slow_rung(start, 2.0)
    terminal.type("h")
    terminal.answer("held: type CLEAR to resume", "somebody has opened the door")
    terminal.type("CLEAR \nr")  # a space: this is a note
    terminal.answer("type CLEAR to resume this motion", "CLEAR")
    assert terminal.end() == 0, terminal.shown
    rung = record().rungs[-1]
    assert rung.outcome == "finished"
    assert any(mentions(remark, "held", "sample") for remark in rung.remarks)
    assert ["opened" in record().notes[0].text, record().notes[1].text] == [True, "CLEAR"]
    assert [act.act for act in record().acts if act.act in ("hold", "resume")] == ["hold", "resume"]
    run = rths_nodes.read(tmp_path / "runs" / "first" / "rung_e")
    assert len(run.time) == rung.samples + 1


def test_first_ctrl_c_holds_a_slow_rung_and_second_stops(start: Start, record: Record) -> None:
    terminal = start_slow_rung(start, 8.0)
    terminal.interrupt()
    terminal.wait_for("held: type CLEAR to resume")
    time.sleep(2.0 * SAME_KEY_S)
    terminal.interrupt()
    assert terminal.end() == 130, terminal.shown
    assert record().rungs[-1].outcome == "held"
    assert record().outcome == "held"


def test_closed_terminal_stops_the_rung(start: Start, record: Record, tmp_path: Path) -> None:
    terminal = start(60.0, rungs=["g"], arm=["g"])
    terminal.wait_for("rung g is armed")
    terminal.wait_for(r"rung g .*0:0[1-9]")
    terminal.hang_up()
    assert terminal.end() == 130
    assert (record().outcome, record().rungs[-1].outcome) == ("held", "held")
    assert record().ended
    assert rths_nodes.read(tmp_path / "runs" / "first" / "rung_g").outcome == "held"


def test_terminal_closed_at_the_first_question_ends_the_command(start: Start) -> None:
    """The command had ended with a traceback."""
    terminal = start(0.3)
    terminal.answer("operator: .*: ", "\x04")
    assert terminal.end() == 130
    assert mentions(terminal.shown, "rths", "terminal", "closed")
    assert "Traceback" not in terminal.shown


def test_ctrl_c_at_a_question_ends_the_test(start: Start, record: Record) -> None:
    """An act that is not possible is refused before it is cleared."""
    terminal = start(0.3)
    terminal.answer("operator: .*: ", "A. Tester")
    terminal.answer("specimen: .*: ", "D-17")
    terminal.answer(r"act \(Enter: rehearse, for rung a.*: ", "?")
    shown = terminal.wait_for(r"act \(Enter: rehearse.*: ")
    assert mentions(shown, "connect", "port")
    assert mentions(shown, "position", "connected")
    terminal.type("position")
    shown = terminal.wait_for(r"refused: position: the rig is not connected(?s:.)*act \(Enter: rehearse.*: ")
    assert "CLEAR" not in shown
    terminal.type("connect")
    terminal.wait_for("state: connected")
    terminal.wait_for(r"act \(Enter: .*: ")
    terminal.interrupt()
    assert terminal.end() == 130, terminal.shown
    assert mentions(record().reason, "operator", "interrupted")
    assert each_mentions([act.refused for act in record().acts if act.refused], ("position", "connected"))


def test_force_at_rest_is_shown_and_wrong_sign_detected(start: Start) -> None:
    sensors = "--set=axes.story_1.sensors"
    terminal = start(0.3, f"{sensors}.force_offset=20e3", f"{sensors}.force_scale=-1")
    for question, typed in (
        ("operator: .*: ", "A. Tester"),
        ("specimen: .*: ", "D-17"),
        (r"act \(Enter: rehearse, for rung a.*: ", ""),
        (r"act \(Enter: rehearse, for rung b.*: ", ""),
        (r"act \(Enter: connect.*: ", ""),
        (r"act \(Enter: take_offsets.*: ", ""),
        ("offsets_seconds: .*: ", "0.2"),
        (r"act \(Enter: confirm_offsets.*: ", ""),
        (r"confirm these offsets .*: ", "y"),
    ):
        terminal.answer(question, typed)
    terminal.wait_for(
        r"the load cell shows -?(20\d\d\d|199\d\d)[\d.]* N at rest,\s+which\s+is\s+-?1.00%\s+of\s+its\s+range"
    )
    terminal.answer("is the specimen unloaded now.*: ", "y")
    terminal.answer(r"act \(next: check.*: ", "check")
    terminal.wait_for(r"MOTION: check: .*\(story_1\) by 1 mm and back")
    terminal.answer("type CLEAR to start this motion.*: ", "CLEAR")
    terminal.wait_for(r"the\s+force\s+has\s+the\s+wrong\s+sign")
    terminal.answer(r"act \(Enter: finish.*: ", "")
    assert terminal.end() != 0
