# SPDX-License-Identifier: Apache-2.0
"""Translate a kernel and the functions that it calls to a C program, build it, and call it with Python values.

Each function becomes one static C function for each form of its arguments. The C function takes the numbers and
arrays of the arguments, and a pointer for each result; a single number is returned by value. Integers and booleans
of known value are constants in the text. A generated Python function passes all arguments to the entry point and
assembles the result.
"""

from __future__ import annotations

import ast
import ctypes
import inspect
import re
import struct
import textwrap
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import count, permutations
from types import FunctionType
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from rths_nodes.codegen.building import Library, Toolchain, built
from rths_nodes.codegen.intrinsics import FORMS
from rths_nodes.codegen.translating import Expressions, FunctionTranslator
from rths_nodes.codegen.values import (
    BOOL,
    C_TYPES,
    FLOAT,
    INDENT,
    INT,
    RETURNED,
    Arr,
    Lines,
    Plain,
    Return,
    Scalar,
    Tup,
    Untranslatable,
    Value,
    constant,
    field_names,
    form,
    kind_of_number,
    leaves,
    rebuilt,
    row_strides,
)
from rths_nodes.core.data import Data
from rths_nodes.core.kernels import identity, unguarded

HEAD = """\
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))
"""
PRODUCT = """\

#ifdef __AVX__
#define LANES 4
#else
#define LANES 2
#endif
typedef double lanes __attribute__((vector_size(8 * LANES), aligned(8), may_alias));

/* result = matrix times vector: the sum of a row has the order of its columns */
INLINE void matrix_product(
    double *result, const double *matrix, const double *vector,
    int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride)
{
    if (row_stride == 1 && rows >= 2 * LANES) {
        const int64_t wide = rows >= 4 * LANES ? 4 : 2;
        for (int64_t row = 0; row < rows; row += wide * LANES) {
            const int64_t last = rows - wide * LANES, begin = row < last ? row : last; /* the last ones overlap */
            lanes sums[4];
            for (int64_t part = 0; part < wide; ++part)
                sums[part] = *(const lanes *)(matrix + begin + LANES * part) * vector[0];
            for (int64_t column = 1; column < columns; ++column) {
                const double *stored = matrix + begin + column_stride * column;
                for (int64_t part = 0; part < wide; ++part)
                    sums[part] += *(const lanes *)(stored + LANES * part) * vector[column];
            }
            for (int64_t part = 0; part < wide; ++part)
                *(lanes *)(result + begin + LANES * part) = sums[part];
        }
        return;
    }
    for (int64_t row = 0; row < rows; ++row) {
        double total = matrix[row_stride * row] * vector[0];
        for (int64_t column = 1; column < columns; ++column)
            total += matrix[row_stride * row + column_stride * column] * vector[column];
        result[row] = total;
    }
}
"""
WIDTH = 110
LONG = 200


@dataclass(frozen=True)
class Made:
    """Translated function.

    ``arrays`` are the names of its array parameters. The function writes to the arrays in ``written``. A number or
    an array of the result is a constant, an output parameter or a part of an array parameter. ``copied`` are the
    array parameters of which the output parameters contain copies.
    """

    name: str
    result: Value
    arrays: list[str]
    written: set[str]
    copied: set[str]


