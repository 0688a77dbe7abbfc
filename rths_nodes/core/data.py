# SPDX-License-Identifier: Apache-2.0
"""Plain data as in YAML and JSON, for files, messages and results of a test."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeAlias

Data: TypeAlias = dict[str, Any]
"""Mapping of names to numbers, strings, flags, lists and nested Data."""


def plain(value: Any) -> Any:
    """Convert numpy values, tuples, paths and DataFrames to numbers, lists, strings and mappings of columns."""
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return [plain(entry) for entry in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "to_records"):  # a pandas DataFrame; a named index becomes a column
        index = {str(value.index.name): value.index.tolist()} if value.index.name else {}
        return index | {str(name): column.tolist() for name, column in value.items()}
    return value.tolist() if hasattr(value, "tolist") else value


def flatten(data: Any, path: str) -> dict[str, float]:
    if isinstance(data, Mapping):
        pairs: Any = data.items()
    elif isinstance(data, (list, tuple)):
        pairs = enumerate(data)
    else:
        return {path: float(data)}
    numbers: dict[str, float] = {}
    for key, entry in pairs:
        numbers |= flatten(entry, f"{path}.{key}")
    return numbers


def unflatten(numbers: Mapping[str, float], section: str) -> Data:
    """Return the nested data of ``section`` from the ``numbers`` of :func:`flatten`.

    Numeric keys form lists. The first of several conflicting keys is used.
    """
    tree: Data = {}
    for path, value in numbers.items():
        head, *keys = path.split(".")
        if head != section or not keys:
            continue
        branch = tree
        for key in keys[:-1]:
            branch = branch.setdefault(key, {}) if isinstance(branch, dict) else branch
        if isinstance(branch, dict):
            branch.setdefault(keys[-1], value)
    listed: dict[str, object] = _listed(tree)
    return listed


def _listed(entry: object) -> Any:
    if not isinstance(entry, dict):
        return entry
    if entry and all(key.isdecimal() for key in entry):
        return [_listed(entry[key]) for key in sorted(entry, key=int)]
    return {key: _listed(value) for key, value in entry.items()}
