# SPDX-License-Identifier: Apache-2.0
"""The place on the disk of compiled loops: one module for each, and what numba has made of it beside it.

A name has two keys: that of the text, and behind it one of everything else that decides what is made of it. Once
it is old, what had the same text and another key is removed. Numba writes beside a module whatever it compiles
from it; the sums of these files tell whether they are still what was written.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

NAME = "rths_nodes"
OLD_S = 7 * 86_400.0
"""Age at which what has the same text and another key is removed: another version may run beside this one."""


def place() -> Path:
    """The folder, which need not be there: below ``XDG_CACHE_HOME``, or ``.cache`` in the home of the user."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / NAME / "loops"


class Module:
    """The module ``text`` in a folder; ``key`` is of all that decides what is made of it beside the text."""

    def __init__(self, text: str, key: str) -> None:
        self._folder, self._text = place(), text
        self._of_text = f"loop_{hashlib.sha256(text.encode()).hexdigest()[:12]}"
        self.name = f"{self._of_text}_{key[:16]}"
        self.path = self._folder / f"{self.name}.py"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nobody else works on it: who comes second finds what the first one has made. Raises OSError."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / f"{self.name}.lock").open("w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def whole(self) -> bool:
        """Return whether the module and what was made beside it stand there as they were written."""
        sums = self._sums()
        return bool(sums) and sums == self._known() and self._text == self._read()

    def finished(self) -> bool:
        """Return whether it was made to its end once; where somebody is interrupted it is not."""
        return bool(self._known())

    def write(self) -> None:
        """It stands there, and nothing beside it. Raises OSError."""
        self.remove()
        self._remove_old()
        new = self.path.with_suffix(f".{os.getpid()}")
        new.write_text(self._text, encoding="utf-8")
        new.replace(self.path)

    def close(self) -> None:
        """Write check sums of what was made beside the module, which is whole now. Raises OSError."""
        new = self._sums_file.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps(self._sums()), encoding="utf-8")
        new.replace(self._sums_file)

    def remove(self) -> None:
        """It, and all beside it. Raises OSError."""
        for path in (self.path, self._sums_file, *self._made()):
            path.unlink(missing_ok=True)

    @property
    def _sums_file(self) -> Path:
        return self._folder / f"{self.name}.sums"

    def _read(self) -> str:
        try:
            return self.path.read_text(encoding="utf-8")
        except (OSError, ValueError):
            return ""

    def _made(self) -> list[Path]:
        return sorted((self._folder / "__pycache__").glob(f"{self.name}.run-*"))

    def _sums(self) -> dict[str, str]:
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in self._made()}

    def _known(self) -> dict[str, str]:
        try:
            found: dict[str, str] = json.loads(self._sums_file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found

    def _remove_old(self) -> None:
        for path in [*self._folder.glob(f"{self._of_text}_*"), *(self._folder / "__pycache__").glob("loop_*")]:
            mine = path.name.startswith(self._of_text) and not path.name.startswith(self.name)
            with suppress(OSError):
                if mine and time.time() - path.stat().st_mtime > OLD_S:
                    path.unlink()
