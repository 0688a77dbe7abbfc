# SPDX-License-Identifier: Apache-2.0
"""Identification of two nodes that a socket connects on one machine: names, credentials and greeting.

Every local process may bind or call an abstract socket name, so both sides query the kernel for the user of the
other process.
"""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import socket
import struct
from typing import NamedTuple

LONGEST_NAME = 107
LONGEST_GREETING = 4096
WAIT, WELCOME = b"wait", b"welcome"
"""Answers to a valid greeting: at once, and after the called node has discovered the caller."""

_CREDENTIALS = struct.Struct("3i")


def address(node: str, domain: int, user: int | None = None) -> bytes:
    """Return the abstract socket name of ``node`` (full name). The default ``user`` is the current user."""
    name = f"rths/{os.getuid() if user is None else user}/{domain}{node}".encode()
    if len(name) > LONGEST_NAME:
        name = b"rths/" + hashlib.sha256(name).hexdigest().encode()
    return b"\0" + name


class Credentials(NamedTuple):
    process: int
    user: int

    @classmethod
    def of(cls, sock: socket.socket) -> Credentials:
        process, user, _ = _CREDENTIALS.unpack(
            sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        return cls(process, user)

    @property
    def trusted(self) -> bool:
        return self.user == os.getuid()

    @property
    def name(self) -> str:
        try:
            return pwd.getpwuid(self.user).pw_name
        except KeyError:
            return str(self.user)

    def __str__(self) -> str:
        return f"process {self.process} of user {self.user}"


class Greeting(NamedTuple):
    """First message of a caller: its ``run``, full name, topic, and the gid of its publisher."""

    run: str
    node: str
    topic: str
    gid: str

    def pack(self) -> bytes:
        return json.dumps(self).encode()

    @classmethod
    def unpack(cls, data: bytes) -> Greeting:
        """Unpack a greeting. Raises ValueError if ``data`` is not a greeting."""
        try:
            values = json.loads(data)  # JSON and encoding errors are ValueErrors
        except RecursionError as error:
            raise ValueError("too many brackets") from error
        if not isinstance(values, list) or [type(value) for value in values] != [str] * len(cls._fields):
            raise ValueError("the fields are not four texts")
        bytes.fromhex(values[-1])
        return cls(*values)
