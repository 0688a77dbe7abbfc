# SPDX-License-Identifier: Apache-2.0
"""Journal of a study: one line per finished run, written at once.

The next start drops an incomplete last line. Each line ends with a checksum (CRC-32). A damaged line is refused,
because the table would not show the damage. Lines without checksums, from earlier versions, are accepted.
"""

from __future__ import annotations

import fcntl
import json
import os
import zlib
from pathlib import Path

from rths_nodes.app.studies.runs import Findings
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError, Problems

NAME = "runs.jsonl"
_SUM = b',"crc32":"'
"""Text between a line and its checksum of eight hexadecimal digits."""


class Journal:
    """Results in ``folder`` by key; only one process may write. Raises ConfigError and OSError."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / NAME
        self._file = self.path.open("a+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise ConfigError(f"{folder}: another study writes to this folder") from None
        self.results: dict[str, Data] = {}
        self._read()

    def _read(self) -> None:
        self._file.seek(0)
        complete, ours, problems = 0, False, Problems()
        for number, line in enumerate(self._file, 1):
            if not line.endswith(b"\n"):
                break
            ours = ours or _SUM in line
            try:
                key, result = _entry(line)
                self.results[key] = result
            except ConfigError as error:
                problems += error.within(f"{self.path}, line {number}").problems
            complete += len(line)
        if problems:
            self._file.close()
            if not (ours or self.results):
                raise ConfigError(f"{self.path}: is not the journal of a study; use another folder")
            problems.refuse()
        self._file.truncate(complete)
        self._file.seek(0, os.SEEK_END)

    def add(self, key: str, result: dict[str, object]) -> None:
        body = json.dumps({"key": key, "result": result}, separators=(",", ":")).encode()[:-1]
        self._file.write(body + _SUM + _crc(body) + b'"}\n')
        self._file.flush()
        self.results[key] = result

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _crc(body: bytes) -> bytes:
    return b"%08x" % zlib.crc32(body)


def _entry(line: bytes) -> tuple[str, dict[str, object]]:
    body, sign, digest = line.rpartition(_SUM)
    if sign and digest != _crc(body) + b'"}\n':
        raise _damaged("the check sum does not match")
    try:
        entry = json.loads(body + b"}" if sign else line)
        if set(entry) != {"key", "result"}:
            raise ValueError("not these two")
        Findings(**entry["result"])
        return str(entry["key"]), entry["result"]
    except (ValueError, TypeError):
        raise _damaged("the line is not the result of a run") from None


def _damaged(why: str) -> ConfigError:
    return ConfigError(f"is damaged: {why}; delete the line to repeat its run")
