# SPDX-License-Identifier: Apache-2.0
"""Strict conversion of dataclass records to plain data and back."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from rths_nodes.core.errors import ConfigError, Problems, join, show, unknown, within
from rths_nodes.core.yaml_text import dump, parse, source_of

END = "..."

T = TypeVar("T")


def now() -> str:
    """Return the local time with its UTC offset, in ISO 8601."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


def text_of(record: object, version: int, head: str = "") -> bytes:
    return f"{head}version: {version}\n{dump(plain(record))}{END}\n".encode()


def read(cls: type[T], path: Path, version: int) -> T:
    text = source_of(path, str(path))
    if text.rstrip("\n").rpartition("\n")[2] != END:
        raise ConfigError(
            f"{path}: the file is damaged, because its end is missing; the last line must be {END!r}"
        )
    data = parse(text, str(path))
    if not isinstance(data, Mapping) or data.get("version") != version:
        read_version = show(data.get("version")) if isinstance(data, Mapping) else "none"
        raise ConfigError(f"{path}: version = {read_version}: must be {version}")
    with within(str(path)):
        return built(cls, {key: value for key, value in data.items() if key != "version"}, "")


def plain(value: object) -> Any:
    """Convert ``value`` to mappings, lists, numbers and strings for YAML. Unknown types become strings."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain(entry) for name, entry in list(value.items())}
    if isinstance(value, (list, tuple)):
        # copied, because another thread may modify the list
        return [plain(entry) for entry in list(value)]
    if hasattr(value, "tolist"):  # numpy numbers and arrays
        return plain(value.tolist())
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, (bool, int, float, str)):  # including subclasses such as IntEnum
        return next(kind(value) for kind in (int, float, str) if isinstance(value, kind))
    return str(value)


@cache
def _kinds(cls: type) -> Mapping[str, object]:
    return typing.get_type_hints(cls)


def built(cls: type[T], data: object, path: str) -> T:
    """Build a ``cls`` from ``data``. Raises one ConfigError for all unknown or missing keys and wrong types."""
    if not isinstance(data, Mapping):
        raise ConfigError(f"{path or 'the record'} = {show(data)}: must be a section (key: value)")
    fields_by_name = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
    problems, values = Problems(), {}
    for name in data:
        if name not in fields_by_name:
            problems += unknown(join(path, name), "key", name, fields_by_name).problems
    kinds = _kinds(cls)  # type: ignore[arg-type]
    for name, field in fields_by_name.items():
        with problems.gathered():
            if name in data:
                values[name] = _checked(kinds[name], data[name], join(path, name))
            elif field.default is MISSING and field.default_factory is MISSING:
                raise ConfigError(f"{join(path, name)}: missing")
    problems.refuse()
    return cls(**values)


def _checked(kind: object, value: object, path: str) -> object:
    parts = typing.get_args(kind)
    match typing.get_origin(kind) or kind:
        case typing.Any:
            return value
        case types.UnionType:
            return None if value is None else _checked(parts[0], value, path)
        case inner if is_dataclass(inner):
            return built(inner, value, path)  # type: ignore[arg-type]
        case inner if inner is list:
            if not isinstance(value, list):
                raise ConfigError(f"{path} = {show(value)}: must be a list")
            return _built_entries(parts[0], [(f"{path}[{index}]", entry) for index, entry in enumerate(value)])
        case inner if inner is dict:
            if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
                raise ConfigError(f"{path} = {show(value)}: must be a section (key: value)")
            entries = _built_entries(parts[1], [(join(path, name), entry) for name, entry in value.items()])
            return dict(zip(value, entries, strict=True))
        case inner:
            return _scalar(inner, value, path)


def _built_entries(kind: object, entries: list[tuple[str, object]]) -> list[Any]:
    problems, values = Problems(), []
    for path, entry in entries:
        with problems.gathered():
            values.append(_checked(kind, entry, path))
    problems.refuse()
    return values


_WORDS = {str: "text", bool: "true or false", int: "a whole number", float: "a number"}


def _scalar(kind: Any, value: Any, path: str) -> object:
    right = type(value) is kind or (kind is float and type(value) is int)
    if not right:
        raise ConfigError(f"{path} = {show(value)}: must be {_WORDS[kind]}")
    return kind(value)
