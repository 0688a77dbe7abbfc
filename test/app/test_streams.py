# SPDX-License-Identifier: Apache-2.0
"""What is printed decides nothing: terminals of other encodings, outputs that are closed, full or not read."""

from __future__ import annotations

import ast
import io
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from messages import each_mentions

from rths_nodes.app.streams import unfailing_output
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.recording.reading import read_run

ROOT = Path(__file__).resolve().parents[2]
RTHS = [sys.executable, "-m", "rths_nodes.app.cli"]
RUN = ["run", "chen_ricles_2010", "--set", "duration=0.2"]
TRIP = ["run", "chen_ricles_2010", "--set", "duration=8", "--set", "axes.story_1.limits.force=1e5"]
PLAIN_C = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
"""A locale without UTF-8, in which Python does not switch to it by itself."""


def started(
    words: Sequence[str], folder: Path, env: Mapping[str, str] | None = None, redirected: str = ""
) -> tuple:
    """Exit code, standard output and standard error of ``rths`` in a shell that redirects it."""
    everything = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])} | dict(env or {})
    program = f'"$@" {redirected}'
    found = subprocess.run(
        ["bash", "-o", "pipefail", "-c", program, "bash", *RTHS, *words],
        cwd=folder,
        env=everything,
        capture_output=True,
        timeout=100,
        check=False,
    )
    return found.returncode, found.stdout, found.stderr


ENCODINGS = {
    "gbk": {"PYTHONIOENCODING": "gbk"},
    "euc-jp": {"PYTHONIOENCODING": "euc-jp"},
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "latin-1": {"PYTHONIOENCODING": "latin-1"},
    "C": PLAIN_C,
}


def shown_in(name: str, words: Sequence[str], folder: Path) -> str:
    """The output at a terminal of the encoding ``name``, of a test that comes to its end."""
    code, out, err = started(words, folder, ENCODINGS[name])
    assert (code, err) == (ExitCode.FINISHED, b"")
    told = out.decode(ENCODINGS[name].get("PYTHONIOENCODING", "ascii"))
    assert "finished after 210 samples" in told
    return told


@pytest.mark.parametrize("name", [name for name in ENCODINGS if name != "C"])
def test_a_test_at_a_terminal_of_any_encoding_ends_with_its_result(name: str, tmp_path: Path) -> None:
    shown_in(name, RUN, tmp_path)


@pytest.mark.parametrize(
    "name", [name if name == "C" else pytest.param(name, marks=pytest.mark.soak) for name in ENCODINGS]
)
def test_a_test_at_a_terminal_of_any_encoding_ends_with_its_report(name: str, tmp_path: Path) -> None:
    assert "report: x.html" in shown_in(name, [*RUN, "--report", "x.html"], tmp_path)
    assert "µs" in (tmp_path / "x.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "words",
    [
        ["doctor", "--seconds", "0.1"],
        *(
            words
            for words in (
                ["stability", "chen_ricles_2010"],
                ["check", "chen_ricles_2010"],
                ["list"],
                ["params", "axes"],
            )
        ),
    ],
    ids=lambda words: words[0],
)
def test_every_command_speaks_ascii_where_nothing_else_is_understood(words: list[str], tmp_path: Path) -> None:
    code, out, err = started(words, tmp_path, {"PYTHONIOENCODING": "ascii"})
    assert (code, err) == (0, b"")
    assert out.isascii()
    assert b"\\x" not in out


def test_a_scenario_with_letters_of_any_language_runs_in_a_locale_without_them(tmp_path: Path) -> None:
    source = (ROOT / "config" / "scenarios" / "chen_ricles_2010.yaml").read_text(encoding="utf-8")
    (tmp_path / "mine.yaml").write_text(f"{source}\n# Prüfstand 試験\n", encoding="utf-8")
    code, _, err = started(["run", "mine.yaml", "--set", "duration=0.1", "--record", "rec"], tmp_path, PLAIN_C)
    assert (code, err) == (0, b"")
    assert len(read_run(tmp_path / "rec").time) == 111


