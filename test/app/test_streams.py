# SPDX-License-Identifier: Apache-2.0
"""Output of programs: encodings, closed or full outputs, and narrow terminals. It never changes an exit code."""

from __future__ import annotations

import ast
import io
import random
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from messages import each_mentions
from programs import RTHS, child_environment, completed
from rich import box
from rich.console import Console
from rich.table import Table
from terminal import Terminal

from rths_nodes.app.cli import main
from rths_nodes.app.commands.terminal import folded, show, table
from rths_nodes.app.streams import unfailing_output
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.scenario import files
from rths_nodes.recording.reading import read_run

ROOT = Path(__file__).resolve().parents[2]
RUN = ["run", "chen_ricles_2010", "--set", "duration=0.2"]
TRIP = ["run", "chen_ricles_2010", "--set", "duration=8", "--set", "axes.story_1.limits.force=1e5"]
PLAIN_C = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
"""Locale without UTF-8, in which Python does not switch to it by itself."""


def rths(
    words: Sequence[str], folder: Path, variables: Mapping[str, str] | None = None, redirected: str = ""
) -> tuple[int, bytes, bytes]:
    """Return exit code, standard output and standard error of ``rths`` in a shell that redirects it."""
    command = ["bash", "-o", "pipefail", "-c", f'"$@" {redirected}', "bash", *RTHS, *words]
    done = completed(command, cwd=folder, env=child_environment(**variables or {}), text=False, timeout=100)
    return done.returncode, done.stdout, done.stderr


ENCODINGS = {name: {"PYTHONIOENCODING": name} for name in ("gbk", "euc-jp", "ascii", "latin-1")} | {"C": PLAIN_C}


@pytest.mark.parametrize(
    ("name", "report"),
    [
        *((name, False) for name in ENCODINGS if name != "C"),
        *(pytest.param(name, True, marks=[] if name == "C" else [pytest.mark.soak]) for name in ENCODINGS),
    ],
)
def test_run_prints_its_result_in_any_encoding(name: str, report: bool, tmp_path: Path) -> None:
    code, out, err = rths([*RUN, *(["--report", "x.html"] if report else [])], tmp_path, ENCODINGS[name])
    assert (code, err) == (ExitCode.FINISHED, b"")
    text = out.decode(ENCODINGS[name].get("PYTHONIOENCODING", "ascii"))
    assert "finished after 210 samples" in text
    if report:
        assert "report: x.html" in text
        assert "µs" in (tmp_path / "x.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "words",
    [
        ["doctor", "--seconds", "0.1"],
        ["stability", "chen_ricles_2010"],
        ["check", "chen_ricles_2010"],
        ["list"],
        ["params", "axes"],
    ],
    ids=lambda words: words[0],
)
def test_commands_print_ascii_at_ascii_terminals(words: list[str], tmp_path: Path) -> None:
    code, out, err = rths(words, tmp_path, {"PYTHONIOENCODING": "ascii"})
    assert (code, err) == (0, b"")
    assert out.isascii()
    assert b"\\x" not in out


def test_scenario_in_utf8_runs_in_plain_c_locale(tmp_path: Path) -> None:
    source = (ROOT / "config" / "scenarios" / "chen_ricles_2010.yaml").read_text(encoding="utf-8")
    (tmp_path / "mine.yaml").write_text(f"{source}\n# Prüfstand 試験\n", encoding="utf-8")
    code, _, err = rths(["run", "mine.yaml", "--set", "duration=0.1", "--record", "rec"], tmp_path, PLAIN_C)
    assert (code, err) == (0, b"")
    assert len(read_run(tmp_path / "rec").time) == 111


UNREAD = (">/dev/full", "| true", "| head -1")
CLOSED = (">&-", "<&- >&- 2>&-", ">/dev/full 2>/dev/full")


