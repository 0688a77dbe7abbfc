# SPDX-License-Identifier: Apache-2.0
"""Mark of the messages of one run: the ``frame_id`` of their headers.

It has constant length and position, so that layouts are constant and a node compares these bytes first.
"""

from __future__ import annotations

import hashlib
import struct

from rths_nodes.core.errors import ConfigError

LENGTH = 23
"""Characters of a run's ``frame_id``, so that its field ends where numbers are aligned."""
FIELD_AT = 12
"""Offset of the ``frame_id`` field in a message: after encapsulation and stamp."""
FIELD_SIZE = 4 + LENGTH + 1
"""Bytes of that field: length, characters, and a zero."""
NO_RUN = struct.pack("<I", 1) + b"\0"
"""Field of a message whose sender does not know the run."""
_BEFORE = "rths_"


def frame_of(run_id: str, salt: str = "") -> str:
    """Return the ``frame_id`` of a run; a ``salt`` distinguishes replays and runs of the same name."""
    digest = hashlib.sha256(f"{run_id}\0{salt}".encode()).hexdigest()
    return _BEFORE + digest[: LENGTH - len(_BEFORE)]


class RunMark:
    """Mark of one run, as known to a node; ``frame_id`` is empty while unknown.

    ``field`` are the bytes at ``FIELD_AT`` of every message of the run, or of no run.
    """

    def __init__(self, frame_id: str = "") -> None:
        self.frame_id, self.field = "", _field("-" * LENGTH)
        if frame_id:
            self.become(frame_id)

    def become(self, frame_id: str) -> None:
        """Set the run. Raises ConfigError for an impossible ``frame_id``."""
        if len(frame_id) != LENGTH or not (frame_id.isascii() and frame_id.isprintable()):
            raise ConfigError(
                f"header.frame_id = {frame_id!r}: must be {LENGTH} printable ASCII characters, the same in all "
                "messages of a run"
            )
        self.frame_id, self.field = frame_id, _field(frame_id)

    def has_sent(self, data: bytes) -> bool:
        """Return whether ``data`` is a message of this run (about 0.1 us)."""
        return data.startswith(self.field, FIELD_AT)


def _field(frame_id: str) -> bytes:
    return struct.pack("<I", LENGTH + 1) + frame_id.encode() + b"\0"
