# SPDX-License-Identifier: Apache-2.0
"""A C program of kernels: one static function for each kernel and form of its arguments.

A function takes the numbers and arrays of its arguments in their order, and a pointer for each result.
Integers and booleans of known value are part of the text.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from inspect import unwrap
from types import FunctionType
from typing import TypeGuard

import numpy as np
import numpy.typing as npt

from rths_nodes.codegen.expressions import Expressions
from rths_nodes.codegen.identity import identity
from rths_nodes.codegen.intrinsics import FORMS
from rths_nodes.codegen.scope import INDENT
from rths_nodes.codegen.statements import FunctionTranslator
from rths_nodes.codegen.values import (
    C_TYPES,
    RETURNED,
    Arr,
    Lines,
    Return,
    Scalar,
    Tup,
    Untranslatable,
    Value,
    form,
    from_python,
    leaves,
    literal,
    rebuilt,
    row_strides,
)

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
"""C text of the product of a matrix and a vector."""
WIDTH = 110
LONG = 200
"""Lines of a function from which on it is not copied into its callers."""


@dataclass(frozen=True)
class Made:
    """A translated function: C name, result, names of array parameters, and of the arrays that it writes to.

    A number or an array of the result is an out parameter, or it is a part of an array parameter.
    """

    name: str
    result: Value
    arrays: list[str]
    written: set[str]


class Program:
    """Functions of a C program, each translated once for every form of its arguments."""

    def __init__(self) -> None:
        self._made: dict[object, Made | None] = {}
        self._texts: dict[str, str] = {}
        self._names: dict[str, int] = {}
        self._tables: dict[str, str] = {}

    def outside(self, value: object, name: str) -> Value:
        """Return the value of an object of a kernel's module or closure."""
        return self._table(value, name) if isinstance(value, np.ndarray) else from_python(value, name)

    def _table(self, array: npt.NDArray[np.generic], name: str) -> Arr:
        kind = array.dtype.kind
        if kind not in C_TYPES:
            raise Untranslatable(f"{name} is an array of {array.dtype}")
        values = ", ".join(literal(number) for number in array.ravel().tolist()) or "0"
        text = f"static {C_TYPES[kind]} NAME[{max(array.size, 1)}] = {{{values}}};"
        c = self._tables.setdefault(text, f"table_{len(self._tables)}")
        return Arr(kind, c, array.shape, row_strides(array.shape))

    def call(self, caller: Expressions, function: object, arguments: Sequence[Value]) -> Value:
        """Emit a call of a Python or C function into the text of ``caller``, and return its result."""
        if isinstance(function, Hashable) and function in FORMS:
            return FORMS[function](caller, *arguments)
        if not isinstance(function, FunctionType):
            name = repr(function).partition(" at 0x")[0].strip("<>")
            raise Untranslatable(f"{name} is not among the functions of a kernel")
        made = self.translated(unwrap(function), arguments)
        parts = [part for argument in arguments for part in leaves(argument)]
        arrays = dict(zip(made.arrays, (part for part in parts if isinstance(part, Arr)), strict=True))
        caller.written |= {memory for name in made.written for memory in caller.memory_of(arrays[name])}
        passed = [part.c for part in parts if is_handed(part)]
        result, stems = leaves(made.result), caller.names_of_result(made.result)
        returned = returned_by_value(result)
        for position, (part, stem) in enumerate(zip(result, stems, strict=True)):
            if isinstance(part, Arr) and part.base in arrays:
                argument = arrays[part.base].moved(part.offset, 1)
                result[position] = replace(argument, shape=part.shape, strides=part.strides)
            elif isinstance(part, Arr):
                result[position] = array = caller.fresh(part.kind, part.shape, stem)
                passed.append(array.base)
            elif part is returned:
                result[position] = caller.variable(replace(returned, c=f"{made.name}({', '.join(passed)})"), stem)
            elif is_handed(part):
                result[position] = number = caller.declare(part.kind, stem)
                passed.append(f"&{number.c}")
        if returned is None:
            caller.emit(f"{made.name}({', '.join(passed)});")
        return rebuilt(made.result, result)

    def translated(self, function: FunctionType, arguments: Sequence[Value]) -> Made:
        """Translate a function for arguments of this form, unless that was done before."""
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
        names = function.__code__.co_varnames
        seen = [parameters_of(f"{argument}_", value) for argument, value in zip(names, arguments, strict=False)]
        parameters = [declaration for _, declarations in seen for declaration in declarations]
        inside = [argument for argument, _ in seen]
        translator = FunctionTranslator(self, function, inside)
        arrays = [part.base for argument in inside for part in leaves(argument) if isinstance(part, Arr)]
        result = with_outs(translator.translate(), arrays)
        returned = returned_by_value(leaves(result))
        if returned is None:
            parameters += [f"{C_TYPES[part.kind]} *{part.c}" for part in leaves(result) if is_out(part)]
        lines: Lines = []
        for line in translator.lines:
            lines += returning(line, result, translator) if isinstance(line, Return) else [line]
        head = f"{'static' if len(lines) > LONG else 'INLINE'} {C_TYPES[returned.kind] if returned else 'void'} "
        head += f"{name}({', '.join(parameters) or 'void'})"
        purpose = re.sub(r":\w+:|`|\*/", "", ast.get_docstring(translator.tree) or "").partition("\n\n")[0]
        comment = f"/* {function.__module__}.{function.__qualname__}{': ' if purpose else ''}{purpose} */"
        comment = textwrap.fill(comment, WIDTH, subsequent_indent=" * ")
        self._texts[name] = f"{comment}\n{body_of(head, translator.arrays, lines)}"
        return Made(name, result, arrays, translator.written.intersection(arrays))

    def _name(self, function: FunctionType) -> str:
        stem = re.sub(r"\W", "_", f"{function.__module__.rpartition('.')[2]}_{function.__name__}")
        self._names[stem] = self._names.get(stem, 0) + 1
        return stem if self._names[stem] == 1 else f"{stem}_{self._names[stem]}"

    def text(self, entry: str) -> str:
        """Return the C text of the ``entry`` point and all functions that it reaches."""
        needed: set[str] = set()

        def reach(text: str) -> None:
            for word in re.findall(r"\b\w+(?=\()", text):
                if word in self._texts and word not in needed:
                    needed.add(word)
                    reach(self._texts[word])

        reach(entry)
        functions = [*(text for name, text in self._texts.items() if name in needed), entry]
        helpers = PRODUCT if any("matrix_product(" in text for text in functions) else ""
        tables = [text.replace("NAME", name) for text, name in self._tables.items()]
        return "\n\n".join([HEAD + helpers + "\n".join(tables), *functions]) + "\n"


