# SPDX-License-Identifier: Apache-2.0
"""Tests of doc/first_test.md: its files, commands, questions and results."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from c_compiler import needs_compiler
from command_fixtures import RunCommand
from emulated_bench import free_port
from messages import mentions
from programs import RTHS, killed
from terminal import Terminal

from rths_nodes.recording import procedure

pytestmark = [pytest.mark.nodes, needs_compiler]
pytest.importorskip("rclpy")

PAGE = (Path(__file__).resolve().parents[3] / "doc" / "first_test.md").read_text()
RIG, ANSWERS = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.M | re.S)
COMMANDS = [line.strip() for line in PAGE.splitlines() if line.startswith("    rths ")]
ROWS = [
    [cell.strip().strip("`") for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if re.match(r"\| `", line)
]
"""Question, typed answer, and result."""
SLOW = ("--set=servo_rate=256", "--set=substeps=3")
"""A quarter of the samples is enough: most of a test are moves between rests."""
SHORT, LONGER = ("--set=duration=0.5", *SLOW), ("--set=duration=2", *SLOW)
"""The differences on the page need more than the first tremor."""


def program(line: str) -> list[str]:
    """Return a command of the page without its duration."""
    name, *arguments = shlex.split(line)
    assert name == "rths"
    kept = [argument for argument in arguments if not argument.startswith("duration=")]
    pairs = zip(kept, [*kept[1:], ""], strict=True)
    return [*RTHS, *(argument for argument, after in pairs if argument != "--set" or "=" in after)]


def command(*parts: str) -> str:
    """Return the first command of the page that contains all ``parts``."""
    return next(line for line in COMMANDS if all(part in line for part in parts))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Folder with the files of the page, and a free UDP port."""
    assert "port: 25010" in RIG
    (tmp_path / "my_rig.yaml").write_text(RIG.replace("port: 25010", f"port: {free_port()}"))
    (tmp_path / "answers.yaml").write_text(ANSWERS)
    return tmp_path


@contextmanager
def emulated(
    line: str, folder: Path, environment: dict[str, str], duration: Sequence[str] = LONGER
) -> Iterator[None]:
    """Run the first terminal of the page."""
    command = [*program(line), *duration]
    started = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    with killed(started) as rig:
        assert "emulated at 127.0.0.1:" in rig.stdout.readline()
        yield
        assert rig.wait(timeout=30) == 0


def test_rig_file_and_template_agree_with_the_page(
    folder: Path, monkeypatch: pytest.MonkeyPatch, output: RunCommand
) -> None:
    monkeypatch.chdir(folder)
    assert "fits together" in output(*shlex.split(command("rths check"))[1:])
    template = output(*shlex.split(command("--print-answers"))[1:])
    keys = re.findall(r"^(\w+):", ANSWERS, re.M)
    assert len(keys) > 10
    assert [key for key in keys if f"\n{key}:" not in template] == []


@pytest.mark.timeout(600)
def test_dialogue_of_the_page_finishes_the_test(folder: Path, environment: dict[str, str]) -> None:
    """The questions come in the order of the page, up to rung d; rungs e to g are alike; then the end."""
    test = program(next(line for line in COMMANDS if line.endswith("duration=5") and "rths test" in line))
    with (
        emulated(command("rths emulate", "duration=5"), folder, environment),
        closing(Terminal([*test, *LONGER], folder, environment)) as terminal,
    ):
        for row in ROWS[:-3]:
            answer(terminal, *row)
        for rung in "efg":
            climb(terminal, rung)
        for row in ROWS[-3:]:
            answer(terminal, *row)
        assert terminal.end() == 0, terminal.shown[-3000:]
    (run,) = (folder / "runs").iterdir()
    record = procedure.read(run)
    assert [(rung.name, rung.outcome) for rung in record.rungs] == [(name, "finished") for name in "abcdefg"]
    assert (record.outcome, record.operator) == ("finished", "A. Tester")
    assert len([deviation for deviation in record.deviations if mentions(deviation, "signed", "A. Tester")]) == 2
    assert record.unloading[-1].given_up == ""
    assert "EMULATED" in (run / "report.html").read_text()


def answer(terminal: Terminal, question: str, typed: str, result: str = "") -> None:
    """Wait for the ``question`` and type the answer of the page."""
    shown = terminal.wait_for(re.escape(question) + r"[^\n]*: $")
    digest = re.search(r"scenario\s+│ (\w{16})", shown)
    terminal.type("" if typed == "Enter" else typed.replace("HASH", digest[1][:6] if digest else ""))


def climb(terminal: Terminal, rung: str) -> None:
    """Do the acts of one more ``rung``."""
    answer(terminal, f"next: position, for rung {rung}", "position")
    answer(terminal, "type CLEAR", "CLEAR")
    answer(terminal, f"Enter: arm, for rung {rung}", "Enter")
    if rung == "e":
        answer(terminal, "time_ratio", "4")
    answer(terminal, f"type {rung} and the first 6 characters", f"{rung} HASH")
    answer(terminal, f"next: run, for rung {rung}", "run")
    answer(terminal, "type CLEAR", "CLEAR")


def run_answers(
    folder: Path, environment: dict[str, str], *options: str, timeout: float = 500.0
) -> subprocess.CompletedProcess[str]:
    """Run the command of the page with the file of answers."""
    return subprocess.run(
        [*program(command("--answers answers.yaml")), *options],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


@pytest.mark.timeout(600)
def test_answers_of_the_page_lead_to_a_report(folder: Path, environment: dict[str, str]) -> None:
    with emulated(command("rths emulate", "duration=5"), folder, environment):
        process = run_answers(folder, environment, *LONGER)
    shown = process.stdout + process.stderr
    run = folder / "runs" / "my_first"
    rungs = procedure.read(run).rungs
    assert [rung.outcome for rung in rungs] == ["finished"] * len(rungs), shown
    assert process.returncode == 0, shown
    assert (run / "report.html").is_file()


def test_wrong_sign_of_the_page_is_detected(folder: Path, environment: dict[str, str]) -> None:
    brief = ANSWERS.replace("rungs: [a, b, c, d, e, f, g]", "rungs: [g]").replace("arm: [d, e, f, g]", "arm: [g]")
    (folder / "answers.yaml").write_text(brief)
    with emulated(command("rths emulate", "force_scale=-1"), folder, environment, SHORT):
        process = run_answers(folder, environment, *SHORT, "--no-report", timeout=110.0)
    assert process.returncode == 2, process.stdout + process.stderr
    assert mentions(process.stdout, "sign", "force")
