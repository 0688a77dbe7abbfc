# SPDX-License-Identifier: Apache-2.0
"""Build a C program of a kernel and call it with Python values: numbers, arrays, and tuples of these.

The entry point takes the floats, integers and arrays of all arguments, and fills in floats, integers and arrays.
``Entry`` writes a Python function that takes the arguments apart and puts the result together.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from struct import Struct
from types import FunctionType
from typing import Any

import numpy as np
import numpy.typing as npt

from rths_nodes.codegen.building import Library, built, key_of, toolchain
from rths_nodes.codegen.expressions import Expressions
from rths_nodes.codegen.program import Program, body_of, is_handed, is_out
from rths_nodes.codegen.values import (
    ARRAY_TYPES,
    BOOL,
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
ENTRY = "entry"
HEAD = f"""\
void {ENTRY}(const double *numbers, const int64_t *integers, void *const *arrays,
           double *out_numbers, int64_t *out_integers, void *const *out_arrays)"""
AnyArray = npt.NDArray[np.generic]
Template = list[Any]
"""A result in JSON: a list for a tuple; for a leaf a list that begins with the way in which it is returned."""
Fixed = bool | tuple["Fixed", ...]
"""True if integers of an argument are part of the text; for a tuple also item by item."""


class Slots:
    """Positions of floats, integers and arrays of Python values among the parameters of the entry point."""

    def __init__(self) -> None:
        self._counts = {"numbers": 0, "integers": 0, "arrays": 0}

    def value(self, value: object, fixed: Fixed, lengths: bool = True) -> Value:
        """Return the value of a Python object; ``fixed`` integers and booleans become part of the text.

        Without ``lengths`` the text holds for arrays of any outermost length.
        """
        if isinstance(value, np.ndarray):
            return self._array(value, lengths)
        if isinstance(value, (tuple, list, bytes)):
            parts = zip(value, fixed if isinstance(fixed, tuple) else (fixed,) * len(value), strict=True)
            return Tup(tuple(self.value(*part, lengths) for part in parts), field_names(value))
        if isinstance(value, (float, np.floating)):
            return Scalar(FLOAT, self._next("numbers"))
        if isinstance(value, (bool, int, np.bool_, np.integer)):
            if fixed:
                return constant(value)
            if isinstance(value, (bool, np.bool_)):
                return Scalar(BOOL, f"{self._next('integers')} != 0")
            return Scalar(INT, self._next("integers"))
        return Plain(value)

    def _next(self, kind: str) -> str:
        self._counts[kind] += 1
        return f"{kind}[{self._counts[kind] - 1}]"

    def _array(self, array: AnyArray, lengths: bool) -> Arr:
        kind = array.dtype.kind
        if kind not in ARRAY_TYPES or array.dtype.itemsize not in (1, 8):
            raise Untranslatable(f"an array of {array.dtype}: kernels compute with float64, int64 and bool")
        strides = tuple(step // array.itemsize for step in array.strides)
        shape: tuple[int | None, ...] = array.shape
        if array.flags.c_contiguous:
            strides = row_strides(shape)
            shape = shape if lengths else (None, *shape[1:])
        return Arr(kind, f"(({ARRAY_TYPES[kind]} *){self._next('arrays')})", shape, strides)


def program_of(function: FunctionType, values: Sequence[Value]) -> tuple[str, Template]:
    """Return the C text of a function for arguments of this form, and its result. Raises Untranslatable."""
    program, counts = Program(), dict.fromkeys(("numbers", "integers", "arrays"), 0)
    entry = Expressions(program, {})
    result = program.call(entry, function, values)
    aliases = iter(program.translated(function, values).aliases)

    def template_of(value: Value) -> Template:
        if isinstance(value, Tup):
            return [template_of(item) for item in value.items]
        if alias := next(aliases):
            number, part = alias
            return ["argument", number, int(part.offset), list(part.shape), list(part.strides)]
        if not is_out(value):
            return ["value", value.const if isinstance(value, Scalar) else None]
        group = "arrays" if isinstance(value, Arr) else "numbers" if value.kind == FLOAT else "integers"
        slot = f"out_{group}[{counts[group]}]"
        counts[group] += 1
        if isinstance(value, Scalar):
            entry.emit(f"{slot} = {value.c};")
            return ["number", value.kind]
        pointer = f"{ARRAY_TYPES[value.kind]} *"
        at = next(at for at, (_, c, _) in enumerate(entry.declared) if c == value.base)
        entry.declared[at] = pointer, value.base, f" = ({pointer})out_arrays[{counts['arrays'] - 1}]"
        return ["array", value.kind, list(value.shape)]

    template = template_of(result)
    return program.text(body_of(HEAD, entry.declared, entry.lines)), template


class Entry:
    """The entry point of a library as a Python function of arguments of the form of ``values``."""

    def __init__(self, library: Library, values: Sequence[Value], template: Template) -> None:
        self._names: dict[str, list[str]] = {"floats": [], "integers": [], "arrays": [], "buffers": []}
        self._outs: dict[str, list[str]] = {"floats": [], "integers": [], "arrays": []}
        pattern, result = self._pattern(Tup(tuple(values))), self._result(template)
        text = f"""\
