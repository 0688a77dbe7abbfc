# SPDX-License-Identifier: Apache-2.0
"""Connections of a page: access rights of clients, and a front process that answers stop requests.

The page's process has the lowest priority and may wait, but a stop must not wait. Connections are accepted in
batches, so that another user cannot fill the kernel's queue. The front process answers the following
requests, and passes all other connections to the page's process:

    POST /stop  {"kind": "stop" or "trip"}; the response follows once the rig has confirmed the stop
    GET  /stop  ``reaches``: whether a stop reaches a rig
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import re
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from aiohttp import web

from rths_nodes.core.errors import ConfigError
from rths_nodes.ros.names import STOPS

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler, Middleware  # missing in the oldest supported aiohttp

LARGEST_BODY = 4096
"""Maximum size of the body of a request, bytes."""
CLOSE_S = 0.2
"""Time for open requests to end when the server closes, s."""


def guarded_application(address: str, *middlewares: Middleware) -> web.Application:
    """Return an application without routes for the server at ``address``. A connection closes after one response.

    Requests for another host or from another origin are refused and do not count towards the request limits.
    """

    @web.middleware  # type: ignore[untyped-decorator]
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not known_host(request.headers.get("Host", ""), address):
            return refused(403, OTHER_NAME)
        if other_origin(request.headers):
            return refused(403, OTHER_ORIGIN)
        try:
            answer: web.StreamResponse = await handler(request)
        except web.HTTPException as refusal:
            answer = refused(refusal.status, refusal.reason)
        if not answer.prepared:
            answer.headers.update(HEADERS | dict(answer.headers))
            answer.force_close()
        return answer

    return web.Application(client_max_size=LARGEST_BODY, middlewares=[guarded, *middlewares])


def quiet_runner(application: web.Application) -> web.AppRunner:
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    return web.AppRunner(application, access_log=None)


async def shut_down(runner: web.AppRunner) -> None:
    assert runner.server is not None
    await runner.server.shutdown(CLOSE_S)  # cleanup alone would wait a minute for open pages
    await runner.cleanup()


async def fields(request: web.Request, *names: str) -> dict[str, object] | None:
    try:
        values = await request.json()
    except (ValueError, LookupError, RecursionError):  # LookupError: unknown charset
        return None
    if not isinstance(values, dict) or not all(name in values for name in names):
        return None
    return values


def refused(status: int, why: str) -> web.Response:
    answer = web.json_response({"error": why}, status=status, headers=HEADERS)
    answer.force_close()
    return answer


MARK = "X-Rths-Page"
"""Header of every POST. Another origin could send it only after a preflight request, which is refused."""
PER_SECOND = 100
"""Maximum number of requests per second from each address."""
TOO_MANY = "too many requests"
OTHER_NAME = "the request is for a host other than this server"
OTHER_ORIGIN = "the request is from a page of another origin"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
"""Headers of every response. They forbid external content and embedding in a frame."""
OF_REPORTS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; sandbox"
}
"""Headers of a report. They allow inline styles and pictures, but no scripts."""


def is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return address == "localhost"


def host_of(address: str) -> str:
    name = address.rpartition("//")[2]
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0]


def other_origin(headers: Mapping[str, str]) -> bool:
    origin = headers.get("Origin", "")
    return bool(origin) and origin.rpartition("//")[2] != headers.get("Host", "")


def why_not(headers: Mapping[str, str], remote: str, host: str, open_to_others: bool) -> str:
    """Return why the client ``remote`` must not stop the rig of the server ``host``; empty if it may."""
    if headers.get(MARK) != "1":
        return f"the header {MARK} is missing, so the request is not from the page"
    if not known_host(headers.get("Host", ""), host):
        return OTHER_NAME
    if other_origin(headers):
        return OTHER_ORIGIN
    if not is_loopback(remote) and not open_to_others:
        return (
            "another computer may watch but not stop the rig, unless the page was started with "
            "--stop-from-anywhere"
        )
    return ""


def known_host(header: str, served: str) -> bool:
    """Return true if the Host ``header`` is ``served``, ``localhost`` or a loopback address.

    Every IP address is accepted if ``served`` is a wildcard address. Accepting other names would permit DNS
    rebinding.
    """
    host = host_of(header)
    if host == "localhost" or host == served:
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or served in ("0.0.0.0", "::")


def admits(sent: dict[str, deque[float]], remote: str, now: float) -> bool:
    """Return true if ``remote`` may send a request at time ``now``, s. ``sent`` holds earlier request times."""
    times = sent.setdefault(remote, deque(maxlen=PER_SECOND))
    if len(times) == PER_SECOND and now - times[0] < 1.0:
        return False
    times.append(now)
    if len(sent) > PER_SECOND:  # forget addresses that sent no request for a second
        for client in [name for name, last in sent.items() if now - last[-1] > 1.0]:
            del sent[client]
    return True


BEGINNINGS = (b"POST /stop ", b"GET /stop ")
LARGEST_HEAD = 8192
KINDS = {"stop": STOPS[0], "trip": STOPS[1], "emergency_stop": STOPS[1]}
"""Service of each kind of stop. ``emergency_stop`` is the name of ``trip`` up to version 0.9."""
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,9})", re.IGNORECASE)

Stop = Callable[[str, str], Awaitable[str]]
"""Function that takes a service and a reason, stops the rig, and returns the confirmation. Raises ConfigError if
the stop is not confirmed."""


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
    headers = HEADERS | {
        "Content-Type": "application/json; charset=utf-8",
        "Content-Length": str(len(body)),
        "Connection": "close",
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n{lines}\r\n".encode() + body


READY = b"ready"
LONGEST_EVENT = 65536
PATIENCE_S = 2.0
"""Time for the page's process to exit, s: less than the time that a test waits for its page."""


