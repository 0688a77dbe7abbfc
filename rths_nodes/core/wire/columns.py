"""Many messages of one stream -> arrays, one row a message: for what reads a recording, not for the loop.

The layout is not that of ``msg/`` but that of the definition in the recording, and the lengths of the arrays are
those of the messages themselves.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from rths_nodes.core.wire.layout import CODES, ENCAPSULATION, HEADER, TIME, TRAILING, fields_of

Columns = dict[str, np.ndarray[Any, Any]]


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

    def dtype(self) -> np.dtype[Any]:
        layout = {"names": self.names, "formats": self.formats, "offsets": self.offsets, "itemsize": self.size}
        return np.dtype(layout)  # type: ignore[call-overload, no-any-return]


def columns(text: str, messages: Sequence[bytes]) -> Columns:
    """The fields of ``messages`` by name: scalars ``(n,)``, arrays ``(n, length)``; an empty array is left out.

    ``text`` defines the message. Raises ValueError when a message has another layout than the first, and for
    fields that are neither numbers nor arrays of numbers.
    """
    first, places, counts = messages[0], _Places(), {}
    try:
        for name, kind, is_array in fields_of(text):
            if kind in (HEADER, TIME):
                places.add("sec", "uint32")
                places.add("nanosec", "uint32")
                if kind == HEADER:
                    places.add(length := "frame_id.length", "uint32")
                    (counts[length],) = struct.unpack_from("<I", first, places.size - 4)
                    places.add_text(counts[length])
            elif is_array:
                places.add(length := f"{name}.length", "uint32")
                (counts[length],) = struct.unpack_from("<I", first, places.size - 4)
                if counts[length]:
                    places.add(name, kind, counts[length])
            else:
                places.add(name, kind)
    except (struct.error, KeyError) as error:
        raise ValueError(f"another layout than its definition ({error})") from error
    size = places.size
    if not all(size <= len(data) <= size + TRAILING for data in messages):
        raise ValueError(f"a message of another length than {size} bytes")
    rows = np.frombuffer(b"".join([data[:size] for data in messages]), places.dtype())
    if any((rows[length] != count).any() for length, count in counts.items()):
        raise ValueError("arrays of other lengths than in the first message")
    if (rows["encapsulation"] != np.void(ENCAPSULATION)).any():
        raise ValueError("another byte order or encapsulation")
    return {name: np.ascontiguousarray(rows[name]) for name in places.names[1:] if name not in counts}
