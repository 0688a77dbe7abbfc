"""The scenario in a recording -> a Scenario, also where components of it are not installed here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.inputs import replace_files
from rths_nodes.core.parameters import recorded, spec_of
from rths_nodes.core.strict import build
from rths_nodes.core.yaml_text import parse
from rths_nodes.loop.scenario.axis import Axis
from rths_nodes.loop.scenario.schema import Scenario


def recorded_scenario(text: str, origin: str, folders: Sequence[Path] = ()) -> Scenario:
    """The checked scenario of a recording. Raises ConfigError with ``origin`` where it is none.

    Copies of files are looked for below ``folders`` first.

    A component that this installation does not know, or not with these parameters, keeps them as they stand;
    building it is refused with the reason.
    """
    data = parse(text, origin)
    if not isinstance(data, Mapping):
        raise ConfigError(f"{origin}: must be a mapping of sections, and not empty")
    replace_files(Scenario, data, lambda named: named.beside(folders))
    data = _kept(Scenario, data, "")
    if isinstance(data.get("axes"), Mapping):
        data["axes"] = {
            name: _kept(Axis, axis, f"axes.{name}.") if isinstance(axis, Mapping) else axis
            for name, axis in data["axes"].items()
        }
    try:
        return build(Scenario, data)
    except ConfigError as error:
        raise error.within(origin) from None


def _kept(cls: type, data: Mapping[str, Any], path: str) -> dict[str, Any]:
    """``data`` of the section ``cls``, its components as parameters."""
    families = {field.name: spec_of(field).family for field in attrs.fields(cls)}
    return {
        name: _component(families[name], entry, path + name)
        if families.get(name) and isinstance(entry, Mapping) and isinstance(entry.get("type"), str)
        else entry
        for name, entry in data.items()
    }


def _component(family: str, data: Mapping[str, Any], path: str) -> Any:
    values = {key: entry for key, entry in data.items() if key != "type"}
    kind = data["type"]
    try:
        return build(registry.load(family, kind, f"{path}.type").Params, values, path)
    except ConfigError as error:
        reason = "; ".join(error.problems)
        if kind not in registry.names(family):
            reason = f"the {family.replace('_', ' ')} {kind!r} is not installed here"
        return recorded(kind, values, reason)
