# SPDX-License-Identifier: Apache-2.0
"""Tests of the clearance of motions: by the word CLEAR, by a person at a real rig, and by a checklist."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from c_compiler import needs_compiler
from emulated_bench import EmulatedBench
from messages import mentions, naming
from programs import RTHS
from rig_runner import OF_RUNG_G, arm, conducted, positioned, referenced, rig_file
from terminal import Terminal

from rths_nodes.app.procedure.procedure_runner import ProcedureRunner
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Measurement
from rths_nodes.loop.procedure_record import ANSWERS, PAGE, TERMINAL, ProcedureRecord
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.machine import ActRefused
from rths_nodes.procedure.session import ACTS, CLEAR, MOTIONS, RigSession
from rths_nodes.recording import procedure

NAME = "chen_ricles_2010"
ENTERS = 50
"""Presses of Enter at each prompt."""
REST = 1e-6
"""Largest displacement of a piston at rest, m."""
ITEMS = ["The area around the rig is clear", "The hardware stop was tried today"]


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[ProcedureRunner]:
    """Test with confirmed offsets."""
    runner = conducted(tmp_path / "test")
    runner.do("rehearse")
    referenced(runner)
    yield runner
    runner.session.close()


def test_every_motion_needs_clear() -> None:
    assert set(MOTIONS) == {"check", "position", "run", "resume", "unload"}
    assert {name for name, act in ACTS.items() if act.moves and act.lasting} <= set(MOTIONS)


@pytest.mark.parametrize("clear", ["", "y", "clear", " CLEAR", "CLEAR ", "yes", "all"])
def test_any_other_word_than_clear_is_refused(runner: ProcedureRunner, clear: str) -> None:
    command, state = runner.session.drive.command.copy(), runner.state
    with pytest.raises(ActRefused) as refused:
        runner.do("check", "Ada", TERMINAL, clear=clear)
    for part in ("check", "clear", repr(clear), CLEAR, "Nothing has moved"):
        assert part in str(refused.value)
    assert (runner.session.drive.command == command).all()
    assert runner.state is state
    assert runner.record.acts[-1].refused


def test_cleared_motion_is_recorded(runner: ProcedureRunner) -> None:
    motion = runner.motion("check")
    runner.do("check", "Ada", TERMINAL, clear=CLEAR)
    act = runner.record.acts[-1]
    assert (act.act, act.motion, act.arguments) == ("check", motion, {"clear": CLEAR})
    for part in ("story_1", "1 mm", "2 mm/s", "30 kN"):
        assert part in motion


@pytest.mark.parametrize("way", [ANSWERS, "socket", ""])
def test_programs_cannot_move_a_real_rig(runner: ProcedureRunner, way: str) -> None:
    runner.session.drive.port.simulated = False
    command = runner.session.drive.command.copy()
    with pytest.raises(ActRefused) as refused:
        runner.do("check", "a script", way, clear=CLEAR)
    for part in ("check", way or "a program", "a real rig", TERMINAL, PAGE):
        assert part in str(refused.value)
    assert (runner.session.drive.command == command).all()
    assert runner.state is State.REFERENCED


@pytest.mark.parametrize("way", [TERMINAL, PAGE])
def test_persons_can_move_a_real_rig(runner: ProcedureRunner, way: str) -> None:
    runner.session.drive.port.simulated = False
    runner.do("check", "Ada", way, clear=CLEAR)
    assert runner.record.checks


def test_programs_cannot_arm_or_run_a_real_rig(tmp_path: Path) -> None:
    runner = conducted(tmp_path / "test")
    positioned(runner)
    runner.session.drive.port.simulated = False
    with pytest.raises(ActRefused, match="arm: refused, because the source of the request is socket"):
        arm(runner, "d", "a script", "socket")
    runner.session.drive.port.simulated = True
    arm(runner, "d")
    for part in ("rung d", "expected up to", "mm/s", "trips at"):
        assert part in runner.motion("run")
    runner.session.drive.port.simulated = False
    with pytest.raises(ActRefused, match="run: refused, because the source of the request is answers"):
        runner.do("run", "a script", ANSWERS, clear=CLEAR)
    assert runner.state is State.ARMED
    runner.session.close()


class Piston:
    """Largest distance of the emulated piston from its position at :meth:`mark`."""

    def __init__(self, bench: EmulatedBench) -> None:
        self._emulator = bench.emulator
        self.mark()
        bench.emulator.shown_to = self._look

    def mark(self) -> None:
        self._first, self.moved = float(self._emulator.true.displacement[0]), 0.0

    def _look(self, true: Measurement) -> None:
        self.moved = max(self.moved, abs(float(true.displacement[0]) - self._first))


class Operator:
    """A person at the terminal who presses Enter wherever that might move something."""

    def __init__(self, terminal: Terminal, piston: Piston) -> None:
        self.terminal, self._piston = terminal, piston
        self.moved: dict[str, tuple[float, float]] = {}
        """Largest distance of the piston by act, m: before CLEAR, and after it."""

    def answer(self, question: str, typed: str) -> None:
        self.terminal.answer(question + r"[^\n]*: $", typed)

    def sign(self) -> None:
        """Sign for all items that the check has not verified."""
        self.answer("Enter: sign_for", "")
        while "sign for this item" in (
            shown := self.terminal.wait_for(r"(sign for this item\?|act \(next)[^\n]*: $")
        ):
            self.terminal.type("y")
        assert "next: position" in shown
        self.terminal.type("")

    def move(self, act: str, proposed: str) -> None:
        """Press Enter at both prompts of an ``act``, type other words than CLEAR, then clear it."""
        self._piston.mark()
        for _ in range(ENTERS):
            self.answer(rf"act \(next: {proposed}", "")
        for typed in ("", "y", "clear"):
            self.answer(rf"act \(next: {proposed}", act)
            self.terminal.wait_for(rf"MOTION: {act}: ")
            self.answer(f"type {CLEAR}", typed)
            self.terminal.wait_for(f"must be {CLEAR}. Nothing has moved")
        before = self._piston.moved
        self.answer(rf"act \(next: {proposed}", act)
        self.answer(f"type {CLEAR}", CLEAR)
        self.terminal.wait_for("state: ")
        self.moved[act] = before, self._piston.moved

    def arm(self, rung: str, *level: str) -> None:
        self.answer(f"Enter: arm, for rung {rung}", "")
        for typed in level:
            self.answer("level:", typed)
            shown = self.terminal.wait_for(r"type \w and the first 6 characters[^\n]*: $")
            self.terminal.type(rung + re.search(r"scenario\s+│ (\w{6})", shown)[1])


@pytest.mark.nodes
@pytest.mark.timeout(300)
@needs_compiler
def test_enter_moves_nothing_at_any_prompt(tmp_path: Path, environment: dict[str, str]) -> None:
    pytest.importorskip("rclpy")
    command = [*RTHS, "test", NAME, "--no-report", "--set=duration=0.3", "--rig"]
    with (
        closing(EmulatedBench(tmp_path, mounted=0.5e6)) as bench,
        closing(Terminal([*command, str(bench.file)], tmp_path, environment)) as terminal,
    ):
        operator = Operator(terminal, Piston(bench))
        for question, typed in (
            *(("operator:", "A. Tester"), ("specimen:", "D-17"), ("for rung a", ""), ("for rung b", "")),
            *(("Enter: connect", ""), ("Enter: take_offsets", ""), ("offsets_seconds", "0.2")),
            *(("Enter: confirm_offsets", ""), ("confirm these offsets", "y"), ("unloaded now", "y")),
        ):
            operator.answer(question, typed)
        operator.move("check", "check")
        operator.sign()
        operator.move("position", "position, for rung c")
        operator.arm("c")
        operator.answer("Enter: run, for rung c", "")
        operator.move("position", "position, for rung d")
        operator.arm("d", "0.1")
        operator.move("run", "run, for rung d")
        operator.move("unload", "position, for rung e")
        operator.answer("act ", "finish")
        assert terminal.end() in (0, 130), terminal.shown[-3000:]
    assert {act: before for act, (before, _) in operator.moved.items() if before >= REST} == {}
    assert operator.moved["check"][1] > 0.5e-3
    assert operator.moved["run"][1] > 10.0 * REST
    (folder,) = (tmp_path / "runs").iterdir()
    acts = procedure.read(folder).acts
    assert sum(act.refused != "" for act in acts if act.act in operator.moved) == 15
    assert {act.way for act in acts if act.motion} == {TERMINAL}


@needs_compiler
def test_rig_file_with_emulator_does_not_open_a_real_rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rig file has ``emulator: true``, the receiver does not report it."""
    with monkeypatch.context() as real:
        for flag in ("EMULATOR", "LOCKSTEP"):
            real.setattr(f"rths_nodes.laboratory.ports.datagrams.{flag}", 0)
        rig = EmulatedBench(tmp_path)
    with closing(rig):
        session = RigSession(rig.bench.scenario, ProcedureRecord("test", "bench", ""), realtime=True)
        with pytest.raises(ConfigError, match=naming("port.emulator", "true", "a rig")):
            session.connect()
        assert session.state is State.IDLE


