"""What a look at the machine gives, and how files of the kernel are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

Look = tuple[Any, str, str]
"""Plain value, the same in words, advice (empty: none is needed)."""


def read(root: Path, name: str) -> str:
    """Text of a file under ``root``, stripped."""
    return (root / name).read_text(encoding="utf-8", errors="replace").strip()


def numbers_of_cpus(words: str) -> list[int]:
    """``0-2,5`` -> ``[0, 1, 2, 5]``."""
    found: list[int] = []
    for part in filter(None, words.split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found
