# SPDX-License-Identifier: Apache-2.0
"""Translate a kernel and the functions that it calls to a C program, build it, and call it with Python values.

Each function becomes one static C function for each form (types, shapes, known values) of its arguments. The C
function takes the numbers and arrays of the arguments, and a pointer for each result. A single number is returned
by value. Integers and booleans of known value are constants in the C source. A generated Python function passes
all arguments to the entry point and assembles the result.

``FORMS`` lists functions of Python, the C library, numpy and ``core/arithmetic.py`` that have their own C form. A
function of ``arithmetic`` is listed only if its Python form uses numpy or a list. The results are bit-identical,
because both forms sum in the same order.
"""

from __future__ import annotations

import ast
import builtins
import ctypes
import inspect
import math
import operator
import re
import struct
import textwrap
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import count, permutations
from types import FunctionType
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from rths_nodes.codegen.building import Library, Toolchain, built
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
    Range,
    Return,
    Scalar,
    Tup,
    Untranslatable,
    Value,
    array,
    constant,
    field_names,
    form,
    integer_of,
    kind_of_number,
    leaves,
    rebuilt,
    row_strides,
    scalar,
    wrapped,
)
from rths_nodes.core import arithmetic
from rths_nodes.core.data import Data
from rths_nodes.core.kernels import identity, unguarded

MATHEMATICAL = ("sqrt", "exp", "log", "pow", "sin", "cos", "tanh", "copysign")


def _mathematical(name: str, t: Expressions, *arguments: Value) -> Value:
    return Scalar(FLOAT, f"{name}({', '.join(in_kind(FLOAT, argument).c for argument in arguments)})")


def in_kind(kind: str, value: Value) -> Scalar:
    number = scalar(value, "the arguments of this function must be numbers")
    if number.const is not None:
        return constant(float(number.const) if kind == FLOAT else int(number.const))
    return number if number.kind == kind else Scalar(kind, f"({C_TYPES[kind]}){wrapped(number.c)}")


def _absolute(t: Expressions, value: Value) -> Value:
    number = scalar(value, "the argument of abs() must be a number in a kernel")
    return Scalar(number.kind, f"{'fabs' if number.kind == FLOAT else 'llabs'}({number.c})")


def _length(t: Expressions, value: Value) -> Value:
    if isinstance(value, Tup):
        return constant(len(value.items))
    if isinstance(value, Arr) and value.shape[0] is not None:
        return constant(value.shape[0])
    raise Untranslatable("the length is not known while the kernel is translated")


def _extreme(sign: str, t: Expressions, *arguments: Value) -> Value:
    best, *more = map(t.stable, map(scalar, t.items_of(arguments[0]) if len(arguments) == 1 else arguments))
    for other in more:
        if best.kind != other.kind:
            best, other = in_kind(FLOAT, best), in_kind(FLOAT, other)
        best = t.stable(Scalar(best.kind, f"({other.c} {sign} {best.c}) ? {other.c} : {best.c}"))
    return best


def _larger_or_nan(sign: str, t: Expressions, *arguments: Value) -> Value:
    def beyond(a: Scalar, b: Scalar) -> Scalar:
        x, y = wrapped(in_kind(FLOAT, a).c), wrapped(in_kind(FLOAT, b).c)
        return Scalar(FLOAT, f"({x} {sign}= {y} || {x} != {x}) ? {x} : {y}")

    return t.elementwise(beyond, *arguments)


def _range(t: Expressions, *bounds: Value) -> Value:
    if len(bounds) > 2:
        raise Untranslatable("range() cannot have a step in a kernel")
    return Range(*map(scalar, bounds if len(bounds) == 2 else (constant(0), *bounds)))


def _tuple_of(t: Expressions, *arguments: Value) -> Value:
    return Tup(tuple(t.items_of(arguments[0]))) if arguments else Tup(())


def _zipped(t: Expressions, *arguments: Value) -> Value:
    columns = [t.items_of(argument) for argument in arguments]
    if len(set(map(len, columns))) > 1:
        raise Untranslatable("the arguments of zip() must have the same length in a kernel")
    return Tup(tuple(Tup(items) for items in zip(*columns, strict=True)))


