# SPDX-License-Identifier: Apache-2.0
"""Client of the integrator ``remote`` in pure Python, with the calls of ``rths_client.h``.

    with Client("127.0.0.1", 8090, n=1, connect_within=60.0, answer_within=60.0) as rig:
        for step in range(1, steps + 1):
            ...
            rig.trial(displacement, velocity, acceleration, step * dt)
            (force,) = rig.force()
            ...
            rig.commit()

The protocol is version 1, as used by the element genericClient of OpenSees 3.
"""

from __future__ import annotations

import math
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import suppress

PROTOCOL = 1
FARTHEST = 1e6
"""Largest magnitude of a value that the laboratory accepts, m, m/s, m/s^2, s."""
LONGEST_WAIT = 1e6
"""s"""
LEFT = "the laboratory has closed the connection"

TRIAL, COMMIT, FORCE, STIFFNESS, DAMPING, MASS, DIE = 3, 5, 10, 12, 14, 15, 99


class ClientError(Exception):
    """Failure of a connection. Each later call raises the same error until the client is closed."""


class NobodyListens(ClientError):
    """No server accepts connections at the address."""


class TooLate(ClientError):
    """Timeout while receiving an answer or sending a request."""


class LaboratoryLeft(ClientError):
    """The laboratory has ended or stopped the test; its terminal prints the reason."""


class NoAnswer(ClientError):
    """The received bytes are not a valid answer."""


class Client:
    """Connection for ``n`` degrees of freedom to the laboratory at ``address`` (numeric) and ``port``.

    Connecting is retried for ``connect_within`` s; every later wait is limited to ``answer_within`` s. The first
    force is available once the rig has started, which may depend on an operator. Raises ValueError for invalid
    arguments, and NobodyListens.
    """

    def __init__(
        self, address: str, port: int, n: int, connect_within: float = 60.0, answer_within: float = 60.0
    ) -> None:
        in_bounds = 0.0 <= connect_within <= LONGEST_WAIT and 0.0 < answer_within <= LONGEST_WAIT
        if not (1 <= n <= 64 and 1 <= port <= 65_535 and in_bounds):
            raise ValueError(
                f"n = {n}, port = {port}, waits {connect_within:g} s, {answer_within:g} s: out of bounds"
            )
        self.n, self._within = n, answer_within
        self._length = max(3 * n + 2, n * n)
        self._failure: ClientError | None = None
        self._tried = False
        self._socket = self._connected(address, port, connect_within)
        try:
            self._send(struct.pack("<11i", n, n, n, 0, 1, 0, 0, 0, n, 0, self._length))
        except ClientError:
            self._socket.close()
            raise

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def trial(
        self, displacement: Sequence[float], velocity: Sequence[float], acceleration: Sequence[float], time: float
    ) -> None:
        """Set a trial response, ``(n,)`` m, m/s and m/s^2, at ``time`` s of the model.

        If a magnitude exceeds 1e6 or is not a number, the connection is closed and ValueError is raised.
        """
        values = [*displacement, *velocity, *acceleration, time]
        if len(displacement) != self.n or len(values) != 3 * self.n + 1:
            raise ValueError(f"trial response: must have {self.n} displacements, velocities and accelerations")
        if self._failure is None and not all(abs(value) <= FARTHEST for value in values):  # False for NaN
            self._fails(NoAnswer("the connection was closed, because the trial response was invalid"))
            self._socket.close()
            raise ValueError(f"trial response: {values}: must be numbers between -{FARTHEST:g} and {FARTHEST:g}")
        self._request(TRIAL, values)
        self._tried = True

    def force(self) -> list[float]:
        """Wait until the rig has reached the trial response, and return the measured force, ``(n,)`` N."""
        self._check_tried()
        return self._ask(FORCE)[: self.n]

    def commit(self) -> None:
        """End the step with the last trial response."""
        self._check_tried()
        self._request(COMMIT)

    def stiffness(self) -> list[list[float]]:
        """Return the declared stiffness of the tested part, ``(n, n)`` N/m."""
        return self._matrix(STIFFNESS)

    def damping(self) -> list[list[float]]:
        """Return the declared damping, ``(n, n)`` N s/m."""
        return self._matrix(DAMPING)

    def mass(self) -> list[list[float]]:
        """Return the declared mass, ``(n, n)`` kg."""
        return self._matrix(MASS)

    def close(self) -> None:
        """Close the connection, and notify the laboratory unless an error occurred. May be called again."""
        if self._failure is None:
            with suppress(ClientError):
                self._request(DIE)
            self._failure = ClientError("the client is closed")
        self._socket.close()

    # -- protocol

    @staticmethod
    def _connected(address: str, port: int, within: float) -> socket.socket:
        until = time.monotonic() + within
        while True:
            try:
                timeout = max(until - time.monotonic(), 0.05)
                connection = socket.create_connection((address, port), timeout=timeout)
            except OSError as error:
                if time.monotonic() >= until:
                    raise NobodyListens(f"no server at {address} port {port}: {error}") from error
                time.sleep(0.02)
                continue
            if connection.getsockname() != connection.getpeername():  # an unused local port may connect to itself
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return connection
            connection.close()

    def _check_tried(self) -> None:
        if self._failure is None and not self._tried:
            raise ValueError("no trial response was set")

    def _fails(self, error: ClientError) -> ClientError:
        self._failure = error
        return error

    def _request(self, action: int, values: Sequence[float] = ()) -> None:
        if self._failure is not None:
            raise self._failure
        rest = self._length - 1 - len(values)
        self._send(struct.pack(f"<{self._length}d", action, *values, *[0.0] * rest))

    def _send(self, data: bytes) -> None:
        try:
            self._socket.setblocking(False)
            with suppress(BlockingIOError):  # no answer is expected
                if self._socket.recv(1, socket.MSG_PEEK):
                    raise self._fails(NoAnswer("received bytes that were not requested"))
                raise self._fails(LaboratoryLeft(LEFT))
            self._socket.settimeout(self._within)
            self._socket.sendall(data)
        except TimeoutError as error:
            raise self._fails(TooLate(f"the request was not received within {self._within:g} s")) from error
        except OSError as error:
            raise self._fails(LaboratoryLeft(f"{LEFT}: {error}")) from error

    def _ask(self, action: int) -> list[float]:
        self._request(action)
        data, until = b"", time.monotonic() + self._within
        while (missing := 8 * self._length - len(data)) > 0:
            try:
                self._socket.settimeout(max(until - time.monotonic(), 1e-3))
                part = self._socket.recv(missing)
            except TimeoutError as error:
                raise self._fails(TooLate(f"no answer within {self._within:g} s")) from error
            except OSError as error:
                raise self._fails(LaboratoryLeft(f"{LEFT}: {error}")) from error
            if not part:
                raise self._fails(LaboratoryLeft(LEFT))
            data += part
        values = list(struct.unpack(f"<{self._length}d", data))
        if not all(math.isfinite(value) for value in values[: self.n if action == FORCE else self.n**2]):
            raise self._fails(NoAnswer("the answer has values that are not finite"))
        return values

    def _matrix(self, action: int) -> list[list[float]]:
        values = self._ask(action)
        return [values[row : self.n**2 : self.n] for row in range(self.n)]
