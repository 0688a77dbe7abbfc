# SPDX-License-Identifier: Apache-2.0
"""Write the reference pages, doc/reference.md and doc/reference, from the code: python doc/reference_pages.py"""

from __future__ import annotations

import argparse
import struct
from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path

import attrs

from rths_nodes.analysis.index_definitions import DEFINITIONS
from rths_nodes.app import cli
from rths_nodes.app.commands import listing
from rths_nodes.app.emulation import planted
from rths_nodes.laboratory.ports import datagrams
from rths_nodes.loop import options
from rths_nodes.loop.scenario import judgement
from rths_nodes.procedure.commissioning.trials import TRIALS
from rths_nodes.ros import names
from rths_nodes.ros.names import Topic

FOLDER = Path(__file__).resolve().parent
MADE = "Made by `python doc/reference_pages.py`."
TYPES = {"B": "uint8", "H": "uint16", "I": "uint32"}


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["", *(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)]


def _argument(action: argparse.Action) -> str:
    metavar = action.metavar if isinstance(action.metavar, str) else " ".join(action.metavar or ())
    value = metavar or ("" if action.nargs == 0 else action.dest.upper())
    if action.choices and not metavar:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    if not action.option_strings:
        return f"`{value}`"
    return f"`{', '.join(action.option_strings)} {value}`".replace(" `", "`")


def commands() -> list[str]:
    """Every command with its arguments and options, from the parser."""
    lines = ["# Commands and options", "", MADE]
    parser = cli._parser()
    (subparsers,) = (action.choices for action in parser._actions if isinstance(action.choices, dict))
    for title, group in cli.GROUPS.items():
        lines += ["", f"## {title.capitalize()}"]
        for name in group:
            sub: argparse.ArgumentParser = subparsers[name]
            expand = sub._get_formatter()._expand_help
            rows = [
                (_argument(action), expand(action) if action.help else "")
                for action in sub._actions
                if action.dest != "help" and action.help != argparse.SUPPRESS
            ]
            lines += ["", f"### rths {name}", "", sub.description or "", *_table(("argument", "meaning"), rows)]
    return lines


def shipped() -> list[str]:
    """Shipped scenarios, rig files and components, as ``rths list`` prints them."""
    lines = ["# Scenarios, rig files, components", "", MADE]
    for family in listing.FAMILIES:
        rows = [(f"`{name}`", line) for name, line in listing.described(family)]
        lines += ["", f"## {family.replace('_', ' ').capitalize()}", *_table(("name", "description"), rows)]
    return lines


def _shown(default: object) -> str:
    if default is attrs.NOTHING:
        return "required"
    if isinstance(default, (tuple, str)):
        return f"`{default}`" if default and isinstance(default, str) else ""
    return f"`{str(default).lower()}`"


def _options(interface: str) -> list[str]:
    rows = [
        (f"`{name}`", ", ".join(option.roles) or "all", _shown(option.default), option.doc)
        for name, option in options.options(interface).items()
    ]
    return _table(("name", "nodes", "default", "meaning"), rows)


def _quality(topic: Topic) -> str:
    if topic.stream:
        return "stream"
    kept = "latched" if topic.latched else f"keep last {topic.depth}"
    return f"best effort, {kept}" if topic.best_effort else kept


def _topics(topics: Iterable[Topic]) -> list[str]:
    rows = [
        (
            f"`{topic.name}`",
            f"`{topic.type}`",
            ", ".join(topic.publishers) or "other programs",
            ", ".join(topic.subscribers) or "other programs",
            _quality(topic),
        )
        for topic in topics
    ]
    return _table(("topic", "type", "publishers", "subscribers", "QoS"), rows)


def ros() -> list[str]:
    """Launch arguments, parameters, topics and messages."""
    lines = ["# Topics, messages, launch arguments, parameters", "", MADE, "", "## Topics", ""]
    lines += [
        "Relative to the namespace of the rig, `rths` by default. [ROS 2](../ros.md#topics) explains the QoS."
    ]
    lines += _topics([*names.TOPICS.values(), *names.TRIP_REQUESTS, names.DIAGNOSTICS, names.CLOCK])
    lines += ["", "### Of an axis with its own node", *_topics(names.AXIS_TOPICS.values())]
    lines += ["", "### Of a procedure", *_topics(names.OPERATOR_TOPICS.values())]
    lines += ["", "## Launch arguments", *_options(options.LAUNCH)]
    lines += ["", "## Parameters of the nodes", *_options(options.NODE), "", "## Messages"]
    for path in sorted((FOLDER.parent / "msg").glob("*.msg")):
        text = path.read_text(encoding="utf-8").partition("\n")[2]
        lines += ["", f"### {path.stem}", "", "```text", *text.rstrip().splitlines(), "```"]
    return lines


