# SPDX-License-Identifier: Apache-2.0
"""TCP ports of the page: a socket that listens, or the owner of a taken port."""

from __future__ import annotations

import os
import pwd
import socket
from contextlib import suppress
from pathlib import Path

from rths_nodes.core.errors import ConfigError, printable

BACKLOG = 4096
"""Connections that wait in the kernel; further ones are dropped, and their clients retry after 1 s."""
LISTENING = "0A"
"""State of a listening socket in /proc/net/tcp."""


def listening_at(address: str, port: int) -> socket.socket:
    """Return a socket that listens at ``address`` and ``port``, 0 for any; raises ConfigError if it cannot."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        made = socket.create_server((address, port), family=family, backlog=BACKLOG)
    except OSError as error:
        owner = _owner(port)
        hint = f"; {owner} listens there: choose another port, or 0 for any" if owner else ""
        raise ConfigError(
            f"page: cannot be served at {address}:{port}: {os.strerror(error.errno or 0)}{hint}"
        ) from None
    made.setblocking(False)
    return made


def url_of(listening: socket.socket) -> str:
    address, port, *_ = listening.getsockname()
    return f"http://{f'[{address}]' if ':' in address else address}:{port}/"


def _owner(port: int) -> str:
    """Return process and user that listen at a TCP ``port``; without the process if it is not readable."""
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for row in Path(f"/proc/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
                fields = row.split()
                if fields[3] == LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                    return f"{_process(fields[9])}user {_user(int(fields[7]))}"
    return ""


def _process(inode: str) -> str:
    for folder in Path("/proc").glob("[0-9]*/fd"):
        with suppress(OSError):  # another user's process, or one that has ended
            for link in folder.iterdir():
                if os.readlink(link) == f"socket:[{inode}]":
                    command = (folder.parent / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
                    return f"{printable(command.strip()[:80])} (process {folder.parent.name}), "
    return ""


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
