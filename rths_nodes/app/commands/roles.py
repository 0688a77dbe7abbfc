# SPDX-License-Identifier: Apache-2.0
"""``rths roles``: make the keys of operator and responsible, and print the section ``roles`` of a rig file."""

from __future__ import annotations

import argparse
import sys

from rths_nodes.app.commands import arguments, terminal
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.validation import from_data, to_data
from rths_nodes.core.yaml_text import dump
from rths_nodes.loop.scenario.roles import ROLES, SHORTEST_KEY, Roles, hashed, new_salt


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for role in ROLES:
        words = f"who may sign as {role}; may be repeated"
        arguments.add_several(parser, f"--{role}", "NAME", words)


def run(options: argparse.Namespace) -> int:
    """Ask both for their keys, and print what belongs into the rig file. Raises ConfigError."""
    names = {role: getattr(options, role) for role in ROLES}
    if missing := [f"--{role}: missing: who may sign as {role}" for role in ROLES if not names[role]]:
        raise ConfigError(*missing)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ConfigError("there is no terminal: keys are typed, and stand in no file and no argument")
    salt = new_salt()
    found = {role: {"names": names[role], "key": hashed(_typed(role), salt)} for role in ROLES}
    print(dump({"roles": to_data(from_data(Roles, {"salt": salt, **found}, "roles"))}), end="")
    terminal.tell(["into the rig file with it; nobody else learns a key: there is no way back from its hash"])
    return 0


def _typed(role: str) -> str:
    """A key that was typed twice, the same both times."""
    from rths_nodes.app.procedure.dialogue import typed_unseen

    try:
        while True:
            key = typed_unseen(f"key of the {role}, at least {SHORTEST_KEY} characters: ")
            if len(key) < SHORTEST_KEY:
                terminal.tell(
                    [f"{len(key)} characters: must be >= {SHORTEST_KEY}; some words that nobody guesses"]
                )
            elif typed_unseen("the same again: ") == key:
                return key
            else:
                terminal.tell(["these are not the same"])
    except EOFError:
        raise ConfigError("the terminal is closed") from None
