# SPDX-License-Identifier: Apache-2.0
"""Low-priority process of the page, to which the front passes connections.

Over a socket pair the front passes connections, as open files, and events on stops, as JSON; the process reports
once that it serves, and ends with the front.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from aiohttp import web

from rths_nodes.app.page.answers import quiet_runner
from rths_nodes.app.page.stops import Stop
from rths_nodes.core.errors import ConfigError

READY = b"ready"
LONGEST = 65536
PATIENCE_S = 5.0
"""Timeout for the process to exit, s."""


class Behind:
    """Starts ``rths page`` with ``words`` as a process, and passes connections to it."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._words = arguments
        self._start()

    def restart(self) -> None:
        """Restart it after its end; it then disarms what its page had armed."""
        self._end.close()
        self._start("--restarted")

    def _start(self, *further: str) -> None:
        self._reaches: bool | None = None
        self._end, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._end.setblocking(False)
        with its:
            arguments = *self._words, *further, "--behind", str(its.fileno())
            self._process = subprocess.Popen(
                [sys.executable, "-m", "rths_nodes.app.cli", "page", *arguments],
                stdin=subprocess.DEVNULL,
                pass_fds=[its.fileno()],
                start_new_session=True,  # Ctrl-C is for the front
            )

    async def serves(self) -> bool:
        """Wait until it serves; False if it has ended and reported why."""
        with suppress(OSError):
            return await asyncio.get_running_loop().sock_recv(self._end, len(READY)) == READY
        return False

    def hand_on(self, connection: socket.socket) -> None:
        """Pass a connection, and close it here; it is lost if the process accepts no more."""
        with connection, suppress(OSError):
            socket.send_fds(self._end, [b"connection"], [connection.fileno()])

    def reaches(self, rig: bool) -> None:
        """Report changes of whether stops reach a ``rig``."""
        if rig != self._reaches:
            self._reaches = rig
            self._tell({"reaches": rig})

    def told(self, stop: Stop) -> Stop:
        """Wrap ``stop`` so that the page lists each outcome as an event."""

        async def stop_and_tell(kind: str, reason: str) -> str:
            try:
                result = await stop(kind, reason)
            except ConfigError as error:
                self._tell({"stop": f"{reason}: not confirmed: {error}"})
                raise
            self._tell({"stop": f"{reason}: {result}"})
            return result

        return stop_and_tell

    def _tell(self, message: dict[str, object]) -> None:
        with suppress(OSError):
            self._end.send(json.dumps(message).encode())

    def ended(self) -> int | None:
        return self._process.poll()

    def close(self) -> int:
        """End the process, and return its exit code."""
        self._end.close()
        try:
            return self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


async def serve_behind(application: web.Application, end: int, note: Callable[[dict[str, object]], None]) -> None:
    """Serve connections of the socket ``end`` (number) until the front ends; ``note`` gets events."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    runner = quiet_runner(application)
    await runner.setup()
    assert runner.server is not None
    serving, joining = runner.server, set[asyncio.Future[Any]]()

    def take() -> None:
        words, handed, _, _ = socket.recv_fds(front, LONGEST, 1)
        for number in handed:
            connection = socket.socket(fileno=number)
            connection.setblocking(False)
            joined = asyncio.ensure_future(loop.connect_accepted_socket(serving, connection))
            joining.add(joined)
            joined.add_done_callback(joining.discard)
        if not words:
            loop.remove_reader(front)
            over.set()
        elif not handed:
            note(json.loads(words))

    with socket.socket(fileno=end) as front:
        front.setblocking(False)
        loop.add_reader(front, take)
        front.send(READY)
        await over.wait()
    await runner.cleanup()
