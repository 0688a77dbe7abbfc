# SPDX-License-Identifier: Apache-2.0
"""examples/service_operator: a program that leads a person over the operator socket."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from terminal import Terminal

from rths_nodes.loop.procedure_record import SOCKET, ProcedureRecord
from rths_nodes.loop.scenario import files
from rths_nodes.recording import procedure

pytestmark = [pytest.mark.nodes]
pytest.importorskip("rclpy")

PROGRAM = Path(__file__).resolve().parents[3] / "examples" / "service_operator" / "whole_test.py"
HEAD = 6
TO_SIGN = ("scale of displacement of story_1", "scale of force of story_1")


class Served:
    """``rths test --socket`` on a bench whose stiffness is unknown, and the program at a terminal."""

    def __init__(self, folder: Path, environment: dict[str, str], rungs: str) -> None:
        lines = files.locate("bench_simulated", files.RIG).read_text().splitlines(keepends=True)
        (folder / "bench.yaml").write_text("".join(line for line in lines if "stiffness" not in line))
        answers = {
            "operator": "A. Tester",
            "specimen": "D-17",
            "test_id": "first",
            "rungs": list(rungs),
            "level": 0.2,
        }
        (folder / "answers.yaml").write_text(yaml.safe_dump(answers))
        program = [sys.executable, "-m", "rths_nodes.app.cli", "test", "chen_ricles_2010", "--rig", "bench.yaml"]
        program += ["--set=duration=0.2", "--no-report", "--answers", "answers.yaml"]
        self.folder = folder
        self.test = subprocess.Popen(
            [*program, "--socket"],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.test.stdout is not None
        self.said = self.test.stdout.readline()
        self.terminal = Terminal([sys.executable, str(PROGRAM)], folder, environment)

    def answers(self, question: str, answer: str) -> str:
        """Wait for the ``question`` and type the ``answer``; what was shown before it."""
        shown = self.terminal.wait_for(question)
        self.terminal.type(answer)
        return shown

    def arms(self, rung: str) -> None:
        shown = self.terminal.wait_for(rf"to arm rung {rung} \(\w+\), type {rung} and the first {HEAD} char\w+: ")
        self.terminal.type(rung + shown.rpartition("(")[2][:HEAD])

    def end(self) -> tuple[int, int]:
        """The exit codes of the program and of the test."""
        return self.terminal.end(), self.test.wait(timeout=60)

    @property
    def record(self) -> ProcedureRecord:
        return procedure.read(self.folder / "runs" / "first")

    def close(self) -> None:
        self.terminal.close()
        self.test.kill()
        self.test.communicate()


Serve = Callable[..., Served]


@pytest.fixture
def serve(tmp_path: Path, environment: dict[str, str]) -> Iterator[Serve]:
    made: list[Served] = []

    def serve(rungs: str) -> Served:
        made.append(Served(tmp_path, environment, rungs))
        return made[-1]

    yield serve
    for each in made:
        each.close()


def test_a_person_is_asked_for_all_that_he_answers_for(serve: Serve) -> None:
    served = serve("acdg")
    assert "operator/stop" in served.said
    served.answers("your name: ", "Ada")
    shown = served.answers(r"confirm these offsets \(\w+\)\? \[y/N\] ", "y")
    assert "bench (story_1): displacement" in shown
    served.answers(r"is the specimen unloaded now, .*\? \[y/N\] ", "y")
    for what in TO_SIGN:
        served.answers(rf"{what}; do you sign for it\? \[y/N\] ", "y")
        assert f"{what} not verified: verify this item, or sign for it ({what})\r\n" in served.terminal.shown
    for rung in "dg":
        served.arms(rung)
    assert served.end() == (0, 0), served.terminal.shown
    acts = served.record.acts
    assert {act.by for act in acts} == {"Ada"}
    assert {act.way for act in acts} == {SOCKET}
    assert [act.arguments["what"] for act in acts if act.act == "sign_for"] == list(TO_SIGN)
    assert [act.arguments["rung"] for act in acts if act.act == "arm"] == ["c", "d", "g"]
    assert [words for words in served.record.deviations if "signed for by Ada" in words]


@pytest.mark.parametrize("wrong", ["nothing is signed", "another hash"])
def test_what_a_person_does_not_want_is_not_done(serve: Serve, wrong: str) -> None:
    served = serve("g")
    served.answers("your name: ", "Ada")
    served.answers(r"confirm these offsets", "y")
    served.answers(r"is the specimen unloaded now", "n")
    served.answers(rf"{TO_SIGN[0]}; do you sign for it\? ", "y")
    served.answers(rf"{TO_SIGN[1]}; do you sign for it\? ", "n" if wrong == "nothing is signed" else "y")
    if wrong == "another hash":
        served.answers(r"to arm rung g \(\w+\), type", "123456")
    assert served.end() == (1, 130)
    acts = [act.act for act in served.record.acts]
    assert "arm" not in acts
    assert acts[-1] == "finish"
    assert ("position" in acts) == (wrong == "another hash")


def test_ctrl_c_stops_the_rig(serve: Serve) -> None:
    served = serve("g")
    served.answers("your name: ", "Ada")
    served.terminal.wait_for(r"confirm these offsets")
    served.terminal.interrupt()
    assert served.end() == (130, 130)
    assert [act.act for act in served.record.acts][-2:] == ["stop", "finish"]


def test_level_and_time_ratio_are_asked_for_before_programs_act(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """Neither the page nor a program can answer these questions."""
    command = [sys.executable, "-m", "rths_nodes.app.cli", "test", "chen_ricles_2010", "--socket"]
    terminal = Terminal([*command, "--rig=bench_simulated", "--set=duration=0.2"], tmp_path, environment)
    try:
        for question, answer in (("operator", "Ada"), ("specimen", "D-17"), ("level", "0.3"), ("time_ratio", "4")):
            terminal.wait_for(rf"{question}: [^\n]*: $")
            terminal.type(answer)
        terminal.wait_for("programs of this user act")
        terminal.interrupt()
        assert terminal.end() == 130
    finally:
        terminal.close()
