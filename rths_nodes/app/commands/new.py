# SPDX-License-Identifier: Apache-2.0
"""``rths new``: create a scenario, a rig file, or a package with a working component."""

from __future__ import annotations

import importlib.util
import json
import keyword
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from string import Template
from typing import TypeVar

from rths_nodes.app.commands import arguments, component_check, lookup, terminal
from rths_nodes.app.commands.lookup import FILES, RIG_FILE, SCENARIO
from rths_nodes.core import inputs, registry, yaml_text
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError, quoted
from rths_nodes.core.limits import Limits
from rths_nodes.core.parameters import declared
from rths_nodes.core.resources import resource
from rths_nodes.core.text_files import write
from rths_nodes.core.validation import checked_number
from rths_nodes.laboratory.calibration import ITS_UNIT, Channel
from rths_nodes.loop.scenario import files as scenario_files
from rths_nodes.loop.scenario.schema import Scenario

T = TypeVar("T")
TEMPLATES = ("config", "templates")
USUAL: Data = {"servo_rate": 1024.0, "duration": 10.0}
LIMITS = ("stroke", "velocity", "force", "deceleration", "tracking_error")
PORT, AXES = "udp", "axis_1"
CHANNELS = {"displacement": "mm", "force": "kN"}
"""Channels of a new axis, with units. The command channel has the scale of the displacement channel."""
CHANNEL: Data = {"range": "", "scale": 1.0, "sign": 1}
IN_UNIT = ("range", "scale")
TRIED = {**component_check.TESTS, "port": (component_check.PAPER, "port", ("compensator.type=none",))}
TEST = "test_component.py"
TAKEN = ("rths_nodes", "test")
"""Forbidden names of a new package, in addition to the modules of the standard library."""
_NAME = re.compile(r"[a-z][a-z0-9_]*")


def new_arguments(add: arguments.Arguments) -> None:
    add("kind", "kind of file or package", choices=(*TRIED, *FILES))
    add("name", "name of the component or file: lowercase letters, digits, underscores")
    text = "new folder for a package (default: NAME), or folder for a file (default: the current folder)"
    add("folder", text, nargs="?")
    text = "scenario or rig file to start from; default: questions at the terminal"
    add("--from FILE", text, completer=completed, dest="from_")


def new_command(options: arguments.Options) -> None:
    kind, name = options.kind, options.name
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise ConfigError(
            f"name = {name!r}: must consist of lowercase letters, digits and underscores, begin with a letter, "
            "and not be a Python keyword"
        )
    if kind in FILES:
        write_file(kind, name, Path(options.folder or "."), options.from_ or "")
        return
    arguments.refuse_idle(options, ["from_"], f"applies to {' and '.join(FILES)}, not to {kind}")
    if name in registry.names(kind):
        raise ConfigError(
            f"name = {name!r}: a {kind} with this name exists; names in use: {', '.join(registry.names(kind))}"
        )
    spec = importlib.util.find_spec(name)  # pip would replace an installed package
    if name in sys.stdlib_module_names or name in TAKEN or (spec and spec.origin):
        raise ConfigError(f"name = {name!r}: Python has a module with this name; choose another name")
    folder = Path(options.folder or name)
    if folder.exists():
        raise ConfigError(f"{folder}: exists already; choose another folder")
    has_test = (resource(*TEMPLATES, kind) / f"{TEST}.tmpl").exists()
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
    print(f"{folder}: contains a {kind}. Install the package (pip install -e {str(folder)!r}), then run {try_it}")


def trial(kind: str, name: str) -> tuple[str, list[str]]:
    scenario, section, further = TRIED[kind]
    data = {"type": name} | component_check.REQUIRED.get(kind, {})
    values = ", ".join(f"{key}: {value}" for key, value in data.items())
    return scenario, [f"{section}={{{values}}}", *further]


