# SPDX-License-Identifier: Apache-2.0
"""The compiled form of kernels, by numba (an extra of this package), from the same text as the plain one.

numba compiles a function that calls compiled functions only. So every kernel is copied with the functions that it
names, in its module or its closure, replaced by their compiled forms, from the innermost one out. The few whose
plain form leans on numpy or on comprehensions have a compiled form of their own here, equal to the bit.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import CellType, FunctionType, ModuleType
from typing import Any

import numpy as np

from rths_nodes.core import arithmetic
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Array
from rths_nodes.loop.compiled.pure import identity, is_kernel, named

MEAN = "s[{i}] + h / 6.0 * (a[{i}] + 2.0 * (b[{i}] + c[{i}]) + d[{i}])"
IN_LINE = {"forceinline": True}
"""Options of the kernels of a loop: constants and states are then not handed over number by number."""
BARE = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""Options of a function that only compiled ones call, which takes half of the time to compile."""
WRITTEN_OUT = 300
"""Products of a matrix and a tuple up to which each has a line of its own: half of the time, longer to compile."""
_made: dict[object, object] = {}


def numba() -> ModuleType:
    """The module numba. Raises ConfigError where it is not installed."""
    os.environ.setdefault("NUMBA_DISABLE_INTEL_SVML", "1")  # other bits than those of the C library
    os.environ.setdefault("NUMBA_SLP_VECTORIZE", "1")  # sums side by side: the same bits
    try:
        import numba as found
    except ImportError as error:
        raise ConfigError("numba: is not installed: pip install numba") from error
    return found


def versions() -> tuple[object, ...]:
    """Versions of the compiler, and the processor that it works for."""
    from llvmlite import binding  # type: ignore[import-untyped]

    return numba().__version__, binding.llvm_version_info, binding.get_host_cpu_name(), _features(binding)


def _features(binding: ModuleType) -> str:
    try:
        return str(binding.get_host_cpu_features().flatten())
    except RuntimeError:  # the processor does not tell
        return ""


def begin() -> None:
    """Read what compiling and loading need alike, before a child is forked to compile and this process loads."""
    numba().njit(lambda: 0, no_cfunc_wrapper=True).compile(())


def compiled(kernel: Callable[..., object], inner: bool = False, in_line: bool = True) -> object:
    """The compiled form of a kernel's function: the same bits. Raises ConfigError where numba is missing.

    An ``inner`` one is part of a loop: only compiled functions can call it. It stands there ``in_line`` unless it
    computes with arrays at length, which takes a compiler ten times as long and saves nothing.
    """
    if not _made:
        _made.update(_own_forms())
    options = IN_LINE if inner and in_line else {}
    return _compiled(kernel, BARE | options if inner else {}, options)


def _compiled(kernel: Callable[..., object], own: dict[str, bool], of_all: dict[str, bool]) -> object:
    """With options of its ``own``, and ``of_all`` that it calls."""
    name = identity(kernel)
    own_form = _made.get(name)
    if own and own_form:
        return own_form
    key = name, *own, *of_all
    if key not in _made:
        text = _called(own_form) if own_form else _with_compiled(kernel, of_all)
        _made[key] = numba().njit(error_model="numpy", **own)(text)
    return _made[key]


def _called(form: Any) -> Callable[..., object]:
    return lambda *given: form(*given)


def _with_compiled(function: Any, options: dict[str, bool]) -> FunctionType:
    """A copy of ``function`` that calls compiled functions."""
    code = function.__code__
    names = {name: value for name, value in function.__globals__.items() if name in named(code)}
    names = {name: _form(value, options) for name, value in names.items()}
    cells = tuple(CellType(_form(cell.cell_contents, options)) for cell in function.__closure__ or ())
    copy = FunctionType(code, names | {"__builtins__": __builtins__}, function.__name__, None, cells)
    copy.__defaults__, copy.__module__ = function.__defaults__, function.__module__
    return copy


def _form(value: Any, options: dict[str, bool]) -> object:
    return _compiled(value, BARE | options, options) if is_kernel(value) else value


