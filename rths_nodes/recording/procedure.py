"""The file of a procedure, ``procedure.yaml`` beside the recordings of its rungs: written anew after every act.

It is whole at any time: what is new is written beside it, and takes its place at once. Numbers are in SI units,
times in ISO 8601 with their offset from UTC. Its last line ends the YAML document (``...``): a file that was torn
off lacks it.
"""

from __future__ import annotations

import contextlib
import math
import os
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from rths_nodes.core.errors import ConfigError, Problems, join, show, unknown
from rths_nodes.core.text_files import read_text
from rths_nodes.core.yaml_text import dump, parse
from rths_nodes.loop.procedure.records import RUNGS, ProcedureRecord
from rths_nodes.recording.records import reason

FILE = "procedure.yaml"
VERSION = 1
"""Of the layout of the file; a file of another one is refused."""
END = "..."
HEAD = (
    "# What was done in this test: written by rths_nodes after every act, not to be edited.\n"
    "# SI units (m, N, s), by the names of the axes; times with their offset from UTC.\n"
)

T = TypeVar("T")


def write(record: ProcedureRecord, folder: Path | str) -> Path:
    """Write ``record`` into ``folder``, which it makes, in one piece; the path of the file.

    Whoever reads meanwhile, or after a crash, finds the record of before or this one, never a part of it. Raises
    ConfigError where it cannot be written, and the file of before stays.
    """
    path = Path(folder) / FILE
    beside = path.with_name(f".{FILE}.{os.getpid()}")
    text = f"{HEAD}version: {VERSION}\n{dump(_plain(record))}{END}\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with beside.open("w", encoding="utf-8") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(beside, path)
        except OSError:
            with contextlib.suppress(OSError):
                beside.unlink()
            raise
    except OSError as error:
        raise ConfigError(f"{path}: the record of the procedure cannot be written ({reason(error)})") from error
    return path


def exists(folder: Path | str) -> bool:
    """There is a record of a procedure in ``folder``."""
    return (Path(folder) / FILE).is_file()


def of_recording(path: Path | str) -> tuple[ProcedureRecord, str] | None:
    """The procedure in which the recording at ``path`` was made, and the name of its folder there; None: in none.

    Raises what :func:`read` does.
    """
    place = Path(path).resolve()
    folder = place if place.is_dir() else place.parent
    return (read(folder.parent), folder.name) if exists(folder.parent) else None


def last_moving(folder: Path | str) -> Path | None:
    """The recording of the last rung of a test in ``folder`` that moved the rig; of the last one where none did.

    None where the test ended before one did: how a simulator went is not how the test went.
    """
    folder = Path(folder)
    record = read(folder)
    recorded = [rung for rung in record.rungs if rung.recording and (folder / rung.recording).is_dir()]
    moved = [rung for rung in recorded if rung.name in RUNGS and RUNGS[rung.name].moves]
    shown = moved or (recorded if record.outcome == "finished" else [])
    return folder / shown[-1].recording if shown else None


def read(folder: Path | str) -> ProcedureRecord:
    """The record in ``folder``. Raises ConfigError with its path, and all that is wrong with it."""
    path = Path(folder) / FILE
    try:
        text = read_text(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({reason(error)})") from error
    except ValueError as error:  # too large, or bytes that are no text
        raise ConfigError(f"{path}: cannot be read ({error})") from error
    if text.rstrip("\n").rpartition("\n")[2] != END:
        raise ConfigError(f"{path}: damaged, its end is missing (the last line must be {END!r})")
    data = parse(text, str(path))
    if not isinstance(data, Mapping) or data.get("version") != VERSION:
        found = show(data.get("version")) if isinstance(data, Mapping) else "none"
        raise ConfigError(f"{path}: version = {found}: must be {VERSION}")
    try:
        return _built(ProcedureRecord, {key: value for key, value in data.items() if key != "version"}, "")
    except ConfigError as error:
        raise error.within(str(path)) from None


def _plain(value: Any) -> Any:
    """``value`` as YAML can hold it: mappings, lists, numbers, texts; what is none of them by its text."""
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if hasattr(value, "tolist"):  # numbers and arrays of numpy
        return _plain(value.tolist())
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, (bool, int, float, str)):  # their subclasses, as an IntEnum
        return next(kind(value) for kind in (int, float, str) if isinstance(value, kind))
    return str(value)


@cache
def _kinds(cls: type) -> Mapping[str, Any]:
    """Types of the fields of a record."""
    return typing.get_type_hints(cls)


def _built(cls: type[T], data: Any, path: str) -> T:
    """A record of ``cls``; raises one ConfigError for all unknown and missing keys and wrong types in it."""
    if not isinstance(data, Mapping):
        raise ConfigError(f"{path or 'the record'} = {show(data)}: must be a section (key: value)")
    known = {each.name: each for each in fields(cls)}  # type: ignore[arg-type]
    problems, values = Problems(), {}
    for name in data:
        if name not in known:
            problems += unknown(join(path, name), "key", name, known).problems
    kinds = _kinds(cls)  # type: ignore[arg-type]
    for name, each in known.items():
        with problems.gathered():
            if name in data:
                values[name] = _checked(kinds[name], data[name], join(path, name))
            elif each.default is MISSING and each.default_factory is MISSING:
                raise ConfigError(f"{join(path, name)}: missing")
    problems.refuse()
    return cls(**values)


def _checked(kind: Any, value: Any, path: str) -> Any:
    """``value`` as the annotation ``kind`` of a field says. Raises ConfigError."""
    parts = typing.get_args(kind)
    match typing.get_origin(kind) or kind:
        case typing.Any:
            return value
        case types.UnionType:
            return None if value is None else _checked(parts[0], value, path)
        case inner if is_dataclass(inner):
            return _built(inner, value, path)  # type: ignore[arg-type]
        case inner if inner is list:
            if not isinstance(value, list):
                raise ConfigError(f"{path} = {show(value)}: must be a list")
            return _each(parts[0], [(f"{path}[{index}]", entry) for index, entry in enumerate(value)])
        case inner if inner is dict:
            if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
                raise ConfigError(f"{path} = {show(value)}: must be a section (key: value)")
            found = _each(parts[1], [(join(path, name), entry) for name, entry in value.items()])
            return dict(zip(value, found, strict=True))
        case inner:
            return _scalar(inner, value, path)


def _each(kind: Any, entries: list[tuple[str, Any]]) -> list[Any]:
    """The entries, each with its path, as ``kind`` says; raises one ConfigError for all of them."""
    problems, found = Problems(), []
    for path, entry in entries:
        with problems.gathered():
            found.append(_checked(kind, entry, path))
    problems.refuse()
    return found


_WORDS = {str: "text", bool: "true or false", int: "a whole number", float: "a number"}


def _scalar(kind: Any, value: Any, path: str) -> Any:
    """Text, flag or number; a number may be nan where it could not be measured, never infinite."""
    right = type(value) is kind or (kind is float and type(value) is int)
    if not right or (kind is float and math.isinf(value)):
        raise ConfigError(f"{path} = {show(value)}: must be {_WORDS[kind]}")
    return kind(value)
