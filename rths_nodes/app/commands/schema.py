# SPDX-License-Identifier: Apache-2.0
"""``rths schema``: print the JSON Schema of scenarios or rig files, for editors."""

from __future__ import annotations

import json
from pathlib import Path

from rths_nodes.app.commands import arguments, terminal
from rths_nodes.core.parameter_docs import json_schema
from rths_nodes.loop.scenario.rig_file import RigFile
from rths_nodes.loop.scenario.schema import Scenario

SCENARIO, RIG_FILE = "scenario", "rig_file"
KINDS = {SCENARIO: Scenario, RIG_FILE: RigFile}


def add_arguments(add: arguments.Arguments) -> None:
    add("kind", "kind of file", SCENARIO, nargs="?", choices=(*KINDS, "rig"))
    add("--out FILE", "file to write; default: standard output")


def run(options: arguments.Options) -> None:
    source = text(RIG_FILE if options.kind == "rig" else options.kind)
    if options.out is None:
        print(source, end="")
        return
    path = Path(options.out)
    terminal.check_writable(path)
    with terminal.writing(path, "schema"):
        path.write_text(source, encoding="utf-8")


def text(kind: str) -> str:
    schema = json_schema(KINDS[kind], f"rths_nodes {kind.replace('_', ' ')}")
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def file_name(kind: str) -> str:
    return f"{kind}.schema.json"
