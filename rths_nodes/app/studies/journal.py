"""What of a study is done: a line for each finished run, kept the moment that it is there.

Whoever kills the study loses the runs under way and no more: the next one reads the journal, drops a line that was
not written to its end, and goes on.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

from rths_nodes.core.errors import ConfigError

NAME = "runs.jsonl"


class Journal:
    """The results in ``folder`` by their keys; one process writes there at a time. Raises ConfigError, OSError."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / NAME
        self._file = self.path.open("a+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise ConfigError(f"{folder}: another study writes there") from None
        self.results: dict[str, dict[str, Any]] = {}
        self._read()

    def _read(self) -> None:
        self._file.seek(0)
        whole = 0
        for line in self._file:
            if not line.endswith(b"\n"):
                break
            try:
                entry = json.loads(line)
                self.results[entry["key"]] = entry["result"]
            except (ValueError, KeyError, TypeError):
                self._file.close()
                raise ConfigError(f"{self.path}: is no journal of a study; give another folder") from None
            whole += len(line)
        self._file.truncate(whole)
        self._file.seek(0, os.SEEK_END)

    def add(self, key: str, result: dict[str, Any]) -> None:
        """Keep the result of a finished run."""
        self._file.write(json.dumps({"key": key, "result": result}, separators=(",", ":")).encode() + b"\n")
        self._file.flush()
        self.results[key] = result

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
