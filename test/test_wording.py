# SPDX-License-Identifier: Apache-2.0
"""Wording of the code: docstrings begin with a thing or an action, and the files that they name are there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MODULES = sorted(path for top in ("rths_nodes", "benchmarks", "examples") for path in (ROOT / top).rglob("*.py"))
RIDDLES = ("What", "How", "Of", "That", "Those", "Whether", "Who", "So")
"""Words with which no docstring begins: they put off, or leave out, what it is about."""
TOPS = ("rths_nodes", "test", "benchmarks", "doc", "examples", "launch")
FILES = [str(path) for top in TOPS for path in (ROOT / top).rglob("*.*")]


def docstrings(text: str) -> Iterator[tuple[int, str]]:
    """Line and first line of each docstring of a module."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            words = ast.get_docstring(node)
            if words:
                yield getattr(node, "lineno", 1), words.splitlines()[0]


def riddles(text: str) -> list[str]:
    """Docstrings of a module that begin with one of RIDDLES, with their lines."""
    return [f"{line}: {words}" for line, words in docstrings(text) if words.split()[0].rstrip(",.:") in RIDDLES]


def test_docstrings_begin_with_a_thing_or_an_action() -> None:
    found = {path: riddles(path.read_text(encoding="utf-8")) for path in MODULES}
    assert not {str(path.relative_to(ROOT)): lines for path, lines in found.items() if lines}


@pytest.mark.parametrize("words", ["What a node says.", "Of one node.", "Whether it moves."])
def test_a_riddle_is_found(words: str) -> None:
    assert riddles(f'def f():\n    """{words}"""\n') == [f"1: {words}"]


def missing(text: str) -> list[str]:
    """Files in double quotes of code, as ``core/samples.py``, that are nowhere in the project."""
    named = re.findall(r"``([\w/]+\.(?:py|md|c|h))``", text)
    return [name for name in named if not any(path.endswith(f"/{name}") for path in FILES)]


def test_files_that_the_code_names_are_there() -> None:
    found = {path: missing(path.read_text(encoding="utf-8")) for path in MODULES}
    assert not {str(path.relative_to(ROOT)): names for path, names in found.items() if names}
    assert missing("as ``nowhere/at_all.py``") == ["nowhere/at_all.py"]
