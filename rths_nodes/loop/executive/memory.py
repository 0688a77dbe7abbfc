# SPDX-License-Identifier: Apache-2.0
"""Memory that the executive shares with Python: control block, arguments of the loop, ring of rows.

The generated Python call of a loop (``codegen/calling.py``) runs once with substitutes, which record the position
of each number and array among its arguments and results. The unit of all offsets is a word of 8 bytes.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from rths_nodes.codegen.values import Arr, Scalar, Untranslatable, Value, leaves
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Array

Table = NDArray[np.generic]
LAYOUT = 1
WORD = 8
HEAD = 5
"""Number of words at the beginning of a row: sample, kind, steps, lateness (ns) and duration (ns)."""
FIELDS = (
    *("layout", "words", "period", "spin", "priority", "lock", "silence", "samples", "bare"),
    *("slots", "slot_words", "reserve", "ring", "at_marks", "numbers", "results", "asked"),
    *("pointers", "n_pointers", "copies", "n_copies", "fixed", "n_fixed", "moves", "n_moves"),
    *("at_stopped", "at_made", "at_driven", "at_stopping", "at_resting"),
    *("half", "felt", "terms", "report"),
    *("state", "go", "word", "trip_at", "alive", "head", "tail"),
    *("sample", "missed", "longest", "lost", "stopped_at", "stopped_by", "began", "ended"),
    *("no_priority", "no_lock", "opened", "fault"),
)


class Control(ctypes.Structure):
    """Control block; ``executive.c`` explains each word."""

    _fields_ = tuple((name, ctypes.c_int64) for name in FIELDS)


class Slot(NamedTuple):
    """Position of a number among the results of a call."""

    position: int


Results = tuple[Slot, Slot, Slot, Slot, Slot, object]
"""Positions of ``stopped``, ``steps``, ``acted``, ``stopping`` and ``resting``, then the new states."""


class Call(NamedTuple):
    """A recorded call: packed numbers, arrays, and results in which a Slot replaces each number."""

    numbers: bytes
    arrays: list[Table]
    n_results: int
    results: Results


def noted(python: str, arguments: Sequence[object]) -> Call:
    """Record the call that the generated text ``python`` makes with ``arguments``."""
    packs: list[tuple[str, Sequence[object]]] = []
    counts: list[int] = []

    def pack(kinds: str, *values: object) -> None:
        packs.append((kinds, values))

    def unpack(_: str, results: Sequence[object]) -> list[Slot]:
        counts.append(len(results))
        return [Slot(position) for position in range(len(results))]

    space: dict[str, object] = {"entry": lambda *_: None, "pack": pack, "unpack": unpack}
    space |= {"empty": np.empty, "pointers": lambda arrays: arrays, "c_double": ctypes.c_double}
    exec(python, space)
    result = cast(Callable[..., Results], space["call"])(*arguments)
    (kinds, numbers), (_, arrays) = packs
    return Call(struct.pack(kinds, *numbers), cast(list[Table], list(arrays)), counts[0], result)


def position_of(value: Value) -> int:
    """Return the position of a number or an array among the arguments of the entry point."""
    c = value.base if isinstance(value, Arr) else value.c if isinstance(value, Scalar) else ""
    return int(c.partition("[")[2].partition("]")[0])


Links = tuple[list[tuple[int, int]], list[tuple[int, object]], list[tuple[int, int, int]]]
"""Assignments of results to the next arguments: changing numbers, constant numbers, and arrays."""


def links_of(states: Value, call: Call, results: object) -> Links:
    """Return the links from the new states (in the ``results`` of a call) to the arguments ``states``."""
    links: Links = [], [], []
    copies, fixed, moves = links
    for old, new in zip(leaves(states), flat(results), strict=True):
        if isinstance(old, Arr):
            source = next(position for position, array in enumerate(call.arrays) if array is new)
            if source != position_of(old):
                moves.append((source, position_of(old), words_of(call.arrays[source])))
        elif isinstance(old, Scalar) and not old.fixed:
            if isinstance(new, Slot):
                copies.append((position_of(old), new.position))
            else:
                fixed.append((position_of(old), new))
    if {move[0] for move in moves} & {move[1] for move in moves}:
        raise Untranslatable("two arrays of the state are exchanged")
    return links


def flat(value: object) -> list[object]:
    if isinstance(value, (tuple, list)) and not isinstance(value, Slot):
        return [leaf for item in value for leaf in flat(item)]
    return [value]


def words_of(array: Table) -> int:
    return -(-int(array.nbytes) // WORD)


class Memory:
    """Memory that the program inherits as ``descriptor``. The system frees it after the last user exits."""

    def __init__(self) -> None:
        self._parts: list[tuple[int, bytes]] = []
        self._words = ctypes.sizeof(Control) // WORD
        self.descriptor = -1

    def add(self, content: bytes, length: int = 0) -> int:
        """Reserve memory for ``content``, at least ``length`` words. Return the offset."""
        offset = self._words
        self._parts.append((offset, content))
        self._words += max(-(-len(content) // WORD), length)
        return offset

    def rows(self, *kinds: Iterable[tuple[int | object, ...]]) -> list[tuple[int, int]]:
        """Add tables of integers and floats. Return offset and number of rows of each table."""
        packed = struct.Struct("<q").pack, struct.Struct("<d").pack
        return [
            (
                self.add(b"".join(packed[isinstance(value, float)](value) for row in rows for value in row)),
                len(rows),
            )
            for rows in map(list, kinds)
        ]

    def open(self) -> Control:
        """Allocate the memory and store all added contents. Raises ConfigError if the system refuses memory."""
        try:
            self.descriptor = os.memfd_create("rths_executive")
            os.ftruncate(self.descriptor, self._words * WORD)
            self.map = mmap.mmap(self.descriptor, self._words * WORD)
        except (OSError, AttributeError) as error:
            raise ConfigError(
                f"engine = 'executive': cannot allocate shared memory ({error}). Use engine python"
            ) from error
        for offset, content in self._parts:
            self.map[offset * WORD : offset * WORD + len(content)] = content
        self._parts.clear()
        control = Control.from_buffer(self.map)
        control.layout, control.words = LAYOUT, self._words
        return control

    def close(self) -> None:
        with suppress(OSError):
            os.close(self.descriptor)

    def table(self, offset: int, rows: int, columns: int) -> Array:
        return np.frombuffer(self.map, np.float64, rows * columns, offset * WORD).reshape(rows, columns)
