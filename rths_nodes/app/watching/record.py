# SPDX-License-Identifier: Apache-2.0
"""The record of a watcher: one JSON object a line, on the disk before the next one, and words at the terminal."""

from __future__ import annotations

import json
import os
import queue
import threading
from datetime import UTC, datetime
from pathlib import Path

from rths_nodes.core.errors import ConfigError, printable


class WatchRecord:
    """The file at ``path``, which is appended to, and the terminal, whose lines begin with ``name``.

    A thread of its own writes: no disk and no terminal keeps the pulse waiting. Raises ConfigError where the file
    cannot be written.
    """

    def __init__(self, path: Path, name: str) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"--record {path}: cannot be written ({error.strerror})") from None
        self._name, self.failed = name, ""
        self._rows: queue.SimpleQueue[dict[str, object] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="record", daemon=True)
        self._thread.start()

    def tell(self, event: str, words: str, **further: object) -> None:
        """Write one event, with the time of this computer (UTC), and print its words."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._rows.put({"time": now, "event": event, "words": words, **further})

    def _write(self) -> None:
        while (row := self._rows.get()) is not None:
            print(f"{self._name}: {printable(str(row['words']))}", flush=True)
            if self.failed:
                continue
            try:
                self._file.write(json.dumps(row) + "\n")
                self._file.flush()
                os.fsync(self._file.fileno())
            except OSError as error:
                self.failed = f"the record cannot be written any more: {error.strerror}"
                print(f"{self._name}: {self.failed}", flush=True)

    def close(self) -> None:
        self._rows.put(None)
        self._thread.join()
        self._file.close()