class Program:
    def __init__(self) -> None:
        self._made: dict[object, Made | None] = {}
        self._texts: dict[str, str] = {}
        self._names: dict[str, int] = {}

    def call(
        self, caller: Expressions, function: object, arguments: Sequence[Value], target: ast.expr | None = None
    ) -> Value:
        """Append a call to the text of ``caller``. Return its result, in variables named after ``target``."""
        if isinstance(function, Hashable) and function in FORMS:
            if not _takes(function, len(arguments)):
                raise Untranslatable(f"{_called(function)} cannot have {len(arguments)} arguments in a kernel")
            return FORMS[function](caller, *arguments)
        if not isinstance(function, FunctionType):
            raise Untranslatable(f"{_called(function)} is not a function that a kernel can call")
        made = self.translated(unguarded(function), arguments)
        parts = [part for argument in arguments for part in leaves(argument)]
        arrays = dict(zip(made.arrays, (part for part in parts if isinstance(part, Arr)), strict=True))
        memory = {name: caller.memory_of(array) for name, array in arrays.items()}
        if any(one in made.written and memory[one] & memory[other] for one, other in permutations(memory, 2)):
            raise Untranslatable(f"{made.name} writes to an array that is passed as two of its arguments")
        caller.written |= {name for written in made.written for name in memory[written]}
        passed = [part.c for part in parts if is_handed(part)]
        result, stems = leaves(made.result), names_of(target, made.result)
        returned = returned_by_value(result)
        for position, (part, stem) in enumerate(zip(result, stems, strict=True)):
            if isinstance(part, Arr) and part.base in arrays:
                argument = arrays[part.base].moved(part.offset, 1)
                result[position] = replace(argument, shape=part.shape, strides=part.strides)
            elif isinstance(part, Arr):
                result[position] = array = part.stored_in(caller.fresh(part.kind, part.shape, stem).base)
                passed.append(array.base)
                caller.copied.append((array.base, set[str]().union(*(memory[name] for name in made.copied))))
            elif part is returned:
                result[position] = caller.variable(replace(returned, c=f"{made.name}({', '.join(passed)})"), stem)
            elif is_handed(part):
                result[position] = number = caller.declare(part.kind, stem)
                passed.append(f"&{number.c}")
        if returned is None:
            caller.emit(f"{made.name}({', '.join(passed)});")
        return rebuilt(made.result, result)

    def translated(self, function: FunctionType, arguments: Sequence[Value]) -> Made:
        key = identity(function), tuple(form(argument) for argument in arguments)
        if key not in self._made:
            self._made[key] = None
            try:
                self._made[key] = self._translate(function, arguments)
            except Untranslatable:
                del self._made[key]
                raise
        made = self._made[key]
        if made is None:
            raise Untranslatable(f"{function.__qualname__} calls itself")
        return made

    def _translate(self, function: FunctionType, arguments: Sequence[Value]) -> Made:
        name = self._name(function)
        pairs = zip(function.__code__.co_varnames, arguments, strict=False)
        inside = [parameter(f"{argument}_", value) for argument, value in pairs]
        handed = [part for argument in inside for part in leaves(argument) if is_handed(part)]
        parameters = [f"{C_TYPES[part.kind]} {'*' if isinstance(part, Arr) else ''}{part.c}" for part in handed]
        arrays = [part.base for part in handed if isinstance(part, Arr)]
        translator = FunctionTranslator(self.call, function, inside)
        result = with_outs(translator.translate(), arrays)
        returned = returned_by_value(leaves(result))
        if returned is None:
            parameters += [f"{C_TYPES[part.kind]} *{part.c}" for part in leaves(result) if is_out(part)]
        lines: Lines = []
        copied: set[str] = set()
        for line in translator.lines:
            if isinstance(line, Return):
                values = zip(leaves(result), leaves(line.value), strict=True)
                kept = [value for out, value in values if is_out(out) and isinstance(value, Arr)]
                copied.update(*(translator.memory_of(value) for value in kept))
            lines += returning(line, result, translator) if isinstance(line, Return) else [line]
        head = f"{'static' if len(lines) > LONG else 'INLINE'} {C_TYPES[returned.kind] if returned else 'void'} "
        head += f"{name}({', '.join(parameters) or 'void'})"
        purpose = re.sub(r":\w+:|`|\*/", "", ast.get_docstring(translator.tree) or "").partition("\n\n")[0]
        comment = f"/* {function.__module__}.{function.__qualname__}{': ' if purpose else ''}{purpose} */"
        comment = textwrap.fill(comment, WIDTH, subsequent_indent=" * ")
        self._texts[name] = f"{comment}\n{body_of(head, translator.arrays, lines)}"
        return Made(name, result, arrays, translator.written.intersection(arrays), copied.intersection(arrays))

    def _name(self, function: FunctionType) -> str:
        stem = re.sub(r"\W", "_", f"{function.__module__.rpartition('.')[2]}_{function.__name__}")
        self._names[stem] = self._names.get(stem, 0) + 1
        return stem if self._names[stem] == 1 else f"{stem}_{self._names[stem]}"

    def text(self, entry: str) -> str:
        functions = [entry]
        for name, text in reversed(self._texts.items()):  # C requires that a function precedes its callers
            if any(f"{name}(" in caller for caller in functions):
                functions.insert(0, text)
        helpers = PRODUCT if any("matrix_product(" in text for text in functions) else ""
        return "\n\n".join([HEAD + helpers, *functions]) + "\n"


