# SPDX-License-Identifier: Apache-2.0
"""External text and array files, read with a size limit, and tables for export."""

from __future__ import annotations

import atexit
import codecs
import contextlib
import csv
import hashlib
import itertools
import math
import os
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from io import BytesIO
from itertools import zip_longest
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

LARGEST_TEXT = 4 << 20
"""Largest size of a YAML file, bytes. A rig model with a hundred states has 300 000 bytes."""
LARGEST = 256 << 20
"""Largest size of a file with histories, bytes."""


_NUMBERS = itertools.count()


class TooLarge(ValueError): ...


def size_of(count: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count} bytes"


def read_bytes(path: str | os.PathLike[str], most: int) -> bytes:
    """Return the contents of a file.

    Raises ValueError if the file is not regular or exceeds ``most`` bytes, and OSError if the file is unreadable.
    """
    return read_head(path, most, most)


def read_head(path: str | os.PathLike[str], count: int, most: float = math.inf) -> bytes:
    # without O_NONBLOCK opening a pipe or a device could block forever
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise ValueError("the path is a directory, but must be a file")
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("the path is not a regular file")
        if status.st_size > most:
            raise TooLarge(f"the file size is {size_of(status.st_size)}: must be <= {size_of(int(most))}")
        with open(descriptor, "rb", closefd=False) as stream:
            # reading no more than the file size cannot block: special files such as /proc/kmsg have the size 0
            return stream.read(min(count, status.st_size))
    finally:
        os.close(descriptor)


def encoding_of(head: bytes) -> str:
    return "utf-16" if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"


def read_arrays(content: bytes, most: int) -> dict[str, NDArray[np.generic]]:
    """Unpack the arrays of an npz file. Raises ValueError if they are damaged or exceed ``most`` bytes."""
    try:
        with zipfile.ZipFile(BytesIO(content)) as archive:
            unpacked = sum(part.file_size for part in archive.infolist())
        if unpacked > most:
            raise TooLarge(f"the file unpacks to {size_of(unpacked)}: must be <= {size_of(most)}")
        with np.load(BytesIO(content), allow_pickle=False) as parts:
            return {name: parts[name] for name in parts}
    except TooLarge:
        raise
    except Exception as error:  # zipfile and numpy have no class of exceptions for damaged files
        raise ValueError(f"the file is damaged: {type(error).__name__}: {error}") from None


def version_of(path: Path) -> tuple[int, int, int, int]:
    """Return inode, size and times of ``path``. Raises OSError if it is missing, ValueError if it is invalid."""
    now = path.stat()
    return now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns


def reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Yield the path of a new file, which replaces ``path`` at the end of the ``with`` block.

    The file at ``path`` is unchanged if an exception is raised. Devices and pipes are written directly.
    """
    if path.exists():
        path.open("ab").close()  # refuse a write-protected file
        if not path.is_file():
            yield path
            return
    path = Path(os.path.realpath(path))
    beside = path.with_name(f".{os.getpid()}.{next(_NUMBERS)}.{path.name}")
    try:
        yield beside
        with beside.open("rb") as stream:
            os.fsync(stream.fileno())
        if path.exists():
            shutil.copymode(path, beside)
        beside.replace(path)
    except OSError as error:
        if error.filename in (str(beside), beside):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    finally:
        with contextlib.suppress(OSError):
            beside.unlink()


def write(path: Path, content: bytes) -> None:
    """Atomically replace the file at ``path`` with ``content``. The file is unchanged if OSError is raised."""
    with replaced(path) as beside:
        beside.write_bytes(content)


def write_columns(columns: Mapping[str, Sequence[object]], path: Path) -> None:
    """Write named columns as CSV with all digits. NaN becomes an empty cell. Raises OSError if writing fails."""
    with replaced(path) as beside, beside.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(columns)
        for row in zip_longest(*columns.values(), fillvalue=""):
            writer.writerow(["" if isinstance(value, float) and math.isnan(value) else value for value in row])


def stored_columns(columns: Mapping[str, object]) -> str:
    """Write columns of numbers to a CSV file and return its path. The file is deleted when this process exits.

    Raises ValueError, with the columns' names, unless all columns contain numbers and have equal length.
    """
    values: dict[str, list[float]] = {}
    for name, column in columns.items():
        try:
            values[name] = np.asarray(column, np.float64).reshape(-1).tolist()
        except (TypeError, ValueError):
            raise ValueError(f".{name}: must be a list of numbers") from None
    if len({len(column) for column in values.values()}) != 1:
        lengths = ", ".join(f"{name} {len(column)}" for name, column in values.items())
        raise ValueError(f": columns must have equal length, and at least one number each ({lengths or 'none'})")
    digest = hashlib.sha256(repr(values).encode()).hexdigest()
    path = _temporary_folder() / f"columns_{digest[:16]}.csv"
    if not path.exists():
        write_columns(values, path)
    return str(path)


@cache
def _temporary_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="rths_columns_"))
    atexit.register(_remove, folder, os.getpid())
    return folder


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # a forked process must not delete the file
        shutil.rmtree(folder, ignore_errors=True)


def read_text(path: str | os.PathLike[str], most: int = LARGEST_TEXT) -> str:
    """Decode a UTF-8 or UTF-16 file. Raises the errors of :func:`read_bytes`, and ValueError for invalid text."""
    data = read_bytes(path, most)
    return data.decode(encoding_of(data))


def number_of(cell: str) -> float:
    """Convert ``cell`` to a float. Raises ValueError unless it is a decimal number; ``1_000`` is refused."""
    if "_" in cell:
        raise ValueError(f"could not convert string to float: {cell!r}")
    return float(cell)


def read_rows(path: str | os.PathLike[str]) -> list[list[float]]:
    """Return the numbers of a CSV file, row by row. Blank lines and comments (#) are skipped.

    Raises the errors of :func:`read_text`, and ValueError for an invalid number.
    """
    rows = []
    for number, line in enumerate(read_text(Path(path).expanduser()).splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            rows.append([number_of(cell) for cell in line.split(",")])
        except ValueError:
            raise ValueError(f"line {number}: {line.strip()[:40]!r} must be numbers separated by commas") from None
    if not rows:
        raise ValueError("the file contains no row of numbers")
    return rows
