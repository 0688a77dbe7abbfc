# SPDX-License-Identifier: Apache-2.0
"""Fixtures of this folder."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from rths_nodes.core import registry

Register = Callable[..., None]


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Iterator[Register]:
    """Adds a class as another package would: ``register("compensator", cls)``, by the name ``mine``."""

    def forget() -> None:
        registry._table.cache_clear()
        registry._load.cache_clear()

    def register(family: str, cls: type, place: str = "some_laboratory:Mine") -> None:
        module = types.ModuleType("some_laboratory")
        module.Mine = cls  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "some_laboratory", module)
        points = EntryPoints([EntryPoint("mine", place, f"rths_nodes.{family}")])
        monkeypatch.setattr(registry, "_entry_points", lambda: points)
        forget()

    yield register
    monkeypatch.undo()
    forget()
