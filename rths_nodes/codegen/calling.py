# SPDX-License-Identifier: Apache-2.0
"""Build a C program of a kernel and call it with Python values: numbers, arrays, and tuples of these."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rths_nodes.codegen.building import Library, built, key_of, toolchain
from rths_nodes.codegen.program import Made, Program, handed_c, is_handed
from rths_nodes.codegen.values import (
    ARRAY_TYPES,
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

DTYPES = {FLOAT: np.float64, INT: np.int64, BOOL: np.bool_}
ENTRY = "entry"
AnyArray = npt.NDArray[np.generic]
Structure = Sequence["Structure"] | None
"""Nested lists in which each leaf is None."""
Leaf = list[Any]
"""Way in which an entry point gives a leaf, and its details."""


Fixed = bool | tuple["Fixed", ...]
"""True if integers of an argument are part of the text; for a tuple also item by item."""


class Slots:
    """Places of the numbers, integers and arrays of a list of Python values, in the order of the entry point."""

    def __init__(self) -> None:
        self._counts = {"numbers": 0, "integers": 0, "arrays": 0}

    def value(self, value: object, fixed: Fixed, lengths: bool = True) -> Value:
        """Return the value of a Python object; ``fixed`` integers and booleans become part of the text.

        Without ``lengths`` the text holds for arrays of any outermost length.
        """
        if isinstance(value, np.ndarray):
            return self._array(value, lengths)
        if isinstance(value, (tuple, list, bytes)):
            items = zip(value, each_of(fixed, len(value)), strict=True)
            return Tup(tuple(self.value(*item, lengths) for item in items), field_names(value))
        if isinstance(value, (bool, np.bool_)):
            return constant(value) if fixed else Scalar(BOOL, f"integers[{self._next('integers')}] != 0")
        if isinstance(value, (int, np.integer)):
            return constant(int(value)) if fixed else Scalar(INT, f"integers[{self._next('integers')}]")
        if isinstance(value, (float, np.floating)):
            return Scalar(FLOAT, f"numbers[{self._next('numbers')}]")
        return Plain(value)

    def _next(self, kind: str) -> int:
        position = self._counts[kind]
        self._counts[kind] += 1
        return position

    def _array(self, array: AnyArray, lengths: bool) -> Arr:
        kind = array.dtype.kind
        if kind not in ARRAY_TYPES or array.dtype.itemsize not in (1, 8):
            raise Untranslatable(f"an array of {array.dtype}: kernels compute with float64, int64 and bool")
        strides = tuple(step // array.itemsize for step in array.strides)
        shape: tuple[int | None, ...] = array.shape
        if array.flags.c_contiguous:
            strides = row_strides(shape)
        if not lengths and array.flags.c_contiguous:
            shape = (None, *shape[1:])
        return Arr(kind, f"(({ARRAY_TYPES[kind]} *)arrays[{self._next('arrays')}])", shape, strides)


def each_of(fixed: Fixed, count: int) -> tuple[Fixed, ...]:
    """Return ``fixed`` for each item of a tuple."""
    return fixed if isinstance(fixed, tuple) else (fixed,) * count


def flattened(
    value: object, fixed: Fixed, numbers: list[float], integers: list[int], arrays: list[AnyArray]
) -> None:
    """Append the numbers and arrays of a Python value to the lists of the entry point."""
    if isinstance(value, np.ndarray):
        arrays.append(value)
    elif isinstance(value, (tuple, list, bytes)):
        for item, fix in zip(value, each_of(fixed, len(value)), strict=True):
            flattened(item, fix, numbers, integers, arrays)
    elif isinstance(value, (bool, int, np.bool_, np.integer)):
        if not fixed:
            integers.append(int(value))
    elif isinstance(value, (float, np.floating)):
        numbers.append(float(value))


class Signature(NamedTuple):
    """Result of an entry point: its structure, and for each leaf how the entry point gives it."""

    structure: Structure
    """Nested lists; a leaf is None."""
    leaves: list[Leaf]
    """Number: kind. Array: kind, shape. Part of an argument: place, offset, shape, strides. Value: itself."""
    slots: list[int]
    """Number of floats, integers and arrays of the arguments."""


def signature_of(made: Made, values: Sequence[Value]) -> Signature:
    """Return the signature of a function, as plain data."""
    rows: list[Leaf] = []
    for part, alias in zip(leaves(made.result), made.aliases, strict=True):
        if alias is not None:
            checked_index = alias.part
            rows.append(
                [
                    "argument",
                    alias.argument,
                    int(checked_index.offset),
                    list(checked_index.shape),
                    list(checked_index.strides),
                ]
            )
        elif isinstance(part, Arr):
            rows.append(["array", part.kind, list(part.shape)])
        elif isinstance(part, Scalar) and part.const is None:
            rows.append(["number", part.kind])
        else:
            rows.append(["value", part.const if isinstance(part, Scalar) else None])
    handed = [part for value in values for part in leaves(value) if is_handed(part)]
    kinds = [part.kind if isinstance(part, Scalar) else "array" for part in handed]
    floats, rest_of = kinds.count(FLOAT), kinds.count("array")
    return Signature(structure_of(made.result), rows, [floats, len(kinds) - floats - rest_of, rest_of])


def structure_of(value: Value) -> Structure:
    """Return a value as nested lists in which each leaf is None."""
    return [structure_of(item) for item in value.items] if isinstance(value, Tup) else None


def program_of(function: FunctionType, values: Sequence[Value]) -> tuple[str, Signature]:
    """Return the C text of a function for arguments of this form, and its signature. Raises Untranslatable."""
    program = Program()
    made = program.translated(function, values)
    handed = [handed_c(part) for value in values for part in leaves(value) if is_handed(part)]
    signature = signature_of(made, values)
    outs, before, after = [], [], []
    counts = dict.fromkeys((FLOAT, INT, "array"), 0)

    def position(kind: str) -> int:
        counts[kind] += 1
        return counts[kind] - 1

    for kind, *about in signature.leaves:
        if kind == "array":
            outs.append(f"({ARRAY_TYPES[about[0]]} *)out_arrays[{position('array')}]")
        elif kind == "number" and about[0] == FLOAT:
            outs.append(f"&out_numbers[{position(FLOAT)}]")
        elif kind == "number" and about[0] == INT:
            outs.append(f"&out_integers[{position(INT)}]")
        elif kind == "number":
            at = position(INT)
            before.append(f"    bool truth_{at};")
            after.append(f"    out_integers[{at}] = truth_{at};")
            outs.append(f"&truth_{at}")
    call = f"    {made.name}({', '.join([*handed, *outs])});"
    if made.returns != "void":
        target = "out_numbers" if made.returns == C_TYPES[FLOAT] else "out_integers"
        before, after, call = [], [], f"    {target}[0] = {made.name}({', '.join(handed)});"
    head = (
        f"void {ENTRY}(const double *numbers, const int64_t *integers, void *const *arrays,\n"
        "           double *out_numbers, int64_t *out_integers, void *const *out_arrays)"
    )
    return program.text("\n".join([head, "{", *before, call, *after, "}"])), signature


class Entry:
    """The entry point of a library as a Python function; ``fixed`` as when its text was made."""

    def __init__(self, library: Library, signature: Signature, fixed: Sequence[Fixed]) -> None:
        self._call, self._signature, self._fixed = getattr(library.handle, ENTRY), signature, tuple(fixed)
        self._call.restype = None
        self._numbers = sum(row == ["number", FLOAT] for row in signature.leaves)
        self._integers = sum(row[0] == "number" and row[1] != FLOAT for row in signature.leaves)

    def __call__(self, *arguments: object) -> object:
        numbers: list[float] = []
        integers: list[int] = []
        arrays: list[AnyArray] = []
        flattened(arguments, self._fixed, numbers, integers, arrays)
        if [len(numbers), len(integers), len(arrays)] != self._signature.slots:
            raise TypeError(
                "the arguments of a compiled function have another form than those it was compiled for"
            )
        rows = self._signature.leaves
        outs: list[AnyArray] = [np.empty(row[2], DTYPES[row[1]]) for row in rows if row[0] == "array"]
        out_numbers = (ctypes.c_double * max(self._numbers, 1))()
        out_integers = (ctypes.c_int64 * max(self._integers, 1))()
        self._call(
            (ctypes.c_double * max(len(numbers), 1))(*numbers),
            (ctypes.c_int64 * max(len(integers), 1))(*integers),
            pointers(arrays),
            out_numbers,
            out_integers,
            pointers(outs),
        )
        floats, wholes, fresh = iter(out_numbers), iter(out_integers), iter(outs)
        parts: list[object] = []
        for kind, *about in rows:
            if kind == "argument":
                parts.append(view(arrays[about[0]], *about[1:]))
            elif kind == "array":
                parts.append(next(fresh))
            elif kind == "number":
                number = next(floats) if about[0] == FLOAT else next(wholes)
                parts.append(bool(number) if about[0] == BOOL else number)
            else:
                parts.append(about[0])
        return in_python(self._signature.structure, parts)


def compiled(
    function: FunctionType, arguments: Sequence[object], fixed: Sequence[Fixed], compiler: str = ""
) -> Entry:
    """Return a Python function in C, for arguments of this form. Raises Untranslatable, and Unbuilt.

    >>> def step(k, s, x):
    ...     decay, gain = k
    ...     return (decay * s[0] + gain * x,), s[0]
    >>> compiled(step, ((0.5, 2.0), (1.0,), 3.0), (True, False, False))((0.5, 2.0), (1.0,), 3.0)
    ((6.5,), 1.0)
    """
    slots = Slots()
    values = [slots.value(argument, fix) for argument, fix in zip(arguments, fixed, strict=True)]
    text, signature = program_of(function, values)
    tools = toolchain(compiler)
    return Entry(built(key_of(text, tools), text, {}, tools), signature, fixed)


def pointers(arrays: Sequence[AnyArray]) -> ctypes.Array[ctypes.c_void_p]:
    """Return a C array of pointers to the first elements of ``arrays``."""
    return (ctypes.c_void_p * max(len(arrays), 1))(*(array.ctypes.data for array in arrays))


def view(array: AnyArray, offset: int, shape: list[int], strides: list[int]) -> AnyArray:
    """Return the part of an argument that a function returns."""
    if not offset and tuple(shape) == array.shape:
        return array
    flat = array.reshape(-1) if array.flags.c_contiguous else array.T.reshape(-1)
    steps = [array.itemsize * step for step in strides]
    return np.lib.stride_tricks.as_strided(flat[offset:], shape, steps)


def in_python(structure: Structure, parts: list[object]) -> object:
    """Return the Python object of a result; ``parts`` are its numbers and arrays in order."""
    if structure is None:
        return parts.pop(0)
    return tuple([in_python(item, parts) for item in structure])
