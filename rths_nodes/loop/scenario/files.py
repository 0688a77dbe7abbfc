# SPDX-License-Identifier: Apache-2.0
"""Scenario files, rig files and compensator settings, shipped or given by path."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from rths_nodes.core import inputs, registry, validation
from rths_nodes.core.data import Data, plain
from rths_nodes.core.errors import ConfigError, show, unknown, within
from rths_nodes.core.resources import resource
from rths_nodes.core.yaml_text import parse, source_of
from rths_nodes.loop.scenario import judgement
from rths_nodes.loop.scenario.overrides import (
    Overrides,
    Stage,
    built,
    in_case,
    parts_of,
    setting,
    with_absolute_cases,
)
from rths_nodes.loop.scenario.rig_file import REMOVED, RigFile, on_rig, refuse_wider
from rths_nodes.loop.scenario.schema import Scenario

SCENARIO, RIG, SETTINGS = "scenario", "rig", "settings"
FOLDERS = {SCENARIO: "scenarios", RIG: "rigs", SETTINGS: "settings"}


def shipped(kind: str = SCENARIO) -> dict[str, Path]:
    return {path.stem: path for path in sorted(resource("config", FOLDERS[kind]).glob("*.yaml"))}


def locate(name: str | os.PathLike[str], kind: str = SCENARIO) -> Path:
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
        raise unknown(kind, kind, str(name), names)
    return names[str(name)]


Source: TypeAlias = str | os.PathLike[str] | Mapping[str, object] | Scenario
"""Name of a shipped scenario, path of a file, contents of a file, or a loaded Scenario."""


def load(
    scenario: Source,
    overrides: Overrides = (),
    case: str = "",
    rig: str | os.PathLike[str] = "",
) -> Scenario:
    """Read, check and build a scenario, or one ``case`` of it, with ``overrides``.

    With a ``rig`` file, the scenario runs on that rig. Overrides are applied last, and cannot widen limits of its
    axes. On a real rig, they cannot weaken its levels, ``bridge.max_bridge`` and bounds of ``monitor``.
    Raises ConfigError if the scenario is invalid.
    """
    on = load_rig(rig) if rig else None
    if isinstance(scenario, Scenario):
        data, stages = parts_of(scenario), _on(on)
    elif isinstance(scenario, Mapping):
        contents = plain(scenario)
        inputs.make_absolute(Scenario, contents, Path())
        data, stages = with_absolute_cases(contents, Path()), _on(on) or [("", dict)]
    else:
        path = locate(scenario)
        data = _of_scenario(text_of(path, SCENARIO), str(path), path.parent)
        stages = _on(on, str(path)) or [(str(path), dict)]
    if case:
        stages += [*in_case(case), *_on(on)]
    before: Data = {}

    def noted(data: Data) -> Data:
        before.update(data)
        return data

    if changes := setting(overrides):
        stages += [("", noted), *changes]
    loaded = built(data, stages) if stages or not isinstance(scenario, Scenario) else scenario
    refuse_wider(before, validation.opened(loaded), loaded.moved_axes)
    if on is not None and changes:
        judgement.refuse_weaker(loaded, on, None if on.levels is None else before["levels"])
    judgement.refuse(loaded)
    return loaded


def load_rig(rig: str | os.PathLike[str]) -> RigFile:
    path = locate(rig, RIG)
    return rig_from_text(text_of(path, RIG), str(path), path.parent)


def load_settings(file: str | os.PathLike[str]) -> dict[str, dict[str, object]]:
    """Return compensator settings by row name, which is also the default type.

    Relative paths are relative to the folder of the file. Raises ConfigError if the file is invalid.
    """
    path = locate(file, SETTINGS)
    data = parse(text_of(path, SETTINGS), str(path))
    if not isinstance(data, Mapping) or not all(isinstance(entry, Mapping) for entry in data.values()):
        raise ConfigError(f"{path}: must be a mapping from names of compensators to their settings")
    settings = {str(name): {"type": str(name)} | dict(entry) for name, entry in data.items()}
    for entry in settings.values():
        with suppress(ConfigError):  # the build refuses an unknown type and names its path
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


def from_text(source: str, origin: str, folder: Path | None = None) -> Scenario:
    return built(_of_scenario(source, origin, folder), [(origin, dict)])


def rig_from_text(source: str, origin: str, folder: Path) -> RigFile:
    data = _data(source, origin, folder, RigFile)
    if removed := [f"{origin}: {key}: {hint}" for key, hint in REMOVED.items() if key in data]:
        raise ConfigError(*removed)
    with within(origin):
        return validation.from_data(RigFile, data)


def with_copied_files(scenario: Scenario, folder: Path, columns_only: bool = False) -> Scenario:
    """Copy the files of a scenario to ``inputs/<hash>`` in ``folder``; return the scenario with the new paths.

    With ``columns_only``, copy only column files that have no copy in a parent folder. Raises ConfigError if a
    file cannot be read or copied, or if an earlier copy has changed.
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
    return built(with_absolute_cases(data, Path()), [(origin, dict)])


def _of_scenario(source: str, origin: str, folder: Path | None) -> dict[str, object]:
    return with_absolute_cases(_data(source, origin, folder, Scenario), folder or Path())


def _data(source: str, origin: str, folder: Path | None, cls: type) -> dict[str, object]:
    data = parse(source, origin)
    if not isinstance(data, Mapping):
        raise ConfigError(f"{origin}: must be a mapping with at least one section")
    inputs.make_absolute(cls, data, folder or Path())
    return dict(data)
