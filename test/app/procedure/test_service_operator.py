# SPDX-License-Identifier: Apache-2.0
"""Tests of examples/service_operator, a program that guides a person over the operator socket."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from programs import RTHS, begun
from terminal import Terminal

from rths_nodes.loop.procedure_record import SOCKET, ProcedureRecord
from rths_nodes.loop.scenario import files
from rths_nodes.recording import procedure

pytestmark = pytest.mark.nodes
pytest.importorskip("rclpy")

PROGRAM = Path(__file__).resolve().parents[3] / "examples" / "service_operator" / "whole_test.py"
HEAD = 6
TO_SIGN = ("scale of displacement of story_1", "scale of force of story_1")


class GuidedTest:
    """``rths test --socket`` on a bench of unknown stiffness, and the program at a terminal."""

    def __init__(self, folder: Path, environment: dict[str, str], rungs: str) -> None:
        lines = files.locate("bench_simulated", files.RIG).read_text().splitlines(keepends=True)
        (folder / "bench.yaml").write_text("".join(line for line in lines if "stiffness" not in line))
        answers = {"operator": "A. Tester", "specimen": "D-17", "test_id": "first", "level": 0.2}
        (folder / "answers.yaml").write_text(yaml.safe_dump(answers | {"rungs": list(rungs)}))
        options = ("--rig=bench.yaml", "--set=duration=0.2", "--no-report", "--answers=answers.yaml", "--socket")
        self.folder = folder
        command = [*RTHS, "test", "chen_ricles_2010", *options]
        self.test = begun(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stderr=None)
        self.first_line = self.test.stdout.readline()
        self.terminal = Terminal([sys.executable, str(PROGRAM)], folder, environment)

    def arm(self, rung: str) -> None:
        shown = self.terminal.wait_for(rf"to arm rung {rung} \(\w+\), type {rung} and the first {HEAD} char\w+: ")
        self.terminal.type(rung + shown.rpartition("(")[2][:HEAD])

    def end(self) -> tuple[int, int]:
        """Return the exit codes of the program and of the test."""
        return self.terminal.end(), self.test.wait(timeout=60)

    @property
    def record(self) -> ProcedureRecord:
        return procedure.read(self.folder / "runs" / "first")

    def close(self) -> None:
        self.terminal.close()
        self.test.kill()
        self.test.communicate()


Serve = Callable[[str], GuidedTest]


@pytest.fixture
def serve(tmp_path: Path, environment: dict[str, str]) -> Iterator[Serve]:
    """Starts a test of these rungs."""
    tests: list[GuidedTest] = []

    def serve(rungs: str) -> GuidedTest:
        tests.append(GuidedTest(tmp_path, environment, rungs))
        return tests[-1]

    yield serve
    for test in tests:
        test.close()


def test_person_confirms_signs_and_arms(serve: Serve) -> None:
    test = serve("acdg")
    assert "operator/stop" in test.first_line
    test.terminal.answer("your name: ", "Ada")
    shown = test.terminal.answer(r"confirm these offsets \(\w+\)\? \[y/N\] ", "y")
    assert "bench (story_1): displacement" in shown
    test.terminal.answer(r"is the specimen unloaded now, .*\? \[y/N\] ", "y")
    for item in TO_SIGN:
        test.terminal.answer(rf"{item}; do you sign for it\? \[y/N\] ", "y")
        assert f"{item} not verified: verify this item, or sign for it ({item})\r\n" in test.terminal.shown
    for rung in "dg":
        test.arm(rung)
    assert test.end() == (0, 0), test.terminal.shown
    acts = test.record.acts
    assert {act.by for act in acts} == {"Ada"}
    assert {act.way for act in acts} == {SOCKET}
    assert [act.arguments["what"] for act in acts if act.act == "sign_for"] == list(TO_SIGN)
    assert [act.arguments["rung"] for act in acts if act.act == "arm"] == ["c", "d", "g"]
    assert [deviation for deviation in test.record.deviations if "signed for by Ada" in deviation]


@pytest.mark.parametrize("wrong", ["nothing is signed", "another hash"])
def test_missing_signature_or_hash_ends_the_test(serve: Serve, wrong: str) -> None:
    test = serve("g")
    test.terminal.answer("your name: ", "Ada")
    test.terminal.answer(r"confirm these offsets", "y")
    test.terminal.answer(r"is the specimen unloaded now", "n")
    test.terminal.answer(rf"{TO_SIGN[0]}; do you sign for it\? ", "y")
    test.terminal.answer(rf"{TO_SIGN[1]}; do you sign for it\? ", "n" if wrong == "nothing is signed" else "y")
    if wrong == "another hash":
        test.terminal.answer(r"to arm rung g \(\w+\), type", "123456")
    assert test.end() == (1, 130)
    acts = [act.act for act in test.record.acts]
    assert "arm" not in acts
    assert acts[-1] == "finish"
    assert ("position" in acts) == (wrong == "another hash")


def test_ctrl_c_stops_the_rig(serve: Serve) -> None:
    test = serve("g")
    test.terminal.answer("your name: ", "Ada")
    test.terminal.wait_for(r"confirm these offsets")
    test.terminal.interrupt()
    assert test.end() == (130, 130)
    assert [act.act for act in test.record.acts][-2:] == ["stop", "finish"]


def test_level_and_ratio_are_asked_before_programs_act(tmp_path: Path, environment: dict[str, str]) -> None:
    """Neither the page nor a program can answer these questions."""
    command = [*RTHS, "test", "chen_ricles_2010", "--socket", "--rig=bench_simulated", "--set=duration=0.2"]
    with closing(Terminal(command, tmp_path, environment)) as terminal:
        for question, answer in (("operator", "Ada"), ("specimen", "D-17"), ("level", "0.3"), ("time_ratio", "4")):
            terminal.answer(rf"{question}: [^\n]*: $", answer)
        terminal.wait_for("programs of this user")
        terminal.interrupt()
        assert terminal.end() == 130
