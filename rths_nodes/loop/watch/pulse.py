# SPDX-License-Identifier: Apache-2.0
"""The pulse of a watcher to an interlock: one small datagram, again and again, as long as all agrees.

Little-endian, 20 bytes; the checksum is CRC-32 (that of zlib and Ethernet) of all bytes before it. Whoever hears
it takes a pulse only where it is whole, of the session that it was begun with, and its counter has gone on; an
interlock opens where none came for the time that it allows, and stays open until somebody closes it.
"""

from __future__ import annotations

import secrets
import struct
import zlib

MAGIC, VERSION = 0x57485452, 1
"""The letters RTHW, and the version of this layout."""
LAYOUT = {
    "magic": ("I", "0x57485452, the letters RTHW"),
    "version": ("H", "of this layout: 1"),
    "period": ("H", "time between two pulses, in units of 0.1 ms"),
    "session": ("I", "number of the watcher's session, not 0; drawn anew at each start"),
    "counter": ("I", "of the pulses, from 1"),
}
"""Fields before the checksum: name -> type (as in ``struct``), meaning."""
BODY = struct.Struct("<" + "".join(kind for kind, _ in LAYOUT.values()))
CHECKSUM = struct.Struct("<I")
SIZE = BODY.size + CHECKSUM.size
PER_S = 1e4
"""Units of the field period in a second."""


class Pulses:
    """The datagrams of one session, with ``period`` (s) between them."""

    def __init__(self, period: float) -> None:
        self._period = round(period * PER_S)
        self._session = secrets.randbelow(2**32 - 1) + 1
        self.count = 0

    def next(self) -> bytes:
        self.count += 1
        body = BODY.pack(MAGIC, VERSION, self._period, self._session, self.count & 0xFFFFFFFF)
        return body + CHECKSUM.pack(zlib.crc32(body))


class PulseEar:
    """The interlock's side of the datagrams: ``closed`` while they come within ``patience`` (s), from the first.

    It opens for good where none came in time.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._session = self._counter = 0
        self._at = 0.0
        self.opened = False

    def hear(self, data: bytes, now: float) -> bool:
        """Take in what came at ``now`` (s); whether it was a pulse of the session."""
        if len(data) != SIZE or CHECKSUM.unpack_from(data, BODY.size)[0] != zlib.crc32(data[: BODY.size]):
            return False
        magic, version, _, session, counter = BODY.unpack_from(data)
        if (magic, version) != (MAGIC, VERSION) or not session or self.look(now):
            return False
        if self._session and (session != self._session or not 0 < (counter - self._counter) % 2**32 < 2**31):
            return False
        self._session, self._counter, self._at = session, counter, now
        return True

    def look(self, now: float) -> bool:
        """Return whether it is open for good at ``now`` (s)."""
        self.opened = self.opened or bool(self._session and now - self._at > self._patience)
        return self.opened

    def closed(self, now: float) -> bool:
        """Return whether the rig may move at ``now`` (s)."""
        return bool(self._session) and not self.look(now)
