# SPDX-License-Identifier: Apache-2.0
"""Identity of kernels with equal texts, and objects in them that are no arithmetic.

A kernel is a function with the functions that it reaches, in its module or its closure. ``core/kernels.py`` has
the rules for its text.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from inspect import unwrap
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

_judged: dict[object, str] = {}


def identity(value: Any) -> object:
    """Return what two functions of one text have in common: their code, and what their closures hold."""
    if isinstance(value, FunctionType):
        function = unwrap(value)
        return function.__code__, *(identity(cell.cell_contents) for cell in function.__closure__ or ())
    if isinstance(value, (tuple, list)):
        return type(value), *map(identity, value)
    return (value.dtype, value.shape, value.tobytes()) if isinstance(value, np.ndarray) else (type(value), value)


def reached(function: Any) -> Iterator[tuple[str, object]]:
    """Yield, with its name, each thing that a function takes from its module, and from its closure."""
    function = unwrap(function)
    names = named(function.__code__)
    yield from ((name, value) for name, value in function.__globals__.items() if name in names)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield name, cell.cell_contents


def named(code: CodeType) -> set[str]:
    """Return the names of the globals that ``code`` reads."""
    read = {entry.argval for entry in dis.get_instructions(code) if entry.opname == "LOAD_GLOBAL"}
    return read.union(*(named(inner) for inner in code.co_consts if isinstance(inner, CodeType)))


def foreign(function: Any) -> str:
    """Return the name of the first thing in a kernel that no compiler knows; empty if there is none."""
    key = identity(function)
    if key not in _judged:
        _judged[key] = ""  # of a function that calls itself
        _judged[key] = next(filter(None, (_foreign(*entry) for entry in reached(function))), "")
    return _judged[key]


def _foreign(name: str, value: object) -> str:
    if isinstance(value, tuple):
        return next(filter(None, (_foreign(name, entry) for entry in value)), "")
    if str(getattr(value, "__module__", "")).startswith("numpy"):
        return ""
    if isinstance(value, FunctionType):
        return foreign(value)
    return "" if is_plain(value) or isinstance(value, (ModuleType, type, BuiltinFunctionType)) else name


def is_plain(value: object) -> bool:
    """Return whether ``value`` is made of numbers, arrays of them, nothing, and tuples and lists of all these."""
    if isinstance(value, (tuple, list)):
        return all(map(is_plain, value))
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "fib"
    return value is None or isinstance(value, (bool, int, float, np.bool_, np.integer, np.floating, bytes))
