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
from typing import TYPE_CHECKING

import numpy as np

from rths_nodes.codegen.arrays import address, memory_of
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
    constant,
    scalar,
    scalars,
    wrapped,
)
from rths_nodes.core import arithmetic

if TYPE_CHECKING:
    from rths_nodes.codegen.expressions import Expressions

Form = Callable[["Expressions", list[Value]], Value]
"""Emits into a translator, and gives the result of a call with these arguments."""
MATHEMATICAL = ("sqrt", "exp", "log", "pow", "sin", "cos", "tanh", "copysign")
"""Functions of the C library that have the name of Python's."""


def own_form(function: object) -> Form | None:
    """Return the C form of a function that is not translated from its text."""
    try:
        return FORMS.get(function)
    except TypeError:
        return None


def _mathematical(name: str) -> Form:
    def form(t: Expressions, arguments: list[Value]) -> Value:
        return Scalar(FLOAT, f"{name}({', '.join(as_float(entry).c for entry in arguments)})")

    return form


def as_float(value: Value) -> Scalar:
    """Return a number as a float. Raises Untranslatable for anything else."""
    if not isinstance(value, Scalar):
        raise Untranslatable("this function takes numbers")
    if value.kind == FLOAT:
        return value
    return (
        constant(float(value.const)) if value.const is not None else Scalar(FLOAT, f"(double){wrapped(value.c)}")
    )


def _float(t: Expressions, arguments: list[Value]) -> Value:
    return as_float(arguments[0])


def _int(t: Expressions, arguments: list[Value]) -> Value:
    (value,) = arguments
    if not isinstance(value, Scalar):
        raise Untranslatable("int() takes a number")
    if value.const is not None:
        return constant(int(value.const))
    return value if value.kind == INT else Scalar(INT, f"(int64_t){wrapped(value.c)}")


def _bool(t: Expressions, arguments: list[Value]) -> Value:
    truth: Value = t.truth(arguments[0])
    return truth


def _abs(t: Expressions, arguments: list[Value]) -> Value:
    (value,) = arguments
    if not isinstance(value, Scalar):
        raise Untranslatable("abs() takes a number in a kernel")
    if value.const is not None:
        return constant(abs(value.const))
    return Scalar(value.kind, f"{'fabs' if value.kind == FLOAT else 'llabs'}({value.c})")


def _len(t: Expressions, arguments: list[Value]) -> Value:
    (value,) = arguments
    if isinstance(value, Tup):
        return constant(len(value.items))
    if isinstance(value, Arr) and value.shape[0] is not None:
        return constant(value.shape[0])
    raise Untranslatable("the length is not known while the kernel is translated")


def _range(t: Expressions, arguments: list[Value]) -> Value:
    bounds = [constant(0), *arguments] if len(arguments) == 1 else arguments
    begin, end = bounds
    if not isinstance(begin, Scalar) or not isinstance(end, Scalar):
        raise Untranslatable("range() takes one or two integers in a kernel")
    return Range(begin, end)


def _extreme(sign: str) -> Form:
    """``max`` and ``min``: the first argument unless a later one is beyond it."""

    def form(t: Expressions, arguments: list[Value]) -> Value:
        items = t.items_of(arguments[0]) if len(arguments) == 1 else arguments
        best, *rest_of = [t.stable(item) for item in scalars(items)]
        for other in rest_of:
            if best.kind != other.kind:
                best, other = as_float(best), as_float(other)
            if best.const is not None and other.const is not None:
                better = other.const > best.const if sign == ">" else other.const < best.const
                best = other if better else best
                continue
            best = t.stable(Scalar(best.kind, f"{other.c} {sign} {best.c} ? {other.c} : {best.c}"))
        return best

    return form


def _tuple(t: Expressions, arguments: list[Value]) -> Value:
    return Tup(tuple(t.items_of(arguments[0]))) if arguments else Tup(())


def _zip(t: Expressions, arguments: list[Value]) -> Value:
    return Tup(tuple(Tup(items) for items in zip(*(t.items_of(entry) for entry in arguments), strict=True)))


def _shape(value: Value) -> tuple[int, ...]:
    parts = value.items if isinstance(value, Tup) else (value,)
    lengths = [int(part.const) for part in parts if isinstance(part, Scalar) and part.const is not None]
    if len(lengths) != len(parts):
        raise Untranslatable("the shape of an array is not known while the kernel is translated")
    return tuple(lengths)


