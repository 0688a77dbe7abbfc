# SPDX-License-Identifier: Apache-2.0
"""Write the pages of parameters, doc/parameters.md and doc/parameters: python doc/parameter_pages.py"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rths_nodes.core import registry
from rths_nodes.core.parameter_table import sections, table
from rths_nodes.loop.scenario.rig_file import RigFile, RigFileAxis
from rths_nodes.loop.scenario.schema import Scenario

FOLDER = Path(__file__).resolve().parent
SCENARIO = "scenario"
"""Page of the top level of a scenario file, and of its sections."""
Chapter = tuple[str, str, type]
"""Title, description, and class of the parameters."""
HEAD = "SI units unless the name says otherwise."
MADE = "Made by `python doc/parameter_pages.py`."


def chapters() -> dict[str, list[Chapter]]:
    """Return all parameters by page: scenario, rig file, and each family of components."""
    pages: dict[str, list[Chapter]] = {
        SCENARIO: [("A scenario", "The top level of a scenario file.", Scenario)],
        "axes": [],
        "rig_axis": [],
        "rig_file": [
            ("A rig file", "The top level of a rig file (--rig).", RigFile),
            (
                "An axis of a rig file",
                "axes.NAME; it has the sections of axes.NAME of a scenario.",
                RigFileAxis,
            ),
        ],
    }
    for path, cls in sections(Scenario):
        page = next((name for name in ("rig_axis", "axes") if name in path.split(".")), SCENARIO)
        pages[page].append((path, registry.summary(cls), cls))
    for family in registry.FAMILIES:
        parts = [(name, registry.load(family, name)) for name in registry.names(family)]
        pages[family] = [
            (f"{_plain(family)}: {name}", registry.summary(part), part.Params) for name, part in parts
        ]
    return pages


def _plain(page: str) -> str:
    return page.replace("_", " ")


def _chapter(title: str, text: str, cls: type) -> list[str]:
    rows = table(cls)
    head = ["", "| parameter | unit | bound | default | meaning |", "|---|---|---|---|---|"] if rows else []
    lines = [f"| `{row.name}` | {row.unit} | {row.bound} | {row.default} | {row.doc} |" for row in rows]
    return ["", f"## {title}", "", text, *head, *lines]


def _contents(titles: Sequence[str]) -> str:
    within = titles[0] if all(title.startswith(titles[0]) for title in titles) else ""
    names = (title.rpartition(": ")[2].removeprefix(f"{within}.").split(".")[0] for title in titles)
    return ", ".join(f"`{name}`" for name in dict.fromkeys(names))


def pages() -> dict[str, str]:
    """Return the files: ``parameters.md``, and one in ``parameters/`` per row of it."""
    files, rows = {}, []
    for name, shown in chapters().items():
        parts = [line for chapter in shown for line in _chapter(*chapter)]
        head = [f"# Parameters: {_plain(name)}", "", f"{MADE} {HEAD}"]
        files[f"parameters/{name}.md"] = "\n".join([*head, *parts, ""])
        rows.append(f"| [{_plain(name)}](parameters/{name}.md) | {_contents([title for title, _, _ in shown])} |")
    head = [
        "# Parameters",
        "",
        f"{MADE} {HEAD} `rths params NAME` prints the parameters of a component.",
        "",
        "| page | of |",
        "|---|---|",
    ]
    tree = ["", "```{toctree}", ":hidden:", *(name.removesuffix(".md") for name in files), "```", ""]
    return {"parameters.md": "\n".join([*head, *rows, *tree]), **files}


def main() -> None:
    """Write the pages."""
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
