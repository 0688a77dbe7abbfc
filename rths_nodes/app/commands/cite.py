# SPDX-License-Identifier: Apache-2.0
"""``rths cite``: print the BibTeX entries of the methods that a scenario uses."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rths_nodes.app.commands import arguments
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError, unknown
from rths_nodes.core.resources import resource
from rths_nodes.core.validation import walk_declared
from rths_nodes.core.version import __version__
from rths_nodes.loop.scenario.schema import Scenario

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


def add_arguments(add: arguments.Arguments) -> None:
    add.scenario()


def run(options: arguments.Options) -> None:
    scenario = arguments.scenario(options)
    entries, used = publications(), dict[str, list[str]]()
    for path, source in [*_of_components(scenario), *EVALUATION]:
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


def _of_components(scenario: Scenario) -> Iterator[tuple[str, str]]:
    for path, part, declared in walk_declared(scenario):
        if declared and declared[-1].family:
            cls = registry.class_of(declared[-1].family, part)
            name = f"{path}.type = {type(part).type_name}"
            yield from ((name, source) for source in cls.SOURCES)
