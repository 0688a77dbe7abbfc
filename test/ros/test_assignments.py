# SPDX-License-Identifier: Apache-2.0
"""Rules for the construction of objects: no assignments from outside, few arguments, no component built twice."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from loop_parts import declared

from rths_nodes.loop.scenario import files
from rths_nodes.ros import names

ROS = Path(__file__).resolve().parents[2] / "rths_nodes" / "ros"
GATHERED = "result"
"""Record of a run that the hosts fill while the nodes report (``hosting/processes.py``)."""
MOST = 6
"""Maximum number of constructor arguments. More of them show that a class is missing, as ``RigContext`` was."""


def foreign_assignments(source: str) -> list[str]:
    """Return each attribute, with its line, that a function sets on an object which it did not create.

    A function creates an object by assigning the result of a class to a name; this includes the attributes of the
    object. An entry of another object's container counts as an attribute: ``node.inboxes["command"] = ...``.
    """
    return [
        f"{target.lineno}: {ast.unparse(target)}"
        for function in ast.walk(ast.parse(source))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for target in _targets(function)
        if not _may_be_set(target, {node.id for node in _created(function)})
    ]


def _may_be_set(target: ast.expr, created: set[str]) -> bool:
    if isinstance(target, ast.Subscript):
        target = target.value
        if isinstance(target, ast.Name):
            return True  # a local container
    if not isinstance(target, ast.Attribute):
        return True
    holder = target.value
    if isinstance(holder, ast.Name) and holder.id in ("self", "cls"):
        return True
    if ast.unparse(holder).endswith(GATHERED) or ast.unparse(target) == "os.environ":
        return True
    while isinstance(holder, ast.Attribute):
        holder = holder.value
    return isinstance(holder, ast.Name) and holder.id in created


def _targets(function: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from target.elts if isinstance(target, ast.Tuple) else [target]
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            yield node.target


def _created(function: ast.AST) -> Iterator[ast.Name]:
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and _is_class(node.value.func):
            yield from (target for target in node.targets if isinstance(target, ast.Name))


def _is_class(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name[:1].isupper()


def large_constructors(source: str) -> dict[str, int]:
    """Return the classes with too many arguments (of a dataclass: fields without a default), and their number."""
    counts = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            count = 0
            for entry in node.body:
                if isinstance(entry, ast.FunctionDef) and entry.name == "__init__":
                    arguments = entry.args
                    count += len([*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]) - 1
                elif isinstance(entry, ast.AnnAssign) and entry.value is None:
                    count += any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)
            if count > MOST:
                counts[node.name] = count
    return counts


@pytest.mark.parametrize("find", [foreign_assignments, large_constructors])
def test_classes_are_constructed_by_the_rules(find: Callable[[str], Any]) -> None:
    hits = {str(path.relative_to(ROS)): find(path.read_text()) for path in ROS.rglob("*.py")}
    assert {path: lines for path, lines in hits.items() if lines} == {}


@pytest.mark.parametrize(
    ("line", "foreign"),
    [
        ("node.codec = codec", True),
        ("self.rig.port.pacer = pacer", True),
        ('node.inboxes["command"] = tray', True),
        ("node.malformed += 1", True),
        ("rig = next(nodes); rig.prepare = prepare", True),
        ("self.codec = codec", False),
        ('self._kept["command"] = tray', False),
        ("message = JointState(); message.header.stamp.sec = 3", False),
        ('counts["command"] = 3', False),
    ],
)
def test_foreign_assignments_are_detected(line: str, foreign: bool) -> None:
    assert bool(foreign_assignments(f"def function(self, node):\n    {line}")) == foreign


def test_large_constructors_are_detected() -> None:
    assert large_constructors("class A:\n  def __init__(self, a, b, c, d, *, e, f, g): ...") == {"A": 7}
    fields = "".join(f"\n  {name}: int" for name in "abcdefg")
    assert large_constructors(f"@dataclass(frozen=True)\nclass A:{fields}") == {"A": 7}
    assert large_constructors(f"class A:{fields}") == {}


NAME = "phillips_spencer_2012"
TWINS = {
    names.INTEGRATOR: ("structure", "damping", "restoring_force", "integrator", "setup", "semi_active"),
    names.COMPENSATOR: ("ramp", "setup", "compensator"),
}
"""Components that a node builds a second time for its warm-up."""


@pytest.mark.parametrize("pace", ["lockstep", "realtime"])
@pytest.mark.parametrize("role", names.NODES)
def test_node_builds_no_component_twice(role: str, pace: str, by_hand: Any, built: Counter[str]) -> None:
    pytest.importorskip("rclpy")
    loaded = files.load(NAME, ["substeps=2"])
    with by_hand.node(role, scenario=NAME, overrides=["substeps=2"], pace=pace):
        pass
    twins = TWINS.get(role, ()) if pace == "realtime" else ()
    for name, count in declared(loaded).items():
        assert built[name] <= count * (1 + (name.partition(" ")[0] in twins)), name
