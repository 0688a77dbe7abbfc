# SPDX-License-Identifier: Apache-2.0
"""Pieces of work for all engines. Other processes receive the components that the running program has added."""

from __future__ import annotations

import io
import linecache
import os
import pickle
import warnings
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from types import CodeType
from typing import ClassVar, TypeVar

from rths_nodes.core import registry

R = TypeVar("R")
Tell = Callable[[float], None]
Progress = Callable[[Sequence[float]], None]
Report = Callable[[float, float], None]
"""Function that receives completed and total work."""
Shown = Callable[[str], AbstractContextManager[Report]]
"""Function that returns, for a named piece of work, a context manager with its Report."""
Say = Callable[[Iterable[str]], None]
Job = tuple[int, tuple[object, ...]]
"""Number of a piece of work, and the arguments of its function."""


def warn(remarks: Iterable[str]) -> None:
    for remark in remarks:
        warnings.warn(remark, stacklevel=3)


@contextmanager
def silent(name: str) -> Iterator[Callable[[float, float], None]]:
    yield lambda done, total: None


def summed(report: Report) -> Progress:
    return lambda shares: report(sum(shares), len(shares))


@dataclass(frozen=True)
class Lost:
    reason: str


def _with(work: Callable[..., R], components: bytes, *arguments: object) -> R:
    _receive(components)
    return work(*arguments)


def _in_file(name: str, make: Callable[..., CodeType], arguments: tuple[object, ...]) -> CodeType:
    return make(*arguments).replace(co_filename=name)


def with_components(work: Callable[..., R]) -> Callable[..., R]:
    if not (components := registry.added()):
        return work
    try:
        import cloudpickle
    except ImportError:  # older versions of joblib include cloudpickle
        from joblib.externals import cloudpickle

    plain = cloudpickle.CloudPickler.dispatch_table

    def located(code: CodeType) -> tuple[object, ...]:
        """Pickle code with its file name, because the translation to C reads the file."""
        return _in_file, (code.co_filename, *plain[CodeType](code))

    class Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
        dispatch_table: ClassVar = ChainMap({CodeType: located}, plain)

    # a compiled kernel needs its source, which a notebook keeps only in memory
    files = {name: linecache.getlines(name) for name in list(linecache.cache) if not os.path.isfile(name)}
    packed = io.BytesIO()
    Pickler(packed).dump((components, files))
    return partial(_with, work, packed.getvalue())


@cache
def _receive(components: bytes) -> None:
    added, files = pickle.loads(components)
    for file, lines in files.items():
        linecache.cache[file] = sum(map(len, lines)), None, lines, file
    for family, component in added:
        registry.add(family, component)
