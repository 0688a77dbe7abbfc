# SPDX-License-Identifier: Apache-2.0
"""``rths params``: parameters of components, sections and keys."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rths_nodes.app.commands import completion, terminal
from rths_nodes.app.commands.listing import described
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError, unknown
from rths_nodes.core.parameter_table import ANY, Row, sections, table
from rths_nodes.core.parameters import declared
from rths_nodes.loop.scenario.rig_file import RigFile, RigFileAxis
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
        nargs="?",
        metavar="NAME",
        help="a component (first_order), a section (axes, port, monitor) or a key (axes.story_1.limits.force); "
        "left out: all parameters, as Markdown",
    )
    completion.offer(name, lambda prefix, given: _known())
    parser.add_argument(
        "--pages", metavar="FOLDER", help="write parameters.md into it, and a page for each family"
    )


def run(options: argparse.Namespace) -> int:
    """Show the parameters of one component, section or key, or all of them as Markdown."""
    if options.pages is not None:
        if options.name is not None or not Path(options.pages).is_dir():
            raise ConfigError(
                f"--pages = {options.pages!r}: must be a folder that is there, and stand without a NAME"
            )
        _write(Path(options.pages))
        return 0
    if options.name is None:
        print(page())
        return 0
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


Chapter = tuple[str, str, type]
"""Title, description, and class of the parameters."""
HEAD = "SI units unless the name says otherwise."
MADE = "Made by `rths params --pages doc`."


def chapters() -> dict[str, list[Chapter]]:
    """Return all parameters by page: scenario, rig file, and each family of components."""
    found: dict[str, list[Chapter]] = {
        SCENARIO: [("A scenario", "The top level of a scenario file.", Scenario)],
        "axes": [],
        "rig_axis": [],
        "rig_file": [
            ("A rig file", "The top level of a rig file (--rig).", RigFile),
            (
                "An axis of a rig file",
                "axes.NAME; its sections are those of axes.NAME of a scenario.",
                RigFileAxis,
            ),
        ],
    }
    for place, cls in sections(Scenario):
        page = next((name for name in ("rig_axis", "axes") if name in place.split(".")), SCENARIO)
        found[page].append((place, registry.first_line(cls), cls))
    for family in registry.FAMILIES:
        loaded = [(name, registry.load(family, name)) for name in registry.names(family)]
        found[family] = [(f"{_plain(family)}: {name}", registry.first_line(of), of.Params) for name, of in loaded]
    return found


def _plain(page: str) -> str:
    return page.replace("_", " ")


def _chapter(title: str, words: str, cls: type) -> list[str]:
    rows = table(cls)
    head = ["", "| parameter | unit | bound | default | meaning |", "|---|---|---|---|---|"] if rows else []
    lines = [f"| `{row.name}` | {row.unit} | {row.bound} | {row.default} | {row.doc} |" for row in rows]
    return ["", f"## {title}", "", words, *head, *lines]


def _contents(titles: Sequence[str]) -> str:
    within = titles[0] if all(title.startswith(titles[0]) for title in titles) else ""
    names = (title.rpartition(": ")[2].removeprefix(f"{within}.").split(".")[0] for title in titles)
    return ", ".join(f"`{name}`" for name in dict.fromkeys(names))


def page() -> str:
    """Return all parameters as one Markdown page."""
    parts = [line for of in chapters().values() for chapter in of for line in _chapter(*chapter)]
    return "\n".join(["# Parameters", "", HEAD, *parts])


def pages() -> dict[str, str]:
    """Return them as files: ``parameters.md``, and one in ``parameters/`` for each of its rows."""
    files, rows = {}, []
    for name, of in chapters().items():
        parts = [line for chapter in of for line in _chapter(*chapter)]
        head = [f"# Parameters: {_plain(name)}", "", f"{MADE} {HEAD}"]
        files[f"parameters/{name}.md"] = "\n".join([*head, *parts, ""])
        rows.append(f"| [{_plain(name)}](parameters/{name}.md) | {_contents([title for title, _, _ in of])} |")
    head = [
        "# Parameters",
        "",
        f"{MADE} {HEAD} `rths params NAME` prints one of them.",
        "",
        "| page | of |",
        "|---|---|",
    ]
    tree = ["", "```{toctree}", ":hidden:", *(name.removesuffix(".md") for name in files), "```", ""]
    return {"parameters.md": "\n".join([*head, *rows, *tree]), **files}


def _write(folder: Path) -> None:
    written = pages()
    with terminal.writing(folder / "parameters.md", ""):
        (folder / "parameters").mkdir(exist_ok=True)
        for name, text in written.items():
            (folder / name).write_text(text, encoding="utf-8")
