# SPDX-License-Identifier: Apache-2.0
"""Counts of unusual idioms, of vague names, and of assertions on whole sentences, per file.

``wording.json`` stores the counts. A file may not rise above its count, and a file that is not in it has none.

    python test/helpers/wording.py           print every hit, with file and line
    python test/helpers/wording.py --lower   store the counts that have fallen; stored counts never rise
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STORED = Path(__file__).with_suffix(".json")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
Hit = tuple[int, str]
"""Line, and the text of the hit."""

BEGINNING = re.compile(
    r"(?:Of|That|Those|What|How|Whether|Who|So|As|Where|There|It|They|Else|By|In|On|At|From|With)\b"
)
"""Beginning of a docstring that delays, or leaves out, its subject."""
IDIOMS = re.compile(
    "|".join(
        (
            r"\b(?:some|no|any)body\b|\bwhoever\b",
            r"\b[Ww]ho (?:asks|listens|looks|waits|closes|hears|speaks|calls|sends|was|made)\b",
            r"\b[Ww]hat (?:is|was|are|were|has|have|had|it|they|he|others|comes|came|goes|stands|never|one|else|"
            r"remains|moves|may|can)\b",
            r"\b[Tt](?:ells?|old|elling)\b",
            r"\b(?:[Hh]ears?|[Hh]eard|[Hh]earing|[Ss]peaks?|[Ss]poken|[Ll]ast words|in words)\b",
            r"\b[Ss](?:tands?|tood)\b(?! still)",
            r"\b[Ss]o (?:long|many|often|much)\b(?! as)|\b[Aa]s far as\b",
            r"\b(?:[Bb]eside|[Bb]ehind)\b",
            r"\b(?:[Tt]hose (?:of|that|which|who)|[Tt]hat of|[Tt]he one|[Tt]he other one|the ones)\b",
            r"\bthat (?:is|are|was|were) (?:given|meant|known|measured|run|armed|recorded|asked|left|said|planned|"
            r"written|computed|built|held|wrong|right|there|missing|late|new|due)\b",
            r"\b(?:is|are|was|were) over\b|\b(?:is|are) good\b|\bgo(?:es)? on\b|\bcom(?:e|es|ing) to (?:an|its|"
            r"the|no) end\b|\bbroken off\b|\blet go\b|\banew\b|\bmeanwhile\b",
        )
    )
)
"""Idioms that an editor would change."""
VAGUE = {"found", "told", "given", "each", "known", "own", "of", "place", "whole", "others", "words", "what"}
VAGUE |= {"which", "heard", "said"}
"""Names of variables, arguments and functions that say nothing of the value."""
SENTENCE = re.compile(r"(?:[A-Za-z'-]+[,;:.]? ){3}[A-Za-z'-]+")
"""Four words in a row."""


def texts_of_python(source: str) -> Iterator[tuple[int, str, bool]]:
    """Yield line, text, and whether it is a docstring or an attribute string, of strings and comments."""
    tree, documentation = ast.parse(source), set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for index, statement in enumerate(body if isinstance(body, list) else ()):
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                documentation.add(value)
                yield statement.lineno, value.value.strip(), index > 0 or isinstance(node, DOCUMENTED)
    for text in strings(tree):
        if text not in documentation and text.value.count(" ") >= 2:
            yield text.lineno, text.value.strip(), False
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# "), False


def texts_of_page(source: str) -> Iterator[tuple[int, str, bool]]:
    """Yield line, text and False, of a page without its blocks of code."""
    fenced = False
    for number, line in enumerate(source.split("\n"), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith("    "):
            yield number, line.strip(), False


def idioms(path: Path) -> Iterator[Hit]:
    """Yield unusual idioms of a module or a page."""
    read = texts_of_python if path.suffix == ".py" else texts_of_page
    for line, text, documentation in read(path.read_text(encoding="utf-8")):
        matches = list(IDIOMS.finditer(text))
        if documentation and (first := BEGINNING.match(text)):
            matches.append(first)
        for match in matches:
            yield line + text.count("\n", 0, match.start()), match[0]


def vague_names(path: Path) -> Iterator[Hit]:
    """Yield vague names that a module binds."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            name = node.name
        else:
            continue
        if name.strip("_") in VAGUE:
            yield node.lineno, name


def sentences(path: Path) -> Iterator[Hit]:
    """Yield strings with four words in a row of assertions, of ``match=``, and of parametrised rows."""
    if path.name in ("test_pinned_words.py", "test_wording.py"):
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        compared: list[ast.AST] = []
        if isinstance(node, ast.Assert):
            compared = [node.test]
        elif isinstance(node, ast.Call):
            compared = [keyword.value for keyword in node.keywords if keyword.arg == "match"]
            if isinstance(node.func, ast.Attribute) and node.func.attr == "parametrize":
                compared += node.args[1:2]
        for text in (text for each in compared for text in strings(each)):
            if SENTENCE.search(text.value):
                yield text.lineno, text.value


def strings(tree: ast.AST) -> Iterator[ast.Constant]:
    """Yield the string constants of a tree."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node


PROGRAMS = tuple(f"{folder}/**/*.py" for folder in ("rths_nodes", "test", "benchmarks", "examples", "doc"))
COUNTED: dict[str, tuple[Callable[[Path], Iterator[Hit]], tuple[str, ...]]] = {
    "idioms": (idioms, (*PROGRAMS, "doc/*.md", "README.md", "CONTRIBUTING.md")),
    "vague names": (vague_names, PROGRAMS),
    "sentences": (sentences, ("test/**/*.py",)),
}
"""Function that finds the hits, and the files, of each kind."""


def hits(kind: str) -> dict[str, list[Hit]]:
    """Return the hits of a kind, by file; files without one are left out."""
    find, patterns = COUNTED[kind]
    files = sorted(path for pattern in patterns for path in ROOT.glob(pattern))
    result = {path.relative_to(ROOT).as_posix(): sorted(find(path)) for path in files}
    return {file: lines for file, lines in result.items() if lines}


def stored() -> dict[str, dict[str, int]]:
    """Return the stored counts, by kind and file."""
    counts: dict[str, dict[str, int]] = json.loads(STORED.read_text(encoding="utf-8"))
    return counts


def main() -> None:
    """Print every hit, or lower the stored counts."""
    if "--lower" in sys.argv:
        bounds = stored()
        counts = {kind: {file: len(lines) for file, lines in hits(kind).items()} for kind in COUNTED}
        lowered = {
            kind: {file: min(bound, counts[kind][file]) for file, bound in files.items() if file in counts[kind]}
            for kind, files in bounds.items()
        }
        STORED.write_text(json.dumps(lowered, indent=0, sort_keys=True) + "\n", encoding="utf-8")
        return
    for kind in COUNTED:
        for file, lines in hits(kind).items():
            for line, text in lines:
                print(f"{file}:{line}: {kind}: {text!r}")


if __name__ == "__main__":
    main()
