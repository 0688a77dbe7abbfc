# SPDX-License-Identifier: Apache-2.0
"""File of a procedure: ``procedure.yaml`` next to the recordings of its rungs, rewritten after every act.

The file is replaced atomically. Numbers are in SI units, times in ISO 8601 with their UTC offset. The last line
ends the YAML document (``...``); a truncated file lacks this line. During a procedure a locked file reserves
space, so that the end can be recorded on a full disk.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from pathlib import Path
from typing import NamedTuple

from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.procedure_record import ProcedureRecord, moves
from rths_nodes.recording import plain
from rths_nodes.recording.records import RecordingError, locked, reason

FILE = "procedure.yaml"
ROOM = f".{FILE}.room"
LEAST_ROOM = 1 << 18
"""Smallest reserved space, bytes. The space for a longer record is twice the size of the record."""
VERSION = 1
HEAD = (
    "# Record of this test, written by rths_nodes after every act. Do not edit.\n"
    "# Numbers are in SI units (m, N, s), by name of axis; times have their offset from UTC.\n"
)


def write(record: ProcedureRecord, folder: Path | str) -> Path:
    return RecordFile(folder).write(record, last=True)


class RecordFile:
    """File of one procedure in ``folder``, which it creates; thread-safe."""

    def __init__(self, folder: Path | str) -> None:
        self.path = Path(folder) / FILE
        self._lock = threading.Lock()
        self._room: int | None = None
        self._written = False

    def write(self, record: ProcedureRecord, last: bool = False) -> Path:
        """Write ``record`` atomically; return the path. The ``last`` write uses the reserved space.

        Raises ConfigError if the first write fails, and RecordingError later. The old file is then unchanged.
        """
        with self._lock:
            try:
                if self._written and not last and not self.path.parent.is_dir():
                    raise FileNotFoundError(0, "its folder no longer exists")
                self.path.parent.mkdir(parents=True, exist_ok=True)
                text = plain.text_of(record, VERSION, HEAD)
                if last:
                    self._give_room()
                plain.write(self.path, text)
                if not last:
                    self._keep_room(2 * len(text))
            except OSError as error:
                problem = f"{self.path}: the record of the procedure cannot be written ({reason(error)})"
                raise (RecordingError if self._written else ConfigError)(problem) from error
            self._written = True
            return self.path

    def _keep_room(self, size: int) -> None:
        """Reserve space. The first reservation must succeed; if a later one fails, the last write reports it."""
        if self._room is None:
            self._room = os.open(self.path.with_name(ROOM), os.O_RDWR | os.O_CREAT, 0o644)
            with contextlib.suppress(OSError):  # some file systems do not support locks
                fcntl.flock(self._room, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.posix_fallocate(self._room, 0, LEAST_ROOM)
        elif os.fstat(self._room).st_size < size:
            with contextlib.suppress(OSError):
                os.posix_fallocate(self._room, 0, size)

    def _give_room(self) -> None:
        with contextlib.suppress(OSError):
            self.path.with_name(ROOM).unlink()
        if self._room is not None:
            os.close(self._room)
            self._room = None


def under_way(folder: Path | str) -> bool:
    try:
        with (Path(folder) / ROOM).open("rb") as stream:
            return locked(stream)
    except OSError:  # no space is reserved
        return False


def exists(folder: Path | str) -> bool:
    return os.path.isfile(Path(folder) / FILE)  # Path.exists raises OSError if the name is too long


class OfProcedure(NamedTuple):
    record: ProcedureRecord
    folder: str = ""


def of_recording(path: Path | str) -> OfProcedure | None:
    """Return the procedure of the recording at ``path``, or None. Raises the errors of :func:`read`."""
    recording = Path(path).resolve()
    folder = recording if recording.is_dir() else recording.parent
    return OfProcedure(read(folder.parent), folder.name) if exists(folder.parent) else None


def last_moving(folder: Path | str) -> Path | None:
    """Return the recording of the last rung in ``folder`` that moved the rig or, if none did, of the last rung.

    Return None if the test ended before any motion, because the result of a simulator is not the result of the
    test.
    """
    folder = Path(folder)
    record = read(folder)
    recorded = [rung for rung in record.rungs if rung.recording and (folder / rung.recording).is_dir()]
    moved = [rung for rung in recorded if moves(rung.name)]
    shown = moved or (recorded if record.outcome == "finished" else [])
    return folder / shown[-1].recording if shown else None


def read(folder: Path | str) -> ProcedureRecord:
    return plain.read(ProcedureRecord, Path(folder) / FILE, VERSION)
