# SPDX-License-Identifier: Apache-2.0
"""A rig connected over UDP: one datagram per tick and direction (doc/udp.md)."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator

from rths_nodes.core.addresses import check_address, check_one_computer
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import TestContext, integer, params, text
from rths_nodes.laboratory.ports import datagrams
from rths_nodes.laboratory.ports.session import MOST_AT_ONCE, SessionParams, SessionPort, Transport


class UdpTransport(Transport):
    """Carries datagrams to and from ``address``:``port``.

    Before :meth:`settle`, any port of ``address`` may answer; then only the port of the last answer may.
    """

    def __init__(self, address: str, port: int, local_port: int = 0) -> None:
        self.address, self.unsent = f"{address}:{port}", ""
        self._host, self._port, self._local = address, port, local_port
        self._socket: socket.socket | None = None
        self._far: tuple[str, int] = ("", 0)
        self._sender: tuple[str, int] | None = None
        self._peer: tuple[str, int] | None = None

    def open(self) -> None:
        self.close()
        self._sender = self._peer = None
        self.unsent = ""
        try:
            rows = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_DGRAM)
            # receivers listen on IPv4, but a host may list ::1 first for localhost
            family, kind, _, _, far = min(rows, key=lambda row: row[0] != socket.AF_INET)
            self._far = far  # type: ignore[assignment]  # IPv6 adds flow and scope
            self._socket = socket.socket(family, kind)
            self._socket.setblocking(False)
            self._socket.bind(("", self._local))
        except OSError as error:
            self.close()
            if isinstance(error, socket.gaierror):
                raise ConfigError(
                    f"port.address = {self._host!r}: unknown host name ({error.strerror})"
                ) from error
            raise unusable(self._local, error.strerror or str(error)) from error

    def settle(self) -> None:
        self._peer = self._sender

    @property
    def socket(self) -> socket.socket:
        assert self._socket is not None
        return self._socket

    def send(self, data: bytes) -> None:
        try:
            self.socket.sendto(data, self._far)
        except OSError as error:  # counts as a lost datagram
            self.unsent = error.strerror or str(error)

    def received(self) -> Iterator[tuple[bytes, str]]:
        for _ in range(MOST_AT_ONCE):
            try:
                data, sender = self.socket.recvfrom(2 * datagrams.LARGEST)
            except BlockingIOError:
                return
            except OSError:
                continue  # the error belongs to a datagram that was sent earlier
            self._sender = sender[:2]
            stranger = self._sender != self._peer and (self._peer is not None or sender[0] != self._far[0])
            yield data, sender[0] if stranger else ""

    def wait(self, seconds: float) -> bool:
        return bool(select.select([self.socket], [], [], max(seconds, 0.0))[0])

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class UdpPort(SessionPort):
    """Port of a rig that is connected over UDP."""

    @params
    class Params(SessionParams):
        address: str = text("address or name of the rig's target computer", "127.0.0.1")
        port: int = integer("UDP port on which the target listens", "", 25010, at_least=1, at_most=65535)
        local_port: int = integer(
            "local UDP port, for a target that sends only to a declared port; 0: any port",
            "",
            0,
            at_least=0,
            at_most=65535,
        )

        def validate(self, path: str) -> None:
            check_address(self.address, f"{path}.address")

        def fits(self, test: TestContext) -> None:
            check_one_computer(self.address, "address")
            self.check_session(test)

    @staticmethod
    def transport_of(params: Params) -> Transport:
        return UdpTransport(params.address, params.port, params.local_port)


def unusable(local_port: int, reason: str) -> ConfigError:
    return ConfigError(f"port.local_port = {local_port}: cannot be used ({reason})")
