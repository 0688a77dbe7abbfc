# SPDX-License-Identifier: Apache-2.0
"""Build a C program of a kernel and call it with Python values: numbers, arrays, and tuples of these.

The entry point takes the floats, integers and arrays of all arguments, and fills in floats, integers and arrays.
``Entry`` writes a Python function that takes the arguments apart and puts the result together.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from struct import Struct
from types import FunctionType
from typing import Any

import numpy as np
import numpy.typing as npt

from rths_nodes.codegen.building import Library, built, key_of, toolchain
from rths_nodes.codegen.program import Aliased, Made, Program, handed_c, is_handed
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

DTYPES = {FLOAT: "d", INT: "q", BOOL: "?"}
ENTRY = "entry"
HEAD = f"""\
void {ENTRY}(const double *numbers, const int64_t *integers, void *const *arrays,
           double *out_numbers, int64_t *out_integers, void *const *out_arrays)
"""
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
                return constant(value.item() if isinstance(value, np.generic) else value)
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


def template_of(value: Value, aliases: Iterator[Aliased | None]) -> Template:
    """Return the template of a result."""
    if isinstance(value, Tup):
        return [template_of(item, aliases) for item in value.items]
    if alias := next(aliases):
        part = alias.part
        return ["argument", alias.argument, int(part.offset), list(part.shape), list(part.strides)]
    if isinstance(value, Arr):
        return ["array", value.kind, list(value.shape)]
    if isinstance(value, Scalar) and value.const is None:
        return ["number", value.kind]
    return ["value", value.const if isinstance(value, Scalar) else None]


def program_of(function: FunctionType, values: Sequence[Value]) -> tuple[str, Template]:
    """Return the C text of a function for arguments of this form, and its result. Raises Untranslatable."""
    program = Program()
    made = program.translated(function, values)
    call = entry_point(made, [handed_c(part) for value in values for part in leaves(value) if is_handed(part)])
    return program.text("\n".join([HEAD + "{", *call, "}"])), template_of(made.result, iter(made.aliases))


def entry_point(made: Made, handed: Sequence[str]) -> list[str]:
    """Return the lines of the entry point, which calls a function with the expressions ``handed``."""
    counts = dict.fromkeys("fia", 0)
    outs, before, after = [], [], []
    for part, alias in zip(leaves(made.result), made.aliases, strict=True):
        if alias is not None or not (isinstance(part, Arr) or (isinstance(part, Scalar) and part.const is None)):
            continue
        group = "a" if isinstance(part, Arr) else FLOAT if part.kind == FLOAT else INT
        at = counts[group]
        counts[group] += 1
        if isinstance(part, Arr):
            outs.append(f"({ARRAY_TYPES[part.kind]} *)out_arrays[{at}]")
        elif part.kind == BOOL:
            before.append(f"    bool truth_{at};")
            outs.append(f"&truth_{at}")
            after.append(f"    out_integers[{at}] = truth_{at};")
        else:
            outs.append(f"&out_{'numbers' if part.kind == FLOAT else 'integers'}[{at}]")
    if made.returns == "void":
        return [*before, f"    {made.name}({', '.join([*handed, *outs])});", *after]
    target = "out_numbers" if made.returns == C_TYPES[FLOAT] else "out_integers"
    return [f"    {target}[0] = {made.name}({', '.join(handed)});"]


class Marshalling:
    """Text of a Python function that calls an entry point for arguments of one form."""

    def __init__(self, values: Sequence[Value], template: Template) -> None:
        self.arguments: dict[str, list[str]] = {FLOAT: [], INT: [], "arrays": []}
        self.buffers: list[str] = []
        self.fresh: list[str] = []
        self.counts = {FLOAT: 0, INT: 0}
        pattern, result = self._pattern(Tup(tuple(values))), self._result(template)
        self.text = f"""\
def call(*arguments):
    {pattern} = arguments
    arrays = [{", ".join(self.arguments["arrays"])}]
    fresh = [{", ".join(self.fresh)}]
    numbers, integers = Numbers(), Integers()
    entry(
        pack_floats({", ".join(self.arguments[FLOAT])}),
        pack_integers({", ".join(self.arguments[INT])}),
        pack_arrays(*pointers([{", ".join(self.buffers)}])),
        numbers,
        integers,
        pack_fresh(*pointers(fresh)),
    )
    numbers, integers = numbers[:], integers[:]
    return {result}
"""

    def _pattern(self, value: Value) -> str:
        if isinstance(value, Tup):
            return f"[{', '.join(map(self._pattern, value.items))}]"
        if not is_handed(value):
            return "_"
        kind = (
            "arrays"
            if isinstance(value, Arr)
            else FLOAT
            if isinstance(value, Scalar) and value.kind == FLOAT
            else INT
        )
        name = f"{kind}_{len(self.arguments[kind])}"
        self.arguments[kind].append(f"int({name})" if kind == INT else name)
        if isinstance(value, Arr):
            self.buffers.append(name if value.contiguous else f"{name}.T")
        return name

    def _result(self, template: Template) -> str:
        if not template or not isinstance(template[0], str):
            return f"({''.join(self._result(item) + ', ' for item in template)})"
        how, *details = template
        if how == "number":
            group = FLOAT if details[0] == FLOAT else INT
            self.counts[group] += 1
            c = f"{'numbers' if group == FLOAT else 'integers'}[{self.counts[group] - 1}]"
            return f"bool({c})" if details[0] == BOOL else c
        if how == "array":
            self.fresh.append(f"empty({tuple(details[1])}, {DTYPES[details[0]]!r})")
            return f"fresh[{len(self.fresh) - 1}]"
        if how == "argument":
            return f"view(arrays[{details[0]}], {', '.join(map(str, details[1:]))})"
        return repr(details[0])


class Entry:
    """The entry point of a library as a Python function of arguments of the form of ``values``."""

    def __init__(self, library: Library, values: Sequence[Value], template: Template) -> None:
        written = Marshalling(values, template)
        counts = {kind: len(names) for kind, names in written.arguments.items()}
        entry = getattr(library.handle, ENTRY)
        entry.restype = None
        space: dict[str, Any] = {
            "entry": entry,
            "empty": np.empty,
            "view": view,
            "pointers": pointers,
            "pack_floats": Struct(f"{counts[FLOAT]}d").pack,
            "pack_integers": Struct(f"{counts[INT]}q").pack,
            "pack_arrays": Struct(f"{counts['arrays']}P").pack,
            "pack_fresh": Struct(f"{len(written.fresh)}P").pack,
            "Numbers": ctypes.c_double * max(written.counts[FLOAT], 1),
            "Integers": ctypes.c_int64 * max(written.counts[INT], 1),
        }
        exec(written.text, space)
        self._call = space["call"]

    def __call__(self, *arguments: object) -> object:
        return self._call(*arguments)


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
