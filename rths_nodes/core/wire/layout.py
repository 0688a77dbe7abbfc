"""The layout of a message, read from its ``.msg`` text: ``msg/`` stays the only home of the wire format."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from rths_nodes.core.durations import SECOND
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.resources import resource
from rths_nodes.core.samples import Array

ENCAPSULATION = b"\x00\x01\x00\x00"
HEAD = struct.Struct("<4x3I")
"""Beginning of every message of a stream: seconds and nanoseconds of its stamp, sample or step number."""
TRAILING = 8
"""Bytes that the middleware may append: it aligns for the numbers of an array even when there are none."""
SEPARATOR = "=" * 80
"""In a definition as recordings have it: what follows defines the types inside the message."""
CODES = {"bool": ("?", 1), "uint8": ("B", 1), "uint32": ("I", 4), "float64": ("d", 8)}
FIELD = re.compile(
    r"^\s*(?P<type>[A-Za-z0-9_/]+)(?P<array>\[(?:<=(?P<bound>\d+))?\])?\s+(?P<name>\w+)\s*(?:#.*)?$"
)


@cache
def definition(message: str) -> str:
    """The text of ``msg/<message>.msg``."""
    return resource("msg", f"{message}.msg").read_text()


def fields(message: str) -> list[tuple[str, str, int]]:
    """Name, type and array bound (0 for a scalar) of each field; ``Time`` is split into its two numbers."""
    found = []
    for line in definition(message).splitlines():
        match = FIELD.match(line)
        if not match:
            continue
        if match["type"] == "builtin_interfaces/Time":
            found += [("sec", "uint32", 0), ("nanosec", "uint32", 0)]
        else:
            found.append((match["name"], match["type"], int(match["bound"] or 0)))
    return found


class Layout:
    """The constant layout of one message: scalars first, then bounded arrays of given ``lengths`` (by name).

    An array that is not named has length zero. Raises ConfigError for a length beyond the bound.
    """

    def __init__(self, message: str, lengths: Mapping[str, int]) -> None:
        self.message = message
        self.arrays: tuple[str, ...] = ()
        counts: list[int] = []
        self._numbers: list[slice] = []
        # all of it, and with the entries of the arrays skipped
        parts, integers, offset, scalars = ["<4s"], ["<4s"], 0, 0
        for name, kind, bound in fields(message):
            code, size = CODES[kind]
            if not bound:
                parts.append(f"{-offset % size}x{code}")
                integers.append(parts[-1])
                offset += -offset % size + size
                scalars += 1
                continue
            count = lengths.get(name, 0)
            if count > bound:
                raise ConfigError(f"{message}.{name}: {count} entries, at most {bound} fit into the message")
            parts.append(f"{-offset % 4}xI")
            integers.append(parts[-1])
            offset += -offset % 4 + 4
            if count:
                parts.append(f"{-offset % size}x{count}{code}")
                integers.append(f"{-offset % size + count * size}x")
                offset += -offset % size
            self.arrays += (name,)
            counts.append(count)
            if code == "d":
                self._numbers.append(slice(offset // size, offset // size + count))
            offset += count * size
        self._struct, self._integers = struct.Struct("".join(parts)), struct.Struct("".join(integers))
        self._counts = tuple(counts)
        self._head, self._tail = slice(1, 1 + scalars), slice(1 + scalars, None)
        self._cells = offset // 8
        self.size = self._struct.size
        self._last: tuple[bytes | None, tuple[tuple[int, ...], list[Array]]] = (None, ((), []))

    def pack(self, head: Sequence[int], arrays: Sequence[Sequence[float]]) -> bytes:
        """Bytes of the message with the scalars ``head`` (in order) and the ``arrays`` (in order)."""
        row: list[Any] = [ENCAPSULATION, *head]
        for count, values in zip(self._counts, arrays, strict=True):
            row.append(count)
            row += values
        return self._struct.pack(*row)

    def unpack(self, data: bytes) -> tuple[tuple[int, ...], list[Array]]:
        """Scalars and float64 arrays of the message; raises ValueError when ``data`` has another layout.

        What was unpacked last is known: in one process a message goes to several nodes.
        """
        if data is self._last[0]:
            return self._last[1]
        if not self.size <= len(data) <= self.size + TRAILING:
            raise ValueError(f"{self.message}: {len(data)} bytes, expected {self.size}")
        row = self._integers.unpack_from(data)
        if row[0] != ENCAPSULATION or row[self._tail] != self._counts:
            raise ValueError(f"{self.message}: other array lengths or another byte order than configured")
        content = np.frombuffer(data, np.float64, self._cells, 4).copy()
        content.flags.writeable = False
        found = row[self._head], [content[part] for part in self._numbers]
        self._last = data, found
        return found


def stamp_of(nanoseconds: int) -> tuple[int, int]:
    """Nanoseconds since the epoch as the two numbers of a ``Time``."""
    return divmod(nanoseconds, SECOND)


def number_of(data: bytes) -> int:
    """The sample or step number of a message of a stream."""
    number: int = HEAD.unpack_from(data)[2]
    return number


@cache
def fields_of(text: str) -> tuple[tuple[str, str, bool], ...]:
    """Name, type, and whether it is an array, of each field of the message that ``text`` defines."""
    own = text.partition(SEPARATOR)[0]
    matches = (FIELD.match(line) for line in own.splitlines())
    return tuple((match["name"], match["type"], bool(match["array"])) for match in matches if match)


def described(message: str) -> tuple[tuple[str, str, bool], ...]:
    """:func:`fields_of` of a message of ``msg/``."""
    return fields_of(definition(message))


@cache
def constants(message: str) -> dict[str, int]:
    """The constants of a message by name, e.g. ``{"IDLE": 0, ...}`` of TestState."""
    found = re.findall(r"^\s*\w+\s+([A-Z_]+)\s*=\s*(\d+)", definition(message), re.MULTILINE)
    return {name: int(value) for name, value in found}
