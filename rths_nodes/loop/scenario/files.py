# SPDX-License-Identifier: Apache-2.0
"""Scenario files, rig files, compensator settings, and changes to a scenario: overrides and named cases.

A file is selected by the name of a shipped file or by path. Overrides (``--set``) and cases modify the data of a
scenario. These data may contain parts that have already been built; only changed parts are checked again.
"""

from __future__ import annotations

import copy
import functools
import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from rths_nodes.core import inputs, registry, validation
from rths_nodes.core.data import Data, plain
from rths_nodes.core.errors import ConfigError, Problems, show, unknown, within
from rths_nodes.core.parameters import Spec, declared, is_params, type_of
from rths_nodes.core.resources import resource
from rths_nodes.core.validation import is_section, opened, to_data
from rths_nodes.core.yaml_text import parse, source_of
from rths_nodes.loop.scenario import judgement
from rths_nodes.loop.scenario.rig_file import REMOVED, RigFile, on_rig, refuse_wider
from rths_nodes.loop.scenario.schema import Case, Scenario, simulation

SCENARIO, RIG, SETTINGS = "scenario", "rig", "settings"
FOLDERS = {SCENARIO: "scenarios", RIG: "rigs", SETTINGS: "settings"}

Source: TypeAlias = str | os.PathLike[str] | Mapping[str, object] | Scenario
"""Name of a shipped scenario, path of a file, contents of a file, or a loaded Scenario."""
Pairs: TypeAlias = Iterable[tuple[list[str], object]]
"""Pairs of keys and value, such as ``(["structure", "mass"], 5e5)``."""
Stage: TypeAlias = tuple[str, Callable[[Data], Data]]
"""Path for error messages, and function that changes the data of a scenario."""

Override: TypeAlias = str | Mapping[str, object]
"""Change of a scenario: a string ``section.key=value``, or a mapping ``{"section.key": value}``."""
Overrides: TypeAlias = Override | Iterable[Override]

FILE = ["ground_motion", "file"]
HERE = Path()


def shipped(kind: str = SCENARIO) -> dict[str, Path]:
    return {path.stem: path for path in sorted(resource("config", FOLDERS[kind]).glob("*.yaml"))}


def locate(name: str | os.PathLike[str], kind: str = SCENARIO) -> Path:
    if not isinstance(name, str | os.PathLike):
        raise ConfigError(f"{kind} = {name!r}: must be a name, a path or a mapping")
    path = Path(name)
    try:
        is_file = path.is_file()
    except OSError as error:  # e.g. the name is too long
        raise ConfigError(f"{kind} {show(str(path))}: no such file ({error.strerror})") from error
    if is_file:
        return path
    if path.suffix in (".yaml", ".yml"):
        raise ConfigError(f"{kind} {str(path)!r}: no such file")
    names = shipped(kind)
    if str(name) not in names:
        if os.path.isfile(f"{path}.yaml"):
            raise ConfigError(f"{kind} {str(path)!r}: no such file (did you mean '{path}.yaml'?)")
        raise unknown(kind, kind, str(name), names)
    return names[str(name)]


