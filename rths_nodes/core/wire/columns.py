# SPDX-License-Identifier: Apache-2.0
"""Many messages of one stream -> arrays, one row a message: for what reads a recording, not for the loop.

The layout is not that of ``msg/`` but that of the definition in the recording, and the lengths of the arrays are
those of the messages themselves: of most of them, where some are damaged.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rths_nodes.core.wire.layout import CODES, ENCAPSULATION, HEADER, TIME, TRAILING, fields_of

Columns = dict[str, NDArray[Any]]

_LENGTHS, _TRIED = 4, 8
"""Lengths of messages that are tried for a layout, and messages of each: one of them is whole, or none."""


class _Places:
    """Where the numbers of a message stand: grows field by field, aligned as CDR wants it."""

    def __init__(self) -> None:
        self.names, self.formats, self.offsets = ["encapsulation"], ["V4"], [0]
        self.size = len(ENCAPSULATION)

    def add(self, name: str, kind: str, count: int | None = None) -> None:
        code, size = CODES[kind]
        self.size += -(self.size - len(ENCAPSULATION)) % size
        self.names.append(name)
        self.formats.append(f"<{code}" if count is None else f"({count},)<{code}")
        self.offsets.append(self.size)
        self.size += size * (1 if count is None else count)

    def add_text(self, size: int) -> None:
        """Characters that nobody reads; in all messages they are as many."""
        self.size += size

    def dtype(self) -> np.dtype[np.void]:
        layout = {"names": self.names, "formats": self.formats, "offsets": self.offsets, "itemsize": self.size}
        return np.dtype(layout)  # type: ignore[call-overload, no-any-return]


class StreamLayout:
    """The layout of a stream in a recording: that of the definition ``text``, with the lengths of ``message``.

    Raises ValueError where the message has not that layout, and for fields that are neither numbers nor arrays of
    numbers.
    """

    def __init__(self, text: str, message: bytes) -> None:
        places = _Places()
        self._counts: dict[str, int] = {}
        try:
            for name, kind, is_array in fields_of(text):
                if kind in (HEADER, TIME):
                    places.add("sec", "uint32")
                    places.add("nanosec", "uint32")
                    if kind == HEADER:
                        places.add_text(self._count(places, "frame_id.length", message))
                elif is_array:
                    if count := self._count(places, f"{name}.length", message):
                        places.add(name, kind, count)
                else:
                    places.add(name, kind)
            self._dtype = places.dtype()
        except (struct.error, KeyError, ValueError) as error:
            raise ValueError(f"another layout than its definition ({error})") from error
        self._size = places.size
        self._names = [name for name in places.names[1:] if name not in self._counts]
        if not self._fits(message):
            raise ValueError(f"a message of another length than {self._size} bytes")

    def _count(self, places: _Places, length: str, message: bytes) -> int:
        """Return how many characters or numbers follow, by the field ``length`` of ``message``."""
        places.add(length, "uint32")
        (count,) = struct.unpack_from("<I", message, places.size - 4)
        if places.size + count > len(message):
            raise ValueError(f"{length} = {count}: longer than the message")
        self._counts[length] = count
        return int(count)

    def _fits(self, message: bytes) -> bool:
        return self._size <= len(message) <= self._size + TRAILING

    def columns(self, messages: Sequence[bytes]) -> Columns:
        """The fields of ``messages`` by name: scalars ``(n,)``, arrays ``(n, length)``, but for empty ones.

        Messages of another layout are left out.
        """
        fitting = [message[: self._size] for message in messages if self._fits(message)]
        rows = np.frombuffer(b"".join(fitting), self._dtype)
        good = rows["encapsulation"] == np.void(ENCAPSULATION)
        for length, count in self._counts.items():
            good &= rows[length] == count
        rows = rows if good.all() else rows[good]
        return {name: np.ascontiguousarray(rows[name]) for name in self._names}


def layout_of(text: str, messages: Sequence[bytes]) -> StreamLayout:
    """The layout that more than half of the ``messages`` have. Raises ValueError where there is none."""
    problem = ValueError("messages of many layouts")
    for found in _layouts(text, messages):
        if isinstance(found, ValueError):
            problem = found
        elif 2 * len(next(iter(found.columns(messages).values()))) > len(messages):
            return found
    raise problem


def _layouts(text: str, messages: Sequence[bytes]) -> Iterator[StreamLayout | ValueError]:
    """The layouts of the messages, each length of a message tried a few times, the most frequent first."""
    tried: Counter[int] = Counter()
    for length, _ in Counter(map(len, messages)).most_common(_LENGTHS):
        for message in messages:
            if len(message) == length and tried[length] < _TRIED:
                tried[length] += 1
                try:
                    yield StreamLayout(text, message)
                except ValueError as error:
                    yield error
