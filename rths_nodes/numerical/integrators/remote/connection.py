# SPDX-License-Identifier: Apache-2.0
"""The socket of a remote client: one client, bounded waiting, complete messages only."""

from __future__ import annotations

import select
import socket
import sys
import time
from contextlib import suppress

from rths_nodes.core.errors import ConfigError, IntegratorError

WHOLE_S = 2.0
"""s; longest time of a message from its first byte to its last, and of sending an answer."""

LOOK_S = 0.2
"""s; interval of looking at the clock while waiting."""

QUICKACK = socket.TCP_QUICKACK if sys.platform == "linux" else None
"""The client uses Nagle's algorithm: unless each segment is acknowledged at once, a step takes 44 ms."""


class ConnectionEnded(IntegratorError):
    """The client has closed the connection, with ``missing`` bytes of a message to come (0: between two)."""

    def __init__(self, missing: int) -> None:
        super().__init__("the client has closed the connection" + (" within a message" if missing else ""))
        self.missing = missing


class Connection:
    """Listens on ``address`` and ``port`` (0: chosen by the system), and accepts a single client."""

    def __init__(self, address: str, port: int) -> None:
        self._address, self.port = address, port
        self._listener: socket.socket | None = None
        self._client: socket.socket | None = None
        self._buffer = bytearray()
        self._began = 0.0

    @property
    def place(self) -> str:
        return f"{self._address} port {self.port}"

    def listen(self) -> None:
        """Start listening. Raises ConfigError if that fails."""
        address, port = self._address, self.port
        try:
            self._listener = socket.create_server((address, port), backlog=1)
            self._listener.setblocking(False)
            self.port = self._listener.getsockname()[1]
        except OSError as error:
            raise ConfigError(
                f"integrator.address = {address!r}, integrator.port = {port}: cannot listen there "
                f"({error.strerror or error})"
            ) from error

    def accept(self) -> bool:
        """Accept the first client and stop listening; return whether it is here."""
        if self._client is None and self._listener is not None:
            try:
                self._client, _ = self._listener.accept()
            except BlockingIOError:
                return False
            self._client.setblocking(False)
            self._client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._listener.close()
        return self._client is not None

    def receive(self, size: int) -> bytes | None:
        """Return the next ``size`` bytes, or None. Raises ConnectionEnded, or IntegratorError after a timeout."""
        assert self._client is not None
        buffer = self._buffer
        while (missing := size - len(buffer)) > 0:
            part = self._read(missing)
            if part is None:
                if buffer and time.monotonic() > self._began + WHOLE_S:
                    raise IntegratorError(
                        f"the client has sent {len(buffer)} of {size} bytes of a message in {WHOLE_S:g} s"
                    )
                return None
            if not part:
                raise ConnectionEnded(missing if buffer else 0)
            if not buffer:
                self._began = time.monotonic()
            buffer += part
        whole = bytes(buffer)
        buffer.clear()
        return whole

    def _read(self, most: int) -> bytes | None:
        assert self._client is not None
        if QUICKACK is not None:
            self._client.setsockopt(socket.IPPROTO_TCP, QUICKACK, 1)
        try:
            return self._client.recv(most)
        except BlockingIOError:
            return None
        except OSError as error:
            raise IntegratorError(f"the connection to the client is lost ({error.strerror})") from error

    def wait(self) -> None:
        assert self._client is not None
        select.select([self._client], [], [], LOOK_S)

    def send(self, data: bytes) -> None:
        """Send all of ``data``. Raises IntegratorError if the client does not take it."""
        assert self._client is not None
        until, rest = time.monotonic() + WHOLE_S, memoryview(data)
        while rest:
            try:
                rest = rest[self._client.send(rest) :]
            except BlockingIOError:
                if time.monotonic() > until:
                    raise IntegratorError(f"the client has not taken an answer in {WHOLE_S:g} s") from None
                select.select([], [self._client], [], LOOK_S)
            except OSError as error:
                raise IntegratorError(f"the connection to the client is lost ({error.strerror})") from error

    def close(self) -> None:
        """Close all sockets; may be called again."""
        for each in (self._listener, self._client):
            if each is not None:
                with suppress(OSError):
                    each.close()
        self._listener = self._client = None
