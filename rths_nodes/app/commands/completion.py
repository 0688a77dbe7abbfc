# SPDX-License-Identifier: Apache-2.0
"""Completion on the command line, and ``rths completion``: the code that switches it on in a shell.

A shell that completes a line starts ``rths`` with an environment variable set; in every other start nothing of
argcomplete is loaded.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError, join
from rths_nodes.core.parameters import Spec, declared, is_params, type_of
from rths_nodes.core.validation import is_section, opened
from rths_nodes.loop.faults.kinds import KINDS
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.schema import Scenario

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


def assignments(prefix: str, given: argparse.Namespace) -> list[str]:
    """``section.key=value`` of the scenario that is given: keys a level at a time, values that have names."""
    scenario = _changed(given)
    key, sign, _ = prefix.partition("=")
    if sign:
        return [f"{key}={value}" for value in _values(scenario, key)]
    found = _keys(scenario, prefix)
    while len(found) == 1 and found[0].endswith("."):  # the shell puts a space behind the only answer
        found = _keys(scenario, found[0])
    return found


def keys(prefix: str, given: argparse.Namespace) -> list[str]:
    """Keys of the scenario that is given, a level at a time."""
    return [key.removesuffix("=") for key in _keys(_changed(given), prefix)]


def _changed(given: argparse.Namespace) -> Scenario:
    """The scenario with the changes so far, which may have brought other types with other keys."""
    changes, rig = getattr(given, "set", None) or (), getattr(given, "rig", "")
    with suppress(ConfigError):  # the last of them is still being written
        return files.load(given.scenario, changes, rig=rig)
    return files.load(given.scenario, rig=rig)


def _keys(scenario: Scenario, prefix: str) -> list[str]:
    """Keys that begin with ``prefix``, on its level; a section ends with a dot, a value with the sign."""
    path = prefix.rpartition(".")[0]
    found = []
    for name, value, spec in _children(_at(scenario, path)):
        empty = value is None and spec is not None and spec.family
        section = is_params(value) or (isinstance(value, Mapping) and any(map(is_params, value.values())))
        found.append(f"{join(path, name)}{'.' if section else '.type=' if empty else '='}")
    return [key for key in found if key.startswith(prefix)]


def _at(scenario: Scenario, path: str) -> object:
    """Return the part of the scenario at ``path``; None where there is none."""
    place: object = scenario
    for name in filter(None, path.split(".")):
        place = opened(place).get(name) if is_section(place) else None
    return place


def _children(built: object) -> Iterator[tuple[str, object, Spec | None]]:
    """Name, value and declaration of what stands in a section; the type of a component first."""
    if isinstance(built, Mapping):
        yield from ((str(name), entry, None) for name, entry in built.items())
    elif is_params(built):
        if type_of(built):
            yield "type", "", None
        for name, spec in declared(type(built)).items():
            yield name, getattr(built, name), spec


def _values(scenario: Scenario, key: str) -> Iterable[str]:
    """The values of ``key``, where they have names: types, choices, true and false."""
    path, _, name = key.rpartition(".")
    if name == "type":
        path, _, name = path.rpartition(".")
        specs = [spec for child, _, spec in _children(_at(scenario, path)) if child == name and spec is not None]
        return registry.names(specs[0].family) if specs and specs[0].family else ()
    for child, _, spec in _children(_at(scenario, path)):
        if child == name and spec is not None:
            return ("true", "false") if spec.kind == "flag" else spec.choices
    return ()
