# SPDX-License-Identifier: Apache-2.0
"""Mark of the messages of one run: their field ``run``, after a header with an empty ``frame_id``.

It has constant length and position, so that layouts are constant and a node compares these bytes first.
"""

from __future__ import annotations

import hashlib
import struct

from rths_nodes.core.errors import ConfigError

LENGTH = 23
"""Characters of a mark, so that its field ends where numbers are aligned."""
FIELD_AT = 20
"""Offset of the field in a message: after encapsulation, stamp, and empty ``frame_id`` with any padding."""
FIELD_SIZE = 4 + LENGTH + 1
"""Bytes of that field: length, characters, and a zero."""
NO_RUN = struct.pack("<I", 1) + b"\0"
"""Field of a message whose sender does not know the run."""
_BEFORE = "rths_"


def mark_of(run_id: str, salt: str = "") -> str:
    """Return the mark of a run; a ``salt`` distinguishes replays and runs of the same name."""
    digest = hashlib.sha256(f"{run_id}\0{salt}".encode()).hexdigest()
    return _BEFORE + digest[: LENGTH - len(_BEFORE)]


class RunMark:
    """Run, as known to a node; its ``mark`` is empty while unknown.

    ``field`` are the bytes at ``FIELD_AT`` of every message of the run, or of no run.
    """

    def __init__(self, mark: str = "") -> None:
        self.mark, self.field = "", _field("-" * LENGTH)
        if mark:
            self.become(mark)

    def become(self, mark: str) -> None:
        """Set the run. Raises ConfigError for an impossible ``mark``."""
        if len(mark) != LENGTH or not (mark.isascii() and mark.isprintable()):
            raise ConfigError(
                f"run = {mark!r}: must be {LENGTH} printable ASCII characters, the same in all messages of a run"
            )
        self.mark, self.field = mark, _field(mark)

    def has_sent(self, data: bytes) -> bool:
        """Return whether ``data`` is a message of this run (about 0.1 us)."""
        return data.startswith(self.field, FIELD_AT)


def _field(mark: str) -> bytes:
    return struct.pack("<I", LENGTH + 1) + mark.encode() + b"\0"
