"""One loader for all families of components.

A family is a table ``TABLE = {name: "module:Class"}`` in its module; other packages add components through
the entry point group ``rths_nodes.<family>``. Nothing is imported before it is asked for by name.
"""

from __future__ import annotations

import importlib
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from rths_nodes.params import ConfigError, unknown

FAMILIES: dict[str, str] = {
    "ground_motion": "rths_nodes.ground_motions",
    "structure": "rths_nodes.structures",
    "damping": "rths_nodes.damping",
    "restoring_force": "rths_nodes.hysteresis",
    "integrator": "rths_nodes.integrators",
    "ramp": "rths_nodes.ramps",
    "setup": "rths_nodes.setups",
    "compensator": "rths_nodes.compensators",
    "actuator": "rths_nodes.actuators",
    "specimen": "rths_nodes.specimens",
    "rig": "rths_nodes.rigs",
    "semi_active": "rths_nodes.semi_active",
    "port": "rths_nodes.ports",
}
"""Family -> module that holds its ``TABLE``. Scenario sections bear the names of the families."""


@cache
def _entry_points() -> Any:
    """Those of everything that is installed: reading them takes ten milliseconds."""
    return entry_points()


@cache
def _table(family: str) -> dict[str, str]:
    if family not in FAMILIES:
        raise unknown("family", "family", family, FAMILIES)
    table: dict[str, str] = dict(importlib.import_module(FAMILIES[family]).TABLE)
    for entry in _entry_points().select(group=f"rths_nodes.{family}"):
        if entry.name in table:
            raise ConfigError(
                f"{family} {entry.name!r} is registered twice: {table[entry.name]} and {entry.value}"
            )
        table[entry.name] = entry.value
    return table


def names(family: str) -> list[str]:
    """The known names of ``family``, sorted. Raises ConfigError for an unknown family."""
    return sorted(_table(family))


@cache
def _load(family: str, name: str) -> Any:
    place = _table(family)[name]
    module, _, attribute = place.partition(":")
    try:
        loaded = getattr(importlib.import_module(module), attribute)
        loaded.Params.type_name = name
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{family} {name!r}: {place} cannot be loaded ({error})") from error
    return loaded


def load(family: str, name: object, path: str = "") -> Any:
    """The component class ``name`` of ``family``. Raises ConfigError that lists the known names."""
    if not isinstance(name, str) or name not in _table(family):
        raise unknown(path or family, family.replace("_", " "), name, _table(family))
    return _load(family, name)


def class_of(family: str, built: Any) -> Any:
    """The component class that belongs to checked parameters ``built``."""
    return load(family, type(built).type_name)