def ends_as_ever(words: Sequence[str], redirected: str, folder: Path) -> None:
    code, _, err = started(words, folder, redirected=redirected)
    assert code == ExitCode.FINISHED
    assert b"Traceback" not in err
    assert b"Exception" not in err


NOBODY_LISTENS = (">/dev/full", "| true", "| head -1")


@pytest.mark.parametrize("redirected", NOBODY_LISTENS)
def test_a_test_whose_output_nobody_gets_has_its_own_exit_code(redirected: str, tmp_path: Path) -> None:
    ends_as_ever(RUN, redirected, tmp_path)


@pytest.mark.parametrize(
    "redirected",
    [
        *(">&-", "<&- >&- 2>&-", ">/dev/full 2>/dev/full"),
        *(pytest.param(each, marks=pytest.mark.soak) for each in NOBODY_LISTENS),
    ],
)
def test_a_test_whose_output_goes_nowhere_has_its_own_exit_code_and_report(
    redirected: str, tmp_path: Path
) -> None:
    ends_as_ever([*RUN, "--report", "x.html"], redirected, tmp_path)
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
def test_exit_codes_are_those_of_a_terminal(words: list[str], code: int, redirected: str, tmp_path: Path) -> None:
    assert started(words, tmp_path, redirected=redirected)[0] == code


def test_a_full_disk_below_the_output_is_told_once(tmp_path: Path) -> None:
    code, _, err = started(["params", "axes"], tmp_path, redirected=">/dev/full")
    assert code == 0
    assert each_mentions(err.decode().splitlines(), ("rths", "standard output", "No space left"))


@pytest.mark.nodes
@pytest.mark.parametrize("host", ["composed", "processes"])
def test_nodes_without_an_output_record_their_test_and_nothing_else(host: str, tmp_path: Path) -> None:
    """The files of a recording do not get the number of the output that is closed, nor what is printed there."""
    words = [*RUN, "--host", host, "--record", "rec"]
    code, _, _ = started(words, tmp_path, redirected="<&- >&- 2>&-")
    assert code == ExitCode.FINISHED
    run = read_run(tmp_path / "rec")
    assert (run.information["outcome"], len(run.time), run.notes) == ("finished", 211, ())


# the streams themselves


def in_process(text: str, encoding: str, monkeypatch: pytest.MonkeyPatch, path: Path) -> bytes:
    with path.open("w", encoding=encoding, newline="") as file:
        monkeypatch.setattr(sys, "stdout", file)
        with unfailing_output():
            print(text, end="")
    return path.read_bytes()


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
def test_a_character_that_an_encoding_lacks_is_written_in_others(
    text: str, encoding: str, written: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert in_process(text, encoding, monkeypatch, tmp_path / "out") == written


def test_streams_in_memory_and_those_of_before_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = io.StringIO()
    monkeypatch.setattr(sys, "stdout", memory)
    with unfailing_output():
        print("here")
    assert (sys.stdout, memory.getvalue()) == (memory, "here\n")


def test_an_output_that_never_waits_gets_everything(tmp_path: Path) -> None:
    """Another program has made the pipe so; what is written is more than it holds."""
    program = (
        "import os, sys; os.set_blocking(1, False)\n"
        "from rths_nodes.app.streams import unfailing_output\n"
        "with unfailing_output():\n    print('x' * 1_000_000)"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, timeout=60, check=False)
    assert (done.returncode, len(done.stdout), done.stderr) == (0, 1_000_001, b"")


TEXTS = {"read_text", "write_text"}


def test_every_text_file_has_its_encoding() -> None:
    """Otherwise the locale decides: a report could not be written in Beijing, nor a scenario be read."""
    places = []
    for path in sorted((ROOT / "rths_nodes").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and _lacks_encoding(node):
                places.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert places == []


def _lacks_encoding(call: ast.Call) -> bool:
    named = {keyword.arg for keyword in call.keywords}
    if "encoding" in named:
        return False
    if isinstance(call.func, ast.Attribute) and call.func.attr in TEXTS:
        return True
    modes = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    opens = ast.unparse(call.func).endswith("open") and any(set(mode) <= set("rwax+t") for mode in modes)
    text = any(each.arg == "text" and isinstance(each.value, ast.Constant) for each in call.keywords)
    return opens or text
