# SPDX-License-Identifier: Apache-2.0
"""``rths params``: show the parameters of a component, a section or a key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rths_nodes.app.commands import arguments, terminal
from rths_nodes.app.commands.listing import described
from rths_nodes.core import registry
from rths_nodes.core.errors import unknown
from rths_nodes.core.parameter_docs import ANY, Row, sections, table
from rths_nodes.core.parameters import declared
from rths_nodes.loop.scenario.schema import Scenario

SCENARIO = "scenario"


class Found(NamedTuple):
    title: str
    description: str
    rows: Sequence[Row] = ()
    types: Sequence[tuple[str, str]] = ()
    family: str = ""


def add_arguments(add: arguments.Arguments) -> None:
    text = "a component (first_order), a section (axes, port, monitor) or a key (axes.story_1.limits.force)"
    add("name NAME", text, completer=lambda prefix, options: _names())


def run(options: arguments.Options) -> None:
    results = [*_components(options.name), *_sections(options.name)]
    if not results:
        raise unknown(options.name, "component, section or key", options.name, _names())
    for result in results:
        _print(result)


def _names() -> list[str]:
    names = {name for family in registry.FAMILIES for name in registry.names(family)}
    return sorted({*names, *registry.FAMILIES, *_classes(), *declared(Scenario)})


def _print(result: Found) -> None:
    from rich.text import Text

    terminal.console().print(Text.assemble((result.title, "bold"), f": {result.description}"), soft_wrap=True)
    if result.types:
        terminal.table((map(Text, row) for row in result.types), "type", "description")
    if result.rows:
        rows = (map(Text, (row.name, row.unit, row.bound, row.default, row.doc)) for row in result.rows)
        terminal.table(rows, "parameter", "unit", "bound", "default", "meaning")
    if not result.types and not result.rows:
        print("  no parameters\n")


def _components(name: str) -> Iterator[Found]:
    for family in registry.FAMILIES:
        if name in registry.names(family):
            component = registry.load(family, name)
            description, equation = registry.description(family, name), registry.summary(component)
            both = description if description == equation else f"{description} {equation}"
            yield Found(f"{name} ({family.replace('_', ' ')})", both, table(component.Params))


def _classes() -> dict[str, type]:
    return {SCENARIO: Scenario, **dict(sections(Scenario))}


def _sections(path: str) -> Iterator[Found]:
    classes = _classes()
    places = sorted((section for section in classes if _fits(path, section)), key=lambda section: section != path)
    for section in places:
        for inner, cls in classes.items():
            if inner == section or inner.startswith(f"{section}."):
                yield Found(inner, registry.summary(cls), table(cls))
    if not places:
        keys = [*_keys(path), *_keys_of_types(path)]
        yield from keys
        if not keys and path in registry.FAMILIES:
            yield _family(path, path, "a part of another section")


def _fits(path: str, section: str) -> bool:
    parts, pattern = path.split("."), section.split(".")
    same = len(parts) == len(pattern) and all(b in (a, ANY) for a, b in zip(parts, pattern, strict=True))
    return same or f"{path}.{ANY}" == section or path == pattern[-1]


def _keys(path: str) -> Iterator[Found]:
    head, _, key = path.rpartition(".")
    for section, cls in _classes().items():
        if _fits(head, section) if head else section == SCENARIO:
            yield from _key(cls, key, path)


def _keys_of_types(path: str) -> Iterator[Found]:
    head, _, key = path.rpartition(".")
    for outer in [*_keys(head), *_keys_of_types(head)] if head else ():
        for name, _ in outer.types:
            cls = registry.load(outer.family, name).Params
            yield from _key(cls, key, f"{path} ({name})")


def _key(cls: type, key: str, title: str) -> Iterator[Found]:
    for row in table(cls):
        if row.name == key:
            family = declared(cls)[key].family
            yield _family(title, family, row.doc, row.default) if family else Found(title, row.doc, [row])


def _family(path: str, family: str, description: str, default: str = "") -> Found:
    types = described(family)
    usual = f"; default: {default}" if default in dict(types) else ""
    rows = table(registry.load(family, types[0][0]).Params) if len(types) == 1 else ()
    more = "" if rows else "; rths params TYPE shows the parameters of a type"
    return Found(path, f"{description}{usual}{more}", rows, types, family)
