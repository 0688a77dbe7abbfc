# SPDX-License-Identifier: Apache-2.0
"""doc/first_test.md, tried as a new user would: with its files, its commands, and what it says is asked."""

from __future__ import annotations

import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from messages import mentions
from terminal import Terminal

from rths_nodes.app.cli import main
from rths_nodes.recording import procedure

pytestmark = pytest.mark.nodes
pytest.importorskip("rclpy")
if not any(map(shutil.which, ("cc", "gcc", "clang"))):
    pytest.skip("no C compiler here", allow_module_level=True)

PAGE = (Path(__file__).resolve().parents[3] / "doc" / "first_test.md").read_text()
RIG, ANSWERS = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.M | re.S)
COMMANDS = [line.strip() for line in PAGE.splitlines() if line.startswith("    rths ")]
ROWS = [
    [cell.strip().strip("`") for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if re.match(r"\| `", line)
]
"""What is asked, what is typed, what happens."""
SLOW = ("--set=servo_rate=256", "--set=substeps=3")
"""Most of a test are moves at rest, a quarter of whose samples show the same."""
SHORT, LONGER = ("--set=duration=0.5", *SLOW), ("--set=duration=2", *SLOW)
"""The differences of the page need more than the first tremor."""


def program(line: str) -> list[str]:
    """A command of the page; the test is shorter."""
    name, *words = shlex.split(line)
    assert name == "rths"
    kept = [word for word in words if not word.startswith("duration=")]
    without = [
        word for word, behind in zip(kept, [*kept[1:], ""], strict=True) if word != "--set" or "=" in behind
    ]
    return [sys.executable, "-m", "rths_nodes.app.cli", *without]


def command(*words: str) -> str:
    """The first command of the page that has all ``words`` in it."""
    return next(line for line in COMMANDS if all(word in line for word in words))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files of the page, with a UDP port that nobody else has."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    assert "port: 25010" in RIG
    (tmp_path / "my_rig.yaml").write_text(RIG.replace("port: 25010", f"port: {port}"))
    (tmp_path / "answers.yaml").write_text(ANSWERS)
    return tmp_path


@contextmanager
def emulated(
    line: str, folder: Path, environment: dict[str, str], duration: Sequence[str] = SHORT
) -> Iterator[subprocess.Popen[str]]:
    """The first terminal of the page."""
    rig = subprocess.Popen(
        [*program(line), *duration], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        assert rig.stdout is not None
        assert "emulated at 127.0.0.1:" in rig.stdout.readline()
        yield rig
        assert rig.wait(timeout=30) == 0
    finally:
        rig.kill()
        rig.wait()


def test_the_rig_file_of_the_page_fits(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert main(shlex.split(command("rths check"))[1:]) == 0
    assert "fits together" in capsys.readouterr().out


def test_the_template_has_the_keys_of_the_page(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert main(shlex.split(command("--print-answers"))[1:]) == 0
    template = capsys.readouterr().out
    keys = re.findall(r"^(\w+):", ANSWERS, re.M)
    assert len(keys) > 10
    assert [key for key in keys if f"\n{key}:" not in template] == []


@pytest.mark.timeout(600)
def test_an_operator_gets_through_with_the_page_alone(folder: Path, environment: dict[str, str]) -> None:
    """All that it says is asked is asked in that order, up to rung (d); the others go alike; then the end."""
    first, last = ROWS[:-3], ROWS[-3:]
    test = program(next(line for line in COMMANDS if line.endswith("duration=5") and "rths test" in line))
    with emulated(command("rths emulate", "duration=5"), folder, environment, LONGER):
        terminal = Terminal([*test, *LONGER], folder, environment)
        try:
            for row in first:
                answer(terminal, *row)
            for rung in "efg":
                climb(terminal, rung)
            for row in last:
                answer(terminal, *row)
            assert terminal.end() == 0, terminal.shown[-3000:]
        finally:
            terminal.close()
    (place,) = (folder / "runs").iterdir()
    record = procedure.read(place)
    assert [(rung.name, rung.outcome) for rung in record.rungs] == [(name, "finished") for name in "abcdefg"]
    assert (record.outcome, record.operator) == ("finished", "A. Tester")
    assert len([words for words in record.deviations if mentions(words, "signed", "A. Tester")]) == 2
    assert record.unloading[-1].given_up == ""
    assert "EMULATED" in (place / "report.html").read_text()


def answer(terminal: Terminal, asked: str, typed: str, happens: str = "") -> None:
    """Wait for what is ``asked``, and type what the page says."""
    shown = terminal.wait_for(re.escape(asked) + r"[^\n]*: $")
    terminal.type("" if typed == "Enter" else typed.replace("HASH", head(shown)))


def climb(terminal: Terminal, rung: str) -> None:
    """The acts of one more ``rung``."""
    answer(terminal, f"next: position, for rung {rung}", "position")
    answer(terminal, "type CLEAR", "CLEAR")
    answer(terminal, f"Enter: arm, for rung {rung}", "Enter")
    if rung == "e":
        answer(terminal, "time_ratio", "4")
    answer(terminal, f"type {rung} and the first 6 characters", f"{rung} HASH")
    answer(terminal, f"next: run, for rung {rung}", "run")
    answer(terminal, "type CLEAR", "CLEAR")


def head(shown: str) -> str:
    """The first characters of the hash that stands on the terminal."""
    found = re.search(r"scenario\s+│ (\w{16})", shown)
    return found[1][:6] if found else ""


@pytest.mark.timeout(600)
def test_the_file_of_answers_of_the_page_takes_a_test_to_its_report(
    folder: Path, environment: dict[str, str]
) -> None:
    with emulated(command("rths emulate", "duration=5"), folder, environment, LONGER):
        done = subprocess.run(
            [*program(command("--answers answers.yaml")), *LONGER],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=500,
        )
    shown = done.stdout + done.stderr
    place = folder / "runs" / "my_first"
    record = procedure.read(place)
    assert [rung.outcome for rung in record.rungs] == ["finished"] * len(record.rungs), shown
    assert done.returncode == 0, shown
    assert (place / "report.html").is_file()


def test_the_wrong_rig_of_the_page_is_found(folder: Path, environment: dict[str, str]) -> None:
    wrong = command("rths emulate", "force_scale=-1")
    brief = ANSWERS.replace("rungs: [a, b, c, d, e, f, g]", "rungs: [g]").replace("arm: [d, e, f, g]", "arm: [g]")
    (folder / "answers.yaml").write_text(brief)
    with emulated(wrong, folder, environment):
        done = subprocess.run(
            [*program(command("--answers answers.yaml")), *SHORT, "--no-report"],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=110,
        )
    assert done.returncode == 2, done.stdout + done.stderr
    assert mentions(done.stdout, "sign", "force")
