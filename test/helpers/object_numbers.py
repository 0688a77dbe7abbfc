# SPDX-License-Identifier: Apache-2.0
"""All numbers in an object, to be digested, stored and restored.

Floats and arrays of floats in attributes, slots, tuples, lists, deques, mappings by sorted keys and closures, each
object once, in an order that depends on names only. Random generators, code, modules and classes are left out.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from rths_nodes.loop.supervision.safe_stop import HIGH, LOW, PER_AXIS, START, STEP, SafeStop

NONE = (bool, str, bytes, bytearray, type(None), type, ModuleType, CodeType, BuiltinFunctionType, enum.Enum)
Number = float | np.ndarray


def numbers_in(thing: Any) -> Iterator[Number]:
    """Yield each float and array in ``thing``."""
    numbers: list[Number] = []

    def take(value: Number) -> Number:
        numbers.append(value)
        return value

    _walk(thing, take, set())
    yield from numbers


def put_back(thing: Any, numbers: Iterator[Number]) -> Any:
    """Replace the numbers of ``thing``, in the order of :func:`numbers_in`; objects are changed in place."""

    def replace(value: Number) -> Number:
        stored = next(numbers)
        if isinstance(value, np.ndarray):
            assert np.shape(stored) == value.shape
            if value.flags.writeable:
                value[...] = stored
                return value
            return np.asarray(stored)
        return type(value)(stored)

    return _walk(thing, replace, set())


def _walk(value: Any, of_number: Callable[[Any], Any], seen: set[int]) -> Any:
    if isinstance(value, NONE):
        return value
    if isinstance(value, float):
        return of_number(value)
    if isinstance(value, int | np.random.Generator):
        return value
    if isinstance(value, np.ndarray):
        if id(value) in seen or value.dtype != np.float64:
            return value
        seen.add(id(value))
        return of_number(value)
    if isinstance(value, tuple):
        parts = [_walk(item, of_number, seen) for item in value]
        same = all(part is item for part, item in zip(parts, value, strict=True))
        return value if same else type(value)._make(parts) if hasattr(value, "_make") else tuple(parts)
    if id(value) in seen:
        return value
    seen.add(id(value))
    if isinstance(value, list | deque):
        for index, item in enumerate(value):
            value[index] = _walk(item, of_number, seen)
    elif isinstance(value, dict):
        for key in sorted(value, key=str):
            value[key] = _walk(value[key], of_number, seen)
    elif isinstance(value, Mapping):
        for key in sorted(value, key=str):
            _walk(value[key], of_number, seen)
    elif isinstance(value, FunctionType):
        for cell in value.__closure__ or ():
            _in_cell(cell, of_number, seen)
    elif isinstance(value, MethodType):
        _walk(value.__self__, of_number, seen)
    elif isinstance(value, SafeStop):
        _walk(_of_stop(value), of_number, seen)
    elif type(value).__module__.startswith("rths_nodes."):
        _in_object(value, of_number, seen)
    return value


def _of_stop(stop: SafeStop) -> list[Any]:
    """Numbers of a safe stop in the stored order, which is older than the present layout."""
    rows = sorted(row for group in stop.groups for row in group)
    _, zeros, strokes, fastest, changes = zip(*rows, strict=True)
    start, steps, low, high = (stop.state[offset::PER_AXIS] for offset in (START, STEP, LOW, HIGH))
    return [*changes, *zip(low, high, strict=True), *fastest, *start, *steps, *strokes, *zeros]


def _in_cell(cell: Any, of_number: Callable[[Any], Any], seen: set[int]) -> None:
    try:
        held = cell.cell_contents
    except ValueError:  # the cell is empty
        return
    replaced = _walk(held, of_number, seen)
    if replaced is not held:
        cell.cell_contents = replaced


def _in_object(thing: Any, of_number: Callable[[Any], Any], seen: set[int]) -> None:
    names = set(getattr(thing, "__dict__", ()))
    for cls in type(thing).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        names.update((slots,) if isinstance(slots, str) else slots)
    for name in sorted(names):
        try:
            held = object.__getattribute__(thing, name)
        except AttributeError:  # a slot that was never filled
            continue
        replaced = _walk(held, of_number, seen)
        if replaced is not held:
            object.__setattr__(thing, name, replaced)
