"""Scenario files: the shipped ones and those given by path."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs

from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError, show, unknown
from rths_nodes.core.parameters import spec_of
from rths_nodes.core.resources import resource
from rths_nodes.core.strict import build
from rths_nodes.core.text_files import read_text
from rths_nodes.core.yaml_text import parse
from rths_nodes.loop.scenario.overrides import override, with_case
from rths_nodes.loop.scenario.schema import Scenario


def shipped() -> dict[str, Path]:
    """The scenarios that come with the package, by name."""
    return {path.stem: path for path in sorted(resource("config", "scenarios").glob("*.yaml"))}


def locate(scenario: str | os.PathLike[str]) -> Path:
    """The file of a scenario given by path or by the name of a shipped one."""
    path = Path(scenario)
    try:
        is_file = path.is_file()
    except OSError as error:  # e.g. a name that is too long
        raise ConfigError(f"scenario {show(str(path))}: no such file ({error.strerror})") from error
    if path.suffix in (".yaml", ".yml") or is_file:
        if not is_file:
            raise ConfigError(f"scenario {str(path)!r}: no such file")
        return path
    known = shipped()
    if str(scenario) not in known:
        raise unknown("scenario", "scenario", str(scenario), known)
    return known[str(scenario)]


def load(scenario: str | os.PathLike[str] | Scenario, overrides: Iterable[str] = (), case: str = "") -> Scenario:
    """Read, check and build a scenario, or a ``case`` of it; ``overrides`` are ``section.key=value`` texts.

    A Scenario that has been loaded before may take the place of its file. Raises ConfigError with the file, the
    path of the key, value, unit, bound and known names.
    """
    loaded = scenario if isinstance(scenario, Scenario) else _read(locate(scenario))
    return override(with_case(loaded, case) if case else loaded, overrides)


def _read(path: Path) -> Scenario:
    try:
        source = read_text(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"scenario {str(path)!r}: cannot be read ({error})") from None
    return from_text(source, str(path), path.parent)


def from_text(source: str, origin: str, folder: Path | None = None) -> Scenario:
    """A scenario from YAML text; files in it are relative to ``folder``. Raises ConfigError with ``origin``."""
    data = parse(source, origin)
    if not isinstance(data, Mapping):
        raise ConfigError(f"{origin}: must be a mapping of sections, and not empty")
    if folder is not None:
        _resolve_files(Scenario, data, folder)
    try:
        return build(Scenario, data)
    except ConfigError as error:
        raise error.within(origin) from None


def _resolve_files(cls: type, data: Any, folder: Path) -> None:
    """Makes the files that are declared in ``cls`` absolute in its ``data``: they stand relative to ``folder``."""
    if not isinstance(data, dict):
        return
    for field in attrs.fields(cls):
        spec, value = spec_of(field), data.get(field.name)
        if spec.kind in ("path", "matrix") and isinstance(value, str):
            data[field.name] = str((folder / os.path.expanduser(value)).absolute())
        elif spec.kind == "section" and spec.cls is not None:
            _resolve_files(spec.cls, value, folder)
        elif spec.kind == "sections" and spec.cls is not None and isinstance(value, dict):
            for entry in value.values():
                _resolve_files(spec.cls, entry, folder)
        elif spec.kind in ("component", "components") and isinstance(value, dict):
            for entry in [value] if spec.kind == "component" else value.values():
                with suppress(ConfigError):  # an unknown type is refused, with its place, when it is built
                    kind = entry.get("type") if isinstance(entry, dict) else None
                    _resolve_files(registry.load(spec.family, kind).Params, entry, folder)
