# SPDX-License-Identifier: Apache-2.0
"""Build a C program of a kernel and call it with Python values: numbers, arrays, and tuples of these.

The entry point takes the floats, integers and arrays of all arguments, and fills in floats, integers and arrays.
A generated Python function takes the arguments apart and puts the result together.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
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
HEAD = """\
void entry(const double *numbers, const int64_t *integers, void *const *arrays,
           double *out_numbers, int64_t *out_integers, void *const *out_arrays)"""
AnyArray = npt.NDArray[np.generic]
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
        if kind not in C_TYPES or array.dtype.itemsize not in (1, 8):
            raise Untranslatable(f"an array of {array.dtype}: kernels compute with float64, int64 and bool")
        strides = tuple(step // array.itemsize for step in array.strides)
        shape: tuple[int | None, ...] = array.shape
        if array.flags.c_contiguous:
            strides = row_strides(shape)
            shape = shape if lengths else (None, *shape[1:])
        return Arr(kind, f"(({C_TYPES[kind]} *){self._next('arrays')})", shape, strides)


PYTHON = """\
Numbers, Integers = c_double * {count_numbers}, c_int64 * {count_integers}

def call(*arguments):
    {pattern} = arguments
    arrays, out_arrays = [{arrays}], [{out_arrays}]
    out_numbers, out_integers = Numbers(), Integers()
    entry(
        pack("{numbers_in}d", {numbers}),
        pack("{integers_in}q", {integers}),
        pack("{arrays_in}P", *pointers([{buffers}])),
        out_numbers,
        out_integers,
        pack("{arrays_out}P", *pointers(out_arrays)),
    )
    out_numbers, out_integers = out_numbers[:], out_integers[:]
    return {result}
"""
"""Python text of the call of an entry point."""


def program_of(function: FunctionType, values: Sequence[Value]) -> tuple[str, str]:
    """Return the C text of a function for arguments of this form, and the Python text of its call.

    Raises Untranslatable.
    """
    program = Program()
    entry = Expressions(program, {})
    result = program.call(entry, function, values)
    aliases = iter(program.translated(function, values).aliases)
    names: dict[str, list[str]] = {"numbers": [], "integers": [], "arrays": [], "buffers": []}
    outs: dict[str, list[str]] = {"numbers": [], "integers": [], "arrays": []}

    def returned(value: Value) -> str:
        """Return the Python expression of a result, and emit its assignment in C."""
        if isinstance(value, Tup):
            return f"({''.join(returned(item) + ', ' for item in value.items)})"
        if alias := next(aliases):
            number, part = alias
            return f"view(arrays[{number}], {part.offset}, {part.shape}, {part.strides})"
        if not is_handed(value):
            return repr(value.const) if isinstance(value, Scalar) else "None"
        group = group_of(value)
        slot = f"out_{group}[{len(outs[group])}]"
        if isinstance(value, Scalar):
            entry.emit(f"{slot} = {value.c};")
            outs[group].append(slot)
            return f"bool({slot})" if value.kind == BOOL else slot
        pointer = f"{C_TYPES[value.kind]} *"
        at = next(at for at, (_, c, _) in enumerate(entry.declared) if c == value.base)
        entry.declared[at] = pointer, value.base, f" = ({pointer}){slot}"
        outs[group].append(f"empty({value.shape}, {DTYPES[value.kind]!r})")
        return slot

    pattern, python_result = pattern_of(Tup(tuple(values)), names), returned(result)
    python = PYTHON.format(
        pattern=pattern,
        result=python_result,
        **{group: ", ".join(taken) for group, taken in names.items()},
        **{f"{group}_in": len(taken) for group, taken in names.items()},
        out_arrays=", ".join(outs["arrays"]),
        arrays_out=len(outs["arrays"]),
        count_numbers=max(len(outs["numbers"]), 1),
        count_integers=max(len(outs["integers"]), 1),
    )
    return program.text(body_of(HEAD, entry.declared, entry.lines)), python


def group_of(value: Scalar | Arr) -> str:
    """Return the parameter of the entry point that holds a number or an array."""
    return "arrays" if isinstance(value, Arr) else "numbers" if value.kind == FLOAT else "integers"


def pattern_of(value: Value, names: dict[str, list[str]]) -> str:
    """Return the target of an assignment that takes arguments apart; ``names`` collects the expressions."""
    if isinstance(value, Tup):
        return f"[{', '.join(pattern_of(item, names) for item in value.items)}]"
    if not is_handed(value):
        return "_"
    group = group_of(value)
    name = f"{group}_{len(names[group])}"
    names[group].append(f"int({name})" if group == "integers" else name)
    if isinstance(value, Arr):
        names["buffers"].append(name if value.contiguous else f"{name}.T")
    return name


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
    space: dict[str, Any] = {"entry": entry, "empty": np.empty, "view": view, "pointers": pointers}
    space |= {"pack": struct.pack, "c_double": ctypes.c_double, "c_int64": ctypes.c_int64}
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


def view(array: AnyArray, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> AnyArray:
    """Return the part of an argument that a function returns."""
    if not offset and shape == array.shape:
        return array
    flat = array.reshape(-1) if array.flags.c_contiguous else array.T.reshape(-1)
    steps = [array.itemsize * step for step in strides]
    return np.lib.stride_tricks.as_strided(flat[offset:], shape, steps)
