# SPDX-License-Identifier: Apache-2.0
"""Plain data as in YAML and JSON: files, messages, results of a test."""

from __future__ import annotations

from typing import Any, TypeAlias

Data: TypeAlias = dict[str, Any]
"""Numbers, texts, flags, lists and further Data by name; readers state their expectations."""
