# SPDX-License-Identifier: Apache-2.0
"""Completion on the command line, and ``rths completion``: the code that switches it on in a shell.

A shell that completes a line starts ``rths`` with an environment variable set; in every other start nothing of
argcomplete is loaded.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.faults.kinds import KINDS
from rths_nodes.loop.scenario import files

SHELLS = ("bash", "zsh")
ASKED = "_ARGCOMPLETE"
"""Environment variable that is set where a shell asks for completions."""

Completer = Callable[[str, argparse.Namespace], Iterable[str]]
"""The beginning of a word, and what else is given -> the words that may stand there."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS)


def run(options: argparse.Namespace) -> int:
    """Print the code that the shell has to run. Raises ConfigError where argcomplete is missing."""
    try:
        from argcomplete.shell_integration import shellcode
    except ImportError:
        raise ConfigError("completion: needs python3-argcomplete (pip install argcomplete)") from None
    print(shellcode(["rths"], shell=options.shell))
    return 0


def answer(parser: argparse.ArgumentParser) -> None:
    """Where a shell asks, tell it what may stand next, and end; else do nothing."""
    if ASKED in os.environ:
        with suppress(ImportError):
            import argcomplete

            argcomplete.autocomplete(parser)


def offer(argument: Any, completer: Completer) -> None:
    """``argument`` of a parser is completed by ``completer``; where that refuses what is given, by nothing."""

    def complete(prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
        with suppress(ConfigError):
            return list(completer(prefix, parsed_args))
        return []

    argument.completer = complete


def yaml_files(prefix: str, given: argparse.Namespace) -> list[str]:
    """The files and folders that begin with ``prefix``."""
    import argcomplete

    return list(argcomplete.completers.FilesCompleter(("yaml", "yml"))(prefix))


def shipped(kind: str) -> Completer:
    """By the shipped files of ``kind``, and the files and folders that begin with what is typed."""
    return lambda prefix, given: [*files.shipped(kind), *yaml_files(prefix, given)]


scenarios, rigs, settings = shipped(files.SCENARIO), shipped(files.RIG), shipped(files.SETTINGS)


def cases(prefix: str, given: argparse.Namespace) -> list[str]:
    """The cases of the scenario that is given."""
    return list(files.load(given.scenario).cases)


def faults(prefix: str, given: argparse.Namespace) -> list[str]:
    """The kinds of faults, up to where their time stands."""
    return [f"{kind}@" for kind in KINDS]
