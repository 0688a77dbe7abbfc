# SPDX-License-Identifier: Apache-2.0
"""Kernels: the arithmetic of a component as a pure function, one text for nodes, tests and compiled studies.

    step(constants, state, inputs) -> state, outputs

``constants`` is a tuple of numbers from parameters and time step, ``state`` one of the numbers that change from
sample to sample (a NamedTuple if code reads fields by name); both hold floats, ints, bools, tuples of these and
float arrays. A step unpacks them in its first line and returns a plain tuple in the order of the state: that is
twice as fast as names. It computes with ``+ - * /``, comparisons and ``core/arithmetic.py``, without ``math``,
``self``, strings and exceptions (``test/test_kernels.py`` reads them). A number of a sample (k, i, substep) is an
argument, never state. Arrays of a state are worked in place: :func:`copied` makes a second one.

Four rules keep the bits of the C form. Code that breaks one is refused with file and line, or fails the test:

1. A step returns the arrays of its state, worked in place, or fresh arrays; never an old array in a new place.
2. One name has one form (type and shape) within a function.
3. No list grows in a loop: use a comprehension or an array.
4. A computed number indexes an array, or a short tuple.

Arrays are arguments, not names of a module or a closure. A call passes all arguments. ``break`` and ``continue``
need a loop over a range, or a while loop. A decorator is translated with its kernel.

A kernel that contains another is made by a function that takes the other: ``adaptive(inverse.led)``. So each is
plain Python, which nodes call, and can be translated to C as it is (``codegen/``).
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from rths_nodes.core import arithmetic

Function = Callable[..., Any]
"""A kernel function; each kernel documents its arguments and results."""
ToNumber = Callable[..., tuple[object, float]]
"""A function that returns its state and a number."""


class Kernel(NamedTuple):
    """Arithmetic of a component: ``constants`` from parameters and dt (s), the state at ``rest``, the ``step``.

    >>> from rths_nodes.core import Kernel, no_state
    >>> def lead(k, s, x, v, a, m, f, rests, preparing):
    ...     (delay,) = k
    ...     return s, x + delay * v
    >>> kernel = Kernel(lambda params, dt: (0.02,), no_state, lead)
    >>> kernel.step(kernel.constants(None, 0.001), (), 1.0, 0.5, 0.0, 0.0, 0.0, False, False)
    ((), 1.01)
    """

    constants: Function
    rest: Function
    step: Function


def no_state(constants: object) -> tuple[()]:
    return ()


def inherits(cls: type, base: type, *methods: str) -> bool:
    """Return whether a class has these methods of ``base``; the guard of a foreign component does not count."""
    return all(unguarded(getattr(cls, name)) is getattr(base, name) for name in methods)


def unguarded(function: Any) -> Any:
    """Return the function inside the guards of ``component_guard.py``. Other decorators belong to the function."""
    guards = f"{__package__}.component_guard"
    while isinstance(function, FunctionType) and function.__globals__.get("__name__") == guards:
        function = vars(function)["__wrapped__"]
    return function


def copied(state: object) -> object:
    """Copy a state into plain tuples and new arrays."""
    if isinstance(state, tuple):
        return tuple([copied(part) for part in state])
    return state.copy() if isinstance(state, np.ndarray) else state


def advance_of(
    rate: Function, along: Function = arithmetic.along, along_mean: Function = arithmetic.along_mean
) -> Function:
    """The classical Runge-Kutta step ``advance(k, s, h, start, start, middle, middle, end, end) -> s``; ``h`` s.

    ``rate`` gives the rates of a state from constants, state and two inputs: displacement (m) and velocity (m/s)
    of a specimen, the command (m) of an actuator. The inputs come in pairs. ``along`` and ``along_mean`` move a
    state that is more than a tuple of floats.
    """

    def advance(
        k: object, s: object, h: float, x0: float, v0: float, x1: float, v1: float, x2: float, v2: float
    ) -> object:
        """Classical Runge-Kutta step: s + h (a + 2 b + 2 c + d) / 6."""
        half = 0.5 * h
        a = rate(k, s, x0, v0)
        b = rate(k, along(s, half, a), x1, v1)
        c = rate(k, along(s, half, b), x1, v1)
        d = rate(k, along(s, h, c), x2, v2)
        return along_mean(s, h, a, b, c, d)

    return advance


# Identity of kernels with equal texts, and objects in them that are no arithmetic

_judged: dict[object, str] = {}


def identity(value: Any) -> object:
    """Return what two functions of one text have in common: their code, and what their closures hold."""
    if isinstance(value, FunctionType):
        function = unguarded(value)
        return function.__code__, *(identity(cell.cell_contents) for cell in function.__closure__ or ())
    if isinstance(value, (tuple, list)):
        return type(value), *map(identity, value)
    return (value.dtype, value.shape, value.tobytes()) if isinstance(value, np.ndarray) else (type(value), value)


def reached(function: Any) -> Iterator[tuple[str, object]]:
    """Yield name and value of each global and closure variable of a function."""
    function = unguarded(function)
    names = named(function.__code__)
    yield from ((name, value) for name, value in function.__globals__.items() if name in names)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield name, cell.cell_contents


def named(code: CodeType) -> set[str]:
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
    """Return whether a value is made of numbers, arrays, None, and tuples and lists of these."""
    if isinstance(value, (tuple, list)):
        return all(map(is_plain, value))
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "fib"
    return value is None or isinstance(value, (bool, int, float, np.bool_, np.integer, np.floating, bytes))
