# SPDX-License-Identifier: Apache-2.0
"""No motion without the word CLEAR, and none behind a real port without a person."""

from __future__ import annotations

import re
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from emulated_bench import EmulatedBench
from messages import naming
from rig_runner import conducted, positioned, referenced
from terminal import Terminal

from rths_nodes.app.procedure.procedure_runner import ProcedureRunner
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Measurement
from rths_nodes.loop.procedure_record import ANSWERS, PAGE, TERMINAL, ProcedureRecord
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.machine import ActRefused
from rths_nodes.procedure.session import ACTS, CLEAR, MOTIONS, RigSession
from rths_nodes.recording import procedure

ENTERS = 50
"""Presses of Enter at each prompt."""
REST = 1e-6
"""Largest distance of a piston that does not move, m."""


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[ProcedureRunner]:
    """A test whose offsets are confirmed."""
    runner = conducted(tmp_path / "test")
    runner.do("rehearse")
    referenced(runner)
    yield runner
    runner.session.close()


def test_each_act_that_moves_has_the_argument_clear() -> None:
    assert set(MOTIONS) == {"check", "position", "run", "resume", "unload"}
    assert {name for name, act in ACTS.items() if act.moves and act.lasting} <= set(MOTIONS)


@pytest.mark.parametrize("clear", ["", "y", "clear", " CLEAR", "CLEAR ", "yes", "all"])
def test_another_word_than_clear_moves_nothing(runner: ProcedureRunner, clear: str) -> None:
    command, state = runner.session.drive.command.copy(), runner.state
    with pytest.raises(ActRefused) as refused:
        runner.do("check", "Ada", TERMINAL, clear=clear)
    for part in ("check", "clear", repr(clear), CLEAR, "Nothing has moved"):
        assert part in str(refused.value)
    assert (runner.session.drive.command == command).all()
    assert runner.state is state
    assert runner.record.acts[-1].refused


def test_the_motion_that_was_cleared_is_in_the_record(runner: ProcedureRunner) -> None:
    stated = runner.clearing.motion("check")
    runner.do("check", "Ada", TERMINAL, clear=CLEAR)
    act = runner.record.acts[-1]
    assert (act.act, act.motion, act.arguments) == ("check", stated, {"clear": CLEAR})
    for part in ("story_1", "1 mm", "2 mm/s", "30 kN"):
        assert part in stated


@pytest.mark.parametrize("way", [ANSWERS, "socket", ""])
def test_a_program_moves_and_arms_nothing_behind_a_real_port(runner: ProcedureRunner, way: str) -> None:
    runner.session.drive.port.simulated = False
    command = runner.session.drive.command.copy()
    with pytest.raises(ActRefused) as refused:
        runner.do("check", "a script", way, clear=CLEAR)
    for part in ("check", way or "a program", "a real rig", TERMINAL, PAGE):
        assert part in str(refused.value)
    assert (runner.session.drive.command == command).all()
    assert runner.state is State.REFERENCED


@pytest.mark.parametrize("way", [TERMINAL, PAGE])
def test_a_person_moves_a_real_rig(runner: ProcedureRunner, way: str) -> None:
    runner.session.drive.port.simulated = False
    runner.do("check", "Ada", way, clear=CLEAR)
    assert runner.record.checks


def test_each_later_act_is_refused_to_a_program_behind_a_real_port(tmp_path: Path) -> None:
    runner = conducted(tmp_path / "test")
    positioned(runner)
    offsets, step = runner.session.offsets, runner.ladder.step("d")
    assert offsets is not None
    hashes = {"scenario_hash": step.hash, "offsets_hash": offsets.hash}
    runner.session.drive.port.simulated = False
    with pytest.raises(ActRefused, match="arm: refused, because the source of the request is socket"):
        runner.do("arm", "a script", "socket", rung="d", **hashes)
    runner.session.drive.port.simulated = True
    runner.do("arm", rung="d", **hashes)
    for part in ("rung d", "expected up to", "mm/s", "trips at"):
        assert part in runner.clearing.motion("run")
    runner.session.drive.port.simulated = False
    with pytest.raises(ActRefused, match="run: refused, because the source of the request is answers"):
        runner.do("run", "a script", ANSWERS, clear=CLEAR)
    assert runner.state is State.ARMED
    runner.session.close()