def body_of(head: str, arrays: list[str], lines: Lines) -> str:
    """Return the C text of a function."""
    text = [head, "{", *(f"{INDENT}{array};" for array in arrays), *map(str, lines), "}"]
    return "\n".join(line if len(line) <= WIDTH else wrapped_at_commas(line) for line in text)


def wrapped_at_commas(line: str) -> str:
    """Break a long line of C after commas."""
    indent, blank = line[: len(line) - len(line.lstrip())], "\N{NO-BREAK SPACE}"
    kept = line.strip().replace(" ", blank).replace(f",{blank}", ", ")
    rows = textwrap.wrap(kept, WIDTH - len(indent), break_long_words=False, break_on_hyphens=False)
    return f"\n{indent}{INDENT}".join(rows).replace(blank, " ").join([indent, ""])


def is_handed(part: Value) -> TypeGuard[Scalar | Arr]:
    """Return whether a leaf of an argument or a result is handed over in C; others are part of the text."""
    return isinstance(part, Arr) or (isinstance(part, Scalar) and not part.fixed)


def is_out(part: Value) -> TypeGuard[Scalar | Arr]:
    """Return whether a leaf of a result is an out parameter of its function."""
    return isinstance(part, (Scalar, Arr)) and part.c.startswith(RETURNED)


def returned_by_value(parts: list[Value]) -> Scalar | None:
    """Return the out parameter of a result if it is the only one and a number, which C returns."""
    outs = [part for part in parts if is_out(part)]
    return outs[0] if len(outs) == 1 and isinstance(outs[0], Scalar) else None


def parameters_of(name: str, argument: Value) -> tuple[Value, list[str]]:
    """Return an argument as a function sees it, and the declarations of its C parameters."""
    parts = leaves(argument)
    declared: list[str] = []
    for position, (part, c) in enumerate(zip(parts, paths(name, argument), strict=True)):
        if isinstance(part, Scalar) and is_handed(part):
            declared.append(f"{C_TYPES[part.kind]} {c}")
            parts[position] = Scalar(part.kind, c)
        elif isinstance(part, Arr):
            declared.append(f"{C_TYPES[part.kind]} *{c}")
            parts[position] = replace(part, base=c, offset="0", temporary=False)
    return rebuilt(argument, parts), declared


def paths(name: str, value: Value) -> list[str]:
    """Return a C name for each leaf of an argument, from the fields or positions that lead to it."""
    if not isinstance(value, Tup):
        return [name]
    labels = value.names or map(str, range(len(value.items)))
    pairs = zip(labels, value.items, strict=True)
    return [path for label, item in pairs for path in paths(f"{name.rstrip('_')}_{label}", item)]


def with_outs(result: Value, arrays: list[str]) -> Value:
    """Return the result of a function with out parameters, except for the parts of its ``arrays``."""
    parts = leaves(result)
    for position, part in enumerate(parts):
        c = f"{RETURNED}{position}"
        if isinstance(part, Arr) and not (part.base in arrays and part.offset.isdigit()):
            parts[position] = replace(part, base=c, strides=row_strides(part.shape), offset="0", temporary=True)
        elif isinstance(part, Scalar) and not part.fixed:
            parts[position] = Scalar(part.kind, c)
    return rebuilt(result, parts)


def returning(line: Return, result: Value, translator: FunctionTranslator) -> Lines:
    """Return the C statements of a return."""
    outer, translator.lines, translator.indent = translator.lines, [], line.indent
    pairs = [pair for pair in zip(leaves(result), leaves(line.value), strict=True) if is_out(pair[0])]
    for out, value in pairs:
        if isinstance(out, Arr):
            translator.store(out, value)
    returned = returned_by_value(leaves(result))
    for out, value in pairs:
        if isinstance(out, Scalar) and isinstance(value, Scalar):
            translator.emit(f"return {value.c};" if returned else f"*{out.c} = {value.c};")
    if line.indent > 1 and not returned:
        translator.emit("return;")
    lines, translator.lines = translator.lines, outer
    return lines
