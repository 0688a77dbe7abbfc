# SPDX-License-Identifier: Apache-2.0
"""Functions with a C form of their own: of Python, of the C library, of numpy, and some of ``core/arithmetic.py``.

A function of ``arithmetic`` is here only if its plain form uses numpy or a list. Both forms give the same bits,
because each sum has the same order.
"""

from __future__ import annotations

import ast
import builtins
import math
import operator
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from rths_nodes.codegen.values import (
    FLOAT,
    INT,
    Arr,
    Plain,
    Range,
    Scalar,
    Tup,
    Untranslatable,
    Value,
    array,
    constant,
    integer_of,
    scalar,
    scalars,
    wrapped,
)
from rths_nodes.core import arithmetic

if TYPE_CHECKING:
    from rths_nodes.codegen.expressions import Expressions as Translator

MATHEMATICAL = ("sqrt", "exp", "log", "pow", "sin", "cos", "tanh", "copysign")
"""Functions of the C library that have the name of Python's."""


def _mathematical(name: str, t: Translator, *arguments: Value) -> Value:
    return Scalar(FLOAT, f"{name}({', '.join(as_float(argument).c for argument in arguments)})")


def as_float(value: Value) -> Scalar:
    """Return a number as a float. Raises Untranslatable for anything else."""
    number = scalar(value, "this function takes numbers")
    if number.const is not None:
        return constant(float(number.const))
    return number if number.kind == FLOAT else Scalar(FLOAT, f"(double){wrapped(number.c)}")


def _integer(t: Translator, value: Value) -> Value:
    number = scalar(value, "int() takes a number")
    return number if number.kind == INT else Scalar(INT, f"(int64_t){wrapped(number.c)}")


def _absolute(t: Translator, value: Value) -> Value:
    number = scalar(value, "abs() takes a number in a kernel")
    return Scalar(number.kind, f"{'fabs' if number.kind == FLOAT else 'llabs'}({number.c})")


def _length(t: Translator, value: Value) -> Value:
    if isinstance(value, Tup):
        return constant(len(value.items))
    if isinstance(value, Arr) and value.shape[0] is not None:
        return constant(value.shape[0])
    raise Untranslatable("the length is not known while the kernel is translated")


def _integers(t: Translator, *bounds: Value) -> Value:
    begin, end = scalars(bounds if len(bounds) == 2 else (constant(0), *bounds))
    return Range(begin, end)


def _extreme(sign: str, t: Translator, *arguments: Value) -> Value:
    best, *more = map(t.stable, scalars(t.items_of(arguments[0]) if len(arguments) == 1 else arguments))
    for other in more:
        if best.kind != other.kind:
            best, other = as_float(best), as_float(other)
        best = t.stable(Scalar(best.kind, f"({other.c} {sign} {best.c}) ? {other.c} : {best.c}"))
    return best


def _larger_or_nan(sign: str, t: Translator, *arguments: Value) -> Value:

    def beyond(a: Scalar, b: Scalar) -> Scalar:
        x, y = wrapped(a.c), wrapped(b.c)
        return Scalar(FLOAT, f"({x} {sign}= {y} || {x} != {x}) ? {x} : {y}")

    one, other = (part if isinstance(part, Arr) else t.stable(as_float(part)) for part in arguments)
    both_numbers = isinstance(one, Scalar) and isinstance(other, Scalar)
    return beyond(scalar(one), scalar(other)) if both_numbers else t.elementwise(beyond, one, other)


def _tuple_of(t: Translator, *arguments: Value) -> Value:
    return Tup(tuple(t.items_of(arguments[0]))) if arguments else Tup(())


def _zipped(t: Translator, *arguments: Value) -> Value:
    columns = [t.items_of(argument) for argument in arguments]
    if len(set(map(len, columns))) > 1:
        raise Untranslatable("zip() takes items of one length in a kernel")
    return Tup(tuple(Tup(items) for items in zip(*columns, strict=True)))


def _filled(number: float | None, t: Translator, shape: Value, *values: Value) -> Value:
    lengths = shape.items if isinstance(shape, Tup) else (shape,)
    result = t.fresh(FLOAT, [integer_of(item, "the shape of an array") for item in lengths])
    for value in values if number is None else (constant(number),):
        t.store(result, as_float(value))
    return result


