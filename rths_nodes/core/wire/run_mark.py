# SPDX-License-Identifier: Apache-2.0
"""Mark that tells the messages of one run from all others: the ``frame_id`` of their headers.

It has the same length in every run, so that the layout of a message stays constant, and stands at the same place
in every message: a node compares these bytes before it looks at anything else.
"""

from __future__ import annotations

import hashlib
import struct

from rths_nodes.core.errors import ConfigError

LENGTH = 23
"""Characters of the ``frame_id`` of a run: its field then ends where the numbers behind it begin."""
FIELD_AT = 12
"""Where the field of the ``frame_id`` begins in a message: behind encapsulation and stamp."""
FIELD_SIZE = 4 + LENGTH + 1
"""Bytes of that field: its length, the characters, and a zero."""
NO_RUN = struct.pack("<I", 1) + b"\0"
"""The field of a message whose sender does not know the run."""
_BEFORE = "rths_"


def frame_of(run_id: str, salt: str = "") -> str:
    """The ``frame_id`` of the messages of a run.

    With a ``salt`` of its own each time, a second run of the same name, or a replayed recording, has another one.
    """
    digest = hashlib.sha256(f"{run_id}\0{salt}".encode()).hexdigest()
    return _BEFORE + digest[: LENGTH - len(_BEFORE)]


class RunMark:
    """The mark of one run, as one node knows it. ``frame_id`` is empty until it is known.

    ``field`` are the bytes that stand at ``FIELD_AT`` of every message of the run; before it is known, those of no
    run.
    """

    def __init__(self, frame_id: str = "") -> None:
        self.frame_id, self.field = "", _field("-" * LENGTH)
        if frame_id:
            self.become(frame_id)

    def become(self, frame_id: str) -> None:
        """From now on the run is this one. Raises ConfigError for a ``frame_id`` that no run can have."""
        if len(frame_id) != LENGTH or not (frame_id.isascii() and frame_id.isprintable()):
            raise ConfigError(
                f"header.frame_id = {frame_id!r}: must be {LENGTH} printable ASCII characters, the same in all "
                "messages of a run"
            )
        self.frame_id, self.field = frame_id, _field(frame_id)

    def has_sent(self, data: bytes) -> bool:
        """True when ``data`` is a message of this run (about 0.1 us)."""
        return data.startswith(self.field, FIELD_AT)


def _field(frame_id: str) -> bytes:
    return struct.pack("<I", LENGTH + 1) + frame_id.encode() + b"\0"
