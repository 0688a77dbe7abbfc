# SPDX-License-Identifier: Apache-2.0
"""Answers that name each motion of a whole test."""

NAMED: dict[str, dict[str, str]] = {act: {"moves": "y"} for act in ("check", "position", "run", "unload")}
