# SPDX-License-Identifier: Apache-2.0
"""Values of a translated function: numbers as C expressions, tuples of values, arrays of known shape, functions.

A tuple never becomes a C object: each of its numbers is a variable of its own. The shape and the strides of an
array are known while a function is translated; only an outermost length may be unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

FLOAT, INT, BOOL = "f", "i", "b"
"""Kinds of numbers, by the letter of numpy."""
C_TYPES = {FLOAT: "double", INT: "int64_t", BOOL: "bool"}
ARRAY_TYPES = {FLOAT: "double", INT: "int64_t", BOOL: "uint8_t"}
"""C types of the elements of arrays."""


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

    def at(self, *positions: str) -> str:
        """Return the C expression of the element at ``places``."""
        terms = [] if self.offset == "0" else [self.offset]
        for position, stride in zip(positions, self.strides, strict=True):
            if position != "0":
                terms.append(position if stride == 1 else f"{stride} * {wrapped(position)}")
        return f"{self.base}[{' + '.join(terms) or '0'}]"


@dataclass(frozen=True)
class Fn:
    """A Python function, or a C function of the mathematical library."""

    function: object


@dataclass(frozen=True)
class Plain:
    """A Python object that exists only while a kernel is translated: None, a module, a type."""

    value: object


@dataclass(frozen=True)
class Range:
    """The integers from ``begin`` up to, not including, ``end``."""

    begin: Scalar
    end: Scalar


Value = Scalar | Tup | Arr | Fn | Plain | Range


@dataclass(frozen=True)
class Return:
    """A return statement, whose text is known once all returns of the function are."""

    value: Value
    indent: int


Lines = list[str | Return]
"""Statements of a function in C."""


class Mismatch:
    """Value of a name with different forms in two branches; its use is refused."""

    def __init__(self, name: str) -> None:
        self.name = name


def scalar(value: Value) -> Scalar:
    """Return a value that is a number. Raises Untranslatable for any other."""
    if not isinstance(value, Scalar):
        raise Untranslatable("a number is needed here")
    return value


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


def wrapped(c: str) -> str:
    """Return a C expression that can be an operand: in parentheses unless it is a name, a literal or a call."""
    return c if c.replace("_", "a").replace(".", "a").isalnum() else f"({c})"


def literal(value: Number) -> str:
    """Return the C literal of a Python number."""
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (int, np.integer)):
        return f"INT64_C({value})" if abs(int(value)) > 2**31 - 1 else str(int(value))
    if value != value:
        return "NAN"
    if value in (np.inf, -np.inf):
        return "INFINITY" if value > 0 else "-INFINITY"
    return repr(float(value))


Number = bool | int | float | np.bool_ | np.int64 | np.float64


def constant(number: Number) -> Scalar:
    """Return a number whose value is known."""
    value = number.item() if isinstance(number, np.generic) else number
    kind = BOOL if isinstance(value, (bool, np.bool_)) else INT if isinstance(value, (int, np.integer)) else FLOAT
    return Scalar(kind, literal(value), value)


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
    if isinstance(value, Fn):
        return "function", value
    if isinstance(value, Range):
        return "range", form(value.begin), form(value.end)
    return "plain", value.value


def from_python(value: object, name: str) -> Value:
    """Return the value of a Python object that a kernel takes from its module, its closure or its arguments.

    Raises Untranslatable for objects without a counterpart in C.
    """
    if value is None or isinstance(value, (str, type)) or type(value).__name__ == "module":
        return Plain(value)
    if isinstance(value, (bool, int, float)):
        return constant(value)
    if isinstance(value, np.generic):
        return from_python(value.item(), name)
    if isinstance(value, range):
        return Range(constant(value.start), constant(value.stop))
    if isinstance(value, (tuple, list, bytes)):
        return Tup(tuple(from_python(item, name) for item in value), field_names(value))
    if callable(value):
        return Fn(value)
    raise Untranslatable(f"{name} is {type(value).__name__}: a kernel uses numbers, arrays, tuples and functions")


def kind_of_both(one: Scalar, other: Scalar) -> str:
    """Return the kind of number that can hold either."""
    return one.kind if one.kind == other.kind else FLOAT if FLOAT in (one.kind, other.kind) else INT


def field_names(value: object) -> tuple[str, ...]:
    """Return the names of a named tuple; empty for any other object."""
    return value._fields if isinstance(value, tuple) and hasattr(value, "_fields") else ()
