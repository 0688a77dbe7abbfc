"""The file of a procedure, ``procedure.yaml`` beside the recordings of its rungs: written anew after every act.

It is whole at any time: what is new is written beside it, and takes its place at once. Numbers are in SI units,
times in ISO 8601 with their offset from UTC. Its last line ends the YAML document (``...``): a file that was torn
off lacks it. While the procedure is under way a locked file beside it keeps room for the last words: how it has
ended can be written on a full disk, too.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import math
import os
import threading
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
from rths_nodes.recording.records import RecordingError, reason

FILE = "procedure.yaml"
ROOM = f".{FILE}.room"
LEAST_ROOM = 1 << 18
"""Bytes that are kept for the last words; more for a longer record: twice what it has."""
VERSION = 1
"""Of the layout of the file; a file of another one is refused."""
END = "..."
HEAD = (
    "# What was done in this test: written by rths_nodes after every act, not to be edited.\n"
    "# SI units (m, N, s), by the names of the axes; times with their offset from UTC.\n"
)

T = TypeVar("T")


def write(record: ProcedureRecord, folder: Path | str) -> Path:
    """Write ``record``, which is complete, into ``folder``; the path of the file. Raises what RecordFile does."""
    return RecordFile(folder).write(record, last=True)


class RecordFile:
    """The file of one procedure in ``folder``, which it makes; threads write one after the other."""

    def __init__(self, folder: Path | str) -> None:
        self.path = Path(folder) / FILE
        self._lock = threading.Lock()
        self._room: int | None = None
        self._written = False
        self._numbers = itertools.count()

    def write(self, record: ProcedureRecord, last: bool = False) -> Path:
        """Write ``record`` in one piece; the path of the file. With its ``last`` words the kept room is used.

        Whoever reads meanwhile, or after a crash, finds the record of before or this one, never a part of it.
        Raises ConfigError where it cannot be written at all, before anything was, and RecordingError later on; the
        file of before stays.
        """
        with self._lock:
            try:
                if self._written and not last and not self.path.parent.is_dir():
                    raise FileNotFoundError(0, "its folder is gone")
                self.path.parent.mkdir(parents=True, exist_ok=True)
                text = f"{HEAD}version: {VERSION}\n{dump(_plain(record))}{END}\n".encode()
                if last:
                    self._give_room()
                self._replace(text)
                if not last:
                    self._keep_room(2 * len(text))
            except OSError as error:
                words = f"{self.path}: the record of the procedure cannot be written ({reason(error)})"
                raise (RecordingError if self._written else ConfigError)(words) from error
            self._written = True
            return self.path

    def _replace(self, text: bytes) -> None:
        beside = self.path.with_name(f".{FILE}.{os.getpid()}.{next(self._numbers)}")
        try:
            with beside.open("wb") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(beside, self.path)
        except OSError:
            with contextlib.suppress(OSError):
                beside.unlink()
            raise

    def _keep_room(self, size: int) -> None:
        """The first time it must be there; where it cannot grow later on, that is seen at the last words."""
        if self._room is None:
            self._room = os.open(self.path.with_name(ROOM), os.O_RDWR | os.O_CREAT, 0o644)
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(self._room, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.posix_fallocate(self._room, 0, LEAST_ROOM)
        elif os.fstat(self._room).st_size < size:
            with contextlib.suppress(OSError):
                os.posix_fallocate(self._room, 0, size)

    def _give_room(self) -> None:
        with contextlib.suppress(OSError):
            self.path.with_name(ROOM).unlink()
        if self._room is not None:
            os.close(self._room)
            self._room = None


def under_way(folder: Path | str) -> bool:
    """Somebody still writes the record in ``folder``."""
    try:
        with (Path(folder) / ROOM).open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # nobody keeps room there, or a file system without locks
        return False
    return False


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
        return {str(name): _plain(entry) for name, entry in list(value.items())}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in list(value)]  # as it is now: others may go on with it
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