def _zeros(t: Expressions, arguments: list[Value]) -> Value:
    array: Arr = t.fresh(FLOAT, _shape(arguments[0]))
    t.store_all(array, constant(0.0))
    return array


def _full(t: Expressions, arguments: list[Value]) -> Value:
    array: Arr = t.fresh(FLOAT, _shape(arguments[0]))
    t.store_all(array, as_float(arguments[1]))
    return array


def _empty(t: Expressions, arguments: list[Value]) -> Value:
    array: Arr = t.fresh(FLOAT, _shape(arguments[0]))
    return array


def _array(t: Expressions, arguments: list[Value]) -> Value:
    array: Arr = t.of_items(arguments[0])
    return array


def _numpy_extreme(sign: str) -> Form:
    """``np.maximum`` and ``np.minimum``: nan if either is nan."""

    def form(t: Expressions, arguments: list[Value]) -> Value:
        def beyond(a: Scalar, b: Scalar) -> Scalar:
            x, y = wrapped(a.c), wrapped(b.c)
            return Scalar(FLOAT, f"({x} {sign}= {y} || {x} != {x}) ? {x} : {y}")

        one, other = (entry if isinstance(entry, Arr) else t.stable(as_float(entry)) for entry in arguments)
        if isinstance(one, Scalar) and isinstance(other, Scalar):
            return beyond(one, other)
        result: Value = t.elementwise(beyond, one, other)
        return result

    return form


# -- core/arithmetic.py -----------------------------------------------------------------------------------


def _vector(t: Expressions, value: Value) -> Arr:
    """Return a sequence of numbers as an array."""
    if isinstance(value, Arr):
        return value
    array: Arr = t.of_items(value)
    return array


def _dot(t: Expressions, arguments: list[Value]) -> Value:
    one, other = arguments
    total = t.declare(FLOAT, "total")
    t.emit(f"{total.c} = 0.0;")
    if isinstance(one, Tup) or isinstance(other, Tup):
        for a, b in zip(scalars(t.items_of(one)), scalars(t.items_of(other)), strict=False):
            t.emit(f"{total.c} += {wrapped(a.c)} * {wrapped(b.c)};")
        return Scalar(FLOAT, total.c)
    if not isinstance(one, Arr) or not isinstance(other, Arr):
        raise Untranslatable("dot() takes two sequences of numbers")
    with t.over(one.shape) as (position,):
        t.emit(f"{total.c} += {one.at(position)} * {other.at(position)};")
    return Scalar(FLOAT, total.c)


def _product_into(t: Expressions, result: Arr, matrix: Arr, vector: Arr) -> None:
    """Emit a call of ``matrix_product``, which is a C text of ``program.py``."""
    t.written |= memory_of(t, result)
    rows, columns = matrix.shape
    if columns == 0:
        t.store_all(result, constant(0.0))
        return
    vector = vector if vector.contiguous else t.copy(vector)
    product = result if result.contiguous else t.fresh(FLOAT, result.shape, "product")
    addresses = ", ".join(map(address, (product, matrix, vector)))
    t.emit(f"matrix_product({addresses}, {rows}, {columns}, {matrix.strides[0]}, {matrix.strides[1]});")
    if product is not result:
        t.store_all(result, product)


def _matvec(t: Expressions, arguments: list[Value]) -> Value:
    matrix, vector = arguments
    if not isinstance(matrix, Arr):
        raise Untranslatable("matvec() takes a matrix")
    result: Arr = t.fresh(FLOAT, (matrix.shape[0],), "product")
    _product_into(t, result, matrix, _vector(t, vector))
    return result


def _matvec_into(t: Expressions, arguments: list[Value]) -> Value:
    result, matrix, vector = arguments
    if not isinstance(result, Arr) or not isinstance(matrix, Arr):
        raise Untranslatable("matvec_into() takes an array and a matrix")
    _product_into(t, result, matrix, _vector(t, vector))
    return Plain(None)


def _groups(t: Expressions, arguments: list[Value]) -> Value:
    like, matrix, vector = arguments
    product = _matvec(t, [matrix, vector])
    numbers = t.items_of(product)
    sizes = [len(t.items_of(group)) for group in t.items_of(like)]
    starts = [sum(sizes[:position]) for position in range(len(sizes))]
    groups = [Tup(tuple(numbers[start : start + size])) for start, size in zip(starts, sizes, strict=True)]
    stable: Value = t.stable(Tup(tuple(groups)))
    return stable


