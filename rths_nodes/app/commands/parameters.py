# SPDX-License-Identifier: Apache-2.0
"""``rths params``: parameters of components, sections and keys."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rths_nodes.app.commands import completion, terminal
from rths_nodes.app.commands.listing import described
from rths_nodes.core import registry
from rths_nodes.core.errors import unknown
from rths_nodes.core.parameter_table import ANY, Row, sections, table
from rths_nodes.core.parameters import declared
from rths_nodes.loop.scenario.schema import Scenario

SCENARIO = "scenario"
"""Name of the top level of a scenario file."""


class Found(NamedTuple):
    """Description of a component, section or key: parameters, or possible types."""

    title: str
    words: str
    rows: Sequence[Row] = ()
    types: Sequence[tuple[str, str]] = ()
    family: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    name = parser.add_argument(
        "name",
        metavar="NAME",
        help="a component (first_order), a section (axes, port, monitor) or a key (axes.story_1.limits.force)",
    )
    completion.offer(name, lambda prefix, given: _known())


def run(options: argparse.Namespace) -> int:
    found = [*_components(options.name), *_sections(options.name)]
    if not found:
        raise unknown(options.name, "component, section or key", options.name, _known())
    for each in found:
        _print(each)
    return 0


def _known() -> list[str]:
    names = {name for family in registry.FAMILIES for name in registry.names(family)}
    return sorted({*names, *registry.FAMILIES, *_classes(), *declared(Scenario)})


def _print(found: Found) -> None:
    from rich.text import Text

    console = terminal.console()
    console.print(Text.assemble((found.title, "bold"), f": {found.words}"), soft_wrap=True)
    if found.types:
        grid = terminal.grid("type", "what it is")
        for name, words in found.types:
            grid.add_row(Text(name), Text(words))
        terminal.show(console, grid)
    if found.rows:
        grid = terminal.grid("parameter", "unit", "bound", "default", "meaning")
        for row in found.rows:
            grid.add_row(*map(Text, (row.name, row.unit, row.bound, row.default, row.doc)))
        terminal.show(console, grid)
    if not found.types and not found.rows:
        console.print("  no parameters\n")


def _components(name: str) -> Iterator[Found]:
    for family in registry.FAMILIES:
        if name in registry.names(family):
            component = registry.load(family, name)
            words, equation = registry.description(family, name), registry.first_line(component)
            both = words if words == equation else f"{words} {equation}"
            yield Found(f"{name} ({family.replace('_', ' ')})", both, table(component.Params))


def _classes() -> dict[str, type]:
    return {SCENARIO: Scenario, **dict(sections(Scenario))}


def _sections(path: str) -> Iterator[Found]:
    """Yield the section at ``path`` and its parts, or the key there, or a family of that name."""
    known = _classes()
    places = sorted((place for place in known if _fits(path, place)), key=lambda place: place != path)
    for place in places:
        for inner, cls in known.items():
            if inner == place or inner.startswith(f"{place}."):
                yield Found(inner, registry.first_line(cls), table(cls))
    if not places:
        keys = [*_keys(path), *_keys_of_types(path)]
        yield from keys
        if not keys and path in registry.FAMILIES:
            yield _family(path, path, "a part of another section")


def _fits(path: str, place: str) -> bool:
    """Return whether ``path`` names the section at ``place``: fully, without its last name, or by it alone."""
    words, pattern = path.split("."), place.split(".")
    same = len(words) == len(pattern) and all(b in (a, ANY) for a, b in zip(words, pattern, strict=True))
    return same or f"{path}.{ANY}" == place or path == pattern[-1]


def _keys(path: str) -> Iterator[Found]:
    head, _, key = path.rpartition(".")
    for place, cls in _classes().items():
        if _fits(head, place) if head else place == SCENARIO:
            yield from _key(cls, key, path)


def _keys_of_types(path: str) -> Iterator[Found]:
    """Yield the key at ``path`` of a section with a type, for each type that has it."""
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


def _family(path: str, family: str, words: str, default: str = "") -> Found:
    types = described(family)
    usual = f"; {default} by default" if default in dict(types) else ""
    rows = table(registry.load(family, types[0][0]).Params) if len(types) == 1 else ()
    more = "" if rows else "; rths params TYPE shows the parameters of a type"
    return Found(path, f"{words}{usual}{more}", rows, types, family)
