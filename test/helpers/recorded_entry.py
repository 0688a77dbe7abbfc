# SPDX-License-Identifier: Apache-2.0
"""Recorded calls of a loop's entry point, which another processor can repeat (replayed_entry.c)."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from rths_nodes.codegen import calling


def in_memory(array: Any) -> bytes:
    """Return the elements of an array in memory order."""
    return bytes(np.asarray(array).tobytes(order="A"))


class Calls:
    """Calls of all loops that are loaded within ``patch``."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._calls: list[bytes] = []
        self._arrays: list[list[Any]] = []
        pointers = calling.pointers

        def noted(arrays: Any) -> Any:
            self._arrays.append(list(arrays))
            return pointers(arrays)

        patch.setattr(calling, "pointers", noted)
        patch.setattr(calling, "built", self._watching(calling.built))

    def _watching(self, load: Any) -> Any:
        def loaded(*arguments: Any) -> Any:
            library = load(*arguments)
            return library._replace(handle=Watched(library.handle, self))

        return loaded

    def write(self, path: Any) -> None:
        """Write all calls for the program that repeats them."""
        path.write_bytes(struct.pack("<q", len(self._calls)) + b"".join(self._calls))

    def call(self, function: Any, arguments: Any) -> None:
        """Call an entry point and record its inputs and outputs."""
        numbers, _, results = arguments
        arrays = self._arrays[-1]
        parts = [counted(numbers), struct.pack("<q", len(arrays))]
        parts += [sized(in_memory(array)) for array in arrays]
        function(*arguments)
        parts += [counted(bytes(results)), *map(in_memory, arrays)]
        self._calls.append(b"".join(parts))


class Watched:
    """A loaded library whose entry point is recorded."""

    def __init__(self, handle: Any, calls: Calls) -> None:
        function = handle.entry
        function.restype = None
        self.entry = lambda *arguments: calls.call(function, arguments)


def counted(numbers: bytes) -> bytes:
    """Return numbers of eight bytes, preceded by their count."""
    return struct.pack("<q", len(numbers) // 8) + numbers


def sized(block: bytes) -> bytes:
    """Return bytes, preceded by their count."""
    return struct.pack("<q", len(block)) + block