def load(
    scenario: Source,
    overrides: Overrides = (),
    case: str = "",
    rig: str | os.PathLike[str] = "",
) -> Scenario:
    """Read, check and build a scenario, or one ``case`` of it, with ``overrides``.

    ``rig`` selects a rig file. Overrides are applied last. On a rig, overrides cannot widen limits of axes; on a
    real rig, they also cannot weaken levels, ``bridge.max_bridge`` or bounds of ``monitor``. The same applies to a
    case of a scenario that already has a rig. Raises ConfigError if the scenario is invalid.
    """
    on = load_rig(rig) if rig else None
    if isinstance(scenario, Scenario):
        data, stages = parts_of(scenario), _on(on)
    elif isinstance(scenario, Mapping):
        contents = plain(scenario)
        inputs.make_absolute(Scenario, contents, HERE)
        data, stages = with_absolute_cases(contents, HERE), _on(on) or [("", dict)]
    else:
        path = locate(scenario)
        data = _of_scenario(text_of(path, SCENARIO), str(path), path.parent)
        stages = _on(on, str(path)) or [(str(path), dict)]
    changes = _setting(overrides)
    if case and on is not None:
        stages += [*in_case(case), *_on(on)]
    elif case:  # if the scenario already has a rig, its case cannot widen limits
        changes = [*in_case(case), *changes]
    before: Data = {}

    def noted(data: Data) -> Data:
        before.update(data)
        return data

    if changes or on is not None:
        stages += [("", noted), *changes]
    loaded = built(data, stages) if stages or not isinstance(scenario, Scenario) else scenario
    refuse_wider(before, opened(loaded), loaded.moved_axes)
    if before and loaded.rig_file is not None and not simulation(loaded):
        stated: Scenario | RigFile = built(before, []) if on is None else on
        levels = stated.levels or type(loaded.levels)()  # default: the built-in levels
        if on is not None and on.levels is not None:
            levels = before["levels"]  # the rig's levels, with the axis names of the scenario
        judgement.refuse_weaker(loaded, stated, levels, opened(before.get("monitor")).get("reference_energy"))
    judgement.refuse(loaded)
    return loaded


def load_rig(rig: str | os.PathLike[str]) -> RigFile:
    path = locate(rig, RIG)
    return rig_from_text(text_of(path, RIG), str(path), path.parent)


def load_settings(file: str | os.PathLike[str]) -> dict[str, dict[str, object]]:
    """Return the settings of compensators by name. ``type`` defaults to the name.

    Relative paths are relative to the folder of the file. Raises ConfigError if the file is invalid.
    """
    path = locate(file, SETTINGS)
    data = parse(text_of(path, SETTINGS), str(path))
    if not isinstance(data, Mapping) or not all(isinstance(entry, Mapping) for entry in data.values()):
        raise ConfigError(f"{path}: must be a mapping from names of compensators to their settings")
    settings = {str(name): {"type": str(name)} | dict(entry) for name, entry in data.items()}
    for entry in settings.values():
        with suppress(ConfigError):  # an unknown type is refused later, with its path
            inputs.make_absolute(registry.load("compensator", entry["type"]).Params, entry, path.parent)
    return settings


def settings_of(
    settings: str | os.PathLike[str] | Mapping[str, Mapping[str, object]],
) -> dict[str, dict[str, object]]:
    if not isinstance(settings, Mapping):
        return load_settings(settings) if settings else {}
    return {name: {"type": name} | plain(entry) for name, entry in settings.items()}


def _on(rig: RigFile | None, path: str = "") -> list[Stage]:
    return [] if rig is None else [(path, lambda data: on_rig(data, rig))]


def text_of(path: Path, kind: str) -> str:
    return source_of(path, f"{kind} {str(path)!r}")


def from_text(source: str, origin: str, folder: Path = HERE) -> Scenario:
    return built(_of_scenario(source, origin, folder), [(origin, dict)])


def rig_from_text(source: str, origin: str, folder: Path) -> RigFile:
    data = _data(source, origin, folder, RigFile)
    if removed := [f"{origin}: {key}: {hint}" for key, hint in REMOVED.items() if key in data]:
        raise ConfigError(*removed)
    with within(origin):
        return validation.from_data(RigFile, data)


