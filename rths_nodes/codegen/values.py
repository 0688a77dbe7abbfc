# SPDX-License-Identifier: Apache-2.0
"""Values of a translated function: numbers as C expressions, tuples of values, arrays of known shape, functions.

A tuple never becomes a C object: each of its numbers is a variable of its own. The shape and the strides of an
array are known while a function is translated; only an outermost length may be unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from types import ModuleType

import numpy as np

FLOAT, INT, BOOL = "f", "i", "b"
"""Kinds of numbers, by the letter of numpy."""
C_TYPES = {FLOAT: "double", INT: "int64_t", BOOL: "bool"}
Number = bool | int | float


class Untranslatable(Exception):
    """Code outside the rules for kernels; the message names file, line and reason."""

    placed = False
    """True once the message names file and line."""


class WrittenOut(Untranslatable):
    """A computed index of a tuple of arrays, possible only in an unrolled loop."""


@dataclass(frozen=True)
class Scalar:
    """A number: its ``kind``, a C expression without side effects, and its value, if known."""

    kind: str
    c: str
    const: float | int | None = None

    @property
    def simple(self) -> bool:
        """True if the expression is a name or a literal, so that its repetition costs nothing."""
        return self.const is not None or self.c.replace("_", "a").isalnum()

    @property
    def fixed(self) -> bool:
        """True for an integer or boolean of known value, which is part of the text."""
        return self.const is not None and self.kind != FLOAT


@dataclass(frozen=True)
class Tup:
    """A tuple, or a list of fixed length; ``names`` are the fields of a named tuple."""

    items: tuple[Value, ...]
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Arr:
    """An array: elements of ``kind`` at the C pointer ``base`` plus ``offset``; strides count elements.

    The first length is None if it is unknown. ``temporary`` marks memory of the function that is translated.
    """

    kind: str
    base: str
    shape: tuple[int | None, ...]
    strides: tuple[int, ...]
    offset: str = "0"
    temporary: bool = False

    @property
    def size(self) -> int:
        """Number of elements. Raises Untranslatable if the first length is unknown."""
        total = 1
        for length in self.shape:
            if length is None:
                raise Untranslatable("the length of this array is unknown while the kernel is translated")
            total *= length
        return total

    @property
    def contiguous(self) -> bool:
        """True if the elements are stored row by row without gaps."""
        return self.strides == row_strides(self.shape)

    @property
    def c(self) -> str:
        """C expression of a pointer to the first element."""
        return self.base if self.offset == "0" else f"{self.base} + {wrapped(self.offset)}"

    def at(self, *positions: str) -> str:
        """Return the C expression of the element at ``positions``."""
        terms = [] if self.offset == "0" else [self.offset]
        for position, stride in zip(positions, self.strides, strict=True):
            if position != "0":
                terms.append(position if stride == 1 else f"{stride} * {wrapped(position)}")
        return f"{self.base}[{' + '.join(terms) or '0'}]"

    def element(self, positions: Sequence[str]) -> Scalar:
        """Return the element at ``positions`` of an operation, to whose shape the array is broadcast."""
        inner = zip(positions[len(positions) - len(self.shape) :], self.shape, strict=True)
        return Scalar(self.kind, self.at(*("0" if length == 1 else position for position, length in inner)))

    def moved(self, position: str, stride: int) -> Arr:
        """Return an array of the same form whose first element is ``position`` times ``stride`` further."""
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
    """A Python object that exists only while a kernel is translated: a function, None, a module, a type."""

    value: object


@dataclass(frozen=True)
class Range:
    """The integers from ``begin`` up to, not including, ``end``."""

    begin: Scalar
    end: Scalar


Value = Scalar | Tup | Arr | Plain | Range
RETURNED = "returned_"
"""Begin of the names of out parameters."""
MISMATCH = Plain("two forms")
"""Value of a name with different forms in two branches; its use is refused."""


@dataclass(frozen=True)
class Return:
    """A return statement, whose text is known once all returns of the function are."""

    value: Value
    indent: int


Lines = list[str | Return]
"""Statements of a function in C."""


def scalar(value: Value, reason: str = "a number is needed here") -> Scalar:
    """Return a value that is a number. Raises Untranslatable with the reason for any other."""
    if not isinstance(value, Scalar):
        raise Untranslatable(reason)
    return value


def array(value: Value, reason: str = "an array is needed here") -> Arr:
    """Return a value that is an array. Raises Untranslatable with the reason for any other."""
    if not isinstance(value, Arr):
        raise Untranslatable(reason)
    return value


def integer_of(value: Value, thing: str) -> int:
    """Return an integer whose value is known. Raises Untranslatable that names the ``thing``."""
    if not isinstance(value, Scalar) or value.const is None:
        raise Untranslatable(f"{thing} is not known while the kernel is translated")
    return int(value.const)


def scalars(values: Iterable[Value]) -> list[Scalar]:
    """Return values that are all numbers. Raises Untranslatable."""
    return [scalar(value) for value in values]


def row_strides(shape: tuple[int | None, ...]) -> tuple[int, ...]:
    """Return the strides of an array of this shape that is stored row by row."""
    strides: list[int] = []
    step = 1
    for length in reversed(shape):
        strides.append(step)
        step *= length or 1
    return tuple(reversed(strides))


def wrapped(c: str, operators: str = "") -> str:
    """Return a C expression as an operand: in parentheses if it has other than these ``operators``."""
    outer, inner = "", c
    while inner != outer:
        outer, inner = inner, re.sub(r"\([^()]*\)|\[[^][]*\]", "", inner)
    return c if re.fullmatch(rf"[\w.{operators}]+", outer) else f"({c})"


def literal(value: Number) -> str:
    """Return the C literal of a Python number."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"INT64_C({value})" if abs(value) > 2**31 - 1 else str(value)
    if value != value:
        return "NAN"
    if value in (np.inf, -np.inf):
        return "INFINITY" if value > 0 else "-INFINITY"
    return repr(value)