class Behind:
    """Starts the page's process (``rths page``) and passes connections to it."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._words = arguments
        self._start()

    def restart(self) -> None:
        """Replace the terminated process. The new process disarms an armed rig."""
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
        if rig != self._reaches and self._tell({"reaches": rig}):  # retried later if the page's process hangs
            self._reaches = rig

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

    def _tell(self, message: dict[str, object]) -> bool:
        with suppress(OSError):
            return self._end.send(json.dumps(message).encode()) > 0
        return False

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
    """Serve connections from the socket ``end`` until the front ends. Pass the front's reports to ``note``."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    runner = quiet_runner(application)
    await runner.setup()
    assert runner.server is not None
    serving, joining = runner.server, set[asyncio.Future[Any]]()

    def take() -> None:
        try:
            head, handed, _, _ = socket.recv_fds(front, LONGEST_EVENT, 1)
        except ConnectionResetError:  # the front has ended without reading READY, e.g. after a restart
            head, handed = b"", []
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
        with suppress(OSError):  # the front may have ended before this process was ready
            front.send(READY)
        await over.wait()
    await shut_down(runner)


AT_ONCE = 64
"""Number of connections accepted in one batch. Pending stops are processed between batches."""
WAITING = 400
"""Maximum number of connections with incomplete requests. An additional connection closes the oldest."""
PART_S = 0.01
"""Polling interval of an incomplete request, s."""
LOOKS = 500
"""Number of polls after which a connection with an incomplete request is closed."""
FULL_S = 0.01
"""Pause if no file descriptor is free, s."""
LONGEST = LARGEST_HEAD + LARGEST_BODY


class Front:
    """Accepts connections to ``address``, answers stop requests, and passes other requests to ``hand_on``.

    ``stop`` stops the rig. ``reaches()`` returns true if a stop reaches a rig. ``open_to_others`` permits every
    computer to stop the rig.
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
        """Return the response to a complete request or, for a valid stop, the name of the stop service."""
        head, _, body = received.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {
            name.strip().title(): value.strip() for name, _, value in (line.partition(":") for line in lines)
        }
        if first.startswith("GET"):
            if not known_host(headers.get("Host", ""), self._address):
                return _unconfirmed(403, OTHER_NAME)
            return _answer(200, {"reaches": self._reaches()})
        if why := why_not(headers, remote, self._address, self._open):
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
