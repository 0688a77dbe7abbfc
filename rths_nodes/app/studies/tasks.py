# SPDX-License-Identifier: Apache-2.0
"""Types of pieces of work, shared by all engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

R = TypeVar("R")
Tell = Callable[[float], None]
"""Function by which a piece of work reports its share done, 0 to 1."""
Progress = Callable[[Sequence[float]], None]
"""Gets the shares of all pieces regularly."""
Job = tuple[int, tuple[object, ...]]
"""Number of a piece of work, and the arguments of its function."""


@dataclass(frozen=True)
class Lost:
    """Replaces a result: the processes of a piece have ended, and why."""

    reason: str
