# SPDX-License-Identifier: Apache-2.0
"""The state of a process that has not loaded a library of kernels yet."""

from __future__ import annotations

import pytest

from rths_nodes.codegen import building, elementary
from rths_nodes.loop.compiled import native


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget all loaded libraries, and the compiler."""
    monkeypatch.setattr(native, "_ways", {})
    monkeypatch.setattr(native, "_reported", set())
    building.first_of.cache_clear()
    elementary.check_elementary.cache_clear()
