# SPDX-License-Identifier: Apache-2.0
"""A C program of kernels: one static function for each kernel and form of its arguments, and an entry point.

    void NAME(const double *numbers, const int64_t *integers, void *const *arrays,
              double *out_numbers, int64_t *out_integers, void *const *out_arrays)

The entry point takes the numbers and arrays of all arguments in their order, and returns the numbers and arrays
of the result. Fixed integers and booleans are part of the text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import FunctionType

import numpy as np
import numpy.typing as npt

from rths_nodes.codegen import intrinsics
from rths_nodes.codegen.arrays import INDENT, address, memory_of
from rths_nodes.codegen.expressions import Expressions
from rths_nodes.codegen.identity import identity
from rths_nodes.codegen.statements import FunctionTranslator
from rths_nodes.codegen.values import (
    ARRAY_TYPES,
    C_TYPES,
    FLOAT,
    Arr,
    Lines,
    Return,
    Scalar,
    Untranslatable,
    Value,
    form,
    from_python,
    kind_of_both,
    leaves,
    literal,
    rebuilt,
    row_strides,
)

HEAD = """\
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
"""
PRODUCT = """\

#ifdef __AVX__
#define LANES 4
#else
#define LANES 2
#endif
typedef double lanes __attribute__((vector_size(8 * LANES), aligned(8), may_alias));