def _filled(number: float | None, t: Expressions, shape: Value, *values: Value) -> Value:
    lengths = shape.items if isinstance(shape, Tup) else (shape,)
    of_floats = bool(values) and values[-1] == Plain(float)
    values = values[:-1] if of_floats else values
    if len(values) > (number is None) or any(isinstance(value, Plain) for value in values):
        raise Untranslatable("np.zeros, np.full and np.empty must have no dtype except float in a kernel")
    contents = list(map(scalar, values)) if number is None else [constant(number)]
    contents = [in_kind(FLOAT, content) for content in contents] if of_floats else contents
    kind = contents[0].kind if contents else FLOAT
    result = t.fresh(kind, [integer_of(item, "the shape of an array") for item in lengths])
    for content in contents:
        t.store(result, content)
    return result


def _as_array(t: Expressions, value: Value) -> Value:
    if isinstance(value, Tup):
        return t.array_of(value)
    return replace(t.copy(value), listed=False) if isinstance(value, Arr) and value.listed else value


def _dot(t: Expressions, one: Value, other: Value) -> Value:
    total = t.variable(constant(0.0), "total")
    if isinstance(one, Tup) or isinstance(other, Tup):
        for a, b in zip(map(scalar, t.items_of(one)), map(scalar, t.items_of(other)), strict=False):
            t.emit(f"{total.c} += {wrapped(a.c)} * {wrapped(b.c)};")
        return total
    left, right = array(one), array(other)
    if left.shape != right.shape:
        raise Untranslatable(f"dot() requires two vectors of the same length, not {left.shape} and {right.shape}")
    with t.over(left.shape) as (position,):
        t.emit(f"{total.c} += {left.at(position)} * {right.at(position)};")
    return total


def _matvec_into(t: Expressions, target: Value, factor: Value, values: Value) -> Value:
    result, matrix = array(target), array(factor, "the first factor of a product must be a matrix")
    vector = values if isinstance(values, Arr) and values.contiguous else t.array_of(values)
    rows, columns = matrix.shape
    if columns == 0:
        raise Untranslatable("the matrix of a product must have at least one column")
    if (*result.shape, *vector.shape) != (rows, columns):
        raise Untranslatable(f"a matrix {matrix.shape} cannot multiply a vector {vector.shape}")
    t.written |= t.memory_of(result)
    shared = t.memory_of(result) & (t.memory_of(matrix) | t.memory_of(vector))
    product = result if result.contiguous and not shared else t.fresh(FLOAT, result.shape, "product")
    addresses = ", ".join(part.c for part in (product, matrix, vector))
    t.emit(f"matrix_product({addresses}, {rows}, {columns}, {matrix.strides[0]}, {matrix.strides[1]});")
    t.store(result, product)
    return Plain(None)


def _matvec(t: Expressions, factor: Value, values: Value) -> Arr:
    result = t.fresh(FLOAT, array(factor, "the first argument of matvec() must be a matrix").shape[:1], "product")
    _matvec_into(t, result, factor, values)
    return result


def _groups(t: Expressions, like: Value, factor: Value, values: Value) -> Value:
    numbers = iter(t.items_of(_matvec(t, factor, values)))
    return t.stable(Tup(tuple(Tup(tuple(next(numbers) for _ in t.items_of(row))) for row in t.items_of(like))))


def _put(t: Expressions, table: Value, begin: Value, values: Value) -> Value:
    target = array(table, "put() requires an array and a position")
    part = target.moved(t.stable(scalar(begin)).c, target.strides[0])
    t.store(replace(part, shape=(len(t.items_of(values)),)), values)
    return Plain(None)


def _record_across(t: Expressions, table: Value, begin: Value, values: Value, step: Value) -> Value:
    target, first, apart = array(table), t.stable(scalar(begin)), scalar(step)
    t.written |= t.memory_of(target)
    for at, value in enumerate(t.items_of(values)):
        t.emit(f"{target.at(f'{first.c} + {apart.c} * {at}')} = {scalar(value).c};")
    return Plain(None)


def _times(t: Expressions, rows: Value, vector: Value) -> Value:
    numbers = [t.stable(scalar(number)) for number in t.items_of(vector)]
    sums: list[Value] = []
    for row in t.items_of(rows):
        pairs = zip(map(scalar, t.items_of(row)), numbers, strict=True)
        sums.append(Scalar(FLOAT, " + ".join(f"{wrapped(a.c)} * {b.c}" for a, b in pairs)))
    return Tup(tuple(sums))


