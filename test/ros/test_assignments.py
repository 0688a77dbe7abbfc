# SPDX-License-Identifier: Apache-2.0
"""Objects are ready when built, of few things: only an object itself sets its attributes, or who has made it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROS = Path(__file__).resolve().parents[2] / "rths_nodes" / "ros"

GATHERED = "result"
"""What the hosts gather of a run (``hosting/results.py``): a record that is filled as the nodes tell more."""


def foreign_assignments(source: str) -> list[str]:
    """Every attribute, with its line, that a function sets on an object which it did not make itself.

    An object is made where its name is assigned what a class gives; what hangs on it is made with it. An entry of
    somebody's container counts as an attribute: ``node.inboxes["command"] = ...``.
    """
    return [
        f"{target.lineno}: {ast.unparse(target)}"
        for function in ast.walk(ast.parse(source))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for target in _targets(function)
        if not _own(target, {node.id for node in _made(function)})
    ]


def _own(target: ast.expr, made: set[str]) -> bool:
    if isinstance(target, ast.Subscript):
        target = target.value
        if isinstance(target, ast.Name):
            return True  # a container at hand
    if not isinstance(target, ast.Attribute):
        return True
    holder = target.value
    if isinstance(holder, ast.Name) and holder.id in ("self", "cls"):
        return True
    if ast.unparse(holder).endswith(GATHERED) or ast.unparse(target) == "os.environ":
        return True
    while isinstance(holder, ast.Attribute):
        holder = holder.value
    return isinstance(holder, ast.Name) and holder.id in made


def _targets(function: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from target.elts if isinstance(target, ast.Tuple) else [target]
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            yield node.target


def _made(function: ast.AST) -> Iterator[ast.Name]:
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and _is_class(node.value.func):
            yield from (target for target in node.targets if isinstance(target, ast.Name))


def _is_class(called: ast.expr) -> bool:
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name[:1].isupper()


def test_attributes_are_set_by_their_object_or_its_maker() -> None:
    found = {str(path.relative_to(ROS)): foreign_assignments(path.read_text()) for path in ROS.rglob("*.py")}
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "line",
    [
        "node.codec = codec",
        "self.rig.port.pacer = pacer",
        'node.inboxes["command"] = tray',
        "node.malformed += 1",
        "rig = next(nodes); rig.prepare = prepare",
    ],
)
def test_what_is_set_from_outside_is_found(line: str) -> None:
    assert foreign_assignments(f"def function(self, node):\n    {line}")


@pytest.mark.parametrize(
    "line",
    [
        "self.codec = codec",
        'self._kept["command"] = tray',
        "message = JointState(); message.header.stamp.sec = 3",
        'counts["command"] = 3',
    ],
)
def test_what_is_ones_own_passes(line: str) -> None:
    assert foreign_assignments(f"def function(self):\n    {line}") == []


MOST = 6
"""Arguments of a constructor. Who needs more shows a noun that is missing, as ``RigContext`` was."""


def wanted(source: str) -> dict[str, int]:
    """Number of arguments of each class that takes too many; of a dataclass, of its fields without a default."""
    found = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            count = 0
            for entry in node.body:
                if isinstance(entry, ast.FunctionDef) and entry.name == "__init__":
                    given = entry.args
                    count += len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs) - 1
                elif isinstance(entry, ast.AnnAssign) and entry.value is None:
                    count += any("dataclass" in ast.unparse(each) for each in node.decorator_list)
            if count > MOST:
                found[node.name] = count
    return found


def test_no_object_is_built_of_many_things() -> None:
    found = {str(path.relative_to(ROS)): wanted(path.read_text()) for path in ROS.rglob("*.py")}
    assert {path: classes for path, classes in found.items() if classes} == {}


def test_what_is_built_of_many_things_is_found() -> None:
    assert wanted("class A:\n  def __init__(self, a, b, c, d, *, e, f, g): ...") == {"A": 7}
    fields = "".join(f"\n  {name}: int" for name in "abcdefg")
    assert wanted(f"@dataclass(frozen=True)\nclass A:{fields}") == {"A": 7}
    assert wanted(f"class A:{fields}") == {}
