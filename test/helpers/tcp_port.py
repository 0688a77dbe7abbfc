# SPDX-License-Identifier: Apache-2.0
"""Example of a third-party port: the session of the UDP port over TCP, and a relay to an emulated rig."""

from __future__ import annotations

import select
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import integer, params, text
from rths_nodes.laboratory.ports.session import SessionParams, SessionPort, Transport

LENGTH = struct.Struct("<H")


class TcpTransport(Transport):
    """Datagrams in a stream, each preceded by its length."""

    def __init__(self, address: str, port: int) -> None:
        self.address, self.unsent = f"{address}:{port}", ""
        self._to, self._socket, self._data = (address, port), None, b""

    def open(self) -> None:
        self.close()
        try:
            self._socket = socket.create_connection(self._to, 5.0)
        except OSError as error:
            raise ConfigError(f"port.address = {self.address!r}: cannot connect ({error.strerror})") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)
        self._data = b""

    def settle(self) -> None:
        """The other end of a connection never changes."""

    def send(self, data: bytes) -> None:
        try:
            self._socket.sendall(LENGTH.pack(len(data)) + data)
        except OSError as error:
            self.unsent = error.strerror or str(error)

    def received(self) -> Iterator[tuple[bytes, str]]:
        with suppress(OSError):  # no data, or the connection has ended: the silence is detected elsewhere
            self._data += self._socket.recv(1 << 16)
        yield from ((data, "") for data in self._complete())

    def _complete(self) -> Iterator[bytes]:
        while len(self._data) >= 2 and len(self._data) >= 2 + (n := LENGTH.unpack(self._data[:2])[0]):
            data, self._data = self._data[2 : 2 + n], self._data[2 + n :]
            yield data

    def wait(self, seconds: float) -> bool:
        return bool(select.select([self._socket], [], [], max(seconds, 0.0))[0])

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class TcpPort(SessionPort):
    """A rig reached by TCP."""

    @params
    class Params(SessionParams):
        address: str = text("address of the rig's target computer", "127.0.0.1")
        port: int = integer("TCP port on which the target listens", "", 25011, at_least=1, at_most=65535)

        def fits(self, test: object) -> None:
            self.check_session(test)

    @staticmethod
    def transport_of(params: Params) -> Transport:
        return TcpTransport(params.address, params.port)


class Relay:
    """Serves consecutive connections, each with a UDP socket to the rig at ``far``."""

    def __init__(self, far: tuple[str, int]) -> None:
        self._far, self._ended = far, threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(0.05)
        self.port = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while not self._ended.is_set():
            try:
                stream, _ = self._listening.accept()
            except TimeoutError:
                continue
            line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            with stream, line as rig, suppress(ConnectionError):
                rig.connect(self._far)
                self._relay(stream, rig)

    def _relay(self, stream: socket.socket, rig: socket.socket) -> None:
        while not self._ended.is_set():
            for ready in select.select([stream, rig], [], [], 0.05)[0]:
                if ready is stream:
                    head = stream.recv(2, socket.MSG_WAITALL)
                    if len(head) < 2:
                        return
                    rig.send(stream.recv(LENGTH.unpack(head)[0], socket.MSG_WAITALL))
                else:
                    data = rig.recv(4096)
                    stream.sendall(LENGTH.pack(len(data)) + data)

    def close(self) -> None:
        self._ended.set()
        self._thread.join(5.0)
        self._listening.close()
