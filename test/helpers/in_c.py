# SPDX-License-Identifier: Apache-2.0
"""Functions in C, for arguments of one form, and a process that has not loaded a library of kernels yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rths_nodes.codegen import building
from rths_nodes.codegen.building import toolchain
from rths_nodes.codegen.calling import entry_values, loaded
from rths_nodes.loop.compiled import running


def compiled(function: Any, arguments: Sequence[object], fixed: Sequence[bool]) -> Callable[..., Any]:
    """Return a function in C; the integers of ``fixed`` arguments are part of its text.

    >>> def step(k, s, x):
    ...     decay, gain = k
    ...     return (decay * s[0] + gain * x,), s[0]
    >>> compiled(step, ((0.5, 2.0), (1.0,), 3.0), (True, False, False))((0.5, 2.0), (1.0,), 3.0)
    ((6.5,), 1.0)
    """
    values = entry_values((argument, part, True) for argument, part in zip(arguments, fixed, strict=True))
    return loaded(function, values, toolchain())[0]


def defined(text: str, source: Path, **names: Any) -> dict[str, Any]:
    """Write a module with ``text`` and run it; return its names."""
    source.parent.mkdir(exist_ok=True)
    source.write_text(text, encoding="utf-8")
    namespace: dict[str, Any] = {"__name__": "rths_nodes.example", **names}
    exec(compile(text, str(source), "exec"), namespace)
    return namespace


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget all loaded libraries, and the compiler."""
    monkeypatch.setattr(running, "_ways", {})
    monkeypatch.setattr(running, "_reported", set())
    building.first_of.cache_clear()
    building.check_elementary.cache_clear()
