# SPDX-License-Identifier: Apache-2.0
"""Kernels: the arithmetic of a component as a pure function.

    step(constants, state, inputs) -> state, outputs

``constants`` and ``state`` are tuples of floats, ints, bools, float arrays, and nested tuples. ``constants``
depend on parameters and time step. ``state`` changes from sample to sample. It is a NamedTuple if code reads
fields by name. A step unpacks both tuples in its first line. It returns a plain tuple in the order of the state,
because a NamedTuple takes twice the time. A step uses ``+ - * /``, comparisons and ``core/arithmetic.py``, but not
``math``, ``self``, strings or exceptions. Sample and step numbers (k, i, substep) are arguments, never state.

Four rules make the C code bit-identical. Code that breaks a rule is refused with file and line, or fails
``test/test_kernels.py``:

1. A step returns the arrays of its state, modified in place, or new arrays. Each array keeps its place in the
   state. Neither a loop nor a call gives a second name to a modified array.
2. A name keeps its type and shape within a function.
3. No list grows in a loop: use a comprehension or an array.
4. Only arrays and short tuples are indexed by computed values.

Arrays are passed as arguments, not read from a module or a closure. A call passes all arguments. ``break`` and
``continue`` are allowed in loops over a range and in while loops.

A kernel that contains another kernel is made by a function that takes the inner kernel: ``adaptive(led)``.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Hashable, Iterator
from functools import cache
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from rths_nodes.core import arithmetic

Function = Callable[..., Any]
ToNumber = Callable[..., tuple[object, float]]
GUARD = "guard"
"""Name of the attribute with the guard of a function of another package (``component_guard.py``)."""


class Kernel(NamedTuple):
    """Functions of a component: ``constants`` (of parameters and dt, s), ``rest`` (initial state) and ``step``.

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
    """Return whether a class inherits ``methods`` from ``base``. Guards (``component_guard.py``) are ignored."""
    return all(unguarded(getattr(cls, name)) is getattr(base, name) for name in methods)


def unguarded(function: Any) -> Any:
    """Return a function without its guards (``component_guard.py``), but with its other decorators."""
    guards = f"{__package__}.component_guard"
    while isinstance(function, FunctionType) and function.__globals__.get("__name__") == guards:
        function = vars(function)["__wrapped__"]
    return function


def copied(state: object) -> object:
    if isinstance(state, tuple):
        return tuple([copied(part) for part in state])
    return state.copy() if isinstance(state, np.ndarray) else state


def advance_of(
    rate: Function, along: Function = arithmetic.along, along_mean: Function = arithmetic.along_mean
) -> Function:
    """Return a fourth-order Runge-Kutta step ``advance(k, s, h, x0, v0, x1, v1, x2, v2) -> s``.

    k are the constants, s is the state, and h the increment (s). The inputs x and v are given at start (0), middle
    (1) and end (2). For a specimen, x is the displacement (m) and v the velocity (m/s). For an actuator, both are
    the command (m). ``rate(k, s, x, v)`` returns the rates of the state. The defaults of ``along`` and
    ``along_mean`` advance tuples of floats.
    """

    def advance(
        k: object, s: object, h: float, x0: float, v0: float, x1: float, v1: float, x2: float, v2: float
    ) -> object:
        """Perform a classical Runge-Kutta step."""
        half = 0.5 * h
        a = rate(k, s, x0, v0)
        b = rate(k, along(s, half, a), x1, v1)
        c = rate(k, along(s, half, b), x1, v1)
        d = rate(k, along(s, h, c), x2, v2)
        return along_mean(s, h, a, b, c, d)

    return advance


# Identity of kernels with equal source, and search for objects that cannot be compiled

_judged: dict[object, str] = {}


def identity(value: Any, numbers: dict[int, int] | None = None) -> object:
    """Return a key that is equal for functions with equal code, closures and global values."""
    numbers = {} if numbers is None else numbers
    if isinstance(value, FunctionType):
        function = unguarded(value)
        if id(function) in numbers:  # the key already contains this function
            return numbers[id(function)]
        numbers[id(function)] = len(numbers)
        return function.__code__, *[(name, identity(inner, numbers)) for name, inner in reached(function)]
    if isinstance(value, (tuple, list)):
        return type(value), *[identity(item, numbers) for item in value]
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tobytes()
    return type(value), value if isinstance(value, Hashable) else id(value)


def reached(function: Any) -> Iterator[tuple[str, object]]:
    function = unguarded(function)
    names = named(function.__code__)
    yield from ((name, value) for name, value in function.__globals__.items() if name in names)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield name, cell.cell_contents


@cache
def named(code: CodeType) -> set[str]:
    read = {entry.argval for entry in dis.get_instructions(code) if entry.opname == "LOAD_GLOBAL"}
    return read.union(*(named(inner) for inner in code.co_consts if isinstance(inner, CodeType)))


def foreign(function: Any) -> str:
    """Return the name of the first object that prevents compilation of a kernel, or an empty string."""
    key = identity(function)
    if key not in _judged:
        _judged[key] = ""  # result for a recursive call
        _judged[key] = next(filter(None, (_foreign(*entry) for entry in reached(function))), "")
    return _judged[key]


def _foreign(name: str, value: object) -> str:
    if isinstance(value, tuple):
        return next(filter(None, (_foreign(name, entry) for entry in value)), "")
    if str(getattr(value, "__module__", "")).startswith("numpy"):
        return ""
    if isinstance(value, FunctionType):
        return foreign(value)
    # before numpy 2, ufuncs have no __module__
    return "" if is_plain(value) or isinstance(value, (ModuleType, type, BuiltinFunctionType, np.ufunc)) else name


def is_plain(value: object) -> bool:
    """Return whether ``value`` contains only numbers, numeric arrays, bytes and None, in tuples and lists."""
    if isinstance(value, (tuple, list)):
        return all(map(is_plain, value))
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "fib"
    return value is None or isinstance(value, (bool, int, float, np.bool_, np.integer, np.floating, bytes))
