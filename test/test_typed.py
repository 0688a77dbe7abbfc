# SPDX-License-Identifier: Apache-2.0
"""What the documents ask a reader to type: commands are understood, Python runs and prints what is shown.

A ``console`` block is run and compared (``test_documents.py``). A ``python`` block is run here, but for one that
is marked in the line before it: ``<!-- run by FILE -->`` where a test takes it from the page, and
``<!-- illustration -->`` where it is a part of something. An indented block is an illustration by its form: what
it has typed is not run, but read as the program would read it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rths_nodes.app import cli
from rths_nodes.loop import options
from rths_nodes.loop.scenario import files

ROOT = Path(__file__).resolve().parents[1]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "doc").glob("*.md"), *(ROOT / "examples").rglob("*.md")]
ILLUSTRATION = "illustration"
FENCE = re.compile(r"^(?:<!-- ([^\n]*) -->\n)?```python\n(.*?)^```\n(?:\n((?:    [^\n]*\n)+))?", re.M | re.S)
"""Mark, code, and the indented block behind it: what it prints."""
LAUNCHED = re.compile(r"ros2 launch rths_nodes (\S+)(.*)")
READERS = {"my_rig.yaml", "compensator.type=feedforward"}
"""What is made by the reader of these pages."""


def typed() -> Iterator[Any]:
    """Every line of an indented block, continued ones in one piece, without what is said of it."""
    for page in sorted(PAGES):
        text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
        for line in re.sub(r"\\\n\s*", "", text).splitlines():
            if line.startswith("    ") and line.strip():
                yield pytest.param(page, line.strip(), id=f"{page.stem}-{line.strip()[:60]}")


def lines(*beginnings: str) -> list[Any]:
    return [each for each in typed() if str(each.values[1]).startswith(beginnings)]


@cache
def parser() -> argparse.ArgumentParser:
    return cli._parser()


def words_of(line: str) -> list[str]:
    """The words of a command up to what a shell does with it."""
    words = shlex.split(line, comments=True)
    ends = [number for number, word in enumerate(words) if word in ("|", ">", ">>", "&", "&&", ";")]
    return words[: ends[0]] if ends else words


@pytest.mark.parametrize(("page", "line"), lines("rths "))
def test_a_command_is_understood(page: Path, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its parser; a shipped scenario is read as well, with what is set in it."""
    monkeypatch.chdir(ROOT)
    told, ended = io.StringIO(), None
    with contextlib.redirect_stderr(told):
        try:
            given = parser().parse_args(words_of(line)[1:])
        except SystemExit as end:  # --help ends with 0
            ended = end.code
    assert not ended, told.getvalue()
    scenario = "" if ended is not None else getattr(given, "scenario", "")
    if scenario not in files.shipped() or READERS & {*words_of(line)}:
        return
    sets = getattr(given, "set", None) or []
    variants = getattr(given, "variant", None) or [""]
    for variant in [[*sets, *each.split()] for each in variants]:
        files.load(scenario, variant, getattr(given, "case", None) or "", getattr(given, "rig", None) or "")


@pytest.mark.parametrize(("page", "line"), lines("ros2 launch rths_nodes "))
def test_a_launch_file_is_there_with_its_arguments(page: Path, line: str) -> None:
    file, rest = LAUNCHED.match(line).groups()
    own = (ROOT / "rths_nodes" / "ros" / "hosting" / "launch_actions.py", ROOT / "launch" / file)
    texts = "".join(path.read_text(encoding="utf-8") for path in own)
    named = re.findall(r'^    "(\w+)": \(|\bdeclare\(\s*"(\w+)"', texts, re.M)
    known = {option.name for option in options.options(options.LAUNCH).values()}
    known |= {one or other for one, other in named}
    assert {word.partition(":=")[0] for word in words_of(rest) if ":=" in word} <= known


TARGETS = re.compile(r"^([\w -]+):", re.M)
"""The targets of a Makefile, by line."""


@pytest.mark.parametrize(("page", "line"), lines("make ", "python ", "python3 ", "cp "))
def test_a_file_or_a_target_that_is_named_is_there(page: Path, line: str) -> None:
    program, *words = words_of(line)
    if program == "make":
        folders = [page.parent, ROOT]
        if words[0] == "-C":
            folders, words = [ROOT / words[1]], words[2:]
        else:  # "in `examples/...`" says where it is typed
            told = re.findall(r"in\s`(examples/\w+)`", page.read_text(encoding="utf-8"))
            folders += [ROOT / each for each in told]
        made = [path.read_text(encoding="utf-8") for each in folders if (path := each / "Makefile").is_file()]
        targets = {name for text in made for line in TARGETS.findall(text) for name in line.split()}
        assert [word for word in words if "=" not in word and word not in targets] == []
    else:
        first = next(word for word in words if not word.startswith("-"))
        # "../../" leads back to the checkout from a folder of runs/
        assert (ROOT / first.removeprefix("../../")).exists()


def blocks() -> list[Any]:
    """Every Python block: page, mark, code, and what it prints."""
    found = []
    for page in sorted(PAGES):
        for number, block in enumerate(FENCE.finditer(page.read_text(encoding="utf-8"))):
            found.append(pytest.param(page, *block.groups(), id=f"{page.stem}-{number}"))
    return found


def test_every_block_is_found() -> None:
    for page in PAGES:
        fences = re.findall(r"^```(?:python|py|bash|sh|shell)\b", page.read_text(encoding="utf-8"), re.M)
        assert len(fences) == sum(block.values[0] == page for block in blocks()), page


@pytest.mark.parametrize(("page", "mark", "code", "shown"), blocks())
def test_a_block_runs_and_prints_what_is_shown(
    page: Path, mark: str | None, code: str, shown: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mark == ILLUSTRATION:
        compile(f"{{{code}}}" if code.startswith(" ") else code, page.name, "exec")
        return
    if mark is not None:
        file = re.fullmatch(r"run by (test/\S+\.py)", mark)
        assert file, mark
        assert f'"{page.name}"' in (ROOT / file[1]).read_text(encoding="utf-8")
        return
    monkeypatch.chdir(tmp_path)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, page.name, "exec"), {"__name__": "typed"})
    if shown is not None:
        assert printed.getvalue().split() == shown.split()
