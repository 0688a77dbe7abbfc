# SPDX-License-Identifier: Apache-2.0
"""Pieces of work, shared by all engines; components of the running program go to other processes with them."""

from __future__ import annotations

import linecache
import os
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from rths_nodes.core import registry

R = TypeVar("R")
Tell = Callable[[float], None]
"""Function by which a piece of work reports its share done, 0 to 1."""
Progress = Callable[[Sequence[float]], None]
"""Gets the shares of all pieces regularly."""
Job = tuple[int, tuple[object, ...]]
"""Number of a piece of work, and the arguments of its function."""


@dataclass(frozen=True)
class Lost:
    """Replaces a result: the processes of a piece have ended, and why."""

    reason: str


@dataclass(frozen=True)
class WithComponents:
    """Does ``work`` after adding the components of the caller's program to this process."""

    work: Callable[..., object]
    components: bytes

    def __call__(self, *arguments: object) -> object:
        _receive(self.components)
        return self.work(*arguments)


def with_components(work: Callable[..., R]) -> Callable[..., R]:
    """Return ``work`` for other processes; with the components that the running program has added, if any."""
    if not (components := registry.added()):
        return work
    from joblib.externals import cloudpickle

    # a compiled kernel needs its source, which a notebook has in memory only
    files = {name: linecache.getlines(name) for name in list(linecache.cache) if not os.path.isfile(name)}
    return WithComponents(work, cloudpickle.dumps((components, files)))  # type: ignore[return-value]


@cache
def _receive(components: bytes) -> None:
    added, files = pickle.loads(components)
    for file, lines in files.items():
        linecache.cache[file] = sum(map(len, lines)), None, lines, file
    for family, component in added:
        registry.add(family, component)
