# SPDX-License-Identifier: Apache-2.0
"""``rths list``: list scenarios, rig files and components with their descriptions."""

from __future__ import annotations

from pathlib import Path

from rths_nodes.app.commands import arguments, terminal
from rths_nodes.core import registry, yaml_text
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.scenario import files

FILES = {"scenario": files.SCENARIO, "rig_file": files.RIG}
FAMILIES = (*FILES, *registry.FAMILIES)


def add_arguments(add: arguments.Arguments) -> None:
    text = f"family to list, one of {', '.join(FAMILIES)}; default: all"
    add("family FAMILY", text, nargs="?", choices=FAMILIES)


def run(options: arguments.Options) -> None:
    families = {family: described(family) for family in ([options.family] if options.family else FAMILIES)}
    widest = max(len(name) for rows in families.values() for name, _ in rows)
    for family, rows in families.items():
        indent = "" if options.family else "  "
        if not options.family:
            print(family)
        for name, description in rows:
            print(terminal.folded(description, f"{indent}{name:{widest}}  "))


def described(family: str) -> list[tuple[str, str]]:
    if family in FILES:
        return [(name, _of_file(path)) for name, path in files.shipped(FILES[family]).items()]
    return [(name, _description(family, name)) for name in registry.names(family)]


def _of_file(path: Path) -> str:
    return str(yaml_text.parse(path.read_text(encoding="utf-8"), str(path)).get("description", ""))


def _description(family: str, name: str) -> str:
    try:
        return registry.description(family, name)
    except ConfigError as error:  # a broken package must not hide the others
        return f"({error})"
