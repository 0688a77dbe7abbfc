# SPDX-License-Identifier: Apache-2.0
"""Tests of the wording of code, pages and tests, against stored counts that may only fall."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import wording

ROOT = Path(__file__).resolve().parents[1]
MODULES = sorted(path for top in ("rths_nodes", "benchmarks", "examples") for path in (ROOT / top).rglob("*.py"))
TOPS = ("rths_nodes", "test", "benchmarks", "doc", "examples", "launch")
FILES = [str(path) for top in TOPS for path in (ROOT / top).rglob("*.*")]
INDIRECT = ("What", "How", "Of", "That", "Those", "Whether", "Who", "So")
"""First words that delay, or leave out, the subject of a docstring."""


def indirect_docstrings(text: str) -> list[str]:
    """Line and first line of each docstring of a module that begins with one of INDIRECT."""
    hits = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            docstring = ast.get_docstring(node)
            if docstring and docstring.split()[0].rstrip(",.:") in INDIRECT:
                hits.append(f"{getattr(node, 'lineno', 1)}: {docstring.splitlines()[0]}")
    return hits


def missing_files(text: str) -> list[str]:
    """Files in double backquotes, such as ``core/samples.py``, that the project does not contain."""
    names = re.findall(r"``([\w/]+\.(?:py|md|c|h))``", text)
    return [name for name in names if not any(path.endswith(f"/{name}") for path in FILES)]


@pytest.mark.parametrize("check", [indirect_docstrings, missing_files])
def test_docstrings_are_direct_and_named_files_exist(check: Callable[[str], list[str]]) -> None:
    hits = {str(path.relative_to(ROOT)): check(path.read_text(encoding="utf-8")) for path in MODULES}
    assert {path: lines for path, lines in hits.items() if lines} == {}


@pytest.mark.parametrize("docstring", ["What a node says.", "Of one node.", "Whether it moves."])
def test_indirect_docstring_is_reported(docstring: str) -> None:
    assert indirect_docstrings(f'def f():\n    """{docstring}"""\n') == [f"1: {docstring}"]


def test_missing_file_is_reported() -> None:
    assert missing_files("as ``nowhere/at_all.py``") == ["nowhere/at_all.py"]


@pytest.mark.parametrize("kind", wording.COUNTED)
def test_hits_do_not_exceed_stored_counts(kind: str) -> None:
    """``python test/helpers/wording.py --lower`` lowers the stored counts."""
    stored = wording.stored()[kind]
    excess = {file: lines for file, lines in wording.hits(kind).items() if len(lines) > stored.get(file, 0)}
    counts = [stored.get(file, 0) for file in excess]
    assert not excess, f"{kind}: more than the {counts} of helpers/wording.json: {excess}"


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
def test_hits_are_located(find: Any, text: str, expected: list[wording.Hit], tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(text, encoding="utf-8")
    assert sorted(find(file)) == sorted(expected)
