# SPDX-License-Identifier: Apache-2.0
"""Shell completion, enabled by ``register-python-argcomplete rths``. argcomplete is imported only for
completion.
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

ASKED = "_ARGCOMPLETE"
"""Environment variable that requests completions."""

Completer = Callable[[str, argparse.Namespace], Iterable[str]]
"""Function of the beginning of a word and the other arguments; returns the candidates."""


def answer(parser: argparse.ArgumentParser) -> None:
    if ASKED in os.environ:
        with suppress(ImportError):
            import argcomplete

            argcomplete.autocomplete(parser)


def offer(argument: Any, completer: Completer) -> None:
    """Complete ``argument`` with ``completer``; without candidates if ``completer`` raises ConfigError."""

    def complete(prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
        with suppress(ConfigError):
            return list(completer(prefix, parsed_args))
        return []

    argument.completer = complete


def yaml_files(prefix: str, options: argparse.Namespace) -> list[str]:
    import argcomplete

    return list(argcomplete.completers.FilesCompleter(("yaml", "yml"))(prefix))


def shipped(kind: str) -> Completer:
    return lambda prefix, options: [*files.shipped(kind), *yaml_files(prefix, options)]


scenarios, rigs, settings = shipped(files.SCENARIO), shipped(files.RIG), shipped(files.SETTINGS)


def cases(prefix: str, options: argparse.Namespace) -> list[str]:
    return list(files.load(options.scenario).cases)


def faults(prefix: str, options: argparse.Namespace) -> list[str]:
    return [f"{kind}@" for kind in KINDS]