def with_copied_files(scenario: Scenario, folder: Path, columns_only: bool = False) -> Scenario:
    """Copy the files of a scenario to ``inputs/<hash>`` in ``folder``. Return the scenario with the new paths.

    If ``columns_only`` is true, only column files without a copy in a parent folder are copied. Raises ConfigError
    if a file cannot be read or copied, or if an earlier copy has changed.
    """
    data, destination = scenario.data(), folder.absolute() / inputs.FOLDER
    around = [parent / inputs.FOLDER for parent in destination.parents[:3]]

    def copied(named: inputs.Named) -> str:
        has_copy = any(Path(named.path).is_relative_to(parent) for parent in around)
        return named.path if columns_only and (has_copy or not named.columns) else named.copy(destination)

    before = inputs.named_files(Scenario, data)
    inputs.replace_files(Scenario, data, copied)
    return scenario if inputs.named_files(Scenario, data) == before else validation.from_data(Scenario, data)


def from_data(data: dict[str, object], origin: str) -> Scenario:
    return built(with_absolute_cases(data, HERE), [(origin, dict)])


def _of_scenario(source: str, origin: str, folder: Path) -> Data:
    return with_absolute_cases(_data(source, origin, folder, Scenario), folder)


def _data(source: str, origin: str, folder: Path, cls: type) -> Data:
    data = parse(source, origin)
    if not isinstance(data, dict):
        raise ConfigError(f"{origin}: must be a mapping with at least one section")
    inputs.make_absolute(cls, data, folder)
    return data


def override(scenario: Scenario, overrides: Overrides) -> Scenario:
    """Return the scenario with ``overrides``, whose order matters only if a key occurs more than once.

    ``section.type=X`` replaces a section of another type by the defaults of X. ``ground_motion.file=PATH`` selects
    a record and resets all other settings of the section. Paths are relative to the working directory.
    Raises ConfigError if the resulting scenario is invalid.
    """
    stages = _setting(overrides)
    return built(parts_of(scenario), stages) if stages else scenario


def replace(scenario: Scenario, pairs: Pairs, path: str = "") -> Scenario:
    entries = list(pairs)
    stages: list[Stage] = [(path, lambda data: _with(data, entries, HERE))]
    return built(parts_of(scenario), stages) if entries else scenario


def with_case(scenario: Scenario, name: str) -> Scenario:
    return built(parts_of(scenario), in_case(name))


def declaration(scenario: Scenario, key: str, path: str) -> tuple[Any, Spec | None]:
    """Return value and declaration (None in a mapping) of ``key``. Raises ConfigError if the key is unknown."""
    value: Any = scenario
    spec: Spec | None = None
    for name in key.split("."):
        names = value if isinstance(value, Mapping) else declared(type(value)) if is_params(value) else {}
        if name not in names:
            raise unknown(path, "key", name, names)
        spec = None if isinstance(value, Mapping) else declared(type(value))[name]
        value = value[name] if isinstance(value, Mapping) else getattr(value, name)
    return value, spec


def parts_of(scenario: Scenario) -> Data:
    """Return the scenario's data: built parts, or plain data if a recorded part cannot be built here."""
    parts = opened(scenario)
    axes = (part for axis in scenario.axes.values() for part in (axis.actuator, axis.specimen))
    recorded = any(type_of(part) and part.cannot_be_built for part in (*parts.values(), *axes))
    return scenario.data() if recorded else parts


def built(data: Data, stages: Sequence[Stage]) -> Scenario:
    """Apply ``stages`` to ``data`` and build the scenario. Raises the ConfigError of the first failed stage."""
    try:
        return validation.from_data(
            Scenario, functools.reduce(lambda before, stage: stage[1](before), stages, data)
        )
    except ConfigError as error:
        if len(stages) > 1:
            built(data, stages[:-1])
        path = stages[-1][0]
        raise (error.within(path) if path else error) from None


def _setting(overrides: Overrides) -> list[Stage]:
    items = listed(overrides)
    return [("", lambda data: _with(data, pairs_in(items), HERE))] if items else []


def listed(overrides: Overrides) -> list[Override]:
    return [overrides] if isinstance(overrides, (str, Mapping)) else list(overrides)


