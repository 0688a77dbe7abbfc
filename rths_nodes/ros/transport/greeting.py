# SPDX-License-Identifier: Apache-2.0
"""Identity of the other side of a socket between two nodes of one machine: names, credentials, the first words.

The names are abstract: they stand in no directory and vanish with their socket. Anybody on the machine may take
one, or connect to it, so both sides ask the kernel which user the other one is, and the caller says who it is.
"""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import socket
import struct
from dataclasses import asdict, dataclass

LONGEST_NAME = 107
"""Bytes of an abstract name."""
LONGEST_GREETING = 4096
WELCOME = b"welcome"

_CREDENTIALS = struct.Struct("3i")


def address(node: str, domain: int, user: int | None = None) -> bytes:
    """The abstract name at which the node ``node`` (full name) of ``user``, by default this one, listens."""
    name = f"rths/{os.getuid() if user is None else user}/{domain}{node}".encode()
    if len(name) > LONGEST_NAME:
        name = b"rths/" + hashlib.sha256(name).hexdigest().encode()
    return b"\0" + name


@dataclass(frozen=True)
class Credentials:
    """The process at the other end of a socket, and its user, as the kernel tells them."""

    process: int
    user: int

    @classmethod
    def of(cls, sock: socket.socket) -> Credentials:
        """Return the credentials of who has called, or, for a caller, of who listens."""
        process, user, _ = _CREDENTIALS.unpack(
            sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        return cls(process, user)

    @property
    def trusted(self) -> bool:
        """True for a process of the same user."""
        return self.user == os.getuid()

    @property
    def name(self) -> str:
        """The name of the user; the number where the system knows none."""
        try:
            return pwd.getpwuid(self.user).pw_name
        except KeyError:
            return str(self.user)

    def __str__(self) -> str:
        return f"process {self.process} of user {self.user}"


@dataclass(frozen=True)
class Greeting:
    """First message of a caller: its ``run``, its full name, its topic, and the gid of its publisher."""

    run: str
    node: str
    topic: str
    gid: str

    def pack(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def unpack(cls, data: bytes) -> Greeting:
        """Raises ValueError for what is none."""
        values = json.loads(data)  # JSON and encoding errors are ValueErrors
        names = cls.__dataclass_fields__
        if not isinstance(values, dict) or values.keys() != names.keys():
            raise ValueError("other fields than a hello has")
        if not all(isinstance(value, str) for value in values.values()):
            raise ValueError("a field that is no text")
        bytes.fromhex(values["gid"])
        return cls(**values)
