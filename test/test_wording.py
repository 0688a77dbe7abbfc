# SPDX-License-Identifier: Apache-2.0
"""Wording of code, pages and tests: docstrings begin with a noun or a verb; unusual idioms only become fewer."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import wording

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


@pytest.mark.parametrize("kind", wording.COUNTED)
def test_no_file_has_more_hits_than_are_stored(kind: str) -> None:
    """A stored count is lowered by ``python test/helpers/wording.py --lower`` once a file has fewer hits."""
    stored = wording.stored()[kind]
    more = {file: lines for file, lines in wording.hits(kind).items() if len(lines) > stored.get(file, 0)}
    assert not more, (
        f"{kind}: more than the {[stored.get(file, 0) for file in more]} of helpers/wording.json: {more}"
    )


@pytest.mark.parametrize(
    ("find", "text", "expected"),
    [
        (wording.idioms, 'def f():\n    """In short, tell it."""\n', [(2, "In"), (2, "tell")]),
        (wording.idioms, 'x = "nobody knows that"  # what is late\n', [(1, "nobody"), (1, "what is")]),
        (wording.idioms, '"""Return the noun, once."""\n', []),
        (
            wording.vague_names,
            "def told(each, axis):\n    _found = axis\n",
            [(1, "told"), (1, "each"), (2, "_found")],
        ),
        (wording.sentences, 'assert "no Command for 10 ms" in x, "which is never a hit"\n', []),
        (wording.sentences, 'assert "it had no command" in x\n', [(1, "it had no command")]),
        (wording.sentences, 'pytest.raises(E, match=r"it had no command")\n', [(1, "it had no command")]),
    ],
)
def test_hits_are_those_of_the_text(find: Any, text: str, expected: list[wording.Hit], tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(text, encoding="utf-8")
    assert sorted(find(file)) == sorted(expected)
