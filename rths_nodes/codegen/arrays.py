# SPDX-License-Identifier: Apache-2.0
"""Translate arrays: parts, views, copies and arithmetic element by element, in loops of C."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from rths_nodes.codegen.values import (
    ARRAY_TYPES,
    C_TYPES,
    FLOAT,
    INT,
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
    row_strides,
    wrapped,
)

INDENT = 4 * " "
Operation = Callable[[Scalar, Scalar], Scalar]
"""An operation on two numbers."""


class Arrays:
    """The part of a translator that declares variables, and reads and writes arrays."""

    def __init__(self) -> None:
        self.lines: Lines = []
        self.indent = 1
        self.declared: list[tuple[str, str, str]] = []
        """Variables: type, name, and what follows the name."""
        self.taken: dict[str, int] = {}
        self.written: set[str] = set()
        """Memory of which elements are assigned."""
        self.sources: dict[str, set[str]] = {}
        """Memory to which a pointer may point, by its name."""

    # -- variables ----------------------------------------------------------------------------------------

    def emit(self, line: str) -> None:
        """Append a line of C at the present depth."""
        self.lines.append(INDENT * self.indent + line)

    def name_for(self, name: str) -> str:
        """Return a C name that is not used yet in this function."""
        stem = name.strip("_") or "unused"
        self.taken[stem] = self.taken.get(stem, 0) + 1
        return f"{stem}__{self.taken[stem]}"

    def declare(self, kind: str, name: str) -> Scalar:
        """Return a new variable."""
        c = self.name_for(name)
        self.declared.append((C_TYPES[kind], c, ""))
        return Scalar(kind, c)

    def declare_pointer(self, like: Arr, name: str) -> str:
        """Return the name of a new pointer to elements of the kind of ``like``."""
        c = self.name_for(name)
        self.declared.append((f"{ARRAY_TYPES[like.kind]} *", c, ""))
        return c

    def variable(self, value: Scalar, name: str) -> Scalar:
        """Return a new variable that holds the number of an expression."""
        variable = self.declare(value.kind, name)
        self.emit(f"{variable.c} = {value.c};")
        return variable

    def fresh(self, kind: str, shape: Sequence[int | None], name: str = "array") -> Arr:
        """Return a new array in the memory of the function."""
        array = Arr(kind, "", tuple(shape), row_strides(tuple(shape)), temporary=True)
        c = self.name_for(name)
        self.declared.append((ARRAY_TYPES[kind], c, f"[{max(array.size, 1)}]"))
        return replace(array, base=c)

    @contextmanager
    def buffered(self) -> Iterator[Lines]:
        """Collect the lines that are emitted inside, one level deeper."""
        outer, self.lines = self.lines, []
        self.indent += 1
        try:
            yield self.lines
        finally:
            self.indent -= 1
            self.lines = outer

    @contextmanager
    def over(self, shape: Sequence[int | None]) -> Iterator[tuple[str, ...]]:
        """Emit loops over all places of an array; gives the names of the indices. A length of one has no loop."""
        indices: list[str] = []
        for length in shape:
            if length == 1:
                indices.append("0")
                continue
            index = self.declare(INT, "i").c
            self.emit(f"for ({index} = 0; {index} < {length}; ++{index}) {{")
            self.indent += 1
            indices.append(index)
        yield tuple(indices)
        for index in indices:
            if index != "0":
                self.indent -= 1
                self.emit("}")

    # -- parts --------------------------------------------------------------------------------------------

    def value(self, node: ast.expr) -> Value:
        """Return the value of an expression."""
        raise NotImplementedError

    def number(self, node: ast.expr) -> Scalar:
        """Return the value of an expression that is a number."""
        raise NotImplementedError

    def items_of(self, value: Value) -> list[Value]:
        """Return the items of a tuple, the elements or rows of an array, or the numbers of a range."""
        if isinstance(value, Tup):
            return list(value.items)
        if isinstance(value, Arr):
            return (
                [self.row(value, constant(position)) for position in range(value.shape[0] or value.size)]
                if value.size
                else []
            )
        if isinstance(value, Range) and value.begin.const is not None and value.end.const is not None:
            return [constant(entry) for entry in range(int(value.begin.const), int(value.end.const))]
        raise Untranslatable("only tuples, arrays and ranges have items in a kernel")

    def row(self, array: Arr, position: Scalar) -> Value:
        """Return the element, or the row, of an array at ``place``."""
        if position.const is not None and position.const < 0:
            if array.shape[0] is None:
                raise Untranslatable("a negative index needs an array of known length")
            position = constant(int(position.const) + array.shape[0])
        if len(array.shape) == 1:
            return Scalar(array.kind, array.at(position.c))
        return replace(
            array,
            shape=array.shape[1:],
            strides=array.strides[1:],
            offset=moved(array, position.c, array.strides[0]),
        )

    def part(self, value: Value, index: ast.expr) -> Value:
        """Return a subscript of a tuple or an array."""
        if isinstance(value, Tup):
            return self._item(value, index)
        if not isinstance(value, Arr):
            raise Untranslatable("only tuples and arrays have subscripts in a kernel")
        indices = index.elts if isinstance(index, ast.Tuple) else [index]
        if len(indices) == len(value.shape) > 1 and not any(isinstance(entry, ast.Slice) for entry in indices):
            positions = [self._position(entry, length) for entry, length in zip(indices, value.shape, strict=True)]
            return Scalar(value.kind, value.at(*positions))
        shape: list[int | None] = []
        strides: list[int] = []
        for dimension, entry in enumerate(indices):
            length, stride = value.shape[dimension], value.strides[dimension]
            if isinstance(entry, ast.Slice):
                first, end = self._bounds(entry, length)
                value = replace(value, offset=moved(value, str(first), stride)) if first else value
                shape.append(None if end is None else max(end - first, 0))
                strides.append(stride)
            elif len(indices) == 1:
                position = self.number(entry)
                return self.row(value, position if position.const is not None else checked_index(position))
            else:
                value = replace(value, offset=moved(value, self._position(entry, length), stride))
        shape += value.shape[len(indices) :]
        strides += value.strides[len(indices) :]
        return replace(value, shape=tuple(shape), strides=tuple(strides))

    def _position(self, node: ast.expr, length: int | None) -> str:
        position = checked_index(self.number(node))
        if position.const is not None and position.const < 0:
            return str(int(position.const) + (length or 0))
        return position.c

    def _bounds(self, node: ast.Slice, length: int | None) -> tuple[int, int | None]:
        """Return first and last place of a slice, whose bounds must be known."""
        bounds: list[int | None] = []
        for entry in (node.lower, node.upper):
            if entry is None:
                bounds.append(None)
                continue
            const = self.number(entry).const
            if const is None:
                raise Untranslatable("the bounds of a slice are not known while the kernel is translated")
            bounds.append(int(const))
        if node.step is not None:
            raise Untranslatable("a slice of a kernel has no step")
        if length is None:
            return bounds[0] or 0, bounds[1]
        first, end, _ = slice(*bounds).indices(length)
        return first, max(first, end)

    def _item(self, value: Tup, index: ast.expr) -> Value:
        if isinstance(index, ast.Slice):
            first, end = self._bounds(index, len(value.items))
            return Tup(value.items[first:end])
        position = checked_index(self.number(index))
        if position.const is not None:
            try:
                return value.items[int(position.const)]
            except IndexError:
                raise Untranslatable(f"index {position.const} of a tuple of {len(value.items)}") from None
        return self._by_number(value, self.variable(position, "at") if not position.simple else position)

    def _by_number(self, value: Tup, position: Scalar) -> Value:
        """Return the item of a tuple at a computed place: all items have one form."""
        first = value.items[0] if value.items else Plain(None)
        if isinstance(first, Tup) and all(
            isinstance(item, Tup) and len(item.items) == len(first.items) for item in value.items
        ):
            columns = zip(*(item.items for item in value.items if isinstance(item, Tup)), strict=True)
            return replace(first, items=tuple([self._by_number(Tup(column), position) for column in columns]))
        if not all(isinstance(item, Scalar) for item in value.items):
            raise WrittenOut("a computed index needs an array, or a tuple of numbers")
        kind = FLOAT if any(item.kind == FLOAT for item in value.items if isinstance(item, Scalar)) else INT
        table = self.fresh(kind, (len(value.items),), "items")
        for at, item in enumerate(value.items):
            assert isinstance(item, Scalar)
            self.emit(f"{table.at(str(at))} = {item.c};")
        return Scalar(kind, table.at(position.c))

    # -- writing ------------------------------------------------------------------------------------------

    def store(self, target: ast.Subscript, value: Value) -> None:
        """Assign to an element or a part of an array."""
        owner = self.value(target.value)
        array = self.part(owner, target.slice)
        if isinstance(owner, Arr) and isinstance(array, Scalar) and isinstance(value, Scalar):
            self.written |= memory_of(self, owner)
            self.emit(f"{array.c} = {value.c};")
        elif isinstance(array, Arr):
            self.store_all(array, value)
        else:
            raise Untranslatable(f"cannot assign to {ast.unparse(target)}")

    def store_all(self, array: Arr, value: Value) -> None:
        """Assign to all elements of an array, as numpy does: a number, or rows, are repeated."""
        self.written |= memory_of(self, array)
        if isinstance(value, Tup):
            for position, item in enumerate(value.items):
                part = self.row(array, constant(position))
                if isinstance(part, Arr):
                    self.store_all(part, item)
                elif isinstance(part, Scalar) and isinstance(item, Scalar):
                    self.emit(f"{part.c} = {item.c};")
            return
        if isinstance(value, Arr) and value.base == array.base:
            if value == array:
                return
            value = self.copy(value)
        if isinstance(value, Scalar) and not value.simple:
            value = self.variable(value, "t")
        if not isinstance(value, (Scalar, Arr)):
            raise Untranslatable("only numbers are stored in an array")
        with self.over(array.shape) as positions:
            self.emit(f"{array.at(*positions)} = {element(value, positions)};")

    def copy(self, array: Arr) -> Arr:
        """Return a copy in the memory of the function."""
        copied = self.fresh(array.kind, array.shape, "copy")
        with self.over(array.shape) as positions:
            self.emit(f"{copied.at(*positions)} = {array.at(*positions)};")
        return copied

    def elementwise(
        self, operation: Callable[[Scalar, Scalar], Scalar], one: Scalar | Arr, other: Scalar | Arr
    ) -> Arr:
        """Return the result of an operation on all elements of two arrays, or of an array and a number."""
        shapes = [entry.shape for entry in (one, other) if isinstance(entry, Arr)]
        shape = broadcast(shapes)
        operands = [
            self.variable(entry, "t") if isinstance(entry, Scalar) and not entry.simple else entry
            for entry in (one, other)
        ]
        kinds = (scalar_of(entry, tuple("0" for _ in shape)) for entry in operands)
        result = self.fresh(operation(*kinds).kind, shape)
        with self.over(shape) as positions:
            self.emit(
                f"{result.at(*positions)} = {operation(*(scalar_of(entry, positions) for entry in operands)).c};"
            )
        return result

    def filled(self, items: tuple[Value, ...], count: int) -> Value:
        """Return a list display that is repeated: of one number an array, which can be written."""
        if len(items) == 1 and isinstance(items[0], Scalar):
            array = self.fresh(items[0].kind, (count,))
            self.store_all(array, items[0])
            return array
        return Tup(items * count)

    def of_items(self, value: Value, kind: str | None = None) -> Arr:
        """Return a new array of the numbers in nested tuples, or a copy of an array."""
        if isinstance(value, Arr):
            return self.copy(value)
        if not isinstance(value, Tup):
            raise Untranslatable("np.array takes tuples and arrays in a kernel")
        shape: tuple[int, ...] = (len(value.items),)
        first = value.items[0] if value.items else None
        if isinstance(first, Tup):
            shape = (len(value.items), len(first.items))
        elif isinstance(first, Arr):
            shape = (len(value.items), first.size)
        array = self.fresh(kind or FLOAT, shape)
        self.store_all(array, value)
        return array

    # -- attributes and methods ---------------------------------------------------------------------------

    def method(self, array: Arr, name: str, arguments: list[Value]) -> Value:
        """Return the result of a method of an array: ``copy``, ``reshape``, ``tolist``."""
        if name == "copy":
            return self.copy(array)
        if name == "tolist":
            return Tup(tuple(self.method(i, name, []) if isinstance(i, Arr) else i for i in self.items_of(array)))
        if name == "reshape":
            if len(arguments) == 1 and isinstance(arguments[0], Tup):
                arguments = list(arguments[0].items)
            lengths = [
                int(entry.const) if isinstance(entry, Scalar) and entry.const is not None else 0
                for entry in arguments
            ]
            if -1 in lengths:
                rest = 1
                for length in lengths:
                    rest *= length if length != -1 else 1
                lengths[lengths.index(-1)] = array.size // rest
            stored = array if array.contiguous else self.copy(array)
            return replace(stored, shape=tuple(lengths), strides=row_strides(tuple(lengths)))
        raise Untranslatable(f".{name}() is not among the methods of arrays in a kernel")


def memory_of(t: Arrays, array: Arr) -> set[str]:
    """Return the names of the memory in which an array may be."""
    return t.sources.get(array.base, {array.base})


def moved(array: Arr, position: str, stride: int) -> str:
    """Return the offset of an array that begins at another place."""
    step = position if stride == 1 else f"{stride} * {wrapped(position)}"
    if position.isdigit():
        step = str(int(position) * stride)
        if step == "0":
            return array.offset
        if array.offset.isdigit():
            return str(int(array.offset) + int(step))
    return step if array.offset == "0" else f"{array.offset} + {step}"


def broadcast(shapes: Sequence[tuple[int | None, ...]]) -> tuple[int | None, ...]:
    """Return the shape of an operation on arrays of these shapes. Raises Untranslatable."""
    count = max(map(len, shapes))
    padded = [(1,) * (count - len(shape)) + shape for shape in shapes]
    result: list[int | None] = []
    for lengths in zip(*padded, strict=True):
        wide = [length for length in lengths if length != 1]
        if any(length != wide[0] for length in wide):
            raise Untranslatable(f"arrays of shapes {', '.join(map(str, shapes))} do not fit together")
        result.append(wide[0] if wide else 1)
    return tuple(result)


def element(value: Scalar | Arr, positions: tuple[str, ...]) -> str:
    """Return the C expression of a number, or of the element of an array at ``places``, which are broadcast."""
    if isinstance(value, Scalar):
        return value.c
    items_here = positions[len(positions) - len(value.shape) :]
    return value.at(
        *("0" if length == 1 else position for position, length in zip(items_here, value.shape, strict=True))
    )


def scalar_of(value: Scalar | Arr, positions: tuple[str, ...]) -> Scalar:
    """Return a number, or the element of an array at ``places``."""
    return value if isinstance(value, Scalar) else Scalar(value.kind, element(value, positions))


def checked_index(position: Scalar) -> Scalar:
    """Return an index. Raises Untranslatable for a float."""
    if position.kind == FLOAT:
        raise Untranslatable("an index is a float")
    return position


def address(array: Arr) -> str:
    """Return the C expression of a pointer to the first element."""
    return array.base if array.offset == "0" else f"{array.base} + {wrapped(array.offset)}"


def attribute_of(array: Arr, name: str) -> Value:
    """Return an attribute of an array: ``T``, ``shape``, ``size``."""
    if name == "T":
        return replace(array, shape=array.shape[::-1], strides=array.strides[::-1])
    if name == "shape":
        return Tup(tuple(constant(length) for length in array.shape if length is not None))
    if name == "size":
        return constant(array.size)
    raise Untranslatable(f".{name} is not among the attributes of arrays in a kernel")
