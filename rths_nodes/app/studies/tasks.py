# SPDX-License-Identifier: Apache-2.0
"""Pieces of work, and what is said of them: words that all ways to work on them have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

R = TypeVar("R")
"""Result of a piece of work."""
Tell = Callable[[float], None]
"""Function by which a piece of work says which share of it is done, 0 to 1."""
Progress = Callable[[Sequence[float]], None]
"""Gets the shares of all pieces, now and then."""
Job = tuple[int, tuple[object, ...]]
"""Number of a piece of work, and the arguments of its function."""


@dataclass(frozen=True)
class Lost:
    """In place of a result: the processes that worked on a piece have ended, and why."""

    reason: str
