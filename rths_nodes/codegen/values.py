# SPDX-License-Identifier: Apache-2.0
"""Values of a translated function, its C statements and variables, and C loops for operations on arrays.

A tuple never becomes a C object: each of its numbers is a separate variable. Shape and strides of an array
are known during translation. Only the outermost length may be unknown.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TypeVar, cast

import numpy as np

FLOAT, INT, BOOL = "f", "i", "b"
C_TYPES = {FLOAT: "double", INT: "int64_t", BOOL: "bool"}
NOT_FINITE = {"nan": "NAN", "inf": "INFINITY", "-inf": "-INFINITY"}
Number = bool | int | float


class Untranslatable(Exception):
    """Raised if code violates the rules for kernels. The message states the source location and the reason."""

    location = ""

    def __str__(self) -> str:
        return self.location + super().__str__()


class WrittenOut(Untranslatable):
    """Raised for a computed index of a tuple of arrays. Such an index is possible only in an unrolled loop."""


@dataclass(frozen=True)
class Scalar:
    """A number: its kind, a C expression without side effects, and its value if known."""

    kind: str
    c: str
    const: float | int | None = None

    @property
    def simple(self) -> bool:
        return self.const is not None or self.c.replace("_", "a").isalnum()

    @property
    def fixed(self) -> bool:
        return self.const is not None and self.kind != FLOAT


@dataclass(frozen=True)
class Tup:
    """A tuple or list. ``names`` are the fields of a named tuple."""

    items: tuple[Value, ...]
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Arr:
    """An array: elements of ``kind`` at the C pointer ``base`` plus ``offset``. ``strides`` are in elements.

    The first length is None if unknown. ``listed`` is true for a list, which ``+`` concatenates.
    """

    kind: str
    base: str
    shape: tuple[int | None, ...]
    strides: tuple[int, ...] = ()
    offset: str = "0"
    listed: bool = False

    def __post_init__(self) -> None:
        if len(self.strides) != len(self.shape):
            object.__setattr__(self, "strides", row_strides(self.shape))

    @property
    def size(self) -> int:
        if None in self.shape:
            raise Untranslatable("the length of this array is unknown while the kernel is translated")
        return math.prod(length or 0 for length in self.shape)

    @property
    def contiguous(self) -> bool:
        return self.strides == row_strides(self.shape)

    @property
    def c(self) -> str:
        return self.base if self.offset == "0" else f"{self.base} + {wrapped(self.offset)}"

    def stored_in(self, base: str) -> Arr:
        return Arr(self.kind, base, self.shape, listed=self.listed)

    def at(self, *positions: str) -> str:
        terms = [] if self.offset == "0" else [self.offset]
        for position, stride in zip(positions, self.strides, strict=True):
            if position != "0":
                terms.append(position if stride == 1 else f"{stride} * {wrapped(position)}")
        return f"{self.base}[{' + '.join(terms) or '0'}]"

    def element(self, positions: Sequence[str]) -> Scalar:
        inner = zip(positions[len(positions) - len(self.shape) :], self.shape, strict=True)
        return Scalar(self.kind, self.at(*("0" if length == 1 else position for position, length in inner)))

    def moved(self, position: str, stride: int) -> Arr:
        step = position if stride == 1 else f"{stride} * {wrapped(position)}"
        if position.isdigit():
            step = str(int(position) * stride)
            if step == "0":
                return self
            if self.offset.isdigit():
                return replace(self, offset=str(int(self.offset) + int(step)))
        return replace(self, offset=step if self.offset == "0" else f"{self.offset} + {step}")


@dataclass(frozen=True)
class Plain:
    value: object


@dataclass(frozen=True)
class Range:
    begin: Scalar
    end: Scalar


Value = Scalar | Tup | Arr | Plain | Range
RETURNED = "returned_"
MISMATCH = Plain("two forms")
"""Value of a name whose type or shape differs between two branches. Any use of the name is refused."""


@dataclass(frozen=True)
class Return:
    """Return statement. Its C source is known once all return statements of the function are translated."""

    statement: ast.stmt
    value: Value
    indent: int


Lines = list[str | Return]


def scalar(value: Value, reason: str = "a number is required here") -> Scalar:
    if not isinstance(value, Scalar):
        raise Untranslatable(reason)
    return value


def array(value: Value, reason: str = "an array is required here") -> Arr:
    if not isinstance(value, Arr):
        raise Untranslatable(reason)
    return value


def integer_of(value: Value, thing: str) -> int:
    if not isinstance(value, Scalar) or value.const is None:
        raise Untranslatable(f"{thing} is not known while the kernel is translated")
    return int(value.const)


def row_strides(shape: tuple[int | None, ...]) -> tuple[int, ...]:
    return tuple(math.prod(length or 1 for length in shape[at + 1 :]) for at in range(len(shape)))


def wrapped(c: str, operators: str = "") -> str:
    outer, inner = "", c
    while inner != outer:
        outer, inner = inner, re.sub(r"\([^()]*\)|\[[^][]*\]", "", inner)
    return c if re.fullmatch(rf"[\w.{operators}]+", outer) else f"({c})"


def literal(value: Number) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"INT64_C({value})" if abs(value) > 2**31 - 1 else str(value)
    return NOT_FINITE.get(repr(value), repr(value))


def kind_of_number(number: Number | np.generic) -> str:
    if isinstance(number, (float, np.floating)):
        return FLOAT
    return BOOL if isinstance(number, (bool, np.bool_)) else INT


def constant(number: Number | np.generic) -> Scalar:
    value: Number = number.item() if isinstance(number, np.generic) else number
    return Scalar(kind_of_number(value), literal(value), value)


def kind_of(numbers: Iterable[Scalar | Arr]) -> str:
    kinds = {number.kind for number in numbers}
    return kinds.pop() if len(kinds) == 1 else FLOAT if FLOAT in kinds else INT


def joined(values: Sequence[Value], stem: str) -> Value:
    """Return one value that can represent any of ``values``, or MISMATCH if none exists.

    Each part that differs between ``values`` becomes a variable whose name begins with ``stem``.
    """
    if len(set(map(nesting, values))) > 1:
        return MISMATCH
    parts: list[Value] = []
    for position, row in enumerate(zip(*map(leaves, values), strict=True)):
        first, c = row[0], f"{stem}{position}"
        if all(part == first for part in row):
            parts.append(first)
        else:
            parts.append(first.stored_in(c) if isinstance(first, Arr) else Scalar(kind_of(row), c))
    return rebuilt(values[0], parts)


def nesting(value: Value) -> object:
    if isinstance(value, Tup):
        return tuple(map(nesting, value.items))
    if isinstance(value, Arr):
        return value.kind, value.shape, value.listed
    return Scalar if isinstance(value, Scalar) else value


def leaves(value: Value) -> list[Value]:
    if isinstance(value, Tup):
        return [leaf for item in value.items for leaf in leaves(item)]
    return [value]


def rebuilt(value: Value, parts: list[Value]) -> Value:
    """Return ``value`` with its leaves replaced by items that are removed from the start of ``parts``."""
    if isinstance(value, Tup):
        return replace(value, items=tuple([rebuilt(item, parts) for item in value.items]))
    return parts.pop(0)


def form(value: Value) -> object:
    if isinstance(value, Scalar):
        return value.kind, value.const if value.kind != FLOAT else None
    if isinstance(value, Arr):
        return value.kind, value.shape, value.strides, value.listed
    if isinstance(value, Tup):
        return value.names, tuple(form(item) for item in value.items)
    return value


def from_python(value: object, name: str) -> Value:
    if value is None or callable(value) or isinstance(value, (str, ModuleType)):
        return Plain(value)
    if isinstance(value, (bool, int, float, np.generic)):
        return constant(value)
    if isinstance(value, (tuple, list, bytes)):
        return Tup(tuple(from_python(item, name) for item in value), field_names(value))
    raise Untranslatable(
        f"{name} is {type(value).__name__}, but outer values of a kernel must be numbers, tuples or functions"
    )


def field_names(value: object) -> tuple[str, ...]:
    return value._fields if isinstance(value, tuple) and hasattr(value, "_fields") else ()


INDENT = 4 * " "
V = TypeVar("V", bound=Value)
Operation = Callable[..., Scalar]


class Scope:
    def __init__(self) -> None:
        self.lines: Lines = []
        self.indent = 1
        self.arrays: list[str] = []
        """Declarations of arrays and pointers, which precede all statements."""
        self.taken: dict[str, int] = {}
        self.written: set[str] = set()
        self.sources: dict[str, set[str]] = {}
        """Names of the arrays to which each pointer may point, by pointer name."""
        self.copied: list[tuple[str, set[str]]] = []
        """Arrays that are copies in C but not in Python, each with the names of the copied memory."""
        self.counting: set[str] = set()
        """C names of loop indices that are never negative."""

    def emit(self, line: str) -> None:
        self.lines.append(INDENT * self.indent + line)

    @contextmanager
    def nested(self, head: str) -> Iterator[None]:
        self.emit(head)
        self.indent += 1
        yield
        self.indent -= 1
        self.emit("}")

    @contextmanager
    def buffered(self) -> Iterator[Lines]:
        outer, self.lines = self.lines, []
        self.indent += 1
        try:
            yield self.lines
        finally:
            self.indent -= 1
            self.lines = outer

    def branch(self, test: str, body: Lines, other_body: Lines) -> None:
        if body or other_body:
            self.emit(f"if ({test}) {{")
            self.lines += body
            if other_body:
                self.emit("} else {")
            self.lines += other_body
            self.emit("}")

    def name_for(self, name: str) -> str:
        stem = name.strip("_") or "unused"
        self.taken[stem] = self.taken.get(stem, 0) + 1
        return f"{stem}__{self.taken[stem]}"

    def declare(self, kind: str, name: str, first: str = "") -> Scalar:
        c = self.name_for(name)
        self.emit(f"{C_TYPES[kind]} {c}{first};")
        return Scalar(kind, c)

    def variable(self, value: Scalar, name: str) -> Scalar:
        return self.declare(value.kind, name, f" = {value.c}")

    def fresh(self, kind: str, shape: Sequence[int | None], name: str = "array") -> Arr:
        array = Arr(kind, self.name_for(name), tuple(shape))
        self.arrays.append(f"{C_TYPES[kind]} {array.base}[{max(array.size, 1)}]")
        return array

    def stable(self, value: V, name: str = "t") -> V:
        """Return ``value`` with each number as a literal, or as a variable whose name is derived from ``name``."""
        parts = [self.variable(p, name) if isinstance(p, Scalar) and not p.simple else p for p in leaves(value)]
        return cast(V, rebuilt(value, parts))

    def meet(self, name: str, ends: Sequence[tuple[Value, Lines]]) -> Value:
        """Return one value that is valid after all branches, or MISMATCH if none exists.

        Assignments to this value are appended to the lines of ``ends``.
        """
        if len({nesting(value) for value, _ in ends}) > 1:
            return MISMATCH
        met: list[Value] = []
        for row in zip(*(leaves(value) for value, _ in ends), strict=True):
            first = row[0]
            local = len(row) == 1 and isinstance(first, Scalar) and first.const is None
            if not local and all(part == first for part in row):
                met.append(first)
                continue
            if isinstance(first, Arr):
                if len({array.strides for array in row}) > 1:
                    return MISMATCH
                pointer = self.name_for(name)
                self.arrays.append(f"{C_TYPES[first.kind]} *{pointer}")
                self.sources[pointer] = set[str]().union(*map(self.memory_of, row))
                variable: Scalar | Arr = replace(first, base=pointer, offset="0")
            else:
                variable = self.declare(kind_of(row), name)
            met.append(variable)
            for (_, lines), end in zip(ends, row, strict=True):
                lines.append(f"{INDENT * (self.indent + 1)}{variable.c} = {end.c};")
        return rebuilt(ends[0][0], met)

    def memory_of(self, array: Arr) -> set[str]:
        return self.sources.get(array.base, {array.base})

    @contextmanager
    def over(self, shape: Sequence[int | None]) -> Iterator[tuple[str, ...]]:
        """Emit loops over all elements of an array and yield the indices. A length of one needs no loop."""
        indices = tuple("0" if length == 1 else self.name_for("i") for length in shape)
        with ExitStack() as loops:
            for i, length in zip(indices, shape, strict=True):
                if length != 1:
                    loops.enter_context(self.nested(f"for (int64_t {i} = 0; {i} < {length}; ++{i}) {{"))
            yield indices

    def position_of(self, index: Scalar, length: int | None) -> str:
        if index.const is None:
            if length is None or self.never_negative(index.c):
                return index.c
            c = wrapped(index.c)
            return f"({c} < 0 ? {c} + {length} : {c})"
        if index.const >= 0:
            return index.c
        if length is None:
            raise Untranslatable("a negative index requires an array of known length")
        return str(int(index.const) + length)

    def never_negative(self, c: str) -> bool:
        """Return whether the expression ``c`` has only literals and non-negative indices, and no minus sign."""
        return "-" not in c and self.counting.issuperset(re.findall(r"[A-Za-z_]\w*", c))

    def items_of(self, value: Value) -> list[Value]:
        if isinstance(value, Tup):
            return list(value.items)
        if isinstance(value, Arr):
            count = (value.shape[0] or value.size) if value.size else 0
            return [self.row(value, constant(position)) for position in range(count)]
        if isinstance(value, Range) and value.begin.const is not None and value.end.const is not None:
            return [constant(number) for number in range(int(value.begin.const), int(value.end.const))]
        raise Untranslatable("a kernel can use only the items of tuples, arrays and ranges")

    def row(self, array: Arr, position: Scalar) -> Value:
        c = self.position_of(position, array.shape[0])
        if len(array.shape) == 1:
            return Scalar(array.kind, array.at(c))
        row = array.moved(c, array.strides[0])
        return replace(row, shape=array.shape[1:], strides=array.strides[1:])

    def item(self, value: Tup, position: Scalar) -> Value:
        first = value.items[0] if value.items else Plain(None)
        rows = [item.items for item in value.items if isinstance(item, Tup)]
        if isinstance(first, Tup) and len(rows) == len(value.items) and len(set(map(len, rows))) == 1:
            columns = [Tup(column) for column in zip(*rows, strict=True)]
            return replace(first, items=tuple([self.item(column, position) for column in columns]))
        numbers = [item for item in value.items if isinstance(item, Scalar)]
        if len(numbers) < len(value.items):
            raise WrittenOut("a computed index requires an array, or a tuple of numbers")
        table = self.fresh(FLOAT if kind_of(numbers) == FLOAT else INT, (len(numbers),), "items")
        for at, number in enumerate(numbers):
            self.emit(f"{table.at(str(at))} = {number.c};")
        return Scalar(table.kind, table.at(self.position_of(position, len(numbers))))

    def store(self, target: Value, value: Value, shifted: bool = True) -> None:
        """Assign ``value`` to the number ``target``, or to all elements of the array ``target``, as numpy does.

        If ``shifted``, a value that shares the memory of ``target`` is copied first.
        """
        numbers = [part for part in (target, value) if isinstance(part, (Scalar, Arr))]
        if numbers and kind_of(numbers) != numbers[0].kind:
            raise Untranslatable("an array of integers or bools cannot store a number of another kind")
        if isinstance(target, Scalar):
            self.emit(f"{target.c} = {scalar(value).c};")
            return
        if not isinstance(target, Arr):
            raise Untranslatable("a kernel can assign only to elements and parts of arrays")
        self.written |= self.memory_of(target)
        if isinstance(value, Tup):
            if target.shape[0] != len(value.items):
                raise Untranslatable(f"{len(value.items)} values cannot be stored in {target.shape[0]} elements")
            for position, item in enumerate(self.stable(value).items if shifted else value.items):
                self.store(self.row(target, constant(position)), item)
            return
        if value == target:
            return
        if shifted and isinstance(value, Arr) and self.memory_of(value) & self.memory_of(target):
            value = self.copy(value)
        if not isinstance(value, (Scalar, Arr)):
            raise Untranslatable("an array can store only numbers")
        value = self.stable(value)
        if isinstance(value, Arr) and self.common_shape(target, value) != target.shape:
            raise Untranslatable(f"an array {value.shape} cannot be stored in an array {target.shape}")
        with self.over(target.shape) as positions:
            number = value.element(positions) if isinstance(value, Arr) else value
            self.emit(f"{target.at(*positions)} = {number.c};")

    def copy(self, array: Arr) -> Arr:
        copied = self.fresh(array.kind, array.shape, "copy")
        with self.over(array.shape) as positions:
            self.emit(f"{copied.at(*positions)} = {array.at(*positions)};")
        return copied

    @staticmethod
    def common_shape(*arrays: Arr) -> tuple[int, ...]:
        shapes = [array.shape for array in arrays]
        try:
            return np.broadcast_shapes(*cast(list[tuple[int, ...]], shapes))
        except (ValueError, TypeError) as error:
            raise Untranslatable(f"arrays with the shapes {shapes} cannot be combined") from error

    def elementwise(self, operation: Operation, *operands: Value) -> Value:
        stable = [self.stable(operand) for operand in operands]
        arrays = [operand for operand in stable if isinstance(operand, Arr)]
        shape = self.common_shape(*arrays)

        def result_at(positions: Sequence[str]) -> Scalar:
            parts = (part.element(positions) if isinstance(part, Arr) else scalar(part) for part in stable)
            return operation(*parts)

        if not arrays:
            return result_at(())
        result = self.fresh(result_at(["0"] * len(shape)).kind, shape)
        with self.over(shape) as positions:
            self.emit(f"{result.at(*positions)} = {result_at(positions).c};")
        return result

    def array_of(self, value: Value) -> Arr:
        if isinstance(value, Arr):
            return self.copy(value)
        if not isinstance(value, Tup):
            raise Untranslatable("the argument of np.array must be a tuple or an array in a kernel")
        array = self.fresh(kind_of(map(scalar, value.items)), [len(value.items)])
        self.store(array, value, shifted=False)
        return array
