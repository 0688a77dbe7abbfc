# SPDX-License-Identifier: Apache-2.0
"""Counts of the source that may only fall."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import rths_nodes

PACKAGE = Path(rths_nodes.__file__).parent
SOURCES = {path.relative_to(PACKAGE): path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
DEFAULTS = {"app": 2, "control": 1, "core": 11, "loop": 3}
"""Room -> calls of ``getattr`` with a default in it: of streams, errors, modules and names that are typed."""


def defaults(source: str) -> int:
    """How often a module asks for a member with a default, which it may have or not."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    names = [(node.func.id, len(node.args)) for node in calls if isinstance(node.func, ast.Name)]
    return names.count(("getattr", 3))


def test_what_may_be_left_out_is_declared_with_its_default() -> None:
    """A member that may be left out stands in a class (``core/declarations.py``): nobody asks for it unseen."""
    found: Counter[str] = Counter()
    for module, source in SOURCES.items():
        found[module.parts[0]] += defaults(source)
    assert {room: count for room, count in found.items() if count} == DEFAULTS
    assert sum(DEFAULTS.values()) <= 25
    assert sum(DEFAULTS.get(room, 0) for room in ("control", "laboratory", "numerical")) <= 5
    assert defaults("getattr(port, 'failure', getattr(port, 'name', '')) or getattr(port, 'failure')") == 2


UNTYPED = 400
"""``Any`` in the package, at most, imports included."""
BY_NAME = {"AnyParams", "Data", "Field", "Function", "Matrix"}
"""Names that stand for ``Any`` or a mapping or function of it, each with a sentence on what it is."""
PLAIN = re.compile(
    r"^(\w+)(?:: TypeAlias)? = (?:Any|dict\[str, Any\]|Mapping\[str, Any\]|Callable\[\.\.\., Any\])$", re.M
)


def test_types_are_told() -> None:
    """Little is ``Any``, and no further name hides it."""
    assert sum(len(re.findall(r"\bAny\b", source)) for source in SOURCES.values()) <= UNTYPED
    assert {name for source in SOURCES.values() for name in PLAIN.findall(source)} == BY_NAME
    assert PLAIN.findall("Rows = dict[str, Any]\nRow = tuple[Any, int]") == ["Rows"]