def in_case(name: str) -> list[Stage]:
    def checked(data: Data) -> Data:
        if name not in (cases := _section(data.get("cases"))):
            raise unknown("case", "case", name, cases)
        return data

    def applied(data: Data) -> Data:
        case = data["cases"][name]
        case = case if isinstance(case, Case) else validation.from_data(Case, case)
        renamed = {"name": f"{data['name']}.{name}"} if isinstance(data.get("name"), str) else {}
        return _with(data, pairs_of(case.set | {"cases": {}} | renamed), HERE)

    return [("", checked), (f"cases.{name}", applied)]


def with_absolute_cases(data: Data, folder: Path) -> Data:
    cases = _section(data.get("cases"))
    for name, case in cases.items():
        if isinstance(case, dict) and isinstance(case.get("set"), dict):
            cases[name] = case | {"set": _absolute(data, case["set"], folder)}
    return data | {"cases": cases} if cases else data


def _absolute(data: Data, changes: Data, folder: Path) -> Data:
    if not any(isinstance(value, (str, Mapping)) for value in changes.values()):
        return changes
    try:
        there = _with(data, pairs_of(copy.deepcopy(changes)), folder)
        return {key: functools.reduce(operator.getitem, key.split("."), there) for key in changes}
    except (ConfigError, KeyError):  # an invalid case is refused only when it is used, with its path
        return changes


def pairs_of(changes: Mapping[str, object]) -> list[tuple[list[str], object]]:
    return [(key.split("."), value) for key, value in changes.items()]


def pairs_in(overrides: Overrides, option: str = "--set") -> list[tuple[list[str], object]]:
    pairs, problems = [], Problems()
    for assignment in listed(overrides):
        if isinstance(assignment, Mapping):
            pairs += pairs_of(plain(assignment))
            continue
        with problems.gathered():
            key, sign, value = assignment.partition("=")
            keys = key.strip().split(".")
            if not sign or not all(keys):
                raise ConfigError(f"{option} {assignment}: must be section.key=value")
            pairs.append((keys, value if keys == FILE else parse(value, f"{option} {key.strip()}")))
    problems.refuse()
    return pairs


def _precedence(pair: tuple[list[str], object]) -> tuple[int, int]:
    keys, _ = pair
    if keys[-1] == "type":
        return 0, len(keys)
    return (1, 0) if keys == FILE else (2, 0)


def _with(data: Data, pairs: Pairs, folder: Path) -> Data:
    data, problems = dict(data), Problems()
    for keys, value in sorted(pairs, key=_precedence):
        with problems.gathered():
            _apply(data, keys, value, folder)
    problems.refuse()
    return data


def _apply(data: Data, keys: list[str], value: object, folder: Path) -> None:
    section, spec = data, Spec("section", "", None, cls=Scenario)
    for depth, key in enumerate(keys[:-1]):
        section, spec = _inside(section, spec, key, ".".join(keys[: depth + 1]), ".".join(keys))
    last = keys[-1]
    if keys == FILE:
        section.clear()
        section["type"] = "record"
    elif last == "type" and len(keys) > 1 and section.get("type") != value:
        section.clear()
    section[last] = value
    if isinstance(value, (str, Mapping)) and (specs := inputs.declarations_in(spec, section).get(last)):
        inputs.replace_files_of(specs, section, last, lambda named: named.absolute(folder))


def _inside(data: Data, spec: Spec, key: str, path: str, full_path: str) -> tuple[Data, Spec]:
    specs = inputs.declarations_in(spec, data)
    if key not in data:
        if key not in specs and "type" not in data:
            raise unknown(path, "section", key, specs or data)
        # keys that are unknown to the type are refused later, when the part is built
        data[key] = specs[key].left_out if key in specs else {}
    if not is_section(there := data[key]):
        raise ConfigError(f"{path} = {show(to_data(there))}: is not a section, so {full_path} cannot be set")
    data[key] = opened(there)
    return data[key], specs.get(key, Spec("mapping", "", None))


def _section(there: object) -> Data:
    return opened(there) if isinstance(there, Mapping) else {}
