# SPDX-License-Identifier: Apache-2.0
"""Registry of all component families, which loads components on demand.

The module of a family has a table ``TABLE = {name: ".module:Class"}``. A module name that begins with a dot is
relative. Other packages add components through the entry point group
``rths_nodes.<family>``. A running program adds components with :func:`add`, or passes a class or kernel to
:func:`load` instead of a name.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import uuid
from collections.abc import Iterable
from functools import cache
from importlib.metadata import EntryPoints, entry_points
from typing import Any

from rths_nodes.core.errors import FOREIGN, ConfigError, located, raised_at, unknown
from rths_nodes.core.kernels import Function, Kernel
from rths_nodes.core.parameters import AnyParams, complete, is_declared, params

FAMILIES: dict[str, str] = {
    "ground_motion": "rths_nodes.numerical.ground_motions",
    "structure": "rths_nodes.numerical.structures",
    "damping": "rths_nodes.numerical.structures.damping",
    "restoring_force": "rths_nodes.numerical.structures.restoring_forces",
    "reduction": "rths_nodes.numerical.reductions",
    "integrator": "rths_nodes.numerical.integrators",
    "ramp": "rths_nodes.control.ramps",
    "setup": "rths_nodes.control.setups",
    "compensator": "rths_nodes.control.compensators",
    "force_controller": "rths_nodes.control.force_controllers",
    "actuator": "rths_nodes.laboratory.actuators",
    "specimen": "rths_nodes.laboratory.specimens",
    "rig": "rths_nodes.laboratory.rigs",
    "semi_active": "rths_nodes.control.semi_active",
    "port": "rths_nodes.laboratory.ports",
    "quantity": "rths_nodes.loop.supervision.quantities",
}
"""Family -> module with its ``TABLE``. Scenario sections have the names of the families."""


# (family, name) -> added object, and the component class made from this object
_added: dict[tuple[str, str], tuple[object, Any]] = {}
_SESSION = uuid.uuid4().hex


@cache
def _entry_points() -> Any:
    # scanning all installed entry points takes ten milliseconds
    points = entry_points()
    ours = [group for group in points.groups if group.startswith("rths_nodes.")]
    return EntryPoints(entry for group in ours for entry in points.select(group=group))


def built_in(family: str) -> dict[str, str]:
    """Return ``module:Class`` of each component of ``family`` in this package, by name."""
    home = FAMILIES[family]
    table: dict[str, str] = importlib.import_module(home).TABLE
    return {name: f"{home}{target}" if target.startswith((".", ":")) else target for name, target in table.items()}


@cache
def _table(family: str) -> dict[str, str]:
    if family not in FAMILIES:
        raise unknown("family", "family", family, FAMILIES)
    table = built_in(family)
    for entry in _entry_points().select(group=f"rths_nodes.{family}"):
        if entry.name in table:
            raise ConfigError(
                f"{family} {entry.name!r} is registered twice: {table[entry.name]} and {entry.value}"
            )
        table[entry.name] = entry.value
    return table


def names(family: str) -> list[str]:
    return sorted({*_table(family), *(name for kind, name in _added if kind == family)})


def is_component(value: object) -> bool:
    return isinstance(value, (type, Kernel)) or inspect.isfunction(value)


def name_of(component: Kernel | Function) -> str:
    return (component.step if isinstance(component, Kernel) else component).__name__


def add(family: str, component: Any, path: str = "") -> str:
    """Add a component of the running program and return its name. ``component`` is a class, a kernel or a step.

    The component replaces an earlier component of the same name. A scenario with the replaced component is
    refused. Raises ConfigError if the component is invalid or has the name of a shipped or installed component.
    """
    where = path or family
    source = component.step if isinstance(component, Kernel) else component
    name, at = name_of(component), f"{where}: {located(source)}"
    if name in _table(family):
        raise ConfigError(f"{at} has the name of a shipped or installed {family}. Choose another name")
    if _added.get((family, name), (None,))[0] == component:
        return name
    if isinstance(component, type):
        cls = component
    elif family == "compensator":
        cls = importlib.import_module("rths_nodes.control.compensators.per_axis").of_kernel(name, component)
    else:
        raise ConfigError(f"{at} is a kernel, but only a compensator may be a kernel. Write a class for {family}")
    if not (hasattr(cls, "Params") and is_declared(cls.Params)):
        raise ConfigError(f"{at} has no Params. Add a class Params with the decorator rths_nodes.core.params")
    _complete(family, name, cls)
    _added[family, name] = component, cls
    return name


def _complete(family: str, name: str, cls: Any) -> None:
    if "Params" not in vars(cls):
        cls.Params = params(type("Params", (cls.Params,), {}))
    cls.Params.type_name = name
    complete(family, cls)
    if name not in built_in(family):
        from rths_nodes.core import component_guard

        component_guard.guard_params(family, name, cls)


def named(family: str, component: object, path: str = "") -> str:
    return add(family, component, path) if is_component(component) else str(component)


def added() -> list[tuple[str, object]]:
    """Return the families and objects of all components added with :func:`add`, for child processes."""
    return [(family, component) for (family, _), (component, _) in _added.items()]


def session_of(parts: Iterable[object]) -> str:
    """Return an identifier of this process and of the added components in ``parts``; empty if there are none."""
    kinds = {type(part) for part in parts} if _added else set()
    used = sorted(f"{name} {id(cls)}" for (_, name), (_, cls) in _added.items() if cls.Params in kinds)
    return " ".join([_SESSION, *used]) if used else ""


@cache
def _load(family: str, name: str) -> object:
    target = _table(family)[name]
    module, _, attribute = target.partition(":")
    try:
        loaded = getattr(importlib.import_module(module), attribute)
        _complete(family, name, loaded)
    except FOREIGN as error:  # a module of another package may raise anything
        kind = "" if isinstance(error, (ImportError, AttributeError)) else f"{type(error).__name__}: "
        where = raised_at(error, module)
        raise ConfigError(f"{family} {name!r}: {target} cannot be loaded ({where}{kind}{error})") from error
    return loaded


def load(family: str, name: object, path: str = "") -> Any:
    """Return the component class ``name`` of ``family``. Raises ConfigError for an unknown name.

    Add the component first if ``name`` is a class or a kernel.
    """
    if is_component(name):
        name = add(family, name, path)
    if isinstance(name, str) and (family, name) in _added:
        return _added[family, name][1]
    if not isinstance(name, str) or name not in _table(family):
        raise unknown(path or family, family.replace("_", " "), name, names(family))
    return _load(family, name)


def description(family: str, name: str) -> str:
    """Return the description of a component: ``ABOUT`` of its class, or else the summary of a docstring.

    The summary is from the docstring of the module, or of the class if several components share the module.
    """
    component = load(family, name)
    if about := vars(component).get("ABOUT", ""):
        return str(about)
    homes = [target.partition(":")[0] for target in _table(family).values()]
    alone = homes.count(component.__module__) == 1
    home = summary(sys.modules[component.__module__]) if alone else ""
    return home or summary(component)


def summary(documented: object) -> str:
    """Return the first paragraph of a docstring, as one line of plain text."""
    return " ".join((documented.__doc__ or "").strip().partition("\n\n")[0].split()).replace("``", "")


def class_of(family: str, built: AnyParams) -> Any:
    """Return the component class of ``built`` parameters. Raises ConfigError for a missing or redefined class."""
    if built.cannot_be_built:
        raise ConfigError(built.cannot_be_built)
    cls = load(family, type(built).type_name)
    if (family, type(built).type_name) in _added and cls.Params is not type(built):
        raise ConfigError(
            f"{family} {type(built).type_name!r}: the component has been redefined. Load the scenario again"
        )
    return cls


def build(family: str, params: AnyParams, *arguments: object) -> Any:
    """Build the component of ``family`` with checked ``params`` and the other ``arguments`` of its constructor.

    Raises ConfigError for an invalid component of another package (``core/component_guard.py``).
    """
    cls = class_of(family, params)
    if type(params).type_name in built_in(family):
        return cls(params, *arguments)
    from rths_nodes.core import component_guard

    return component_guard.build(family, cls, params, arguments)