@cache
def _takes(function: Hashable, n: int) -> bool:
    try:
        inspect.signature(FORMS[function]).bind(*range(1 + n))
    except TypeError:
        return False
    return True


def _called(function: object) -> str:
    return repr(function).partition(" at 0x")[0].strip("<>")


def body_of(head: str, arrays: list[str], lines: Lines) -> str:
    text = [head, "{", *(f"{INDENT}{array};" for array in arrays), *map(str, lines), "}"]
    return "\n".join(map(wrapped_at_commas, text))


def wrapped_at_commas(line: str) -> str:
    indent = line[: len(line) - len(line.lstrip())] + INDENT
    row = WIDTH - len(indent)
    return line if len(line) <= WIDTH else re.sub(rf"(?=.{{{row}}})(.{{1,{row}}},) ", rf"\1\n{indent}", line)


def names_of(target: ast.expr | None, value: Value) -> list[str]:
    if not isinstance(value, Tup):
        return [target.id if isinstance(target, ast.Name) else "result"]
    targets: Sequence[ast.expr | None] = [target] * len(value.items)
    if isinstance(target, (ast.Tuple, ast.List)) and len(target.elts) == len(value.items):
        targets = target.elts
    return [name for pair in zip(targets, value.items, strict=True) for name in names_of(*pair)]


def is_handed(part: Value) -> TypeGuard[Scalar | Arr]:
    return isinstance(part, Arr) or (isinstance(part, Scalar) and not part.fixed)


def is_out(part: Value) -> TypeGuard[Scalar | Arr]:
    return isinstance(part, (Scalar, Arr)) and part.c.startswith(RETURNED)


def returned_by_value(parts: list[Value]) -> Scalar | None:
    outs = [part for part in parts if is_out(part)]
    return outs[0] if len(outs) == 1 and isinstance(outs[0], Scalar) else None


def parameter(name: str, argument: Value) -> Value:
    if isinstance(argument, Tup):
        pairs = zip(argument.names or range(len(argument.items)), argument.items, strict=True)
        items = [parameter(f"{name.rstrip('_')}_{label}", item) for label, item in pairs]
        return replace(argument, items=tuple(items))
    if isinstance(argument, Arr):
        return replace(argument, base=name, offset="0")
    return Scalar(argument.kind, name) if is_handed(argument) else argument


def with_outs(result: Value, arrays: list[str]) -> Value:
    parts = leaves(result)
    for position, part in enumerate(parts):
        c = f"{RETURNED}{position}"
        if isinstance(part, Arr) and not (part.base in arrays and part.offset.isdigit()):
            parts[position] = part.stored_in(c)
        elif isinstance(part, Scalar) and not part.fixed:
            parts[position] = Scalar(part.kind, c)
    return rebuilt(result, parts)


def returning(line: Return, result: Value, translator: FunctionTranslator) -> Lines:
    translator.indent = line.indent - 1
    pairs = [(out, value) for out, value in zip(leaves(result), leaves(line.value), strict=True) if is_out(out)]
    returned = returned_by_value(leaves(result))
    with translator.buffered() as lines:
        for out, value in sorted(pairs, key=lambda pair: isinstance(pair[0], Scalar)):
            if isinstance(out, Arr):
                translator.store(out, value)
            elif isinstance(value, Scalar):
                translator.emit(f"return {value.c};" if returned else f"*{out.c} = {value.c};")
        if line.indent > 1 and not returned:
            translator.emit("return;")
    return lines