@pytest.fixture
def checklist(tmp_path: Path) -> Iterator[ProcedureRunner]:
    """Test with confirmed offsets on a rig with a checklist."""
    rig = rig_file(tmp_path, checklist=ITEMS)
    runner = conducted(tmp_path / "test", "duration=0.1", rig=rig, rungs="g")
    referenced(runner)
    yield runner
    runner.session.close()


@pytest.mark.parametrize("answers", [[], ["y"], ["y", "n"], ["n", "y"]])
def test_unconfirmed_checklist_bars_motion(checklist: ProcedureRunner, answers: list[str]) -> None:
    command = checklist.session.drive.command.copy()
    for item, answer in zip(ITEMS, answers, strict=False):
        checklist.do("checklist", "Ada", TERMINAL, item=item, answer=answer)
    unconfirmed = [item for item, answer in zip(ITEMS, [*answers, "", ""], strict=False) if answer != "y"]
    assert checklist.unconfirmed == unconfirmed
    with pytest.raises(ActRefused, match=naming("check", "checklist", *unconfirmed)):
        checklist.do("check", "Ada", TERMINAL, clear=CLEAR)
    assert (checklist.session.drive.command == command).all()


def test_confirmed_checklist_is_recorded_with_name_and_time(checklist: ProcedureRunner, tmp_path: Path) -> None:
    for answer in ("n", "y"):
        checklist.do("checklist", "Ada", TERMINAL, item=ITEMS[0], answer=answer)
    checklist.do("checklist", "Ben", TERMINAL, item=ITEMS[1], answer="y")
    checklist.do("check", "Ada", TERMINAL, clear=CLEAR)
    rows = procedure.read(tmp_path / "test").checklist
    assert [(row.item, row.answer, row.by) for row in rows] == [
        *((ITEMS[0], "n", "Ada"), (ITEMS[0], "y", "Ada"), (ITEMS[1], "y", "Ben")),
    ]
    assert all(row.time for row in rows)


