# SPDX-License-Identifier: Apache-2.0
"""Build a C program of a kernel and call it with Python values: numbers, arrays, and tuples of these.

The entry point takes the numbers and arrays of all arguments, and fills in numbers and further arrays. A generated
Python function takes the arguments apart and puts the result together.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Callable, Sequence
from itertools import count
from types import FunctionType
from typing import Any

import numpy as np
import numpy.typing as npt

from rths_nodes.codegen.building import Library, Toolchain, built, toolchain
from rths_nodes.codegen.expressions import Expressions
from rths_nodes.codegen.program import Program, body_of, is_handed
from rths_nodes.codegen.values import (
    BOOL,
    C_TYPES,
    FLOAT,
    INT,
    Arr,
    Plain,
    Scalar,
    Tup,
    Untranslatable,
    Value,
    constant,
    field_names,
    leaves,
    row_strides,
)

DTYPES = {FLOAT: "d", INT: "q", BOOL: "?"}
FIELDS = {FLOAT: "real", INT: "integer", BOOL: "logical"}
PACKED = {FLOAT: "d", INT: "q", BOOL: "?7x"}
HEAD = """\
typedef union { double real; int64_t integer; bool logical; } number;

void entry(const number *numbers, void *const *arrays, number *results)"""
addressof, from_buffer = ctypes.addressof, ctypes.c_char.from_buffer
AnyArray = npt.NDArray[np.generic]
Fixed = bool | tuple["Fixed", ...]
"""True if integers of an argument are part of the text; for a tuple also item by item."""


class Slots:
    """Positions of floats, integers and arrays of Python values among the parameters of the entry point."""

    def __init__(self) -> None:
        self._numbers, self._arrays = count(), count()

    def value(self, value: object, fixed: Fixed, lengths: bool = True) -> Value:
        """Return the value of a Python object; ``fixed`` integers and booleans become part of the text.

        Without ``lengths`` the text holds for arrays of any outermost length.
        """
        if isinstance(value, np.ndarray):
            return self._array(value, lengths)
        if isinstance(value, (tuple, list, bytes)):
            parts = zip(value, fixed if isinstance(fixed, tuple) else (fixed,) * len(value), strict=True)
            return Tup(tuple(self.value(*part, lengths) for part in parts), field_names(value))
        if not isinstance(value, (bool, int, float, np.generic)):
            return Plain(value)
        number = constant(value)
        if fixed and number.kind != FLOAT:
            return number
        return Scalar(number.kind, f"numbers[{next(self._numbers)}].{FIELDS[number.kind]}")

    def _array(self, array: AnyArray, lengths: bool) -> Arr:
        kind = array.dtype.kind
        if kind not in C_TYPES or array.dtype.itemsize not in (1, 8):
            raise Untranslatable(f"an array of {array.dtype}: kernels compute with float64, int64 and bool")
        strides = tuple(step // array.itemsize for step in array.strides)
        shape: tuple[int | None, ...] = array.shape
        if array.flags.c_contiguous:
            strides = row_strides(shape)
            shape = shape if lengths else (None, *shape[1:])
        return Arr(kind, f"(({C_TYPES[kind]} *)arrays[{next(self._arrays)}])", shape, strides)


PYTHON = """\
Results = c_double * {count}

def call(*arguments):
    {pattern} = arguments
    arrays = [{arrays}]
    results = Results()
    entry(pack("={kinds}", {numbers}), pack("{pointers}P", *pointers(arrays)), results)
    results = unpack("={result_kinds}", results)
    return {result}
