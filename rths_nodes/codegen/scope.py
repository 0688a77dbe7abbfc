# SPDX-License-Identifier: Apache-2.0
"""The C statements and variables of a function under translation, and operations on arrays in loops of C."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TypeVar, cast

import numpy as np

from rths_nodes.codegen.values import (
    C_TYPES,
    FLOAT,
    INT,
    MISMATCH,
    Arr,
    Lines,
    Plain,
    Range,
    Scalar,
    Tup,
    Untranslatable,
    Value,
    WrittenOut,
    constant,
    form,
    kind_of,
    leaves,
    nesting,
    rebuilt,
    row_strides,
    scalar,
)

INDENT = 4 * " "
V = TypeVar("V", bound=Value)
Operation = Callable[[Scalar, Scalar], Scalar]
"""An operation on two numbers."""


class Scope:
    """Emits statements, declares variables and works on arrays."""

    def __init__(self) -> None:
        self.lines: Lines = []
        self.indent = 1
        self.arrays: list[str] = []
        """Declarations of arrays and pointers, which come before all statements."""
        self.taken: dict[str, int] = {}
        self.written: set[str] = set()
        """Memory of which elements are assigned."""
        self.sources: dict[str, set[str]] = {}
        """Memory to which a pointer may point, by its name."""

    # -- statements and variables -------------------------------------------------------------------------

    def emit(self, line: str) -> None:
        """Append a line of C at the present depth."""
        self.lines.append(INDENT * self.indent + line)

    @contextmanager
    def nested(self, head: str) -> Iterator[None]:
        """Emit a block of C, one level deeper, and the line of its begin."""
        self.emit(head)
        self.indent += 1
        yield
        self.indent -= 1
        self.emit("}")

    @contextmanager
    def buffered(self) -> Iterator[Lines]:
        """Collect a block of lines, one level deeper."""
        outer, self.lines = self.lines, []
        self.indent += 1
        try:
            yield self.lines
        finally:
            self.indent -= 1
            self.lines = outer

    def branch(self, test: str, body: Lines, other_body: Lines) -> None:
        """Emit an if statement with the lines of its branches."""
        if body or other_body:
            self.emit(f"if ({test}) {{")
            self.lines += body
            if other_body:
                self.emit("} else {")
            self.lines += other_body
            self.emit("}")

    def name_for(self, name: str) -> str:
        """Return a C name that is not used yet in this function."""
        stem = name.strip("_") or "unused"
        self.taken[stem] = self.taken.get(stem, 0) + 1
        return f"{stem}__{self.taken[stem]}"

    def declare(self, kind: str, name: str) -> Scalar:
        """Return a new variable, without a number yet."""
        c = self.name_for(name)
        self.emit(f"{C_TYPES[kind]} {c};")
        return Scalar(kind, c)

    def variable(self, value: Scalar, name: str) -> Scalar:
        """Return a new variable that holds the number of an expression."""
        c = self.name_for(name)
        self.emit(f"{C_TYPES[value.kind]} {c} = {value.c};")
        return Scalar(value.kind, c)

    def fresh(self, kind: str, shape: Sequence[int | None], name: str = "array") -> Arr:
        """Return a new array in the memory of the function."""
        array = Arr(kind, "", tuple(shape), row_strides(tuple(shape)), temporary=True)
        c = self.name_for(name)
        self.arrays.append(f"{C_TYPES[kind]} {c}[{max(array.size, 1)}]")
        return replace(array, base=c)

    def stable(self, value: V, name: str = "t") -> V:
        """Return ``value`` with each number in a variable, which is called after ``name``, or a literal."""
        parts = [self.variable(p, name) if isinstance(p, Scalar) and not p.simple else p for p in leaves(value)]
        return cast(V, rebuilt(value, parts))

    def meet(self, name: str, ends: Sequence[tuple[Value, Lines]]) -> Value:
        """Return one value for the ends of branches, to whose lines the assignments are appended.

        Of a single end it is a value that can be used after the branch.
        """
        if len({nesting(value) for value, _ in ends}) > 1:
            return MISMATCH
        met: list[Value] = []
        for row in zip(*(leaves(value) for value, _ in ends), strict=True):
            first, numbers = row[0], [part for part in row if isinstance(part, Scalar)]
            local = len(row) == 1 and isinstance(first, Scalar) and first.const is None
            if not local and all(part == first for part in row):
                met.append(first)
                continue
            if len(numbers) == len(row):
                variable: Scalar | Arr = self.declare(kind_of(numbers), name)
            elif isinstance(first, Arr) and len({form(part) for part in row}) == 1:
                arrays = [part for part in row if isinstance(part, Arr)]
                pointer = self.name_for(name)
                self.arrays.append(f"{C_TYPES[first.kind]} *{pointer}")
                self.sources[pointer] = set[str]().union(*map(self.memory_of, arrays))
                both = all(array.temporary for array in arrays)
                variable = replace(first, base=pointer, offset="0", temporary=both)
            else:
                return MISMATCH
            met.append(variable)
            for (_, lines), end in zip(ends, row, strict=True):
                lines.append(f"{INDENT * (self.indent + 1)}{variable.c} = {end.c};")
        return rebuilt(ends[0][0], met)

    # -- arrays -------------------------------------------------------------------------------------------

    def memory_of(self, array: Arr) -> set[str]:
        """Return the names of the memory in which an array may be."""
        return self.sources.get(array.base, {array.base})

    @contextmanager
    def over(self, shape: Sequence[int | None]) -> Iterator[tuple[str, ...]]:
        """Emit loops over all positions of an array, none over a length of one; gives the names of the indices."""
        indices = tuple("0" if length == 1 else self.name_for("i") for length in shape)
        with ExitStack() as loops:
            for i, length in zip(indices, shape, strict=True):
                if length != 1:
                    loops.enter_context(self.nested(f"for (int64_t {i} = 0; {i} < {length}; ++{i}) {{"))
            yield indices

    def items_of(self, value: Value) -> list[Value]:
        """Return the items of a tuple, the elements or rows of an array, or the numbers of a range."""
        if isinstance(value, Tup):
            return list(value.items)
        if isinstance(value, Arr):
            count = (value.shape[0] or value.size) if value.size else 0
            return [self.row(value, constant(position)) for position in range(count)]
        if isinstance(value, Range) and value.begin.const is not None and value.end.const is not None:
            return [constant(number) for number in range(int(value.begin.const), int(value.end.const))]
        raise Untranslatable("only tuples, arrays and ranges have items in a kernel")

    def row(self, array: Arr, position: Scalar) -> Value:
        """Return the element, or the row, of an array at ``position``."""
        c = position_of(position, array.shape[0])
        if len(array.shape) == 1:
            return Scalar(array.kind, array.at(c))
        row = array.moved(c, array.strides[0])
        return replace(row, shape=array.shape[1:], strides=array.strides[1:])

    def item(self, value: Tup, position: Scalar) -> Value:
        """Return the item of a tuple at a computed position: all items have one form."""
        first = value.items[0] if value.items else Plain(None)
        rows = [item.items for item in value.items if isinstance(item, Tup)]
        if isinstance(first, Tup) and len(rows) == len(value.items) and len(set(map(len, rows))) == 1:
            columns = [Tup(column) for column in zip(*rows, strict=True)]
            return replace(first, items=tuple([self.item(column, position) for column in columns]))
        numbers = [item for item in value.items if isinstance(item, Scalar)]
        if len(numbers) < len(value.items):
            raise WrittenOut("a computed index needs an array, or a tuple of numbers")
        table = self.fresh(FLOAT if kind_of(numbers) == FLOAT else INT, (len(numbers),), "items")
        for at, number in enumerate(numbers):
            self.emit(f"{table.at(str(at))} = {number.c};")
        return Scalar(table.kind, table.at(position.c))

    def store(self, target: Value, value: Value) -> None:
        """Assign to an element of an array, or to all elements as numpy does: a number, or rows, are repeated."""
        if isinstance(target, Scalar):
            self.emit(f"{target.c} = {scalar(value).c};")
            return
        if not isinstance(target, Arr):
            raise Untranslatable("only elements and parts of arrays are assigned")
        self.written |= self.memory_of(target)
        if isinstance(value, Tup):
            for position, item in enumerate(value.items):
                self.store(self.row(target, constant(position)), item)
            return
        if isinstance(value, Arr) and value.base == target.base:
            if value == target:
                return
            value = self.copy(value)
        if not isinstance(value, (Scalar, Arr)):
            raise Untranslatable("only numbers are stored in an array")
        value = self.stable(value)
        with self.over(target.shape) as positions:
            number = value.element(positions) if isinstance(value, Arr) else value
            self.emit(f"{target.at(*positions)} = {number.c};")

    def copy(self, array: Arr) -> Arr:
        """Return a copy in the memory of the function."""
        copied = self.fresh(array.kind, array.shape, "copy")
        with self.over(array.shape) as positions:
            self.emit(f"{copied.at(*positions)} = {array.at(*positions)};")
        return copied

    def elementwise(self, operation: Operation, *operands: Scalar | Arr) -> Arr:
        """Return the result of an operation on all elements of two arrays, or of an array and a number."""
        shapes = [operand.shape for operand in operands if isinstance(operand, Arr)]
        try:
            shape = np.broadcast_shapes(*cast(list[tuple[int, ...]], shapes))
        except (ValueError, TypeError) as error:
            raise Untranslatable(f"arrays of shapes {shapes} do not fit together") from error
        stable = [self.stable(operand) for operand in operands]

        def result_at(positions: Sequence[str]) -> Scalar:
            one, other = (part.element(positions) if isinstance(part, Arr) else part for part in stable)
            return operation(one, other)

        result = self.fresh(result_at(["0"] * len(shape)).kind, shape)
        with self.over(shape) as positions:
            self.emit(f"{result.at(*positions)} = {result_at(positions).c};")
        return result

    def array_of(self, value: Value) -> Arr:
        """Return a new array of the numbers in nested tuples, or a copy of an array."""
        if isinstance(value, Arr):
            return self.copy(value)
        if not isinstance(value, Tup):
            raise Untranslatable("np.array takes tuples and arrays in a kernel")
        shape: tuple[int, ...] = (len(value.items),)
        first = value.items[0] if value.items else None
        if isinstance(first, (Tup, Arr)):
            shape = (len(value.items), len(first.items) if isinstance(first, Tup) else first.size)
        array = self.fresh(FLOAT, shape)
        self.store(array, value)
        return array


def position_of(index: Scalar, length: int | None) -> str:
    """Return the C expression of a position; a negative constant counts from the end."""
    if index.const is None or index.const >= 0:
        return index.c
    if length is None:
        raise Untranslatable("a negative index needs an array of known length")
    return str(int(index.const) + length)
