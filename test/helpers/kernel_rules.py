# SPDX-License-Identifier: Apache-2.0
"""The rules that a kernel keeps so that its C form has its bits (core/kernels.py), checked while it runs.

1. A step returns the arrays of its state, worked in place, or fresh arrays; never an old array in a new place.
2. One name has one form (type and shape) within a function.
3. No list grows in a loop.
4. What a computed number indexes is an array, or a short tuple, which each call copies into an array in C.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

import numpy as np
from driven_kernels import functions_of

SHORT = 16
"""Longest tuple that a computed number may index."""
GROWING = ("append", "extend", "insert")
Found = dict[str, None]
"""Broken rules with file and line, each once, in their order."""


def broken(step: Callable[..., Any], constants: object, state: Any, rows: Any) -> list[str]:
    """Drive a step by ``rows`` of inputs; return the rules that it, or a function that it reaches, breaks."""
    functions = {kernel.__code__: kernel for kernel in functions_of(step, {}).values()}
    violations: Found = {}
    for function in functions.values():
        violations.update(dict.fromkeys(grown(function)))
    traced = Traced(functions, violations)
    with np.errstate(all="ignore"):
        for inputs in rows:
            sys.settrace(traced)
            try:
                after, _ = step(constants, state, *inputs)
            finally:
                sys.settrace(None)
            where = f"{step.__code__.co_filename}:{step.__code__.co_firstlineno}"
            violations.update((f"{where}: {text}", None) for text in moved((constants, state, inputs), after))
            state = after
    return list(violations)


# Rule 1


def arrays(value: object, path: str) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Yield the arrays of a value with their paths."""
    if isinstance(value, np.ndarray):
        yield path, value
    elif isinstance(value, (tuple, list)):
        for index, item in enumerate(value):
            yield from arrays(item, f"{path}[{index}]")


def moved(before: tuple[object, object, object], after: object) -> Iterator[str]:
    """Yield the arrays of a new state that are also at another path."""
    names = ("constants", "state", "inputs")
    old = [entry for name, value in zip(names, before, strict=True) for entry in arrays(value, name)]
    new = list(arrays(after, "state"))
    for at, (path, array) in enumerate(new):
        for other_path, held in (*old, *new[:at]):
            same = other_path == path and held is array
            if not same and np.shares_memory(array, held):
                yield f"{path} of the new state is {other_path}"


# Rules 2 and 4


def form(value: object) -> object:
    """Return type and shape of a value."""
    if isinstance(value, np.ndarray):
        return "array", value.dtype.kind, value.shape
    if isinstance(value, (tuple, list)):
        return "tuple", tuple(form(item) for item in value)
    if isinstance(value, (bool, int, float, np.generic)):
        return "number"
    return type(value).__name__


class Traced:
    """A trace function that compares the forms of the names of ``functions``, line by line."""

    def __init__(self, functions: dict[CodeType, Any], found: Found) -> None:
        self._functions, self._found = functions, found
        self._indexed = {code: indexed(function) for code, function in functions.items()}

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        """Trace the call of a kernel."""
        code = frame.f_code
        if code not in self._functions:
            return None
        forms: dict[str, object] = {}
        line = frame.f_lineno

        def local(frame: FrameType, event: str, argument: object) -> Any:
            nonlocal line
            for name, value in frame.f_locals.items():
                if name in code.co_freevars or name == "_":
                    continue
                now = form(value)
                if forms.setdefault(name, now) != now:
                    self._say(code, line, f"{name} has two forms")
                    forms[name] = now
            for name in self._indexed[code].get(frame.f_lineno, ()):
                value = frame.f_locals.get(name)
                if isinstance(value, tuple) and len(value) > SHORT:
                    text = f"{name} is a tuple of {len(value)} that a computed number indexes"
                    self._say(code, frame.f_lineno, text)
            line = frame.f_lineno
            return local

        return local

    def _say(self, code: CodeType, line: int, text: str) -> None:
        self._found[f"{code.co_filename}:{line}: {text}"] = None


def tree_of(function: Any) -> ast.AST:
    """Return the syntax tree of a function, with the line numbers of its file."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return ast.increment_lineno(tree, function.__code__.co_firstlineno - 1)


def indexed(function: Any) -> dict[int, list[str]]:
    """Return the names that a computed number indexes, by line. The counter of a ``for`` loop is written out."""
    nodes, names = list(ast.walk(tree_of(function))), dict[int, list[str]]()
    counters = {name.id for node in nodes if isinstance(node, ast.For) for name in names_in(node.target)}
    for node in nodes:
        if not isinstance(node, ast.Subscript) or isinstance(node.slice, ast.Slice):
            continue
        if isinstance(node.value, ast.Name) and {name.id for name in names_in(node.slice)} - counters:
            names.setdefault(node.lineno, []).append(node.value.id)
    return names


def names_in(node: ast.AST) -> list[ast.Name]:
    """Return the names in an expression."""
    return [part for part in ast.walk(node) if isinstance(part, ast.Name)]


# Rule 3


def grown(function: Any) -> Iterator[str]:
    """Yield the lists that grow in a loop."""
    loops = [node for node in ast.walk(tree_of(function)) if isinstance(node, (ast.For, ast.While))]
    for node in (part for loop in loops for part in ast.walk(loop)):
        called = node.func if isinstance(node, ast.Call) else None
        by_method = isinstance(called, ast.Attribute) and called.attr in GROWING
        by_sum = isinstance(node, ast.AugAssign) and isinstance(node.value, (ast.List, ast.Tuple, ast.ListComp))
        if by_method or by_sum:
            yield f"{function.__code__.co_filename}:{node.lineno}: a list grows in a loop"