/* result = matrix times vector: the sum of a row has the order of its columns */
static inline __attribute__((always_inline)) void matrix_product(
    double *result, const double *matrix, const double *vector,
    int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride)
{
    if (row_stride == 1 && rows >= 2 * LANES) {
        for (int64_t row = 0; row < rows; row += 2 * LANES) {
            const int64_t begin = row + 2 * LANES > rows ? rows - 2 * LANES : row; /* the last ones overlap */
            const double *stored = matrix + begin;
            lanes one = *(const lanes *)stored * vector[0];
            lanes other = *(const lanes *)(stored + LANES) * vector[0];
            for (int64_t column = 1; column < columns; ++column) {
                stored = matrix + begin + column_stride * column;
                one += *(const lanes *)stored * vector[column];
                other += *(const lanes *)(stored + LANES) * vector[column];
            }
            *(lanes *)(result + begin) = one;
            *(lanes *)(result + begin + LANES) = other;
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
INLINE = "static inline __attribute__((always_inline))"
RESERVED = frozenset(
    re.findall(
        r"\w+",
        "auto bool case char const default do double enum extern float gamma goto inline int j0 j1 jn lanes long "
        "register restrict short signed sizeof static struct switch typedef union unsigned void volatile y0 y1 yn",
    )
)
"""Words of C, and functions of its library, that may be names of arguments in Python."""
LONG = 150
"""Lines of a function from which on it is not copied into its callers."""


@dataclass(frozen=True)
class Aliased:
    """A returned array that is a part of an argument: which array argument, and where the part begins."""

    argument: int
    part: Arr


@dataclass(frozen=True)
class Made:
    """A translated function: C name, and its result, whose numbers have the names of its out parameters."""

    name: str
    result: Value
    aliases: tuple[Aliased | None, ...]
    returns: str
    """C type of a single number that is returned by value; void otherwise."""
    writes: frozenset[int]
    """Array arguments of which elements are assigned."""


class Program:
    """Functions of a C program, each translated once for every form of its arguments."""

    def __init__(self) -> None:
        self._made: dict[object, Made | None] = {}
        self._texts: dict[str, str] = {}
        self._names: dict[str, int] = {}
        self._tables: dict[str, str] = {}

    # -- what kernels refer to ----------------------------------------------------------------------------

    def outside(self, value: object, name: str) -> Value:
        """Return the value of an object of a kernel's module or closure."""
        if isinstance(value, np.ndarray):
            return self._table(value, name)
        return from_python(value, name)

    def _table(self, array: npt.NDArray[np.generic], name: str) -> Arr:
        kind = array.dtype.kind
        if kind not in ARRAY_TYPES:
            raise Untranslatable(f"{name} is an array of {array.dtype}")
        flat = np.ascontiguousarray(array).ravel()
        values = ", ".join(literal(entry) for entry in flat.tolist()) or "0"
        text = f"static {ARRAY_TYPES[kind]} NAME[{max(flat.size, 1)}] = {{{values}}};"
        if text not in self._tables:
            self._tables[text] = f"table_{len(self._tables)}"
        return Arr(kind, self._tables[text], array.shape, row_strides(array.shape))

    # -- calls --------------------------------------------------------------------------------------------

    def call(self, caller: Expressions, function: object, arguments: list[Value]) -> Value:
        """Emit a call of a Python or C function into the text of ``caller``, and return its result."""
        items_here = intrinsics.own_form(function)
        if items_here is not None:
            return items_here(caller, arguments)
        if not isinstance(function, FunctionType):
            raise Untranslatable(f"{function!r} is not among the functions of a kernel")
        made = self.translated(function, arguments)
        parts = [part for argument in arguments for part in leaves(argument)]
        arrays = [part for part in parts if isinstance(part, Arr)]
        handed = [handed_c(part) for part in parts if is_handed(part)]
        caller.written |= {name for position in made.writes for name in memory_of(caller, arrays[position])}
        parts_of_result: list[Value] = []
        outs = []
        for part, alias in zip(leaves(made.result), made.aliases, strict=True):
            if alias is not None:
                parts_of_result.append(within(arrays[alias.argument], alias.part))
            elif isinstance(part, Scalar) and part.const is None:
                result = caller.declare(part.kind, "got")
                outs.append(result.c)
                parts_of_result.append(result)
            elif isinstance(part, Arr):
                array = caller.fresh(part.kind, part.shape, "got")
                outs.append(array.base)
                parts_of_result.append(array)
            else:
                parts_of_result.append(part)
        if made.returns != "void":
            caller.emit(f"{outs[0]} = {made.name}({', '.join(handed)});")
        else:
            numbers = {part.c for part in parts_of_result if isinstance(part, Scalar)}
            pointers = [f"&{out}" if out in numbers else out for out in outs]
            caller.emit(f"{made.name}({', '.join([*handed, *pointers])});")
        return rebuilt(made.result, parts_of_result)

    def translated(self, function: FunctionType, arguments: Sequence[Value]) -> Made:
        """Translate a function for arguments of this form, unless that was done before."""
        key = identity(function), tuple(form(argument) for argument in arguments)
        if key in self._made:
            made = self._made[key]
            if made is None:
                raise Untranslatable(f"{function.__qualname__} calls itself")
            return made
        self._made[key] = None
        try:
            made = self._made[key] = self._translate(function, arguments)
        finally:
            if self._made[key] is None:
                del self._made[key]
        return made

    def _translate(self, function: FunctionType, arguments: Sequence[Value]) -> Made:
        name = self._name(function)
        names = function.__code__.co_varnames
        pairs = [parameters_of(names[position], argument) for position, argument in enumerate(arguments)]
        parameters = [declaration for _, declarations in pairs for declaration in declarations]
        translator = FunctionTranslator(self.outside, self.call, function, [inside for inside, _ in pairs])
        returned = translator.translate()
        result, aliases = common_result(returned, parameters)
        outs = [
            part for part, alias in zip(leaves(result), aliases, strict=True) if alias is None and is_out(part)
        ]
        single = len(outs) == 1 and isinstance(outs[0], Scalar)
        returns = C_TYPES[outs[0].kind] if single and isinstance(outs[0], Scalar) else "void"
        if not single:
            parameters += [out_parameter(part) for part in outs]
        lines: Lines = []
        for line in translator.lines:
            lines += returning(line, result, aliases, single, translator) if isinstance(line, Return) else [line]
        declared = [
            f"{INDENT}{kind}{'' if kind.endswith('*') else ' '}{c}{more};" for kind, c, more in translator.declared
        ]
        how = "static" if len(lines) > LONG else INLINE
        head = f"{how} {returns} {name}({', '.join(parameters) or 'void'})"
        comment = f"/* {function.__module__}.{function.__qualname__}{first_line_of(function)} */"
        self._texts[name] = "\n".join([comment, head, "{", *declared, *map(str, lines), "}"])
        held = [part.base for inside, _ in pairs for part in leaves(inside) if isinstance(part, Arr)]
        writes = frozenset(position for position, base in enumerate(held) if base in translator.written)
        return Made(name, result, aliases, returns, writes)

    def _name(self, function: FunctionType) -> str:
        stem = f"{function.__module__.rpartition('.')[2]}_{function.__name__}"
        stem = re.sub(r"\W", "_", stem)
        self._names[stem] = self._names.get(stem, 0) + 1
        return stem if self._names[stem] == 1 else f"{stem}_{self._names[stem]}"

    # -- text ---------------------------------------------------------------------------------------------

    def text(self, entry: str) -> str:
        """Return the C text of the ``entry`` point and all functions that it reaches."""
        needed: dict[str, None] = {}

        def reach(text: str) -> None:
            for word in re.findall(r"\b\w+(?=\()", text):
                if word in self._texts and word not in needed:
                    needed[word] = None
                    reach(self._texts[word])

        reach(entry)
        order = [name for name in self._texts if name in needed]
        tables = [text.replace("NAME", name) for text, name in self._tables.items()]
        functions = [*(self._texts[name] for name in order), entry]
        helpers = PRODUCT if any("matrix_product(" in text for text in functions) else ""
        return "\n\n".join([HEAD + helpers + "\n".join(tables), *functions]) + "\n"


def is_handed(part: Value) -> bool:
    """Return whether a leaf of an argument is handed over in C; other leaves are part of the text."""
    return isinstance(part, Arr) or (isinstance(part, Scalar) and (part.const is None or part.kind == FLOAT))


def handed_c(part: Value) -> str:
    """Return the C expression by which a leaf is handed over."""
    if isinstance(part, Scalar):
        return part.c
    assert isinstance(part, Arr)
    return address(part)


def is_fixed(number: Scalar) -> bool:
    """Return whether a number is part of the text."""
    return number.const is not None and number.kind != FLOAT


def is_out(part: Value) -> bool:
    """Return whether a leaf of a result needs an out parameter."""
    return isinstance(part, Arr) or (isinstance(part, Scalar) and part.const is None)


def out_parameter(part: Value) -> str:
    """Return the declaration of an out parameter."""
    if isinstance(part, Scalar):
        return f"{C_TYPES[part.kind]} *{part.c}"
    assert isinstance(part, Arr)
    return f"{ARRAY_TYPES[part.kind]} *{part.base}"


def parameters_of(name: str, argument: Value) -> tuple[Value, list[str]]:
    """Return an argument as a function sees it, and the declarations of its C parameters."""
    items_here = leaves(argument)
    parts: list[Value] = []
    declared: list[str] = []
    for position, part in enumerate(items_here):
        c = f"{name}_{position}" if len(items_here) > 1 else f"{name}__" if name in RESERVED else name
        if isinstance(part, Scalar) and is_handed(part):
            declared.append(f"{C_TYPES[part.kind]} {c}")
            part = Scalar(part.kind, c)
        elif isinstance(part, Arr):
            declared.append(f"{ARRAY_TYPES[part.kind]} *{c}")
            part = replace(part, base=c, offset="0", temporary=False)
        parts.append(part)
    return rebuilt(argument, parts), declared


def common_result(returned: list[Value], parameters: list[str]) -> tuple[Value, tuple[Aliased | None, ...]]:
    """Return one value for all returns of a function, and which arrays of it are parts of arguments."""
    first = returned[0]
    columns = [leaves(entry) for entry in returned]
    if any(len(column) != len(columns[0]) for column in columns):
        raise Untranslatable("two returns give tuples of different length")
    bases = [re.split(r"[ *]", entry)[-1] for entry in parameters if "*" in entry]
    parts: list[Value] = []
    aliases: list[Aliased | None] = []
    for position, same in enumerate(zip(*columns, strict=True)):
        part, alias = one_of(list(same), position, bases)
        parts.append(part)
        aliases.append(alias)
    return rebuilt(first, parts), tuple(aliases)


def one_of(parts: list[Value], position: int, bases: list[str]) -> tuple[Value, Aliased | None]:
    """Return a leaf of a result that can hold any of ``parts``."""
    first = parts[0]
    if all(isinstance(part, Scalar) for part in parts):
        numbers = [part for part in parts if isinstance(part, Scalar)]
        if (
            numbers[0].kind != FLOAT
            and numbers[0].const is not None
            and all(entry == numbers[0] for entry in numbers)
        ):
            return numbers[0], None
        kind = numbers[0].kind
        for entry in numbers[1:]:
            kind = kind_of_both(Scalar(kind, ""), entry)
        return Scalar(kind, f"returned_{position}"), None
    if all(isinstance(part, Arr) for part in parts):
        arrays = [part for part in parts if isinstance(part, Arr)]
        fixed = re.fullmatch(r"\d+", arrays[0].offset)
        if fixed and all(entry == arrays[0] for entry in arrays) and arrays[0].base in bases:
            return arrays[0], Aliased(bases.index(arrays[0].base), arrays[0])
        if any((entry.kind, entry.shape) != (arrays[0].kind, arrays[0].shape) for entry in arrays):
            raise Untranslatable("two returns give arrays of different shape")
        return Arr(
            arrays[0].kind, f"returned_{position}", arrays[0].shape, row_strides(arrays[0].shape), temporary=True
        ), None
    if all(form(part) == form(first) for part in parts):
        return first, None
    raise Untranslatable("two returns give values of different form")


def within(array: Arr, part: Arr) -> Arr:
    """Return the part of a caller's array that a function has returned."""
    offset = (
        array.offset
        if part.offset == "0"
        else part.offset
        if array.offset == "0"
        else f"{array.offset} + {part.offset}"
    )
    return replace(part, base=array.base, offset=offset, temporary=array.temporary)


def returning(
    line: Return,
    result: Value,
    aliases: tuple[Aliased | None, ...],
    single: bool,
    translator: FunctionTranslator,
) -> Lines:
    """Return the C statements of a return."""
    outer, translator.lines, translator.indent = translator.lines, [], line.indent
    triples = zip(leaves(result), leaves(line.value), aliases, strict=True)
    pairs = [(out, value) for out, value, alias in triples if alias is None and is_out(out)]
    for out, value in pairs:
        if isinstance(out, Arr):
            translator.store_all(out, value)
    for out, value in pairs:
        if isinstance(out, Scalar) and isinstance(value, Scalar):
            translator.emit(f"return {value.c};" if single else f"*{out.c} = {value.c};")
    if not single and line.indent > 1:
        translator.emit("return;")
    lines, translator.lines = translator.lines, outer
    return lines


def first_line_of(function: FunctionType) -> str:
    """Return the first line of a docstring, as the end of a C comment."""
    text = (function.__doc__ or "").strip().partition("\n")[0].replace("*/", "* /")
    return f": {text}" if text else ""
