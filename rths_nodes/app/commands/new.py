# SPDX-License-Identifier: Apache-2.0
"""``rths new``: create a working component in a package of its own, a scenario or a rig file."""

from __future__ import annotations

import argparse
import json
import keyword
import re
import shlex
import sys
from pathlib import Path
from string import Template

from rths_nodes.app.commands import arguments, completion, component_check, new_file, terminal
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.resources import resource
from rths_nodes.loop.outcomes import ExitCode

TRIED = {**component_check.TESTS, "port": (component_check.PAPER, "port", ("compensator.type=none",))}
"""Families with a template: scenario in which a new component is tried, its section, and further overrides."""
TEST = "test_component.py"
TAKEN = ("rths_nodes", "test")
"""Package names that a new package would hide, in addition to Python's library."""
_NAME = re.compile(r"[a-z][a-z0-9_]*")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=(*TRIED, *new_file.SHIPPED), help="kind of file or package")
    parser.add_argument("name", help="of the component or file: small letters, digits, underscores")
    folder = "a new folder for the package, by default NAME; the folder of a file, by default this one"
    parser.add_argument("folder", nargs="?", help=folder)
    source = "scenario or rig file to start from; left out: questions at the terminal"
    completion.offer(parser.add_argument("--from", dest="from_", metavar="FILE", help=source), new_file.completed)


def run(options: argparse.Namespace) -> int:
    kind, name = options.kind, options.name
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise ConfigError(
            f"name = {name!r}: must be small letters, digits and underscores, a letter first, "
            "and no keyword of Python"
        )
    if kind in new_file.SHIPPED:
        return new_file.write(kind, name, Path(options.folder or "."), options.from_ or "")
    arguments.refuse_idle(options, ["from_"], f"is for {' and '.join(new_file.SHIPPED)}, not for {kind}")
    if name in registry.names(kind):
        raise ConfigError(f"name = {name!r}: there is a {kind} of that name: {', '.join(registry.names(kind))}")
    if name in sys.stdlib_module_names or name in TAKEN:
        raise ConfigError(f"name = {name!r}: a module has that name, which Python would import; choose another")
    folder = Path(options.folder or name)
    if folder.exists():
        raise ConfigError(f"{folder}: is there already")
    has_test = (resource(*new_file.TEMPLATES, kind) / f"{TEST}.tmpl").exists()
    files = {
        folder / "pyproject.toml": "package/pyproject.toml",
        folder / "README.md": "package/README.md",
        folder / name / "__init__.py": "package/__init__.py",
        folder / name / "component.py": f"{kind}/component.py",
        folder / "test" / f"test_{name}.py": f"{kind if has_test else 'package'}/{TEST}",
    }
    scenario, overrides = trial(kind, name)
    try_it = shlex.join(
        ["rths", "run", scenario, *(text for override in overrides for text in ("--set", override))]
    )
    values = {
        "kind": kind,
        "name": name,
        "class_name": "".join(part.capitalize() for part in name.split("_")),
        "core": "driver" if kind == "port" else "equation",
        "try_it": try_it,
        "scenario": scenario,
        "overrides": json.dumps(["duration=5", *overrides]),
        "checked": f"    rths check {kind}.{name}\n" if kind in component_check.TESTS else "",
    }
    with terminal.writing(folder):
        for path, template in files.items():
            _write(path, template, values)
    print(f"{folder}: a {kind}; install it (pip install -e {str(folder)!r}), then: {try_it}")
    return ExitCode.FINISHED


def trial(kind: str, name: str) -> tuple[str, list[str]]:
    """Return the scenario in which a component is tried, and the overrides that put it there."""
    scenario, section, further = TRIED[kind]
    data = {"type": name} | component_check.REQUIRED.get(kind, {})
    values = ", ".join(f"{key}: {value}" for key, value in data.items())
    return scenario, [f"{section}={{{values}}}", *further]


def _write(path: Path, template: str, values: dict[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    source = resource(*new_file.TEMPLATES, f"{template}.tmpl").read_text(encoding="utf-8")
    path.write_text(Template(source).substitute(values), encoding="utf-8")