@pytest.mark.parametrize(
    ("redirected", "report"),
    [
        *((redirected, False) for redirected in UNREAD),
        *((redirected, True) for redirected in CLOSED),
        *(pytest.param(redirected, True, marks=pytest.mark.soak) for redirected in UNREAD),
    ],
)
def test_run_finishes_without_a_reader_of_its_output(redirected: str, report: bool, tmp_path: Path) -> None:
    code, _, err = rths([*RUN, *(["--report", "x.html"] if report else [])], tmp_path, redirected=redirected)
    assert code == ExitCode.FINISHED
    assert not any(word in err for word in (b"Traceback", b"Exception"))
    if report:
        assert (tmp_path / "x.html").read_text(encoding="utf-8").rstrip().endswith("</html>")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (TRIP, ExitCode.TRIPPED),
        (["check", "nosuch"], ExitCode.REFUSED),
        (["list"], 0),
        (["--help"], 0),
        (["--version"], 0),
        (["nosuch"], 2),
    ],
    ids=["trip", "refusal", "list", "help", "version", "usage"],
)
@pytest.mark.parametrize("redirected", [">&- 2>&-", ">/dev/full 2>/dev/full"])
def test_exit_codes_do_not_depend_on_the_output(
    words: list[str], code: int, redirected: str, tmp_path: Path
) -> None:
    assert rths(words, tmp_path, redirected=redirected)[0] == code


def test_full_disk_below_the_output_is_reported_once(tmp_path: Path) -> None:
    code, _, err = rths(["params", "axes"], tmp_path, redirected=">/dev/full")
    assert code == 0
    assert each_mentions(err.decode().splitlines(), ("rths", "standard output", "No space left"))


@pytest.mark.nodes
@pytest.mark.parametrize("host", ["composed", "processes"])
def test_nodes_with_closed_output_record_their_test(host: str, tmp_path: Path) -> None:
    """No file of the recording takes the number of the closed output, nor the text printed there."""
    code, _, _ = rths([*RUN, "--host", host, "--record", "rec"], tmp_path, redirected="<&- >&- 2>&-")
    assert code == ExitCode.FINISHED
    run = read_run(tmp_path / "rec")
    assert (run.information["outcome"], len(run.time), run.notes) == ("finished", 211, ())


# The streams