"""
"""Python text of the call of an entry point."""


class Entry(Expressions):
    """The entry point, whose variables are the numbers of the results, and arrays that Python makes."""

    def __init__(self, program: Program, arguments: list[Arr]) -> None:
        super().__init__(program, {})
        self.whole, self.made = arguments, [name_of(argument) for argument in arguments]
        self.results: list[str] = []

    def declare(self, kind: str, name: str) -> Scalar:
        """Return the next number of the results."""
        self.results.append(PACKED[kind])
        return Scalar(kind, f"results[{len(self.results) - 1}].{FIELDS[kind]}")

    def variable(self, value: Scalar, name: str) -> Scalar:
        """Assign to the next number of the results."""
        result = self.declare(value.kind, name)
        self.emit(f"{result.c} = {value.c};")
        return result

    def fresh(self, kind: str, shape: Sequence[int | None], name: str = "array") -> Arr:
        """Return an array that Python makes."""
        c = f"(({C_TYPES[kind]} *)arrays[{len(self.made)}])"
        self.whole.append(Arr(kind, c, tuple(shape), row_strides(tuple(shape)), temporary=True))
        self.made.append(f"empty({tuple(shape)}, {DTYPES[kind]!r})")
        return self.whole[-1]

    def returned(self, value: Value) -> str:
        """Return the Python expression of a result."""
        if isinstance(value, Tup):
            return f"({''.join(self.returned(item) + ', ' for item in value.items)})"
        if isinstance(value, Arr):
            part = value if value in self.whole else self.copy(value)
            return f"arrays[{self.whole.index(part)}]"
        if isinstance(value, Scalar):
            return repr(value.const) if value.fixed else value.c.partition(".")[0]
        return "None"


def program_of(function: FunctionType, values: Sequence[Value]) -> tuple[str, str]:
    """Return the C text of a function for arguments of this form, and the Python text of its call.

    Raises Untranslatable.
    """
    arguments = [part for value in values for part in leaves(value) if is_handed(part)]
    numbers = [part for part in arguments if isinstance(part, Scalar)]
    program = Program()
    entry = Entry(program, [part for part in arguments if isinstance(part, Arr)])
    result = entry.returned(program.call(entry, function, values))
    python = PYTHON.format(
        pattern=pattern_of(Tup(tuple(values))),
        result=result,
        numbers=", ".join(map(name_of, numbers)),
        kinds="".join(PACKED[number.kind] for number in numbers),
        arrays=", ".join(entry.made),
        pointers=len(entry.made),
        result_kinds="".join(entry.results),
        count=len(entry.results),
    )
    return program.text(body_of(HEAD, entry.arrays, entry.lines)), python


def pattern_of(value: Value) -> str:
    """Return the target of a Python assignment that takes arguments apart."""
    if isinstance(value, Tup):
        return f"[{', '.join(map(pattern_of, value.items))}]"
    return name_of(value) if is_handed(value) else "_"


def name_of(argument: Scalar | Arr) -> str:
    """Return the Python name of a number or an array, from its C expression."""
    return re.sub(r"\W+", "_", argument.c)


def loaded(
    function: FunctionType, values: Sequence[Value], tools: Toolchain
) -> tuple[Callable[..., Any], Library]:
    """Return a Python function in C, for arguments of this form, and its library.

    Raises Untranslatable, and Unbuilt.
    """
    text, python = program_of(function, values)
    library = built(text, tools)
    entry = library.handle.entry
    entry.restype = None
    space: dict[str, Any] = {"entry": entry, "empty": np.empty, "pointers": pointers}
    space |= {"pack": struct.pack, "unpack": struct.unpack, "c_double": ctypes.c_double}
    exec(python, space)
    return space["call"], library


def compiled(
    function: FunctionType, arguments: Sequence[object], fixed: Sequence[Fixed], compiler: str = ""
) -> Callable[..., Any]:
    """Return a Python function in C, for arguments of this form. Raises Untranslatable, and Unbuilt.

    >>> def step(k, s, x):
    ...     decay, gain = k
    ...     return (decay * s[0] + gain * x,), s[0]
    >>> compiled(step, ((0.5, 2.0), (1.0,), 3.0), (True, False, False))((0.5, 2.0), (1.0,), 3.0)
    ((6.5,), 1.0)
    """
    slots = Slots()
    values = [slots.value(argument, fix) for argument, fix in zip(arguments, fixed, strict=True)]
    return loaded(function, values, toolchain(compiler))[0]


def pointers(arrays: Sequence[Any]) -> list[int]:
    """Return the addresses of the first elements of ``arrays``."""
    try:  # takes a third of the time of ``array.ctypes.data``
        return [addressof(from_buffer(array if array.flags.c_contiguous else array.T)) for array in arrays]
    except (TypeError, ValueError):  # one is empty or read-only
        return [array.ctypes.data for array in arrays]