def _same(t: Expressions, arguments: list[Value]) -> Value:
    return arguments[0]


def _numbers(t: Expressions, arguments: list[Value]) -> Value:
    (value,) = arguments
    return t.copy(value) if isinstance(value, Arr) else value


def _put(t: Expressions, arguments: list[Value]) -> Value:
    array, first, values = arguments[0], t.stable(scalar(arguments[1])), arguments[2]
    if not isinstance(array, Arr):
        raise Untranslatable("put() takes an array and a place")
    t.written |= memory_of(t, array)
    if isinstance(values, Arr):
        values = t.copy(values) if values.base == array.base else values
        with t.over(values.shape) as (position,):
            t.emit(f"{array.at(f'{first.c} + {position}')} = {values.at(position)};")
    else:
        for at, value in enumerate(scalars(t.items_of(values))):
            t.emit(f"{array.at(f'{first.c} + {at}')} = {value.c};")
    return Plain(None)


def _raised(t: Expressions, arguments: list[Value]) -> Value:
    items = scalars(t.items_of(arguments[0]))
    position, by = (t.stable(scalar(entry)) for entry in arguments[1:])
    rows = []
    for at, item in enumerate(items):
        more = f"{wrapped(item.c)} + {by.c}"
        if position.const is None:
            rows.append(Scalar(FLOAT, f"{position.c} == {at} ? {more} : {wrapped(item.c)}"))
        else:
            rows.append(Scalar(FLOAT, more) if position.const == at else item)
    return Tup(tuple(rows))


def _replaced(t: Expressions, arguments: list[Value]) -> Value:
    result = []
    for row, now in zip(t.items_of(arguments[0]), t.items_of(arguments[1]), strict=True):
        new = t.items_of(now)
        result.append(Tup((*new, *t.items_of(row)[len(new) :])))
    return t.read(Tup(tuple(result)))


def _times(t: Expressions, arguments: list[Value]) -> Value:
    numbers = [t.stable(entry) for entry in scalars(t.items_of(arguments[1]))]
    sums = []
    for row in t.items_of(arguments[0]):
        pairs = zip(scalars(t.items_of(row)), numbers, strict=True)
        sums.append(Scalar(FLOAT, " + ".join(f"{wrapped(a.c)} * {b.c}" for a, b in pairs)))
    return Tup(tuple(sums))


def _operator(op: ast.operator) -> Form:
    def form(t: Expressions, arguments: list[Value]) -> Value:
        result: Value = t.operated(op, *arguments)
        return result

    return form


def _getitem(t: Expressions, arguments: list[Value]) -> Value:
    array, position = arguments
    if not isinstance(array, Arr) or not isinstance(position, Scalar):
        raise Untranslatable("getitem() takes an array and a place")
    result: Value = t.row(array, position)
    return result


FORMS: dict[object, Form] = {
    operator.add: _operator(ast.Add()),
    operator.sub: _operator(ast.Sub()),
    operator.mul: _operator(ast.Mult()),
    operator.truediv: _operator(ast.Div()),
    operator.getitem: _getitem,
    builtins.abs: _abs,
    builtins.len: _len,
    builtins.range: _range,
    builtins.float: _float,
    builtins.int: _int,
    builtins.bool: _bool,
    builtins.max: _extreme(">"),
    builtins.min: _extreme("<"),
    builtins.tuple: _tuple,
    builtins.list: _tuple,
    builtins.zip: _zip,
    np.zeros: _zeros,
    np.full: _full,
    np.empty: _empty,
    np.array: _array,
    np.asarray: _same,
    np.maximum: _numpy_extreme(">"),
    np.minimum: _numpy_extreme("<"),
    arithmetic.dot: _dot,
    arithmetic.matvec: _matvec,
    arithmetic.matvec_into: _matvec_into,
    arithmetic.groups: _groups,
    arithmetic.numbers: _numbers,
    arithmetic.put: _put,
    arithmetic.record: _put,
    arithmetic.raised: _raised,
    arithmetic.replaced: _replaced,
    arithmetic.rounded: _mathematical("rint"),
    arithmetic.times: _times,
} | {getattr(math, name): _mathematical(name) for name in MATHEMATICAL}
"""C forms, keyed by function; ``tanh``, ``copysign`` and ``root`` of ``arithmetic`` are Python's."""