class Piston:
    """Largest distance of the emulated piston from its first place since :meth:`mark`."""

    def __init__(self, bench: EmulatedBench) -> None:
        self._emulator, self._lock = bench.emulator, threading.Lock()
        self.mark()
        bench.emulator.shown_to = self._look

    def mark(self) -> None:
        self._first, self.moved = float(self._emulator.true.displacement[0]), 0.0

    def _look(self, true: Measurement) -> None:
        self.moved = max(self.moved, abs(float(true.displacement[0]) - self._first))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[EmulatedBench]:
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        pytest.skip("no C compiler here")
    found = EmulatedBench(tmp_path, mounted=0.5e6)
    yield found
    found.close()


class Operator:
    """A person at the terminal of a test on ``bench``, who presses Enter wherever that might move something."""

    def __init__(self, terminal: Terminal, piston: Piston) -> None:
        self.terminal, self._piston = terminal, piston
        self.moved: dict[str, tuple[float, float]] = {}
        """Largest distance of the piston by act, m: before CLEAR, and after it."""

    def answer(self, asked: str, typed: str) -> None:
        self.terminal.wait_for(asked + r"[^\n]*: $")
        self.terminal.type(typed)

    def sign(self) -> None:
        """Sign for all that the check has not verified."""
        self.answer("Enter: sign_for", "")
        while "sign for this item" in (
            shown := self.terminal.wait_for(r"(sign for this item\?|act \(next)[^\n]*: $")
        ):
            self.terminal.type("y")
        assert "next: position" in shown
        self.terminal.type("")

    def move(self, act: str, proposed: str) -> None:
        """Press Enter at both prompts of an ``act``, type what is not CLEAR, then clear it."""
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
            found = re.search(
                r"scenario\s+│ (\w{6})", self.terminal.wait_for(r"type \w and the first 6 characters[^\n]*: $")
            )
            assert found
            self.terminal.type(rung + found[1])


@pytest.mark.nodes
@pytest.mark.timeout(300)
def test_enter_moves_nothing_at_any_prompt_of_a_test(
    bench: EmulatedBench, tmp_path: Path, environment: dict[str, str]
) -> None:
    pytest.importorskip("rclpy")
    words = ["test", "chen_ricles_2010", "--rig", str(bench.file), "--no-report", "--set=duration=0.3"]
    terminal = Terminal([sys.executable, "-m", "rths_nodes.app.cli", *words], tmp_path, environment)
    operator = Operator(terminal, Piston(bench))
    try:
        for asked, typed in (
            *(("operator:", "A. Tester"), ("specimen:", "D-17"), ("for rung a", ""), ("for rung b", "")),
            *(("Enter: connect", ""), ("Enter: take_offsets", ""), ("offsets_seconds", "0.2")),
            *(("Enter: confirm_offsets", ""), ("confirm these offsets", "y"), ("unloaded now", "y")),
        ):
            operator.answer(asked, typed)
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
    finally:
        terminal.close()
    assert {act: before for act, (before, _) in operator.moved.items() if before >= REST} == {}
    assert operator.moved["check"][1] > 0.5e-3
    assert operator.moved["run"][1] > 10.0 * REST
    (place,) = (tmp_path / "runs").iterdir()
    acts = procedure.read(place).acts
    assert sum(act.refused != "" for act in acts if act.act in operator.moved) == 15
    assert {act.way for act in acts if act.motion} == {TERMINAL}


def test_a_rig_file_alone_makes_no_emulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rig file says ``emulator: true``, the receiver does not: the port does not open, and nothing moves."""
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        pytest.skip("no C compiler here")
    with monkeypatch.context() as real:
        for flag in ("EMULATOR", "LOCKSTEP"):
            real.setattr(f"rths_nodes.laboratory.ports.datagrams.{flag}", 0)
        far = EmulatedBench(tmp_path)
    try:
        session = RigSession(far.bench.scenario, ProcedureRecord("test", "bench", ""), realtime=True)
        with pytest.raises(ConfigError, match=naming("port.emulator", "true", "a rig")):
            session.connect()
        assert session.state is State.IDLE
    finally:
        far.close()
