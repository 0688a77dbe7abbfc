# SPDX-License-Identifier: Apache-2.0
"""Who may import what: read from the source, lazy and typing imports included, and seen in a fresh process."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

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
        "core",
        "mechanics",
        "numerical",
        "control",
        "laboratory",
        "loop",
        "procedure",
        "recording",
        "analysis",
        "ros",
    },
    "": {"core", "app", "loop", "recording"},  # the package itself: run, load, read
}
"""Room -> rooms that it may import from, beside itself."""

NUMBERS = {"numpy", "scipy"}
ROS = {
    *("rclpy", "rclcpp", "launch", "launch_ros", "ament_index_python", "rpyutils", "rosidl_runtime_py"),
    *("builtin_interfaces", "diagnostic_msgs", "lifecycle_msgs", "rcl_interfaces", "rosgraph_msgs"),
    *("sensor_msgs", "std_msgs", "std_srvs"),
}
EXTERNAL = {
    "core/parameters.py": NUMBERS | {"attrs"},
    "core/validation.py": {"attrs"},
    "core/parameter_table.py": {"attrs"},
    "core/yaml_text.py": {"yaml"},
    "core/mat_files.py": NUMBERS | {"h5py"},
    "core/table_process.py": NUMBERS | {"h5py"},
    "core/opensees/model_process.py": {"openseespy"},
    "core/fmu/model_process.py": {"fmpy"},
    "core/fmu/description.py": {"fmpy"},
    "numerical/ground_motions/readers/waveforms.py": NUMBERS | {"obspy"},
    "loop/options.py": {"attrs"},
    "loop/scenario/": NUMBERS | {"attrs"},
    "recording/": NUMBERS | {"mcap", "attrs"},
    "analysis/figures/": NUMBERS | {"matplotlib"},
    "app/api.py": {"matplotlib"},
    "app/results.py": NUMBERS | {"matplotlib", "pandas"},
    "analysis/report/": NUMBERS | {"jinja2"},
    "ros/": NUMBERS | ROS | {"attrs", "yaml"},
    "app/page/": {"aiohttp"},
    "app/commands/replay.py": {"aiohttp"},
    "app/studies/": NUMBERS | {"joblib", "distributed", "pyarrow", "cloudpickle", "pandas", "matplotlib"},
    "app/": NUMBERS | {"argcomplete", "rich"},
    "": NUMBERS,
}
"""Place (a file, a folder, or all) -> what of other projects may be imported there; the first place that fits."""

LAYERS = {
    "loop": (
        ("clock_offset", "indices", "interrupts", "last_words", "options", "pacing", "realtime", "timing"),
        ("supervision",),
        ("watch",),
        ("outcomes", "procedure_record", "scenario"),
        ("commissioning", "provenance", "stages", "warm_up"),
        ("embedded",),
        ("compiled",),
        ("executive",),
        ("faults",),
    ),
    "procedure": (
        ("clearance", "motions"),
        ("drive", "following", "machine"),
        ("rungs",),
        ("checks", "small_move", "unloading"),
        ("session",),
        ("commissioning",),
    ),
    "recording": (
        ("run", "records", "tables"),
        ("columns", "plain"),
        ("procedure", "commissioning"),
        ("journal",),
        ("bag",),
        ("sink", "reading"),
    ),
    "analysis": (
        (
            *("units", "paper", "linear_reference", "stability", "histories", "energy"),
            *("response_errors", "published_indices", "identification"),
        ),
        ("cautions", "study_table", "share_of_structure", "overlay"),
        ("index_definitions", "iteration"),
        ("figures",),
        ("report",),
    ),
    "ros": (
        *(("names", "environment", "rig_model"), ("stack_files",), ("transport",)),
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
"""Room -> its parts, lower ones first: none imports from a part of a later group."""

FAMILY_ROOMS = {
    "ground_motion": "numerical",
    "structure": "numerical",
    "damping": "numerical",
    "restoring_force": "numerical",
    "reduction": "numerical",
    "integrator": "numerical",
    "ramp": "control",
    "setup": "control",
    "compensator": "control",
    "semi_active": "control",
    "force_controller": "control",
    "actuator": "laboratory",
    "specimen": "laboratory",
    "rig": "laboratory",
    "port": "laboratory",
    "quantity": "loop",
}
"""Family -> the room in which its members stand."""

ELSEWHERE = {"port": {"rths_nodes.ros.ports.ros2_control:Ros2ControlPort"}}
"""Members that need ROS, and are only named in the table of their family."""


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


def room_and_part(module: str) -> tuple[str, str]:
    """``ros/nodes/base.py`` -> ``ros`` and ``nodes``; the package itself is the room ``""``."""
    words = module.removesuffix(".py").removesuffix("/__init__").split("/")
    if words[0] in ("__init__", "__main__"):
        return "", ""
    return words[0], words[1] if len(words) > 1 else ""


def place_of(name: str) -> str:
    """The module (a path) that a dotted name of the package means, or that holds it; empty for none."""
    words = name.split(".")[1:]
    for end in (len(words), len(words) - 1):
        path = "/".join(words[:end])
        for file in (f"{path}.py", f"{path}/__init__.py".lstrip("/")):
            if file in MODULES:
                return file
    return ""


def layer(room: str, part: str) -> int | None:
    """Number of the layer that a part of a room belongs to; None where there is no order."""
    for number, parts in enumerate(LAYERS.get(room, ())):
        if part in parts:
            return number
    return None


def breaches(module: str, names: set[str]) -> list[str]:
    """The imports that ``module`` (a path in the package) must not have."""
    room, part = room_and_part(module)
    external = next(allowed for place, allowed in EXTERNAL.items() if module.startswith(place))
    found = []
    for name in sorted(names):
        top = name.split(".")[0]
        if top != "rths_nodes":
            if top not in sys.stdlib_module_names and top not in external:
                found.append(name)
            continue
        if name.startswith("rths_nodes.msg"):
            found += [] if room == "ros" else [name]
            continue
        other, other_part = room_and_part(place_of(name) or "__init__.py")
        if place_of(name) == "__init__.py" and room != "":
            if name.count(".") == 1 and name != "rths_nodes.msg" and name.split(".")[1] not in ALLOWED:
                found.append(name)  # what the package itself holds: only users take it from there
        elif other not in ALLOWED[room] | {room}:
            found.append(name)
        elif other == room and (mine := layer(room, part)) is not None:
            theirs = layer(room, other_part)
            if theirs is not None and theirs > mine:
                found.append(name)
    return found


def test_imports_follow_the_rule() -> None:
    found = {module: breaches(module, imported((PACKAGE / module).read_text(), module)) for module in MODULES}
    assert {module: names for module, names in found.items() if names} == {}


def test_every_part_of_a_layered_room_has_its_layer() -> None:
    parts = {room_and_part(module) for module in MODULES}
    assert [
        (room, part) for room, part in sorted(parts) if room in LAYERS and part and layer(room, part) is None
    ] == []


def test_there_is_no_circle() -> None:
    arrows = {
        module: {place_of(name) for name in imported((PACKAGE / module).read_text(), module)} - {"", module}
        for module in MODULES
        if not module.endswith("__init__.py")
    }
    while leaves := [module for module, others in arrows.items() if not others & arrows.keys()]:
        for module in leaves:
            del arrows[module]
    assert sorted(arrows) == []


def methods(node: ast.ClassDef) -> int:
    """How many methods a class defines."""
    return sum(isinstance(entry, ast.FunctionDef) for entry in node.body)


def test_every_part_can_be_read_at_a_sitting() -> None:
    """At most 25 methods in a class, 60 lines in a function."""
    found = []
    for module in MODULES:
        for node in ast.walk(ast.parse((PACKAGE / module).read_text())):
            long = isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno >= 60
            if long or (isinstance(node, ast.ClassDef) and methods(node) > 25):
                found.append(f"{module}: {node.name}")
    assert found == []


def test_the_members_of_a_family_stand_in_its_room() -> None:
    assert FAMILY_ROOMS.keys() == registry.FAMILIES.keys()
    for family, room in FAMILY_ROOMS.items():
        places = {registry.FAMILIES[family], *registry.built_in(family).values()}
        strangers = {place for place in places if place.split(".")[1] != room}
        assert strangers == ELSEWHERE.get(family, set()), family


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
        ("ros/transport/peers.py", "from rths_nodes.ros.nodes import base"),
        ("recording/bag.py", "from rths_nodes.ros import names"),
        ("recording/bag.py", "import matplotlib.pyplot"),
        ("analysis/report/document.py", "import matplotlib"),
        ("analysis/energy.py", "import jinja2"),
        ("analysis/report/document.py", "import rclpy"),
        ("app/cli.py", "import rclpy"),
    ],
)
def test_a_breach_is_found(module: str, source: str) -> None:
    assert breaches(module, imported(source, module))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("core/parameters.py", "import attrs"),
        ("analysis/figures/sheet.py", "import matplotlib"),
        ("ros/nodes/base.py", "from rths_nodes.msg import Target"),
        ("ros/nodes/base.py", "from rths_nodes.loop.embedded import Loop"),
        ("control/compensators/none.py", "from .inverse import Inverse"),
        ("app/hosts.py", "from rths_nodes.recording import bag\nfrom rths_nodes.ros import names"),
    ],
)
def test_what_is_allowed_passes(module: str, source: str) -> None:
    assert breaches(module, imported(source, module)) == []


def test_the_modules_under_test_are_those_of_this_checkout() -> None:
    """A stale import must not load a module of an older installation unseen; only the messages are built."""
    words = "import rths_nodes, json; print(json.dumps(list(rths_nodes.__path__)))"
    done = subprocess.run([sys.executable, "-c", words], cwd=PACKAGE.parent, capture_output=True, check=True)
    assert json.loads(done.stdout)[0] == str(PACKAGE)
    strangers = [
        name
        for name, module in sys.modules.items()
        if name.startswith("rths_nodes.")
        and not name.split(".")[1].startswith(("msg", "srv", "action", "rths_nodes_s__"))  # built from msg/
        and not str(getattr(module, "__file__", PACKAGE)).startswith(str(PACKAGE))
    ]
    assert strangers == []


HEAVY = ("rclpy", "launch", "matplotlib", "pandas", "scipy.signal", "scipy.special", "structdyn", "rths_nodes.msg")

EMBEDDED = """
from rths_nodes.app.cli import main
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
