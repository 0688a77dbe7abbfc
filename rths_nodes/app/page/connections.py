# SPDX-License-Identifier: Apache-2.0
"""Connections of a page: a front process answers stop requests and passes on all other connections.

The page's process has the lowest priority and may wait; a stop must not wait. Connections are accepted in batches,
because another user could otherwise fill the kernel's queue. The front answers these requests:

    POST /stop  {"kind": "stop" or "trip"}; the response follows once the rig has confirmed the stop
    GET  /stop  ``reaches``: whether a stop reaches a rig
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from aiohttp import web

from rths_nodes.app.page import access
from rths_nodes.app.page.access import quiet_runner
from rths_nodes.core.errors import ConfigError
from rths_nodes.ros.names import STOPS

BEGINNINGS = (b"POST /stop ", b"GET /stop ")
LARGEST_HEAD, LARGEST_BODY = 8192, access.LARGEST_BODY
KINDS = {"stop": STOPS[0], "trip": STOPS[1], "emergency_stop": STOPS[1]}
"""Service of each kind of stop. The name ``emergency_stop`` is from version 0.9."""
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,9})", re.IGNORECASE)

Stop = Callable[[str, str], Awaitable[str]]
"""Function that takes service and reason, stops the rig, and returns the confirmation. Raises ConfigError if the
stop is not confirmed."""


def is_other(received: bytes) -> bool:
    return not any(begin.startswith(received[: len(begin)]) for begin in BEGINNINGS)


def is_complete(received: bytes) -> bool:
    head, end, body = received.partition(b"\r\n\r\n")
    if not end:
        return len(received) > LARGEST_HEAD
    length = _LENGTH.search(head)
    return len(body) >= min(int(length[1]) if length else 0, LARGEST_BODY + 1)


def _unconfirmed(status: int, why: str) -> bytes:
    return _answer(status, {"confirmed": False, "why": why})


def _answer(status: int, fields: dict[str, object]) -> bytes:
    body = json.dumps(fields).encode()
    headers = access.HEADERS | {
        "Content-Type": "application/json; charset=utf-8",
        "Content-Length": str(len(body)),
        "Connection": "close",
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n{lines}\r\n".encode() + body


READY = b"ready"
LONGEST_EVENT = 65536
PATIENCE_S = 5.0


class Behind:
    """Starts the page's process (``rths page``) and passes connections to it."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._words = arguments
        self._start()

    def restart(self) -> None:
        """Restart the process after its end. The new process disarms the rig if a rung is armed."""
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
                start_new_session=True,  # only the front receives Ctrl-C
            )

    async def serves(self) -> bool:
        with suppress(OSError):
            return await asyncio.get_running_loop().sock_recv(self._end, len(READY)) == READY
        return False

    def hand_on(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            socket.send_fds(self._end, [b"connection"], [connection.fileno()])

    def reaches(self, rig: bool) -> None:
        if rig != self._reaches:
            self._reaches = rig
            self._tell({"reaches": rig})

    def told(self, stop: Stop) -> Stop:
        async def stop_and_tell(kind: str, reason: str) -> str:
            try:
                result = await stop(kind, reason)
            except ConfigError as error:
                self._tell({"stop": f"{reason}: the stop is not confirmed ({error})"})
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
        self._end.close()
        try:
            return self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


async def serve_behind(application: web.Application, end: int, note: Callable[[dict[str, object]], None]) -> None:
    """Serve connections from the socket with descriptor ``end`` until the front ends.

    ``note`` receives the reports of the front.
    """
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    runner = quiet_runner(application)
    await runner.setup()
    assert runner.server is not None
    serving, joining = runner.server, set[asyncio.Future[Any]]()

    def take() -> None:
        head, handed, _, _ = socket.recv_fds(front, LONGEST_EVENT, 1)
        for number in handed:
            connection = socket.socket(fileno=number)
            connection.setblocking(False)
            joined = asyncio.ensure_future(loop.connect_accepted_socket(serving, connection))
            joining.add(joined)
            joined.add_done_callback(joining.discard)
        if not head:
            loop.remove_reader(front)
            over.set()
        elif not handed:
            note(json.loads(head))

    with socket.socket(fileno=end) as front:
        front.setblocking(False)
        loop.add_reader(front, take)
        front.send(READY)
        await over.wait()
    await access.end(runner)


AT_ONCE = 64
"""Number of connections accepted in one batch before pending stops continue."""
WAITING = 400
"""Maximum number of connections with incomplete requests. A further connection closes the oldest."""
PART_S = 0.01
"""Polling interval of an incomplete request, s."""
LOOKS = 500
"""Number of polls after which a connection with an incomplete request is closed."""
FULL_S = 0.01
"""Pause if no file descriptor is free, s."""
LONGEST = LARGEST_HEAD + LARGEST_BODY


class Front:
    """Accepts connections to ``address``, answers stop requests, and passes all others unread to ``hand_on``.

    ``stop`` stops the rig. ``reaches()`` returns true if a stop reaches a rig. If ``open_to_others`` is true, any
    computer may stop the rig.
    """

    def __init__(
        self,
        listening: socket.socket,
        hand_on: Callable[[socket.socket], None],
        stop: Stop,
        reaches: Callable[[], bool],
        address: str,
        open_to_others: bool = False,
    ) -> None:
        self._stop, self._reaches, self._address, self._open = stop, reaches, address, open_to_others
        self._listening, self._hand_on = listening, hand_on
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
            except OSError:  # no file descriptor is free
                self._close_oldest()
                loop = asyncio.get_running_loop()
                loop.remove_reader(self._listening)
                loop.call_later(FULL_S, loop.add_reader, self._listening, self._accept)
                return
            try:
                self._look(connection, remote)
            except OSError:
                connection.close()

    def _look(self, connection: socket.socket, remote: str) -> None:
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
        answer = self._at_once(connection.recv(LONGEST), remote)
        if isinstance(answer, bytes):
            with connection:
                connection.send(answer)
            return
        stopping = asyncio.get_running_loop().create_task(self._confirm(connection, answer, remote))
        self._stopping.add(stopping)
        stopping.add_done_callback(self._stopping.discard)

    def _at_once(self, received: bytes, remote: str) -> bytes | str:
        """Return the response to a complete request or, for a valid stop, the name of its service."""
        head, _, body = received.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {
            name.strip().title(): value.strip() for name, _, value in (line.partition(":") for line in lines)
        }
        if first.startswith("GET"):
            if not access.known_host(headers.get("Host", ""), self._address):
                return _unconfirmed(403, access.OTHER_NAME)
            return _answer(200, {"reaches": self._reaches()})
        if why := access.why_not(headers, remote, self._address, self._open):
            return _unconfirmed(403, why)
        for part, content, largest in (("head", head, LARGEST_HEAD), ("body", body, LARGEST_BODY)):
            if len(content) > largest:
                return _unconfirmed(413, f"the {part} of the request is larger than {largest} bytes")
        try:
            kind = json.loads(body)["kind"]
        except (ValueError, TypeError, KeyError, RecursionError):
            return _unconfirmed(400, "the request must be a JSON object with the key kind")
        if not isinstance(kind, str) or kind not in KINDS:
            return _unconfirmed(400, "kind: must be stop or trip")
        return KINDS[kind]

    async def _confirm(self, connection: socket.socket, service: str, remote: str) -> None:
        with connection, suppress(OSError):  # the client may disconnect before the response
            try:
                result = await self._stop(service, f"page at {remote}")
                answer = _answer(200, {"confirmed": True, "words": result})
            except ConfigError as error:
                answer = _unconfirmed(503, str(error))
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
