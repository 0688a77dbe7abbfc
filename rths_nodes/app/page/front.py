# SPDX-License-Identifier: Apache-2.0
"""The front of a page, of ordinary priority: it takes every connection, answers stops, and hands on the rest.

The page behind it waits for everybody else on the machine, which a stop must not do. A connection that begins with
the request for a stop is answered here; any other one goes on unread, and costs nothing from then on.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from aiohttp import web

from rths_nodes.app.page.answers import quiet_runner
from rths_nodes.app.page.stops import PATH

OWN = f"POST {PATH} ".encode()
"""Beginning of a request that is answered here."""
WAITING = 100
"""Connections that have not asked yet; where there are more, the oldest is closed."""
THREADS = 16
"""Stops that wait for their answers at a time."""
PART_S = 0.01
"""A connection over which a part of ``OWN`` has come is looked at again after this time."""
LOOKS = 500
"""So often; then it goes on."""
FULL_S = 0.1
"""Where the machine has no more files to open, the next connection waits this time."""


class Front:
    """Answers stops by the application ``stops``, and calls ``hand_on`` with what else comes at ``listening``."""

    def __init__(
        self, listening: socket.socket, stops: web.Application, hand_on: Callable[[socket.socket], None]
    ) -> None:
        self._listening, self._hand_on = listening, hand_on
        self._runner = quiet_runner(stops)
        self._waiting: dict[asyncio.Task[None], None] = {}

    async def serve(self) -> None:
        """Serve until it is cancelled."""
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(THREADS, "stop"))
        await self._runner.setup()
        try:
            while True:
                try:
                    connection, _ = await loop.sock_accept(self._listening)
                except OSError:
                    await asyncio.sleep(FULL_S)
                    continue
                if len(self._waiting) == WAITING:
                    next(iter(self._waiting)).cancel()
                looking = loop.create_task(self._look(connection))
                self._waiting[looking] = None
                looking.add_done_callback(self._looked)
        finally:
            for each in list(self._waiting):
                each.cancel()
            await self._runner.cleanup()

    def _looked(self, looking: asyncio.Task[None]) -> None:
        self._waiting.pop(looking, None)
        with suppress(asyncio.CancelledError):
            looking.exception()

    async def _look(self, connection: socket.socket) -> None:
        """Decide, by the beginning of its request, who answers a ``connection``, which is not read for it."""
        try:
            beginning = await _beginning(connection)
        except BaseException:
            connection.close()
            raise
        if beginning != OWN:
            self._hand_on(connection)
            return
        assert self._runner.server is not None
        await asyncio.get_running_loop().connect_accepted_socket(self._runner.server, connection)


async def _beginning(connection: socket.socket) -> bytes:
    """Return what has come, without taking it, once it tells whether it begins with ``OWN``."""
    connection.setblocking(False)
    await _readable(connection)
    for _ in range(LOOKS):
        found = connection.recv(len(OWN), socket.MSG_PEEK)
        if len(found) == len(OWN) or not found or not OWN.startswith(found):
            break
        await asyncio.sleep(PART_S)
    return found


async def _readable(connection: socket.socket) -> None:
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(connection, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(connection)
