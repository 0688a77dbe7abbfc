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
DEFAULTS = {"app": 1, "control": 1, "core": 11, "loop": 3}
"""Room -> calls of ``getattr`` with a default: for streams, errors, modules and typed names."""
ALIASES = {"AnyParams", "Data", "Field", "Function", "Matrix"}
"""Documented names for ``Any``, or for a mapping or function of it."""
ALIAS = re.compile(
    r"^(\w+)(?:: TypeAlias)? = (?:Any|dict\[str, Any\]|Mapping\[str, Any\]|Callable\[\.\.\., Any\])$", re.M
)


def defaults(source: str) -> int:
    """Number of calls of ``getattr`` with a default."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return sum(getattr(node.func, "id", "") == "getattr" and len(node.args) == 3 for node in calls)


def test_optional_members_are_declared_with_their_defaults() -> None:
    """A class of ``core/parameters.py`` states an optional member, so that no caller needs ``getattr``."""
    counts: Counter[str] = Counter()
    for module, source in SOURCES.items():
        counts[module.parts[0]] += defaults(source)
    assert +counts == DEFAULTS
    assert sum(DEFAULTS.values()) <= 25
    assert sum(DEFAULTS.get(room, 0) for room in ("control", "laboratory", "numerical")) <= 5
    assert defaults("getattr(port, 'failure', getattr(port, 'name', '')) or getattr(port, 'failure')") == 2


def test_untyped_code_does_not_increase() -> None:
    """At most 400 ``Any`` in the package, imports included, and no further alias of it."""
    assert sum(len(re.findall(r"\bAny\b", source)) for source in SOURCES.values()) <= 400
    assert {name for source in SOURCES.values() for name in ALIAS.findall(source)} == ALIASES
    assert ALIAS.findall("Rows = dict[str, Any]\nRow = tuple[Any, int]") == ["Rows"]
