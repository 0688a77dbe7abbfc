# SPDX-License-Identifier: Apache-2.0
"""Commands that print information about components, parameters and files.

``rths list``: list scenarios, rig files and components with their descriptions.

``rths params``: show the parameters of a component, a section or a key.

``rths schema``: print the JSON Schema of scenarios or rig files, for editors.

``rths cite``: print the BibTeX entries of the methods that a scenario uses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rths_nodes.app.commands import arguments, terminal
from rths_nodes.core import registry, yaml_text
from rths_nodes.core.errors import ConfigError, unknown
from rths_nodes.core.parameter_docs import ANY, Row, json_schema, sections, table
from rths_nodes.core.parameters import declared
from rths_nodes.core.resources import resource
from rths_nodes.core.text_files import write
from rths_nodes.core.validation import walk_declared
from rths_nodes.core.version import __version__
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.rig_file import RigFile
from rths_nodes.loop.scenario.schema import Scenario

SCENARIO, RIG_FILE = "scenario", "rig_file"
FILES = {SCENARIO: files.SCENARIO, RIG_FILE: files.RIG}
FAMILIES = (*FILES, *registry.FAMILIES)
KINDS = {SCENARIO: Scenario, RIG_FILE: RigFile}


def list_arguments(add: arguments.Arguments) -> None:
    text = f"family to list, one of {', '.join(FAMILIES)}; default: all"
    add("family FAMILY", text, nargs="?", choices=FAMILIES)


def list_command(options: arguments.Options) -> None:
    families = {family: described(family) for family in ([options.family] if options.family else FAMILIES)}
    widest = max(len(name) for rows in families.values() for name, _ in rows)
    for family, rows in families.items():
        indent = "" if options.family else "  "
        if not options.family:
            print(family)
        for name, description in rows:
            print(terminal.folded(description, f"{indent}{name:{widest}}  "))


def described(family: str) -> list[tuple[str, str]]:
    """Return the names and descriptions of the components, scenarios or rig files of a family."""
    if family not in FILES:
        return [(name, _description(family, name)) for name in registry.names(family)]
    paths = files.shipped(FILES[family])
    data = {name: yaml_text.parse(path.read_text(encoding="utf-8"), str(path)) for name, path in paths.items()}
    return [(name, str(content.get("description", ""))) for name, content in data.items()]


def _description(family: str, name: str) -> str:
    try:
        return registry.description(family, name)
    except ConfigError as error:  # a broken package must not hide the others
        return f"({error})"


class Entry(NamedTuple):
    title: str
    description: str
    rows: Sequence[Row] = ()
    types: Sequence[tuple[str, str]] = ()
    family: str = ""


def params_arguments(add: arguments.Arguments) -> None:
    text = "a component (first_order), a section (axes, port, monitor) or a key (axes.story_1.limits.force)"
    add("name NAME", text, completer=lambda prefix, options: _names())


def params_command(options: arguments.Options) -> None:
    results = [*_components(options.name), *_sections(options.name)]
    if not results:
        raise unknown(options.name, "component, section or key", options.name, _names())
    for result in results:
        _print(result)


def _names() -> list[str]:
    names = {name for family in registry.FAMILIES for name in registry.names(family)}
    return sorted({*names, *registry.FAMILIES, *_classes(), *declared(Scenario)})


def _print(result: Entry) -> None:
    from rich.text import Text

    terminal.console().print(Text.assemble((result.title, "bold"), f": {result.description}"), soft_wrap=True)
    if result.types:
        terminal.table((map(Text, row) for row in result.types), "type", "description")
    if result.rows:
        rows = (map(Text, (row.name, row.unit, row.bound, row.default, row.doc)) for row in result.rows)
        terminal.table(rows, "parameter", "unit", "bound", "default", "meaning")
    if not result.types and not result.rows:
        print("  no parameters\n")


def _components(name: str) -> Iterator[Entry]:
    for family in registry.FAMILIES:
        if name in registry.names(family):
            component = registry.load(family, name)
            description, equation = registry.description(family, name), registry.summary(component)
            both = description if description == equation else f"{description} {equation}"
            yield Entry(f"{name} ({family.replace('_', ' ')})", both, table(component.Params))


def _classes() -> dict[str, type]:
    return {SCENARIO: Scenario, **dict(sections(Scenario))}


def _sections(path: str) -> Iterator[Entry]:
    classes = _classes()
    places = sorted((section for section in classes if _fits(path, section)), key=lambda section: section != path)
    for section in places:
        for inner, cls in classes.items():
            if inner == section or inner.startswith(f"{section}."):
                yield Entry(inner, registry.summary(cls), table(cls))
    if not places:
        keys = [*_keys(path), *_keys_of_types(path)]
        yield from keys
        if not keys and path in registry.FAMILIES:
            yield _family(path, path, "a part of another section")


def _fits(path: str, section: str) -> bool:
    parts, pattern = path.split("."), section.split(".")
    same = len(parts) == len(pattern) and all(b in (a, ANY) for a, b in zip(parts, pattern, strict=True))
    return same or f"{path}.{ANY}" == section or path == pattern[-1]


def _keys(path: str) -> Iterator[Entry]:
    head, _, key = path.rpartition(".")
    for section, cls in _classes().items():
        if _fits(head, section) if head else section == SCENARIO:
            yield from _key(cls, key, path)


def _keys_of_types(path: str) -> Iterator[Entry]:
    head, _, key = path.rpartition(".")
    for outer in [*_keys(head), *_keys_of_types(head)] if head else ():
        for name, _ in outer.types:
            cls = registry.load(outer.family, name).Params
            yield from _key(cls, key, f"{path} ({name})")


def _key(cls: type, key: str, title: str) -> Iterator[Entry]:
    for row in table(cls):
        if row.name == key:
            family = declared(cls)[key].family
            yield _family(title, family, row.doc, row.default) if family else Entry(title, row.doc, [row])


def _family(path: str, family: str, description: str, default: str = "") -> Entry:
    types = described(family)
    usual = f"; default: {default}" if default in dict(types) else ""
    rows = table(registry.load(family, types[0][0]).Params) if len(types) == 1 else ()
    more = "" if rows else "; rths params TYPE shows the parameters of a type"
    return Entry(path, f"{description}{usual}{more}", rows, types, family)


def schema_arguments(add: arguments.Arguments) -> None:
    add("kind", "kind of file", SCENARIO, nargs="?", choices=(*KINDS, "rig"))
    add("--out FILE", "file to write; default: standard output")


def schema_command(options: arguments.Options) -> None:
    source = schema_text(RIG_FILE if options.kind == "rig" else options.kind)
    if options.out is None:
        print(source, end="")
        return
    path = Path(options.out)
    terminal.check_writable(path)
    with terminal.writing(path, "schema"):
        write(path, source.encode())


def schema_text(kind: str) -> str:
    schema = json_schema(KINDS[kind], f"rths_nodes {kind.replace('_', ' ')}")
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def schema_file(kind: str) -> str:
    return f"{kind}.schema.json"


PUBLICATIONS = "references.bib"
EVALUATION = (
    ("tracking indicator", "mercan_2007"),
    ("hybrid simulation energy monitor", "mosqueda_2007"),
    ("frequency evaluation index", "guo_2014"),
)
OWN = (
    "@software{rths_nodes,\n  title = {rths_nodes: real-time hybrid simulation with ROS 2},\n"
    f"  version = {{{__version__}}},\n}}"
)


def cite_arguments(add: arguments.Arguments) -> None:
    add.scenario()


def cite_command(options: arguments.Options) -> None:
    scenario = arguments.scenario(options)
    entries, used = publications(), dict[str, list[str]]()
    for path, source in [*_sources(scenario), *EVALUATION]:
        if not source.lstrip().startswith("@") and source not in entries:
            raise unknown(path, "publication", source, entries)
        used.setdefault(source, []).append(path)
    blocks = [f"% {scenario.name}\n{OWN}"]
    blocks += [f"% {', '.join(places)}\n{entries.get(source, source.strip())}" for source, places in used.items()]
    print("\n\n".join(blocks))


def publications() -> dict[str, str]:
    try:
        text = resource("config", PUBLICATIONS).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{PUBLICATIONS}: {error.strerror or error}") from None
    return {entry[1]: entry[0] for entry in re.finditer(r"^@\w+\{(\w+),.*?^\}", text, re.S | re.M)}


def _sources(scenario: Scenario) -> Iterator[tuple[str, str]]:
    for path, part, specs in walk_declared(scenario):
        if specs and specs[-1].family:
            cls = registry.class_of(specs[-1].family, part)
            name = f"{path}.type = {type(part).type_name}"
            yield from ((name, source) for source in cls.SOURCES)