# -- core/arithmetic.py -----------------------------------------------------------------------------------


def _dot(t: Translator, one: Value, other: Value) -> Value:
    total = t.variable(constant(0.0), "total")
    if isinstance(one, Tup) or isinstance(other, Tup):
        for a, b in zip(scalars(t.items_of(one)), scalars(t.items_of(other)), strict=False):
            t.emit(f"{total.c} += {wrapped(a.c)} * {wrapped(b.c)};")
        return total
    with t.over(array(one).shape) as (position,):
        t.emit(f"{total.c} += {array(one).at(position)} * {array(other).at(position)};")
    return total


def _matvec_into(t: Translator, target: Value, factor: Value, values: Value) -> Value:
    result, matrix = array(target), array(factor, "a product takes a matrix")
    vector = values if isinstance(values, Arr) and values.contiguous else t.array_of(values)
    rows, columns = matrix.shape
    if columns == 0:
        t.store(result, constant(0.0))
        return Plain(None)
    t.written |= t.memory_of(result)
    product = result if result.contiguous else t.fresh(FLOAT, result.shape, "product")
    addresses = ", ".join(part.c for part in (product, matrix, vector))
    t.emit(f"matrix_product({addresses}, {rows}, {columns}, {matrix.strides[0]}, {matrix.strides[1]});")
    t.store(result, product)
    return Plain(None)


def _matvec(t: Translator, factor: Value, values: Value) -> Arr:
    result = t.fresh(FLOAT, array(factor, "matvec() takes a matrix").shape[:1], "product")
    _matvec_into(t, result, factor, values)
    return result


def _groups(t: Translator, like: Value, factor: Value, values: Value) -> Value:
    numbers = iter(t.items_of(_matvec(t, factor, values)))
    return t.stable(Tup(tuple(Tup(tuple(next(numbers) for _ in t.items_of(row))) for row in t.items_of(like))))


ONE = constant(1)


def _put(t: Translator, table: Value, begin: Value, values: Value, step: Value = ONE) -> Value:
    target, first = array(table, "put() takes an array and a position"), t.stable(scalar(begin))
    by = "" if step is ONE else f"{scalar(step).c} * "
    t.written |= t.memory_of(target)
    if isinstance(values, Arr):
        source = t.copy(values) if values.base == target.base else values
        with t.over(source.shape) as (position,):
            t.emit(f"{target.at(f'{first.c} + {by}{position}')} = {source.at(position)};")
    else:
        for at, value in enumerate(scalars(t.items_of(values))):
            t.emit(f"{target.at(f'{first.c} + {by}{at}')} = {value.c};")
    return Plain(None)


def _raised(t: Translator, state: Value, at: Value, more: Value) -> Value:
    position, by = t.stable(scalar(at)), t.stable(scalar(more))
    row = enumerate(wrapped(item.c) for item in scalars(t.items_of(state)))
    return Tup(tuple(Scalar(FLOAT, f"{position.c} == {index} ? {c} + {by.c} : {c}") for index, c in row))


def _times(t: Translator, rows: Value, vector: Value) -> Value:
    numbers = [t.stable(number) for number in scalars(t.items_of(vector))]
    sums: list[Value] = []
    for row in t.items_of(rows):
        pairs = zip(scalars(t.items_of(row)), numbers, strict=True)
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
    builtins.range: _integers,
    builtins.float: lambda t, value: as_float(value),
    builtins.int: _integer,
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
    np.asarray: lambda t, value: value,
    np.maximum: partial(_larger_or_nan, ">"),
    np.minimum: partial(_larger_or_nan, "<"),
    arithmetic.dot: _dot,
    arithmetic.matvec: _matvec,
    arithmetic.matvec_into: _matvec_into,
    arithmetic.groups: _groups,
    arithmetic.numbers: lambda t, value: t.copy(value) if isinstance(value, Arr) else value,
    arithmetic.put: _put,
    arithmetic.record: _put,
    arithmetic.record_across: _put,
    arithmetic.raised: _raised,
    arithmetic.rounded: partial(_mathematical, "rint"),
    arithmetic.times: _times,
    **{vars(math)[name]: partial(_mathematical, name) for name in MATHEMATICAL},
}
"""C forms, keyed by function; ``tanh``, ``copysign`` and ``root`` of ``arithmetic`` are Python's."""
