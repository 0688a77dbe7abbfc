# SPDX-License-Identifier: Apache-2.0
"""Tests of the commands and the Python code that the documents ask a reader to type.

A ``console`` block is run and compared (``test_documents.py``). A ``python`` block is run here, unless the line
before it has a mark: ``<!-- run by FILE -->`` if a test takes it from the page, ``<!-- illustration -->`` if it is
a fragment. Lines of an indented block are not run; their commands are parsed.
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
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "doc").glob("*.md"), *(ROOT / "examples").rglob("*.md")])
FENCE = re.compile(r"^(?:<!-- ([^\n]*) -->\n)?```python\n(.*?)^```\n(?:\n((?:    [^\n]*\n)+))?", re.M | re.S)
"""Mark, code, and the indented block after it, which is the printed output."""
MADE_BY_READER = {"my_rig.yaml", "compensator.type=feedforward"}

parser = cache(cli._parser)


def lines(*beginnings: str) -> Iterator[Any]:
    """Lines of the indented blocks with one of ``beginnings``; continued lines are joined."""
    for page in PAGES:
        text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
        for line in re.sub(r"\\\n\s*", "", text).splitlines():
            if line.startswith("    ") and line.strip().startswith(beginnings):
                yield pytest.param(page, line.strip(), id=f"{page.stem}-{line.strip()[:60]}")


def arguments_of(line: str) -> list[str]:
    """Program and arguments of a command, up to the first operator of the shell."""
    arguments = shlex.split(line, comments=True)
    ends = [number for number, text in enumerate(arguments) if text in ("|", ">", ">>", "&", "&&", ";")]
    return arguments[: ends[0]] if ends else arguments


@pytest.mark.parametrize(("page", "line"), lines("rths "))
def test_command_is_parsed(page: Path, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shipped scenario is loaded as well, with its overrides."""
    monkeypatch.chdir(ROOT)
    errors, arguments, code = io.StringIO(), argparse.Namespace(), None
    with contextlib.redirect_stderr(errors):
        try:
            arguments = parser().parse_args(arguments_of(line)[1:])
        except SystemExit as end:  # --help ends with 0
            code = end.code
    assert not code, errors.getvalue()
    scenario = getattr(arguments, "scenario", "")
    if scenario not in files.shipped() or MADE_BY_READER & {*arguments_of(line)}:
        return
    overrides = getattr(arguments, "set", None) or []
    case, rig = getattr(arguments, "case", None) or "", getattr(arguments, "rig", None) or ""
    for variant in getattr(arguments, "variant", None) or [""]:
        files.load(scenario, [*overrides, *variant.split()], case, rig)


@pytest.mark.parametrize(("page", "line"), lines("ros2 launch rths_nodes "))
def test_launch_file_exists_and_has_arguments(page: Path, line: str) -> None:
    _, _, _, file, *arguments = arguments_of(line)
    sources = (ROOT / "rths_nodes" / "ros" / "hosting" / "launch_actions.py", ROOT / "launch" / file)
    text = "".join(path.read_text(encoding="utf-8") for path in sources)
    names = {option.name for option in options.options(options.LAUNCH).values()}
    names |= {*re.findall(r'^    "(\w+)": \(', text, re.M), *re.findall(r'\bdeclare\(\s*"(\w+)"', text)}
    assert {argument.partition(":=")[0] for argument in arguments if ":=" in argument} <= names


@pytest.mark.parametrize(("page", "line"), lines("make ", "python ", "python3 ", "cp "))
def test_named_file_or_make_target_exists(page: Path, line: str) -> None:
    program, *arguments = arguments_of(line)
    if program != "make":
        file = next(argument for argument in arguments if not argument.startswith("-"))
        # "../../" leads back to the checkout from a folder of runs/
        assert (ROOT / file.removeprefix("../../")).exists()
        return
    if arguments[0] == "-C":
        folders, arguments = [ROOT / arguments[1]], arguments[2:]
    else:  # "in `examples/...`" names the working folder
        stated = re.findall(r"in\s`(examples/\w+)`", page.read_text(encoding="utf-8"))
        folders = [page.parent, ROOT, *(ROOT / name for name in stated)]
    makefiles = [path.read_text(encoding="utf-8") for folder in folders if (path := folder / "Makefile").is_file()]
    rules = [rule for text in makefiles for rule in re.findall(r"^([\w -]+):", text, re.M)]
    targets = {name for rule in rules for name in rule.split()}
    assert [argument for argument in arguments if "=" not in argument and argument not in targets] == []


def blocks() -> Iterator[Any]:
    """Page, mark, code and printed output of each Python block."""
    for page in PAGES:
        for number, block in enumerate(FENCE.finditer(page.read_text(encoding="utf-8"))):
            yield pytest.param(page, *block.groups(), id=f"{page.stem}-{number}")


def test_every_block_of_code_is_tested() -> None:
    for page in PAGES:
        fences = re.findall(r"^```(?:python|py|bash|sh|shell)\b", page.read_text(encoding="utf-8"), re.M)
        assert len(fences) == sum(block.values[0] == page for block in blocks()), page


@pytest.mark.parametrize(("page", "mark", "code", "expected"), blocks())
def test_block_runs_and_prints_documented_output(
    page: Path, mark: str | None, code: str, expected: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mark == "illustration":
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
    if expected is not None:
        assert printed.getvalue().split() == expected.split()
