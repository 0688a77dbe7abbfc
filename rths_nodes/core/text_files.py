"""Text files that somebody hands in: read whole, and therefore bounded in size."""

from __future__ import annotations

import os
from pathlib import Path

LARGEST_TEXT = 4 << 20
"""Bytes of a YAML file: a scenario has some thousand, the model of a rig with a hundred states 300 000."""


def size_of(count: int) -> str:
    """Bytes as people read them: ``4 MiB``."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count} bytes"


def read_bytes(path: str | os.PathLike[str], most: int) -> bytes:
    """All bytes of a file. Raises OSError, and ValueError for one that is not regular or larger than ``most``."""
    path = Path(path)
    if path.is_dir():
        raise ValueError("is a directory, must be a file")
    if path.exists() and not path.is_file():  # a pipe or device could keep us waiting for ever
        raise ValueError("is not a regular file")
    with path.open("rb") as stream:
        data = stream.read(most + 1)
    if len(data) > most:
        raise ValueError(f"is larger than {size_of(most)}")
    return data


def read_text(path: str | os.PathLike[str], most: int = LARGEST_TEXT) -> str:
    """A file as text (UTF-8). Raises what :func:`read_bytes` does, and ValueError where it is not text."""
    return read_bytes(path, most).decode()