def test_confirmation_can_be_withdrawn_before_motion(checklist: ProcedureRunner) -> None:
    for item in ITEMS:
        checklist.do("checklist", "Ada", TERMINAL, item=item, answer="y")
    assert checklist.session.possible()["checklist"] == ""
    checklist.do("checklist", "Ben", TERMINAL, item=ITEMS[0], answer="n")
    assert checklist.unconfirmed == ITEMS[:1]
    with pytest.raises(ActRefused, match=naming("check", "checklist", ITEMS[0])):
        checklist.do("check", "Ada", TERMINAL, clear=CLEAR)


@pytest.mark.parametrize("arguments", [{"item": "anything", "answer": "y"}, {"item": ITEMS[0], "answer": "all"}])
def test_unknown_item_or_answer_is_refused(checklist: ProcedureRunner, arguments: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="checklist"):
        checklist.do("checklist", "Ada", TERMINAL, **arguments)
    assert checklist.unconfirmed == ITEMS


def test_programs_cannot_confirm_on_a_real_rig(checklist: ProcedureRunner) -> None:
    checklist.session.drive.port.simulated = False
    with pytest.raises(ActRefused, match=naming("checklist", ANSWERS)):
        checklist.do("checklist", "a script", ANSWERS, item=ITEMS[0], answer="y")


@pytest.mark.nodes
@pytest.mark.parametrize("answer", ["y", "n"])
def test_file_of_answers_confirms_on_a_simulated_rig(
    tmp_path: Path, environment: dict[str, str], answer: str
) -> None:
    pytest.importorskip("rclpy")
    answers = {"offsets_seconds": 0.1, "sign_for": ["story_1"], "checklist": {ITEMS[0]: "y", ITEMS[1]: answer}}
    (tmp_path / "answers.yaml").write_text(yaml.safe_dump(OF_RUNG_G | answers))
    rig = rig_file(tmp_path, checklist=ITEMS)
    process = subprocess.run(
        [*RTHS, "test", NAME, f"--rig={rig}", "--set=duration=0.1", "--answers=answers.yaml"],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=110,
    )
    folder = tmp_path / "runs" / "first"
    record = procedure.read(folder)
    assert (process.returncode == 0) is (answer == "y"), process.stdout + process.stderr
    assert bool(record.checks) is (answer == "y")
    assert mentions(record.reason, "checklist", ITEMS[1]) is (answer == "n")
    assert mentions((folder / "report.html").read_text(), ITEMS[1])
