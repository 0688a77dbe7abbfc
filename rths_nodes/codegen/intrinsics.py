# SPDX-License-Identifier: Apache-2.0
"""Functions of Python, the C library, numpy and ``core/arithmetic.py`` that have their own C form.

A function of ``arithmetic`` is listed only if its Python form uses numpy or a list. Both forms return the same
bits, because they sum in the same order.
"""

from __future__ import annotations

import ast
import builtins
import math
import operator
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from rths_nodes.codegen.values import (
    C_TYPES,
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
    wrapped,
)
from rths_nodes.core import arithmetic

if TYPE_CHECKING:
    from rths_nodes.codegen.translating import Expressions as Translator

MATHEMATICAL = ("sqrt", "exp", "log", "pow", "sin", "cos", "tanh", "copysign")


def _mathematical(name: str, t: Translator, *arguments: Value) -> Value:
    return Scalar(FLOAT, f"{name}({', '.join(in_kind(FLOAT, argument).c for argument in arguments)})")


def in_kind(kind: str, value: Value) -> Scalar:
    number = scalar(value, "the arguments of this function must be numbers")
    if number.const is not None:
        return constant(float(number.const) if kind == FLOAT else int(number.const))
    return number if number.kind == kind else Scalar(kind, f"({C_TYPES[kind]}){wrapped(number.c)}")


def _absolute(t: Translator, value: Value) -> Value:
    number = scalar(value, "the argument of abs() must be a number in a kernel")
    return Scalar(number.kind, f"{'fabs' if number.kind == FLOAT else 'llabs'}({number.c})")


def _length(t: Translator, value: Value) -> Value:
    if isinstance(value, Tup):
        return constant(len(value.items))
    if isinstance(value, Arr) and value.shape[0] is not None:
        return constant(value.shape[0])
    raise Untranslatable("the length is not known while the kernel is translated")


def _extreme(sign: str, t: Translator, *arguments: Value) -> Value:
    best, *more = map(t.stable, map(scalar, t.items_of(arguments[0]) if len(arguments) == 1 else arguments))
    for other in more:
        if best.kind != other.kind:
            best, other = in_kind(FLOAT, best), in_kind(FLOAT, other)
        best = t.stable(Scalar(best.kind, f"({other.c} {sign} {best.c}) ? {other.c} : {best.c}"))
    return best


def _larger_or_nan(sign: str, t: Translator, *arguments: Value) -> Value:
    def beyond(a: Scalar, b: Scalar) -> Scalar:
        x, y = wrapped(in_kind(FLOAT, a).c), wrapped(in_kind(FLOAT, b).c)
        return Scalar(FLOAT, f"({x} {sign}= {y} || {x} != {x}) ? {x} : {y}")

    return t.elementwise(beyond, *arguments)


def _range(t: Translator, *bounds: Value) -> Value:
    if len(bounds) > 2:
        raise Untranslatable("range() cannot have a step in a kernel")
    return Range(*map(scalar, bounds if len(bounds) == 2 else (constant(0), *bounds)))


def _tuple_of(t: Translator, *arguments: Value) -> Value:
    return Tup(tuple(t.items_of(arguments[0]))) if arguments else Tup(())


def _zipped(t: Translator, *arguments: Value) -> Value:
    columns = [t.items_of(argument) for argument in arguments]
    if len(set(map(len, columns))) > 1:
        raise Untranslatable("the arguments of zip() must have the same length in a kernel")
    return Tup(tuple(Tup(items) for items in zip(*columns, strict=True)))


def _filled(number: float | None, t: Translator, shape: Value, *values: Value) -> Value:
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


def _as_array(t: Translator, value: Value) -> Value:
    if isinstance(value, Tup):
        return t.array_of(value)
    return replace(t.copy(value), listed=False) if isinstance(value, Arr) and value.listed else value


def _dot(t: Translator, one: Value, other: Value) -> Value:
    total = t.variable(constant(0.0), "total")
    if isinstance(one, Tup) or isinstance(other, Tup):
        for a, b in zip(map(scalar, t.items_of(one)), map(scalar, t.items_of(other)), strict=False):
            t.emit(f"{total.c} += {wrapped(a.c)} * {wrapped(b.c)};")
        return total
    left, right = array(one), array(other)
    if left.shape != right.shape:
        raise Untranslatable(f"dot() needs two vectors of the same length, not {left.shape} and {right.shape}")
    with t.over(left.shape) as (position,):
        t.emit(f"{total.c} += {left.at(position)} * {right.at(position)};")
    return total


def _matvec_into(t: Translator, target: Value, factor: Value, values: Value) -> Value:
    result, matrix = array(target), array(factor, "the first factor of a product must be a matrix")
    vector = values if isinstance(values, Arr) and values.contiguous else t.array_of(values)
    rows, columns = matrix.shape
    if columns == 0:
        raise Untranslatable("the matrix of a product must have columns")
    if (*result.shape, *vector.shape) != (rows, columns):
        raise Untranslatable(f"a matrix {matrix.shape} cannot multiply a vector {vector.shape}")
    t.written |= t.memory_of(result)
    shared = t.memory_of(result) & (t.memory_of(matrix) | t.memory_of(vector))
    product = result if result.contiguous and not shared else t.fresh(FLOAT, result.shape, "product")
    addresses = ", ".join(part.c for part in (product, matrix, vector))
    t.emit(f"matrix_product({addresses}, {rows}, {columns}, {matrix.strides[0]}, {matrix.strides[1]});")
    t.store(result, product)
    return Plain(None)


def _matvec(t: Translator, factor: Value, values: Value) -> Arr:
    result = t.fresh(FLOAT, array(factor, "the first argument of matvec() must be a matrix").shape[:1], "product")
    _matvec_into(t, result, factor, values)
    return result


def _groups(t: Translator, like: Value, factor: Value, values: Value) -> Value:
    numbers = iter(t.items_of(_matvec(t, factor, values)))
    return t.stable(Tup(tuple(Tup(tuple(next(numbers) for _ in t.items_of(row))) for row in t.items_of(like))))


def _put(t: Translator, table: Value, begin: Value, values: Value) -> Value:
    target = array(table, "put() needs an array and a position")
    part = target.moved(t.stable(scalar(begin)).c, target.strides[0])
    t.store(replace(part, shape=(len(t.items_of(values)),)), values)
    return Plain(None)


def _record_across(t: Translator, table: Value, begin: Value, values: Value, step: Value) -> Value:
    target, first, apart = array(table), t.stable(scalar(begin)), scalar(step)
    t.written |= t.memory_of(target)
    for at, value in enumerate(t.items_of(values)):
        t.emit(f"{target.at(f'{first.c} + {apart.c} * {at}')} = {scalar(value).c};")
    return Plain(None)


def _times(t: Translator, rows: Value, vector: Value) -> Value:
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