def constant(number: Number | np.generic) -> Scalar:
    """Return a number whose value is known."""
    value: Number = number.item() if isinstance(number, np.generic) else number
    return Scalar(
        BOOL if isinstance(value, bool) else INT if isinstance(value, int) else FLOAT, literal(value), value
    )


def kind_of(numbers: Sequence[Scalar]) -> str:
    """Return the kind of number that can hold all of these."""
    kinds = {number.kind for number in numbers}
    return kinds.pop() if len(kinds) == 1 else FLOAT if FLOAT in kinds else INT


def joined(values: Sequence[Value], stem: str, always: bool = False) -> Value:
    """Return a value that can hold any of ``values``; MISMATCH if their forms differ.

    A leaf that is equal in all of them stays unless ``always``; others have C names that begin with ``stem``.
    """
    if len({nesting(value) for value in values}) > 1:
        return MISMATCH
    rows = enumerate(zip(*map(leaves, values), strict=True))
    parts = [common(row, f"{stem}{position}", always) for position, row in rows]
    return MISMATCH if MISMATCH in parts else rebuilt(values[0], parts)


def common(parts: Sequence[Value], c: str, always: bool) -> Value:
    """Return a leaf that can hold any of ``parts``: one of them, or else a number or an array of C name ``c``."""
    first = parts[0]
    numbers = [part for part in parts if isinstance(part, Scalar)]
    forms = {(part.kind, part.shape) for part in parts if isinstance(part, Arr)}
    if all(part == first for part in parts) and not (always and isinstance(first, (Scalar, Arr))):
        return first
    if len(numbers) == len(parts):
        return Scalar(kind_of(numbers), c)
    if isinstance(first, Arr) and not numbers and len(forms) == 1 and all(isinstance(part, Arr) for part in parts):
        return Arr(first.kind, c, first.shape, row_strides(first.shape), temporary=True)
    return MISMATCH


def nesting(value: Value) -> object:
    """Return which items of a value are tuples."""
    return tuple(map(nesting, value.items)) if isinstance(value, Tup) else None


def leaves(value: Value) -> list[Value]:
    """Return the numbers, arrays and other objects of a value, in order."""
    if isinstance(value, Tup):
        return [leaf for item in value.items for leaf in leaves(item)]
    return [value]


def rebuilt(value: Value, parts: list[Value]) -> Value:
    """Return ``value`` with other leaves, which are taken from the front of ``parts``."""
    if isinstance(value, Tup):
        return replace(value, items=tuple([rebuilt(item, parts) for item in value.items]))
    return parts.pop(0)


def form(value: Value) -> object:
    """Return all that decides how a function of this argument is translated."""
    if isinstance(value, Scalar):
        return value.kind, value.const if value.kind != FLOAT else None
    if isinstance(value, Arr):
        return value.kind, value.shape, value.strides
    if isinstance(value, Tup):
        return value.names, tuple(form(item) for item in value.items)
    return value


def from_python(value: object, name: str) -> Value:
    """Return the value of a Python object that a kernel takes from its module, its closure or its arguments.

    Raises Untranslatable for objects without a counterpart in C.
    """
    if value is None or callable(value) or isinstance(value, (str, ModuleType)):
        return Plain(value)
    if isinstance(value, (bool, int, float, np.generic)):
        return constant(value)
    if isinstance(value, range):
        return Range(constant(value.start), constant(value.stop))
    if isinstance(value, (tuple, list, bytes)):
        return Tup(tuple(from_python(item, name) for item in value), field_names(value))
    raise Untranslatable(f"{name} is {type(value).__name__}: a kernel uses numbers, arrays, tuples and functions")


def field_names(value: object) -> tuple[str, ...]:
    """Return the names of a named tuple; empty for any other object."""
    return value._fields if isinstance(value, tuple) and hasattr(value, "_fields") else ()