FORMS: dict[object, Callable[..., Value]] = {
    operator.add: lambda t, one, other: t.operated(ast.Add(), one, other),
    operator.sub: lambda t, one, other: t.operated(ast.Sub(), one, other),
    operator.mul: lambda t, one, other: t.operated(ast.Mult(), one, other),
    operator.truediv: lambda t, one, other: t.operated(ast.Div(), one, other),
    operator.getitem: lambda t, rows, position: t.row(array(rows), scalar(position)),
    builtins.abs: _absolute,
    builtins.len: _length,
    builtins.range: _range,
    builtins.float: lambda t, value: in_kind(FLOAT, value),
    builtins.int: lambda t, value: in_kind(INT, value),
    builtins.bool: lambda t, value: t.truth(value),
    builtins.max: partial(_extreme, ">"),
    builtins.min: partial(_extreme, "<"),
    builtins.tuple: _tuple_of,
    builtins.list: _tuple_of,
    builtins.zip: _zipped,
    np.zeros: partial(_filled, 0.0),
    np.full: partial(_filled, None),
    np.empty: partial(_filled, None),
    np.array: lambda t, value: t.array_of(value),
    np.asarray: _as_array,
    np.maximum: partial(_larger_or_nan, ">"),
    np.minimum: partial(_larger_or_nan, "<"),
    arithmetic.dot: _dot,
    arithmetic.matvec: _matvec,
    arithmetic.matvec_into: _matvec_into,
    arithmetic.groups: _groups,
    arithmetic.numbers: lambda t, value: replace(t.copy(value), listed=True) if isinstance(value, Arr) else value,
    arithmetic.put: _put,
    arithmetic.record: _put,
    arithmetic.record_across: _record_across,
    arithmetic.rounded: partial(_mathematical, "rint"),
    arithmetic.times: _times,
    **{vars(math)[name]: partial(_mathematical, name) for name in MATHEMATICAL},
}


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

