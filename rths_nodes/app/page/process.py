# SPDX-License-Identifier: Apache-2.0
"""Process that serves the page of a run or test: start, output and TCP port."""

from __future__ import annotations

import os
import pwd
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from rths_nodes.core.errors import ConfigError, printable

BACKLOG = 4096
"""Largest number of connections waiting to be accepted. Clients retry a dropped connection after 1 s."""
LISTENING = "0A"
"""State of a listening socket in /proc/net/tcp."""

PORT = 8085
PATIENCE_S = 5.0


@contextmanager
def page_beside(namespace: str, say: Callable[[str], None], arguments: Sequence[str] = ()) -> Iterator[int]:
    """Serve the page of ``namespace`` during the ``with`` block. Yield the pid of the page's process.

    ``say`` prints the output of the page's process, and a message if that process ends before the block. Raises
    ConfigError if the page cannot be served.
    """
    program = [sys.executable, "-m", "rths_nodes.app.cli", "page", *arguments, "--namespace", namespace]
    serving = subprocess.Popen(
        [*program, "--parent", str(os.getpid())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,  # only the test receives Ctrl-C
    )
    first = serving.stdout.readline() if serving.stdout else ""
    if not first:
        _, why = serving.communicate()
        raise ConfigError(
            why.strip().removeprefix("rths: ") or "page: the process ended immediately after its start"
        )
    say(first.strip())
    closing = threading.Event()

    def report_end() -> None:
        _tell(serving.stdout, say)
        if not closing.is_set():
            say("the page has ended, and its stop no longer works. Stop the test at this terminal")

    telling = [  # a full pipe would block the page and its stop
        threading.Thread(target=report_end, name="page", daemon=True),
        threading.Thread(target=_tell, args=(serving.stderr, say), name="page", daemon=True),
    ]
    for thread in telling:
        thread.start()
    try:
        yield serving.pid
    finally:
        closing.set()
        with suppress(ProcessLookupError):
            serving.send_signal(signal.SIGINT)
        try:
            serving.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            serving.kill()
            serving.wait()
        for thread in telling:
            thread.join(PATIENCE_S)


def _tell(stream: IO[str] | None, say: Callable[[str], None]) -> None:
    for line in stream or ():
        say(line.strip())


def listening_at(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        made = socket.create_server((address, port), family=family, backlog=BACKLOG)
    except OSError as error:
        owner = _owner(port)
        hint = f". {owner} listens on this port. Choose another port, or 0 for any free port" if owner else ""
        why = str(error.strerror).partition(" (while attempting")[0]
        raise ConfigError(f"page: cannot be served at {address}:{port} ({why}){hint}") from None
    made.setblocking(False)
    return made


def url_of(listening: socket.socket) -> str:
    address, port, *_ = listening.getsockname()
    return f"http://{f'[{address}]' if ':' in address else address}:{port}/"


def _owner(port: int) -> str:
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for row in Path(f"/proc/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
                fields = row.split()
                if fields[3] == LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                    return f"{_process(fields[9])}user {user_name(int(fields[7]))}"
    return ""


def _process(inode: str) -> str:
    for folder in Path("/proc").glob("[0-9]*/fd"):
        with suppress(OSError):  # a process of another user, or a terminated process
            for link in folder.iterdir():
                if os.readlink(link) == f"socket:[{inode}]":
                    command = (folder.parent / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
                    return f"{printable(command.strip()[:80])} (process {folder.parent.name}), "
    return ""


def user_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
