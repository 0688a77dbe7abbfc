# SPDX-License-Identifier: Apache-2.0
"""Type of the fixtures ``output`` and ``refusal``."""

from __future__ import annotations

from collections.abc import Callable

RunCommand = Callable[..., str]
"""Runs a command with its arguments and returns the printed text."""
