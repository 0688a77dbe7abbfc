# SPDX-License-Identifier: Apache-2.0
"""Pulse of a watcher to an interlock: a small datagram, repeated while all agrees.

Little-endian, 20 bytes; the checksum is CRC-32 (zlib, Ethernet) of all bytes before it. A receiver accepts a pulse
only if it is intact, of its session, and its counter has increased; an interlock opens after its timeout, and
stays open until a person closes it.
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
"""Units of the field period per second."""


class Pulses:
    """Datagrams of one session, every ``period`` s."""

    def __init__(self, period: float) -> None:
        self._period = round(period * PER_S)
        self._session = secrets.randbelow(2**32 - 1) + 1
        self.count = 0

    def next(self) -> bytes:
        self.count += 1
        body = BODY.pack(MAGIC, VERSION, self._period, self._session, self.count & 0xFFFFFFFF)
        return body + CHECKSUM.pack(zlib.crc32(body))


class PulseEar:
    """Receiver of the pulses: ``closed`` while they arrive within ``patience`` (s), from the first.

    It opens permanently after a timeout.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._session = self._counter = 0
        self._at = 0.0
        self.opened = False

    def hear(self, data: bytes, now: float) -> bool:
        """Receive ``data`` at ``now`` (s); return whether it was a pulse of the session."""
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
        """Return whether it is permanently open at ``now`` (s)."""
        self.opened = self.opened or bool(self._session and now - self._at > self._patience)
        return self.opened

    def closed(self, now: float) -> bool:
        """Return whether the rig may move at ``now`` (s)."""
        return bool(self._session) and not self.look(now)