def _own_forms() -> dict[object, object]:
    """Compiled forms of what is not compiled from its plain text."""
    found = numba()

    @found.njit(error_model="numpy", **BARE)  # type: ignore[untyped-decorator]
    def matvec_into(array: Array, matrix: Array, vector: Array) -> None:
        rows, columns = matrix.shape
        for row in range(rows):
            array[row] = matrix[row, 0] * vector[0]
        for column in range(1, columns):  # so the inner loop is one over numbers that lie side by side
            for row in range(rows):
                array[row] += matrix[row, column] * vector[column]

    @found.njit(error_model="numpy", **BARE)  # type: ignore[untyped-decorator]
    def matvec(matrix: Array, vector: Array) -> Array:
        result = np.empty(len(matrix))
        matvec_into(result, matrix, vector)
        return result

    @found.njit(error_model="numpy", **BARE)  # type: ignore[untyped-decorator]
    def numbers(vector: Array) -> Array:
        return vector

    @found.njit(error_model="numpy", **BARE)  # type: ignore[untyped-decorator]
    def dot(a: Array, b: Array) -> float:
        total = 0.0
        for index in range(len(a)):
            total += a[index] * b[index]
        return total

    @found.njit(error_model="numpy", **BARE)  # type: ignore[untyped-decorator]
    def put(array: Array, first: int, values: Array) -> None:
        for index in range(len(values)):
            array[first + index] = values[index]

    return {
        identity(arithmetic.put): put,
        identity(arithmetic.record): _written_out(found, _nothing, "table, first, values", _stored),
        identity(arithmetic.dot): dot,
        identity(arithmetic.numbers): numbers,
        identity(arithmetic.replaced): _written_out(found, _replaced, "rows, values"),
        identity(arithmetic.matvec): matvec,
        identity(arithmetic.matvec_into): matvec_into,
        identity(arithmetic.groups): _written_out(found, _grouped, "like, matrix, vector", _summed),
        identity(arithmetic.times): _written_out(found, _products, "rows, vector"),
        identity(arithmetic.mapped): _written_out(found, _calls, "function, items, given"),
        identity(arithmetic.along): _unrolled(found, "s[{i}] + h * rates[{i}]", "s, h, rates"),
        identity(arithmetic.along_mean): _unrolled(found, MEAN, "s, h, a, b, c, d"),
        identity(arithmetic.slopes): _unrolled(found, "(s[{i}] - before[{i}]) / dt", "s, before, dt"),
        identity(arithmetic.interleaved): _unrolled(found, "s[{i}], others[{i}]", "s, others"),
        identity(arithmetic.scaled): _unrolled(found, "s[{i}] * f[{i}]", "s, f"),
        identity(arithmetic.first): _unrolled(found, "values[{i}]", "s, values"),
        identity(arithmetic.raised): _unrolled(found, "s[{i}] + by if place == {i} else s[{i}]", "s, place, by"),
        identity(arithmetic.all_nan): _unrolled(found, "nan", "s"),
    }


def _unrolled(found: object, term: str, arguments: str) -> object:
    """A function of a tuple ``s`` that gives ``term`` for each place in it."""
    return _written_out(found, lambda s, *others: [term.format(i=i) for i in range(len(s))], arguments)


def _replaced(rows: Any, values: object) -> list[str]:
    """The terms of ``replaced``, from its types; how many numbers are new is known to the array only."""
    known = "values[{i}, {j}] if {j} < values.shape[1] else rows[{i}][{j}]"
    return [f"({', '.join(known.format(i=i, j=j) for j in range(len(row)))},)" for i, row in enumerate(rows)]


def _summed(like: Any, matrix: object, vector: object) -> list[str]:
    """The sums of ``groups``, from its types: all side by side, from the first column to the last."""
    places, count = range(sum(map(len, like))), len(vector) if isinstance(vector, numba().types.BaseTuple) else 0
    copied = count * len(places) > WRITTEN_OUT  # a loop over a tuple asks at each place which number stands there
    term = "matrix[{0}, {1}] * " + ("known" if copied else "vector") + "[{1}]"
    begin = [f"s{row} = {term.format(row, 0)}" for row in places]
    if count and not copied:
        return begin + [f"s{row} += {term.format(row, column)}" for column in range(1, count) for row in places]
    if copied:
        begin = [
            f"known = np.empty({count})",
            *(f"known[{each}] = vector[{each}]" for each in range(count)),
            *begin,
        ]
    onward = [f"    s{row} += {term.format(row, 'column')}" for row in places]
    return [*begin, "for column in range(1, matrix.shape[1]):", *onward]


def _grouped(like: Any, matrix: object, vector: object) -> list[str]:
    n = len(like[0])
    return [f"({', '.join(f's{first + row}' for row in range(n))},)" for first in range(0, n * len(like), n)]


def _products(rows: Any, vector: Any) -> list[str]:
    columns = range(len(vector))
    return [" + ".join(f"rows[{i}][{j}] * vector[{j}]" for j in columns) for i in range(len(rows))]


def _calls(function: object, items: Any, given: object) -> list[str]:
    return [f"function(items[{i}], given)" for i in range(len(items))]


def _stored(table: object, first: object, values: object) -> list[str]:
    if not isinstance(values, numba().types.BaseTuple):
        return ["for index in range(len(values)):", "    table[first + index] = values[index]"]
    return [f"table[first + {index}] = values[{index}]" for index in range(len(values))]


def _nothing(*types: object) -> list[str]:
    return []


def _written_out(
    found: Any, terms: Callable[..., list[str]], arguments: str, before: Callable[..., list[str]] = _nothing
) -> object:
    """A function that gives a tuple of ``terms``; they and the lines ``before`` depend on the types given."""
    from numba.extending import overload

    def by_type(*given: object) -> object:
        raise NotImplementedError

    def text_of(*types: object) -> object:
        written = terms(*types)
        space: dict[str, object] = {"nan": float("nan"), "np": np, "__name__": __name__}
        body = ", ".join(written) + ("," if written else "")
        lines = "".join(f"    {line}\n" for line in before(*types))
        exec(f"def of({arguments}):\n{lines}    return ({body})", space)
        return space["of"]

    names: dict[str, Any] = {"text_of": text_of, "__name__": __name__}
    exec(f"def typed({arguments}):\n    return text_of({arguments})", names)
    overload(by_type)(names["typed"])
    call: dict[str, object] = {"by_type": by_type, "__name__": __name__}
    exec(f"def of({arguments}):\n    return by_type({arguments})", call)
    return found.njit(error_model="numpy", **BARE)(call["of"])
