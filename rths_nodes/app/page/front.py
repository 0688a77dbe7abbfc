# SPDX-License-Identifier: Apache-2.0
"""Front process of a page: accepts every connection, answers stops, passes on the others.

The page's own process has the lowest priority and may wait, which a stop must not do. Connections are accepted in
batches, and a complete request costs some tens of microseconds: otherwise another user's connections would fill
the kernel's queue, which then drops the operator's.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress

from rths_nodes.app.page.stops import LARGEST_BODY, LARGEST_HEAD, StopServer, is_complete, is_other

AT_ONCE = 64
"""Connections accepted before stops under way continue."""
WAITING = 400
"""Connections with an incomplete request; a further one closes the oldest."""
PART_S = 0.01
"""Polling interval of an incomplete request, s."""
LOOKS = 500
"""Number of polls before the connection is closed."""
FULL_S = 0.01
"""Pause without a free file descriptor, s."""
LONGEST = LARGEST_HEAD + LARGEST_BODY
"""Largest request, bytes."""


class Front:
    """Answers stops by ``stops``, and calls ``hand_on`` with every other connection, unread."""

    def __init__(
        self, listening: socket.socket, stops: StopServer, hand_on: Callable[[socket.socket], None]
    ) -> None:
        self._listening, self._stops, self._hand_on = listening, stops, hand_on
        self._waiting: dict[asyncio.Task[None], None] = {}
        self._stopping = set[asyncio.Task[None]]()

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(self._listening, self._accept)
        try:
            await loop.create_future()
        finally:
            loop.remove_reader(self._listening)
            for task in (*self._waiting, *self._stopping):
                task.cancel()

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                connection, (remote, *_) = self._listening.accept()
            except BlockingIOError:
                return
            except ConnectionError:
                continue
            except OSError:  # no free file descriptor
                self._close_oldest()
                self._pause()
                return
            try:
                self._look(connection, remote)
            except OSError:
                connection.close()

    def _pause(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._listening)
        loop.call_later(FULL_S, loop.add_reader, self._listening, self._accept)

    def _look(self, connection: socket.socket, remote: str) -> None:
        """Answer a complete stop, pass on another request, or wait for the rest."""
        connection.setblocking(False)
        try:
            received = connection.recv(LONGEST, socket.MSG_PEEK)
        except BlockingIOError:
            self._wait(connection, remote)
            return
        if not received:
            connection.close()
        elif is_other(received):
            self._hand_on(connection)
        elif is_complete(received):
            self._answer(connection, remote)
        else:
            self._wait(connection, remote)

    def _answer(self, connection: socket.socket, remote: str) -> None:
        answer = self._stops.at_once(connection.recv(LONGEST), remote)
        if isinstance(answer, bytes):
            with connection:
                connection.send(answer)
            return
        stopping = asyncio.get_running_loop().create_task(self._stop(connection, answer, remote))
        self._stopping.add(stopping)
        stopping.add_done_callback(self._stopping.discard)

    async def _stop(self, connection: socket.socket, kind: str, remote: str) -> None:
        with connection, suppress(OSError):  # the caller may leave before the answer
            answer = await self._stops.confirmed(kind, remote)
            connection.send(answer)

    def _wait(self, connection: socket.socket, remote: str) -> None:
        if len(self._waiting) >= WAITING:
            self._close_oldest()
        waiting = asyncio.get_running_loop().create_task(self._complete(connection, remote))
        self._waiting[waiting] = None
        waiting.add_done_callback(lambda task: self._waiting.pop(task, None))

    def _close_oldest(self) -> None:
        if oldest := next(iter(self._waiting), None):
            del self._waiting[oldest]
            oldest.cancel()

    async def _complete(self, connection: socket.socket, remote: str) -> None:
        """Wait for the rest of a request, still in the ``connection``, then answer it or pass it on."""
        try:
            await _readable(connection)
            for _ in range(LOOKS):
                received = connection.recv(LONGEST, socket.MSG_PEEK)
                if not received or is_other(received) or is_complete(received):
                    self._look(connection, remote)
                    return
                await asyncio.sleep(PART_S)
            connection.close()
        except (OSError, asyncio.CancelledError):
            connection.close()


async def _readable(connection: socket.socket) -> None:
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(connection, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(connection)
