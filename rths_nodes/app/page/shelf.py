# SPDX-License-Identifier: Apache-2.0
"""Recordings of a folder, newest first, and their reports."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

MOST = 50
"""Largest number of recordings."""
LARGEST_REPORT = 64 << 20
"""Bytes."""


class Shelf:
    """Reads ``folder`` at each request; follows no links in it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()

    def situation(self) -> dict[str, object]:
        """Return the folder, and each recording's name, time (s), and whether it has a report."""
        made = [
            {"name": name, "time": time, "report": self._report_of(name) is not None}
            for time, name in self._made()
        ]
        return {"folder": str(self._folder), "recordings": made}

    def report(self, name: str) -> bytes | None:
        """Return the report of the recording ``name``, or None."""
        if name not in {known for _, known in self._made()} or (path := self._report_of(name)) is None:
            return None
        with suppress(OSError):
            return _read(path)
        return None

    def _made(self) -> list[tuple[float, str]]:
        """Return time and name of each folder with a recording, or with the record of a test."""
        found = []
        try:
            children = list(self._folder.iterdir())
        except OSError:
            return []
        for child in children:
            marks = (child / "metadata.yaml", child / "procedure.yaml")
            if not child.name.startswith(".") and not child.is_symlink() and any(map(_is_file, marks)):
                found.append((child.stat().st_mtime, child.name))
        return sorted(found, reverse=True)[:MOST]

    def _report_of(self, name: str) -> Path | None:
        reports = self._folder / f"{name}.html", self._folder / name / "report.html"
        return next(filter(_is_file, reports), None)


def _is_file(path: Path) -> bool:
    """Return whether ``path`` is a file, and not a link to one."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def _read(path: Path) -> bytes | None:
    """Return the content of a report. Raises OSError if it, or its folder, is a link."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        number = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    finally:
        os.close(folder)
    with open(number, "rb") as file:
        about = os.fstat(number)
        return file.read() if stat.S_ISREG(about.st_mode) and about.st_size <= LARGEST_REPORT else None
