# SPDX-License-Identifier: Apache-2.0
"""Layout of messages, defined only by the ``.msg`` texts in ``msg/``.

The field ``run`` of a message contains the mark of its run, and follows a header with an empty ``frame_id``.
Length and position of the mark are constant, so that layouts are constant and a node can compare the mark first.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TypeVar

import numpy as np

from rths_nodes.core.durations import SECOND
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.resources import resource
from rths_nodes.core.samples import Array

LENGTH = 23
"""Number of characters in a mark, chosen so that numbers after the mark are aligned."""
FIELD_AT = 20
"""Offset of the field ``run`` in a message."""
FIELD_SIZE = 4 + LENGTH + 1
NO_RUN = struct.pack("<I", 1) + b"\0"
_BEFORE = "rths_"


def mark_of(run_id: str, salt: str = "") -> str:
    """Return the mark of a run. ``salt`` makes the marks of replays, and of runs with the same name, different."""
    digest = hashlib.sha256(f"{run_id}\0{salt}".encode()).hexdigest()
    return _BEFORE + digest[: LENGTH - len(_BEFORE)]


class RunMark:
    """Holds the mark of the run; ``mark`` is empty until the node knows the run.

    ``field`` contains the bytes at ``FIELD_AT`` of every message of the run. Until the run is known, no message
    contains these bytes.
    """

    def __init__(self, mark: str = "") -> None:
        self.mark, self.field = "", _field("-" * LENGTH)
        if mark:
            self.become(mark)

    def become(self, mark: str) -> None:
        if len(mark) != LENGTH or not (mark.isascii() and mark.isprintable()):
            raise ConfigError(
                f"run = {mark!r}: must be {LENGTH} printable ASCII characters, the same in all messages of a run"
            )
        self.mark, self.field = mark, _field(mark)

    def has_sent(self, data: bytes) -> bool:
        """Return whether ``data`` is a message of this run."""
        return data.startswith(self.field, FIELD_AT)


def _field(mark: str) -> bytes:
    return struct.pack("<I", LENGTH + 1) + mark.encode() + b"\0"


T = TypeVar("T")
ENCAPSULATION = b"\x00\x01\x00\x00"
HEAD = struct.Struct(f"<4x2I8x{FIELD_SIZE}xI")
"""First numbers of every message of a stream: seconds and nanoseconds of the stamp, and sample or step number."""
EMPTY = 1
HEADER = "std_msgs/Header"
TIME = "builtin_interfaces/Time"
TRAILING = 8
"""Largest number of bytes that the middleware appends, e.g. to align an empty array."""
SEPARATOR = "=" * 80
Make = Callable[[tuple[int, ...], list[Array], list[bytes]], T]
CODES = {"bool": ("?", 1), "uint8": ("B", 1), "uint32": ("I", 4), "float32": ("f", 4), "float64": ("d", 8)}
FIELD = re.compile(
    r"^\s*(?P<type>[A-Za-z0-9_/]+)(?P<array>\[(?:<=(?P<bound>\d+))?\])?\s+(?P<name>\w+)\s*(?:#.*)?$"
)


@cache
def definition(message: str) -> str:
    return resource("msg", f"{message}.msg").read_text(encoding="utf-8")


@cache
def fields(message: str) -> tuple[tuple[str, str, int], ...]:
    """Return name, type and largest array length (0 for a scalar) of each field of numbers."""
    matches = filter(None, map(FIELD.match, definition(message).splitlines()))
    entries = [(match["name"], match["type"], int(match["bound"] or 0)) for match in matches]
    return tuple(row for row in entries if row[1] not in (HEADER, "string"))


def bound_of(message: str, field: str) -> int:
    return next(bound for name, _, bound in fields(message) if name == field)


class Layout:
    """Packs and unpacks messages of ``run`` in a constant layout: header, mark, scalars and bounded arrays.

    An array without an entry in ``lengths`` is empty. float64 scalars form an additional first array. Raises
    ConfigError for a length that exceeds the bound of its array.
    """

    def __init__(self, message: str, lengths: Mapping[str, int], run: RunMark) -> None:
        self.message = message
        self._run = run
        counts: list[int] = []
        reals, self._numbers, self._octets = slice(0, 0), list[slice](), list[slice]()
        # formats of the complete message, and of its integers only
        parts, integers = [f"<4s3I4x{FIELD_SIZE}s"], [f"<4s2I8x{FIELD_SIZE}s"]
        offset, scalars = FIELD_AT - len(ENCAPSULATION) + FIELD_SIZE, 0
        for name, kind, bound in fields(message):
            code, size = CODES[kind]
            count = lengths.get(name, 0) if bound else 1
            if bound:
                if count > bound:
                    raise ConfigError(
                        f"{message}.{name}: has {count} entries, but at most {bound} fit into the message"
                    )
                for part in (parts, integers):
                    part.append(f"{-offset % 4}xI")
                offset += -offset % 4 + 4
                counts.append(count)
            gap = -offset % size if count else 0
            offset += gap
            parts.append(f"{gap}x{count}{code}")
            skipped = bool(bound) or code == "d"
            integers.append(f"{gap + count * size}x" if skipped else parts[-1])
            scalars += not skipped
            if code == "d":
                cells = slice(offset // size, offset // size + count)
                if bound:
                    self._numbers.append(cells)
                else:
                    reals = slice(reals.start or cells.start, cells.stop)
            elif bound:
                self._octets.append(slice(offset + len(ENCAPSULATION), offset + len(ENCAPSULATION) + count))
            offset += count * size
        if reals.stop:
            self._numbers.insert(0, reals)
        self._struct, self._integers = struct.Struct("".join(parts)), struct.Struct("".join(integers))
        self._counts = tuple(counts)
        self._head, self._tail = slice(4, 4 + scalars), slice(4 + scalars, None)
        self._cells = offset // 8
        self.size = self._struct.size

    def pack(self, stamp: int, head: Sequence[float], arrays: Sequence[Sequence[float]]) -> bytes:
        row: list[object] = [ENCAPSULATION, *divmod(stamp, SECOND), EMPTY, self._run.field, *head]
        for count, values in zip(self._counts, arrays, strict=True):
            row.append(count)
            row += values
        return self._struct.pack(*row)

    def reader(self, make: Make[T]) -> Callable[[bytes], tuple[T, int]]:
        """Return a function that converts the bytes of a message to the result of ``make`` and the stamp in ns.

        The function raises ValueError if layout or run differs. It caches its last result, because nodes of a
        process share messages.
        """
        last: tuple[bytes, tuple[T, int]] | None = None

        def read(data: bytes) -> tuple[T, int]:
            nonlocal last
            if last is not None and last[0] is data:
                return last[1]
            if not self.size <= len(data) <= self.size + TRAILING:
                raise ValueError(f"{self.message}: received {len(data)} bytes, expected {self.size} bytes")
            row = self._integers.unpack_from(data)
            if row[0] != ENCAPSULATION or row[self._tail] != self._counts:
                raise ValueError(f"{self.message}: array lengths or byte order differ from the configuration")
            if row[3] != self._run.field:
                raise ValueError(f"{self.message}: the message belongs to another run")
            # the copy aligns the numbers; arrays over bytes are read-only
            content = np.frombuffer(data[len(ENCAPSULATION) :], np.float64, self._cells)
            numbers, octets = map(content.__getitem__, self._numbers), map(data.__getitem__, self._octets)
            values = make(row[self._head], list(numbers), list(octets)), row[1] * SECOND + row[2]
            last = data, values
            return values

        return read


def stamp_of(nanoseconds: int) -> tuple[int, int]:
    return divmod(nanoseconds, SECOND)


def number_of(data: bytes) -> int:
    number: int = HEAD.unpack_from(data)[2]
    return number


@cache
def fields_of(text: str) -> tuple[tuple[str, str, bool], ...]:
    """Return, for each field defined by ``text``, its name, its type and whether it is an array."""
    head = text.partition(SEPARATOR)[0]
    matches = (FIELD.match(line) for line in head.splitlines())
    return tuple((match["name"], match["type"], bool(match["array"])) for match in matches if match)


@cache
def constants(message: str) -> dict[str, int]:
    """Return the constants of a message by name, e.g. ``{"IDLE": 0, ...}`` of TestState."""
    pairs = re.findall(r"^\s*\w+\s+([A-Z_]+)\s*=\s*(\d+)", definition(message), re.MULTILINE)
    return {name: int(value) for name, value in pairs}
