# SPDX-License-Identifier: Apache-2.0
"""Build a C program of a kernel and call it with Python values: numbers, arrays, and tuples of these.

The entry point takes the numbers and arrays of all arguments, and fills in numbers and further arrays. A generated
Python function takes the arguments apart and puts the result together.
"""

from __future__ import annotations

import ctypes
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
    row_strides,
)

DTYPES = {FLOAT: "d", INT: "q", BOOL: "?"}
FIELDS = {FLOAT: "real", INT: "integer", BOOL: "integer"}
HEAD = """\
typedef union { double real; int64_t integer; } number;

void entry(const number *numbers, void *const *arrays, number *results)"""
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
        c = f"numbers[{next(self._numbers)}].{FIELDS[number.kind]}"
        return Scalar(number.kind, f"{c} != 0" if number.kind == BOOL else c)

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
    made = [{made}]
    results = Results()
    entry(pack("={kinds}", {numbers}), pack("{pointers}P", *pointers([{arrays}])), results)
    results = unpack("={result_kinds}", results)
    return {result}
"""
"""Python text of the call of an entry point."""


def program_of(function: FunctionType, values: Sequence[Value]) -> tuple[str, str]:
    """Return the C text of a function for arguments of this form, and the Python text of its call.

    Raises Untranslatable.
    """
    program = Program()
    entry = Expressions(program, {})
    numbers: list[tuple[Scalar, str]] = []
    arrays: list[tuple[Arr, str]] = []
    results: list[Scalar] = []
    made: list[str] = []

    def taken(value: Value) -> str:
        """Return the target of an assignment that takes an argument apart."""
        if isinstance(value, Tup):
            return f"[{', '.join(map(taken, value.items))}]"
        if not is_handed(value):
            return "_"
        if isinstance(value, Arr):
            arrays.append((value, f"array_{len(arrays)}"))
            return arrays[-1][1]
        numbers.append((value, f"number_{len(numbers)}"))
        return numbers[-1][1]

    def returned(value: Value) -> str:
        """Return the Python expression of a result, and emit its assignment in C."""
        if isinstance(value, Tup):
            return f"({''.join(returned(item) + ', ' for item in value.items)})"
        if not is_handed(value):
            return repr(value.const) if isinstance(value, Scalar) else "None"
        if isinstance(value, Scalar):
            entry.emit(f"results[{len(results)}].{FIELDS[value.kind]} = {value.c};")
            results.append(value)
            return f"{'bool' if value.kind == BOOL else ''}(results[{len(results) - 1}])"
        for argument, name in arrays:
            if value == argument:
                return name
        new = value if value.base in entry.declared else entry.copy(value)
        entry.declared[new.base] = f"{C_TYPES[new.kind]} *{new.base} = arrays[{len(arrays) + len(made)}]"
        made.append(f"empty({new.shape}, {DTYPES[new.kind]!r})")
        return f"made[{len(made) - 1}]"

    pattern, result = taken(Tup(tuple(values))), returned(program.call(entry, function, values))
    python = PYTHON.format(
        pattern=pattern,
        result=result,
        numbers=", ".join(name if number.kind == FLOAT else f"int({name})" for number, name in numbers),
        kinds="".join("d" if number.kind == FLOAT else "q" for number, _ in numbers),
        arrays=", ".join([*(name if array.contiguous else f"{name}.T" for array, name in arrays), "*made"]),
        made=", ".join(made),
        pointers=len(arrays) + len(made),
        result_kinds="".join("d" if number.kind == FLOAT else "q" for number in results),
        count=len(results),
    )
    return program.text(body_of(HEAD, entry.declared, entry.lines)), python


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


def pointers(arrays: Sequence[AnyArray]) -> list[int]:
    """Return the addresses of the first elements of ``arrays``."""
    try:  # takes a third of the time of ``array.ctypes.data``
        return [ctypes.addressof(ctypes.c_char.from_buffer(array)) for array in arrays]  # type: ignore[arg-type]
    except (TypeError, ValueError):  # one is empty or read-only
        return [array.ctypes.data for array in arrays]
