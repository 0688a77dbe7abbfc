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

NUMBERS = (bool, int, float, np.bool_, np.integer, np.floating)
_judged: dict[object, str] = {}


def identity(function: Any) -> object:
    """Return what two functions of one text have in common: their code, and what their closures hold."""
    function = unwrap(function)
    contents = [cell.cell_contents for cell in function.__closure__ or ()]
    return function.__code__, tuple(
        identity(value) if isinstance(value, FunctionType) else value for value in contents
    )


def named(code: CodeType) -> set[str]:
    """The globals that ``code`` reads."""
    inner = [entry for entry in code.co_consts if isinstance(entry, CodeType)]
    globals_read = {entry.argval for entry in dis.get_instructions(code) if entry.opname == "LOAD_GLOBAL"}
    return globals_read.union(*(named(entry) for entry in inner))


def is_kernel(value: object) -> bool:
    """Return whether ``value`` is a function written in Python outside numpy."""
    return isinstance(value, FunctionType) and value.__module__.partition(".")[0] != "numpy"


def reached(function: Any) -> Iterator[tuple[str, Any]]:
    """Yield, with its name, each thing that a function takes from its module, and from its closure."""
    function = unwrap(function)
    code = function.__code__
    for name in sorted(named(code) & function.__globals__.keys()):
        yield name, function.__globals__[name]
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        yield name, cell.cell_contents


def foreign(function: object) -> str:
    """Return the name of the first thing in a kernel that no compiler knows; empty where there is none."""
    try:
        key = identity(function)
        if key not in _judged:
            _judged[key] = ""  # one that calls itself
            _judged[key] = next(filter(None, (_foreign(*entry) for entry in reached(function))), "")
        return _judged[key]
    except TypeError:  # it holds what cannot be compared
        return next(filter(None, (_foreign(*entry) for entry in reached(function))), "")


def _foreign(name: str, value: object) -> str:
    if is_kernel(value):
        return foreign(value)
    if isinstance(value, tuple):
        return next(filter(None, (_foreign(name, entry) for entry in value)), "")
    of_numpy = str(getattr(value, "__module__", "")).startswith("numpy")
    allowed = of_numpy or isinstance(value, (ModuleType, type, BuiltinFunctionType, np.ufunc))
    return "" if allowed or is_plain(value) else name


def is_plain(value: object) -> bool:
    """Return whether ``value`` is made of numbers, arrays of them, nothing, and tuples and lists of all these."""
    if isinstance(value, (tuple, list)):
        return all(is_plain(entry) for entry in value)
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "fib"
    return value is None or isinstance(value, (*NUMBERS, bytes))