def rules() -> list[str]:
    """Rules by which a scenario is judged on its rig."""
    rows = [
        (f"`{rule.name}`", f"{rule.weight}{', of a real rig' * rule.real}", rule.relation, rule.reason)
        for rule in judgement.RULES
    ]
    lines = ["# Rules of rig files and scenarios", "", MADE]
    lines += ["[Rig file](../rig_file.md#cautions-and-refusals) says when they apply."]
    return lines + _table(("rule", "result", "required", "reason"), rows)


def indices() -> list[str]:
    """Every index of a test, by the beginning of its name."""
    text = (
        "The name of an index continues with its unit (`_ms`, `_mm`, `_percent`), an axis, a floor, or `_true` "
        "for the true displacement, which only a simulated rig has. `QUANTITY_range` is the range of a recorded "
        "quantity."
    )
    rows = [(f"`{name}`", of.title, of.meaning) for name, of in DEFINITIONS.items()]
    return ["# Indices", "", MADE, "", text, *_table(("name", "title", "meaning"), rows)]


def commissioning() -> list[str]:
    """Trials of a commissioning, and the faults that they detect."""
    trials = [(", ".join(trial.causes), trial.done, trial.bound, trial.proves) for trial in TRIALS.values()]
    faults = [(f"`{name}`", meaning) for name, meaning in planted.KINDS.items()]
    lines = ["# Trials of a commissioning", "", MADE]
    lines += ["[Safety](../safety.md#commissioning) says how they are used."]
    lines += _table(("cause", "action", "requirement", "proves"), trials)
    lines += [
        "",
        "## Faults of an emulated rig",
        "",
        "`rths emulate SCENARIO --plant FAULT`, for training and tests.",
    ]
    return lines + _table(("fault", "effect"), faults)


def layout() -> list[str]:
    """Head and reasons of the datagrams of the port ``udp``."""
    sizes = [struct.calcsize(kind) for kind, _ in datagrams.LAYOUT.values()]
    offsets = accumulate([0, *sizes])
    head = [
        (str(offset), name, TYPES[kind], meaning)
        for offset, (name, (kind, meaning)) in zip(offsets, datagrams.LAYOUT.items(), strict=False)
    ]
    reasons = [(str(number), reason) for number, reason in datagrams.REASONS.items()]
    lines = ["# Head and reasons of the datagrams", "", MADE]
    lines += [f"Version {datagrams.VERSION}. [A rig by UDP](../udp.md#layout) has the rows after the head."]
    lines += _table(("byte", "field", "type", "meaning"), head)
    return [*lines, "", "## Reasons", *_table(("reason", "meaning"), reasons)]


PAGES = {
    "commands": ("every command with its options", commands),
    "ros": ("topics, messages, launch arguments, parameters of the nodes", ros),
    "shipped": ("scenarios, rig files and components that are shipped", shipped),
    "indices": ("indices of tests, and their definitions", indices),
    "rules": ("rules by which rig file and scenario are judged", rules),
    "commissioning": ("trials of a commissioning, and the faults that they detect", commissioning),
    "datagrams": ("head and reasons of the datagrams of the port `udp`", layout),
}
"""Name of a page: description, function that returns its lines."""


def pages() -> dict[str, str]:
    """Return the pages as files: ``reference.md``, and one in ``reference/`` for each of its rows."""
    files = {f"reference/{name}.md": "\n".join([*lines(), ""]) for name, (_, lines) in PAGES.items()}
    rows = [(f"[{name}](reference/{name}.md)", contents) for name, (contents, _) in PAGES.items()]
    tree = ["", "```{toctree}", ":hidden:", *(f"reference/{name}" for name in PAGES), "```", ""]
    head = ["# Tables made from the code", "", f"{MADE} [Parameters](parameters.md) are listed on other pages."]
    return {"reference.md": "\n".join([*head, *_table(("page", "contents"), rows), *tree]), **files}


def main() -> None:
    """Write the pages."""
    (FOLDER / "reference").mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
