# SPDX-License-Identifier: Apache-2.0
"""Tests that need a C compiler: skipped without one."""

from __future__ import annotations

import shutil

import pytest

AVAILABLE = any(map(shutil.which, ("cc", "gcc", "clang")))
REASON = "no C compiler here"
needs_compiler = pytest.mark.skipif(not AVAILABLE, reason=REASON)


def require_compiler() -> None:
    """Skip the module that calls this function at its top level."""
    if not AVAILABLE:
        pytest.skip(REASON, allow_module_level=True)