def call(*arguments):
    {pattern} = arguments
    arrays = [{", ".join(self._names["arrays"])}]
    out_arrays = [{", ".join(self._outs["arrays"])}]
    out_floats, out_integers = Floats(), Integers()
    entry(
        pack_floats({", ".join(self._names["floats"])}),
        pack_integers({", ".join(self._names["integers"])}),
        pack_arrays(*pointers([{", ".join(self._names["buffers"])}])),
        out_floats,
        out_integers,
        pack_out_arrays(*pointers(out_arrays)),
    )
    floats, integers = out_floats[:], out_integers[:]
    return {result}
"""
        entry = getattr(library.handle, ENTRY)
        entry.restype = None
        space: dict[str, Any] = {"entry": entry, "empty": np.empty, "view": view, "pointers": pointers}
        counts = {
            group: len(names) for group, names in (*self._names.items(), ("out_arrays", self._outs["arrays"]))
        }
        for group, letter in (("floats", "d"), ("integers", "q"), ("arrays", "P"), ("out_arrays", "P")):
            space[f"pack_{group}"] = Struct(f"{counts[group]}{letter}").pack
        space["Floats"] = ctypes.c_double * max(len(self._outs["floats"]), 1)
        space["Integers"] = ctypes.c_int64 * max(len(self._outs["integers"]), 1)
        exec(text, space)
        self._call = space["call"]

    def __call__(self, *arguments: object) -> object:
        return self._call(*arguments)

    def _pattern(self, value: Value) -> str:
        """Return the target of an assignment that takes arguments apart."""
        if isinstance(value, Tup):
            return f"[{', '.join(map(self._pattern, value.items))}]"
        if not is_handed(value):
            return "_"
        if isinstance(value, Scalar):
            group = "floats" if value.kind == FLOAT else "integers"
            name = f"{group}_{len(self._names[group])}"
            self._names[group].append(name if value.kind == FLOAT else f"int({name})")
            return name
        name = f"arrays_{len(self._names['arrays'])}"
        self._names["arrays"].append(name)
        self._names["buffers"].append(name if isinstance(value, Arr) and value.contiguous else f"{name}.T")
        return name

    def _result(self, template: Template) -> str:
        """Return the expression of a result."""
        if not template or not isinstance(template[0], str):
            return f"({''.join(self._result(item) + ', ' for item in template)})"
        how, *details = template
        if how == "value":
            return repr(details[0])
        if how == "argument":
            return f"view(arrays[{details[0]}], {', '.join(map(str, details[1:]))})"
        group = "arrays" if how == "array" else "floats" if details[0] == FLOAT else "integers"
        names = self._outs[group]
        c = f"out_arrays[{len(names)}]" if how == "array" else f"{group}[{len(names)}]"
        names.append(f"empty({tuple(details[1])}, {DTYPES[details[0]]!r})" if how == "array" else c)
        return f"bool({c})" if details[0] == BOOL and how == "number" else c


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
    text, template = program_of(function, values)
    tools = toolchain(compiler)
    return Entry(built(key_of(text, tools), text, {}, tools), values, template)


def pointers(arrays: Sequence[AnyArray]) -> list[int]:
    """Return the addresses of the first elements of ``arrays``."""
    try:  # takes a third of the time of ``array.ctypes.data``
        return [ctypes.addressof(ctypes.c_char.from_buffer(array)) for array in arrays]  # type: ignore[arg-type]
    except (TypeError, ValueError):  # one is empty or read-only
        return [array.ctypes.data for array in arrays]


def view(array: AnyArray, offset: int, shape: list[int], strides: list[int]) -> AnyArray:
    """Return the part of an argument that a function returns."""
    if not offset and tuple(shape) == array.shape:
        return array
    flat = array.reshape(-1) if array.flags.c_contiguous else array.T.reshape(-1)
    steps = [array.itemsize * step for step in strides]
    return np.lib.stride_tricks.as_strided(flat[offset:], shape, steps)