@pytest.mark.parametrize(
    ("text", "encoding", "written"),
    [
        ("23.8 µs", "ascii", b"23.8 us"),
        ("1.1 mm²", "gbk", b"1.1 mm2"),
        ("±3 −2", "ascii", b"+-3 -2"),
        ("café", "ascii", b"cafe"),
        ("試験", "latin-1", b"??"),
        ("試験", "euc-jp", "試験".encode("euc-jp")),
        ("file-\udce9", "utf-8", b"file-?"),
        ("23.8 µs", "utf-8", "23.8 µs".encode()),
    ],
)
def test_characters_outside_the_encoding_are_replaced(
    text: str, encoding: str, written: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with (tmp_path / "out").open("w", encoding=encoding, newline="") as file:
        monkeypatch.setattr(sys, "stdout", file)
        with unfailing_output():
            print(text, end="")
    assert (tmp_path / "out").read_bytes() == written


def test_streams_in_memory_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = io.StringIO()
    monkeypatch.setattr(sys, "stdout", memory)
    with unfailing_output():
        print("here")
    assert (sys.stdout, memory.getvalue()) == (memory, "here\n")


def test_nonblocking_output_receives_everything(tmp_path: Path) -> None:
    """The text is longer than the pipe, which another program has made non-blocking."""
    program = (
        "import os, sys; os.set_blocking(1, False)\n"
        "from rths_nodes.app.streams import unfailing_output\n"
        "with unfailing_output():\n    print('x' * 1_000_000)"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=child_environment(), capture_output=True, timeout=60, check=False)
    assert (done.returncode, len(done.stdout), done.stderr) == (0, 1_000_001, b"")


def test_text_files_have_an_encoding() -> None:
    """With the encoding of the locale, reports cannot be written, nor scenarios be read, in some countries."""
    calls = []
    for path in sorted((ROOT / "rths_nodes").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and lacks_encoding(node):
                calls.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert calls == []


def lacks_encoding(call: ast.Call) -> bool:
    if any(keyword.arg == "encoding" for keyword in call.keywords):
        return False
    if isinstance(call.func, ast.Attribute) and call.func.attr in ("read_text", "write_text"):
        return True
    modes = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    opens = ast.unparse(call.func).endswith("open") and any(set(mode) <= set("rwax+t") for mode in modes)
    return opens or any(word.arg == "text" and isinstance(word.value, ast.Constant) for word in call.keywords)


# Tables and lines


def random_table(draw: random.Random) -> tuple[Table, list[str]]:
    """Return a table, and all words of its cells."""
    grid = Table(box=draw.choice([box.SIMPLE, box.HEAVY_HEAD]))
    count, words = draw.randint(1, 9), []
    for column in range(count):
        names = [f"h{column}{'x' * draw.randint(0, 8)}" for _ in range(draw.randint(1, 3))]
        grid.add_column(" ".join(names), justify=draw.choice(["left", "right"]))
    for row in range(3):
        cells = [
            [f"c{row}{column}{'y' * draw.randint(0, 6)}" for _ in range(draw.choice([1, 1, 2, 2, 12]))]
            for column in range(count)
        ]
        grid.add_row(*map(" ".join, cells))
        words += [word for cell in cells for word in cell]
    return grid, words


def test_tables_keep_all_words_at_any_width(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(3)
    for _ in range(200):
        grid, words = random_table(draw)
        out = io.StringIO()
        monkeypatch.setattr(sys, "stdout", out)
        show(Console(file=out, width=draw.randint(30, 120)), grid)
        assert set(words) <= set(re.findall(r"c\d+y*", out.getvalue()))


def test_narrow_terminal_repeats_name_of_group(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = Table("variant", *(f"head{number}" for number in range(9)))
    for name, value in (("c", "one"), ("", "two")):
        grid.add_row(name, *[value] * 9)
    monkeypatch.setattr(sys, "stdout", out := io.StringIO())
    show(Console(file=out, width=40), grid)
    assert out.getvalue().count("variant c: head0") == 2


LINE = "the delay may grow from 27.34 ms to 103 ms"
FOLDED = ["  the delay may grow from", "    27.34 ms to 103 ms"]


@pytest.mark.parametrize(
    ("terminal", "expected"),
    [(True, FOLDED), (False, [f"  {LINE}"])],
    ids=["terminal", "pipe"],
)
def test_lines_are_folded_between_words_at_a_terminal(
    terminal: bool, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number stays with its unit."""
    out = io.StringIO()
    out.isatty = lambda: terminal
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setattr(sys, "stdout", out)
    assert folded(LINE, "  ", hang=2).splitlines() == expected


def test_terminal_codes_of_files_are_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rig = tmp_path / "rig.yaml"
    text = files.locate("bench_simulated", files.RIG).read_text()
    rig.write_text(re.sub("^name: .*$", r'name: "a\\e[2J [/b] [mm]"', text, flags=re.M))
    arguments = ["chen_ricles_2010", "--rig", str(rig)]
    assert main(["run", *arguments, "--set", "duration=0.1"]) == 0
    run = capsys.readouterr().out
    assert main(["check", *arguments]) == 0
    assert main(["check", *arguments, "--set", "axes.story_1.limits.stroke=0.26"]) == 2
    shown = capsys.readouterr()
    for stream in (run, shown.out, shown.err):
        assert r"a\x1b[2J [/b] [mm]" in stream
        assert "\x1b" not in stream


def test_cells_of_tables_have_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    table([["pressure [bar]", "[/x]"]], "channel [s]", last=["reason [m]"])
    shown = capsys.readouterr().out
    assert all(text in shown for text in ("pressure [bar]", "[/x]", "channel [s]", "reason [m]"))


def test_help_of_terminal_with_one_column(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1")
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    assert "stability" in capsys.readouterr().out


@pytest.mark.parametrize("columns", [60, 100])
@pytest.mark.parametrize(
    ("command", "parts"),
    [
        ("stability", ["delay margin", "0.987 Hz", "11.81 %", "0.9861 Hz", "10.08 %", "stable", "103 ms"]),
        ("check", ["fits together", "30720 samples", "809.5 kN", "36.5 mm", "10 m/s^2", "28.9 mm"]),
    ],
)
def test_verdicts_and_numbers_are_complete_on_narrow_terminals(
    command: str, parts: list[str], columns: int, tmp_path: Path, environment: dict[str, str]
) -> None:
    with closing(Terminal([*RTHS, command, "chen_ricles_2010"], tmp_path, environment, columns)) as terminal:
        assert terminal.end() == 0
        lines = terminal.shown.splitlines()
        assert max(map(len, lines)) <= columns
        for part in parts:
            assert any(part in line for line in lines), part
