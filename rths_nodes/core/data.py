# SPDX-License-Identifier: Apache-2.0
"""Data as YAML and JSON hold it, in a file, in a message, in what is told of a test."""

from __future__ import annotations

from typing import Any, TypeAlias

Data: TypeAlias = dict[str, Any]
"""Numbers, texts, flags, lists and further Data by name; who reads it says what it expects."""
