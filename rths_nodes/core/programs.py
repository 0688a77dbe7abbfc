# SPDX-License-Identifier: Apache-2.0
"""A Python program of the user, with the modules that it imports from below its folder; it is not run for that."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from rths_nodes.core.text_files import read_bytes

LARGEST_MODULE = 64 << 20
"""Bytes; compiled ones have some million."""
ENDINGS = (".py", *EXTENSION_SUFFIXES)


def modules_of(program: Path) -> dict[Path, bytes]:
    """The ``program`` and every module below its folder that its import statements lead to, each read once.

    Names are looked up in that folder alone, which is the first place where the program looks. Raises OSError and
    ValueError for the program itself, or a module, that cannot be read.
    """
    folder = program.parent
    found = {program: read_bytes(program, LARGEST_MODULE)}
    waiting: list[tuple[Path, tuple[str, ...]]] = [(program, ())]
    while waiting:
        path, package = waiting.pop()
        for name in sorted(_imported(found[path], package)):
            for module, inside in _located(folder, name):
                if module not in found:
                    found[module] = read_bytes(module, LARGEST_MODULE)
                    waiting.append((module, inside))
    return found


def _imported(source: bytes, package: tuple[str, ...]) -> set[tuple[str, ...]]:
    """Names, part by part, of what a module of ``package`` imports; none of what is no Python text."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return set()
    found: set[tuple[str, ...]] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {tuple(each.name.split(".")) for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = (*above, *(node.module or "").split(".")) if node.module else above
            found |= {base} | {(*base, each.name) for each in node.names}
    return found


def _located(folder: Path, name: tuple[str, ...]) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """The files of a module and of the packages above it, each with the package in which its imports begin."""
    for depth in range(1, len(name) + 1):
        place, inside = folder.joinpath(*name[:depth]), name[:depth]
        for ending in ENDINGS:
            if (module := place / f"__init__{ending}").is_file():
                yield module, inside
                break
            if (module := place.with_name(place.name + ending)).is_file():
                yield module, inside[:-1]
                break
