# SPDX-License-Identifier: Apache-2.0
"""The state of a process that has not loaded a library of kernels yet."""

from __future__ import annotations

import pytest

from rths_nodes.codegen import building
from rths_nodes.loop.compiled import native


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget all loaded libraries, and the compiler."""
    monkeypatch.setattr(native, "_ways", {})
    monkeypatch.setattr(native, "_reported", set())
    building.first_of.cache_clear()
    building.check_elementary.cache_clear()
