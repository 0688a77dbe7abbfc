"""The compiled form of kernels, by numba (an extra of this package), from the same text as the plain one.

numba compiles a function that calls compiled functions only. So every kernel is copied with the functions that it
names, in its module or its closure, replaced by their compiled forms, from the innermost one out. The few whose
plain form leans on numpy or on comprehensions have a compiled form of their own here, equal to the bit.
"""

from __future__ import annotations

import dis
import os
from collections.abc import Callable
from types import CellType, FunctionType
from typing import Any

from rths_nodes.core import arithmetic
from rths_nodes.core.errors import ConfigError

MEAN = "s[{i}] + h / 6.0 * (a[{i}] + 2.0 * (b[{i}] + c[{i}]) + d[{i}])"
_made: dict[Any, Any] = {}


def numba() -> Any:
    """The module numba. Raises ConfigError where it is not installed."""
    os.environ.setdefault("NUMBA_DISABLE_INTEL_SVML", "1")  # other bits than those of the C library
    try:
        import numba as found
    except ImportError as error:
        raise ConfigError("numba: is not installed: pip install 'rths_nodes[fast]'") from error
    return found


def compiled(kernel: Callable[..., Any]) -> Any:
    """The compiled form of a kernel's function: the same bits. Raises ConfigError where numba is missing."""
    if not _made:
        _made.update(_own_forms())
    key = _key(kernel)
    if key not in _made:
        _made[key] = numba().njit(error_model="numpy")(_with_compiled(kernel))
    return _made[key]


def _key(function: Any) -> Any:
    """Identity of a function: its code, and what its closure holds."""
    cells = tuple(_held(cell.cell_contents) for cell in function.__closure__ or ())
    return function.__code__, cells


def _held(value: Any) -> Any:
    return _key(value) if isinstance(value, FunctionType) else value


def _with_compiled(function: Any) -> FunctionType:
    """A copy of ``function`` that calls compiled functions."""
    code = function.__code__
    names = {name: value for name, value in function.__globals__.items() if name in _names(code)}
    names = {name: _form(value) for name, value in names.items()}
    cells = tuple(CellType(_form(cell.cell_contents)) for cell in function.__closure__ or ())
    copy = FunctionType(code, names | {"__builtins__": __builtins__}, function.__name__, None, cells)
    copy.__defaults__, copy.__module__ = function.__defaults__, function.__module__
    return copy


def _names(code: Any) -> set[str]:
    """The globals that ``code`` reads."""
    inner = [each for each in code.co_consts if hasattr(each, "co_code")]
    own = {each.argval for each in dis.get_instructions(code) if each.opname == "LOAD_GLOBAL"}
    return own.union(*(_names(each) for each in inner))


def _form(value: Any) -> Any:
    written = isinstance(value, FunctionType) and value.__module__.partition(".")[0] != "numpy"
    return compiled(value) if written else value


def _own_forms() -> dict[Any, Any]:
    """Compiled forms of what is not compiled from its plain text."""
    found = numba()
    import numpy as np

    @found.njit(error_model="numpy")  # type: ignore[untyped-decorator]
    def matvec(matrix: Any, vector: Any) -> Any:
        rows, columns = matrix.shape
        result = np.empty(rows)
        for row in range(rows):
            result[row] = matrix[row, 0] * vector[0]
        for column in range(1, columns):  # so the inner loop is one over numbers that lie side by side
            for row in range(rows):
                result[row] += matrix[row, column] * vector[column]
        return result

    @found.njit(error_model="numpy")  # type: ignore[untyped-decorator]
    def numbers(vector: Any) -> Any:
        return vector

    @found.njit(error_model="numpy")  # type: ignore[untyped-decorator]
    def dot(a: Any, b: Any) -> Any:
        total = 0.0
        for index in range(len(a)):
            total += a[index] * b[index]
        return total

    return {
        _key(arithmetic.dot): dot,
        _key(arithmetic.numbers): numbers,
        _key(arithmetic.replaced): _written_out(found, _replaced, "rows, values"),
        _key(arithmetic.matvec): matvec,
        _key(arithmetic.times): _written_out(found, _products, "rows, vector"),
        _key(arithmetic.mapped): _written_out(found, _calls, "function, items, given"),
        _key(arithmetic.along): _unrolled(found, "s[{i}] + h * rates[{i}]", "s, h, rates"),
        _key(arithmetic.along_mean): _unrolled(found, MEAN, "s, h, a, b, c, d"),
        _key(arithmetic.scaled): _unrolled(found, "s[{i}] * f[{i}]", "s, f"),
        _key(arithmetic.first): _unrolled(found, "values[{i}]", "s, values"),
        _key(arithmetic.raised): _unrolled(found, "s[{i}] + by if place == {i} else s[{i}]", "s, place, by"),
        _key(arithmetic.all_nan): _unrolled(found, "nan", "s"),
    }


def _unrolled(found: Any, term: str, arguments: str) -> Any:
    """A function of a tuple ``s`` that gives ``term`` for each place in it."""
    return _written_out(found, lambda s, *others: [term.format(i=i) for i in range(len(s))], arguments)


def _replaced(rows: Any, values: Any) -> list[str]:
    """The terms of ``replaced``, from its types; how many numbers are new is known to the array only."""
    known = "values[{i}, {j}] if {j} < values.shape[1] else rows[{i}][{j}]"
    return [f"({', '.join(known.format(i=i, j=j) for j in range(len(row)))},)" for i, row in enumerate(rows)]


def _products(rows: Any, vector: Any) -> list[str]:
    """The terms of ``times``, from its types."""
    columns = range(len(vector))
    return [" + ".join(f"rows[{i}][{j}] * vector[{j}]" for j in columns) for i in range(len(rows))]


def _calls(function: Any, items: Any, given: Any) -> list[str]:
    """The terms of ``mapped``, from its types."""
    return [f"function(items[{i}], given)" for i in range(len(items))]


def _written_out(found: Any, terms: Callable[..., list[str]], arguments: str) -> Any:
    """A function that gives a tuple of ``terms``, which depend on the types of its arguments."""
    from numba.extending import overload

    def by_type(*given: Any) -> Any:
        raise NotImplementedError

    def text_of(*types: Any) -> Any:
        written = terms(*types)
        space: dict[str, Any] = {"nan": float("nan")}
        body = ", ".join(written) + ("," if written else "")
        exec(f"def of({arguments}):\n    return ({body})", space)
        return space["of"]

    names: dict[str, Any] = {"text_of": text_of}
    exec(f"def typed({arguments}):\n    return text_of({arguments})", names)
    overload(by_type)(names["typed"])
    call: dict[str, Any] = {"by_type": by_type}
    exec(f"def of({arguments}):\n    return by_type({arguments})", call)
    return found.njit(error_model="numpy")(call["of"])