FIELDS = {FLOAT: "real", INT: "integer", BOOL: "logical"}
PACKED = {FLOAT: "d", INT: "q", BOOL: "?7x"}
ENTRY = """\
typedef union { double real; int64_t integer; bool logical; } number;

void entry(const number *numbers, void *const *arrays, number *results)"""
Fixed = bool | tuple["Fixed", ...]
"""True if the integers of an argument are constants in the C text. A tuple has one entry per item."""


class Slots:
    """Assigns numbers and arrays of Python values to positions in the parameters of the entry point."""

    def __init__(self) -> None:
        self._numbers, self._arrays = count(), count()

    def value(self, value: object, fixed: Fixed, lengths: bool = True) -> Value:
        """Return a Python object as a value of the entry point. ``fixed`` integers and booleans are constants.

        Without ``lengths``, the text is valid for contiguous arrays of any outermost length.
        """
        if isinstance(value, np.ndarray):
            return self._array(value, lengths)
        if isinstance(value, (tuple, list, bytes)):
            parts = zip(value, fixed if isinstance(fixed, tuple) else (fixed,) * len(value), strict=True)
            return Tup(tuple(self.value(*part, lengths) for part in parts), field_names(value))
        if not isinstance(value, (bool, int, float, np.generic)):
            return Plain(value)
        kind = kind_of_number(value)
        if fixed and kind != FLOAT:
            return constant(value)
        return Scalar(kind, f"numbers[{next(self._numbers)}].{FIELDS[kind]}")

    def _array(self, array: npt.NDArray[np.generic], lengths: bool) -> Arr:
        kind = array.dtype.kind
        if kind not in C_TYPES or array.dtype.itemsize not in (1, 8):
            raise Untranslatable(
                f"the type of an array is {array.dtype}, but kernels compute only with float64, int64 and bool"
            )
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


class Entry(Expressions):
    def __init__(self, program: Program, arguments: list[Arr]) -> None:
        super().__init__(program.call, {})
        self.whole, self.made = arguments, [name_of(argument) for argument in arguments]
        self.results: list[str] = []

    def fresh(self, kind: str, shape: Sequence[int | None], name: str = "array") -> Arr:
        c = f"(({C_TYPES[kind]} *)arrays[{len(self.made)}])"
        self.whole.append(Arr(kind, c, tuple(shape)))
        self.made.append(f"empty({tuple(shape)}, {PACKED[kind][0]!r})")
        return self.whole[-1]

    def returned(self, value: Value) -> str:
        if isinstance(value, Tup):
            return f"({''.join(self.returned(item) + ', ' for item in value.items)})"
        if isinstance(value, Arr):
            part = value if value in self.whole else self.copy(value)
            return f"arrays[{self.whole.index(part)}]"
        if not is_handed(value):
            return repr(value.const) if isinstance(value, Scalar) else "None"
        slot = f"results[{len(self.results)}]"
        self.results.append(PACKED[value.kind])
        self.emit(f"{slot}.{FIELDS[value.kind]} = {value.c};")
        return slot


def program_of(function: FunctionType, values: Sequence[Value]) -> tuple[str, str]:
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
    return program.text(body_of(ENTRY, entry.arrays, entry.lines)), python


def pattern_of(value: Value) -> str:
    if isinstance(value, Tup):
        return f"[{', '.join(map(pattern_of, value.items))}]"
    return name_of(value) if is_handed(value) else "_"


def name_of(argument: Scalar | Arr) -> str:
    return re.sub(r"\W+", "_", argument.c)


def loaded(
    function: FunctionType, values: Sequence[Value], tools: Toolchain
) -> tuple[Callable[..., Any], Library]:
    text, python = program_of(function, values)
    library = built(text, tools)
    library.handle.entry.restype = None
    space: Data = {"entry": library.handle.entry, "pack": struct.pack, "unpack": struct.unpack}
    space |= {"empty": np.empty, "pointers": pointers, "c_double": ctypes.c_double}
    exec(python, space)
    return space["call"], library


def pointers(arrays: Sequence[npt.NDArray[np.generic]]) -> list[int]:
    return [array.__array_interface__["data"][0] for array in arrays]