def _write(path: Path, template: str, values: dict[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    source = resource(*TEMPLATES, f"{template}.tmpl").read_text(encoding="utf-8")
    path.write_text(Template(source).substitute(values), encoding="utf-8")


# Scenarios and rig files, from answers at a terminal or from another file


def write_file(kind: str, name: str, folder: Path, source: str) -> None:
    path = folder / f"{name}.yaml"
    if path.exists():
        raise ConfigError(f"{path}: exists already; choose another name or folder")
    asked = not source and sys.stdin.isatty()
    if asked and kind == SCENARIO:
        source = _ask(
            "scenario to start from, see rths list scenario (empty: one floor with a new actuator)", _scenario
        )
    text = _copied(kind, name, source) if source else _composed(kind, name, asked)
    built = scenario_files.from_text if kind == SCENARIO else scenario_files.rig_from_text
    built(text, str(path), path.parent)
    beside = folder / lookup.schema_file(kind)
    with terminal.writing(path):
        folder.mkdir(parents=True, exist_ok=True)
        write(path, text.encode())  # leave no partial file: the next attempt would refuse to overwrite it
        if not beside.exists():
            write(beside, lookup.schema_text(kind).encode())
    use = f"rths run {quoted(path)}" if kind == SCENARIO else f"rths check SCENARIO --rig {quoted(path)}"
    print(f"{path}: a {kind.replace('_', ' ')}; try the file with {use}")
    print(f"{beside}: JSON Schema for editors; update the schema with rths schema {kind} --out {quoted(beside)}")


def _copied(kind: str, name: str, source: str) -> str:
    path = scenario_files.locate(source, FILES[kind])
    text = scenario_files.text_of(path, FILES[kind])
    data = yaml_text.parse(text, str(path))
    if not isinstance(data, dict) or not re.search(r"^name:", text, re.MULTILINE):
        raise ConfigError(f"{path}: must be a {kind.replace('_', ' ')} with a name")
    for named in inputs.named_files(lookup.KINDS[kind], data):
        text = re.sub(rf"(?<![\w./-]){re.escape(named.path)}(?![\w./-])", named.absolute(path.parent), text)
    text = re.sub(r"^name:.*$", f"name: {name}", text, count=1, flags=re.MULTILINE)
    lines = [line for line in text.splitlines(keepends=True) if not line.startswith("# yaml-language-server:")]
    return f"# yaml-language-server: $schema={lookup.schema_file(kind)}\n{''.join(lines)}"


def _composed(kind: str, name: str, asked: bool) -> str:
    if kind == SCENARIO:
        values = {key: _ask_number(Scenario, key, "", usual) if asked else usual for key, usual in USUAL.items()}
        return _filled(SCENARIO, "scenario", {"name": name} | values)
    if not asked:
        raise ConfigError(
            "rig_file: limits have no defaults; answer the questions at a terminal, or give a rig file with --from"
        )
    head = {
        "name": name,
        "description": _ask("description: rig and location", lambda text: yaml_text.dump(text).splitlines()[0]),
        "servo_rate": _ask_number(Scenario, "servo_rate", "", USUAL["servo_rate"]),
        "port": _ask(f"port: one of {', '.join(registry.names('port'))}", _port, PORT),
    }
    text = _filled(RIG_FILE, "rig_file", head)
    answers: Data = {}
    for axis in _ask("axes: names, in the order of the port", _names, AXES):
        text = _with_axis(text, axis, answers)
    return text


def _with_axis(text: str, axis: str, answers: Data) -> str:
    while True:
        with_axis = text + _axis(axis, answers)
        try:
            scenario_files.rig_from_text(with_axis, "not accepted", Path())
        except ConfigError as error:
            print(f"  {error}")
        else:
            return with_axis


def _axis(axis: str, answers: Data) -> str:
    for noun, unit in CHANNELS.items():
        for key, usual in CHANNEL.items():
            where = f"{axis}, {noun}{f' in {unit}' if key in IN_UNIT else ''}, "
            name = f"{noun}_{key}"
            answers[name] = _ask_number(Channel, key, where, answers.get(name, usual))
    for key in LIMITS:
        answers[key] = _ask_number(Limits, key, f"{axis}, limits.", answers.get(key, ""))
    signs = {name: f"{value:g}" for name, value in answers.items() if name.endswith("_sign")}
    return _filled(RIG_FILE, "axis", {"axis": axis} | answers | signs)


def _filled(folder: str, name: str, values: Data) -> str:
    source = resource(*TEMPLATES, folder) / f"{name}.yaml.tmpl"
    return Template(source.read_text(encoding="utf-8")).substitute(values)


def _ask(question: str, answered: Callable[[str], T], usual: object = "") -> T:
    suggested = f" [{usual}]" if usual != "" else ""
    while True:
        try:
            return answered(input(f"{question}{suggested}: ").strip() or str(usual))
        except EOFError:
            raise ConfigError("the input ended before all questions were answered; nothing was written") from None
        except ConfigError as error:
            print(f"  {error}")


def _ask_number(cls: type, key: str, where: str, usual: object = "") -> float:
    spec = declared(cls)[key]
    unit = f", {spec.unit}" if spec.unit and spec.unit != ITS_UNIT else ""
    return _ask(
        f"{where}{key}: {spec.doc}{unit}", lambda text: checked_number(spec, yaml_text.number_in(text), key), usual
    )


def _scenario(text: str) -> str:
    return str(scenario_files.locate(text, scenario_files.SCENARIO)) if text else ""


def _port(text: str) -> str:
    registry.load("port", text, "port")
    return text


def _names(text: str) -> list[str]:
    names = text.replace(",", " ").split()
    if not names or not all(name.isidentifier() for name in names) or len(set(names)) < len(names):
        raise ConfigError(f"axes = {text!r}: must be different names, of letters, digits and underscores only")
    return names


def completed(prefix: str, options: arguments.Options) -> Iterator[str]:
    yield from scenario_files.shipped(FILES[options.kind]) if options.kind in FILES else ()
