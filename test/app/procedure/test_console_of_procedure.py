# SPDX-License-Identifier: Apache-2.0
"""An operator at a terminal: what is asked, hold and resume, Ctrl-C, a terminal that is closed."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from messages import each_mentions, mentions
from named_motions import NAMED
from terminal import Terminal

import rths_nodes
from rths_nodes.app.procedure.console import SAME_KEY_S
from rths_nodes.loop.procedure_record import ProcedureRecord
from rths_nodes.recording import procedure

pytestmark = [pytest.mark.nodes]
pytest.importorskip("rclpy")

NAME = "chen_ricles_2010"
ANSWERS: dict[str, Any] = {
    "test_id": "first",
    "operator": "A. Tester",
    "specimen": "D-17",
    "offsets_seconds": 0.2,
    "confirm_offsets": True,
    "unloaded": True,
    **NAMED,
    "unload": {"moves": "n"},
}

Start = Callable[..., Terminal]


@pytest.fixture
def start(tmp_path: Path, environment: dict[str, str]) -> Iterator[Start]:
    """Starts ``rths test`` at a terminal, with a file of answers or, with none of them, led by the operator."""
    made: list[Terminal] = []

    def start(duration: float, **answers: Any) -> Terminal:
        words = ["test", NAME, "--rig", "bench_simulated", f"--set=duration={duration}", "--no-report"]
        if answers:
            (tmp_path / "answers.yaml").write_text(yaml.safe_dump(ANSWERS | answers))
            words += ["--answers", "answers.yaml"]
        made.append(Terminal([sys.executable, "-m", "rths_nodes.app.cli", *words], tmp_path, environment))
        return made[-1]

    yield start
    for terminal in made:
        terminal.close()


@pytest.fixture
def record(tmp_path: Path) -> Callable[[], ProcedureRecord]:
    """The record of the one test in the folder."""

    def record() -> ProcedureRecord:
        (folder,) = (tmp_path / "runs").iterdir()
        return procedure.read(folder)

    return record


def test_what_the_file_leaves_out_is_asked(start: Start, record: Callable[[], ProcedureRecord]) -> None:
    answers = {key: value for key, value in ANSWERS.items() if key != "operator"}
    terminal = start(0.3, rungs=["g"], operator=None, confirm_offsets=None, **{"specimen": answers["specimen"]})
    terminal.wait_for("operator: name of the person.*: ")
    terminal.type("B. Operator")
    terminal.wait_for(r"confirm these offsets \(\w+\)\?.*: ")
    terminal.type("y")
    shown = terminal.wait_for("type g and the first 6 characters of the scenario's hash: ")
    found = re.search(r"scenario\s+│ (\w{16}).*offsets\s+│ (\w{16})", shown, re.DOTALL)
    assert found, shown
    terminal.type(f"g{found[2][:6]}")
    terminal.wait_for("the entered text is the hash of the offsets")
    terminal.wait_for("type g and the first 6 characters of the scenario's hash: ")
    terminal.type(f"g {found[1][:6]}")
    assert terminal.end() == 0, terminal.shown
    assert (record().operator, record().outcome) == ("B. Operator", "finished")
    ways = {act.act: act.way for act in record().acts}
    assert (ways["confirm_offsets"], ways["arm"]) == ("terminal", "terminal")
    assert (ways["take_offsets"], ways["run"]) == ("answers", "answers")


def test_a_rung_is_not_armed_by_another_hash(start: Start, record: Callable[[], ProcedureRecord]) -> None:
    terminal = start(0.3, rungs=["g"])
    terminal.wait_for("type g and the first 6 characters of the scenario's hash: ")
    terminal.type("yes")
    terminal.wait_for("not armed")
    assert terminal.end() == 130
    assert record().rungs == []
    assert record().outcome == "held"


def test_a_slow_rung_is_held_and_resumed(
    start: Start, record: Callable[[], ProcedureRecord], tmp_path: Path
) -> None:
    terminal = start(2.0, rungs=["e"], level=0.1, time_ratio=10, arm=["e"])
    terminal.wait_for("rung e is armed")
    terminal.wait_for(r"rung e .*[1-9] %")
    terminal.type("h")
    terminal.wait_for("held: type CLEAR to resume")
    terminal.type("somebody has opened the door")
    terminal.type("r")
    terminal.wait_for("type CLEAR to resume this motion")
    terminal.type("CLEAR")
    assert terminal.end() == 0, terminal.shown
    rung = record().rungs[-1]
    assert rung.outcome == "finished"
    assert any(mentions(words, "held", "sample") for words in rung.remarks)
    assert mentions([note.text for note in record().notes], "opened", "door")
    assert [act.act for act in record().acts if act.act in ("hold", "resume")] == ["hold", "resume"]
    run = rths_nodes.read(tmp_path / "runs" / "first" / "rung_e")
    assert len(run.time) == rung.samples + 1


def test_the_first_interrupt_holds_slow_time_and_the_second_stops(
    start: Start, record: Callable[[], ProcedureRecord]
) -> None:
    terminal = start(8.0, rungs=["e"], level=0.1, time_ratio=10, arm=["e"])
    terminal.wait_for(r"rung e is armed")
    terminal.wait_for(r"rung e .*[1-9] %")
    terminal.interrupt()
    terminal.wait_for("held: type CLEAR to resume")
    time.sleep(2.0 * SAME_KEY_S)
    terminal.interrupt()
    assert terminal.end() == 130, terminal.shown
    assert record().rungs[-1].outcome == "held"
    assert record().outcome == "held"


def test_a_terminal_that_is_closed_stops_what_moves(
    start: Start, record: Callable[[], ProcedureRecord], tmp_path: Path
) -> None:
    terminal = start(60.0, rungs=["g"], arm=["g"])
    terminal.wait_for("rung g is armed")
    terminal.wait_for(r"rung g .*0:0[1-9]")
    terminal.hang_up()
    assert terminal.end() == 130
    found = record()
    assert (found.outcome, found.rungs[-1].outcome) == ("held", "held")
    assert found.ended
    assert rths_nodes.read(tmp_path / "runs" / "first" / "rung_g").outcome == "held"


def test_a_question_that_is_interrupted_ends_the_test_in_order(
    start: Start, record: Callable[[], ProcedureRecord]
) -> None:
    terminal = start(0.3)
    terminal.wait_for("operator: .*: ")
    terminal.type("A. Tester")
    terminal.wait_for("specimen: .*: ")
    terminal.type("D-17")
    terminal.wait_for(r"act \(Enter: rehearse, for rung a.*: ")
    terminal.type("?")
    shown = terminal.wait_for(r"act \(Enter: rehearse.*: ")
    assert mentions(shown, "connect", "port")
    assert mentions(shown, "position", "connected")
    terminal.type("position")
    terminal.wait_for("refused: position: the rig is not connected")
    terminal.wait_for(r"act \(Enter: rehearse.*: ")
    terminal.type("connect")
    terminal.wait_for("state: connected")
    terminal.wait_for(r"act \(Enter: .*: ")
    terminal.interrupt()
    assert terminal.end() == 130, terminal.shown
    assert mentions(record().reason, "operator", "interrupted")
    assert each_mentions([act.refused for act in record().acts if act.refused], ("position", "connected"))


def test_a_force_at_rest_is_shown_before_it_is_tared_and_a_wrong_rig_is_not_led_on(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    wrong = ("--set=axes.story_1.sensors.force_offset=20e3", "--set=axes.story_1.sensors.force_scale=-1")
    words = ["test", NAME, "--rig", "bench_simulated", "--set=duration=0.3", "--no-report", *wrong]
    terminal = Terminal([sys.executable, "-m", "rths_nodes.app.cli", *words], tmp_path, environment)
    for asked, typed in (
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
        terminal.wait_for(asked)
        terminal.type(typed)
    terminal.wait_for(
        r"the load cell shows -?(20\d\d\d|199\d\d)[\d.]* N at rest,\s+which\s+is\s+-?1.00%\s+of\s+its\s+range"
    )
    terminal.wait_for("is the specimen unloaded now.*: ")
    terminal.type("y")
    terminal.wait_for(r"act \(next: check.*: ")
    terminal.type("check")
    terminal.wait_for(r"MOTION: check: .*\(story_1\) by 1 mm and back")
    terminal.wait_for("type CLEAR to start this motion.*: ")
    terminal.type("CLEAR")
    terminal.wait_for(r"the\s+force\s+has\s+the\s+wrong\s+sign")
    terminal.wait_for(r"act \(Enter: finish.*: ")
    terminal.type("")
    assert terminal.end() != 0
    terminal.close()


def test_an_act_that_is_not_possible_is_refused_before_clear_is_asked(start: Start) -> None:
    terminal = start(0.3)
    for asked, line in (("operator: ", "A. Tester"), ("specimen: ", "D-17"), ("act .*: ", "position")):
        terminal.wait_for(asked)
        terminal.type(line)
    shown = terminal.wait_for("(?s)refused: .*act .*: ")
    assert mentions(shown, "position", "connected")
    assert "CLEAR" not in shown
    terminal.type("finish")