/* result = matrix times vector: each row is summed in the order of its columns */
INLINE void matrix_product(
    double *result, const double *matrix, const double *vector,
    int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride)
{
    if (row_stride == 1 && rows >= 2 * LANES) {
        const int64_t wide = rows >= 4 * LANES ? 4 : 2;
        for (int64_t row = 0; row < rows; row += wide * LANES) {
            const int64_t last = rows - wide * LANES, begin = row < last ? row : last; /* the last parts overlap */
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

    ``arrays`` are the names of the array parameters. The function writes to the arrays in ``written``. The parts
    of the result are constants, output parameters and parts of array parameters. ``copied`` are the array
    parameters that are copied to output parameters.
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
        """Append a call to the C source of ``caller``. Return its result, in variables named after ``target``."""
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
"""True if the integers of an argument are constants in the C source. A tuple has one entry per item."""


def entry_values(arguments: Iterable[tuple[object, Fixed, bool]]) -> list[Value]:
    """Convert tuples (object, ``fixed``, ``lengths``) to values of the entry point.

    Integers and booleans are constants if ``fixed``. If ``lengths`` is false, the C source is valid for contiguous
    arrays of any outermost length.
    """
    numbers, arrays = count(), count()

    def value_of(value: object, fixed: Fixed, lengths: bool) -> Value:
        if isinstance(value, np.ndarray):
            return _array(value, f"arrays[{next(arrays)}]", lengths)
        if isinstance(value, (tuple, list, bytes)):
            parts = zip(value, fixed if isinstance(fixed, tuple) else (fixed,) * len(value), strict=True)
            return Tup(tuple(value_of(*part, lengths) for part in parts), field_names(value))
        if not isinstance(value, (bool, int, float, np.generic)):
            return Plain(value)
        kind = kind_of_number(value)
        if fixed and kind != FLOAT:
            return constant(value)
        return Scalar(kind, f"numbers[{next(numbers)}].{FIELDS[kind]}")

    return [value_of(*argument) for argument in arguments]


def _array(array: npt.NDArray[np.generic], c: str, lengths: bool) -> Arr:
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
    return Arr(kind, f"(({C_TYPES[kind]} *){c})", shape, strides)


PYTHON = """\
Results = c_double * {count}

def passed(*arguments):
    {pattern} = arguments
    return pack("={kinds}", {numbers}), [{arrays}]

def call(*arguments):
    numbers, arrays = passed(*arguments)
    results = Results()
    entry(numbers, pack("{pointers}P", *pointers(arrays)), results)
    results = unpack("={result_kinds}", results)
    return {result}
"""


class EntryPoint(Expressions):
    """Entry point of a C program for a ``function`` with arguments in the form of ``values``.

    ``all_arrays`` lists the arrays among the arguments, then the arrays that the call creates. ``results`` are the
    numbers of the result. ``result`` consists of these arrays and numbers.
    """

    def __init__(self, function: FunctionType, values: Sequence[Value]) -> None:
        program = Program()
        super().__init__(program.call, {})
        self.values = Tup(tuple(values))
        handed = [part for part in leaves(self.values) if is_handed(part)]
        self.numbers = [part for part in handed if isinstance(part, Scalar)]
        self.all_arrays = [part for part in handed if isinstance(part, Arr)]
        self.passed = len(self.all_arrays)
        self.results: list[Scalar] = []
        self.result = self._returned(program.call(self, function, values))
        self.text = program.text(body_of(ENTRY, self.arrays, self.lines))

    def fresh(self, kind: str, shape: Sequence[int | None], name: str = "array") -> Arr:
        self.all_arrays.append(Arr(kind, f"(({C_TYPES[kind]} *)arrays[{len(self.all_arrays)}])", tuple(shape)))
        return self.all_arrays[-1]

    def _returned(self, value: Value) -> Value:
        if isinstance(value, Tup):
            return replace(value, items=tuple([self._returned(item) for item in value.items]))
        if isinstance(value, Arr):
            return value if value in self.all_arrays else self.copy(value)
        if not is_handed(value):
            return value
        self.results.append(Scalar(value.kind, f"results[{len(self.results)}].{FIELDS[value.kind]}"))
        self.emit(f"{self.results[-1].c} = {value.c};")
        return self.results[-1]

    def _python(self) -> str:
        created = [f"empty({array.shape}, {PACKED[array.kind][0]!r})" for array in self.all_arrays[self.passed :]]
        return PYTHON.format(
            pattern=pattern_of(self.values),
            result=python_of(self.result),
            numbers=", ".join(map(name_of, self.numbers)),
            kinds="".join(PACKED[number.kind] for number in self.numbers),
            arrays=", ".join([*map(name_of, self.all_arrays[: self.passed]), *created]),
            pointers=len(self.all_arrays),
            result_kinds="".join(PACKED[number.kind] for number in self.results),
            count=len(self.results),
        )

    def functions(self, entry: object = None) -> Data:
        """Return the generated functions by name: ``passed`` packs arguments, and ``call`` calls ``entry``."""
        space: Data = {"entry": entry, "pack": struct.pack, "unpack": struct.unpack, "empty": np.empty}
        space |= {"pointers": pointers, "c_double": ctypes.c_double}
        exec(self._python(), space)
        return space


def pattern_of(value: Value) -> str:
    if isinstance(value, Tup):
        return f"[{', '.join(map(pattern_of, value.items))}]"
    return name_of(value) if is_handed(value) else "_"


def python_of(value: Value) -> str:
    if isinstance(value, Tup):
        return f"({''.join(python_of(item) + ', ' for item in value.items)})"
    if is_handed(value):
        return f"{'arrays' if isinstance(value, Arr) else 'results'}[{position_of(value)}]"
    return repr(value.const) if isinstance(value, Scalar) else "None"


def name_of(argument: Scalar | Arr) -> str:
    return re.sub(r"\W+", "_", argument.c)


def position_of(value: Value) -> int:
    """Return the position of a number or an array among the arguments or results of the entry point."""
    assert is_handed(value)
    return int(re.sub(r".*\[(\d+)\].*", r"\1", value.c))


def loaded(
    function: FunctionType, values: Sequence[Value], tools: Toolchain
) -> tuple[Callable[..., Any], Library]:
    entry = EntryPoint(function, values)
    library = built(entry.text, tools)
    library.handle.entry.restype = None
    return entry.functions(library.handle.entry)["call"], library


def pointers(arrays: Sequence[npt.NDArray[np.generic]]) -> list[int]:
    return [array.__array_interface__["data"][0] for array in arrays]
